//! What the daemon currently does, as one immutable value.
//!
//! Accept loops read it without waiting; reloads and selection changes make a new one.

use std::sync::Arc;

use honk_common::outbound;
use honk_policy::{
    config::Config,
    group::{GroupTable, Ranker, Ranks, Refuse, Rivals, Selected},
    id::{Family, Network, NodeId, Ordinal},
    routing::{oracle::Oracle, rule::RuleSet},
};

use super::{
    diag::{Findings, Tally},
    score::Score,
    source::Candidate,
};
use crate::{api::doc::Diag, clock, flow::FlowEntry};

/// Leaves of a cold plan: more cannot be begun before its deadline.
const MOST_COLD: usize = 128;

/// One generation, with the selections of the moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Rises by 1 with every activation.
    pub(crate) generation: u64,
    pub(crate) revision: Arc<str>,
    pub(crate) accepted_ms: u64,
    pub(crate) config: Arc<Config>,
    /// Lines with kernel slots for ordinals.
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) groups: GroupTable,
    /// Outbound names by kernel slot.
    names: Arc<[Option<Arc<str>>]>,
    pub(crate) diagnostics: Arc<[Diag]>,
    pub(crate) tally: Tally,
    /// Groups of the generation before: flows that the kernel decided while rules changed
    /// carry slots that exist only there.
    pub(crate) fading: Option<Arc<Fading>>,
}

/// What is left of the generation before.
#[derive(Debug)]
pub(crate) struct Fading {
    groups: GroupTable,
    names: Arc<[Option<Arc<str>>]>,
}

impl Snapshot {
    /// The generation a candidate becomes.
    pub(crate) fn new(candidate: Candidate, findings: &Findings, generation: u64) -> Self {
        let names = names(&candidate.groups);
        Self {
            generation,
            revision: candidate.revision.into(),
            accepted_ms: clock::now_ms(),
            oracle: Arc::new(Oracle::new(&candidate.rules)),
            rules: Arc::new(candidate.rules),
            config: Arc::new(candidate.config),
            groups: candidate.groups,
            names,
            diagnostics: findings.documents().into(),
            tally: findings.tally(),
            fading: None,
        }
    }

    /// Keeps the slots of the generation before usable for a while.
    #[must_use]
    pub(crate) fn after(mut self, previous: &Self) -> Self {
        self.fading = Some(Arc::new(Fading {
            groups: previous.groups.clone(),
            names: Arc::clone(&previous.names),
        }));
        self
    }

    /// Forgets the generation before.
    #[must_use]
    pub(crate) fn settled(&self) -> Self {
        Self {
            fading: None,
            ..self.clone()
        }
    }

    /// The next generation of the same configuration, with other nodes in its groups.
    pub(crate) fn refreshed(&self, groups: GroupTable) -> Self {
        Self {
            generation: self.generation + 1,
            accepted_ms: clock::now_ms(),
            groups,
            ..self.clone()
        }
    }

    /// The same with somebody who ranks the leaves of Score groups.
    #[must_use]
    pub(super) fn ranked_by(self, score: &Arc<Score>) -> Self {
        let ranks: Arc<dyn Ranks> = Arc::<Score>::clone(score);
        Self {
            groups: self.groups.ranked_by(ranks),
            ..self
        }
    }

    /// The same with other selections.
    #[must_use]
    pub(crate) fn with_groups(&self, groups: GroupTable) -> Self {
        Self {
            groups,
            ..self.clone()
        }
    }

    /// The outbound in a slot and what it selects for a new flow; `None` when no outbound has
    /// the slot.
    pub(crate) fn serve(
        &self,
        slot: Ordinal,
        network: Network,
        target: Family,
        ranker: &mut dyn Ranker,
    ) -> Option<(&Arc<str>, Result<Selected<'_>, Refuse>)> {
        let at = usize::from(slot.0);
        let (names, groups) = match self.fading.as_deref() {
            Some(old) if self.name_of(slot.0).is_none() => (&old.names, &old.groups),
            _ => (&self.names, &self.groups),
        };
        Some((
            names.get(at)?.as_ref()?,
            groups.serve(slot, network, target, ranker),
        ))
    }

    /// Other leaves for a flow, the fastest first.
    pub(crate) fn rivals(
        &self,
        flow: &FlowEntry,
        except: Option<NodeId>,
        most: usize,
    ) -> Option<Rivals> {
        let way = &flow.selected;
        let (network, family) = (flow.flow.network, flow.flow.family());
        let path = (&*way.path, &*way.groups);
        self.groups.rivals(path, network, family, except, most)
    }

    /// All leaves for a flow of a group that has measured none of them, if there are several.
    pub(crate) fn cold(&self, flow: &FlowEntry) -> Option<Rivals> {
        let rivals = self.rivals(flow, None, MOST_COLD)?;
        (rivals.leaves.len() > 1).then_some(rivals)
    }

    /// Name of the outbound in a kernel slot.
    pub(crate) fn name_of(&self, slot: u8) -> Option<&Arc<str>> {
        self.names.get(usize::from(slot))?.as_ref()
    }

    /// All outbound names: built-ins, then groups.
    pub(crate) fn outbounds(&self) -> Vec<Arc<str>> {
        self.names.iter().flatten().cloned().collect()
    }
}

fn names(groups: &GroupTable) -> Arc<[Option<Arc<str>>]> {
    let mut names = vec![None; 256];
    names[usize::from(outbound::DIRECT)] = Some(Arc::from("direct"));
    names[usize::from(outbound::BLOCK)] = Some(Arc::from("block"));
    for group in groups.groups().filter(|g| outbound::is_user(g.slot.0)) {
        names[usize::from(group.slot.0)] = Some(Arc::clone(&group.name));
    }
    names.into()
}
