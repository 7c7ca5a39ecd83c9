//! The running daemon as one value: what the API reads and what it may change.
//!
//! One writer at a time (a reload or a selection change) builds a new snapshot, publishes it
//! and then tells the kernel; readers never wait. The order of those two steps is what keeps
//! flows from being lost: userspace accepts whatever the kernel may still hand over.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use honk_common::param::{GATE_CLOSED, GATE_DRAINING, GATE_OPEN};
use honk_policy::config::Global;
use tokio::sync::watch;

use super::{
    admission::Gatekeeper,
    kernel::{Kernel, KernelCounters, KernelError},
    notify::Heartbeats,
    registry::Registry,
    reload::ReloadLog,
    snapshot::Snapshot,
    source::Spec,
};
use crate::{
    api::{doc::Rates, time},
    log,
};

/// Age up to which kernel counters are served again without reading the maps.
const COUNTER_AGE: Duration = Duration::from_secs(1);

/// The rooms that carry flows, as far as the engine needs them.
pub(crate) trait Carriers: Send + Sync + std::fmt::Debug + 'static {
    /// Counters of listeners, relays and UDP endpoints.
    fn relay_stats(&self) -> Vec<(&'static str, u64)>;
    /// Counters of the dialer.
    fn dial_stats(&self) -> Vec<(&'static str, u64)>;
    /// Applies settings of a new generation.
    fn update(&self, global: &Global);
}

/// What the daemon is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Running,
    Stopping,
}

/// Causes of selection changes, as label values.
pub(crate) const CAUSES: [&str; 2] = ["user", "reload"];

/// Selection changes by group name, network and cause.
pub(crate) type ChangeCounts =
    std::collections::BTreeMap<(Arc<str>, &'static str, &'static str), u64>;

/// The parts a daemon is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) first: Snapshot,
    pub(crate) spec: Spec,
    pub(crate) log: log::Handle,
    /// Largest number of flows listed at a time.
    pub(crate) capacity: usize,
    /// `<runtime>/reload.json`; `None` in tests.
    pub(crate) progress: Option<PathBuf>,
}

/// The daemon.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) gatekeeper: Arc<Gatekeeper>,
    pub(crate) spec: Spec,
    pub(crate) reloads: ReloadLog,
    pub(crate) beats: Heartbeats,
    pub(crate) started_ms: u64,
    pub(crate) started: Instant,
    pub(crate) changes: Mutex<ChangeCounts>,
    pub(super) current: Arc<ArcSwap<Snapshot>>,
    pub(super) log: log::Handle,
    /// Held by whoever publishes.
    pub(super) writer: tokio::sync::Mutex<()>,
    phase: AtomicU8,
    gate: watch::Sender<u32>,
    carriers: OnceLock<Arc<dyn Carriers>>,
    counters: Mutex<Option<(Instant, Arc<KernelCounters>)>>,
    rate: Mutex<RateMeter>,
    up_bps: AtomicU64,
    down_bps: AtomicU64,
}

#[derive(Debug, Default)]
struct RateMeter {
    at: Option<Instant>,
    up: u64,
    down: u64,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Self {
        let registry = Arc::new(Registry::new(Arc::clone(&parts.kernel), parts.capacity));
        registry.retain(&parts.first.outbounds());
        let reloads = ReloadLog::new(&parts.first, parts.progress);
        let current = Arc::new(ArcSwap::from_pointee(parts.first));
        let gatekeeper = Gatekeeper::new(
            Arc::clone(&parts.kernel),
            Arc::clone(&registry),
            Arc::clone(&current),
        );
        let now = Instant::now();
        Self {
            gatekeeper: Arc::new(gatekeeper),
            kernel: parts.kernel,
            registry,
            spec: parts.spec,
            reloads,
            beats: Heartbeats::new(now),
            started_ms: time::now_ms(),
            started: now,
            changes: Mutex::default(),
            current,
            log: parts.log,
            writer: tokio::sync::Mutex::default(),
            phase: AtomicU8::new(Phase::Starting as u8),
            gate: watch::Sender::new(GATE_CLOSED),
            carriers: OnceLock::new(),
            counters: Mutex::default(),
            rate: Mutex::default(),
            up_bps: AtomicU64::new(0),
            down_bps: AtomicU64::new(0),
        }
    }

