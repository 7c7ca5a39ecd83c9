//! Leaves that a flow may try beside the one its group selects: when that one failed (G-135),
//! and while nothing is measured that could tell which is fast (G-138).
//!
//! Only a urltest group has them, and only its own leaves are among them: a choice, a pin and
//! the order of a fallback group are kept whatever fails.

use std::{collections::HashSet, sync::Arc};

use super::{
    field::By,
    live::{V4, V6},
    pick::{Lead, Way},
    table::{GroupTable, fam, net},
};
use crate::{
    config::Policy,
    id::{Family, GroupId, Network, NodeId},
    node::{Node, Protocol},
};

/// A leaf that may serve instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// What is dialed.
    pub leaf: Arc<Node>,
    /// Groups on the way to it, outermost first, as of a selection.
    pub path: Arc<[Arc<str>]>,
    /// Their ids.
    pub groups: Arc<[GroupId]>,
}

/// The rivals of a flow, the fastest first, each node once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rivals {
    /// The group that ranks them.
    pub group: Arc<str>,
    /// At least one.
    pub leaves: Vec<Rival>,
}

impl GroupTable {
    /// Up to `most` other leaves for a flow that came through `path`, whose ids are `groups`.
    /// `except` has been tried. Looking changes nothing.
    pub fn rivals(
        &self,
        (path, groups): (&[Arc<str>], &[GroupId]),
        network: Network,
        target: Family,
        except: Option<NodeId>,
        most: usize,
    ) -> Option<Rivals> {
        let ranks = |id: &GroupId| {
            let index = self.index_of(*id)?;
            let group = &self.groups[index];
            let free = group.def.policy == Policy::UrlTest && group.fixed(net(network)).is_none();
            free.then_some(index)
        };
        let (at, index) = groups
            .iter()
            .enumerate()
            .find_map(|(at, id)| Some((at, ranks(id)?)))?;
        let above = (path.get(..at)?, groups.get(..at)?);
        // The families in the order in which a selection asks them (G-081).
        let families: &[usize] = match fam(target) {
            V6 => &[V6, V4],
            _ => &[V4],
        };
        let leaves = families.iter().map(|&family| {
            let found = self.ranked_leaves(index, net(network), family);
            let mut known: HashSet<NodeId> = except.into_iter().collect();
            let fresh = found
                .into_iter()
                .filter(|(leaf, _)| dialable(leaf) && known.insert(leaf.id));
            let rival = |(leaf, way): (Arc<Node>, Arc<Way>)| Rival {
                leaf,
                path: above.0.iter().chain(&*way.path).cloned().collect(),
                groups: above.1.iter().chain(&*way.ids).copied().collect(),
            };
            fresh.take(most).map(rival).collect::<Vec<_>>()
        });
        let leaves = { leaves }.find(|leaves| !leaves.is_empty())?;
        let group = Arc::clone(&self.groups[index].name);
        Some(Rivals { group, leaves })
    }

    /// Leaves of a group that may serve, by latency, those with strikes behind all others.
    fn ranked_leaves(
        &self,
        index: usize,
        network: usize,
        family: usize,
    ) -> Vec<(Arc<Node>, Arc<Way>)> {
        let resolver = self.resolver();
        let mut ranked: Vec<(bool, f64, Lead)> = Vec::new();
        for at in 0..self.groups[index].members.len() as u32 {
            let rank = resolver.ranked(index, at, network, family);
            let lead = resolver.leads(index, at, network, family);
            if let (Some((latency, struck)), Ok(lead)) = (rank, lead) {
                ranked.push((struck, latency, lead));
            }
        }
        ranked.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.total_cmp(&b.1)));
        let leaf = |(.., lead): (bool, f64, Lead)| {
            let nodes = &*self.shape.leaves;
            let (leaf, way) = lead.follow(nodes, &mut By::Look(&*self.ranks))?;
            Some((Arc::clone(&nodes[leaf as usize]), Arc::clone(way)))
        };
        ranked.into_iter().filter_map(leaf).collect()
    }
}

pub(super) fn dialable(leaf: &Node) -> bool {
    leaf.protocol != Protocol::Block && leaf.protocol.built()
}
