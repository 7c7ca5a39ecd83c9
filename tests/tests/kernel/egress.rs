//! `lan_egress`: inbound UDP tracking, and the gateway's own NDP redirects.

use honk_common::counter::Stat;
use honk_common::flow::{DirectVal, INBOUND_KIND};
use honk_common::key::FlowKey;
use honk_tests::kernel::packet::{ACK, Packet, other, tcp, udp};
use honk_tests::kernel::{Ctx, HONK0, NEXT, REDIRECT, Rig, SHOT, bytes};

use crate::common::*;
use crate::rig;

const WAN: u32 = 5;
const EGRESS: &str = "lan_egress_l2";

fn out(rig: &Rig, p: &Packet, from: u32) -> i32 {
    let mut ctx = Ctx {
        ingress_ifindex: from,
        ..Ctx::default()
    };
    rig.run(EGRESS, &p.build(), &mut ctx).verdict
}

fn tracked(rig: &Rig, key: &FlowKey) -> Option<DirectVal> {
    rig.get("DCACHE", &bytes(key))
}

#[test]
fn a_datagram_from_outside_makes_its_answers_direct() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for (client, origin) in [(CLIENT, ORIGIN), (CLIENT6, ORIGIN6)] {
        let answer = udp(client, origin);
        assert_eq!(out(&rig, &udp(origin, client), WAN), NEXT);
        let d = tracked(&rig, &answer.key()).expect("tracked");
        assert_eq!(d.kind, INBOUND_KIND);
        assert_eq!(lan(&rig, &answer), NEXT);
        // Seen again: not written again.
        assert_eq!(out(&rig, &udp(origin, client), WAN), NEXT);
        assert_eq!(tracked(&rig, &answer.key()).expect("tracked"), d);
    }
    assert_eq!(rig.stat(Stat::InboundTrack), 2);
}

#[test]
fn t30_a_late_reply_of_an_expired_flow_makes_nothing_direct() {
    let mut rig = rig!();
    install_all(&mut rig, PROXY);
    for (client, origin) in [(CLIENT, ORIGIN), (CLIENT6, ORIGIN6)] {
        assert_eq!(out(&rig, &udp(origin, client), HONK0), NEXT);
        assert_eq!(lan(&rig, &udp(client, origin)), REDIRECT);
    }
}

#[test]
fn proxied_replies_and_known_flows_are_not_tracked() {
    let rig = rig!();
    let reply = udp(ORIGIN, CLIENT);
    assert_eq!(out(&rig, &reply, HONK0), NEXT);
    let p = udp(CLIENT, ORIGIN);
    assert!(tracked(&rig, &p.key()).is_none());
    put_flow(&rig, &p, &entry(PROXY));
    assert_eq!(out(&rig, &reply, WAN), NEXT);
    assert!(tracked(&rig, &p.key()).is_none());
}

#[test]
fn tcp_dns_and_special_traffic_is_not_tracked() {
    let rig = rig!();
    for p in [
        tcp(ORIGIN, CLIENT, ACK),
        udp("198.51.100.1:53", CLIENT),
        udp(ORIGIN, "10.66.0.2:53"),
        udp("10.66.0.1:67", "10.66.0.2:68"),
        udp(ORIGIN, "224.0.0.251:5353"),
        udp("[fe80::1]:9", CLIENT6),
    ] {
        assert_eq!(out(&rig, &p, WAN), NEXT);
        assert!(no_flows(&rig), "{p:?}");
    }
}

#[test]
fn own_ndp_redirects_are_dropped_and_forwarded_ones_pass() {
    let rig = rig!();
    let redirect = |kind| {
        let mut p = other("[fe80::1]:0", CLIENT6, 58);
        p.payload[0] = kind;
        p
    };
    assert_eq!(out(&rig, &redirect(137), 0), SHOT);
    assert_eq!(rig.stat(Stat::NdpRedirectDrop), 1);
    assert_eq!(out(&rig, &redirect(137), WAN), NEXT);
    for kind in [133, 134, 135, 136] {
        assert_eq!(out(&rig, &redirect(kind), 0), NEXT);
    }
    // UDP whose first byte happens to be 137.
    assert_eq!(out(&rig, &udp("[fd66::1]:35072", CLIENT6), 0), NEXT);
}

#[test]
fn a_closed_gate_does_nothing() {
    let rig = rig!();
    rig.put("GATE", &0u32, &0u32);
    assert_eq!(out(&rig, &udp(ORIGIN, CLIENT), WAN), NEXT);
    assert!(no_flows(&rig));
}
