//! The list of live flows, the ring of ended ones, and the counters of both.
//!
//! A flow enters when it is admitted and leaves when its guard drops; nothing else removes it.
//! Sharded, so that accept loops on different CPUs rarely meet; capped, so that a flood ends in
//! refusals and a counter instead of in memory.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use honk_common::key::{FlowKey, PROTO_TCP, PROTO_UDP};
use honk_policy::id::Network;
use tokio::sync::Notify;

use super::{admission::DNS, kernel::Kernel};
use crate::{
    clock,
    flow::{CloseReason, FlowEntry, FlowSink, NewFlow},
    metrics::histogram::Histograms,
};

/// Power of two; more shards than CPUs of a large gateway.
const SHARDS: usize = 32;
/// Ended flows that stay readable.
const CLOSED_RING: usize = 1_000;

/// Label values of `reason`, in the order of [`reason_index`].
pub(crate) const REASONS: [&str; 10] = [
    "eof",
    "reset",
    "timeout",
    "dial_failed",
    "refused",
    "selection_changed",
    "api",
    "reload",
    "shutdown",
    "handed_back",
];

/// Position of a reason in [`REASONS`].
pub(crate) fn reason_index(reason: CloseReason) -> usize {
    match reason {
        CloseReason::Eof => 0,
        CloseReason::Reset => 1,
        CloseReason::Timeout => 2,
        CloseReason::DialFailed => 3,
        CloseReason::Refused => 4,
        CloseReason::SelectionChanged => 5,
        CloseReason::Api => 6,
        CloseReason::Reload => 7,
        CloseReason::Shutdown => 8,
        CloseReason::HandedBack => 9,
    }
}

/// Counters of one outbound and network.
#[derive(Debug, Default)]
pub(crate) struct NetStats {
    pub(crate) open: AtomicU64,
    pub(crate) opened: AtomicU64,
    pub(crate) closed: [AtomicU64; REASONS.len()],
    /// Bytes of ended flows; live ones are added when read.
    pub(crate) up: AtomicU64,
    pub(crate) down: AtomicU64,
}

/// Counters of one outbound.
#[derive(Debug, Default)]
pub(crate) struct OutboundStats {
    pub(crate) tcp: NetStats,
    pub(crate) udp: NetStats,
}

impl OutboundStats {
    pub(crate) fn of(&self, network: Network) -> &NetStats {
        match network {
            Network::Tcp => &self.tcp,
            Network::Udp => &self.udp,
        }
    }
}

/// An ended flow.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) entry: Arc<FlowEntry>,
    pub(crate) at_ms: u64,
    pub(crate) reason: CloseReason,
}

/// What closing flows achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closing {
    pub(crate) matched: usize,
    pub(crate) closed: usize,
    pub(crate) pending: usize,
}

type Shard = Mutex<HashMap<u64, Arc<FlowEntry>>>;

