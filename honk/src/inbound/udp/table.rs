//! The flows of the UDP side: who talks to whom through which tunnel.
//!
//! Two maps. The flow map is on the path of every datagram and is sharded; the tunnel map is
//! touched only when flows come and go. A refused flow leaves a short-lived mark, so that a
//! flood of its datagrams does not ask the admission every time.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use honk_policy::id::{GroupId, NodeId};
use honk_wire::dns::Explanation;

use super::{back::Back, hold::Hold, shares::Place, tunnel::Tunnel};
use crate::{
    flow::{CloseReason, FlowEntry, FlowGuard},
    inbound::counters::{Cap, Seat},
};

const SHARDS: usize = 16;
/// How long a refused flow is dropped without asking again.
const REFUSED: Duration = Duration::from_secs(1);
/// Refusals remembered.
const MAX_REFUSED: usize = 8192;
/// Idle time of a flow.
const IDLE: Duration = Duration::from_secs(120);
/// Idle time of a flow to port 53.
const IDLE_DNS: Duration = Duration::from_secs(30);
/// Idle time of a flow to port 53 that got an answer to every question: resolvers use a new
/// port per question, and each would hold an association for nothing.
const IDLE_DNS_ANSWERED: Duration = Duration::from_secs(5);

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowId {
    pub(super) client: SocketAddr,
    pub(super) target: SocketAddr,
}

/// What flows may share: one client's way through one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TunnelKey {
    pub(super) client: SocketAddr,
    pub(super) leaf: NodeId,
    pub(super) mark: u32,
    /// The target, if the flow shares its tunnel with no other.
    pub(super) alone: Option<SocketAddr>,
    /// The group that has measured nothing yet: any of its leaves may carry the tunnel.
    pub(super) cold: Option<GroupId>,
}

/// A live flow.
#[derive(Debug)]
pub(super) struct UdpFlow {
    pub(super) key: FlowId,
    pub(super) tunnel: Arc<Tunnel>,
    pub(super) entry: Arc<FlowEntry>,
    /// What a SOCKS5 server is told instead of the address.
    pub(super) header: Option<Box<[u8]>>,
    /// Taken by whoever ends the flow.
    guard: Mutex<Option<FlowGuard>>,
    /// Datagrams that wait for the tunnel to open.
    pub(super) queued: AtomicUsize,
    /// The client sent something to port 53 that was no query.
    pub(super) opaque: AtomicBool,
    place: Place,
    /// Milliseconds since the table began.
    last: AtomicU64,
    asked: AtomicU32,
    answered: AtomicU32,
}

/// State of a key.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Live(Arc<UdpFlow>),
    /// Not decided yet.
    Held(Arc<Hold>),
    /// On its way back to the kernel.
    Back(Arc<Back>),
    /// Drop: refused a moment ago.
    Refused(Explanation),
    Unknown,
}

