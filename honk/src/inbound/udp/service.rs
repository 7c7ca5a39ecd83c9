//! The life of UDP flows: found or admitted, joined to a tunnel, ended.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use honk_policy::{
    group::Rivals,
    id::Network,
    node::{Node, Protocol},
};
use honk_wire::{dns::Explanation, socks5::udp::named_header};
use tokio::{runtime::Handle, task::JoinSet};

use super::{
    CARRIER,
    carrier::Carrier,
    reply::ReplyPool,
    shares::{Full, Place, Shares},
    table::{FlowId, Found, Table, TunnelKey, UdpFlow, lock},
    tunnel::{Backlog, Tunnel},
    tunnels::{Shortage, Tunnels, client},
    upstream,
};
use crate::{
    dns::{self, Dns},
    flow::{
        Admission, Answer, CancelHook, ClientAddr, CloseReason, End, FlowEntry, NewFlow, OrigDst,
        Refusal, Route, event,
    },
    inbound::counters::{Cap, UdpCounters},
    outbound::{Dialer, error::DialError},
    socket::{
        Mark,
        mmsg::{Datagram, Joining, RecvBatch},
        origdst,
    },
};

/// What receive loops and tunnels share.
pub(super) struct Service {
    pub(super) admission: Arc<dyn Admission>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) dns: Arc<Dns>,
    pub(super) counters: UdpCounters,
    pub(super) table: Table,
    pub(super) tunnels: Mutex<Tunnels>,
    pub(super) shares: Arc<Shares>,
    /// Flows whose first datagrams are held.
    pub(super) holds: Arc<Cap>,
    /// Flows on their way back to the kernel.
    pub(super) backs: Arc<Cap>,
    /// How long each of them is remembered afterwards.
    pub(super) linger: Duration,
    pub(super) backlog: Backlog,
    pub(super) replies: ReplyPool,
    /// Of the sockets of the pool, which leave by the same device.
    pub(super) joining: Joining,
    pub(super) accepting: AtomicBool,
    pub(super) runtime: Handle,
    pub(super) tasks: Mutex<JoinSet<()>>,
}

