use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream as Tcp},
};

use honk_policy::{dns::Limits, id::Network};
use honk_wire::dns::{kind::A, rcode};

use super::*;
use crate::{
    dns::{Caps, testkit::*},
    inbound::testkit::{PATIENCE, World, direct, new_flow, until},
};

/// A connection carried between a client and a server on loopback.
struct Bed {
    world: Arc<World>,
    dns: Arc<Dns>,
    map: Arc<Map>,
    runtime: tokio::runtime::Runtime,
}

/// Two connected sockets.
fn pair() -> (Tcp, Tcp) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = Tcp::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    near.set_write_timeout(Some(PATIENCE)).unwrap();
    (near, far)
}

fn bed(caps: Caps) -> Bed {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let guard = runtime.enter();
    let map = Arc::new(Map::default());
    let dns = Dns::with_limits(map.clone(), Limits::default(), caps);
    drop(guard);
    dns.stage(1, oracle(&["a.test"])).unwrap();
    dns.activated();
    Bed {
        world: World::through(direct()),
        dns,
        map,
        runtime,
    }
}

impl Bed {
    /// The far ends: what the client holds, and what the server holds.
    fn open(&self) -> (Tcp, Tcp) {
        self.open_with(Vec::new())
    }

    fn open_with(&self, early: Vec<u8>) -> (Tcp, Tcp) {
        let ((client, near_client), (server, near_server)) = (pair(), pair());
        let (from, to) = ("10.0.0.9:4000", "198.51.100.53:53");
        let flow = new_flow(Network::Tcp, from.parse().unwrap(), to.parse().unwrap());
        let carried = |s: Tcp| {
            s.set_nonblocking(true).unwrap();
            OwnedFd::from(s)
        };
        self.dns.carry(Carried {
            client: carried(near_client),
            server: carried(near_server),
            early,
            guard: self.world.route(&flow, direct()).guard,
            seat: Box::new(()),
        });
        (client, server)
    }

    fn ended(&self) -> CloseReason {
        self.world.wait_closed(1)[0].1
    }
}

fn say(to: &mut Tcp, message: &[u8]) {
    let frame = [&(message.len() as u16).to_be_bytes()[..], message].concat();
    to.write_all(&frame).unwrap();
}

fn hear(from: &mut Tcp) -> Vec<u8> {
    let mut len = [0; 2];
    from.read_exact(&mut len).unwrap();
    let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
    from.read_exact(&mut message).unwrap();
    message
}

fn at_end(from: &mut Tcp) {
    assert_eq!(from.read(&mut [0; 16]).unwrap(), 0, "more than expected");
}

#[test]
fn answers_come_in_any_order_and_are_learned_first() {
    let bed = bed(Caps::default());
    let (mut client, mut server) = bed.open();
    let asked = [query(1, "x.a.test", A), query(2, "b.test", A)];
    for query in &asked {
        say(&mut client, query);
        assert_eq!(hear(&mut server), *query, "byte for byte");
    }
    let answers = [
        answer(&asked[0], &[[192, 0, 2, 1]]),
        answer(&asked[1], &[[192, 0, 2, 2]]),
    ];
    // Nobody asked for this one, and this one is another's.
    say(
        &mut server,
        &answer(&query(3, "a.test", A), &[[192, 0, 2, 6]]),
    );
    say(
        &mut server,
        &answer(&query(1, "b.test", A), &[[192, 0, 2, 6]]),
    );
    say(&mut server, &answers[1]);
    assert_eq!(hear(&mut client), answers[1]);
    assert_eq!(bed.map.get(1, "192.0.2.2"), Some((0b10, 0)));
    // The client has asked all it wants; what is owed still comes.
    client.shutdown(std::net::Shutdown::Write).unwrap();
    at_end(&mut server);
    say(&mut server, &answers[0]);
    assert_eq!(hear(&mut client), answers[0]);
    assert_eq!(bed.map.get(1, "192.0.2.1"), Some((0b11, 0)));
    at_end(&mut client);
    assert_eq!(bed.ended(), CloseReason::Eof);
    assert_eq!(bed.map.get(1, "192.0.2.6"), None);
    let snapshot = bed.dns.snapshot();
    assert_eq!((snapshot.mismatch, snapshot.waiting), (2, 0));
    until("the place to come back", || bed.dns.snapshot().streams == 0);
}

#[test]
fn one_number_may_stand_for_two_questions() {
    let bed = bed(Caps::default());
    let (mut client, mut server) = bed.open();
    let asked = [query(1, "a.test", A), query(1, "b.test", A)];
    for query in &asked {
        say(&mut client, query);
        hear(&mut server);
    }
    for query in asked.iter().rev() {
        let answer = answer(query, &[[192, 0, 2, 1]]);
        say(&mut server, &answer);
        assert_eq!(hear(&mut client), answer);
    }
    assert_eq!(bed.map.get(1, "192.0.2.1"), Some((0b11, 0b01)));
}

