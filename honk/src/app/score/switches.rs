//! Moves of ordinary choices: flows of groups with `interrupt_connections` that go to the same
//! target through another member are closed (G-164, decision 0015).

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use honk_policy::{
    group::{Group, Member},
    id::{Family, Network},
    score::{GroupKey, Target},
};
use tokio::sync::{Notify, watch};

use super::{
    Score,
    attempt::{self, Attempt},
};
use crate::{
    app::engine::Engine,
    flow::{CloseReason, FlowEntry},
};

/// Moves that wait; what is beyond is counted and closes nothing.
pub(super) const WAITING: usize = 1024;

/// An ordinary choice that moved to another leaf.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) group: GroupKey,
    pub(super) network: Network,
    pub(super) family: Family,
    pub(super) target: Goal,
    /// Number of the member it moved to.
    pub(super) member: u32,
}

/// Targets are told to nobody (S-308).
impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").finish_non_exhaustive()
    }
}

/// A target that is kept for a moment.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Goal {
    Name(Box<str>, u16),
    Address(SocketAddr),
}

impl From<Target<'_>> for Goal {
    fn from(target: Target<'_>) -> Self {
        match target {
            Target::Name(name, port) => Self::Name(name.into(), port),
            Target::Address(at) => Self::Address(at),
        }
    }
}

impl Goal {
    fn is_of(&self, entry: &FlowEntry) -> bool {
        let to = entry.flow.target.0;
        let host = entry.host.as_ref().map(|(name, _)| &**name);
        match (self, host) {
            (Self::Name(name, port), Some(host)) => {
                *port == to.port() && name.eq_ignore_ascii_case(host)
            }
            (Self::Address(at), None) => *at == to,
            _ => false,
        }
    }
}

/// Moves on their way to the task.
#[derive(Debug, Default)]
pub(super) struct Switches {
    waiting: Mutex<Vec<Switch>>,
    wake: Notify,
    lost: AtomicU64,
}

impl Score {
    /// A choice moved; felt by flows a moment later.
    pub(super) fn moved(&self, switch: Switch) {
        if !self.interrupting.load().contains(&switch.group) {
            return;
        }
        let switches = &self.switches;
        let mut waiting = switches
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING {
            waiting.push(switch);
            drop(waiting);
            switches.wake.notify_one();
        } else {
            switches.lost.fetch_add(1, Relaxed);
        }
    }

    /// Moves that closed nothing because too many waited.
    pub(crate) fn lost_moves(&self) -> u64 {
        self.switches.lost.load(Relaxed)
    }

    fn take_moves(&self) -> Vec<Switch> {
        let waiting = &self.switches.waiting;
        std::mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Engine {
    /// Closes the flows that moves concern.
    fn follow_moves(&self) {
        let moves = self.score.take_moves();
        if moves.is_empty() {
            return;
        }
        let snapshot = self.snapshot();
        let flows = self.registry.list();
        for switch in moves {
            let group = snapshot.groups.groups().find(|g| g.key() == switch.group);
            let Some(group) = group else { continue };
            let left: Vec<_> = flows
                .iter()
                .filter(|flow| left_behind(flow, group, &switch))
                .cloned()
                .collect();
            self.registry.cancel(&left, CloseReason::SelectionChanged);
        }
    }
}

/// Whether a flow goes where a choice moved away from. A trial goes elsewhere on purpose.
fn left_behind(flow: &Arc<FlowEntry>, group: &Group, switch: &Switch) -> bool {
    let same = flow.flow.network == switch.network && flow.flow.family() == switch.family;
    let moved_to = group.members.get(switch.member as usize).map(Member::id);
    let elsewhere = flow
        .member_of(group.id)
        .is_some_and(|member| Some(member) != moved_to);
    let trial = || attempt::of(flow).is_some_and(Attempt::is_trial);
    same && elsewhere && switch.target.is_of(flow) && !trial()
}

/// Runs until told to stop.
pub(crate) async fn run(engine: Arc<Engine>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = engine.score.switches.wake.notified() => engine.follow_moves(),
        }
    }
}
