//! What readers see: an immutable picture of everybody's health.

use std::collections::{BTreeSet, HashMap};

use super::{event::Subject, node, target::Target};
use crate::{
    group::{Health, NodeState},
    id::{Domain, Family, GroupId, MemberId, NodeId},
};

/// Per domain and family.
type States = [[Option<NodeState>; 2]; 3];

/// A picture.
#[derive(Clone, Debug, Default)]
pub struct View {
    nodes: HashMap<NodeId, States>,
    members: HashMap<(GroupId, MemberId), [Option<NodeState>; 2]>,
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
            let state = Some(NodeState {
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

    /// Nodes that are switched off.
    pub fn disabled_nodes(&self) -> &BTreeSet<NodeId> {
        &self.disabled
    }

    /// The state in exactly this family.
    pub fn exact(&self, node: NodeId, domain: Domain, family: Family) -> Option<NodeState> {
        self.nodes.get(&node)?[domain as usize][family as usize]
    }
}

/// A family in which nothing was observed, most often because the server has no address there,
/// says what the other one says: a dead node is not reached over either.
fn either(states: [Option<NodeState>; 2], family: Family) -> Option<NodeState> {
    let [v4, v6] = states;
    match family {
        Family::V4 => v4.or(v6),
        Family::V6 => v6.or(v4),
    }
}

impl Health for View {
    fn state(&self, node: NodeId, domain: Domain, family: Family) -> Option<NodeState> {
        either(self.nodes.get(&node)?[domain as usize], family)
    }

    fn url_state(&self, group: GroupId, member: MemberId, family: Family) -> Option<NodeState> {
        either(*self.members.get(&(group, member))?, family)
    }

    fn disabled(&self, node: NodeId) -> bool {
        self.disabled.contains(&node)
    }
}
