use std::sync::atomic::Ordering::SeqCst;

use honk_wire::dns::kind::{A, AAAA};

use super::{testkit::*, *};
use crate::testkit::soon;

const CLIENT: &str = "10.0.0.9:4000";
const SERVER: &str = "198.51.100.53:53";

fn sock(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

struct Bed {
    dns: Arc<Dns>,
    map: Arc<Map>,
}

fn bed_with(limits: Limits, caps: Caps) -> Bed {
    let map = Arc::new(Map::default());
    let dns = Dns::with_limits(map.clone(), limits, caps);
    dns.stage(1, oracle(&["a.test"])).unwrap();
    dns.activated();
    Bed { dns, map }
}

fn bed() -> Bed {
    bed_with(Limits::default(), Caps::default())
}

impl Bed {
    fn ask(&self, bytes: &[u8]) -> Ask {
        self.dns
            .ask(sock(CLIENT), sock(SERVER), bytes, Instant::now())
    }

    fn reply(&self, bytes: &[u8]) -> Reply {
        self.dns.reply(sock(CLIENT), sock(SERVER), bytes, false)
    }

    /// Asks and answers.
    fn learn(&self, name: &str, addresses: &[[u8; 4]]) {
        let asked = query(7, name, A);
        assert_eq!(self.ask(&asked), Ask::Forward);
        assert!(matches!(
            self.reply(&answer(&asked, addresses)),
            Reply::Pass
        ));
    }

    fn own(&self, outgoing: &mut mpsc::Receiver<OwnReply>) -> OwnReply {
        let reply = outgoing.try_recv().expect("a reply of honk's own");
        assert_eq!((reply.client, reply.server), (sock(CLIENT), sock(SERVER)));
        reply
    }
}

fn code(message: &[u8]) -> u8 {
    message[3] & 15
}

#[tokio::test]
async fn the_kernel_knows_before_the_client_does() {
    let bed = bed();
    let asked = query(1, "x.A.test", A);
    assert_eq!(bed.ask(&asked), Ask::Forward);
    assert_eq!(bed.dns.snapshot().waiting, 1);
    let answer = answer(&asked, &[[192, 0, 2, 1], [192, 0, 2, 2]]);
    assert!(matches!(bed.reply(&answer), Reply::Pass));
    // Line 0 and the fallback hold, nothing is in doubt.
    for address in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(bed.map.get(1, address), Some((0b11, 0)), "{address}");
    }
    assert_eq!(bed.map.get(1, "192.0.2.3"), None);
    let snapshot = bed.dns.snapshot();
    assert_eq!(
        (snapshot.waiting, snapshot.leases, snapshot.entries),
        (0, 2, 2)
    );
    let name = bed
        .dns
        .heard(sock(CLIENT).ip(), "192.0.2.1".parse().unwrap());
    assert_eq!(name.as_deref(), Some("x.a.test"));
    // The same answer again answers nothing.
    assert!(matches!(bed.reply(&answer), Reply::Drop));
}

#[tokio::test]
async fn answers_vouch_for_sniffed_names() {
    use crate::flow::{ClientAddr, Names};

    let bed = bed();
    bed.learn("a.test", &[[192, 0, 2, 1]]);
    let dns: &dyn Names = &*bed.dns;
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert!(dns.leased("a.test", ip("192.0.2.1")));
    assert!(!dns.leased("a.test", ip("192.0.2.2")));
    assert!(!dns.leased("b.test", ip("192.0.2.1")));
    assert!(dns.cached("a.test") && !dns.cached("b.test"));
    let client = sock(CLIENT).ip();
    let meant = dns.meant(client, ip("192.0.2.1"));
    assert_eq!(meant.as_deref(), Some("a.test"));
    assert_eq!(dns.meant(ip("10.0.0.8"), ip("192.0.2.1")), None);
    assert!(dns.fronts("cloudflare-ech.com") && !dns.fronts("a.test"));
    let lookup = dns.exists("b.test".into(), ClientAddr(sock(CLIENT)));
    assert!(lookup.is_none());
}

