//! What a group can lead to: whose health it depends on, and what it leads to now.

use std::collections::BTreeSet;

use super::{
    builtin,
    live::{TCP, UDP, V4},
    pick::Lead,
    table::{Final, GroupTable},
};
use crate::id::{GroupId, NodeId};

/// Nodes that a group may select, members and finals on every way; without the built-ins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// For TCP.
    pub tcp: BTreeSet<NodeId>,
    /// Those of them that carry UDP.
    pub udp: BTreeSet<NodeId>,
}

/// Leaves that a group leads to at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leads {
    /// For TCP; `None` when it differs from flow to flow, or none serves.
    pub tcp: Option<NodeId>,
    /// For UDP.
    pub udp: Option<NodeId>,
    /// The kernel serves flows of the group without asking.
    pub unseen: bool,
}

impl GroupTable {
    /// Whose health the group depends on (G-075, G-076).
    pub fn reach(&self, group: GroupId) -> Option<Reach> {
        let mut reach = Reach::default();
        let mut seen = vec![false; self.groups.len()];
        let mut open = vec![self.index_of(group)?];
        while let Some(index) = open.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            let group = &self.groups[index];
            open.extend(&*group.nested);
            open.extend(group.final_.group());
            let last = match &group.final_ {
                Final::Node(node) => Some(node),
                Final::None | Final::Group(_) | Final::Missing => None,
            };
            let members = group
                .nodes
                .iter()
                .map(|&leaf| &self.shape.leaves[leaf as usize]);
            for node in members
                .chain(last)
                .filter(|node| !builtin::is_builtin(node))
            {
                reach.tcp.insert(node.id);
                if node.protocol.udp() {
                    reach.udp.insert(node.id);
                }
            }
        }
        Some(reach)
    }

    /// What flows of the group take now, to IPv4 targets.
    pub fn leads(&self, group: GroupId) -> Option<Leads> {
        let live = &self.live[self.index_of(group)?];
        let leaf = |network: usize| match &live.tops[network][V4] {
            Ok(pick) => match &pick.lead {
                Lead::Leaf(leaf, _) => Some(self.shape.leaves[*leaf as usize].id),
                Lead::Turn(_) | Lead::Score(_) => None,
            },
            Err(_) => None,
        };
        Some(Leads {
            tcp: leaf(TCP),
            udp: leaf(UDP),
            unseen: self.kernel_serves(group),
        })
    }
}
