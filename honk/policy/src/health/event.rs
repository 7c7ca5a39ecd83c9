//! What the monitor hears and what it asks for.

use std::time::Duration;

use crate::id::{Domain, Family, GroupId, MemberId, NodeId};

/// What is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A node.
    Node {
        /// Which.
        node: NodeId,
        /// For which kind of traffic.
        domain: Domain,
        /// Over which family its server is reached.
        family: Family,
    },
    /// A member under the check URL of its group.
    Member {
        /// The group.
        group: GroupId,
        /// Its member.
        member: MemberId,
        /// Over which family the server of its leaf is reached.
        family: Family,
    },
}

impl Subject {
    /// The family.
    pub fn family(self) -> Family {
        match self {
            Self::Node { family, .. } | Self::Member { family, .. } => family,
        }
    }
}

/// Number of a probe; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeId(pub u64);

/// A probe to be carried out; its outcome comes back as [`Event::Probed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its number.
    pub id: ProbeId,
    /// What to probe.
    pub subject: Subject,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A probe ended.
    Probed {
        /// Which.
        probe: ProbeId,
        /// With which outcome.
        outcome: Outcome,
    },
    /// A flow reached its target through a node.
    Dialed {
        /// The node.
        node: NodeId,
        /// Family of the server's address.
        family: Family,
        /// Duration; absent when the way was open before.
        took: Option<Duration>,
    },
    /// A flow failed through a node, by the node's fault.
    DialFailed {
        /// The node.
        node: NodeId,
        /// Family of the server's address.
        family: Family,
    },
    /// The first byte of an answer came through a node.
    FirstByte {
        /// The node.
        node: NodeId,
    },
    /// Datagrams of a flow came back through a node.
    Answered {
        /// The node.
        node: NodeId,
        /// Family of the server's address.
        family: Family,
        /// DNS or other data.
        domain: Domain,
    },
    /// A way for datagrams could not be opened, or broke.
    Unanswered {
        /// The node.
        node: NodeId,
        /// Family of the server's address.
        family: Family,
        /// DNS or other data.
        domain: Domain,
    },
    /// A link, address or route of the gateway changed.
    NetworkChanged,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer after this time.
    Answer(Duration),
    /// None, or an error.
    Failure,
    /// The server has no address in the family.
    Absent,
    /// Nothing can be said: this machine failed, or the probe was called off.
    Neutral,
}

/// A change of what may be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// What changed.
    pub subject: Subject,
    /// How.
    pub shift: Shift,
}

/// Ways to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Must not be selected any more.
    Died,
    /// May be selected again.
    Revived,
}

/// How soon readers should see a new view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Nothing they see has changed.
    #[default]
    None,
    /// Latencies moved.
    Soon,
    /// Something died, came back, or was struck.
    Now,
}

/// What the monitor asks for; the caller takes it out and acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Probes to start.
    pub start: Vec<Probe>,
    /// What died or came back.
    pub transitions: Vec<Transition>,
    /// How soon to publish.
    pub urgency: Urgency,
    /// Groups whose test ended.
    pub tested: Vec<GroupId>,
}

impl Effects {
    pub(super) fn publish(&mut self, urgency: Urgency) {
        self.urgency = self.urgency.max(urgency);
    }
}
