//! The private side: `dev0_ingress`, `peer_ingress`, `listener_lookup`.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd as _;

use honk_common::counter::Stat;
use honk_common::event::EVENT_LISTENER_MISSING;
use honk_common::flow::{FLOW_REINJECT, FlowWord, RETURN_FROM_WAN, ReturnVal};
use honk_common::key::to_bytes;
use honk_common::outbound::DIRECT;
use honk_common::param::{MARK_CLASSIFIED, MARK_REPLY, SOCK_TCP4, SOCK_TCP6, SOCK_UDP4, SOCK_UDP6};
use honk_tests::kernel::packet::{ACK, CLIENT_MAC, Packet, SYN, icmp_error, other, tcp, udp};
use honk_tests::kernel::{
    Ctx, GATEWAY_MAC, LOOKUP, NEXT, NONCE, PEER_MAC, REDIRECT, Ran, Rig, SHOT, Tap, bytes,
};

use crate::common::*;
use crate::rig;

const DEV0: &str = "dev0_ingress";

fn reply(rig: &Rig, p: &Packet) -> (Ran, u32) {
    let mut ctx = Ctx::default();
    let ran = rig.run(DEV0, &p.build(), &mut ctx);
    (ran, ctx.mark)
}

fn put_way(rig: &Rig, addr: &str, flags: u8) {
    let value = ReturnVal {
        last_seen_ns: now(),
        ifindex: rig.lan().index(),
        smac: CLIENT_MAC,
        dmac: GATEWAY_MAC,
        vlan: 0,
        flags,
        pad: [0; 5],
    };
    let key = to_bytes(addr.parse().expect("an address"));
    rig.put_raw("RETURN", &key, &bytes(&value));
}

#[test]
fn replies_get_the_clients_mac_and_are_charged() {
    let rig = rig!();
    put_way(&rig, "10.66.0.2", 0);
    put_way(&rig, "fd66::2", 0);
    put_flow(&rig, &tcp(CLIENT, ORIGIN, ACK), &entry(PROXY));
    let p = tcp(ORIGIN, CLIENT, SYN | ACK).smac(PEER_MAC);
    let (ran, mark) = reply(&rig, &p);
    assert_eq!((ran.verdict, mark), (REDIRECT, 0));
    assert_eq!(ran.data[..6], CLIENT_MAC);
    assert_eq!(ran.data[6..12], GATEWAY_MAC);
    assert_eq!(ran.data[12..], p.build()[12..]);
    assert_eq!(rig.traffic(PROXY).rx_packets, 1);
    assert_eq!(rig.traffic(PROXY).rx_bytes, p.build().len() as u64);
    // From any source: full cone. Fragments and errors need no ports.
    for p in [
        udp("203.0.113.77:9999", CLIENT),
        udp(ORIGIN, CLIENT).fragment(4, 1480, false),
        udp(ORIGIN6, CLIENT6),
        icmp_error(3, &udp(CLIENT, ORIGIN)),
        icmp_error(1, &udp(CLIENT6, ORIGIN6)),
        other(ORIGIN, CLIENT, 1),
    ] {
        assert_eq!(reply(&rig, &p).0.verdict, REDIRECT, "{p:?}");
    }
    assert_eq!(rig.traffic(PROXY).rx_packets, 1);
}

#[test]
fn replies_to_the_gateway_itself_carry_the_reply_mark() {
    let rig = rig!();
    put_way(&rig, "10.66.0.2", RETURN_FROM_WAN);
    let (ran, mark) = reply(&rig, &udp(ORIGIN, CLIENT));
    assert_eq!((ran.verdict, mark), (REDIRECT, MARK_REPLY));
}

#[test]
fn datagrams_handed_back_return_to_the_lan_path() {
    let rig = rig!();
    let p = udp(CLIENT, ORIGIN);
    put_flow(&rig, &p, &entry(DIRECT));
    assert_eq!(reply(&rig, &p).0.verdict, SHOT, "not asked for");
    let mut e = entry(DIRECT);
    e.word = FlowWord {
        state: FLOW_REINJECT,
        mark: 0x10,
        ..FlowWord::unpack(e.word)
    }
    .pack();
    put_flow(&rig, &p, &e);
    for target_is_a_client in [false, true] {
        if target_is_a_client {
            put_way(&rig, "198.51.100.131", 0);
        }
        let (ran, mark) = reply(&rig, &p);
        assert_eq!((ran.verdict, mark), (REDIRECT, MARK_CLASSIFIED | 0x10));
        assert_eq!(ran.data[..6], GATEWAY_MAC);
        assert_eq!(ran.data[6..12], CLIENT_MAC);
        let mut ctx = Ctx {
            mark,
            ..Ctx::default()
        };
        assert_eq!(rig.run(LAN, &ran.data, &mut ctx).verdict, NEXT);
        assert_eq!(ctx.mark, 0x10, "the mark of the rule stays");
    }
    assert_eq!(rig.stat(Stat::Reinject), 2);
    // The time is over: whatever speaks in the client's name now goes nowhere.
    put_flow(&rig, &p, &entry(DIRECT));
    let other = udp(CLIENT, "198.51.100.132:443");
    assert_eq!(reply(&rig, &other).0.verdict, SHOT);
    assert_eq!(rig.stat(Stat::Reinject), 2);
}