#[derive(Debug)]
enum Slot {
    Live(Arc<UdpFlow>),
    Held(Arc<Hold>),
    Back(Arc<Back>),
    /// Until when and why; the seat gives its place back.
    Refused(Instant, Explanation, #[allow(dead_code)] Seat),
}

/// The flow map.
#[derive(Debug)]
pub(super) struct Table {
    shards: [Mutex<HashMap<FlowId, Slot>>; SHARDS],
    hasher: RandomState,
    refused: Arc<Cap>,
    began: Instant,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            shards: Default::default(),
            hasher: RandomState::new(),
            refused: Cap::new(MAX_REFUSED),
            began: Instant::now(),
        }
    }

    pub(super) fn find(&self, key: &FlowId, now: Instant) -> Found {
        match self.shard(key).get(key) {
            Some(Slot::Live(flow)) => Found::Live(Arc::clone(flow)),
            Some(Slot::Held(hold)) => Found::Held(Arc::clone(hold)),
            Some(Slot::Back(back)) => Found::Back(Arc::clone(back)),
            Some(Slot::Refused(until, why, _)) if *until > now => Found::Refused(*why),
            _ => Found::Unknown,
        }
    }

    /// A flow record; it is not in the map yet.
    pub(super) fn flow(
        &self,
        key: FlowId,
        tunnel: Arc<Tunnel>,
        (guard, place): (FlowGuard, Place),
        header: Option<Box<[u8]>>,
        now: Instant,
    ) -> Arc<UdpFlow> {
        Arc::new(UdpFlow {
            key,
            tunnel,
            entry: Arc::clone(&guard.entry),
            header,
            guard: Mutex::new(Some(guard)),
            queued: AtomicUsize::new(0),
            opaque: AtomicBool::new(false),
            place,
            last: AtomicU64::new(self.millis(now)),
            asked: AtomicU32::new(0),
            answered: AtomicU32::new(0),
        })
    }

    /// Stores a flow, unless another receive loop was faster: then that one is returned.
    pub(super) fn insert(&self, flow: &Arc<UdpFlow>) -> Option<Arc<UdpFlow>> {
        let mut shard = self.shard(&flow.key);
        if let Some(Slot::Live(other)) = shard.get(&flow.key) {
            return Some(Arc::clone(other));
        }
        shard.insert(flow.key, Slot::Live(Arc::clone(flow)));
        None
    }

    /// Stores a held flow, unless another receive loop was faster.
    pub(super) fn hold(&self, hold: &Arc<Hold>) {
        let mut shard = self.shard(&hold.id);
        let known = |slot: &Slot| !matches!(slot, Slot::Refused(..));
        if !shard.get(&hold.id).is_some_and(known) {
            shard.insert(hold.id, Slot::Held(Arc::clone(hold)));
        }
    }

    /// Forgets a held flow.
    pub(super) fn unhold(&self, key: &FlowId) {
        let mut shard = self.shard(key);
        if matches!(shard.get(key), Some(Slot::Held(_))) {
            shard.remove(key);
        }
    }

    /// Forgets all held flows and those on their way back.
    pub(super) fn drop_undecided(&self) {
        for shard in &self.shards {
            lock(shard).retain(|_, slot| !matches!(slot, Slot::Held(_) | Slot::Back(_)));
        }
    }

    /// Stores a flow that is on its way back.
    pub(super) fn set_back(&self, key: FlowId, back: &Arc<Back>) {
        self.shard(&key).insert(key, Slot::Back(Arc::clone(back)));
    }

    /// Forgets it, if it is still there.
    pub(super) fn unset_back(&self, key: &FlowId, back: &Arc<Back>) {
        let mut shard = self.shard(key);
        if matches!(shard.get(key), Some(Slot::Back(b)) if Arc::ptr_eq(b, back)) {
            shard.remove(key);
        }
    }

    /// Takes the very flow out; false when it is not there any more.
    pub(super) fn remove(&self, flow: &Arc<UdpFlow>) -> bool {
        let mut shard = self.shard(&flow.key);
        let same = |slot: &Slot| matches!(slot, Slot::Live(f) if Arc::ptr_eq(f, flow));
        if shard.get(&flow.key).is_some_and(same) {
            shard.remove(&flow.key);
            return true;
        }
        false
    }

    /// Remembers a refusal for a moment, if there is room.
    pub(super) fn refuse(&self, key: FlowId, now: Instant, why: Explanation) {
        if let Some(seat) = self.refused.take() {
            let mut shard = self.shard(&key);
            if !matches!(shard.get(&key), Some(Slot::Live(_))) {
                shard.insert(key, Slot::Refused(now + REFUSED, why, seat));
            }
        }
    }

    /// A datagram from the client passed.
    pub(super) fn touch_up(&self, flow: &UdpFlow, now: Instant) {
        self.touch(flow, now);
        flow.asked.fetch_add(1, Relaxed);
    }

    /// A datagram to the client passed.
    pub(super) fn touch_down(&self, flow: &UdpFlow, now: Instant) {
        self.touch(flow, now);
        flow.answered.fetch_add(1, Relaxed);
    }

    fn touch(&self, flow: &UdpFlow, now: Instant) {
        let millis = self.millis(now);
        flow.last.store(millis, Relaxed);
        flow.tunnel.touch(millis);
    }

    /// Forgets old refusals and returns the flows that have been idle too long.
    pub(super) fn expired(&self, now: Instant) -> Vec<Arc<UdpFlow>> {
        let millis = self.millis(now);
        let mut out = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.retain(|_, slot| match slot {
                Slot::Live(flow) => {
                    let quiet = millis.saturating_sub(flow.last.load(Relaxed));
                    if quiet >= flow.idle_limit().as_millis() as u64 {
                        out.push(Arc::clone(flow));
                    }
                    true
                }
                // Their timers look after them.
                Slot::Held(_) | Slot::Back(_) => true,
                Slot::Refused(until, ..) => *until > now,
            });
        }
        out
    }

    /// All live flows.
    pub(super) fn all(&self) -> Vec<Arc<UdpFlow>> {
        let live = |slot: &Slot| match slot {
            Slot::Live(flow) => Some(Arc::clone(flow)),
            Slot::Held(_) | Slot::Back(_) | Slot::Refused(..) => None,
        };
        let of_shard = |s: &Mutex<HashMap<_, _>>| lock(s).values().filter_map(live).collect();
        self.shards.iter().flat_map::<Vec<_>, _>(of_shard).collect()
    }

    fn shard(&self, key: &FlowId) -> MutexGuard<'_, HashMap<FlowId, Slot>> {
        let hash = self.hasher.hash_one(key) as usize;
        lock(&self.shards[hash % SHARDS])
    }

    /// Time of this table.
    pub(super) fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_millis() as u64
    }
}

impl UdpFlow {
    /// Tells the end of the flow, once.
    pub(super) fn close(&self, reason: CloseReason) {
        let guard = lock(&self.guard).take();
        if let Some(guard) = guard {
            guard.close(reason);
        }
    }

    /// What a flow that never joined a tunnel gives back.
    pub(super) fn into_parts(self) -> Option<(FlowGuard, Place)> {
        let guard = lock(&self.guard).take()?;
        Some((guard, self.place))
    }

    fn idle_limit(&self) -> Duration {
        if self.key.target.port() != 53 {
            return IDLE;
        }
        if self.answered.load(Relaxed) >= self.asked.load(Relaxed) {
            IDLE_DNS_ANSWERED
        } else {
            IDLE_DNS
        }
    }
}

/// A lock whose holder cannot have left it half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
