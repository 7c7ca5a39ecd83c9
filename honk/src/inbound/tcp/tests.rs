use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::*;
use crate::{
    flow::{CloseReason, Refusal},
    inbound::testkit::*,
    outbound::error::DialResult,
    socket::Accepted,
};
use honk_policy::id::Network;
use honk_policy::node::{Node, Protocol};

mod proven;
mod race;
mod sniffing;
mod spread;

/// Loops behind a listener, with flows leaving as the world says.
struct Bed {
    world: Arc<World>,
    loops: Loops,
    front: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

fn quick() -> Timeouts {
    Timeouts {
        tick: Duration::from_millis(10),
        ..Timeouts::default()
    }
}

fn bed(world: Arc<World>) -> Bed {
    bed_with(world, quick(), 1000, dialer_settings())
}

fn bed_with(
    world: Arc<World>,
    timeouts: Timeouts,
    cap: usize,
    settings: crate::outbound::Settings,
) -> Bed {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let guard = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = listener.local_addr().unwrap();
    let shared = Shared {
        admission: Arc::new(Gate(Arc::clone(&world))),
        dialer: Dialer::new(settings),
        dns: idle_dns(),
        listeners: vec![listener],
        counters: TcpCounters::default(),
        cap: Cap::new(cap),
        timeouts,
        accepting: true.into(),
    };
    let loops = Loops::start(shared, PipeBudget::new(64), 2).unwrap();
    drop(guard);
    Bed {
        world,
        loops,
        front,
        _runtime: runtime,
    }
}

impl Bed {
    fn client(&self) -> TcpStream {
        let stream = TcpStream::connect(self.front).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A client whose flow goes straight to `target`: on loopback every accepted connection
    /// has the listener as its target, so the flow is handed over by hand.
    fn direct_client(&self, target: SocketAddr) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let accepted = crate::socket::accept(&listener).unwrap();
        let accepted = Accepted { target, ..accepted };
        let flow = new_flow(Network::Tcp, accepted.client, target);
        let route = self.world.route(&flow, direct());
        self.loops.mailboxes[0].send(Command::Adopt(Box::new((accepted, route))));
        stream
    }

    fn dials(&self, result: DialResult) -> u64 {
        let rows = self.loops.shared.dialer.counters().dials;
        rows.iter().map(|row| row.results[result as usize]).sum()
    }
}

/// A node that agrees to everything and then echoes until the client ends.
fn echo_node(auth: Option<(&'static str, &'static str)>) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let addr = play(move |mut stream| {
        let request = greet(&mut stream, auth);
        if request.is_empty() {
            return;
        }
        let command = request[1];
        seen.lock().unwrap().push(request);
        let _ = stream.write_all(&OK_REPLY);
        if command == 1 {
            let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
            let _ = stream.shutdown(Shutdown::Write);
        }
    });
    (addr, requests)
}

fn expect_reset(mut stream: TcpStream) {
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

fn exchange(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    assert_eq!(take(stream, bytes.len()), bytes);
}

#[test]
fn a_flow_passes_a_socks5_node_and_is_counted() {
    for auth in [None, Some(("user", "pass"))] {
        let (node, requests) = echo_node(auth);
        let bed = bed(World::through(socks5(node, auth)));
        let mut client = bed.client();
        exchange(&mut client, b"hello");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "the end comes back");
        let (entry, reason) = bed.world.wait_closed(1).remove(0);
        assert_eq!(reason, CloseReason::Eof);
        assert_eq!(entry.counters.up.load(Ordering::SeqCst), 5);
        assert_eq!(entry.counters.down.load(Ordering::SeqCst), 5);
        assert_eq!(bed.dials(DialResult::Ok), 1);
        let mut want = vec![5, 1, 0, 1, 127, 0, 0, 1];
        want.extend_from_slice(&bed.front.port().to_be_bytes());
        assert_eq!(
            requests.lock().unwrap()[0],
            want,
            "the node hears the target"
        );
        assert_eq!(bed.loops.shared.cap.used(), 0);
    }
}