#[tokio::test]
async fn names_without_a_rule_are_known_as_such() {
    let bed = bed();
    bed.learn("b.test", &[[192, 0, 2, 1]]);
    assert_eq!(bed.map.get(1, "192.0.2.1"), Some((0b10, 0)));
    bed.learn("a.test", &[[192, 0, 2, 1]]);
    assert_eq!(bed.map.get(1, "192.0.2.1"), Some((0b11, 0b01)), "in doubt");
    assert_eq!(bed.dns.snapshot().ambiguous, 1);
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "it stands for a writer that is held up"
)]
async fn an_answer_that_finds_the_memory_busy_waits_for_it_but_not_long() {
    let bed = bed();
    let asked = query(1, "a.test", A);
    bed.ask(&asked);
    let pause = lock(&bed.map.pause);
    // Somebody writes, and is held up.
    let (dns, other) = (Arc::clone(&bed.dns), query(2, "b.test", A));
    let writer = std::thread::spawn(move || {
        let client = sock("10.0.0.8:1");
        dns.ask(client, sock(SERVER), &other, Instant::now());
        dns.reply(
            client,
            sock(SERVER),
            &answer(&other, &[[192, 0, 2, 9]]),
            false,
        );
    });
    while bed.dns.book.try_lock().is_ok() {
        std::thread::yield_now();
    }
    let Reply::Learn(lesson) = bed.reply(&answer(&asked, &[[192, 0, 2, 1]])) else {
        panic!("the memory was busy")
    };
    assert!(bed.dns.learn(lesson).await, "sent anyway");
    assert_eq!(bed.dns.counters.late.load(SeqCst), 1);
    assert_eq!(bed.map.get(1, "192.0.2.1"), None);
    drop(pause);
    writer.join().unwrap();
    // What came late is learned all the same.
    soon("the lesson", async || bed.map.get(1, "192.0.2.1").is_some()).await;
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "it stands for a writer that is held up"
)]
async fn too_many_late_answers_are_dropped() {
    let bed = bed();
    let all = bed.dns.learners.clone();
    let _taken = all.try_acquire_many_owned(LEARNERS as u32).unwrap();
    let asked = query(1, "a.test", A);
    bed.ask(&asked);
    let busy = lock(&bed.dns.book);
    let Reply::Learn(lesson) = bed.reply(&answer(&asked, &[[192, 0, 2, 1]])) else {
        panic!()
    };
    let learned = bed.dns.learn(lesson);
    let learned = {
        let mut learned = std::pin::pin!(learned);
        std::future::poll_fn(|cx| learned.as_mut().poll(cx)).await
    };
    assert!(!learned);
    drop(busy);
    assert_eq!(bed.dns.snapshot().unlearned, 1);
}

#[tokio::test]
async fn forged_answers_teach_nothing_and_the_true_one_still_counts() {
    let bed = bed();
    let asked = query(1, "a.test", A);
    bed.ask(&asked);
    let mut other_id = answer(&asked, &[[192, 0, 2, 6]]);
    other_id[1] ^= 1;
    let other_name = answer(&query(1, "b.test", A), &[[192, 0, 2, 6]]);
    let mut cut = answer(&asked, &[[192, 0, 2, 6]]);
    cut.truncate(cut.len() - 1);
    for forged in [&other_id[..], &other_name, &cut, b"", b"x", &asked] {
        assert!(matches!(bed.reply(forged), Reply::Drop), "{forged:?}");
    }
    let stranger = sock("198.51.100.66:53");
    let good = answer(&asked, &[[192, 0, 2, 1]]);
    let reply = bed.dns.reply(sock(CLIENT), stranger, &good, false);
    assert!(matches!(reply, Reply::Drop), "never asked");
    assert!(matches!(bed.reply(&good), Reply::Pass));
    let snapshot = bed.dns.snapshot();
    assert_eq!((snapshot.mismatch, snapshot.malformed), (6, 1));
    assert_eq!(bed.map.get(1, "192.0.2.6"), None);
    assert_eq!(bed.map.get(1, "192.0.2.1"), Some((0b11, 0)));
}