/// Live and lately ended flows.
pub(crate) struct Registry {
    shards: [Shard; SHARDS],
    open: AtomicUsize,
    capacity: usize,
    next: AtomicU64,
    closed: Mutex<VecDeque<Closed>>,
    /// Signalled whenever a flow ends.
    ended: Notify,
    stats: RwLock<HashMap<Arc<str>, Arc<OutboundStats>>>,
    kernel: Arc<dyn Kernel>,
    histograms: Arc<Histograms>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("open", &self.open)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Every update leaves the map whole, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel's key of a flow.
pub(crate) fn key_of(flow: &NewFlow) -> FlowKey {
    let proto = match flow.network {
        Network::Tcp => PROTO_TCP,
        Network::Udp => PROTO_UDP,
    };
    FlowKey::new(flow.client.0, flow.target.0, proto)
}

/// Whether the kernel keeps an entry: UDP to port 53 is handed over without one.
pub(crate) fn has_entry(flow: &NewFlow) -> bool {
    flow.network == Network::Tcp || flow.target.0.port() != 53
}

impl Registry {
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        capacity: usize,
        histograms: Arc<Histograms>,
    ) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            open: AtomicUsize::new(0),
            capacity,
            next: AtomicU64::new(1),
            closed: Mutex::default(),
            ended: Notify::new(),
            stats: RwLock::default(),
            kernel,
            histograms,
        }
    }

    /// Reserves a place and a number. `None` when full.
    pub(crate) fn reserve(&self) -> Option<u64> {
        let taken = self.open.fetch_add(1, Ordering::Relaxed);
        if taken >= self.capacity {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Lists a flow whose place was reserved.
    pub(crate) fn insert(&self, entry: &Arc<FlowEntry>) {
        let stats = self.stats_of(&entry.outbound);
        let stats = stats.of(entry.flow.network);
        stats.open.fetch_add(1, Ordering::Relaxed);
        stats.opened.fetch_add(1, Ordering::Relaxed);
        lock(self.shard(entry.id)).insert(entry.id, Arc::clone(entry));
    }

    fn shard(&self, id: u64) -> &Shard {
        // The mask keeps the index below SHARDS.
        &self.shards[(id as usize) & (SHARDS - 1)]
    }

    fn stats_of(&self, outbound: &Arc<str>) -> Arc<OutboundStats> {
        let known = self.stats.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(stats) = known.get(outbound) {
            return Arc::clone(stats);
        }
        drop(known);
        let mut known = self.stats.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(Arc::clone(outbound)).or_default())
    }

    /// Counters by outbound, sorted by name.
    pub(crate) fn stats(&self) -> Vec<(Arc<str>, Arc<OutboundStats>)> {
        let known = self.stats.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> = known
            .iter()
            .map(|(name, stats)| (Arc::clone(name), Arc::clone(stats)))
            .collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }

    /// Forgets the counters of outbounds that no longer exist and carry nothing, and knows
    /// those that do, so that their series start at zero.
    pub(crate) fn retain(&self, names: &[Arc<str>]) {
        let mut known = self.stats.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, stats| {
            let idle = |n: &NetStats| n.open.load(Ordering::Relaxed) == 0;
            names.contains(name) || !idle(&stats.tcp) || !idle(&stats.udp)
        });
        for name in names {
            known.entry(Arc::clone(name)).or_default();
        }
    }

    /// Flows that are open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// All live flows, oldest first.
    pub(crate) fn list(&self) -> Vec<Arc<FlowEntry>> {
        let mut all = Vec::with_capacity(self.open());
        for shard in &self.shards {
            all.extend(lock(shard).values().cloned());
        }
        all.sort_unstable_by_key(|e| e.id);
        all
    }

    /// Bytes of all live flows, up and down.
    pub(crate) fn live_bytes(&self) -> (u64, u64) {
        let mut sum = (0u64, 0u64);
        for shard in &self.shards {
            for flow in lock(shard).values() {
                sum.0 = sum
                    .0
                    .saturating_add(flow.counters.up.load(Ordering::Relaxed));
                sum.1 = sum
                    .1
                    .saturating_add(flow.counters.down.load(Ordering::Relaxed));
            }
        }
        sum
    }

    /// One live flow.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<FlowEntry>> {
        lock(self.shard(id)).get(&id).cloned()
    }

    /// The ring of ended flows, newest first.
    pub(crate) fn ended(&self) -> Vec<Closed> {
        lock(&self.closed).iter().rev().cloned().collect()
    }

    /// Asks flows to end.
    pub(crate) fn cancel(&self, flows: &[Arc<FlowEntry>], reason: CloseReason) {
        for entry in flows {
            entry.cancel.set(reason);
        }
    }

    /// Asks flows to end and waits until they have, at most `limit`.
    pub(crate) async fn close(
        &self,
        flows: &[Arc<FlowEntry>],
        reason: CloseReason,
        limit: Duration,
    ) -> Closing {
        self.cancel(flows, reason);
        let mut waiting: Vec<u64> = flows.iter().map(|e| e.id).collect();
        let done = async {
            loop {
                // Registered before the check: an end in between wakes us at once.
                let mut ended = std::pin::pin!(self.ended.notified());
                ended.as_mut().enable();
                waiting.retain(|id| self.find(*id).is_some());
                if waiting.is_empty() {
                    return;
                }
                ended.await;
            }
        };
        // Running out of time is an answer, not an error: the caller reports what is left.
        let _ = tokio::time::timeout(limit, done).await;
        let pending = waiting
            .iter()
            .filter(|id| self.find(**id).is_some())
            .count();
        Closing {
            matched: flows.len(),
            closed: flows.len() - pending,
            pending,
        }
    }
}

