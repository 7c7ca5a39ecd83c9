//! Packets of the gateway's own processes: `wan_egress`, and what comes back through
//! `wan_ingress` (T51, T59, T62).

use std::net::UdpSocket;

use honk_common::counter::Stat;
use honk_common::flow::{
    FLAG_WAN, FLOW_CLOSING, FlowWord, INBOUND_KIND, RETURN_FROM_WAN, RETURN_L3DEV,
};
use honk_common::key::{FlowKey, to_bytes};
use honk_common::outbound::{BLOCK, CONTROL, DIRECT};
use honk_common::param::{
    FEATURE_ONE_ARMED, GATE_CLOSED, GATE_DRAINING, HANDOFF_LAN, HANDOFF_WAN, MAGIC_MAC, MARK_REPLY,
};
use honk_policy::routing::rule::Test;
use honk_tests::kernel::packet::{ACK, FIN, Packet, SYN, tcp, udp};
use honk_tests::kernel::{Ctx, NEXT, NONCE, PEER_MAC, REDIRECT, Rig, SHOT, Tap, bytes};

use crate::common::*;
use crate::rig;

const WAN: &str = "wan_egress_l2";
const OTHER: &str = "198.51.100.77:443";
const LIMIT: std::time::Duration = std::time::Duration::from_secs(15);
/// Mark of the daemon's sockets in the rig.
const OWN: u32 = 0x100;

fn wan(rig: &Rig, p: &Packet) -> i32 {
    rig.run(WAN, &p.build(), &mut Ctx::default()).outcome()
}

fn from_outside(rig: &Rig, p: &Packet) -> (i32, u32) {
    let mut ctx = Ctx::default();
    let ran = rig.run("wan_ingress_l2", &p.build(), &mut ctx);
    (ran.outcome(), ctx.mark)
}

fn key(p: &Packet) -> Vec<u8> {
    bytes(&p.key())
}

fn reversed(p: &Packet) -> Vec<u8> {
    bytes(&p.key().reversed())
}

#[test]
fn forwarded_and_own_packets_are_not_judged() {
    let mut rig = rig!();
    install_all(&mut rig, BLOCK);
    let p = tcp(CLIENT, ORIGIN, SYN);
    let run = |mark, ingress_ifindex| {
        let mut ctx = Ctx {
            mark,
            ingress_ifindex,
        };
        let verdict = rig.run(WAN, &p.build(), &mut ctx).outcome();
        let expected = if verdict == SHOT { MARK_REPLY } else { mark };
        assert_eq!(ctx.mark, expected, "the mark stays, but of a refusal");
        verdict
    };
    let lan = rig.lan().index();
    assert_eq!(run(0, lan), NEXT);
    assert_eq!(run(OWN, 0), NEXT);
    // Further bits belong to rules; other bits are not ours.
    assert_eq!(run(OWN | 0x17, 0), NEXT);
    assert_eq!(run(0x17, 0), SHOT);
    assert_eq!(rig.stat(Stat::OwnBypass), 2);
    assert_eq!(rig.stat(Stat::PktsWan), 1);
    rig.put("GATE", &0u32, &GATE_CLOSED);
    assert_eq!(run(0, 0), NEXT);
}

