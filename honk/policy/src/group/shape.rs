//! What a set of groups has that health and choices do not change: leaves, who lists whom, and
//! the order in which selections build on each other.

use std::{collections::HashMap, sync::Arc};

use honk_common::outbound;

use super::{
    builtin,
    graph::MAX_DEPTH,
    member::Member,
    table::{Final, Group},
};
use crate::{id::NodeId, node::Node};

/// No group has the slot.
const NONE: u16 = u16::MAX;

#[derive(Debug)]
pub(super) struct Shape {
    /// Configured nodes in order, then `direct` and `block`.
    pub(super) leaves: Arc<[Arc<Node>]>,
    /// Places of a node among the leaves; equal entries of a configuration share their id.
    places: HashMap<NodeId, Vec<u32>>,
    /// Groups whose selections build on those of earlier ones only.
    pub(super) order: Vec<usize>,
    /// Groups on the longest way over members and finals; `None` where a way leads back or is
    /// too long, so that the selection depends on where one comes from.
    pub(super) heights: Vec<Option<usize>>,
    /// Groups from which some way leads to a `final` that leads back to its group.
    pub(super) leads_back: Vec<bool>,
    /// Groups that list the group or have it as `final`.
    pub(super) parents: Vec<Box<[usize]>>,
    /// Groups that list the leaf or have it as `final`.
    listed: Vec<Box<[u16]>>,
    /// Lists of direct nodes, each once.
    pub(super) lists: Box<[Arc<[u32]>]>,
    /// Which of them each group has.
    pub(super) list_of: Box<[usize]>,
    /// Distinct leaves below each group, over members only.
    pub(super) leaf_counts: Vec<usize>,
    /// Group by kernel slot.
    slots: Box<[u16; 256]>,
}

impl Shape {
    pub(super) fn new(leaves: Arc<[Arc<Node>]>, groups: &[Arc<Group>]) -> Self {
        let mut places: HashMap<NodeId, Vec<u32>> = HashMap::new();
        for (at, leaf) in (0..).zip(&*leaves) {
            places.entry(leaf.id).or_default().push(at);
        }
        let below: Vec<Vec<usize>> = groups.iter().map(|g| below(g)).collect();
        let heights = heights(&below);
        let mut order: Vec<usize> = (0..groups.len())
            .filter(|&g| heights[g].is_some())
            .collect();
        order.sort_by_key(|&g| heights[g]);
        let mut parents = vec![Vec::new(); groups.len()];
        let mut listed: Vec<Vec<u16>> = vec![Vec::new(); leaves.len()];
        let mut slots = Box::new([NONE; 256]);
        for (index, group) in groups.iter().enumerate() {
            let number = index as u16;
            for &child in &below[index] {
                parents[child].push(index);
            }
            for &leaf in &*group.nodes {
                listed[leaf as usize].push(number);
            }
            if let Final::Node(node) = &group.final_ {
                for &leaf in places.get(&node.id).into_iter().flatten() {
                    listed[leaf as usize].push(number);
                }
            }
            if outbound::is_user(group.slot.0) {
                slots[usize::from(group.slot.0)] = number;
            }
        }
        let mut lists: Vec<Arc<[u32]>> = Vec::new();
        let mut known: HashMap<&[u32], usize> = HashMap::new();
        let list_of = groups.iter().map(|group| {
            *known.entry(&group.nodes).or_insert_with(|| {
                lists.push(Arc::clone(&group.nodes));
                lists.len() - 1
            })
        });
        let list_of = list_of.collect();
        let mut leads_back = vec![false; groups.len()];
        let cyclic = (0..groups.len()).filter(|&g| groups[g].final_cyclic);
        let mut open: Vec<usize> = cyclic.collect();
        while let Some(index) = open.pop() {
            if !std::mem::replace(&mut leads_back[index], true) {
                open.extend(&parents[index]);
            }
        }
        Self {
            lists: lists.into(),
            list_of,
            leaf_counts: leaf_counts(groups, leaves.len(), &places, &leaves),
            places,
            order,
            heights,
            leads_back,
            parents: parents.into_iter().map(Vec::into_boxed_slice).collect(),
            listed: listed.into_iter().map(Vec::into_boxed_slice).collect(),
            slots,
            leaves,
        }
    }

