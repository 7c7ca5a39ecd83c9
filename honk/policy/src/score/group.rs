//! What the engine keeps for a Score group besides evidence: who belongs to it, and for each
//! network its serving pool, budgets and counters.

use super::{
    budget::{Demand, Ledger},
    ids::{GroupKey, NodeKey},
    pool::Pool,
    reasons::ReasonStats,
};
use crate::id::{Family, Network};

/// A configured group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) key: GroupKey,
    /// Whether its policy is `score` now; else it only keeps its counters and its currency.
    pub(super) scored: bool,
    /// Leaves and finals, sorted: whose evidence is kept.
    members: Vec<NodeKey>,
    /// Valid leaves.
    pub(super) leaves: usize,
    nets: [Net; 2],
}

/// One network of a group.
#[derive(Debug, Default)]
pub(super) struct Net {
    pub(super) pool: Pool,
    pub(super) demand: Demand,
    pub(super) counters: ReasonStats,
    ledgers: [Option<Ledger>; 2],
}

impl Group {
    pub(super) fn new(key: GroupKey) -> Self {
        Self {
            key,
            scored: false,
            members: Vec::new(),
            leaves: 0,
            nets: [Net::default(), Net::default()],
        }
    }

    /// Takes over who belongs to it. Currency, demand and counters stay; pools start again, and
    /// what was reserved and not begun goes back.
    pub(super) fn join(&mut self, leaves: &[NodeKey], finals: &[NodeKey]) {
        self.leaves = leaves.len();
        self.members.clear();
        self.members.extend(leaves.iter().chain(finals));
        self.members.sort_unstable();
        self.members.dedup();
        for net in &mut self.nets {
            net.pool = Pool::default();
            for ledger in net.ledgers.iter_mut().flatten() {
                ledger.activate();
            }
        }
    }

    /// Whether evidence of this leaf is kept.
    pub(super) fn has(&self, node: NodeKey) -> bool {
        self.members.binary_search(&node).is_ok()
    }

    pub(super) fn net(&self, network: Network) -> &Net {
        &self.nets[network as usize]
    }

    pub(super) fn net_mut(&mut self, network: Network) -> &mut Net {
        &mut self.nets[network as usize]
    }
}

impl Net {
    /// The budget of a target family, if any work was given out in it.
    pub(super) fn ledger_mut(&mut self, family: Family) -> Option<&mut Ledger> {
        self.ledgers[family as usize].as_mut()
    }

    /// The budget of a target family; the first call fixes what its cold allowance is.
    pub(super) fn open(&mut self, family: Family, leaves: usize) -> &mut Ledger {
        self.ledgers[family as usize].get_or_insert_with(|| Ledger::new(leaves))
    }

    /// Budgets there are.
    pub(super) fn ledgers(&self) -> [Option<&Ledger>; 2] {
        [self.ledgers[0].as_ref(), self.ledgers[1].as_ref()]
    }
}