#[test]
fn a_proven_node_gets_all_messages_in_one_flight() {
    for auth in [None, Some(("user", "pass"))] {
        let (addr, requests) = echo_node(auth);
        let node = socks5(addr, auth);
        let bed = bed(World::through(Arc::clone(&node)));
        exchange(&mut bed.client(), b"first");
        let state = bed.loops.shared.dialer.server(&node);
        until("the test of the server", || {
            state.mode() == honk_wire::socks5::Mode::Pipelined
        });
        exchange(&mut bed.client(), b"second");
        let commands: Vec<u8> = requests.lock().unwrap().iter().map(|r| r[1]).collect();
        assert_eq!(commands, [1, 3, 1], "no target heard of the test");
    }
}

/// Reads whole segments, as some small servers do: what comes behind the greeting is lost.
fn segment_reader(mut stream: TcpStream) {
    let mut buffer = [0; 512];
    if stream.read(&mut buffer).unwrap_or(0) == 0 {
        return;
    }
    let _ = stream.write_all(&[5, 0]);
    if stream.read(&mut buffer).unwrap_or(0) == 0 {
        return;
    }
    let _ = stream.write_all(&OK_REPLY);
    let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
}

#[test]
fn a_node_that_loses_pipelined_messages_is_never_trusted_with_one() {
    let node = socks5(play(segment_reader), None);
    let bed = bed(World::through(Arc::clone(&node)));
    for _ in 0..3 {
        exchange(&mut bed.client(), b"hello");
    }
    let state = bed.loops.shared.dialer.server(&node);
    assert_eq!(state.mode(), honk_wire::socks5::Mode::Serial);
}

#[test]
fn a_node_replaced_by_a_stricter_one_still_serves_the_flow() {
    // Agrees to pipelining under test, later answers a pipelined greeting with nonsense.
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let addr = play(move |mut stream| {
        if count.fetch_add(1, Ordering::SeqCst) < 2 {
            let request = greet(&mut stream, None);
            let _ = stream.write_all(&OK_REPLY);
            if request[1] == 1 {
                let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
            }
            return;
        }
        let mut buffer = [0; 512];
        let n = stream.read(&mut buffer).unwrap_or(0);
        if n > 3 {
            let _ = stream.write_all(b"\x05\x09");
            return;
        }
        let _ = stream.write_all(&[5, 0]);
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(&OK_REPLY);
        let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    });
    let node = socks5(addr, None);
    let bed = bed(World::through(Arc::clone(&node)));
    exchange(&mut bed.client(), b"first");
    let state = bed.loops.shared.dialer.server(&node);
    until("the test of the server", || {
        state.mode() == honk_wire::socks5::Mode::Pipelined
    });
    exchange(&mut bed.client(), b"second");
    // First flow, test, the garbled attempt, the one in small steps; then another test.
    assert!(connections.load(Ordering::SeqCst) >= 4);
}

#[test]
fn a_flow_passes_an_http_node_and_early_bytes_arrive_first() {
    let head = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&head);
    let addr = play(move |mut stream| {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            text.extend(take(&mut stream, 1));
        }
        *seen.lock().unwrap() = String::from_utf8(text).unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nbanner");
        let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    });
    let bed = bed(World::through(http(addr, Some(("user", "pass")))));
    let mut client = bed.client();
    assert_eq!(take(&mut client, 6), b"banner");
    exchange(&mut client, b"hello");
    let head = head.lock().unwrap();
    assert!(
        head.starts_with(&format!("CONNECT {} HTTP/1.1\r\n", bed.front)),
        "{head}"
    );
    assert!(
        head.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"),
        "{head}"
    );
}

/// The node plays `script`; the client must be reset and the dial counted as `result`.
fn refused(
    make: fn(SocketAddr) -> Arc<Node>,
    result: DialResult,
    script: impl Fn(TcpStream) + Send + Sync + 'static,
) {
    let bed = bed(World::through(make(play(script))));
    expect_reset(bed.client());
    assert_eq!(bed.world.wait_closed(1)[0].1, CloseReason::DialFailed);
    assert_eq!(bed.dials(result), 1, "{result:?}");
    until("permits come back", || {
        bed.loops.shared.dialer.permits.used() == 0
    });
}

