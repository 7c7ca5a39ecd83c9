//! Transparent UDP: receive loops, flows, tunnels, replies with foreign source addresses.
//!
//! A receive loop takes batches, finds or admits the flow of each datagram and hands runs of
//! datagrams to their tunnel without ever waiting. Tunnels are tasks that open the way out
//! and bring replies back. Any source that answers reaches the client (full cone).

mod carrier;
mod reply;
mod table;
mod tunnel;
mod upstream;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    panic,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use honk_policy::{
    id::Network,
    node::{Node, Protocol},
};
use tokio::{io::Interest, net::UdpSocket, runtime::Handle, task::JoinSet};

use self::{
    carrier::Carrier,
    reply::ReplyPool,
    table::{FlowId, Found, Table, TunnelKey, UdpFlow, lock},
    tunnel::{Backlog, Tunnel},
};
use super::counters::{Cap, Seat, UdpCounters, UdpSnapshot};
use crate::{
    flow::{Admission, CancelHook, ClientAddr, CloseReason, NewFlow, OrigDst, ReplySockets, Route},
    outbound::{Dialer, error::DialError},
    socket::{
        mmsg::{BATCH, Datagram, RecvBatch, V6, want_original_dst},
        origdst,
    },
};

/// How often idle flows and sockets are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Value of `FlowEntry::carrier`, see `flow::CARRIERS`.
const CARRIER: u8 = 3;

/// Sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Flows at once.
    pub(crate) flows: usize,
    /// Tunnels at once; an association holds two descriptors.
    pub(crate) tunnels: usize,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) counts: UdpSnapshot,
    pub(crate) flows: usize,
    pub(crate) tunnels: usize,
    pub(crate) reply_sockets: usize,
}

/// The UDP side while it runs.
#[derive(Debug)]
pub(crate) struct Udp(Arc<Service>);

struct Service {
    admission: Arc<dyn Admission>,
    dialer: Arc<Dialer>,
    counters: UdpCounters,
    table: Table,
    tunnels: Mutex<HashMap<TunnelKey, Arc<Tunnel>>>,
    flow_cap: Arc<Cap>,
    tunnel_cap: Arc<Cap>,
    backlog: Backlog,
    replies: ReplyPool,
    accepting: AtomicBool,
    runtime: Handle,
    tasks: Mutex<JoinSet<()>>,
}

impl Udp {
    /// Starts one receive loop per socket. Must be called inside a tokio runtime.
    pub(crate) fn start(
        sockets: Vec<std::net::UdpSocket>,
        admission: Arc<dyn Admission>,
        dialer: Arc<Dialer>,
        replies: Arc<dyn ReplySockets>,
        tproxy_port: u16,
        limits: Limits,
    ) -> io::Result<Self> {
        let service = Arc::new(Service {
            admission,
            dialer,
            counters: UdpCounters::default(),
            table: Table::new(),
            tunnels: Mutex::default(),
            flow_cap: Cap::new(limits.flows),
            tunnel_cap: Cap::new(limits.tunnels),
            backlog: Backlog::default(),
            replies: ReplyPool::new(replies, tproxy_port),
            accepting: AtomicBool::new(true),
            runtime: Handle::current(),
            tasks: Mutex::default(),
        });
        let prepare = |socket: std::net::UdpSocket| {
            socket.set_nonblocking(true)?;
            want_original_dst(&socket, V6::of(socket.local_addr()?))?;
            UdpSocket::from_std(socket)
        };
        let sockets: Vec<_> = sockets
            .into_iter()
            .map(prepare)
            .collect::<io::Result<_>>()?;
        for socket in sockets {
            service.spawn(receive(Arc::clone(&service), socket));
        }
        service.spawn(sweep(Arc::clone(&service)));
        Ok(Self(service))
    }

    /// Admits no new flows; those that live go on.
    pub(crate) fn stop_accepting(&self) {
        self.0.accepting.store(false, Relaxed);
    }

    /// Ends all flows and joins all tasks.
    pub(crate) async fn finish(&self) {
        self.stop_accepting();
        let mut tasks = std::mem::take(&mut *lock(&self.0.tasks));
        tasks.shutdown().await;
        for flow in self.0.table.all() {
            self.0.end_flow(&flow, CloseReason::Shutdown);
        }
    }

    pub(crate) fn counters(&self) -> Snapshot {
        Snapshot {
            counts: self.0.counters.snapshot(),
            flows: self.0.flow_cap.used(),
            tunnels: self.0.tunnel_cap.used(),
            reply_sockets: self.0.replies.len(),
        }
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        lock(&self.0.tasks).abort_all();
    }
}

