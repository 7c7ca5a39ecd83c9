use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use honk_wire::socks5::udp::{Header, parse};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UdpSocket},
    sync::mpsc,
    time::timeout,
};

use super::{table::FlowId, *};
use crate::{flow::Refusal, inbound::testkit::*};

mod back;
mod cold;
mod sniffing;

/// Makes sockets that are bound like transparent ones, as far as loopback allows: a free port
/// stands for the asked one, which somebody else on this machine may have.
#[derive(Default)]
struct Loopback {
    /// The port asked for and the one in its place.
    made: Mutex<Vec<(u16, u16)>>,
    refuse: AtomicBool,
}

impl ReplySockets for Loopback {
    fn bind(&self, v6: bool, port: u16, _addr: Option<IpAddr>) -> io::Result<std::net::UdpSocket> {
        if self.refuse.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let any = if v6 { "::" } else { "0.0.0.0" };
        let socket = std::net::UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        let got = socket.local_addr()?.port();
        self.made.lock().unwrap().push((port, got));
        Ok(socket)
    }
}

/// A service without listeners: datagrams are put in by hand, so that the target is free.
struct Bed {
    world: Arc<World>,
    udp: Udp,
    sockets: Arc<Loopback>,
    client: UdpSocket,
}

const LIMITS: Limits = Limits {
    flows: 100,
    tunnels: 100,
    replies: 16,
    backs: 16,
    linger: Duration::from_millis(10),
};

async fn bed(world: Arc<World>) -> Bed {
    bed_with(world, LIMITS).await
}

async fn bed_with(world: Arc<World>, limits: Limits) -> Bed {
    let sockets = Arc::new(Loopback::default());
    let admission = Arc::new(Gate(Arc::clone(&world)));
    let maker: Arc<dyn ReplySockets> = sockets.clone();
    let udp = Udp::start(
        Vec::new(),
        admission,
        dialer(),
        idle_dns(),
        maker,
        1,
        limits,
    )
    .unwrap();
    Bed {
        world,
        udp,
        sockets,
        client: UdpSocket::bind("127.0.0.1:0").await.unwrap(),
    }
}

impl Bed {
    fn send(&self, target: SocketAddr, payload: &[u8]) {
        self.send_at(target, payload, Instant::now());
    }

    /// Sends at a time of the test's choice: what is remembered for a second must not depend
    /// on how busy the machine is.
    fn send_at(&self, target: SocketAddr, payload: &[u8], now: Instant) {
        let client = self.client.local_addr().unwrap();
        self.send_from(client, target, payload, now);
    }

    fn send_from(&self, client: SocketAddr, target: SocketAddr, payload: &[u8], now: Instant) {
        let id = FlowId { client, target };
        self.udp.0.carry([(id, payload)].into_iter(), now);
    }

    /// A reply with the address its sender would have if the asked port had been free.
    async fn recv(&self) -> (Vec<u8>, SocketAddr) {
        let mut buffer = vec![0; 65_536];
        let got = timeout(PATIENCE, self.client.recv_from(&mut buffer)).await;
        let (n, mut from) = got.expect("a reply in time").unwrap();
        buffer.truncate(n);
        let made = self.sockets.made.lock().unwrap();
        let (asked, _) = made.iter().find(|(_, got)| *got == from.port()).unwrap();
        from.set_port(*asked);
        (buffer, from)
    }

    fn counts(&self) -> UdpSnapshot {
        self.udp.counters().counts
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        soon(what, async || condition(self)).await;
    }
}

/// An echo at an address whose port no other socket of the test needs on 0.0.0.0.
async fn echo(ip: &str) -> SocketAddr {
    let socket = UdpSocket::bind((ip, 0)).await.unwrap();
    let addr = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..n], from).await;
        }
    });
    addr
}

/// A SOCKS5 server with a relay the test plays by hand.
struct Relay {
    addr: SocketAddr,
    udp: Arc<UdpSocket>,
    associations: Arc<AtomicUsize>,
    /// Ends the newest association.
    hang_up: mpsc::Sender<()>,
}