fn with_auth(addr: SocketAddr) -> Arc<Node> {
    socks5(addr, Some(("user", "wrong")))
}

fn without_auth(addr: SocketAddr) -> Arc<Node> {
    socks5(addr, None)
}

fn over_http(addr: SocketAddr) -> Arc<Node> {
    http(addr, None)
}

#[test]
fn failed_handshakes_reset_the_client() {
    refused(with_auth, DialResult::Auth, |mut s| {
        greet(&mut s, Some(("user", "pass")));
    });
    refused(without_auth, DialResult::Auth, |mut s| {
        let _ = s.write_all(&[5, 0xff]);
        take(&mut s, 1024);
    });
    refused(without_auth, DialResult::Auth, |mut s| {
        let _ = s.write_all(b"SSH-2.0-OpenSSH\r\n");
        take(&mut s, 1024);
    });
    refused(without_auth, DialResult::Refused, |mut s| {
        greet(&mut s, None);
        let _ = s.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
    });
    refused(without_auth, DialResult::Refused, |mut s| {
        greet(&mut s, None);
        let _ = s.write_all(&OK_REPLY[..7]);
    });
    refused(over_http, DialResult::Auth, |mut s| {
        let _ = s.write_all(b"HTTP/1.1 407 Auth\r\n\r\n");
        take(&mut s, 1024);
    });
    refused(over_http, DialResult::Auth, |mut s| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\n");
        let _ = s.write_all(&[b'x'; 20_000]);
        take(&mut s, 1024);
    });
}

#[test]
fn a_dead_node_resets_at_once() {
    let (_port, closed) = closed();
    let bed = bed(World::through(socks5(closed, None)));
    expect_reset(bed.client());
    assert_eq!(bed.dials(DialResult::Connect), 1);
}

#[test]
fn a_silent_node_times_out_by_stage() {
    // Each bed hurries in one stage only: a busy machine must not make the other one late.
    let short = Duration::from_millis(50);
    let hurried = |node, timeouts| {
        let bed = bed_with(
            World::through(socks5(node, None)),
            timeouts,
            10,
            dialer_settings(),
        );
        expect_reset(bed.client());
        bed
    };
    let silent = play(|mut s| {
        take(&mut s, 1024);
    });
    let bed = hurried(
        silent,
        Timeouts {
            greeting: short,
            ..quick()
        },
    );
    assert_eq!(bed.dials(DialResult::Timeout), 1, "greeting");
    let half = play(|mut s| {
        greet(&mut s, None);
        take(&mut s, 1024);
    });
    let bed = hurried(
        half,
        Timeouts {
            reply: short,
            ..quick()
        },
    );
    assert_eq!(
        bed.dials(DialResult::Refused),
        1,
        "reply: the target's silence"
    );
}

#[test]
fn a_refused_flow_is_reset_and_leaves_nothing() {
    let bed = bed(World::refusing(Refusal::Blocked));
    expect_reset(bed.client());
    assert_eq!(bed.loops.shared.counters.snapshot().refused, 1);
    assert_eq!(bed.loops.shared.cap.used(), 0);
    bed.world.set(Ok(node(Protocol::Block)));
    expect_reset(bed.client());
    assert_eq!(bed.world.wait_closed(1)[0].1, CloseReason::Refused);
}

#[test]
fn the_flow_cap_resets_and_counts() {
    let (node, _) = echo_node(None);
    let bed = bed_with(
        World::through(socks5(node, None)),
        quick(),
        1,
        dialer_settings(),
    );
    let mut first = bed.client();
    exchange(&mut first, b"hello");
    expect_reset(bed.client());
    assert_eq!(bed.loops.shared.counters.snapshot().capacity, 1);
    drop(first);
    bed.world.wait_closed(1);
    until("the seat is free", || bed.loops.shared.cap.used() == 0);
    exchange(&mut bed.client(), b"again");
}

