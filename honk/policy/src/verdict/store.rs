//! Which nodes are switched off because they could not be built, and until when.
//!
//! A verdict is about a body: the same node with the same settings stays off, whatever time
//! passes and whatever honk is installed. A changed or vanished body lifts it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use sha2::{Digest as _, Sha256};

use super::{NodeRef, Rejection};
use crate::{
    id::NodeId,
    node::{Node, link},
};

/// Hash of everything that reaches the builder, and of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(String);

impl Body {
    /// The body of a node.
    pub fn of(node: &Node) -> Self {
        // A link says all there is to say about a node; what has none is told by its identity.
        let text = link::format(node).unwrap_or_else(|| node.id.0.to_string());
        let mut hash = Sha256::new();
        hash.update(node.name.as_bytes());
        hash.update([0]);
        hash.update(text.as_bytes());
        let digits = hash.finalize();
        Self(digits.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// As stored before.
    pub fn stored(digits: String) -> Self {
        Self(digits)
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a node is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its name then.
    pub tag: String,
    /// What was judged.
    pub body: Body,
    /// What the builder said.
    pub reason: String,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
}

/// All verdicts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts(BTreeMap<NodeRef, Verdict>);

impl Verdicts {
    /// A node was rejected.
    pub fn add(&mut self, rejection: &Rejection, body: Body, at_ms: u64) {
        let verdict = Verdict {
            tag: rejection.tag.clone(),
            body,
            reason: rejection.reason.clone(),
            at_ms,
        };
        self.0.insert(rejection.node, verdict);
    }

    /// One that was stored.
    pub fn restore(&mut self, node: NodeRef, verdict: Verdict) {
        self.0.insert(node, verdict);
    }

    /// Lifts the verdicts of nodes whose body changed or is gone, and returns them. `waits`
    /// tells whether the nodes of a source are still to come.
    pub fn lift(
        &mut self,
        nodes: &[impl AsRef<Node>],
        waits: impl Fn(&NodeRef) -> bool,
    ) -> Vec<(NodeRef, Verdict)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let wanted = |node: &&Node| self.0.contains_key(&NodeRef::from(*node));
        let nodes = nodes.iter().map(AsRef::as_ref).filter(wanted);
        let bodies: BTreeMap<NodeRef, Body> =
            nodes.map(|node| (node.into(), Body::of(node))).collect();
        let gone: Vec<NodeRef> = self
            .0
            .iter()
            .filter(|(node, verdict)| match bodies.get(node) {
                Some(body) => *body != verdict.body,
                None => !waits(node),
            })
            .map(|(node, _)| *node)
            .collect();
        let lifted = gone.into_iter();
        lifted
            .filter_map(|node| Some((node, self.0.remove(&node)?)))
            .collect()
    }

    /// Somebody wants the node all the same.
    pub fn pardon(&mut self, node: &NodeRef) -> Option<Verdict> {
        self.0.remove(node)
    }

    /// The nodes that are off.
    pub fn off(&self) -> BTreeSet<NodeId> {
        self.0.keys().map(|node| node.id).collect()
    }

    /// What was said about a node.
    pub fn of(&self, node: &NodeRef) -> Option<&Verdict> {
        self.0.get(node)
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&NodeRef, &Verdict)> {
        self.0.iter()
    }
}