async fn relay(reply: &'static [u8]) -> Relay {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let udp = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let associations = Arc::new(AtomicUsize::new(0));
    let (hang_up, mut hung_up) = mpsc::channel(1);
    let (count, port) = (Arc::clone(&associations), udp.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 64];
            let n = stream.read(&mut buffer).await.unwrap();
            assert_eq!(buffer[..n], [5, 1, 0]);
            stream.write_all(&[5, 0]).await.unwrap();
            let n = stream.read(&mut buffer).await.unwrap();
            assert_eq!(buffer[..n], [5, 3, 0, 1, 0, 0, 0, 0, 0, 0]);
            let mut answer = reply.to_vec();
            answer.extend_from_slice(&port.to_be_bytes());
            stream.write_all(&answer).await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let _ = hung_up.recv().await;
        }
    });
    Relay {
        addr,
        udp,
        associations,
        hang_up,
    }
}

/// Reply with an unspecified relay address: the server's own is meant.
const UNSPECIFIED: &[u8] = &[5, 0, 0, 1, 0, 0, 0, 0];

impl Relay {
    async fn recv(&self) -> (SocketAddr, Vec<u8>, SocketAddr) {
        let mut buffer = vec![0; 65_536];
        let got = timeout(PATIENCE, self.udp.recv_from(&mut buffer)).await;
        let (n, from) = got.expect("a datagram in time").unwrap();
        let (target, payload) = parse(&buffer[..n]).unwrap();
        let honk_wire::Target::Ip(target) = target else {
            panic!("targets are sent as addresses");
        };
        (target, payload.to_vec(), from)
    }