/// Takes batches from one listener socket for ever.
async fn receive(service: Arc<Service>, socket: UdpSocket) {
    let mut batch = RecvBatch::new();
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        match recv_batch(&socket, &mut batch) {
            Ok(()) => {
                // A panic is a bug that costs this batch, not the socket.
                let take = panic::AssertUnwindSafe(|| service.take_batch(&batch));
                if panic::catch_unwind(take).is_err() {
                    tracing::error!("udp_batch_panicked");
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => service.counters.receive_errors.inc(),
        }
    }
}

/// Receives a batch. A batch that is not full has emptied the socket, so its readiness is
/// cleared without another call just to be told.
fn recv_batch(socket: &UdpSocket, batch: &mut RecvBatch) -> io::Result<()> {
    let mut got = Err(io::ErrorKind::WouldBlock.into());
    let _ = socket.try_io(Interest::READABLE, || {
        got = batch.recv(socket).map(|n| n == BATCH);
        match got {
            Ok(true) => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::WouldBlock)),
        }
    });
    got.map(|_| ())
}

async fn sweep(service: Arc<Service>) {
    let mut ticks = tokio::time::interval(SWEEP);
    loop {
        ticks.tick().await;
        service.expire(Instant::now());
    }
}

impl Service {
    fn take_batch(self: &Arc<Self>, batch: &RecvBatch) {
        let named = batch.iter().filter_map(|datagram| {
            let id = flow_id(&datagram);
            if id.is_none() {
                self.counters.drop_malformed.inc();
            }
            id.map(|id| (id, datagram.payload))
        });
        self.carry(named, Instant::now());
    }

    /// Brings datagrams of clients on their way.
    fn carry<'a>(
        self: &Arc<Self>,
        datagrams: impl Iterator<Item = (FlowId, &'a [u8])>,
        now: Instant,
    ) {
        let mut run: Vec<(Arc<UdpFlow>, &[u8])> = Vec::new();
        for (id, payload) in datagrams {
            self.counters.received.inc();
            let Some(flow) = self.flow(id, now) else {
                continue;
            };
            self.table.touch_up(&flow, now);
            flow.entry.counters.add_up(payload.len() as u64);
            if run
                .last()
                .is_some_and(|(last, _)| !Arc::ptr_eq(&last.tunnel, &flow.tunnel))
            {
                self.send_run(&mut run);
            }
            run.push((flow, payload));
        }
        self.send_run(&mut run);
    }

    /// Sends datagrams that share a tunnel.
    fn send_run(self: &Arc<Self>, run: &mut Vec<(Arc<UdpFlow>, &[u8])>) {
        if let Some((flow, _)) = run.first() {
            let tunnel = Arc::clone(&flow.tunnel);
            let sent = tunnel.send(run, &self.backlog, &self.counters);
            self.counters.drop_send.add(sent.dropped as u64);
            if sent.broken {
                self.end_tunnel(&tunnel, CloseReason::Reset);
            }
        }
        run.clear();
    }

    /// The flow of a datagram, admitted when it is new.
    fn flow(self: &Arc<Self>, id: FlowId, now: Instant) -> Option<Arc<UdpFlow>> {
        match self.table.find(&id, now) {
            Found::Live(flow) => {
                self.counters.hits.inc();
                Some(flow)
            }
            Found::Refused => {
                self.counters.drop_policy.inc();
                None
            }
            Found::Unknown => {
                self.counters.misses.inc();
                self.admit(id, now)
            }
        }
    }

    fn admit(self: &Arc<Self>, id: FlowId, now: Instant) -> Option<Arc<UdpFlow>> {
        if !self.accepting.load(Relaxed) {
            self.counters.drop_closed.inc();
            return None;
        }
        let Some(seat) = self.flow_cap.take() else {
            self.counters.drop_capacity.inc();
            return None;
        };
        let new = NewFlow {
            network: Network::Udp,
            client: ClientAddr(id.client),
            target: OrigDst(id.target),
        };
        let route = match self.admission.admit(&new) {
            Ok(route) if carries(&route.leaf.protocol) => route,
            refused => {
                if let Ok(route) = refused {
                    route.guard.close(CloseReason::Refused);
                }
                self.table.refuse(id, now);
                self.counters.drop_policy.inc();
                return None;
            }
        };
        let entry = Arc::clone(&route.guard.entry);
        let flow = self.join(id, route, seat, now)?;
        if let Some(other) = self.table.insert(&flow) {
            self.leave(&flow);
            return Some(other);
        }
        entry.carrier.store(CARRIER, Relaxed);
        let hook = FlowHook {
            service: Arc::downgrade(self),
            flow: Arc::downgrade(&flow),
        };
        entry.cancel.register(Arc::new(hook), 0);
        Some(flow)
    }

