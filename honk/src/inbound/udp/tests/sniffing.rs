//! Flows whose first datagrams are looked at.

use honk_wire::{
    Target,
    sniff::{
        Hello, HostName, Kind,
        craft::client_hello,
        quic::{Version, craft},
    },
};

use super::*;
use crate::flow::Finding;

/// Long enough that the cap of the hold decides; see `hold::PATIENCE`.
const LONG: Duration = Duration::from_secs(60);
const DCID: [u8; 8] = [8; 8];

/// Initial packets with a hello that needs `n` of them.
fn initials(name: &str, n: usize) -> Vec<Vec<u8>> {
    let hello = client_hello(Some(name), false, 1000 * (n - 1));
    let part = hello.len().div_ceil(n);
    let packet = |(i, data): (usize, &[u8])| {
        let frames = craft::crypto_frame(i * part, data);
        craft::initial(Version::V1, &DCID, i as u16, &frames).unwrap()
    };
    hello.chunks(part).enumerate().map(packet).collect()
}

fn named(name: &str) -> Finding {
    let name = HostName::parse(name.as_bytes());
    Finding::Hello(Kind::Quic, Hello { name, ech: false })
}

/// The next datagram at the relay: its target as text, its payload, who sent it.
async fn at_relay(relay: &Relay) -> (String, Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let got = timeout(PATIENCE, relay.udp.recv_from(&mut buffer)).await;
    let (n, from) = got.expect("a datagram in time").unwrap();
    let (target, payload) = parse(&buffer[..n]).unwrap();
    let target = match target {
        Target::Ip(addr) => addr.to_string(),
        Target::Name(name, port) => format!("{name}:{port}"),
    };
    (target, payload.to_vec(), from)
}

async fn sniffing(patience: Duration) -> (Bed, Relay) {
    let relay = relay(UNSPECIFIED).await;
    let world = World::through(socks5(relay.addr, None));
    world.sniff(patience);
    (bed(world).await, relay)
}

#[tokio::test]
async fn a_quic_flow_is_sent_by_name_and_answered_from_its_target() {
    let (bed, relay) = sniffing(LONG).await;
    let target = addr("127.0.0.1:4301");
    let packet = initials("example.com", 1).remove(0);
    bed.send(target, &packet);
    let (to, payload, from) = at_relay(&relay).await;
    assert_eq!((to.as_str(), payload), ("example.com:4301", packet));
    assert_eq!(bed.world.findings(), [named("example.com")]);
    // Whatever address the name has at the server: the client asked for another one.
    relay.send(addr("127.0.0.7:443"), b"answer", from).await;
    assert_eq!(bed.recv().await, (b"answer".to_vec(), target));
    assert_eq!(bed.counts().held, 0, "one packet was enough");
    // Another flow of the same client has a way of its own.
    bed.send(addr("127.0.0.1:4302"), b"no quic");
    assert_eq!(bed.world.findings().last(), Some(&Finding::Foreign));
    assert_eq!(bed.udp.counters().tunnels, 2);
}

#[tokio::test]
async fn a_hello_in_several_packets_is_held_and_sent_in_order() {
    let (bed, relay) = sniffing(LONG).await;
    let target = addr("192.0.2.1:4303");
    let packets = initials("example.com", 3);
    for packet in &packets[..2] {
        bed.send(target, packet);
        assert_eq!(bed.udp.counters().held, 1);
        assert_eq!(bed.world.admitted(), 0);
    }
    bed.send(target, &packets[2]);
    assert_eq!(bed.udp.counters().held, 0);
    for packet in &packets {
        let (to, payload, _) = at_relay(&relay).await;
        assert_eq!((to.as_str(), &payload), ("example.com:4303", packet));
    }
    let entry = bed.world.live().remove(0);
    assert_eq!(entry.counters.up.load(Ordering::SeqCst), 3600);
    assert_eq!(
        (bed.counts().held, bed.counts().misses, bed.counts().hits),
        (1, 1, 2)
    );
    assert_eq!(bed.udp.0.backlog.bytes(), 0);
}

#[tokio::test]
async fn a_hello_that_does_not_go_on_is_let_go() {
    let (bed, relay) = sniffing(Duration::from_millis(10)).await;
    let packets = initials("example.com", 2);
    bed.send(addr("192.0.2.1:4304"), &packets[0]);
    let (to, payload, _) = at_relay(&relay).await;
    assert_eq!((to.as_str(), &payload), ("192.0.2.1:4304", &packets[0]));
    assert_eq!(bed.world.findings(), [Finding::Timeout(Some(Kind::Quic))]);
    bed.send(addr("192.0.2.1:4304"), &packets[1]);
    assert_eq!(at_relay(&relay).await.1, packets[1]);
}

