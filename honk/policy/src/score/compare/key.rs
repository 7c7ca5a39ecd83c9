//! Whose evidence a comparison cell holds, and about what.

use std::cmp::Ordering;

use super::timing::Timing;
use crate::{
    id::{Family, Network},
    score::{
        ids::{GroupKey, NodeKey, TargetId, mix},
        targets::Targets,
    },
};

/// Business of a node with one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::score) struct TrafficKey {
    pub(in crate::score) group: GroupKey,
    pub(in crate::score) network: Network,
    pub(in crate::score) family: Family,
    pub(in crate::score) target: TargetId,
    pub(in crate::score) node: NodeKey,
}

/// A node measured by one configured check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::score) struct ProbeKey {
    pub(in crate::score) group: GroupKey,
    pub(in crate::score) network: Network,
    pub(in crate::score) node: NodeKey,
    /// Domain and health family.
    pub(in crate::score) slot: u8,
    /// Identity of the check.
    pub(in crate::score) scope: u64,
    /// Nanoseconds between two measurements, when that is known.
    pub(in crate::score) interval: Option<u64>,
}

/// What a sample is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::score) enum CmpKey {
    Traffic(TrafficKey),
    Probe(ProbeKey),
}

/// A node in a place: everything it has there lies side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) group: GroupKey,
    pub(super) place: Place,
    pub(super) node: NodeKey,
}

/// Traffic of one network and family, or probes of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u8);

impl Owner {
    /// Spread bits, for an index.
    pub(super) fn bits(self) -> u64 {
        self.node.bits() ^ (u64::from(self.group.0) << 8 | u64::from(self.place.0))
    }
}

impl Place {
    pub(super) fn traffic(network: Network, family: Family) -> Self {
        Self(3 * network as u8 + family as u8)
    }

    pub(super) fn probes(network: Network) -> Self {
        Self(3 * network as u8 + 2)
    }

    /// All of one network.
    pub(super) fn all(network: Network) -> [Self; 3] {
        [0, 1, 2].map(|n| Self(3 * network as u8 + n))
    }
}

/// What was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Target(TargetId),
    Probe {
        slot: u8,
        scope: u64,
        interval: Option<u64>,
    },
}

impl About {
    /// Canonical order: targets by their content, never by when they came.
    pub(super) fn order(self, other: Self, targets: &Targets) -> Ordering {
        let probe = |about: Self| match about {
            Self::Probe {
                slot,
                scope,
                interval,
            } => Some((slot, scope, interval)),
            Self::Target(_) => None,
        };
        match (self, other) {
            (a, b) if a == b => Ordering::Equal,
            (Self::Target(a), Self::Target(b)) => targets.key(a).cmp(&targets.key(b)),
            (a, b) => probe(a).cmp(&probe(b)),
        }
    }

    /// Spread bits, for an index.
    pub(super) fn bits(self) -> u64 {
        match self {
            Self::Target(target) => u64::from(target.0),
            Self::Probe {
                slot,
                scope,
                interval,
            } => mix(scope ^ u64::from(slot), interval.unwrap_or(u64::MAX)),
        }
    }

    /// The target, if it is one.
    pub(super) fn target(self) -> Option<TargetId> {
        match self {
            Self::Target(target) => Some(target),
            Self::Probe { .. } => None,
        }
    }

    /// How its samples are cut; nothing for a probe whose cadence proves nothing.
    pub(super) fn timing(self) -> Option<Timing> {
        match self {
            Self::Probe { interval, .. } => Timing::probe(interval),
            Self::Target(_) => Some(Timing::BUSINESS),
        }
    }
}

impl CmpKey {
    pub(super) fn split(self) -> (Owner, About) {
        match self {
            Self::Traffic(key) => (key.owner(), About::Target(key.target)),
            Self::Probe(key) => {
                let owner = Owner {
                    group: key.group,
                    place: Place::probes(key.network),
                    node: key.node,
                };
                let about = About::Probe {
                    slot: key.slot,
                    scope: key.scope,
                    interval: key.interval,
                };
                (owner, about)
            }
        }
    }
}

impl TrafficKey {
    pub(super) fn owner(&self) -> Owner {
        Owner {
            group: self.group,
            place: Place::traffic(self.network, self.family),
            node: self.node,
        }
    }
}
