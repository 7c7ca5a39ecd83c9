//! The running daemon as one value: what the API reads and what it may change.
//!
//! One writer at a time (a reload or a selection change) builds a new snapshot, publishes it
//! and then tells the kernel; readers never wait. The order of those two steps is what keeps
//! flows from being lost: userspace accepts whatever the kernel may still hand over.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use honk_common::param::{GATE_CLOSED, GATE_DRAINING, GATE_OPEN};
use honk_policy::{
    config::Global,
    id::{GroupId, Ordinal, Uuid},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};

use super::{
    admission::Gatekeeper,
    autoping::Moved,
    choices,
    events::Events,
    kernel::{Kernel, KernelCounters, KernelError},
    notify::Heartbeats,
    pings::Pings,
    registry::Registry,
    reload::ReloadLog,
    score::Score,
    snapshot::Snapshot,
    source::Spec,
    verdicts::Judge,
};
use crate::{
    api::doc::Rates,
    clock,
    dns::Dns,
    log,
    metrics::histogram::Histograms,
    probe::Prober,
    state::{self, choices::Choices},
    subscription::Hub,
};

pub(crate) use crate::dns::Wanted;

/// Age up to which kernel counters are served again without reading the maps.
const COUNTER_AGE: Duration = Duration::from_secs(1);

/// Time after an activation in which slots of the generation before may still arrive.
const FADE: Duration = Duration::from_secs(5);
/// Time after which the slot of a vanished group may be given to another one.
const SLOT_REST: Duration = Duration::from_secs(600);

/// The rooms that carry flows, as far as the engine needs them.
pub(crate) trait Carriers: Send + Sync + std::fmt::Debug + 'static {
    /// Counters of TCP listeners and relays.
    fn relay_stats(&self) -> Vec<(&'static str, u64)>;
    /// Pipes in use by TCP relays.
    fn pipes(&self) -> usize;
    /// Counters of the UDP side.
    fn datagrams(&self) -> Datagrams;
    /// Counters of the dialer.
    fn dials(&self) -> Dials;
    /// Applies settings of a new generation.
    fn update(&self, global: &Global);
}

/// Counters of the UDP side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) flows: usize,
    pub(crate) tunnels: usize,
    pub(crate) reply_sockets: usize,
    /// Bytes that wait for tunnels to open.
    pub(crate) queued_bytes: usize,
    /// Flows whose first datagrams are held.
    pub(crate) held: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) drops: Vec<(&'static str, u64)>,
}

/// Counters of the dialer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dials {
    pub(crate) rows: Vec<DialRow>,
    pub(crate) permits: usize,
    pub(crate) limit: usize,
    /// Dials in line for a permit.
    pub(crate) waiting: usize,
    /// Upper bounds of the duration buckets, in seconds.
    pub(crate) bounds: Vec<f64>,
}

/// Dials of one network and protocol.
#[derive(Clone, Debug)]
pub(crate) struct DialRow {
    pub(crate) network: &'static str,
    pub(crate) protocol: &'static str,
    pub(crate) results: Vec<(&'static str, u64)>,
    /// One more than bounds, not cumulative.
    pub(crate) buckets: Vec<u64>,
    pub(crate) seconds: f64,
}

/// What the daemon is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Running,
    Suspended,
    Stopping,
}

/// Selection changes by group name, network and cause.
pub(crate) type ChangeCounts = BTreeMap<(Arc<str>, &'static str, &'static str), u64>;

/// The parts a daemon is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) dns: Arc<Dns>,
    pub(crate) first: Snapshot,
    pub(crate) spec: Spec,
    pub(crate) log: log::Handle,
    /// Largest number of flows listed at a time.
    pub(crate) capacity: usize,
    /// `<runtime>/reload.json`
    pub(crate) progress: PathBuf,
    /// `<state>/state/choices.json`
    pub(crate) choices: PathBuf,
    /// Stored choices whose member is not there yet.
    pub(crate) late: Choices,
    pub(crate) subscriptions: Arc<Hub>,
    pub(crate) judge: Judge,
}

