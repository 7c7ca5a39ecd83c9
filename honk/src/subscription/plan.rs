//! The subscriptions of a configuration that may become the running one.

use std::sync::Arc;

use honk_grammar::LoadError;
use honk_policy::{
    config::{Source, Subscription},
    id::Uuid,
    node::Node,
};

use super::{Hub, error::Problem, good::Good, work};

/// Namespace of subscription identities.
const NAMESPACE: Uuid = Uuid::from_u128(0x6a2f_1b44_9d0e_4c8b_8f11_5b1d_c0a7_33e2);

/// Reads the file of a `file://` subscription.
pub(crate) type Reader<'a> = &'a dyn Fn(&Subscription) -> Result<Vec<u8>, LoadError>;

/// The subscriptions of a configuration that may become the running one.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(super) entries: Vec<Planned>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) id: Uuid,
    pub(super) decl: Subscription,
    pub(super) good: Option<Arc<Good>>,
    pub(super) problem: Option<Problem>,
    /// Whether a file was read for this plan.
    pub(super) read: bool,
}

impl Plan {
    /// Takes the declarations over, with the nodes that `hub` has for them, and reads files anew.
    pub(crate) fn new(decls: &[Subscription], hub: Option<&Hub>, reader: Reader<'_>) -> Self {
        let mut entries: Vec<Planned> = Vec::new();
        for decl in decls {
            let nth = entries.iter().filter(|e| e.decl.url == decl.url).count();
            let id = identity(decl, nth);
            let known = hub.and_then(|hub| hub.good(id, decl));
            let mut planned = Planned {
                id,
                decl: decl.clone(),
                good: known,
                problem: None,
                read: false,
            };
            if decl.enabled && decl.source == Source::File {
                planned.read = true;
                match work::read_file(decl, id, reader) {
                    Ok(good) => planned.good = Some(Arc::new(good)),
                    Err(error) => planned.problem = Some(Problem::of(&error)),
                }
            }
            entries.push(planned);
        }
        let mut plan = Self { entries };
        if let Some(hub) = hub {
            hub.fill(&mut plan);
        }
        plan
    }

    /// Nodes of all subscriptions in order.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let used = self.entries.iter().filter(|e| e.decl.enabled);
        used.filter_map(|e| e.good.as_ref())
            .flat_map(|good| good.nodes.iter().cloned())
            .collect()
    }

    /// Files that could not be used: number of the declaration, tag and reason.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (usize, &str, &Problem)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(at, e)| Some((at, e.decl.tag.as_str(), e.problem.as_ref()?)))
    }

    /// Whether an enabled one has no nodes yet.
    pub(crate) fn waits(&self) -> bool {
        let mut enabled = self.entries.iter().filter(|e| e.decl.enabled);
        enabled.any(|e| e.good.is_none() && e.decl.source != Source::File)
    }
}

/// The same URL keeps its identity over reloads, whatever else is written about it.
pub(super) fn identity(decl: &Subscription, nth: usize) -> Uuid {
    let text = format!("{}\0{nth}", decl.url.reveal());
    Uuid::new_v5(&NAMESPACE, text.as_bytes())
}
