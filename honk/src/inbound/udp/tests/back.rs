//! Flows that are direct after all and go back to the kernel.

use super::*;

/// Longer than any test.
const LASTING: Limits = Limits {
    linger: Duration::from_secs(600),
    ..LIMITS
};

/// A service whose flows are direct and may go back, and where they lead.
async fn going_back(takes: bool, limits: Limits) -> (Bed, UdpSocket, SocketAddr) {
    let world = World::through(direct());
    world.hand_back(takes);
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = target.local_addr().unwrap();
    (bed_with(world, limits).await, target, addr)
}

/// The next datagrams at a target, and who sent them.
async fn arrived(target: &UdpSocket, n: usize) -> Vec<(Vec<u8>, SocketAddr)> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 65_536];
    while all.len() < n {
        let got = timeout(PATIENCE, target.recv_from(&mut buffer)).await;
        let (len, from) = got.expect("a datagram in time").unwrap();
        all.push((buffer[..len].to_vec(), from));
    }
    all
}

fn numbered(n: u8) -> [u8; 4] {
    [n; 4]
}

#[tokio::test]
async fn a_direct_flow_goes_back_in_order_through_one_socket() {
    let (bed, target, to) = going_back(true, LIMITS).await;
    for n in 0..4 {
        bed.send(to, &numbered(n));
    }
    let got = arrived(&target, 4).await;
    let payloads: Vec<_> = got.iter().map(|(p, _)| p.clone()).collect();
    assert_eq!(payloads, [0, 1, 2, 3].map(|n| numbered(n).to_vec()));
    let client = bed.client.local_addr().unwrap();
    let made = bed.sockets.made.lock().unwrap().clone();
    assert_eq!(made, [(client.port(), got[0].1.port())], "in its name");
    assert!(got.iter().all(|(_, from)| from == &got[0].1));
    let closed = bed.world.wait_closed(1);
    assert_eq!(closed[0].1, CloseReason::HandedBack);
    assert_eq!(closed[0].0.counters.up.load(Ordering::SeqCst), 16);
    assert_eq!(bed.world.kernel_heard()[0], ("hand_back", to));
    assert_eq!((bed.counts().handed_back, bed.counts().misses), (1, 1));
    bed.until("the flow is forgotten", |bed| {
        bed.world.kernel_heard().len() == 2 && bed.udp.counters().flows == 0
    })
    .await;
    assert_eq!(bed.world.kernel_heard()[1], ("handed_back", to));
    assert_eq!(bed.udp.0.backlog.bytes(), 0);
    assert_eq!(bed.udp.0.backs.used(), 0);
    assert_eq!((bed.udp.counters().tunnels, bed.world.admitted()), (0, 1));
}

#[tokio::test]
async fn what_comes_late_follows_up_to_a_bound() {
    let (bed, target, to) = going_back(true, LASTING).await;
    bed.send(to, b"first");
    arrived(&target, 1).await;
    for n in 0..70 {
        bed.send(to, &numbered(n));
    }
    assert_eq!(bed.counts().drop_hand_back, 6);
    let got = arrived(&target, 64).await;
    assert_eq!(got[63].0, numbered(63));
    assert_eq!(bed.world.admitted(), 1);
}

#[tokio::test]
async fn what_waits_for_the_socket_is_bounded() {
    let (bed, target, to) = going_back(true, LIMITS).await;
    for n in 0..70 {
        bed.send(to, &numbered(n));
    }
    assert_eq!(bed.counts().drop_flow_queue, 6);
    let got = arrived(&target, 64).await;
    assert_eq!((got[0].0[0], got[63].0[0]), (0, 63));
}

#[tokio::test]
async fn a_flow_the_kernel_does_not_take_is_relayed() {
    let (bed, target, to) = going_back(false, LIMITS).await;
    for n in 0..3 {
        bed.send(to, &numbered(n));
    }
    let got = arrived(&target, 3).await;
    assert_eq!((got[0].0[0], got[2].0[0]), (0, 2));
    target.send_to(b"answer", got[0].1).await.unwrap();
    assert_eq!(bed.recv().await, (b"answer".to_vec(), to));
    let counts = bed.counts();
    assert_eq!((counts.handed_back, counts.hand_backs_failed), (0, 1));
    assert_eq!(bed.world.kernel_heard(), [("hand_back", to)]);
    assert_eq!((bed.world.live().len(), bed.udp.counters().flows), (1, 1));
}

#[tokio::test]
async fn without_a_socket_the_flow_is_relayed_and_the_kernel_hears_nothing() {
    let (bed, target, to) = going_back(true, LIMITS).await;
    bed.sockets.refuse.store(true, Ordering::SeqCst);
    bed.send(to, b"one");
    assert_eq!(arrived(&target, 1).await[0].0, b"one");
    assert_eq!(bed.world.kernel_heard(), []);
    assert_eq!(bed.counts().hand_backs_failed, 1);
}

#[tokio::test]
async fn only_so_many_flows_go_back_at_once() {
    let limits = Limits {
        backs: 1,
        ..LASTING
    };
    let (bed, target, to) = going_back(true, limits).await;
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    bed.send(to, b"back");
    bed.send(other.local_addr().unwrap(), b"relayed");
    assert_eq!(arrived(&other, 1).await[0].0, b"relayed");
    assert_eq!(arrived(&target, 1).await[0].0, b"back");
    assert_eq!(bed.counts().hand_backs_full, 1);
    assert_eq!(bed.world.kernel_heard()[0], ("hand_back", to));
    assert_eq!(bed.world.live().len(), 1);
}

#[tokio::test]
async fn stopping_forgets_flows_on_their_way_back() {
    let (bed, target, to) = going_back(true, LASTING).await;
    bed.send(to, b"one");
    arrived(&target, 1).await;
    bed.udp.finish().await;
    assert_eq!(bed.udp.counters().flows, 0);
    assert_eq!(bed.udp.0.backs.used(), 0);
}