    /// A flow inside its tunnel.
    fn join(
        self: &Arc<Self>,
        id: FlowId,
        route: Route,
        seat: Seat,
        now: Instant,
    ) -> Option<Arc<UdpFlow>> {
        let (mut guard, mut seat) = (route.guard, seat);
        // A tunnel may end between finding and joining it; the one after that is new.
        for _ in 0..2 {
            let tunnel = self.tunnel(id.client, &route.leaf, route.mark)?;
            let flow = self.table.flow(id, tunnel, guard, seat, now);
            if flow.tunnel.join(&flow) {
                return Some(flow);
            }
            (guard, seat) = Arc::into_inner(flow)?.into_parts()?;
        }
        self.counters.drop_closed.inc();
        None
    }

    /// The tunnel of a client through a leaf, started when there is none.
    fn tunnel(
        self: &Arc<Self>,
        client: SocketAddr,
        leaf: &Arc<Node>,
        rule_mark: u32,
    ) -> Option<Arc<Tunnel>> {
        let mark = self.dialer.mark(rule_mark);
        let key = TunnelKey {
            client,
            leaf: leaf.id,
            mark: mark.0,
        };
        let mut tunnels = lock(&self.tunnels);
        if let Some(tunnel) = tunnels.get(&key) {
            return Some(Arc::clone(tunnel));
        }
        let Some(seat) = self.tunnel_cap.take() else {
            self.counters.drop_capacity.inc();
            return None;
        };
        let tunnel = Arc::new(Tunnel::new(key, seat));
        if leaf.protocol == Protocol::Direct {
            match Carrier::direct(client, mark) {
                Ok(carrier) => {
                    tunnel.open(carrier, &self.backlog);
                }
                Err(error) => {
                    let error = DialError::direct(&error);
                    self.dialer
                        .counts
                        .failed(Network::Udp, &leaf.protocol, error.result());
                    self.counters.drop_closed.inc();
                    return None;
                }
            }
        }
        tunnels.insert(key, Arc::clone(&tunnel));
        drop(tunnels);
        let task = upstream::run(
            Arc::clone(self),
            Arc::clone(&tunnel),
            Arc::clone(leaf),
            mark,
        );
        self.spawn(task);
        Some(tunnel)
    }

    /// Ends one flow; the last one takes its tunnel along.
    fn end_flow(&self, flow: &Arc<UdpFlow>, reason: CloseReason) {
        if self.table.remove(flow) {
            self.leave(flow);
            flow.close(reason);
        }
    }

    fn leave(&self, flow: &Arc<UdpFlow>) {
        if flow.tunnel.leave(flow) {
            self.forget(&flow.tunnel);
        }
    }

    /// Ends a tunnel and its flows.
    fn end_tunnel(&self, tunnel: &Arc<Tunnel>, reason: CloseReason) {
        let flows = tunnel.close();
        self.forget(tunnel);
        let waiting = tunnel.abandon(&self.backlog);
        self.counters.drop_closed.add(waiting as u64);
        let now = Instant::now();
        for flow in flows {
            if self.table.remove(&flow) {
                flow.close(reason);
                if reason == CloseReason::DialFailed {
                    // A node that is down must not be dialed for every datagram.
                    self.table.refuse(flow.key, now);
                }
            }
        }
    }

    fn forget(&self, tunnel: &Arc<Tunnel>) {
        let mut tunnels = lock(&self.tunnels);
        if tunnels
            .get(&tunnel.key)
            .is_some_and(|t| Arc::ptr_eq(t, tunnel))
        {
            tunnels.remove(&tunnel.key);
        }
    }

    fn expire(&self, now: Instant) {
        for flow in self.table.expired(now) {
            self.end_flow(&flow, CloseReason::Timeout);
        }
        self.replies.sweep(now);
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &self.runtime);
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("flows", &self.flow_cap)
            .field("tunnels", &self.tunnel_cap)
            .finish_non_exhaustive()
    }
}

/// Ends a flow on request of the API or a reload.
struct FlowHook {
    service: Weak<Service>,
    flow: Weak<UdpFlow>,
}

impl CancelHook for FlowHook {
    fn cancelled(&self, _token: u64, reason: CloseReason) {
        if let (Some(service), Some(flow)) = (self.service.upgrade(), self.flow.upgrade()) {
            service.end_flow(&flow, reason);
        }
    }
}

fn carries(protocol: &Protocol) -> bool {
    match protocol {
        Protocol::Direct | Protocol::Socks5(_) => true,
        Protocol::Block | Protocol::Http(_) => false,
    }
}

/// Who sent a datagram to whom, when both are beyond doubt.
fn flow_id(datagram: &Datagram<'_>) -> Option<FlowId> {
    let client = datagram.source.filter(|client| client.port() != 0)?;
    let target = origdst::parse(datagram.control, datagram.control_cut).ok()?;
    (!datagram.cut).then_some(FlowId { client, target })
}

#[cfg(test)]
mod tests;