#[test]
fn proxied_flows_are_handed_over_and_known() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for (program, l2) in [(WAN, true), ("wan_egress_l3", false)] {
        for p in [
            tcp("8.0.0.2:4000", ORIGIN, SYN),
            udp("8.0.0.2:4000", ORIGIN),
        ] {
            rig.clear("FLOW", 40);
            rig.clear("RETURN", 16);
            let data = if l2 { p.build() } else { p.ip() };
            let ran = rig.run(program, &data, &mut Ctx::default());
            assert_eq!(ran.verdict, REDIRECT, "{program} {p:?}");
            assert_eq!(ran.data[..6], PEER_MAC);
            assert_eq!(ran.data[6..9], MAGIC_MAC);
            assert_eq!(ran.data[9..12], [HANDOFF_WAN, p.proto, NONCE]);
            let entry = flow(&rig, &p).expect("an entry");
            let word = FlowWord::unpack(entry.word);
            assert_eq!((word.ordinal, word.flags & FLAG_WAN), (PROXY, FLAG_WAN));
            // A local process is no station: rules on MAC addresses do not see it.
            assert_eq!(entry.mac, [0; 6]);
            let way = way(&rig, p.src.ip()).expect("a way back");
            let expected = RETURN_FROM_WAN | if l2 { 0 } else { RETURN_L3DEV };
            assert_eq!(way.flags, expected);
            assert_eq!(way.smac, if l2 { p.smac } else { [0; 6] });
        }
    }
    // Established, ending, and unknown.
    let p = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(wan(&rig, &p), REDIRECT);
    assert_eq!(wan(&rig, &tcp(CLIENT, ORIGIN, ACK)), REDIRECT);
    assert_eq!(wan(&rig, &tcp(CLIENT, ORIGIN, FIN | ACK)), REDIRECT);
    assert_eq!(word(&rig, &p).state, FLOW_CLOSING);
    assert_eq!(wan(&rig, &tcp("10.66.0.2:9", ORIGIN, ACK)), NEXT);
    // The LAN side says where it comes from.
    let ran = rig.run(LAN, &tcp(CLIENT, OTHER, SYN).build(), &mut Ctx::default());
    assert_eq!(ran.data[9], HANDOFF_LAN);
}

#[test]
fn direct_leaves_what_lan_direct_leaves() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    assert_eq!(wan(&rig, &tcp(CLIENT, ORIGIN, SYN)), NEXT);
    assert!(no_flows(&rig));
    assert_eq!(wan(&rig, &udp(CLIENT, ORIGIN)), NEXT);
    assert!(rig.is_empty("FLOW", 40));
    assert!(!rig.is_empty("DCACHE", 40));
}

/// The route of a local packet is chosen before the hook: only another socket follows a mark.
#[test]
fn direct_with_a_mark_goes_to_userspace() {
    let mut rig = rig!();
    install(
        &mut rig,
        &rules([marked(line([dport(443)], DIRECT), 0x17)], DIRECT),
        1,
    );
    let p = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(wan(&rig, &p), REDIRECT);
    let word = word(&rig, &p);
    assert_eq!((word.ordinal, word.mark), (CONTROL, 0x17));
}

#[test]
fn queries_of_the_gateway_go_to_userspace() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    assert_eq!(wan(&rig, &udp(CLIENT, "203.0.113.53:53")), REDIRECT);
    assert_eq!(wan(&rig, &tcp(CLIENT, "203.0.113.53:53", SYN)), REDIRECT);
    install(
        &mut rig,
        &rules([must(line([dport(53)], DIRECT))], DIRECT),
        2,
    );
    assert_eq!(wan(&rig, &udp(CLIENT, "203.0.113.53:53")), NEXT);
}

#[test]
fn blocked_and_special_packets() {
    let mut rig = rig!();
    install_all(&mut rig, BLOCK);
    assert_eq!(wan(&rig, &udp(CLIENT, ORIGIN)), SHOT);
    assert_eq!(rig.stat(Stat::BlockReset), 0);
    assert_eq!(wan(&rig, &tcp(CLIENT, ORIGIN, SYN)), SHOT);
    assert_eq!(rig.stat(Stat::BlockReset), 1);
    for dst in ["224.0.0.251:5353", "255.255.255.255:9", "169.254.1.1:80"] {
        assert_eq!(wan(&rig, &udp(CLIENT, dst)), NEXT, "{dst}");
    }
    assert_eq!(wan(&rig, &udp("10.66.0.2:68", "10.66.0.9:67")), NEXT);
    rig.put_raw(
        "LOCAL_ADDR",
        &to_bytes("192.0.2.2".parse().expect("ip")),
        &[1, 0, 0, 0],
    );
    assert_eq!(wan(&rig, &udp(CLIENT, "192.0.2.2:9")), NEXT);
    rig.put("GATE", &0u32, &GATE_DRAINING);
    assert_eq!(wan(&rig, &tcp(CLIENT, ORIGIN, SYN)), NEXT);
}