#[test]
fn no_more_than_a_pipeline_of_queries_waits() {
    let bed = bed(Caps::default());
    let (mut client, mut server) = bed.open();
    let asked: Vec<_> = (0..=PIPELINE as u16)
        .map(|id| query(id, "b.test", A))
        .collect();
    for query in &asked {
        say(&mut client, query);
    }
    for query in &asked[..PIPELINE] {
        assert_eq!(hear(&mut server), *query);
    }
    assert_eq!(bed.dns.snapshot().waiting, PIPELINE);
    server.set_nonblocking(true).unwrap();
    let early = server.read(&mut [0; 2]);
    assert_eq!(early.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    server.set_nonblocking(false).unwrap();
    say(&mut server, &answer(&asked[5], &[]));
    hear(&mut client);
    assert_eq!(hear(&mut server), asked[PIPELINE]);
}

#[test]
fn queries_without_room_or_answer_get_an_error() {
    let caps = Caps {
        queries_per_client: 1,
        deadline: Duration::from_millis(50),
        ..Caps::default()
    };
    let bed = bed(caps);
    let (mut client, mut server) = bed.open();
    say(&mut client, &query(1, "a.test", A));
    hear(&mut server);
    let reply = hear(&mut client);
    assert_eq!((reply[1], reply[3] & 15), (1, rcode::SERVFAIL));
    let mut held = None;
    until("the place to come back", || {
        held = bed.dns.load.take("10.0.0.9".parse().unwrap());
        held.is_some()
    });
    say(&mut client, &query(2, "a.test", A));
    let reply = hear(&mut client);
    assert_eq!((reply[1], reply[3] & 15), (2, rcode::REFUSED));
    let snapshot = bed.dns.snapshot();
    assert_eq!((snapshot.timeouts, snapshot.refused[0].1), (1, 1));
}

#[test]
fn connections_are_capped_per_client() {
    let caps = Caps {
        streams_per_client: 1,
        ..Caps::default()
    };
    let bed = bed(caps);
    let (mut client, mut server) = bed.open();
    let (mut other, _server) = bed.open();
    assert_eq!(bed.ended(), CloseReason::Refused);
    assert!(other.read(&mut [0; 1]).is_err(), "a reset");
    say(&mut client, &query(1, "a.test", A));
    hear(&mut server);
    assert_eq!(bed.dns.snapshot().streams, 1);
}

#[test]
fn quiet_connections_end() {
    let caps = Caps {
        idle: Duration::from_millis(50),
        ..Caps::default()
    };
    let bed = bed(caps);
    let (_client, _server) = bed.open();
    assert_eq!(bed.ended(), CloseReason::Timeout, "without a word");
    let (mut client, mut server) = bed.open();
    let asked = query(1, "a.test", A);
    say(&mut client, &asked);
    hear(&mut server);
    say(&mut server, &answer(&asked, &[]));
    assert_eq!(bed.world.wait_closed(2)[1].1, CloseReason::Timeout);
}

#[test]
fn a_cancelled_connection_ends_with_the_reason_and_a_stop_ends_all() {
    let bed = bed(Caps::default());
    let (mut client, mut server) = bed.open();
    say(&mut client, &query(1, "a.test", A));
    hear(&mut server);
    bed.world.live()[0].cancel.set(CloseReason::Reload);
    assert_eq!(bed.ended(), CloseReason::Reload);
    assert!(client.read(&mut [0; 1]).is_err(), "a reset");
    let (_client, _server) = bed.open();
    bed.runtime.block_on(bed.dns.finish());
    assert_eq!(bed.world.wait_closed(2)[1].1, CloseReason::Shutdown);
}

#[test]
fn other_protocols_pass_byte_for_byte() {
    let bed = bed(Caps::default());
    // The server speaks first.
    let (mut client, mut server) = bed.open_with(b"220 ".to_vec());
    server.write_all(b"ready").unwrap();
    let mut hello = [0; 9];
    client.read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"220 ready");
    // Looks like a message with a length, and is none.
    let (mut other, mut origin) = bed.open();
    other.write_all(b"\0\x30SSH-2.0").unwrap();
    other.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = Vec::new();
    origin.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"\0\x30SSH-2.0");
    origin.write_all(b"bye").unwrap();
    drop(origin);
    let mut said = Vec::new();
    other.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"bye");
    assert_eq!(bed.ended(), CloseReason::Eof);
    assert_eq!(bed.dns.snapshot().opaque, 2);
}

#[test]
fn answers_to_what_is_not_looked_at_pass() {
    let bed = bed(Caps::default());
    let (mut client, mut server) = bed.open();
    let transfer = query(1, "a.test", honk_wire::dns::kind::AXFR);
    say(&mut client, &transfer);
    assert_eq!(hear(&mut server), transfer);
    for _ in 0..2 {
        let part = answer(&transfer, &[[192, 0, 2, 1]]);
        say(&mut server, &part);
        assert_eq!(hear(&mut client), part);
    }
    assert_eq!(bed.dns.snapshot().leases, 0);
}