impl FlowSink for Registry {
    fn closed(&self, entry: &FlowEntry, reason: CloseReason) {
        // A cancelled flow ends for the reason it was cancelled for, however the relay saw it.
        let reason = entry.cancel.reason().unwrap_or(reason);
        if has_entry(&entry.flow) {
            // Queries are carried one by one: there the end of the server ends the flow too.
            let relayed = entry.flow.network == Network::Tcp && entry.flow.target.0.port() != DNS;
            let fin_seen = relayed && reason == CloseReason::Eof;
            self.kernel.release(&key_of(&entry.flow), fin_seen);
        }
        let Some(entry) = lock(self.shard(entry.id)).remove(&entry.id) else {
            return;
        };
        let stats = self.stats_of(&entry.outbound);
        let stats = stats.of(entry.flow.network);
        stats.open.fetch_sub(1, Ordering::Relaxed);
        stats.closed[reason_index(reason)].fetch_add(1, Ordering::Relaxed);
        let up = entry.counters.up.load(Ordering::Relaxed);
        let down = entry.counters.down.load(Ordering::Relaxed);
        stats.up.fetch_add(up, Ordering::Relaxed);
        stats.down.fetch_add(down, Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Relaxed);
        let now = clock::now_ms();
        let life = now.saturating_sub(entry.started_ms);
        self.histograms.flow(entry.flow.network, life, up, down);
        tracing::trace!(target: "honk::route", flow = entry.id, ?reason, up, down, "flow ended");
        let mut ring = lock(&self.closed);
        if ring.len() == CLOSED_RING {
            ring.pop_front();
        }
        ring.push_back(Closed {
            entry,
            at_ms: now,
            reason,
        });
        drop(ring);
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use honk_policy::id::Network;

    use super::*;
    use crate::{
        app::testkit::{CONFIG, World, flow},
        flow::Admission as _,
    };

    #[test]
    fn the_ring_keeps_the_last_thousand_and_counters_all() {
        let world = World::new(CONFIG);
        for _ in 0..CLOSED_RING + 5 {
            let route = world
                .engine
                .gatekeeper
                .admit(&flow(Network::Tcp, "10.0.0.1:80"));
            let route = route.unwrap();
            route.guard.entry.counters.add_down(3);
            route.guard.close(CloseReason::Reset);
        }
        let ended = world.engine.registry.ended();
        assert_eq!(ended.len(), CLOSED_RING);
        assert_eq!(ended[0].entry.id, CLOSED_RING as u64 + 5);
        let stats = world.engine.registry.stats();
        let (_, direct) = stats.iter().find(|(name, _)| &**name == "direct").unwrap();
        let read = |c: &AtomicU64| c.load(Ordering::Relaxed);
        assert_eq!(read(&direct.tcp.opened), CLOSED_RING as u64 + 5);
        assert_eq!(read(&direct.tcp.closed[1]), CLOSED_RING as u64 + 5);
        assert_eq!(read(&direct.tcp.open), 0);
        assert_eq!(read(&direct.tcp.down), 3 * (CLOSED_RING as u64 + 5));
    }

    #[test]
    fn counters_of_an_outbound_outlive_it_while_it_carries_something() {
        let world = World::new(CONFIG);
        let registry = &world.engine.registry;
        let names = || -> Vec<String> {
            registry
                .stats()
                .iter()
                .map(|(n, _)| n.to_string())
                .collect()
        };
        let route = world
            .engine
            .gatekeeper
            .admit(&flow(Network::Tcp, "203.0.113.1:80"));
        registry.retain(&["direct".into()]);
        assert_eq!(names(), ["direct", "proxy"]);
        drop(route);
        registry.retain(&["direct".into()]);
        assert_eq!(names(), ["direct"]);
    }

    #[tokio::test]
    async fn closing_waits_for_the_end_of_each_flow() {
        let world = World::new(CONFIG);
        let registry = Arc::clone(&world.engine.registry);
        let route = world
            .engine
            .gatekeeper
            .admit(&flow(Network::Tcp, "10.0.0.1:80"));
        let flows = registry.list();
        let limit = Duration::from_secs(60);
        let closing = tokio::spawn({
            let registry = Arc::clone(&registry);
            async move { registry.close(&flows, CloseReason::Api, limit).await }
        });
        let entry = registry.list().remove(0);
        while entry.cancel.reason().is_none() {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished());
        drop(route);
        let done = closing.await.unwrap();
        assert_eq!((done.matched, done.closed, done.pending), (1, 1, 0));
    }
}
