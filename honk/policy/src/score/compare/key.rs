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

/// A node in one network of a group: whose evidence it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SideKey {
    pub(super) group: GroupKey,
    pub(super) network: Network,
    pub(super) node: NodeKey,
}

/// Traffic of one family, or probes: kept apart within a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    V4,
    V6,
    Probes,
}

/// Number of places.
pub(super) const PLACES: usize = 3;

impl SideKey {
    /// Spread bits, for an index.
    pub(super) fn bits(self) -> u64 {
        self.node.bits() ^ (u64::from(self.group.0) << 1 | self.network as u64)
    }
}

impl From<Family> for Place {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::V4,
            Family::V6 => Self::V6,
        }
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
    /// Whose, where and about what.
    pub(super) fn split(self) -> (SideKey, Place, About) {
        match self {
            Self::Traffic(key) => (key.side(), key.family.into(), About::Target(key.target)),
            Self::Probe(key) => {
                let side = SideKey {
                    group: key.group,
                    network: key.network,
                    node: key.node,
                };
                let about = About::Probe {
                    slot: key.slot,
                    scope: key.scope,
                    interval: key.interval,
                };
                (side, Place::Probes, about)
            }
        }
    }
}

impl TrafficKey {
    pub(super) fn side(&self) -> SideKey {
        SideKey {
            group: self.group,
            network: self.network,
            node: self.node,
        }
    }
}
