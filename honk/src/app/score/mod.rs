//! The Score engine at work in the daemon: one lock around it, and the calls that the daemon's
//! rooms make.
//!
//! The lock is taken by flows of Score groups, by their checks and by those who look; nothing is
//! awaited, logged or called under it. Configurations without such a group never take it.

mod attempt;
mod checks;
mod ranking;
pub(crate) mod switches;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use arc_swap::ArcSwap;
use honk_policy::{
    config::Policy,
    group::{Group, GroupTable, Offer, Ranks},
    id::{GroupId, Network},
    score::{self, Cand, Ctx, Dropped, GroupKey, Report, Stats, T},
};

pub(super) use self::{
    attempt::{Attempt, of},
    ranking::{Begun, Ranking},
};
use self::{checks::Checks, switches::Switches};
use super::snapshot::Snapshot;

/// The engine of the process.
#[derive(Debug)]
pub(crate) struct Score {
    engine: Mutex<score::Engine>,
    /// When its clock began.
    epoch: Instant,
    /// Groups whose flows are closed when they move.
    interrupting: ArcSwap<HashSet<GroupKey>>,
    switches: Switches,
    checks: Checks,
}

impl Score {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            engine: Mutex::new(score::Engine::new(seed)),
            epoch: Instant::now(),
            interrupting: ArcSwap::default(),
            switches: Switches::default(),
            checks: Checks::default(),
        })
    }

    /// Takes over the groups of a generation that is active: evidence of leaves that stay is kept.
    pub(super) fn activate(&self, snapshot: &Snapshot) {
        let membership = snapshot.groups.scores(snapshot.generation);
        let interrupts = |g: &&Group| scores(g) && g.def.interrupt_connections;
        let interrupting = snapshot.groups.groups().filter(interrupts);
        let interrupting: HashSet<_> = interrupting.map(Group::key).collect();
        self.interrupting.store(Arc::new(interrupting));
        self.checks.take(snapshot, &membership);
        self.lock().activate(self.now(), &membership);
    }

    /// How sure a Score group is about its selection on a network. `None` for other groups.
    pub(crate) fn verify(
        &self,
        groups: &GroupTable,
        group: GroupId,
        network: Network,
    ) -> Option<Report> {
        let key = groups.group(group).filter(|g| scores(g))?.key();
        // Asks this engine for nested groups, so before the lock.
        let view = groups.offered(group, network).unwrap_or_default();
        self.lock().verify(self.now(), key, network, &view)
    }

    /// Counters of all Score groups, which are named by their slots.
    pub(crate) fn stats(&self) -> Stats {
        self.lock().stats(self.now())
    }

    /// What was not used, and how full the inner tables are.
    pub(crate) fn dropped(&self) -> Dropped {
        self.lock().dropped()
    }

    /// The present of the engine.
    pub(crate) fn now(&self) -> T {
        self.at(Instant::now())
    }

    fn at(&self, at: Instant) -> T {
        let nanos = at.saturating_duration_since(self.epoch).as_nanos();
        T::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Every call leaves the engine whole, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, score::Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The aggregate of all targets, for those who only look.
impl Ranks for Score {
    fn peek(&self, offer: &Offer<'_>) -> Option<usize> {
        let ctx = Ctx {
            network: offer.network,
            family: None,
            target: None,
            dead_filtered: offer.filtered,
            joins: None,
        };
        let seen = self.lock().peek(self.now(), offer.group, &ctx, offer.view);
        seen.map(|view| view.index)
    }
}

fn scores(group: &Group) -> bool {
    group.def.policy == Policy::Score
}

/// A view of one leaf.
fn only(node: score::NodeKey) -> [Cand; 1] {
    [Cand { node, member: 0 }]
}