/// The daemon.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) dns: Arc<Dns>,
    pub(crate) gatekeeper: Arc<Gatekeeper>,
    pub(crate) score: Arc<Score>,
    pub(crate) histograms: Arc<Histograms>,
    pub(crate) spec: Spec,
    pub(crate) reloads: ReloadLog,
    pub(crate) beats: Heartbeats,
    pub(crate) events: Events,
    pub(crate) started_ms: u64,
    pub(crate) started: Instant,
    pub(crate) changes: Mutex<ChangeCounts>,
    pub(super) current: Arc<ArcSwap<Snapshot>>,
    pub(crate) log: log::Handle,
    /// Held by whoever publishes.
    pub(super) writer: tokio::sync::Mutex<()>,
    /// Where choices are kept over a restart.
    choices: PathBuf,
    /// Stored choices whose member is not there yet: nodes of subscriptions come later.
    pub(super) late: Mutex<Choices>,
    pub(crate) subscriptions: Arc<Hub>,
    /// Who is off because it cannot be built.
    pub(crate) judge: Judge,
    /// Warnings about groups that were logged after members changed.
    pub(super) told: Mutex<HashSet<String>>,
    /// Choices differ from those in the file.
    pub(super) unsaved: AtomicBool,
    phase: AtomicU8,
    gate: watch::Sender<u32>,
    /// What happened last to the daemon, or around it.
    pub(super) moved: watch::Sender<Moved>,
    /// Work that outlives the request or signal that asked for it: reloads.
    jobs: Mutex<JoinSet<()>>,
    carriers: OnceLock<Arc<dyn Carriers>>,
    prober: OnceLock<Prober>,
    pings: OnceLock<Pings>,
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
        let histograms = Arc::new(Histograms::new());
        let kernel = Arc::clone(&parts.kernel);
        let registry = Registry::new(kernel, parts.capacity, Arc::clone(&histograms));
        let registry = Arc::new(registry);
        registry.retain(&parts.first.outbounds());
        let reloads = ReloadLog::new(&parts.first, parts.progress, Arc::clone(&histograms));
        let score = Score::new(Uuid::new_v4().as_u64_pair().0);
        let first = parts.first.ranked_by(&score);
        score.activate(&first);
        let current = Arc::new(ArcSwap::from_pointee(first));
        let gatekeeper = Gatekeeper::new(
            Arc::clone(&parts.kernel),
            Arc::clone(&registry),
            Arc::clone(&current),
            Arc::clone(&parts.dns),
            Arc::clone(&score),
        );
        let now = Instant::now();
        Self {
            gatekeeper,
            score,
            kernel: parts.kernel,
            dns: parts.dns,
            registry,
            histograms,
            spec: parts.spec,
            reloads,
            beats: Heartbeats::new(now),
            events: Events::default(),
            started_ms: clock::now_ms(),
            started: now,
            changes: Mutex::default(),
            current,
            log: parts.log,
            writer: tokio::sync::Mutex::default(),
            choices: parts.choices,
            late: Mutex::new(parts.late),
            subscriptions: parts.subscriptions,
            judge: parts.judge,
            told: Mutex::default(),
            unsaved: AtomicBool::new(false),
            phase: AtomicU8::new(Phase::Starting as u8),
            gate: watch::Sender::new(GATE_CLOSED),
            moved: watch::Sender::default(),
            jobs: Mutex::default(),
            carriers: OnceLock::new(),
            prober: OnceLock::new(),
            pings: OnceLock::new(),
            counters: Mutex::default(),
            rate: Mutex::default(),
            up_bps: AtomicU64::new(0),
            down_bps: AtomicU64::new(0),
        }
    }

    /// Runs a piece of work that the engine owns. Must be called inside a tokio runtime.
    pub(super) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        while jobs.try_join_next().is_some() {}
        jobs.spawn(job);
    }

    /// Waits for the work that the engine owns.
    pub(super) async fn finish_jobs(&self) {
        let mut jobs = {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *jobs)
        };
        while jobs.join_next().await.is_some() {}
    }

    /// Keeps every writer out until dropped.
    #[cfg(test)]
    pub(crate) async fn hold(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.writer.lock().await
    }

    /// What new flows are decided by.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            x if x == Phase::Running as u8 => Phase::Running,
            x if x == Phase::Suspended as u8 => Phase::Suspended,
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

    /// Connects the task that watches nodes; once.
    pub(crate) fn watch(&self, prober: Prober) {
        // As above.
        let _ = self.prober.set(prober);
    }

    /// Connects what people measure with; once.
    pub(crate) fn measure_with(&self, pings: Pings) {
        // As above.
        let _ = self.pings.set(pings);
    }

    /// What people measure with, once there is a dialer.
    pub(crate) fn pings(&self) -> Option<&Pings> {
        self.pings.get()
    }

    /// The task that watches nodes, once it runs.
    pub(crate) fn prober(&self) -> Option<&Prober> {
        self.prober.get()
    }

    /// Flows are intercepted from now on.
    pub(crate) fn open(&self) -> Result<(), KernelError> {
        self.set_gate(GATE_OPEN)?;
        self.phase.store(Phase::Running as u8, Ordering::Relaxed);
        self.tell("state", None, json!({ "state": "running" }));
        self.changed();
        Ok(())
    }

    /// Until [`open`](Self::open): new flows pass untouched, carried ones go on.
    pub(crate) fn suspend(&self) -> Result<(), KernelError> {
        self.set_gate(GATE_DRAINING)?;
        if let Some(pings) = self.pings() {
            pings.runs.keep(|_| false);
        }
        self.phase.store(Phase::Suspended as u8, Ordering::Relaxed);
        self.changed();
        tracing::info!(target: "honk::reload", "suspended: new flows go direct");
        self.tell("state", None, json!({ "state": "suspended" }));
        Ok(())
    }

    /// Another configuration is active, or the daemon serves or does not serve any more.
    pub(super) fn changed(&self) {
        self.moved.send_modify(|moved| moved.activations += 1);
    }

    /// Links, addresses or default routes changed.
    pub(super) fn network_changed(&self) {
        self.moved.send_modify(|moved| moved.networks += 1);
        if let Some(prober) = self.prober() {
            prober.network_changed();
        }
    }

    /// New flows pass untouched; those that are carried go on.
    pub(crate) fn begin_stop(&self) -> Result<(), KernelError> {
        self.phase.store(Phase::Stopping as u8, Ordering::Relaxed);
        self.set_gate(GATE_DRAINING)?;
        self.gatekeeper.stop();
        self.gatekeeper.traces.end();
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

    /// Tells those who listen.
    pub(super) fn tell(&self, kind: &'static str, group: Option<GroupId>, data: Value) {
        let group = group.map(|id| id.0.to_string());
        let generation = self.snapshot().generation;
        self.events.tell(kind, group, generation, data);
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

    /// Forgets the generation before, once nothing can carry its slots any more.
    pub(crate) fn fade(&self) {
        let Ok(_writer) = self.writer.try_lock() else {
            return;
        };
        let snapshot = self.snapshot();
        let age = clock::now_ms().saturating_sub(snapshot.accepted_ms);
        let old = Duration::from_millis(age) >= FADE;
        if old && snapshot.fading.is_some() {
            self.current.store(Arc::new(snapshot.settled()));
        }
    }

    /// Frees the slots of groups that are gone for long enough: no flow entry of theirs is
    /// left. Returns how many are still held.
    pub(crate) fn free_slots(&self, since: &mut BTreeMap<u8, Instant>, now: Instant) {
        let Ok(_writer) = self.writer.try_lock() else {
            return;
        };
        let snapshot = self.snapshot();
        let retired: Vec<Ordinal> = snapshot.groups.retired().iter().map(|r| r.slot).collect();
        since.retain(|slot, _| retired.contains(&Ordinal(*slot)));
        let mut groups = None;
        for slot in retired {
            let at = *since.entry(slot.0).or_insert(now);
            if now.saturating_duration_since(at) >= SLOT_REST {
                let table = groups.as_ref().unwrap_or(&snapshot.groups);
                groups = Some(table.free(slot));
                since.remove(&slot.0);
            }
        }
        if let Some(groups) = groups {
            self.current.store(Arc::new(snapshot.with_groups(groups)));
        }
    }

    /// Writes choices to the state directory when they have changed. The choice in memory is
    /// what counts: a failure is told and costs nothing but the next start.
    pub(crate) async fn save_choices(&self) {
        if !self.unsaved.swap(false, Ordering::Relaxed) {
            return;
        }
        let snapshot = self.snapshot();
        let mut choices = choices::stored(&snapshot.groups, &snapshot.revision);
        {
            let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            choices::join(&mut choices, &late);
        }
        let path = self.choices.clone();
        let job = move || state::choices::save(&path, &choices);
        let saved = tokio::task::spawn_blocking(job).await;
        if let Err(error) = saved.unwrap_or_else(|e| Err(std::io::Error::other(e))) {
            let path = self.choices.display();
            tracing::warn!(target: "honk::group", %error, %path, "choices are not saved");
        }
    }

    /// Writes all group slots again: heals a write that was lost.
    pub(crate) fn rewrite_groups(&self) {
        let Ok(_writer) = self.writer.try_lock() else {
            return;
        };
        if let Err(error) = self.kernel.write_groups(&self.snapshot().groups.slots()) {
            tracing::warn!(target: "honk::datapath", %error, "group slots were not rewritten");
        }
    }

    /// Userspace bytes since the start: ended flows plus live ones.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let (mut up, mut down) = self.registry.live_bytes();
        for (_, stats) in self.registry.stats() {
            for net in [&stats.tcp, &stats.udp] {
                up = up.saturating_add(net.up.load(Ordering::Relaxed));
                down = down.saturating_add(net.down.load(Ordering::Relaxed));
            }
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

    /// Forgets the counters of groups that are gone.
    pub(super) fn retain_changes(&self, names: &[Arc<str>]) {
        let mut counts = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|(group, ..), _| names.contains(group));
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
