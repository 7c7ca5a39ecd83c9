//! Flows whose first bytes are looked at.

use honk_wire::sniff::{Hello, HostName, Kind, MAX_STREAM, craft};

use super::*;
use crate::flow::Finding;

/// Long enough that no test gets there.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn hello(name: &str, size: usize) -> Vec<u8> {
    craft::records(&craft::client_hello(Some(name), false, 0), size)
}

fn named(kind: Kind, name: &str) -> Finding {
    let name = HostName::parse(name.as_bytes());
    Finding::Hello(kind, Hello { name, ech: false })
}

/// A bed that sniffs, with a node that echoes, and the requests the node got.
fn sniffing(patience: Duration) -> (Bed, Arc<Mutex<Vec<Vec<u8>>>>) {
    let (node, requests) = echo_node(None);
    let world = World::through(socks5(node, None));
    world.sniff(patience);
    (bed(world), requests)
}

fn request_for(name: &str, port: u16) -> Vec<u8> {
    let mut request = vec![5, 1, 0, 3, name.len() as u8];
    request.extend_from_slice(name.as_bytes());
    request.extend_from_slice(&port.to_be_bytes());
    request
}

/// The requests for connections; the node may be tested with others.
fn connects(requests: &Mutex<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    let requests = requests.lock().unwrap();
    requests.iter().filter(|r| r[1] == 1).cloned().collect()
}

#[test]
fn the_node_hears_the_name_and_the_bytes_arrive_once() {
    let (bed, requests) = sniffing(LONG);
    let tls = hello("example.com", 1 << 14);
    let http = b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n".to_vec();
    for (bytes, kind, name) in [
        (tls, Kind::Tls, "example.com"),
        (http, Kind::Http, "www.example.com"),
    ] {
        let mut client = bed.client();
        exchange(&mut client, &bytes);
        exchange(&mut client, b"more");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "the end comes back");
        assert!(connects(&requests).contains(&request_for(name, bed.front.port())));
        assert_eq!(bed.world.findings().last(), Some(&named(kind, name)));
    }
    let closed = bed.world.wait_closed(2);
    assert!(closed.iter().all(|(_, reason)| *reason == CloseReason::Eof));
    assert_eq!(bed.loops.shared.cap.used(), 0);
}

#[test]
fn a_hello_may_come_byte_by_byte() {
    let (bed, _) = sniffing(LONG);
    let bytes = hello("example.com", 30);
    let mut client = bed.client();
    client.set_nodelay(true).unwrap();
    for byte in &bytes {
        client.write_all(&[*byte]).unwrap();
    }
    assert_eq!(take(&mut client, bytes.len()), bytes);
    assert_eq!(bed.world.findings(), [named(Kind::Tls, "example.com")]);
}

#[test]
fn a_server_that_speaks_first_is_not_kept_waiting() {
    let node = play(|mut stream| {
        greet(&mut stream, None);
        let _ = stream.write_all(&OK_REPLY);
        let _ = stream.write_all(b"220 ready\r\n");
        let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    });
    let world = World::through(socks5(node, None));
    world.sniff(SHORT);
    let bed = bed(world);
    let mut client = bed.client();
    assert_eq!(take(&mut client, 11), b"220 ready\r\n");
    exchange(&mut client, b"HELO example.com\r\n");
    assert_eq!(bed.world.findings(), [Finding::Timeout(None)]);
}

#[test]
fn other_protocols_go_on_at_once() {
    let (bed, requests) = sniffing(LONG);
    exchange(&mut bed.client(), b"SSH-2.0-client\r\n");
    assert_eq!(bed.world.findings(), [Finding::Foreign]);
    assert_eq!(connects(&requests)[0][3], 1, "by address");
}

