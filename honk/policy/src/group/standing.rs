//! What health and capability say about a leaf, laid out for fast reading: one row per leaf,
//! asked from the health engine once per transition.

use super::{
    builtin,
    health::{Health, NodeState},
    pick::Refuse,
};
use crate::{
    id::{Domain, Family, GroupId, MemberId},
    node::Node,
};

/// A leaf in one network over one family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    /// Its protocol carries the network.
    pub(super) able: bool,
    /// Nobody switched it off.
    pub(super) enabled: bool,
    pub(super) alive: bool,
    /// It has failures of real traffic that it has not made good.
    pub(super) struck: bool,
    /// Milliseconds; infinite when unmeasured.
    pub(super) latency: f64,
}

impl Mark {
    const FINE: Self = Self {
        able: true,
        enabled: true,
        alive: true,
        struck: false,
        latency: f64::INFINITY,
    };

    /// Whether it may be selected (section 9 of the groups document).
    pub(super) fn eligible(&self) -> Result<(), Refuse> {
        match self {
            Self { able: false, .. } => Err(Refuse::UdpIncapable),
            Self { enabled, alive, .. } if *enabled && *alive => Ok(()),
            _ => Err(Refuse::AllDead),
        }
    }

    pub(super) fn measured(&self) -> bool {
        self.latency.is_finite()
    }
}

/// Marks by network and family.
pub(super) type Standing = [[Mark; 2]; 2];

/// What a member's own TCP state under a group's `check_url` says, by family.
pub(super) type UrlMark = Option<[NodeState; 2]>;

/// The marks of a leaf. A family that was never observed is judged by the other one.
pub(super) fn of(node: &Node, health: &dyn Health) -> Standing {
    if builtin::is_builtin(node) {
        return [[Mark::FINE; 2]; 2];
    }
    let enabled = !health.disabled(node.id);
    let states = Domain::ALL
        .map(|domain| both(Family::ALL.map(|family| health.state(node.id, domain, family))));
    let [tcp, dns, data] = states;
    let stream = |at: usize| Mark {
        enabled,
        alive: tcp.is_none_or(|s| s[at].alive),
        struck: tcp.is_some_and(|s| s[at].strikes > 0),
        latency: latency(tcp.map(|s| s[at])),
        ..Mark::FINE
    };
    // UDP serves while either of its domains is alive; a node whose UDP was never observed is
    // as alive as its TCP (G-106).
    let packets = |at: usize| {
        let (dns, data) = (dns.map(|s| s[at]), data.map(|s| s[at]));
        let mut seen = dns.into_iter().chain(data);
        let measured = latency(data);
        Mark {
            able: node.protocol.udp(),
            enabled,
            alive: if dns.or(data).is_none() {
                stream(at).alive
            } else {
                seen.clone().any(|s| s.alive)
            },
            struck: seen.any(|s| s.strikes > 0),
            latency: if measured.is_finite() {
                measured
            } else {
                latency(dns)
            },
        }
    };
    [[stream(0), stream(1)], [packets(0), packets(1)]]
}

/// The state of a member under the group's `check_url`.
pub(super) fn under_url(health: &dyn Health, group: GroupId, member: MemberId) -> UrlMark {
    both(Family::ALL.map(|family| health.url_state(group, member, family)))
}

/// The mark with what `check_url` found in place of the ordinary TCP check.
pub(super) fn replaced(mark: Mark, url: NodeState) -> Mark {
    Mark {
        alive: url.alive,
        struck: mark.struck || url.strikes > 0,
        latency: latency(Some(url)),
        ..mark
    }
}

fn both(states: [Option<NodeState>; 2]) -> Option<[NodeState; 2]> {
    let [v4, v6] = states;
    Some([v4.or(v6)?, v6.or(v4)?])
}

fn latency(state: Option<NodeState>) -> f64 {
    let measured = state.and_then(|s| s.latency_ms);
    measured
        .filter(|ms| ms.is_finite())
        .unwrap_or(f64::INFINITY)
}