#[tokio::test]
async fn other_protocols_pass_both_ways() {
    let bed = bed();
    assert_eq!(bed.ask(b"\x01\0\0\0 this is a tunnel"), Ask::Opaque);
    let reply = bed
        .dns
        .reply(sock(CLIENT), sock(SERVER), b"\x02\0\0\0 its answer", true);
    assert!(matches!(reply, Reply::Pass));
    let mut transfer = query(1, "a.test", honk_wire::dns::kind::AXFR);
    assert_eq!(bed.ask(&transfer), Ask::Opaque);
    transfer[2] |= 0x80;
    assert_eq!(bed.ask(&transfer), Ask::Opaque, "a response");
    assert_eq!(bed.dns.snapshot().opaque, 3);
}

#[tokio::test]
async fn clients_hear_of_queries_that_nobody_answers() {
    let bed = bed();
    let mut outgoing = bed.dns.outgoing().unwrap();
    let asked = query(9, "a.test", AAAA);
    let now = Instant::now();
    bed.dns.ask(sock(CLIENT), sock(SERVER), &asked, now);
    bed.dns
        .ask(sock(CLIENT), sock(SERVER), &asked, now + DEADLINE);
    bed.dns.expire(now + DEADLINE - Duration::from_millis(1));
    assert!(outgoing.try_recv().is_err(), "too soon");
    bed.dns.expire(now + DEADLINE);
    let own = bed.own(&mut outgoing);
    assert_eq!(
        (&own.bytes[..2], code(&own.bytes)),
        (&[0, 9][..], rcode::SERVFAIL)
    );
    assert!(
        matches!(bed.reply(&answer(&asked, &[])), Reply::Drop),
        "too late"
    );
    // The way to the server breaks.
    bed.ask(&asked);
    bed.dns.broken(sock(CLIENT), sock("198.51.100.54:53"));
    assert!(outgoing.try_recv().is_err(), "another server");
    bed.dns.broken(sock(CLIENT), sock(SERVER));
    assert_eq!(code(&bed.own(&mut outgoing).bytes), rcode::SERVFAIL);
    let snapshot = bed.dns.snapshot();
    assert_eq!((snapshot.timeouts, snapshot.waiting), (1, 0));
}

#[tokio::test]
async fn unanswered_queries_are_capped_per_client_and_in_all() {
    let caps = Caps {
        queries: 3,
        queries_per_client: 2,
        ..Caps::default()
    };
    let bed = bed_with(Limits::default(), caps);
    let mut outgoing = bed.dns.outgoing().unwrap();
    for id in 1..=2 {
        assert_eq!(bed.ask(&query(id, "a.test", A)), Ask::Forward);
    }
    assert_eq!(bed.ask(&query(2, "a.test", A)), Ask::Forward, "sent again");
    assert_eq!(bed.ask(&query(3, "a.test", A)), Ask::Refused);
    assert_eq!(code(&bed.own(&mut outgoing).bytes), rcode::REFUSED);
    let from = |client: &str| {
        let asked = query(1, "a.test", A);
        bed.dns
            .ask(sock(client), sock(SERVER), &asked, Instant::now())
    };
    assert_eq!(from("10.0.0.2:1"), Ask::Forward);
    assert_eq!(from("10.0.0.3:1"), Ask::Refused);
    // An answer makes room.
    assert!(matches!(
        bed.reply(&answer(&query(1, "a.test", A), &[])),
        Reply::Pass
    ));
    assert_eq!(from("10.0.0.3:1"), Ask::Forward);
    assert_eq!(bed.dns.snapshot().refused[0], ("capacity", 2));
}

#[tokio::test]
async fn refused_flows_are_explained_and_only_to_queries() {
    let bed = bed();
    let mut outgoing = bed.dns.outgoing().unwrap();
    let why = Explanation::Blocked;
    let down = |bytes: &[u8]| bed.dns.turned_down(sock(CLIENT), sock(SERVER), bytes, why);
    down(&query(1, "a.test", A));
    assert_eq!(code(&bed.own(&mut outgoing).bytes), rcode::REFUSED);
    down(b"no query");
    assert!(outgoing.try_recv().is_err());
    // Replies that nobody sends are dropped and counted.
    for _ in 0..=REPLIES {
        down(&query(1, "a.test", A));
    }
    assert_eq!(bed.dns.snapshot().unsent, 1);
}

