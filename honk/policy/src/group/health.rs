//! Whether a node may be selected and how fast it answers: the seam to the health engine.

use std::{collections::BTreeSet, fmt, sync::Arc};

use crate::{
    health::{Condition, View},
    id::{Domain, Family, GroupId, MemberId, NodeId},
};

/// A snapshot of node health. Asked while a table is made; a transition makes a new table.
pub trait Health: fmt::Debug + Send + Sync {
    /// State of a node, reached over `family`; `None` when nothing was ever observed. Never
    /// asked about built-ins.
    fn state(&self, node: NodeId, domain: Domain, family: Family) -> Option<NodeState>;
    /// TCP state of a member under the group's own `check_url`.
    fn url_state(&self, group: GroupId, member: MemberId, family: Family) -> Option<NodeState>;
    /// Whether the node is switched off, by the operator or because it cannot be built.
    fn disabled(&self, node: NodeId) -> bool;
    /// What this one only adds to.
    fn beneath(&self) -> Option<Arc<dyn Health>> {
        None
    }
}

/// What is known of a node in one domain and family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeState {
    /// Whether it may be selected.
    pub alive: bool,
    /// Halving moving average of its latency; `None` when unmeasured.
    pub latency_ms: Option<f64>,
    /// Failures of real traffic that it has not made good yet.
    pub strikes: u32,
}

/// Nothing is measured: unknown health is alive.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllAlive;

impl Health for AllAlive {
    fn state(&self, _: NodeId, _: Domain, _: Family) -> Option<NodeState> {
        None
    }

    fn url_state(&self, _: GroupId, _: MemberId, _: Family) -> Option<NodeState> {
        None
    }

    fn disabled(&self, _: NodeId) -> bool {
        false
    }
}

/// The same health with nodes switched off that the engine does not know of yet.
#[derive(Clone, Debug)]
pub(super) struct Without {
    pub(super) off: BTreeSet<NodeId>,
    pub(super) health: Arc<dyn Health>,
}

impl Health for Without {
    fn state(&self, node: NodeId, domain: Domain, family: Family) -> Option<NodeState> {
        self.health.state(node, domain, family)
    }

    fn url_state(&self, group: GroupId, member: MemberId, family: Family) -> Option<NodeState> {
        self.health.url_state(group, member, family)
    }

    fn disabled(&self, node: NodeId) -> bool {
        self.off.contains(&node) || self.health.disabled(node)
    }

    fn beneath(&self) -> Option<Arc<dyn Health>> {
        Some(Arc::clone(&self.health))
    }
}

impl From<Condition> for NodeState {
    fn from(condition: Condition) -> Self {
        let Condition {
            alive,
            latency_ms,
            strikes,
        } = condition;
        Self {
            alive,
            latency_ms,
            strikes,
        }
    }
}

impl Health for View {
    fn state(&self, node: NodeId, domain: Domain, family: Family) -> Option<NodeState> {
        self.node(node, domain, family).map(Into::into)
    }

    fn url_state(&self, group: GroupId, member: MemberId, family: Family) -> Option<NodeState> {
        self.member(group, member, family).map(Into::into)
    }

    fn disabled(&self, node: NodeId) -> bool {
        self.is_disabled(node)
    }
}
