//! What a list of nodes has to offer, found out once for all groups that share the list.
//!
//! Many groups hold the same nodes, often all of them: one death would otherwise walk the same
//! thousands of nodes once per group.

use std::{cell::OnceCell, sync::Arc};

use super::{
    live::Grid,
    pick::Refuse,
    standing::Standing,
    urltest::{self, Runner},
};

/// Lists of leaves, each once, and what is known of them in the current round.
#[derive(Debug)]
pub(super) struct Scans {
    lists: Box<[Arc<[u32]>]>,
    found: Box<[Grid<OnceCell<Found>>]>,
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
        let empty = || std::array::from_fn(|_| std::array::from_fn(|_| OnceCell::new()));
        Self {
            lists: lists.into(),
            found: lists.iter().map(|_| empty()).collect(),
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
