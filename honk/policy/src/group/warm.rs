//! Which leaves should be ready before the next flow: pure description, dialed elsewhere.
//!
//! Looking changes nothing: no turn advances and no group counts as used (G-197).

use std::{collections::HashSet, sync::Arc};

use super::{
    builtin,
    graph::MAX_DEPTH,
    live::{TCP, UDP, V4, V6},
    table::GroupTable,
};
use crate::{config::Policy, node::Node};

/// Most leaves per group and family in the UDP set.
const UDP_MOST: usize = 3;

impl GroupTable {
    /// Leaves that the TCP choices of declared selectors lead to, each once, dead ones included:
    /// a node that comes back is wanted at once (G-190, G-193).
    pub fn warm_tcp(&self) -> Vec<Arc<Node>> {
        let selectors = self
            .groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.def.policy == Policy::Selector && !group.def.implicit);
        let leaves = selectors.filter_map(|(index, _)| self.wanted_leaf(index, 0));
        self.distinct(leaves)
    }

    /// Where choices lead, whether or not the leaf is alive.
    fn wanted_leaf(&self, index: usize, depth: usize) -> Option<u32> {
        let group = &*self.groups[index];
        if depth == MAX_DEPTH {
            return None;
        }
        let at = self.kept_member(index, TCP, V4)?;
        match group.nodes.get(at as usize) {
            Some(leaf) => Some(*leaf),
            None => {
                let nested = group.nested.get(at as usize - group.nodes.len())?;
                self.wanted_leaf(*nested, depth + 1)
            }
        }
    }

    /// The `count` (at most 3) leaves per group and family that UDP flows would use first, each
    /// once; none for 0 (G-195).
    pub fn warm_udp(&self, count: usize) -> Vec<Arc<Node>> {
        let most = count.min(UDP_MOST);
        let mut leaves = Vec::new();
        for index in 0..self.groups.len() {
            for family in [V4, V6] {
                leaves.extend(self.ranking(index, UDP, family).into_iter().take(most));
            }
        }
        let most = count.saturating_mul(4);
        let mut distinct = self.distinct(leaves.into_iter());
        distinct.truncate(most);
        distinct
    }

    /// Leaves of a group that may serve: the selected one first, then by latency.
    pub(super) fn ranking(&self, index: usize, network: usize, family: usize) -> Vec<u32> {
        let resolver = self.resolver();
        let group = &*self.groups[index];
        let mut ranked: Vec<(bool, bool, f64, u32)> = Vec::new();
        let kept = self.kept_member(index, network, family);
        for at in 0..group.members.len() as u32 {
            let fixed = group.fixed(network).map(|(at, _)| at);
            if fixed.is_some_and(|fixed| fixed != at) {
                continue;
            }
            let rank = resolver.ranked(index, at, network, family);
            let leaf = resolver.leaf(index, at, network, family).ok();
            if let (Some((latency, struck)), Some(leaf)) = (rank, leaf) {
                ranked.push((Some(at) != kept, struck, latency, leaf));
            }
        }
        ranked.sort_by(|a, b| {
            (a.0, a.1)
                .cmp(&(b.0, b.1))
                .then_with(|| a.2.total_cmp(&b.2))
        });
        ranked.into_iter().map(|(.., leaf)| leaf).collect()
    }

    fn distinct(&self, leaves: impl Iterator<Item = u32>) -> Vec<Arc<Node>> {
        let mut known = HashSet::new();
        let nodes = leaves.map(|leaf| &self.shape.leaves[leaf as usize]);
        let nodes = nodes.filter(|node| !builtin::is_builtin(node) && known.insert(node.id));
        nodes.cloned().collect()
    }
}