#[test]
fn test_runs_have_no_process() {
    let mut rig = rig!();
    let set = rules([line([isnt(named("wget"))], 12)], PROXY);
    install(&mut rig, &set, 1);
    for program in [WAN, LAN] {
        let p = tcp(CLIENT, ORIGIN, SYN);
        rig.clear("FLOW", 40);
        let ran = rig.run(program, &p.build(), &mut Ctx::default());
        assert_eq!(ran.verdict, REDIRECT);
        let entry = flow(&rig, &p).expect("an entry");
        assert_eq!((FlowWord::unpack(entry.word).ordinal, entry.pid), (12, 0));
    }
}

fn named(name: &str) -> Test {
    Test::ProcessName(vec![padded(name)])
}

fn padded(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// The first 16 bytes of the file name of this process's first argument.
fn own_name() -> String {
    let path = std::env::args().next().expect("argv[0]");
    let file = path.rsplit('/').next().expect("a name");
    file.chars().take(16).collect()
}

/// Where a new local socket's flow goes, and what the kernel wrote down about it. `thread` is
/// the name of the thread that sends.
fn from_here(rig: &Rig, to: &str, thread: &str) -> Option<honk_common::flow::FlowVal> {
    let to: std::net::SocketAddr = to.parse().expect("an address");
    let send = move || {
        let socket = UdpSocket::bind("10.66.0.2:0").expect("a socket");
        socket.send_to(b"x", to).expect("sent");
        socket.local_addr().expect("an address")
    };
    // A thread of this namespace, with a name of its own.
    let sender = std::thread::Builder::new().name(thread.to_owned());
    let from = sender.spawn(send).expect("a thread").join().expect("sent");
    rig.get("FLOW", &bytes(&FlowKey::new(from, to, 17)))
}

/// The rig with a header-less device whose subnet is 10.66.0.0/24, and process hooks.
fn process_rig(rig: &mut Rig, tgid: u32) -> Tap {
    let tun = Tap::tun("wan0").expect("tun");
    tun.configure([10, 66, 0, 2]).expect("an address");
    tun.up().expect("up");
    // The redirect needs a target that exists.
    let honk0 = Tap::new("honk0", [2, 0, 0, 0, 0x0f, 1]).expect("honk0");
    honk0.up().expect("up");
    let mut param = rig.param();
    param.honk0_ifindex = honk0.index();
    param.own_tgid = tgid;
    // Where names are is the loader's to find; without that the kernel's short name serves.
    rig.put("PARAM", &0u32, &param);
    rig.attach_egress("wan_egress_l3", &tun).expect("attach");
    rig.attach_processes().expect("process hooks");
    std::mem::forget(honk0);
    tun
}

#[test]
fn t50_processes_are_noted_by_socket() {
    let mut rig = rig!();
    let comm = std::fs::read_to_string("/proc/self/comm").expect("comm");
    let _tun = process_rig(&mut rig, 1);
    let set = rules([line([is(named("renamed"))], 10)], PROXY);
    install(&mut rig, &set, 1);
    // Nothing but the thread's name is known without offsets.
    let entry = from_here(&rig, "10.66.0.9:7", "renamed").expect("an entry");
    let word = FlowWord::unpack(entry.word);
    assert_eq!((word.ordinal, entry.pid), (10, std::process::id()));
    assert_eq!(entry.pname, padded("renamed"), "{comm} {}", own_name());
    // A socket that closes is forgotten: as many are known before as after.
    let closed = UdpSocket::bind("10.66.0.2:0").expect("a socket");
    let cookie = rustix::net::sockopt::socket_cookie(&closed).expect("a cookie");
    let known =
        |rig: &Rig| rig.get::<honk_common::flow::CookieVal>("COOKIE", &cookie.to_ne_bytes());
    assert_eq!(known(&rig).expect("noted").tgid, std::process::id());
    drop(closed);
    honk_tests::wait::until("the socket is forgotten", LIMIT, || {
        known(&rig).is_none().then_some(())
    })
    .expect("released");
}

#[test]
fn t51_the_daemons_own_process_passes_without_its_mark() {
    let mut rig = rig!();
    let _tun = process_rig(&mut rig, std::process::id());
    install_all(&mut rig, PROXY);
    assert!(from_here(&rig, "10.66.0.9:7", "any").is_none());
    assert_eq!(rig.stat(Stat::OwnBypass), 1);
    assert!(no_flows(&rig));
}

#[test]
fn replies_to_local_processes_lose_their_mark() {
    let rig = rig!();
    let p = udp(ORIGIN, CLIENT);
    for program in ["wan_ingress_l2", LAN] {
        let mut ctx = Ctx {
            mark: MARK_REPLY | 0x17,
            ..Ctx::default()
        };
        assert_eq!(rig.run(program, &p.build(), &mut ctx).outcome(), NEXT);
        assert_eq!(ctx.mark, 0x17, "{program}");
    }
    assert!(no_flows(&rig));
}

/// Only datagrams for a socket of the gateway are remembered.
#[test]
fn t59_inbound_udp_is_tracked_where_a_socket_waits() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    let here = format!("192.0.2.2:{port}");
    let p = udp(ORIGIN, &here);
    let other = udp(ORIGIN, &format!("192.0.2.2:{}", port ^ 1));
    for _ in 0..2 {
        assert_eq!(from_outside(&rig, &p), (NEXT, 0));
        assert_eq!(from_outside(&rig, &other), (NEXT, 0));
    }
    assert_eq!(rig.stat(Stat::InboundTrack), 1);
    let kept: honk_common::flow::DirectVal = rig.get("DCACHE", &reversed(&p)).expect("an entry");
    assert_eq!(kept.kind, INBOUND_KIND);
    assert!(
        rig.get::<honk_common::flow::DirectVal>("DCACHE", &reversed(&other))
            .is_none()
    );
    // The answer passes although the rules say proxy; other traffic of the socket does not.
    assert_eq!(wan(&rig, &udp(&here, ORIGIN)), NEXT);
    assert_eq!(wan(&rig, &udp(&here, "198.51.100.9:1")), REDIRECT);
    // A proxied flow is never turned into a direct one by its far end.
    let proxied = udp(&here, "198.51.100.10:1");
    assert_eq!(wan(&rig, &proxied), REDIRECT);
    assert_eq!(
        from_outside(&rig, &udp("198.51.100.10:1", &here)),
        (NEXT, 0)
    );
    assert!(
        rig.get::<honk_common::flow::DirectVal>("DCACHE", &key(&proxied))
            .is_none()
    );
    assert_eq!(wan(&rig, &proxied), REDIRECT);
}

