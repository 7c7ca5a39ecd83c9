//! Flows for which several leaves are tried.

use super::*;
use crate::flow::Why;

/// A node that takes connections and says nothing.
fn silent() -> SocketAddr {
    play(|mut stream| {
        take(&mut stream, 1 << 20);
    })
}

// G-135
#[test]
fn the_flow_that_finds_its_node_dead_is_served_by_another_one() {
    let ((_port, nobody), (echo, requests)) = (closed(), echo_node(None));
    let bed = bed(World::through(socks5(nobody, None)));
    let other = socks5(echo, None);
    bed.world.rivals(Why::Retry, &[&other]);
    let mut client = bed.client();
    exchange(&mut client, b"hello");
    let entry = bed.world.live().remove(0);
    assert_eq!(entry.way().leaf, other.id, "listed where it is");
    assert_ne!(entry.selected.leaf, other.id);
    drop(client);
    let (entry, _) = bed.world.wait_closed(1).remove(0);
    assert_eq!(entry.counters.up.load(Ordering::SeqCst), 5, "sent once");
    assert_eq!(requests.lock().unwrap()[0][1], 1);
    assert_eq!(bed.world.races(), [(Network::Tcp, Why::Retry, true)]);
    assert_eq!(bed.dials(DialResult::Connect), 1);
    assert_eq!(bed.dials(DialResult::Ok), 1);
    until("permits come back", || {
        bed.loops.shared.dialer.permits.used() == 0
    });
}

// G-135
#[test]
fn there_is_one_retry_and_then_the_flow_has_failed() {
    let ((_a, first), (_b, second)) = (closed(), closed());
    let bed = bed(World::through(socks5(first, None)));
    let other = socks5(second, None);
    bed.world.rivals(Why::Retry, &[&other]);
    expect_reset(bed.client());
    assert_eq!(bed.world.wait_closed(1)[0].1, CloseReason::DialFailed);
    assert_eq!(bed.world.races(), [(Network::Tcp, Why::Retry, false)]);
    assert_eq!(bed.dials(DialResult::Connect), 2);
    // Both nodes are to blame: nobody has won.
    let told = bed.loops.shared.dialer.feed.drain();
    assert_eq!(told.len(), 2, "{told:?}");
}

// G-135: what the target says through a node is final.
#[test]
fn a_refusal_by_the_target_is_not_tried_again() {
    let node = play(|mut stream| {
        greet(&mut stream, None);
        let _ = stream.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
    });
    let (echo, requests) = echo_node(None);
    let bed = bed(World::through(socks5(node, None)));
    let other = socks5(echo, None);
    bed.world.rivals(Why::Retry, &[&other]);
    expect_reset(bed.client());
    assert_eq!(bed.world.races(), []);
    assert!(requests.lock().unwrap().is_empty());
}

// G-138
#[test]
fn while_nothing_is_measured_the_first_leaf_that_answers_serves() {
    let (hung, (_port, nobody)) = (silent(), closed());
    let (echo, _) = echo_node(None);
    let (slow, refusing, good) = (socks5(hung, None), socks5(nobody, None), socks5(echo, None));
    let bed = bed(World::through(Arc::clone(&slow)));
    bed.world.rivals(Why::Cold, &[&slow, &refusing, &good]);
    let mut client = bed.client();
    exchange(&mut client, b"hello");
    assert_eq!(bed.world.live()[0].way().leaf, good.id);
    assert_eq!(bed.world.races(), [(Network::Tcp, Why::Cold, true)]);
    let told = bed.loops.shared.dialer.feed.drain();
    let of =
        |id| move |e: &&honk_policy::health::Event| format!("{e:?}").contains(&format!("{id:?}"));
    for loser in [slow.id, refusing.id] {
        assert_eq!(
            told.iter().filter(of(loser)).count(),
            0,
            "losers are neutral"
        );
    }
    assert!(told.iter().any(|event| of(good.id)(&event)));
}

// G-138: health may have changed while the leaf was dialed.
#[test]
fn a_leaf_that_died_meanwhile_does_not_win() {
    let ((first, _), (second, _)) = (echo_node(None), echo_node(None));
    let (dead, alive) = (socks5(first, None), socks5(second, None));
    let bed = bed(World::through(Arc::clone(&dead)));
    bed.world.rivals(Why::Cold, &[&dead, &alive]);
    bed.world.die(&dead);
    exchange(&mut bed.client(), b"hello");
    assert_eq!(bed.world.live()[0].way().leaf, alive.id);
}

#[test]
fn a_flow_that_is_cancelled_takes_its_race_along() {
    let hung = Arc::new(Mutex::new(Vec::new()));
    let ended = Arc::clone(&hung);
    let node = play(move |mut stream| {
        // Comes back when the other side closes.
        take(&mut stream, 1 << 20);
        ended.lock().unwrap().push(());
    });
    let (a, b) = (socks5(node, None), socks5(node, None));
    let bed = bed(World::through(Arc::clone(&a)));
    bed.world.rivals(Why::Cold, &[&a, &b]);
    let client = bed.client();
    until("two leaves are dialed", || {
        bed.loops.shared.dialer.permits.used() == 2
    });
    bed.world.live()[0].cancel.set(CloseReason::Api);
    expect_reset(client);
    until("both connections end", || hung.lock().unwrap().len() == 2);
    assert_eq!(bed.world.races(), []);
    assert_eq!(bed.loops.shared.dialer.permits.used(), 0);
}