#[tokio::test]
async fn a_reload_gets_all_leases_and_both_banks_what_comes_meanwhile() {
    let bed = bed();
    for n in 0..600_u16 {
        let address = [192, 0, (n >> 8) as u8, n as u8];
        bed.learn("b.test", &[address]);
    }
    bed.dns.stage(2, oracle(&["x.test", "b.test"])).unwrap();
    assert_eq!(
        bed.map.get(1, "192.0.2.87"),
        Some((0b10, 0)),
        "still in force"
    );
    assert_eq!(bed.map.get(2, "192.0.2.87"), Some((0b110, 0)));
    bed.learn("x.test", &[[192, 0, 2, 200]]);
    assert_eq!(bed.map.get(1, "192.0.2.200"), Some((0b10, 0)));
    assert_eq!(bed.map.get(2, "192.0.2.200"), Some((0b101, 0)));
    bed.dns.activated();
    bed.learn("x.test", &[[192, 0, 2, 201]]);
    assert_eq!(bed.map.get(1, "192.0.2.201"), None);
    assert_eq!(bed.map.get(2, "192.0.2.201"), Some((0b101, 0)));
    assert_eq!(bed.dns.snapshot().entries, 602);
}

#[tokio::test]
async fn a_reload_whose_names_cannot_be_written_fails_and_changes_nothing() {
    let bed = bed();
    bed.learn("a.test", &[[192, 0, 2, 1]]);
    bed.map.broken.store(true, SeqCst);
    assert!(bed.dns.stage(2, oracle(&["a.test"])).is_err());
    bed.dns.unstage();
    bed.map.broken.store(false, SeqCst);
    bed.learn("a.test", &[[192, 0, 2, 2]]);
    assert_eq!(bed.map.get(1, "192.0.2.2"), Some((0b11, 0)));
    assert_eq!(bed.map.get(2, "192.0.2.2"), None);
}

#[tokio::test]
async fn what_the_map_did_not_take_is_written_later() {
    let bed = bed();
    bed.map.broken.store(true, SeqCst);
    bed.learn("a.test", &[[192, 0, 2, 1]]);
    let snapshot = bed.dns.snapshot();
    assert_eq!((snapshot.map_failures, snapshot.unwritten), (1, 1));
    bed.map.broken.store(false, SeqCst);
    bed.dns.tick();
    assert_eq!(bed.map.get(1, "192.0.2.1"), Some((0b11, 0)));
    assert_eq!(bed.dns.snapshot().unwritten, 0);
}

#[tokio::test]
async fn addresses_of_the_gateway_are_not_learned() {
    let bed = bed();
    lock(&bed.map.own).push("192.0.2.1".parse().unwrap());
    bed.learn("a.test", &[[192, 0, 2, 1]]);
    assert_eq!(bed.dns.snapshot().leases, 0);
    bed.learn("a.test", &[[192, 0, 2, 1], [192, 0, 2, 2]]);
    assert_eq!(bed.dns.snapshot().leases, 1);
}

#[tokio::test]
async fn a_full_memory_takes_entries_from_the_map() {
    let limits = Limits {
        addresses: 10,
        addresses_low: 8,
        ..Limits::default()
    };
    let bed = bed_with(limits, Caps::default());
    for n in 1..=11 {
        bed.learn("a.test", &[[192, 0, 2, n]]);
    }
    let entries = lock(&bed.map.entries).len();
    // Of the evicted ones the entries go with the next flush, at the latest.
    bed.dns.tick();
    let snapshot = bed.dns.snapshot();
    assert!(entries <= 11);
    assert_eq!((snapshot.addresses, snapshot.evicted), (8, 3));
    assert_eq!(lock(&bed.map.entries).len(), 8);
}
