//! What the monitor must know about a configuration, and the timing of a group.

use std::{sync::Arc, time::Duration};

use super::limits::IDLE;
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

/// Effective period and idle time of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Period of probes.
    pub interval: Duration,
    /// `None`: never idle.
    pub idle: Option<Duration>,
    /// The idle time had to be raised to the period.
    pub raised: bool,
}

/// The timing of a group from what is written: a group must not fall asleep between two of its
/// own probes, and the period is what its owner asked for, so the idle time gives way.
pub fn timing(
    test_interval: Option<Duration>,
    idle_timeout: Option<Duration>,
    check_interval: Duration,
) -> Timing {
    let written = test_interval.filter(|interval| !interval.is_zero());
    let interval = written.unwrap_or(check_interval);
    let idle = idle_timeout.unwrap_or(IDLE);
    let raised = !idle.is_zero() && interval > idle;
    Timing {
        interval,
        idle: (!idle.is_zero()).then(|| idle.max(interval)),
        raised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_idle_time_gives_way_to_the_period() {
        let check = MINUTE / 2;
        for (test, idle, want, raised) in [
            (Some(45), Some(30), (MINUTE * 45, Some(MINUTE * 45)), true),
            (Some(15), Some(30), (MINUTE * 15, Some(MINUTE * 30)), false),
            (Some(0), None, (check, Some(IDLE)), false),
            (None, None, (check, Some(IDLE)), false),
            (None, Some(0), (check, None), false),
            (Some(45), Some(0), (MINUTE * 45, None), false),
            (Some(31), None, (MINUTE * 31, Some(MINUTE * 31)), true),
        ] {
            let minutes = |n: Option<u32>| n.map(|n| MINUTE * n);
            let timing = timing(minutes(test), minutes(idle), check);
            assert_eq!((timing.interval, timing.idle), want, "{test:?} {idle:?}");
            assert_eq!(timing.raised, raised, "{test:?} {idle:?}");
        }
    }
}