#[test]
fn a_hello_that_never_ends_waits_longer_but_not_for_ever() {
    let (bed, _) = sniffing(SHORT);
    let bytes = hello("example.com", 1 << 14);
    let half = &bytes[..40];
    // The bytes are there before the clock starts.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(half).unwrap();
    let accepted = crate::socket::accept(&listener).unwrap();
    let start = Instant::now();
    bed.loops.mailboxes[0].send(Command::Arrive(Box::new(accepted)));
    assert_eq!(take(&mut client, half.len()), half);
    assert_eq!(bed.world.findings(), [Finding::Timeout(Some(Kind::Tls))]);
    assert!(start.elapsed() >= 4 * SHORT);
}

#[test]
fn a_request_longer_than_the_limit_is_not_searched_further() {
    let (bed, _) = sniffing(LONG);
    let mut request = b"GET / HTTP/1.1\r\nCookie: ".to_vec();
    request.resize(MAX_STREAM + 1000, b'x');
    exchange(&mut bed.client(), &request);
    let nothing = Finding::Hello(
        Kind::Http,
        Hello {
            name: None,
            ech: false,
        },
    );
    assert_eq!(bed.world.findings(), [nothing]);
}

#[test]
fn a_client_that_ends_early_still_gets_through() {
    let (bed, _) = sniffing(LONG);
    for bytes in [&b""[..], b"GET"] {
        let mut client = bed.client();
        client.write_all(bytes).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert_eq!(back, bytes);
    }
    bed.world.wait_closed(2);
}

#[test]
fn a_client_that_resets_is_forgotten() {
    let (bed, _) = sniffing(LONG);
    let client = bed.client();
    until("the flow", || bed.loops.shared.cap.used() == 1);
    socket2::SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    until("the end", || bed.loops.shared.cap.used() == 0);
    assert_eq!(bed.world.findings(), []);
}

#[test]
fn a_refusal_after_the_name_is_a_reset() {
    let (bed, _) = sniffing(LONG);
    let mut client = bed.client();
    client
        .write_all(&hello("blocked.example", 1 << 14))
        .unwrap();
    expect_reset(client);
    assert_eq!(bed.loops.shared.counters.snapshot().refused, 1);
    until("the end", || bed.loops.shared.cap.used() == 0);
}

#[test]
fn a_checked_name_waits_for_its_answer_or_its_time() {
    let (bed, requests) = sniffing(LONG);
    bed.world.check(LONG);
    let bytes = hello("example.com", 1 << 14);
    let mut client = bed.client();
    client.write_all(&bytes).unwrap();
    until("the check", || !bed.world.findings().is_empty());
    assert!(connects(&requests).is_empty());
    bed.world.wake();
    assert_eq!(take(&mut client, bytes.len()), bytes);
    // What comes while a name is checked is not looked at again.
    bed.world.check(SHORT);
    let mut client = bed.client();
    client.write_all(&bytes).unwrap();
    client.write_all(b"early data").unwrap();
    assert_eq!(take(&mut client, bytes.len()), bytes);
    assert_eq!(take(&mut client, 10), b"early data");
    assert_eq!(bed.world.findings().len(), 2);
    bed.world.wake();
}

#[test]
fn a_sniffed_flow_is_still_spliced() {
    let (bed, _) = sniffing(LONG);
    let mut bytes = hello("example.com", 1 << 14);
    bytes.resize(4 << 20, 42);
    let mut client = bed.client();
    let mut reader = client.try_clone().unwrap();
    let want = bytes.len();
    let reader = std::thread::spawn(move || take(&mut reader, want));
    client.write_all(&bytes).unwrap();
    assert!(reader.join().unwrap() == bytes);
    until("the splice", || {
        bed.loops.shared.counters.snapshot().spliced == 1
    });
}

#[test]
fn stopping_ends_connections_that_are_sniffed() {
    let (mut bed, _) = sniffing(LONG);
    let client = bed.client();
    until("the flow", || bed.loops.shared.cap.used() == 1);
    bed.loops.finish();
    expect_reset(client);
    assert_eq!(bed.loops.shared.cap.used(), 0);
}