    /// Whether the group selects the same wherever one comes from, `above` groups deep.
    pub(super) fn is_regular(&self, group: usize, above: usize) -> bool {
        self.heights[group].is_some_and(|height| height + above <= MAX_DEPTH)
    }

    pub(super) fn places(&self, node: NodeId) -> &[u32] {
        self.places.get(&node).map_or(&[], Vec::as_slice)
    }

    pub(super) fn listed(&self, leaf: u32) -> impl Iterator<Item = usize> {
        self.listed[leaf as usize].iter().map(|&g| usize::from(g))
    }

    /// The group in a kernel slot.
    pub(super) fn in_slot(&self, slot: u8) -> Option<usize> {
        match self.slots[usize::from(slot)] {
            NONE => None,
            group => Some(usize::from(group)),
        }
    }
}

/// Groups that a selection of the group may build on.
fn below(group: &Group) -> Vec<usize> {
    let mut below: Vec<usize> = group
        .nested
        .iter()
        .copied()
        .chain(group.final_.group())
        .collect();
    below.sort_unstable();
    below.dedup();
    below
}

/// Longest ways, found by peeling off groups that build on nothing that is left; what remains
/// lies on or above a cycle.
fn heights(below: &[Vec<usize>]) -> Vec<Option<usize>> {
    let mut heights: Vec<Option<usize>> = vec![None; below.len()];
    let mut found = true;
    while found {
        found = false;
        for group in 0..below.len() {
            if heights[group].is_some() {
                continue;
            }
            let mut highest = Some(0);
            for &child in &below[group] {
                highest = highest.zip(heights[child]).map(|(a, b)| a.max(b));
            }
            if let Some(highest) = highest {
                heights[group] = Some(highest + 1);
                found = true;
            }
        }
    }
    heights
        .into_iter()
        .map(|height| height.filter(|h| *h <= MAX_DEPTH))
        .collect()
}

fn leaf_counts(
    groups: &[Arc<Group>],
    leaves: usize,
    places: &HashMap<NodeId, Vec<u32>>,
    all: &[Arc<Node>],
) -> Vec<usize> {
    let mut counted = vec![usize::MAX; leaves];
    let count = |root: usize| {
        let mut seen = vec![false; groups.len()];
        let mut open = vec![root];
        let mut count = 0;
        while let Some(group) = open.pop() {
            if std::mem::replace(&mut seen[group], true) {
                continue;
            }
            open.extend(&*groups[group].nested);
            for &leaf in &*groups[group].nodes {
                let first = places[&all[leaf as usize].id][0] as usize;
                count += usize::from(std::mem::replace(&mut counted[first], root) != root);
            }
        }
        count
    };
    (0..groups.len()).map(count).collect()
}

/// The leaves of a table: its nodes and the built-ins.
pub(super) fn leaves(nodes: &[Arc<Node>]) -> Arc<[Arc<Node>]> {
    let builtins = [builtin::direct(), builtin::block()];
    nodes.iter().chain(builtins).cloned().collect()
}

/// Places of the direct nodes of a member list among the leaves.
pub(super) fn placed(members: &[Member], nodes: &[Arc<Node>]) -> Arc<[u32]> {
    // Both lists keep the order of the configuration, so one walk finds all.
    let mut leaves = (0..).zip(nodes.iter().chain([builtin::direct(), builtin::block()]));
    let nodes = members.iter().filter_map(|member| match member {
        Member::Node(node) => Some(node),
        Member::Group { .. } => None,
    });
    let place = |node: &Arc<Node>| {
        leaves
            .find(|(_, leaf)| Arc::ptr_eq(leaf, node))
            .map(|(at, _)| at)
    };
    nodes.filter_map(place).collect()
}