#[test]
fn dials_wait_for_permits_in_line() {
    let (release, hold) = std::sync::mpsc::sync_channel::<()>(8);
    let hold = Mutex::new(hold);
    let node = play(move |mut stream| {
        greet(&mut stream, None);
        hold.lock().unwrap().recv().unwrap();
        let _ = stream.write_all(&OK_REPLY);
        let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    });
    let mut settings = dialer_settings();
    settings.max_concurrent_dials = 1;
    let bed = bed_with(World::through(socks5(node, None)), quick(), 10, settings);
    let (mut a, mut b) = (bed.client(), bed.client());
    // Admission comes before the permit: only a flow that is in line has got past both.
    let permits = &bed.loops.shared.dialer.permits;
    until("one waits in line", || permits.waiting() == 1);
    assert_eq!(permits.used(), 1);
    for _ in 0..4 {
        release.send(()).unwrap();
    }
    exchange(&mut a, b"a");
    exchange(&mut b, b"b");
}

#[test]
fn direct_flows_dial_the_target_itself() {
    let origin = play(|mut s| {
        let _ = io::copy(&mut s.try_clone().unwrap(), &mut s);
    });
    let bed = bed(World::refusing(Refusal::Blocked));
    exchange(&mut bed.direct_client(origin), b"hello");
    let (_port, closed) = closed();
    expect_reset(bed.direct_client(closed));
    assert_eq!(bed.dials(DialResult::Refused), 1, "the target's fault");
}

#[test]
fn half_close_passes_both_ways() {
    // The origin answers only after it has seen the end of the request.
    let origin = play(|mut s| {
        let mut request = Vec::new();
        s.read_to_end(&mut request).unwrap();
        request.reverse();
        s.write_all(&request).unwrap();
    });
    let bed = bed(World::refusing(Refusal::Blocked));
    let mut client = bed.direct_client(origin);
    client.write_all(b"abc").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"cba");
    // And the other way round: the origin ends first, the client goes on talking.
    let (told, heard) = std::sync::mpsc::sync_channel(1);
    let origin = play(move |mut s| {
        s.write_all(b"bye").unwrap();
        s.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        s.read_to_end(&mut rest).unwrap();
        told.send(rest).unwrap();
    });
    let mut client = bed.direct_client(origin);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"bye");
    client.write_all(b"late").unwrap();
    drop(client);
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"late");
    let closed = bed.world.wait_closed(2);
    assert!(closed.iter().all(|(_, reason)| *reason == CloseReason::Eof));
}

#[test]
fn a_half_closed_flow_without_progress_ends() {
    let origin = play(|mut s| {
        let mut all = Vec::new();
        let _ = s.read_to_end(&mut all);
        // Holds its side open until the relay gives up.
        let _ = s.set_read_timeout(None);
        std::thread::park_timeout(PATIENCE);
    });
    let timeouts = Timeouts {
        half_closed: Duration::from_millis(100),
        ..quick()
    };
    let world = World::refusing(Refusal::Blocked);
    let bed = bed_with(world, timeouts, 10, dialer_settings());
    let client = bed.direct_client(origin);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(bed.world.wait_closed(1)[0].1, CloseReason::Timeout);
}

#[test]
fn a_reset_is_passed_on_both_ways() {
    let origin = play(|mut s| {
        take(&mut s, 1);
        socket2::SockRef::from(&s)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    });
    let bed = bed(World::refusing(Refusal::Blocked));
    let mut client = bed.direct_client(origin);
    client.write_all(b"x").unwrap();
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let (told, heard) = std::sync::mpsc::sync_channel(1);
    let origin = play(move |mut s| {
        s.write_all(b"x").unwrap();
        told.send(s.read(&mut [0; 1]).map_err(|e| e.kind()))
            .unwrap();
    });
    let mut client = bed.direct_client(origin);
    assert_eq!(take(&mut client, 1), b"x");
    socket2::SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    assert_eq!(
        heard.recv_timeout(PATIENCE).unwrap(),
        Err(ErrorKind::ConnectionReset)
    );
    for (_, reason) in bed.world.wait_closed(2) {
        assert_eq!(reason, CloseReason::Reset);
    }
}