    async fn send(&self, source: SocketAddr, payload: &[u8], to: SocketAddr) {
        let datagram = [Header::new(source).as_bytes(), payload].concat();
        self.udp.send_to(&datagram, to).await.unwrap();
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn direct_flows_reach_the_target_and_back() {
    let bed = bed(World::through(direct())).await;
    // The reply socket is bound to the port of the echo on all addresses, so the echo stands
    // in for one that is elsewhere: it is bound to one address and closed by the reply key.
    let target = echo("127.0.0.9").await;
    bed.sockets.refuse.store(true, Ordering::SeqCst);
    bed.send(target, b"hello");
    bed.until("the reply", |b| b.counts().drop_reply_socket == 1)
        .await;
    let entry = bed.world.live().remove(0);
    assert_eq!(entry.counters.up.load(Ordering::SeqCst), 5);
    assert_eq!(entry.counters.down.load(Ordering::SeqCst), 5);
    assert_eq!(entry.carrier.load(Ordering::SeqCst), CARRIER);
    assert_eq!(bed.udp.counters().tunnels, 1);
}

#[tokio::test]
async fn a_relay_carries_all_targets_of_a_client_and_answers_of_strangers() {
    let relay = relay(UNSPECIFIED).await;
    let bed = bed(World::through(socks5(relay.addr, None))).await;
    let (a, b) = (addr("192.0.2.1:4001"), addr("192.0.2.2:4002"));
    bed.send(a, b"to a");
    let (target, payload, from) = relay.recv().await;
    assert_eq!((target, payload), (a, b"to a".to_vec()));
    bed.send(b, b"");
    let (target, payload, again) = relay.recv().await;
    assert_eq!(
        (target, payload.len(), again),
        (b, 0, from),
        "one socket for all"
    );
    assert_eq!(relay.associations.load(Ordering::SeqCst), 1);
    // Answers come with the address they came from, also one that was never asked.
    for source in ["127.0.0.1:4101", "127.0.0.2:4101", "127.0.0.3:4102"].map(addr) {
        relay
            .send(source, source.to_string().as_bytes(), from)
            .await;
        let (payload, seen) = bed.recv().await;
        assert_eq!((payload, seen), (source.to_string().into_bytes(), source));
    }
    let made = bed.sockets.made.lock().unwrap().len();
    assert_eq!(made, 2, "one socket per port");
    let big = vec![9; 60_000];
    bed.send(a, &big);
    let (_, payload, from) = relay.recv().await;
    assert_eq!(payload, big);
    relay.send(addr("127.0.0.1:4101"), &big, from).await;
    assert_eq!(bed.recv().await.0, big);
    assert_eq!((bed.counts().hits, bed.counts().misses), (1, 2));
}

#[tokio::test]
async fn bad_replies_are_dropped_and_counted() {
    let relay = relay(UNSPECIFIED).await;
    let bed = bed(World::through(socks5(relay.addr, None))).await;
    let target = addr("192.0.2.1:4201");
    bed.send(target, b"x");
    let (_, _, from) = relay.recv().await;
    let mut fragment = Header::new(addr("127.0.0.1:4201")).as_bytes().to_vec();
    fragment[2] = 1;
    relay.udp.send_to(&fragment, from).await.unwrap();
    relay.udp.send_to(b"\0\0", from).await.unwrap();
    relay.send(addr("[2001:db8::1]:4201"), b"x", from).await;
    relay.send(addr("0.0.0.0:4201"), b"x", from).await;
    relay
        .udp
        .send_to(b"\0\0\0\x03\x04name\0\x01x", from)
        .await
        .unwrap();
    bed.until("five drops", |b| b.counts().drop_reply == 5)
        .await;
    // From somebody who is not the relay: the kernel keeps it out.
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    stranger.send_to(b"forged", from).await.unwrap();
    // A name can only be the one target with that port; 192.0.2.1 is not ours to send from,
    // so the attempt shows up as a failed send.
    let mut named = b"\0\0\0\x03\x04name".to_vec();
    named.extend_from_slice(&target.port().to_be_bytes());
    relay.udp.send_to(&named, from).await.unwrap();
    bed.until("the named reply", |b| b.counts().drop_send == 1)
        .await;
    assert_eq!(bed.counts().drop_reply, 5);
}

#[tokio::test]
async fn datagrams_wait_for_the_association_within_limits() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = socks5(listener.local_addr().unwrap(), None);
    let bed = bed(World::through(node)).await;
    for n in 0..70u8 {
        bed.send(addr("192.0.2.1:5000"), &[n]);
    }
    assert_eq!(bed.counts().drop_flow_queue, 6, "64 wait");
    let big = vec![0; 60_000];
    let mut sent = 0;
    while bed.counts().drop_global_queue == 0 {
        bed.send(addr(&format!("192.0.2.1:{}", 6000 + sent % 8)), &big);
        sent += 1;
        assert!(sent < 512, "the global limit is never reached");
    }
    assert!(sent > 100, "8 MiB hold more than 100 big datagrams");
    // The server appears and refuses: all is dropped and the node rests.
    let now = Instant::now();
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(&[5, 0xff]).await.unwrap();
    bed.until("the flows end", |b| b.world.live().is_empty())
        .await;
    let (_, reason) = bed.world.wait_closed(1).remove(0);
    assert_eq!(reason, CloseReason::DialFailed);
    assert!(bed.counts().drop_closed > 64);
    let asked = bed.world.admitted();
    bed.send_at(addr("192.0.2.1:5000"), b"again", now);
    assert_eq!(
        bed.world.admitted(),
        asked,
        "a failed flow is remembered for a moment"
    );
    assert_eq!(bed.counts().drop_policy, 1);
    assert_eq!(bed.udp.0.backlog.bytes(), 0, "nothing waits any more");
}

#[tokio::test]
async fn the_queue_keeps_its_order_when_the_relay_opens() {
    let relay = relay(UNSPECIFIED).await;
    let bed = bed(World::through(socks5(relay.addr, None))).await;
    for n in 0..40u8 {
        bed.send(addr("192.0.2.1:5000"), &[n]);
    }
    for n in 0..40u8 {
        assert_eq!(relay.recv().await.1, [n]);
    }
}

#[tokio::test]
async fn refusals_are_remembered_and_caps_are_counted() {
    let bed = bed_with(
        World::refusing(Refusal::Blocked),
        Limits {
            flows: 8,
            tunnels: 1,
            replies: 16,
            backs: 16,
            linger: Duration::from_millis(10),
        },
    )
    .await;
    let target = addr("192.0.2.1:5000");
    let now = Instant::now();
    for _ in 0..10 {
        bed.send_at(target, b"x", now);
    }
    assert_eq!((bed.world.admitted(), bed.counts().drop_policy), (1, 10));
    bed.world.set(Ok(http(target, None)));
    bed.send(addr("192.0.2.1:5001"), b"x");
    assert_eq!(bed.world.wait_closed(1)[0].1, CloseReason::Refused);
    assert_eq!(bed.counts().drop_policy, 11, "no UDP over HTTP");
    bed.world.set(Ok(direct()));
    for port in 5002..5005 {
        bed.send(addr(&format!("127.0.0.1:{port}")), b"x");
    }
    let counts = bed.counts();
    let drops = (counts.drop_client_share, counts.drop_capacity);
    assert_eq!(drops, (1, 0), "two of eight flows are a client's share");
    let other = addr("127.0.0.1:9");
    bed.udp.0.expire(Instant::now() + Duration::from_secs(200));
    assert_eq!(bed.udp.counters().flows, 0);
    bed.until("the tunnel is gone", |b| b.udp.counters().tunnels == 0)
        .await;
    bed.send(target, b"x");
    bed.send_from(other, target, b"x", Instant::now());
    assert_eq!(bed.counts().drop_capacity, 1, "one tunnel fits");
}

#[tokio::test]
async fn a_client_ends_at_its_share_of_tunnels_and_others_go_on() {
    let bed = bed_with(
        World::through(direct()),
        Limits {
            flows: 100,
            tunnels: 12,
            replies: 16,
            backs: 16,
            linger: Duration::from_millis(10),
        },
    )
    .await;
    let target = addr("127.0.0.1:9");
    let start = Instant::now();
    let from = |ip: u8, port: u16, after: u64| {
        let client = SocketAddr::from(([127, 0, 1, ip], port));
        bed.send_from(client, target, b"x", start + Duration::from_secs(after));
    };
    let state = || {
        let c = bed.counts();
        let tunnels = bed.udp.counters().tunnels;
        (tunnels, c.tunnels_evicted, c.tunnels_refused)
    };
    for port in 1..=10 {
        from(1, port, 0);
    }
    assert_eq!(state(), (3, 0, 7));
    assert_eq!(bed.counts().drop_capacity, 7);
    from(2, 1, 0);
    assert_eq!(state(), (4, 0, 7), "another client has its own share");
    for port in [1, 2] {
        from(1, port, 30);
    }
    from(1, 11, 30);
    assert_eq!(state(), (4, 1, 7), "the quiet one made room");
    let closed = bed.world.wait_closed(8).pop().unwrap();
    assert_eq!(closed.0.flow.client.0.port(), 3);
    assert_eq!(closed.1, CloseReason::Timeout);
    from(1, 12, 30);
    assert_eq!(state(), (4, 1, 8), "all were used a moment ago");
    for ip in 3..=10 {
        from(ip, 1, 30);
    }
    assert_eq!(state(), (12, 1, 8), "full");
    from(11, 1, 31);
    assert_eq!(state(), (12, 2, 8), "the quietest of all clients");
    from(12, 1, 31);
    assert_eq!(state(), (12, 2, 9), "nothing quiet");
}

#[tokio::test]
async fn idle_flows_end_and_the_last_one_ends_the_tunnel() {
    let relay = relay(UNSPECIFIED).await;
    let bed = bed(World::through(socks5(relay.addr, None))).await;
    bed.send(addr("192.0.2.1:53"), b"q");
    bed.send(addr("192.0.2.1:443"), b"q");
    let (.., from) = relay.recv().await;
    relay.recv().await;
    let after = |secs| bed.udp.0.expire(Instant::now() + Duration::from_secs(secs));
    after(31);
    let closed = bed.world.wait_closed(1);
    assert_eq!((closed.len(), closed[0].1), (1, CloseReason::Timeout));
    assert_eq!(closed[0].0.flow.target.0.port(), 53, "port 53 first");
    relay.send(addr("127.0.0.1:4301"), b"late", from).await;
    assert_eq!(bed.recv().await.0, b"late", "the tunnel lives on");
    after(121);
    bed.world.wait_closed(2);
    bed.until("the tunnel is gone", |b| b.udp.counters().tunnels == 0)
        .await;
    assert_eq!(bed.udp.counters().flows, 0);
}

#[tokio::test]
async fn an_answered_question_frees_its_association_soon() {
    let relay = relay(UNSPECIFIED).await;
    let bed = bed(World::through(socks5(relay.addr, None))).await;
    bed.sockets.refuse.store(true, Ordering::SeqCst);
    let server = addr("127.0.0.1:53");
    bed.send(server, b"question");
    let (.., from) = relay.recv().await;
    bed.udp.0.expire(Instant::now() + Duration::from_secs(6));
    assert_eq!(bed.udp.counters().flows, 1, "the answer may still come");
    relay.send(server, b"answer", from).await;
    bed.until("the answer", |b| b.counts().drop_reply_socket == 1)
        .await;
    bed.udp.0.expire(Instant::now() + Duration::from_secs(6));
    assert_eq!(bed.udp.counters().flows, 0);
}

#[tokio::test]
async fn the_end_of_the_control_connection_ends_the_association() {
    let relay = relay(UNSPECIFIED).await;
    let bed = bed(World::through(socks5(relay.addr, None))).await;
    let target = addr("192.0.2.1:5000");
    bed.send(target, b"one");
    relay.recv().await;
    relay.hang_up.send(()).await.unwrap();
    bed.until("the flow ends", |b| b.world.live().is_empty())
        .await;
    bed.send(target, b"two");
    assert_eq!(relay.recv().await.1, b"two");
    assert_eq!(
        relay.associations.load(Ordering::SeqCst),
        2,
        "rebuilt by the next datagram"
    );
}

#[tokio::test]
async fn a_cancelled_flow_ends_and_the_next_datagram_asks_again() {
    let relay = relay(UNSPECIFIED).await;
    let bed = bed(World::through(socks5(relay.addr, None))).await;
    let target = addr("192.0.2.1:5000");
    bed.send(target, b"one");
    relay.recv().await;
    bed.world.live()[0]
        .cancel
        .set(CloseReason::SelectionChanged);
    assert_eq!(bed.world.wait_closed(1)[0].1, CloseReason::SelectionChanged);
    bed.send(target, b"two");
    assert_eq!(bed.world.admitted(), 2);
}

#[tokio::test]
async fn listeners_deliver_the_original_destination() {
    let relay = relay(UNSPECIFIED).await;
    let listener = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let front = listener.local_addr().unwrap();
    let world = World::through(socks5(relay.addr, None));
    let admission = Arc::new(Gate(Arc::clone(&world)));
    let maker: Arc<dyn ReplySockets> = Arc::new(Loopback::default());
    let udp = Udp::start(
        vec![listener],
        admission,
        dialer(),
        idle_dns(),
        maker,
        1,
        LIMITS,
    )
    .unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for n in 0..60u8 {
        client.send_to(&[n], front).await.unwrap();
    }
    for n in 0..60u8 {
        let (target, payload, _) = relay.recv().await;
        assert_eq!((target, payload), (front, vec![n]));
    }
    udp.finish().await;
    assert_eq!(world.wait_closed(1)[0].1, CloseReason::Shutdown);
    assert_eq!((udp.counters().flows, udp.counters().tunnels), (0, 0));
}

#[tokio::test]
async fn a_server_without_udp_is_asked_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bed = bed(World::through(socks5(listener.local_addr().unwrap(), None))).await;
    bed.send(addr("192.0.2.1:5000"), b"x");
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut buffer = [0; 64];
    stream.read_exact(&mut buffer[..3]).await.unwrap();
    stream.write_all(&[5, 0]).await.unwrap();
    stream.read_exact(&mut buffer[..10]).await.unwrap();
    stream
        .write_all(&[5, 7, 0, 1, 0, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    bed.until("the first flow ends", |b| b.world.live().is_empty())
        .await;
    bed.send(addr("192.0.2.1:5001"), b"x");
    bed.until("the second flow ends", |b| b.counts().drop_closed == 2)
        .await;
    assert_eq!(bed.world.wait_closed(2)[1].1, CloseReason::DialFailed);
    assert!(timeout(Duration::ZERO, listener.accept()).await.is_err());
}