    /// What new flows are decided by.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            x if x == Phase::Running as u8 => Phase::Running,
            x if x == Phase::Stopping as u8 => Phase::Stopping,
            _ => Phase::Starting,
        }
    }

    /// Connects the rooms that carry flows; once.
    pub(crate) fn attach(&self, carriers: Arc<dyn Carriers>) {
        // A second call would be a mistake of the start sequence; the first one stands.
        let _ = self.carriers.set(carriers);
    }

    pub(crate) fn carriers(&self) -> Option<&Arc<dyn Carriers>> {
        self.carriers.get()
    }

    /// Flows are intercepted from now on.
    pub(crate) fn open(&self) -> Result<(), KernelError> {
        self.set_gate(GATE_OPEN)?;
        self.phase.store(Phase::Running as u8, Ordering::Relaxed);
        Ok(())
    }

    /// New flows pass untouched; those that are carried go on.
    pub(crate) fn begin_stop(&self) -> Result<(), KernelError> {
        self.phase.store(Phase::Stopping as u8, Ordering::Relaxed);
        self.set_gate(GATE_DRAINING)?;
        self.gatekeeper.stop();
        Ok(())
    }

    pub(crate) fn set_gate(&self, gate: u32) -> Result<(), KernelError> {
        self.kernel.set_gate(gate)?;
        self.gate.send_replace(gate);
        Ok(())
    }

    /// `closed`, `open` or `draining`.
    pub(crate) fn gate(&self) -> &'static str {
        match *self.gate.borrow() {
            GATE_OPEN => "open",
            GATE_DRAINING => "draining",
            _ => "closed",
        }
    }

    /// Kernel counters, at most a second old.
    pub(crate) fn kernel_counters(&self) -> Arc<KernelCounters> {
        let mut cached = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((at, counters)) = &*cached
            && now.saturating_duration_since(*at) < COUNTER_AGE
        {
            return Arc::clone(counters);
        }
        let fresh = Arc::new(self.kernel.counters());
        *cached = Some((now, Arc::clone(&fresh)));
        fresh
    }

    /// Userspace bytes since the start: ended flows plus live ones.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let (mut up, mut down) = (0u64, 0u64);
        for (_, stats) in self.registry.stats() {
            for net in [&stats.tcp, &stats.udp] {
                up = up.saturating_add(net.up.load(Ordering::Relaxed));
                down = down.saturating_add(net.down.load(Ordering::Relaxed));
            }
        }
        for flow in self.registry.list() {
            up = up.saturating_add(flow.counters.up.load(Ordering::Relaxed));
            down = down.saturating_add(flow.counters.down.load(Ordering::Relaxed));
        }
        (up, down)
    }

    /// Works out the current rates; called about once a second.
    pub(crate) fn measure(&self, now: Instant) {
        let (up, down) = self.totals();
        let mut meter = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = meter.at {
            let millis = now.saturating_duration_since(at).as_millis().max(1);
            let per_second = |new: u64, old: u64| {
                let bytes = u128::from(new.saturating_sub(old)) * 1000 / millis;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            };
            self.up_bps
                .store(per_second(up, meter.up), Ordering::Relaxed);
            self.down_bps
                .store(per_second(down, meter.down), Ordering::Relaxed);
        }
        let at = Some(now);
        *meter = RateMeter { at, up, down };
    }

    pub(crate) fn rates(&self) -> Rates {
        Rates {
            up_bps: self.up_bps.load(Ordering::Relaxed),
            down_bps: self.down_bps.load(Ordering::Relaxed),
        }
    }

    pub(super) fn count_change(
        &self,
        group: &Arc<str>,
        network: &'static str,
        cause: &'static str,
    ) {
        let mut counts = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        *counts
            .entry((Arc::clone(group), network, cause))
            .or_default() += 1;
    }
}
