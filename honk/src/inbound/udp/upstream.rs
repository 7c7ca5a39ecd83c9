//! The task of a tunnel: opens the carrier, then brings replies to the client.

use std::{
    cell::RefCell,
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Instant,
};

use honk_policy::{
    dns::Lesson,
    group::{Rival, Rivals},
    id::{Domain, Network},
    node::{Node, Protocol},
};
use honk_wire::Target;

use super::{Service, carrier::Carrier, reply::ReplyKey, service::carries, tunnel::Tunnel};
use crate::{
    dns::Reply,
    flow::{CloseReason, End, Fault, FlowEntry, Why, event},
    outbound::{
        error::{DialError, DialResult},
        race,
    },
    socket::{
        Mark,
        mmsg::{Outgoing, RecvBatch, send},
    },
};

thread_local! {
    /// Receive buffers are big and used only between two awaits, so one per thread is enough
    /// for all tunnels.
    static BATCH: RefCell<RecvBatch> = RefCell::new(RecvBatch::new());
}

/// How a tunnel leaves.
pub(super) struct Out {
    pub(super) leaf: Arc<Node>,
    pub(super) mark: Mark,
    /// Leaves as good as that one, for a flow.
    pub(super) cold: Option<(Rivals, Arc<FlowEntry>)>,
}

/// Runs a tunnel until its flows have left or its carrier is gone.
pub(super) async fn run(service: Arc<Service>, tunnel: Arc<Tunnel>, out: Out) {
    let Out { leaf, mark, cold } = out;
    if tunnel.carrier().is_none() {
        let open = async {
            match cold {
                Some((rivals, flow)) => race(&service, &tunnel, rivals, flow, mark).await,
                None => {
                    let admitted = || tunnel.admitted();
                    let opened = Carrier::socks5(&service.dialer, &leaf, mark, admitted).await;
                    opened.map_err(|error| vec![(Arc::clone(&leaf), error)])
                }
            }
        };
        let opened = tokio::select! {
            opened = open => opened,
            () = tunnel.left.notified() => {
                let waiting = tunnel.abandon(&service.backlog);
                service.counters.drop_closed.add(waiting as u64);
                let counts = &service.dialer.counts;
                counts.failed(Network::Udp, &leaf.protocol, DialResult::Cancelled);
                return;
            }
        };
        match opened {
            Ok(carrier) => {
                let sent = tunnel.open(carrier, &service.backlog);
                service.counters.drop_send.add(sent.dropped as u64);
                if sent.broken {
                    let end = End::CarrierLost(event());
                    return service.end_tunnel(&tunnel, CloseReason::Reset, end);
                }
            }
            Err(failures) => {
                let end = End::Failed(shared(failures.first().map(|(_, error)| error)));
                for (leaf, error) in failures {
                    service.dialer.report(&leaf, &error);
                    service.dialer.feed.not_opened(&leaf, &error);
                }
                return service.end_tunnel(&tunnel, CloseReason::DialFailed, end);
            }
        }
    }
    let Some(carrier) = tunnel.carrier() else {
        return;
    };
    tokio::select! {
        () = bring_replies(&service, &tunnel, carrier) => {}
        () = control_end(carrier) => {}
        () = tunnel.left.notified() => return,
    }
    service.end_tunnel(&tunnel, CloseReason::Reset, End::CarrierLost(event()));
}

/// Whose fault it is that no flow of a tunnel got further.
fn shared(error: Option<&DialError>) -> Fault {
    match error.map_or(Fault::Silent, DialError::fault) {
        Fault::Node | Fault::Unknown => Fault::Carrier(event()),
        fault => fault,
    }
}

/// Opens a carrier through whichever leaf answers first; the flows of the tunnel are told.
async fn race(
    service: &Arc<Service>,
    tunnel: &Tunnel,
    rivals: Rivals,
    flow: Arc<FlowEntry>,
    mark: Mark,
) -> Result<Carrier, Vec<(Arc<Node>, DialError)>> {
    let Rivals { group, leaves } = rivals;
    let able = leaves.into_iter().filter(|l| carries(&l.leaf.protocol));
    let deadline = race::deadline(&service.dialer, Instant::now());
    let client = tunnel.key.client;
    let dial = |rival: &Rival| {
        let (dialer, leaf) = (Arc::clone(&service.dialer), Arc::clone(&rival.leaf));
        async move {
            match leaf.protocol {
                Protocol::Direct => {
                    Carrier::direct(client, mark).map_err(|e| DialError::direct(&e))
                }
                _ => Carrier::socks5(&dialer, &leaf, mark, || ()).await,
            }
        }
    };
    let still = |rival: &Rival| service.admission.eligible(&flow, rival);
    let finish = race::race(able.collect(), deadline, dial, still).await;
    let won = finish.is_ok();
    service
        .admission
        .raced(&group, Network::Udp, Why::Cold, won);
    match finish {
        Ok((rival, carrier)) => {
            tunnel.served_by(rival);
            Ok(carrier)
        }
        Err(failures) => Err(failures.into_iter().map(|(r, e)| (r.leaf, e)).collect()),
    }
}

