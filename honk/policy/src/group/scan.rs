//! What a list of nodes has to offer, found out once for all groups that share the list.
//!
//! Many groups hold the same nodes, often all of them: one death would otherwise walk the same
//! thousands of nodes once per group.

use std::{cell::OnceCell, collections::HashSet, sync::Arc};

use super::{
    live::Grid,
    pick::Refuse,
    rivals::dialable,
    standing::Standing,
    urltest::{self, Runner},
};
use crate::{node::Node, score::Cand};

/// Lists of leaves, each once, and what is known of them in the current round.
#[derive(Debug)]
pub(super) struct Scans {
    lists: Box<[Arc<[u32]>]>,
    found: Box<[Grid<OnceCell<Found>>]>,
    ranked: Box<[Grid<OnceCell<Ranked>>]>,
}

/// By network and family.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The fastest that may serve.
    pub(super) best: Option<Runner>,
    /// Somebody who may serve is measured.
    pub(super) measured: bool,
    /// All that may serve.
    pub(super) able: Arc<[u32]>,
    /// Why nobody may.
    pub(super) obstacle: Refuse,
}

impl Scans {
    pub(super) fn new(lists: &[Arc<[u32]>]) -> Self {
        fn empty<T>() -> Grid<OnceCell<T>> {
            std::array::from_fn(|_| std::array::from_fn(|_| OnceCell::new()))
        }
        Self {
            lists: lists.into(),
            found: lists.iter().map(|_| empty()).collect(),
            ranked: lists.iter().map(|_| empty()).collect(),
        }
    }

    /// What the list offers, looked at when it is first asked for.
    pub(super) fn of(
        &self,
        list: usize,
        network: usize,
        family: usize,
        marks: &[Standing],
    ) -> &Found {
        let cell = &self.found[list][network][family];
        cell.get_or_init(|| look(&self.lists[list], network, family, marks))
    }
}

impl Scans {
    /// What the list has to offer a Score group.
    pub(super) fn ranked(
        &self,
        list: usize,
        network: usize,
        family: usize,
        (marks, nodes): (&[Standing], &[Arc<Node>]),
    ) -> &Ranked {
        let cell = &self.ranked[list][network][family];
        let eligible = |_, leaf: u32| marks[leaf as usize][network][family].eligible();
        cell.get_or_init(|| Ranked::of(&self.lists[list], nodes, eligible))
    }
}

/// Leaves of a list that may be ranked against each other.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    /// Each node once, with its number in the list.
    pub(super) cands: Arc<[Cand]>,
    /// Their places among the table's leaves.
    pub(super) leaves: Arc<[u32]>,
    /// Distinct nodes that may not serve.
    pub(super) filtered: u32,
}

impl Ranked {
    /// Looks through a list. `block` ends flows and is nothing that could be compared.
    pub(super) fn of(
        list: &[u32],
        nodes: &[Arc<Node>],
        mut eligible: impl FnMut(u32, u32) -> Result<(), Refuse>,
    ) -> Self {
        let mut known = HashSet::with_capacity(list.len());
        let (mut cands, mut leaves) = (Vec::new(), Vec::new());
        let mut filtered = 0;
        for (member, &leaf) in (0..).zip(list) {
            let node = &nodes[leaf as usize];
            if !dialable(node) || !known.insert(node.id) {
                continue;
            }
            match eligible(member, leaf) {
                Ok(()) => {
                    let node = node.id.into();
                    cands.push(Cand { node, member });
                    leaves.push(leaf);
                }
                Err(_) => filtered += 1,
            }
        }
        Self {
            cands: cands.into(),
            leaves: leaves.into(),
            filtered,
        }
    }
}

fn look(list: &[u32], network: usize, family: usize, marks: &[Standing]) -> Found {
    let mut able = Vec::with_capacity(list.len());
    let mut measured = false;
    let mut obstacle = Refuse::NoMember;
    let runners = (0..).zip(list).filter_map(|(at, &leaf)| {
        let mark = &marks[leaf as usize][network][family];
        match mark.eligible() {
            Ok(()) => {
                able.push(leaf);
                measured |= mark.measured();
                Some(Runner {
                    at,
                    latency: mark.latency.max(0.0),
                    struck: mark.struck,
                })
            }
            Err(refuse) => {
                obstacle = obstacle.worse(refuse);
                None
            }
        }
    });
    let best = urltest::fastest(runners, None, 0.0);
    Found {
        best,
        measured,
        able: able.into(),
        obstacle,
    }
}