#[test]
fn replies_without_a_way_follow_the_route_to_a_lan_or_are_dropped() {
    let rig = rig!();
    let p = udp(ORIGIN, CLIENT);
    assert_eq!(reply(&rig, &p).0.verdict, SHOT);
    rig.lan().configure([10, 66, 0, 1]).expect("lan0");
    assert_eq!(reply(&rig, &p).0.verdict, REDIRECT);
    assert_eq!(reply(&rig, &tcp(ORIGIN, CLIENT, ACK)).0.verdict, REDIRECT);
    assert_eq!(reply(&rig, &udp(ORIGIN, "10.99.0.2:9")).0.verdict, SHOT);
    // A route, but to a device that is no LAN.
    let wan = Tap::new("wan0", [2, 0, 0, 0, 0, 0x77]).expect("wan0");
    wan.configure([10, 99, 0, 1]).expect("wan0");
    assert_eq!(reply(&rig, &udp(ORIGIN, "10.99.0.2:9")).0.verdict, SHOT);
    assert_eq!(rig.stat(Stat::ReturnMiss), 3);
    let mut param = rig.param();
    param.lan_ifindex = [0; 8];
    rig.put("PARAM", &0u32, &param);
    assert_eq!(reply(&rig, &p).0.verdict, SHOT);
}

#[test]
fn nothing_else_leaves_the_private_side() {
    let rig = rig!();
    for ethertype in [0x0806, 0x88cc] {
        let mut p = udp(ORIGIN, CLIENT);
        p.ethertype = Some(ethertype);
        assert_eq!(reply(&rig, &p).0.verdict, SHOT);
    }
    let mut cut = udp(ORIGIN, CLIENT).build();
    cut.truncate(14 + 20 + 4);
    assert_eq!(rig.run(DEV0, &cut, &mut Ctx::default()).verdict, SHOT);
}

#[test]
fn the_private_door_opens_for_this_loads_magic_only() {
    let rig = rig!();
    let enter = |mac| {
        let p = udp(CLIENT, ORIGIN).smac(mac).build();
        rig.run("peer_ingress", &p, &mut Ctx::default()).verdict
    };
    assert_eq!(enter([0x02, 0x68, 0x6e, 1, 17, NONCE]), NEXT);
    assert_eq!(enter([0x02, 0x68, 0x6e, 2, 6, NONCE]), NEXT);
    for wrong in [
        [0x02, 0x68, 0x6e, 1, 17, NONCE ^ 1],
        [0x03, 0x68, 0x6e, 1, 17, NONCE],
        [0x02, 0x69, 0x6e, 1, 17, NONCE],
        [0x02, 0x68, 0x6f, 1, 17, NONCE],
        CLIENT_MAC,
    ] {
        assert_eq!(enter(wrong), SHOT);
    }
    assert_eq!(rig.stat(Stat::MagicDrop), 5);
}

#[test]
fn new_sockets_go_to_the_listener_of_their_kind() {
    const AF_INET: u32 = libc::AF_INET as u32;
    const AF_INET6: u32 = libc::AF_INET6 as u32;
    let mut rig = rig!();
    let tcp4 = TcpListener::bind("0.0.0.0:0").expect("tcp4");
    let tcp6 = TcpListener::bind("[::]:0").expect("tcp6");
    let udp4 = UdpSocket::bind("0.0.0.0:0").expect("udp4");
    let udp6 = UdpSocket::bind("[::]:0").expect("udp6");
    assert_eq!(rig.lookup(AF_INET, 6), (0, 0), "no socket: drop");
    assert_eq!(rig.stat(Stat::LookupNosock), 1);
    assert_eq!(rig.events()[0].kind, EVENT_LISTENER_MISSING);
    let all = [
        (SOCK_TCP4, tcp4.as_fd(), AF_INET, 6),
        (SOCK_TCP6, tcp6.as_fd(), AF_INET6, 6),
        (SOCK_UDP4, udp4.as_fd(), AF_INET, 17),
        (SOCK_UDP6, udp6.as_fd(), AF_INET6, 17),
    ];
    for (slot, fd, ..) in all {
        rig.publish(slot, fd);
    }
    let mut seen = Vec::new();
    for (_, fd, family, proto) in all {
        let (verdict, cookie) = rig.lookup(family, proto);
        assert_eq!(verdict, 1, "{LOOKUP}");
        assert_eq!(cookie, socket_cookie(fd), "{family} {proto}");
        assert!(!seen.contains(&cookie));
        seen.push(cookie);
    }
}

fn socket_cookie(fd: std::os::fd::BorrowedFd<'_>) -> u64 {
    use std::os::fd::AsRawFd as _;
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: SO_COOKIE writes one u64.
    let r = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    assert_eq!(r, 0);
    cookie
}
