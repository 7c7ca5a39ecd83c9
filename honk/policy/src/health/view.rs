//! What readers see: an immutable picture of everybody's health.

use std::collections::{BTreeSet, HashMap};

use super::{event::Subject, node, target::Target};
use crate::id::{Domain, Family, GroupId, MemberId, NodeId};

/// What is known of a node in one domain and family, or of a member under a check URL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// Whether it may be selected.
    pub alive: bool,
    /// Halving moving average of its latency; `None` when unmeasured.
    pub latency_ms: Option<f64>,
    /// Failures of real traffic that it has not made good yet.
    pub strikes: u32,
}

/// Per domain and family.
type States = [[Option<Condition>; 2]; 3];

/// A picture.
#[derive(Clone, Debug, Default)]
pub struct View {
    nodes: HashMap<NodeId, States>,
    members: HashMap<(GroupId, MemberId), [Option<Condition>; 2]>,
    disabled: BTreeSet<NodeId>,
}

impl View {
    pub(super) fn of(
        targets: &[Target],
        nodes: &HashMap<NodeId, node::NodeState>,
        disabled: &BTreeSet<NodeId>,
    ) -> Self {
        let strikes = |node: &NodeId| nodes.get(node).map_or(0, |n| n.strikes.count());
        let mut view = Self {
            disabled: disabled.clone(),
            ..Self::default()
        };
        for target in targets.iter().filter(|t| !t.absent) {
            let strikes = match target.subject {
                Subject::Node {
                    node,
                    domain: Domain::Tcp,
                    ..
                } => strikes(&node),
                Subject::Member {
                    member: MemberId::Node(node),
                    ..
                } => strikes(&node),
                Subject::Node { .. } | Subject::Member { .. } => 0,
            };
            if !target.cell.observed() && strikes == 0 {
                continue;
            }
            let state = Some(Condition {
                alive: target.cell.alive(),
                latency_ms: target.cell.average(),
                strikes,
            });
            match target.subject {
                Subject::Node {
                    node,
                    domain,
                    family,
                } => {
                    let states = view.nodes.entry(node).or_default();
                    states[domain as usize][family as usize] = state;
                }
                Subject::Member {
                    group,
                    member,
                    family,
                } => {
                    let states = view.members.entry((group, member)).or_default();
                    states[family as usize] = state;
                }
            }
        }
        view
    }

    /// State of a node over a family, or over the other where nothing was observed.
    pub fn node(&self, node: NodeId, domain: Domain, family: Family) -> Option<Condition> {
        either(self.nodes.get(&node)?[domain as usize], family)
    }

    /// State of a member under the check URL of its group; families as above.
    pub fn member(&self, group: GroupId, member: MemberId, family: Family) -> Option<Condition> {
        either(*self.members.get(&(group, member))?, family)
    }

    /// Whether a node is switched off.
    pub fn is_disabled(&self, node: NodeId) -> bool {
        self.disabled.contains(&node)
    }

    /// The state in exactly this family.
    pub fn exact(&self, node: NodeId, domain: Domain, family: Family) -> Option<Condition> {
        self.nodes.get(&node)?[domain as usize][family as usize]
    }
}

/// A family in which nothing was observed, most often because the server has no address there,
/// says what the other one says: a dead node is not reached over either.
fn either(states: [Option<Condition>; 2], family: Family) -> Option<Condition> {
    let [v4, v6] = states;
    match family {
        Family::V4 => v4.or(v6),
        Family::V6 => v6.or(v4),
    }
}