impl Service {
    pub(super) fn take_batch(self: &Arc<Self>, batch: &RecvBatch) {
        self.counters.joined.add(batch.joined() as u64);
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
    pub(super) fn carry<'a>(
        self: &Arc<Self>,
        datagrams: impl Iterator<Item = (FlowId, &'a [u8])>,
        now: Instant,
    ) {
        let mut run: Vec<(Arc<UdpFlow>, &[u8])> = Vec::new();
        for (id, payload) in datagrams {
            self.counters.received.inc();
            let flow = match self.flow(id, payload, now) {
                Ok(Some(flow)) => flow,
                Ok(None) => continue,
                Err(why) => {
                    self.turn_down(&id, payload, why);
                    continue;
                }
            };
            self.table.touch_up(&flow, now);
            if !self.ask(&flow, payload, now) {
                continue;
            }
            flow.entry.counters.add_up(payload.len() as u64);
            flow.entry.progressed();
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
    pub(super) fn send_run(self: &Arc<Self>, run: &mut Vec<(Arc<UdpFlow>, &[u8])>) {
        if let Some((flow, _)) = run.first() {
            let tunnel = Arc::clone(&flow.tunnel);
            let sent = tunnel.send(run, &self.backlog, &self.counters);
            self.counters.drop_send.add(sent.dropped as u64);
            if sent.broken {
                self.end_tunnel(&tunnel, CloseReason::Reset, End::CarrierLost(event()));
            }
        }
        run.clear();
    }

    /// The flow of a datagram, admitted when it is new; none while the datagram is held.
    fn flow(
        self: &Arc<Self>,
        id: FlowId,
        payload: &[u8],
        now: Instant,
    ) -> Result<Option<Arc<UdpFlow>>, Explanation> {
        match self.table.find(&id, now) {
            Found::Live(flow) => {
                self.counters.hits.inc();
                Ok(Some(flow))
            }
            Found::Held(hold) => {
                self.counters.hits.inc();
                Ok(self.held(&hold, payload, now))
            }
            Found::Back(back) => {
                self.counters.hits.inc();
                Ok(self.sent_back(&id, &back, payload, now))
            }
            Found::Refused(why) => {
                self.counters.drop_policy.inc();
                Err(why)
            }
            Found::Unknown => {
                self.counters.misses.inc();
                self.admit(id, payload, now)
            }
        }
    }

    fn admit(
        self: &Arc<Self>,
        id: FlowId,
        payload: &[u8],
        now: Instant,
    ) -> Result<Option<Arc<UdpFlow>>, Explanation> {
        if !self.accepting.load(Relaxed) {
            self.counters.drop_closed.inc();
            return Err(Explanation::NetworkError);
        }
        let place = match self.shares.take(id.client.ip()) {
            Ok(place) => place,
            Err(Full::Table) => {
                self.counters.drop_capacity.inc();
                return Err(Explanation::NetworkError);
            }
            Err(Full::Share) => {
                self.counters.drop_client_share.inc();
                return Err(Explanation::NetworkError);
            }
        };
        let new = NewFlow {
            network: Network::Udp,
            client: ClientAddr(id.client),
            target: OrigDst(id.target),
        };
        match self.admission.ask(&new) {
            Ok(Answer::Go(route)) if route.back.is_some() => {
                self.begin_back(id, route, place, vec![payload.into()], now);
                Ok(None)
            }
            Ok(Answer::Go(route)) => self.enlist(id, Ok(route), place, now).map(Some),
            Ok(Answer::Sniff(flow)) => Ok(self.sniff(id, flow, place, payload, now)),
            Err(refusal) => self.enlist(id, Err(refusal), place, now).map(Some),
        }
    }

    /// Takes a decided flow into a tunnel and the table.
    pub(super) fn enlist(
        self: &Arc<Self>,
        id: FlowId,
        route: Result<Route, Refusal>,
        place: Place,
        now: Instant,
    ) -> Result<Arc<UdpFlow>, Explanation> {
        let route = match route {
            Ok(route) if carries(&route.leaf.protocol) => route,
            refused => {
                if let Ok(route) = refused {
                    route.guard.close(CloseReason::Refused);
                }
                self.table.refuse(id, now, Explanation::Blocked);
                self.counters.drop_policy.inc();
                return Err(Explanation::Blocked);
            }
        };
        let entry = Arc::clone(&route.guard.entry);
        let flow = self.join(id, route, place, now);
        let flow = flow.ok_or(Explanation::NetworkError)?;
        if let Some(other) = self.table.insert(&flow) {
            self.leave(&flow);
            return Ok(other);
        }
        entry.carrier.store(CARRIER, Relaxed);
        let hook = FlowHook {
            service: Arc::downgrade(self),
            flow: Arc::downgrade(&flow),
        };
        entry.cancel.register(Arc::new(hook), 0);
        Ok(flow)
    }

    /// A flow inside its tunnel.
    fn join(
        self: &Arc<Self>,
        id: FlowId,
        route: Route,
        place: Place,
        now: Instant,
    ) -> Option<Arc<UdpFlow>> {
        let way = Way {
            cold: route
                .cold
                .map(|rivals| (rivals, Arc::clone(&route.guard.entry))),
            leaf: route.leaf,
            mark: route.mark,
        };
        let (mut guard, mut place) = (route.guard, place);
        // Behind a name is an address that only the server knows: its replies can be told from
        // those of other flows only where there are none.
        let alone = route.name.is_some().then_some(id.target);
        let header = route.name.as_deref();
        let header = header.and_then(|name| named_header(name, id.target.port()));
        // A tunnel may end between finding and joining it; the one after that is new.
        for _ in 0..2 {
            let tunnel = self.tunnel(id.client, &way, alone, now)?;
            let parts = (guard, place);
            let flow = self.table.flow(id, tunnel, parts, header.clone(), now);
            if flow.tunnel.join(&flow) {
                return Some(flow);
            }
            (guard, place) = Arc::into_inner(flow)?.into_parts()?;
        }
        self.counters.drop_closed.inc();
        None
    }

    /// The tunnel of a client through a leaf, started when there is none.
    fn tunnel(
        self: &Arc<Self>,
        from: SocketAddr,
        way: &Way,
        alone: Option<SocketAddr>,
        now: Instant,
    ) -> Option<Arc<Tunnel>> {
        let (leaf, mark) = (&way.leaf, self.dialer.mark(way.mark));
        let cold = way.cold.as_ref();
        let key = TunnelKey {
            client: from,
            leaf: leaf.id,
            mark: mark.0,
            alone,
            cold: cold.and_then(|(_, entry)| entry.selected.groups.first().copied()),
        };
        let now = self.table.millis(now);
        let mut tunnels = lock(&self.tunnels);
        if let Some(tunnel) = tunnels.find(&key) {
            return Some(Arc::clone(tunnel));
        }
        let shortage = tunnels.make_room(client(&key), now);
        let refused = shortage.as_ref().is_some_and(|s| s.victim.is_none());
        let tunnel = (!refused)
            .then(|| self.open(key, leaf, mark, now))
            .flatten();
        if let Some(tunnel) = &tunnel {
            tunnels.insert(tunnel);
        }
        drop(tunnels);
        if let Some(shortage) = shortage {
            self.answer(shortage, from);
        }
        let tunnel = tunnel?;
        let out = upstream::Out {
            leaf: Arc::clone(leaf),
            mark,
            cold: way.cold.clone(),
        };
        let task = upstream::run(Arc::clone(self), Arc::clone(&tunnel), out);
        self.spawn(task);
        Some(tunnel)
    }

    /// A tunnel whose carrier is open when that needs no set-up.
    fn open(&self, key: TunnelKey, leaf: &Arc<Node>, mark: Mark, now: u64) -> Option<Arc<Tunnel>> {
        let tunnel = Arc::new(Tunnel::new(key, now));
        if leaf.protocol == Protocol::Direct && key.cold.is_none() {
            match Carrier::direct(key.client, mark) {
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
        Some(tunnel)
    }

    /// Does what a shortage of tunnels asks for, and tells it now and then.
    fn answer(&self, shortage: Shortage, from: SocketAddr) {
        let evicts = shortage.victim.is_some();
        tracing::debug!(client = %from, evicts, "udp_tunnel_shortage");
        if shortage.tell {
            tracing::warn!(
                client_tunnels = shortage.client,
                client_limit = shortage.share,
                tunnels = shortage.total,
                limit = shortage.limit,
                "udp_tunnels_exhausted: quiet tunnels are closed for new ones, else refused"
            );
        }
        match shortage.victim {
            Some(victim) => {
                self.counters.tunnels_evicted.inc();
                self.end_tunnel(&victim, CloseReason::Timeout, End::Retired);
            }
            None => {
                self.counters.tunnels_refused.inc();
                self.counters.drop_capacity.inc();
            }
        }
    }

    /// Ends one flow; the last one takes its tunnel along.
    pub(super) fn end_flow(&self, flow: &Arc<UdpFlow>, reason: CloseReason) {
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
    pub(super) fn end_tunnel(&self, tunnel: &Arc<Tunnel>, reason: CloseReason, end: End) {
        let flows = tunnel.close();
        flows.iter().for_each(|flow| flow.entry.ended(end));
        self.forget(tunnel);
        let waiting = tunnel.abandon(&self.backlog);
        self.counters.drop_closed.add(waiting as u64);
        let now = Instant::now();
        for flow in flows {
            if self.table.remove(&flow) {
                if dns::concerns(&flow.entry) {
                    self.dns.broken(flow.key.client, flow.key.target);
                }
                flow.close(reason);
                if reason == CloseReason::DialFailed {
                    // A node that is down must not be dialed for every datagram.
                    self.table.refuse(flow.key, now, Explanation::NetworkError);
                }
            }
        }
    }

    fn forget(&self, tunnel: &Arc<Tunnel>) {
        lock(&self.tunnels).remove(tunnel);
    }

    pub(super) fn expire(&self, now: Instant) {
        for flow in self.table.expired(now) {
            self.end_flow(&flow, CloseReason::Timeout);
        }
        self.replies.sweep(now);
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &self.runtime);
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("flows", &self.shares.used())
            .field("tunnels", &lock(&self.tunnels).len())
            .finish_non_exhaustive()
    }
}

/// How flows of a tunnel leave.
struct Way {
    leaf: Arc<Node>,
    mark: u32,
    /// Leaves as good as that one, for a flow.
    cold: Option<(Rivals, Arc<FlowEntry>)>,
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

pub(super) fn carries(protocol: &Protocol) -> bool {
    match protocol {
        Protocol::Direct | Protocol::Socks5(_) => true,
        Protocol::Block | Protocol::Http(_) | Protocol::Proxy(_) => false,
    }
}

/// Who sent a datagram to whom, when both are beyond doubt.
fn flow_id(datagram: &Datagram<'_>) -> Option<FlowId> {
    let client = datagram.source.filter(|client| client.port() != 0)?;
    let target = origdst::parse(datagram.control, datagram.control_cut).ok()?;
    (!datagram.cut).then_some(FlowId { client, target })
}
