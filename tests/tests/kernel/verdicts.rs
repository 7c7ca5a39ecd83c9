//! L0, L1, L7 and L11: the gate, marks, and what each outcome leaves behind.

use honk_common::counter::Stat;
use honk_common::event::{EVENT_BLOCKED, EVENT_FLOW_OVERFLOW};
use honk_common::flow::{DIRECT_KIND, DirectVal, FLAG_MUST, FLAG_V6, FLOW_ACTIVE};
use honk_common::outbound::{BLOCK, CONTROL, DIRECT};
use honk_common::param::{GATE_CLOSED, GATE_DRAINING, MARK_CLASSIFIED, MARK_REPLY, OFFLOAD_ALL};
use honk_tests::kernel::packet::{ACK, CLIENT_MAC, SYN, tcp, udp};
use honk_tests::kernel::{Ctx, GATEWAY_MAC, NEXT, NONCE, PEER_MAC, REDIRECT, Rig, SHOT, bytes};
use honk_tests::skip::without_root;

use crate::common::*;
use crate::rig;

#[test]
fn a_closed_gate_passes_everything_untouched() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    rig.put("GATE", &0u32, &GATE_CLOSED);
    let p = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(
        lan_marked(&rig, &p, MARK_CLASSIFIED),
        (NEXT, MARK_CLASSIFIED)
    );
    assert!(no_flows(&rig));
    assert_eq!(rig.stat(Stat::PktsLan), 0);
}

#[test]
fn a_draining_gate_serves_known_flows_and_passes_new_ones() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    rig.put("GATE", &0u32, &GATE_DRAINING);
    let known = tcp(CLIENT, ORIGIN, ACK);
    put_flow(&rig, &known, &entry(PROXY));
    assert_eq!(lan(&rig, &known), REDIRECT);
    let known = udp(CLIENT, ORIGIN);
    put_flow(&rig, &known, &entry(PROXY));
    assert_eq!(lan(&rig, &known), REDIRECT);
    for new in [
        tcp("10.66.0.2:40002", ORIGIN, SYN),
        udp("10.66.0.2:40002", ORIGIN),
        udp(CLIENT, "198.51.100.131:53"),
    ] {
        assert_eq!(lan(&rig, &new), NEXT);
        assert!(flow(&rig, &new).is_none());
    }
    assert_eq!(rig.stat(Stat::NewFlows), 0);
}

#[test]
fn t60_marks_of_the_datapath_are_cleared_and_end_the_classification() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    let p = udp(CLIENT, ORIGIN);
    assert_eq!(lan_marked(&rig, &p, MARK_CLASSIFIED | 5), (NEXT, 5));
    assert_eq!(lan_marked(&rig, &p, MARK_REPLY | 6), (NEXT, 6));
    assert!(no_flows(&rig));
}

#[test]
fn direct_tcp_leaves_no_state() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    let syn = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(lan_marked(&rig, &syn, 9), (NEXT, 9));
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, ACK)), NEXT);
    assert!(no_flows(&rig));
    assert!(way(&rig, syn.src.ip()).is_none());
    assert_eq!(rig.stat(Stat::DirectNew), 1);
    assert_eq!(rig.stat(Stat::NoflowPass), 1);
}

#[test]
fn direct_udp_is_cached_until_the_rules_change() {
    let mut rig = rig!();
    install_all(&mut rig, DIRECT);
    let p = udp(CLIENT, ORIGIN);
    assert_eq!(lan(&rig, &p), NEXT);
    let cached: DirectVal = rig.get("DCACHE", &bytes(&p.key())).expect("cached");
    assert_eq!((cached.kind, cached.generation), (DIRECT_KIND, 1));
    assert_eq!(lan(&rig, &p), NEXT);
    assert_eq!(rig.stat(Stat::NewFlows), 1);
    assert_eq!(rig.traffic(DIRECT).tx_packets, 2);

    install(&mut rig, &rules([], PROXY), 2);
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert_eq!(word(&rig, &p).ordinal, PROXY);
}

#[test]
fn direct_with_mark_marks_every_packet() {
    let mut rig = rig!();
    install(&mut rig, &rules([marked(line([], DIRECT), 0x42)], BLOCK), 1);
    let syn = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(lan_marked(&rig, &syn, 0), (NEXT, 0x42));
    let w = word(&rig, &syn);
    assert_eq!((w.ordinal, w.mark), (DIRECT, 0x42));
    assert_eq!(lan_marked(&rig, &tcp(CLIENT, ORIGIN, ACK), 0), (NEXT, 0x42));
    let d = udp(CLIENT6, ORIGIN6);
    assert_eq!(lan_marked(&rig, &d, 0), (NEXT, 0x42));
    assert_eq!(lan_marked(&rig, &d, 0), (NEXT, 0x42));
    assert!(way(&rig, syn.src.ip()).is_none());
    assert_eq!(rig.traffic(DIRECT).tx_packets, 4);
}

