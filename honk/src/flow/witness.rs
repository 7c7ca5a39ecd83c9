//! What becomes of a flow, told to whoever learns from it which leaf to take.
//!
//! Only flows that came through a group with evidence have a witness; for all others every call
//! here is one branch.

use std::{
    any::Any,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use super::{CloseReason, FlowEntry};

/// Hears what a flow goes through. Never blocks for long; late calls do nothing.
pub(crate) trait Witness: Any + fmt::Debug + Send + Sync {
    /// The first attempt to reach the leaf is admitted, or its session is used again.
    fn started(&self, now: Instant);
    /// The far side is reached, as far as the protocol tells.
    fn reached(&self, now: Instant);
    /// Bytes that were taken over for the far side, and that came from it, all in all.
    fn moved(&self, up: u64, down: u64, now: Instant);
    /// The flow is over, or its leaf does not serve it any more; the first call counts.
    fn ended(&self, end: End, now: Instant);
}

/// How a flow ended, as far as that tells something about its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was not reached.
    Failed(Fault),
    /// The connection on the far side broke.
    Broken,
    /// What several flows share broke; every such event has a number.
    CarrierLost(u64),
    /// We ended it, for reasons of our own.
    Retired,
    /// As its close reason says.
    Closed(CloseReason),
}

/// Whose fault it is that a leaf or its target was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This machine's, or the configuration's.
    Own,
    /// The node's, or the way to it.
    Node,
    /// That of something several flows share; every such event has a number.
    Carrier(u64),
    /// The target's, which refused.
    Refused,
    /// The target's, which did not answer.
    Silent,
    /// Nobody knows.
    Unknown,
}

/// The number of an event that ends several flows.
pub(crate) fn event() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl FlowEntry {
    /// See [`Witness::started`].
    pub(crate) fn started(&self) {
        if let Some(witness) = &self.witness {
            witness.started(Instant::now());
        }
    }

    /// See [`Witness::reached`].
    pub(crate) fn reached(&self) {
        if let Some(witness) = &self.witness {
            witness.reached(Instant::now());
        }
    }

    /// Bytes have moved and are counted.
    pub(crate) fn progressed(&self) {
        if let Some(witness) = &self.witness {
            let up = self.counters.up.load(Ordering::Relaxed);
            let down = self.counters.down.load(Ordering::Relaxed);
            witness.moved(up, down, Instant::now());
        }
    }

    /// See [`Witness::ended`].
    pub(crate) fn ended(&self, end: End) {
        if let Some(witness) = &self.witness {
            witness.ended(end, Instant::now());
        }
    }
}