/// Completes when the server ends the association.
async fn control_end(carrier: &Carrier) {
    let Some(control) = &carrier.control else {
        return std::future::pending().await;
    };
    loop {
        if control.readable().await.is_err() {
            return;
        }
        match control.try_read(&mut [0; 64]) {
            Ok(0) => return,
            // Nothing is expected here; whatever it is, the association goes on.
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// A reply whose socket has to be made first, or whose lesson has to be learned.
struct Late {
    source: SocketAddr,
    payload: Box<[u8]>,
    lesson: Option<Lesson>,
}

/// Brings replies until the carrier breaks.
async fn bring_replies(service: &Service, tunnel: &Tunnel, carrier: &Carrier) {
    while carrier.socket.readable().await.is_ok() {
        let late = BATCH.with_borrow_mut(|batch| {
            super::recv_batch(&carrier.socket, batch)?;
            Ok(deliver(service, tunnel, carrier, batch))
        });
        match late {
            Ok(late) => deliver_late(service, tunnel, late).await,
            Err(e) if io::Error::kind(&e) == io::ErrorKind::WouldBlock => {}
            Err(e) if carrier.fatal(&e) => return,
            Err(_) => service.counters.receive_errors.inc(),
        }
    }
}

/// Delivers a batch; returns what needs a socket that does not exist yet.
fn deliver(service: &Service, tunnel: &Tunnel, carrier: &Carrier, batch: &RecvBatch) -> Vec<Late> {
    let now = Instant::now();
    let client = tunnel.key.client;
    let mut late = Vec::new();
    let mut run: Vec<Outgoing<'_>> = Vec::new();
    let mut current: Option<(ReplyKey, Arc<UdpSocket>)> = None;
    let mut answered = None;
    for datagram in batch.iter().filter(|d| !d.cut) {
        let parsed = carrier.unwrap(datagram.source, datagram.payload);
        let named = parsed.and_then(|(from, payload)| Some((address(tunnel, from)?, payload)));
        let Some((source, payload)) = named.filter(|(s, _)| fits(*s, client)) else {
            service.counters.drop_reply.inc();
            continue;
        };
        let lesson = match service.answered(tunnel, source, payload) {
            Reply::Pass => None,
            Reply::Learn(lesson) => Some(lesson),
            Reply::Drop => {
                service.counters.drop_reply.inc();
                continue;
            }
        };
        account(service, tunnel, source, payload.len(), now);
        answered = Some(source.port());
        let key = service.replies.key(source);
        if current.as_ref().is_none_or(|(k, _)| *k != key) {
            send_run(service, &current, &mut run);
            current = service.replies.find(key, now).map(|socket| (key, socket));
        }
        if current.is_some() && lesson.is_none() {
            run.push(Outgoing {
                to: Some(client),
                from: Some(source.ip()),
                header: &[],
                payload,
            });
        } else {
            late.push(Late {
                source,
                payload: payload.into(),
                lesson,
            });
        }
    }
    send_run(service, &current, &mut run);
    if let (Some(port), Some((server, family))) = (answered, &carrier.server) {
        let domain = if port == 53 {
            Domain::DnsUdp
        } else {
            Domain::DataUdp
        };
        service.dialer.feed.answered(server, *family, domain);
    }
    late
}

/// Sends replies that share a socket. What the system does not take is lost, as on any link.
fn send_run(
    service: &Service,
    current: &Option<(ReplyKey, Arc<UdpSocket>)>,
    run: &mut Vec<Outgoing<'_>>,
) {
    let mut rest = run.as_slice();
    while let (Some((_, socket)), false) = (current, rest.is_empty()) {
        match send(socket, rest, &service.joining) {
            Ok(n) => {
                service.counters.replied.add(n as u64);
                rest = &rest[n.min(rest.len())..];
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                service.counters.drop_send.add(rest.len() as u64);
                break;
            }
            Err(_) => {
                service.counters.drop_send.inc();
                rest = &rest[1..];
            }
        }
    }
    run.clear();
}

async fn deliver_late(service: &Service, tunnel: &Tunnel, late: Vec<Late>) {
    for Late {
        source,
        payload,
        lesson,
    } in late
    {
        if let Some(lesson) = lesson
            && !service.dns.learn(lesson).await
        {
            service.counters.drop_reply.inc();
            continue;
        }
        deliver_own(service, tunnel.key.client, source, &payload).await;
    }
}

/// Sends one datagram to a client as if from `source`.
pub(super) async fn deliver_own(
    service: &Service,
    client: SocketAddr,
    source: SocketAddr,
    payload: &[u8],
) {
    let key = service.replies.key(source);
    match service.replies.make(key, Instant::now()).await {
        Ok(socket) => {
            let mut run = vec![Outgoing {
                to: Some(client),
                from: Some(source.ip()),
                header: &[],
                payload,
            }];
            send_run(service, &Some((key, socket)), &mut run);
        }
        Err(_) => service.counters.drop_reply_socket.inc(),
    }
}

/// The address a reply came from. Only the server knows the address behind a name: whatever
/// comes through the tunnel of such a flow is from its target. A name as the source can only
/// mean a target of this tunnel.
fn address(tunnel: &Tunnel, source: Target<'_>) -> Option<SocketAddr> {
    if let Some(target) = tunnel.key.alone {
        return Some(target);
    }
    match source {
        Target::Ip(addr) => Some(addr),
        Target::Name(name, port) => match name.parse::<IpAddr>() {
            Ok(ip) => Some(SocketAddr::new(ip.to_canonical(), port)),
            Err(_) => tunnel.only_target(port),
        },
    }
}

/// Whether a datagram with this source can be sent to the client at all.
fn fits(source: SocketAddr, client: SocketAddr) -> bool {
    source.is_ipv4() == client.is_ipv4() && !source.ip().is_unspecified() && source.port() != 0
}

fn account(service: &Service, tunnel: &Tunnel, source: SocketAddr, len: usize, now: Instant) {
    if let Some(flow) = tunnel.flow_for(source) {
        service.table.touch_down(&flow, now);
        flow.entry.counters.add_down(len as u64);
        flow.entry.progressed();
    }
}