#[test]
fn block_drops_and_tells_at_most_64_times_a_second() {
    let mut rig = rig!();
    install_all(&mut rig, BLOCK);
    let p = udp(CLIENT, ORIGIN);
    let mut ctx = Ctx::default();
    let ran = rig.repeat(LAN, &p.build(), &mut ctx, 100);
    assert_eq!(ran.verdict, SHOT);
    assert!(no_flows(&rig));
    assert_eq!(rig.stat(Stat::Block), 100);
    let events = rig.events();
    assert_eq!(events.len(), 64);
    assert_eq!(rig.stat(Stat::EventDrop), 36);
    let e = events[0];
    let k = p.key();
    assert_eq!(
        (e.kind, e.ordinal, e.rule, e.proto),
        (EVENT_BLOCKED, BLOCK, 0, 17)
    );
    assert_eq!(
        (e.src, e.dst, e.sport, e.dport),
        (k.src, k.dst, k.sport, k.dport)
    );
}

#[test]
fn a_proxied_flow_gets_entry_return_and_handoff() {
    let mut rig = rig!();
    install(
        &mut rig,
        &rules([must(marked(line([dport(443)], PROXY), 3))], DIRECT),
        5,
    );
    let mut p = tcp(CLIENT6, ORIGIN6, SYN);
    p.dscp = 46;
    let ran = rig.run(LAN, &p.build(), &mut Ctx::default());
    assert_eq!(ran.verdict, REDIRECT);
    assert_eq!(ran.data[..6], PEER_MAC);
    assert_eq!(ran.data[6..12], [0x02, 0x68, 0x6e, 1, 6, NONCE]);
    assert_eq!(ran.data[12..], p.build()[12..]);

    let f = flow(&rig, &p).expect("entry");
    let w = word(&rig, &p);
    assert_eq!((w.ordinal, w.mark, w.dscp), (PROXY, 3, 46));
    assert_eq!((w.flags, w.state), (FLAG_MUST | FLAG_V6, FLOW_ACTIVE));
    assert_eq!((f.isn, f.generation, f.rule), (1000, 5, 0));
    assert_eq!(
        (f.mac, f.gw_mac, f.ifindex),
        (CLIENT_MAC, GATEWAY_MAC, rig.lan().index())
    );
    assert!(now() - f.last_seen_ns < 10_000_000_000);

    let r = way(&rig, p.src.ip()).expect("return");
    assert_eq!(
        (r.smac, r.dmac, r.ifindex),
        (CLIENT_MAC, GATEWAY_MAC, rig.lan().index())
    );
    assert_eq!((r.flags, r.vlan), (0, 0));
    assert_eq!(rig.traffic(PROXY).tx_packets, 1);
    assert_eq!(rig.traffic(PROXY).tx_bytes, p.build().len() as u64);
    assert_eq!(rig.stat(Stat::ProxyNew), 1);
}

#[test]
fn without_rules_userspace_decides_and_never_direct() {
    let rig = rig!();
    rig.put("FLAGS", &0u32, &OFFLOAD_ALL);
    let p = tcp(CLIENT, ORIGIN, SYN);
    assert_eq!(lan(&rig, &p), REDIRECT);
    assert_eq!(word(&rig, &p).ordinal, CONTROL);
    assert_eq!(rig.stat(Stat::RouteNomatch), 1);
}

#[test]
fn a_full_flow_table_drops_proxied_and_passes_direct() {
    if without_root("a_full_flow_table_drops_proxied_and_passes_direct") {
        return;
    }
    let mut rig = Rig::with_flow_entries(1).expect("loads");
    install(
        &mut rig,
        &rules([marked(line([dport(80)], DIRECT), 9)], PROXY),
        1,
    );
    assert_eq!(lan(&rig, &tcp(CLIENT, ORIGIN, SYN)), REDIRECT);
    let second = tcp("10.66.0.2:40002", ORIGIN, SYN);
    assert_eq!(lan(&rig, &second), SHOT);
    assert!(flow(&rig, &second).is_none());
    assert_eq!(rig.stat(Stat::FlowOverflow), 1);
    assert_eq!(rig.events()[0].kind, EVENT_FLOW_OVERFLOW);
    let direct = tcp(CLIENT, "198.51.100.131:80", SYN);
    assert_eq!(lan_marked(&rig, &direct, 0), (NEXT, 9));
    assert_eq!(rig.stat(Stat::FlowOverflow), 2);
}
