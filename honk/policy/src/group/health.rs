//! Whether a node may be selected: the seam to the health engine.

use std::fmt;

use crate::{id::Network, node::Node};

/// A snapshot of node health. Asked while a table is made; a transition makes a new table.
pub trait Health: fmt::Debug + Send + Sync {
    /// Whether the node serves the network. Never asked about built-ins.
    fn alive(&self, node: &Node, network: Network) -> bool;
}

/// Nothing is measured: unknown health is alive.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllAlive;

impl Health for AllAlive {
    fn alive(&self, _: &Node, _: Network) -> bool {
        true
    }
}
