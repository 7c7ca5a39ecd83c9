//! ICMP errors about proxied flows belong to the socket in the private namespace (1.8).

use honk_common::counter::Stat;
use honk_common::outbound::{BLOCK, DIRECT};
use honk_tests::kernel::packet::{ACK, icmp_error, tcp, udp};
use honk_tests::kernel::{Ctx, NEXT, NONCE, REDIRECT};

use crate::common::*;
use crate::rig;

#[test]
fn errors_about_proxied_flows_are_handed_over() {
    let rig = rig!();
    put_flow(&rig, &tcp(CLIENT, ORIGIN, ACK), &entry(PROXY));
    put_flow(&rig, &udp(CLIENT6, ORIGIN6), &entry(PROXY));
    let about_tcp = tcp(ORIGIN, CLIENT, ACK);
    let about_udp = udp(ORIGIN6, CLIENT6);
    for kind in [3, 11, 12] {
        let p = icmp_error(kind, &about_tcp);
        let ran = rig.run(LAN, &p.build(), &mut Ctx::default());
        assert_eq!(ran.verdict, REDIRECT, "{kind}");
        assert_eq!(ran.data[6..12], [0x02, 0x68, 0x6e, 1, 6, NONCE]);
        assert_eq!(ran.data[14..], p.build()[14..]);
    }
    for kind in [1, 2, 3, 4] {
        assert_eq!(lan(&rig, &icmp_error(kind, &about_udp)), REDIRECT, "{kind}");
    }
    assert_eq!(rig.stat(Stat::IcmpRedirect), 7);
}

#[test]
fn other_errors_pass() {
    let rig = rig!();
    let (t, u) = (tcp(CLIENT, ORIGIN, ACK), udp(CLIENT6, ORIGIN6));
    put_flow(&rig, &t, &entry(PROXY));
    put_flow(&rig, &u, &entry(PROXY));
    for kind in [0, 4, 5, 8] {
        assert_eq!(
            lan(&rig, &icmp_error(kind, &tcp(ORIGIN, CLIENT, ACK))),
            NEXT
        );
    }
    for kind in [0, 5, 128, 137] {
        assert_eq!(lan(&rig, &icmp_error(kind, &udp(ORIGIN6, CLIENT6))), NEXT);
    }
    // The quoted packet was not from the origin.
    assert_eq!(lan(&rig, &icmp_error(3, &tcp(CLIENT, ORIGIN, ACK))), NEXT);
    assert_eq!(lan(&rig, &icmp_error(3, &udp(ORIGIN, CLIENT))), NEXT);
    for ordinal in [DIRECT, BLOCK] {
        put_flow(&rig, &t, &entry(ordinal));
        assert_eq!(lan(&rig, &icmp_error(3, &tcp(ORIGIN, CLIENT, ACK))), NEXT);
    }
}

#[test]
fn a_quoted_header_with_options_is_understood() {
    let rig = rig!();
    put_flow(&rig, &tcp(CLIENT, ORIGIN, ACK), &entry(PROXY));
    let mut about = tcp(ORIGIN, CLIENT, ACK);
    about.options = 12;
    let mut p = icmp_error(3, &about);
    p.options = 0;
    assert_eq!(lan(&rig, &p), REDIRECT);
}