#[test]
fn bulk_data_is_spliced_and_arrives_whole_even_to_a_slow_reader() {
    const SIZE: usize = 24 << 20;
    let byte = |i: usize| (i * 31 + i / 4096) as u8;
    let data: Arc<Vec<u8>> = Arc::new((0..SIZE).map(byte).collect());
    let source = Arc::clone(&data);
    let origin = play(move |mut s| {
        let mut back = Vec::new();
        std::thread::scope(|scope| {
            let mut writer = s.try_clone().unwrap();
            let source = &source;
            scope.spawn(move || {
                writer.write_all(source).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            s.read_to_end(&mut back).unwrap();
        });
        assert!(back == **source, "upload is intact");
    });
    let bed = bed(World::refusing(Refusal::Blocked));
    let mut client = bed.direct_client(origin);
    // Nothing is read until the windows are full and the relay is blocked.
    let entry = bed.world.live().remove(0);
    let mut seen = 0;
    until("the download stalls", || {
        let now = entry.counters.down.load(Ordering::SeqCst);
        let stalled = now > 0 && now == seen;
        seen = now;
        std::thread::park_timeout(Duration::from_millis(20));
        stalled
    });
    let mut upload = client.try_clone().unwrap();
    let source = Arc::clone(&data);
    let writer = std::thread::spawn(move || {
        upload.write_all(&source).unwrap();
        upload.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::with_capacity(SIZE);
    client.read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got == *data, "download is intact");
    let (entry, reason) = bed.world.wait_closed(1).remove(0);
    assert_eq!(reason, CloseReason::Eof);
    assert_eq!(entry.carrier.load(Ordering::SeqCst), SPLICE);
    assert_eq!(entry.counters.down.load(Ordering::SeqCst), SIZE as u64);
    assert_eq!(entry.counters.up.load(Ordering::SeqCst), SIZE as u64);
    assert_eq!(bed.loops.shared.counters.snapshot().spliced, 1);
}

#[test]
fn without_pipes_bulk_data_is_copied() {
    const SIZE: usize = 4 << 20;
    let origin = play(|mut s| {
        let _ = io::copy(&mut s.try_clone().unwrap(), &mut s);
    });
    let mut bed = bed(World::refusing(Refusal::Blocked));
    // The loops run with a budget of 64; take them all.
    let mut pool = crate::socket::pipe::PipePool::new(bed.loops.pipes.clone(), 0);
    let taken: Vec<_> = std::iter::from_fn(|| pool.lend()).collect();
    assert_eq!(taken.len(), 64);
    let mut client = bed.direct_client(origin);
    let mut upload = client.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        upload.write_all(&vec![7; SIZE]).unwrap();
        upload.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got.len() == SIZE && got.iter().all(|&b| b == 7));
    let (entry, _) = bed.world.wait_closed(1).remove(0);
    assert_eq!(entry.carrier.load(Ordering::SeqCst), COPY);
    bed.loops.finish();
}

#[test]
fn a_cancelled_flow_is_reset_with_the_reason() {
    let (node, _) = echo_node(None);
    let bed = bed(World::through(socks5(node, None)));
    let mut client = bed.client();
    exchange(&mut client, b"hello");
    bed.world.live()[0]
        .cancel
        .set(CloseReason::SelectionChanged);
    assert_eq!(
        client.read(&mut [0; 1]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    assert_eq!(bed.world.wait_closed(1)[0].1, CloseReason::SelectionChanged);
}

#[test]
fn stopping_ends_accepting_then_flows_then_threads() {
    let (node, _) = echo_node(None);
    let mut bed = bed(World::through(socks5(node, None)));
    let mut client = bed.client();
    exchange(&mut client, b"hello");
    bed.loops.stop_accepting();
    exchange(&mut client, b"still here");
    let late = bed.client();
    exchange(&mut client, b"and here");
    assert_eq!(bed.world.admitted(), 1, "nothing was accepted");
    let before = Instant::now();
    bed.loops.finish();
    assert!(before.elapsed() < PATIENCE);
    assert_eq!(bed.world.wait_closed(1)[0].1, CloseReason::Shutdown);
    assert_eq!(
        client.read(&mut [0; 1]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    drop(late);
}

#[test]
fn many_short_flows_leave_nothing_behind() {
    let (node, _) = echo_node(None);
    let bed = bed(World::through(socks5(node, None)));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    exchange(&mut bed.client(), b"ping");
                }
            });
        }
    });
    bed.world.wait_closed(400);
    assert!(bed.world.live().is_empty());
    until("all seats are free", || bed.loops.shared.cap.used() == 0);
    assert_eq!(bed.dials(DialResult::Ok), 400);
}

