//! A tunnel: what the flows of one client through one leaf share, from the first queued
//! datagram to the last reply.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use honk_policy::group::Rival;
use tokio::sync::Notify;

use super::{
    carrier::{Carrier, Sent},
    table::{TunnelKey, UdpFlow, lock},
};
use crate::inbound::counters::UdpCounters;

/// Datagrams of one flow that wait for their tunnel.
const FLOW_QUEUE: usize = 64;
/// Bytes that wait for tunnels, all together.
const GLOBAL_QUEUE: usize = 8 << 20;

/// Bytes waiting in all tunnels and held flows.
#[derive(Debug, Default)]
pub(super) struct Backlog(AtomicUsize);

impl Backlog {
    pub(super) fn take(&self, bytes: usize) -> bool {
        let grant = |n: usize| (n + bytes <= GLOBAL_QUEUE).then_some(n + bytes);
        self.0.fetch_update(Relaxed, Relaxed, grant).is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Relaxed);
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// A tunnel.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) key: TunnelKey,
    carrier: OnceLock<Carrier>,
    /// The leaf that was first, where several were tried.
    winner: OnceLock<Rival>,
    state: Mutex<State>,
    /// Wakes the task of the tunnel when the last flow has left.
    pub(super) left: Notify,
    /// Last use, in milliseconds of the flow table.
    used: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Datagrams that came before the carrier was open.
    queue: VecDeque<(Arc<UdpFlow>, Box<[u8]>)>,
    flows: HashMap<SocketAddr, Arc<UdpFlow>>,
    /// The flow that sent last, for replies of strangers.
    latest: Option<Arc<UdpFlow>>,
    /// No flow may join any more.
    closed: bool,
    /// The way out is being opened.
    admitted: bool,
}

impl Tunnel {
    pub(super) fn new(key: TunnelKey, now: u64) -> Self {
        Self {
            key,
            carrier: OnceLock::new(),
            winner: OnceLock::new(),
            state: Mutex::default(),
            left: Notify::new(),
            used: AtomicU64::new(now),
        }
    }

    pub(super) fn carrier(&self) -> Option<&Carrier> {
        self.carrier.get()
    }

    /// A datagram passed, either way.
    pub(super) fn touch(&self, now: u64) {
        self.used.store(now, Relaxed);
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Takes a flow in; false when the tunnel is ending.
    pub(super) fn join(&self, flow: &Arc<UdpFlow>) -> bool {
        let mut state = lock(&self.state);
        if state.closed {
            return false;
        }
        state.flows.insert(flow.key.target, Arc::clone(flow));
        state.latest = Some(Arc::clone(flow));
        if self.carrier.get().is_some() {
            flow.entry.reached();
        } else if state.admitted {
            flow.entry.started();
        }
        if let Some(winner) = self.winner.get() {
            flow.entry.served_by(winner);
        }
        true
    }

    /// The way out is being opened.
    pub(super) fn admitted(&self) {
        let mut state = lock(&self.state);
        state.admitted = true;
        state.flows.values().for_each(|flow| flow.entry.started());
    }

    /// Another leaf than the selected one carries the tunnel.
    pub(super) fn served_by(&self, winner: Rival) {
        let state = lock(&self.state);
        for flow in state.flows.values() {
            flow.entry.served_by(&winner);
        }
        // Set under the lock: whoever joins later finds it. There is one race per tunnel.
        let _ = self.winner.set(winner);
    }

    /// A flow leaves; true when it was the last and the tunnel ends.
    pub(super) fn leave(&self, flow: &Arc<UdpFlow>) -> bool {
        let mut state = lock(&self.state);
        let same = |f: &Arc<UdpFlow>| Arc::ptr_eq(f, flow);
        if state.flows.get(&flow.key.target).is_some_and(same) {
            state.flows.remove(&flow.key.target);
        }
        if state.latest.as_ref().is_some_and(same) {
            state.latest = state.flows.values().next().cloned();
        }
        if !state.flows.is_empty() || state.closed {
            return false;
        }
        state.closed = true;
        self.left.notify_one();
        true
    }

    /// Lets no flow join any more and returns those inside.
    pub(super) fn close(&self) -> Vec<Arc<UdpFlow>> {
        let mut state = lock(&self.state);
        state.closed = true;
        state.latest = None;
        self.left.notify_one();
        state.flows.drain().map(|(_, flow)| flow).collect()
    }

    /// The flow to a target.
    pub(super) fn flow_to(&self, target: SocketAddr) -> Option<Arc<UdpFlow>> {
        lock(&self.state).flows.get(&target).cloned()
    }

    /// The flow a reply from `source` belongs to, else the one that sent last.
    pub(super) fn flow_for(&self, source: SocketAddr) -> Option<Arc<UdpFlow>> {
        let state = lock(&self.state);
        state.flows.get(&source).or(state.latest.as_ref()).cloned()
    }

    /// The only target with this port: what a reply from a name must mean, since a flow that is
    /// dialed by name has its tunnel for itself.
    pub(super) fn only_target(&self, port: u16) -> Option<SocketAddr> {
        let state = lock(&self.state);
        let mut with_port = state.flows.keys().filter(|target| target.port() == port);
        let first = with_port.next().copied()?;
        with_port.next().is_none().then_some(first)
    }

    /// Sends now or queues until the carrier is open.
    pub(super) fn send(
        &self,
        datagrams: &[(Arc<UdpFlow>, &[u8])],
        backlog: &Backlog,
        counters: &UdpCounters,
    ) -> Sent {
        let plain = || datagrams.iter().map(|(flow, payload)| (&**flow, *payload));
        if let Some(carrier) = self.carrier.get() {
            return carrier.send(plain());
        }
        let mut state = lock(&self.state);
        // It may have opened, and drained the queue, while we waited for the lock.
        if let Some(carrier) = self.carrier.get() {
            return carrier.send(plain());
        }
        for (flow, payload) in datagrams {
            if state.closed {
                counters.drop_closed.inc();
            } else if flow.queued.load(Relaxed) >= FLOW_QUEUE {
                counters.drop_flow_queue.inc();
            } else if !backlog.take(payload.len()) {
                counters.drop_global_queue.inc();
            } else {
                flow.queued.fetch_add(1, Relaxed);
                state.queue.push_back((Arc::clone(flow), (*payload).into()));
            }
        }
        Sent::default()
    }

    /// The carrier is open: sends what waited, in order, then lets senders pass.
    pub(super) fn open(&self, carrier: Carrier, backlog: &Backlog) -> Sent {
        let mut state = lock(&self.state);
        state.flows.values().for_each(|flow| flow.entry.reached());
        let queue = std::mem::take(&mut state.queue);
        let sent = carrier.send(queue.iter().map(|(flow, payload)| (&**flow, &**payload)));
        for (flow, payload) in &queue {
            flow.queued.fetch_sub(1, Relaxed);
            backlog.give_back(payload.len());
        }
        // Set under the lock: whoever finds no carrier while holding it may queue.
        let _ = self.carrier.set(carrier);
        sent
    }

    /// Drops what still waits and returns its number.
    pub(super) fn abandon(&self, backlog: &Backlog) -> usize {
        let queue = std::mem::take(&mut lock(&self.state).queue);
        for (_, payload) in &queue {
            backlog.give_back(payload.len());
        }
        queue.len()
    }
}
