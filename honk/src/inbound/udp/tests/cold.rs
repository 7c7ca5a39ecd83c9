//! Tunnels of groups that have measured nothing yet.

use honk_policy::id::Network;

use super::*;
use crate::flow::Why;

// G-138
#[tokio::test]
async fn the_first_leaf_that_opens_carries_the_tunnel_and_its_flows_are_told() {
    let relay = relay(UNSPECIFIED).await;
    let (_port, nobody) = closed();
    let (dead, good) = (socks5(nobody, None), socks5(relay.addr, None));
    let bed = bed(World::through(Arc::clone(&dead))).await;
    bed.world.rivals(Why::Cold, &[&dead, &good]);
    let (a, b) = (addr("192.0.2.1:4701"), addr("192.0.2.2:4702"));
    bed.send(a, b"to a");
    assert_eq!(relay.recv().await.0, a);
    bed.send(b, b"to b");
    assert_eq!(relay.recv().await.0, b);
    for flow in bed.world.live() {
        assert_eq!(
            flow.way().leaf,
            good.id,
            "whether it was there or came later"
        );
    }
    assert_eq!(relay.associations.load(Ordering::SeqCst), 1);
    assert_eq!(bed.world.races(), [(Network::Udp, Why::Cold, true)]);
}

#[tokio::test]
async fn where_none_opens_the_flow_has_failed() {
    let ((_a, first), (_b, second)) = (closed(), closed());
    let (one, two) = (socks5(first, None), socks5(second, None));
    let bed = bed(World::through(Arc::clone(&one))).await;
    bed.world.rivals(Why::Cold, &[&one, &two]);
    bed.send(addr("192.0.2.1:4703"), b"x");
    bed.until("the race", |b| {
        b.world.races() == [(Network::Udp, Why::Cold, false)]
    })
    .await;
    bed.until("the end of the flow", |b| b.world.live().is_empty())
        .await;
    assert_eq!(bed.udp.counters().tunnels, 0);
}

// A flow that comes when there are measurements does not go where chance led the first one.
#[tokio::test]
async fn measured_flows_do_not_join_a_tunnel_that_was_opened_cold() {
    let (measured, other) = (relay(UNSPECIFIED).await, relay(UNSPECIFIED).await);
    let (best, rival) = (socks5(measured.addr, None), socks5(other.addr, None));
    let bed = bed(World::through(Arc::clone(&best))).await;
    bed.world.rivals(Why::Cold, &[&rival, &best]);
    bed.send(addr("192.0.2.1:4704"), b"cold");
    assert_eq!(other.recv().await.1, b"cold");
    bed.world.rivals(Why::Retry, &[]);
    bed.send(addr("192.0.2.1:4705"), b"warm");
    assert_eq!(measured.recv().await.1, b"warm");
}