#[test]
fn a_panic_costs_one_loop_its_flows_and_no_more() {
    let (node, _) = echo_node(None);
    let bed = bed(World::through(socks5(node, None)));
    bed.world.bug.store(true, Ordering::SeqCst);
    let mut victim = bed.client();
    assert_ne!(victim.read(&mut [0; 1]).ok(), Some(1), "closed, not served");
    for _ in 0..20 {
        exchange(&mut bed.client(), b"alive");
    }
    until("all seats are free", || bed.loops.shared.cap.used() == 0);
}

/// Deterministic noise.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The bytes of a stream, a function of its seed and the position.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..len).map(|_| noise.below(256) as u8).collect()
}

/// Sends in pieces of random size, then ends its side.
fn send_pieces(mut stream: TcpStream, data: &[u8], noise: &mut Noise) {
    let mut rest = data;
    while !rest.is_empty() {
        let n = (noise.below(48 << 10) as usize + 1).min(rest.len());
        if stream.write_all(&rest[..n]).is_err() {
            return;
        }
        rest = &rest[n..];
    }
    let _ = stream.shutdown(Shutdown::Write);
}

#[test]
fn t49_random_sizes_half_closes_and_resets_keep_every_byte() {
    const FLOWS: u64 = 120;
    // The origin learns the flow's number, then both sides stream at once.
    let origin = play(|mut s| {
        let Ok(number) = <[u8; 8]>::try_from(take(&mut s, 8)) else {
            return;
        };
        let number = u64::from_be_bytes(number);
        let mut noise = Noise(number + 77);
        let down = pattern(number * 2, noise.below(400 << 10) as usize);
        let up = pattern(number * 2 + 1, noise.below(400 << 10) as usize);
        let writer = s.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| send_pieces(writer, &down, &mut Noise(number + 5)));
            let mut got = Vec::new();
            let whole = s.read_to_end(&mut got).is_ok();
            assert!(up.starts_with(&got), "flow {number}: upload is damaged");
            assert!(
                !whole || got.len() == up.len(),
                "flow {number}: upload is short"
            );
        });
    });
    let bed = bed(World::refusing(Refusal::Blocked));
    std::thread::scope(|scope| {
        for part in 0..6 {
            let bed = &bed;
            scope.spawn(move || {
                for number in (part..FLOWS).step_by(6) {
                    let mut client = bed.direct_client(origin);
                    client.write_all(&number.to_be_bytes()).unwrap();
                    let mut noise = Noise(number + 77);
                    let down = pattern(number * 2, noise.below(400 << 10) as usize);
                    let up = pattern(number * 2 + 1, noise.below(400 << 10) as usize);
                    if number % 5 == 4 {
                        // Goes away in the middle.
                        let some = take(&mut client, down.len() / 2);
                        assert!(down.starts_with(&some));
                        let socket = socket2::SockRef::from(&client);
                        socket.set_linger(Some(Duration::ZERO)).unwrap();
                        continue;
                    }
                    let writer = client.try_clone().unwrap();
                    std::thread::scope(|inner| {
                        inner.spawn(|| send_pieces(writer, &up, &mut Noise(number + 9)));
                        let mut got = Vec::new();
                        client.read_to_end(&mut got).unwrap();
                        assert!(got == down, "flow {number}: download differs");
                    });
                }
            });
        }
    });
    let closed = bed.world.wait_closed(FLOWS as usize);
    let whole = closed
        .iter()
        .filter(|(_, r)| *r == CloseReason::Eof)
        .count();
    assert!(whole as u64 >= FLOWS - FLOWS / 5, "{whole} ended cleanly");
    assert!(bed.loops.shared.counters.snapshot().spliced > 10);
    until("pipes of broken flows are closed", || {
        bed.loops.pipes.open() <= 64
    });
}