#[tokio::test]
async fn the_limits_of_holding_are_reached() {
    let (bed, relay) = sniffing(LONG).await;
    let first = initials("example.com", 2).remove(0);
    for _ in 0..9 {
        bed.send(addr("192.0.2.1:4305"), &first);
    }
    for _ in 0..9 {
        assert_eq!(at_relay(&relay).await.0, "192.0.2.1:4305");
    }
    assert_eq!(bed.counts().holds_full, 1);
    let places: Vec<_> = std::iter::from_fn(|| bed.udp.0.holds.take()).collect();
    assert_eq!(places.len(), hold::MAX_HOLDS);
    bed.send(addr("192.0.2.1:4306"), &first);
    assert_eq!(at_relay(&relay).await.0, "192.0.2.1:4306");
    assert_eq!(bed.counts().holds_full, 2);
}

#[tokio::test]
async fn a_name_that_is_checked_keeps_the_flow_until_the_answer() {
    let (bed, relay) = sniffing(LONG).await;
    bed.world.check(LONG);
    let packet = initials("example.com", 1).remove(0);
    let target = addr("192.0.2.1:4307");
    bed.send(target, &packet);
    bed.send(target, b"more");
    assert_eq!((bed.world.admitted(), bed.world.findings().len()), (0, 1));
    bed.world.wake();
    for want in [&packet[..], b"more"] {
        let (to, payload, _) = at_relay(&relay).await;
        assert_eq!((to.as_str(), &payload[..]), ("example.com:4307", want));
    }
}

#[tokio::test]
async fn a_check_that_takes_too_long_ends_the_wait() {
    let (bed, relay) = sniffing(LONG).await;
    bed.world.check(Duration::from_millis(10));
    bed.send(addr("192.0.2.1:4308"), &initials("example.com", 1)[0]);
    assert_eq!(at_relay(&relay).await.0, "example.com:4308");
    bed.world.wake();
}

#[tokio::test]
async fn a_flow_that_is_refused_by_name_drops_what_was_held() {
    let (bed, _relay) = sniffing(LONG).await;
    let target = addr("192.0.2.1:4309");
    for packet in initials("blocked.example", 2) {
        bed.send(target, &packet);
    }
    assert_eq!(bed.counts().drop_policy, 2);
    bed.send(target, b"more");
    assert_eq!(bed.counts().drop_policy, 3, "the refusal is remembered");
    let counters = bed.udp.counters();
    assert_eq!((counters.flows, counters.held), (0, 0));
    assert_eq!(bed.udp.0.backlog.bytes(), 0);
}

#[tokio::test]
async fn stopping_forgets_what_is_held() {
    let (bed, _relay) = sniffing(LONG).await;
    bed.send(addr("192.0.2.1:4310"), &initials("example.com", 2)[0]);
    assert_eq!(bed.udp.counters().held, 1);
    bed.udp.finish().await;
    let counters = bed.udp.counters();
    assert_eq!((counters.flows, counters.held), (0, 0));
}

#[tokio::test]
async fn a_hello_in_several_packets_goes_back_whole() {
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let world = World::through(direct());
    world.hand_back(true);
    world.sniff(LONG);
    let bed = bed(world).await;
    let packets = initials("example.com", 3);
    for packet in &packets {
        bed.send(target.local_addr().unwrap(), packet);
    }
    let mut buffer = vec![0; 65_536];
    for packet in &packets {
        let n = timeout(PATIENCE, target.recv(&mut buffer)).await.unwrap();
        assert_eq!(buffer[..n.unwrap()], packet[..]);
    }
    assert_eq!(bed.world.findings(), [named("example.com")]);
    assert_eq!(bed.counts().handed_back, 1);
    assert_eq!(bed.udp.0.backlog.bytes(), 0);
}

#[tokio::test]
async fn no_datagram_is_lost_where_a_limit_sends_a_flow_back() {
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let world = World::through(direct());
    world.hand_back(true);
    world.sniff(LONG);
    let bed = bed(world).await;
    let first = initials("example.com", 2).remove(0);
    for _ in 0..9 {
        bed.send(target.local_addr().unwrap(), &first);
    }
    assert_eq!(bed.counts().holds_full, 1);
    let mut buffer = vec![0; 65_536];
    for _ in 0..9 {
        let n = timeout(PATIENCE, target.recv(&mut buffer)).await.unwrap();
        assert_eq!(buffer[..n.unwrap()], first[..]);
    }
    assert_eq!(bed.udp.0.backlog.bytes(), 0);
}
