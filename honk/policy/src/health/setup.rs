//! What the monitor must know about a configuration.

use std::{sync::Arc, time::Duration};

use crate::id::{Family, GroupId, MemberId, NodeId};

/// A node that may be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Identity.
    pub id: NodeId,
    /// Families its server may have; both for a name.
    pub families: Vec<Family>,
}

/// A group, as far as probing goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    /// Identity.
    pub id: GroupId,
    /// Nodes whose TCP state it reads: leaves of members and finals.
    pub tcp: Vec<NodeId>,
    /// Nodes whose UDP state it reads.
    pub udp: Vec<NodeId>,
    /// Members judged by its own check URL; empty without one.
    pub members: Vec<MemberId>,
    /// That URL; a changed one starts afresh.
    pub check_url: Option<Arc<str>>,
    /// Chooses by itself.
    pub automatic: bool,
    /// Period of its probes.
    pub interval: Duration,
    /// Inactivity after which it stops probing; `None` never.
    pub idle: Option<Duration>,
    /// Flows through the selected member replace periodic probes.
    pub passive: bool,
}

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// All nodes below groups, built-ins left out.
    pub nodes: Vec<NodeFacts>,
    /// Groups in declaration order.
    pub groups: Vec<GroupFacts>,
    /// Probes at a time in one group test.
    pub parallel: usize,
}

/// What a group selects now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The group.
    pub group: GroupId,
    /// Leaf for TCP; `None` when it spreads flows, or selects none.
    pub tcp: Option<NodeId>,
    /// Leaf for UDP.
    pub udp: Option<NodeId>,
    /// The kernel serves it alone (a built-in leaf): its flows are not seen here.
    pub unseen: bool,
}