#[test]
fn t62_on_one_interface_lan_ingress_tracks_for_local_sockets() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    rig.put_raw(
        "LOCAL_ADDR",
        &to_bytes("192.0.2.2".parse().expect("ip")),
        &[1, 0, 0, 0],
    );
    let here = format!("192.0.2.2:{port}");
    let p = udp(ORIGIN, &here);
    assert_eq!(lan(&rig, &p), NEXT);
    assert_eq!(rig.stat(Stat::InboundTrack), 0, "two interfaces");
    let mut param = rig.param();
    param.features |= FEATURE_ONE_ARMED;
    rig.put("PARAM", &0u32, &param);
    assert_eq!(lan(&rig, &p), NEXT);
    assert_eq!(rig.stat(Stat::InboundTrack), 1);
    assert_eq!(wan(&rig, &udp(&here, ORIGIN)), NEXT);
}

#[test]
fn both_sides_decide_alike_but_for_what_only_one_knows() {
    let mut rig = rig!();
    let set = rules([line([dip(&["198.51.100.0/24"]), dport(443)], 9)], PROXY);
    install(&mut rig, &set, 1);
    for p in [
        tcp(CLIENT, ORIGIN, SYN),
        tcp(CLIENT6, ORIGIN6, SYN),
        udp(CLIENT, "198.51.100.1:80"),
    ] {
        rig.clear("FLOW", size_of::<FlowKey>());
        assert_eq!(lan(&rig, &p), REDIRECT);
        let by_lan = word(&rig, &p);
        rig.clear("FLOW", size_of::<FlowKey>());
        assert_eq!(wan(&rig, &p), REDIRECT);
        let by_wan = word(&rig, &p);
        assert_eq!((by_lan.ordinal, by_lan.mark), (by_wan.ordinal, by_wan.mark));
    }
}
