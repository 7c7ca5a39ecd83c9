//! What is known of a node besides its cells.

use super::{history::History, strikes::Strikes};
use crate::time::Moment;

#[derive(Clone, Debug)]
pub(super) struct NodeState {
    /// When it was first seen.
    pub(super) registered: Moment,
    pub(super) strikes: Strikes,
    /// Last time an answer of a flow came through it.
    pub(super) proof: Option<Moment>,
    pub(super) history: History,
    /// Groups that lead to it, by index.
    pub(super) groups: Vec<usize>,
}

impl NodeState {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            registered: now,
            strikes: Strikes::default(),
            proof: None,
            history: History::default(),
            groups: Vec::new(),
        }
    }
}
