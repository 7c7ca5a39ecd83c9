//! The classifier on chosen cases (T23, T24, T28, T29) and the name-dependent flags.

use honk_common::flow::FLAG_PRELIM;
use honk_common::outbound::{BLOCK, CONTROL, DIRECT, MUST_RULES};
use honk_common::param::{OFFLOAD_DIRECT, SNI_STRICT};
use honk_policy::routing::rule::{DomainTest, Test};
use honk_tests::kernel::packet::{CLIENT_MAC, Packet, SYN, tcp, udp};
use honk_tests::kernel::{Ctx, NEXT, REDIRECT, Rig};

use crate::common::*;
use crate::rig;

const A: u8 = 10;
const B: u8 = 11;

/// Ordinal the kernel gives a new flow.
#[track_caller]
fn outcome(rig: &Rig, p: &Packet) -> u8 {
    rig.clear("FLOW", 40);
    assert_eq!(lan(rig, p), REDIRECT, "{p:?}");
    word(rig, p).ordinal
}

fn to(dst: &str) -> Packet {
    let src = if dst.starts_with('[') {
        CLIENT6
    } else {
        CLIENT
    };
    tcp(src, dst, SYN)
}

#[test]
fn t23_a_longer_prefix_of_a_later_rule_does_not_hide_a_shorter_one() {
    let mut rig = rig!();
    let set = rules(
        [
            line([dip(&["10.0.0.0/8"])], A),
            line([dip(&["10.1.0.0/16"])], B),
        ],
        PROXY,
    );
    install(&mut rig, &set, 1);
    assert_eq!(outcome(&rig, &to("10.1.2.3:80")), A);
    assert_eq!(outcome(&rig, &to("10.200.2.3:80")), A);
    assert_eq!(outcome(&rig, &to("11.1.2.3:80")), PROXY);
    let set = rules(
        [
            line([dip(&["10.1.0.0/16"])], B),
            line([dip(&["10.0.0.0/8"])], A),
        ],
        PROXY,
    );
    install(&mut rig, &set, 2);
    assert_eq!(outcome(&rig, &to("10.1.2.3:80")), B);
    assert_eq!(outcome(&rig, &to("10.2.2.3:80")), A);
}

#[test]
fn t24_families_do_not_mix() {
    let mut rig = rig!();
    let set = rules(
        [line([dip(&["0.0.0.0/0"])], A), line([dip(&["::/0"])], B)],
        PROXY,
    );
    install(&mut rig, &set, 1);
    assert_eq!(outcome(&rig, &to("203.0.113.1:80")), A);
    assert_eq!(outcome(&rig, &to(ORIGIN6)), B);
    // Alone, ::/0 still means IPv6.
    let set = rules([line([dip(&["::/0"])], B)], PROXY);
    install(&mut rig, &set, 2);
    assert_eq!(outcome(&rig, &to("203.0.113.1:80")), PROXY);
    assert_eq!(outcome(&rig, &to(ORIGIN6)), B);
    let set = rules(
        [line([dip(&["203.0.113.0/24", "2001:db8::/32"])], A)],
        PROXY,
    );
    install(&mut rig, &set, 3);
    assert_eq!(outcome(&rig, &to("203.0.113.9:80")), A);
    assert_eq!(outcome(&rig, &to(ORIGIN6)), A);
    assert_eq!(outcome(&rig, &to("203.0.112.9:80")), PROXY);
    assert_eq!(outcome(&rig, &to("[2001:db9::1]:80")), PROXY);
}

#[test]
fn t28_packets_without_mac_match_no_mac_condition() {
    let mut rig = rig!();
    for (cond, with, without) in [
        (is(Test::Mac(vec![CLIENT_MAC])), A, PROXY),
        (isnt(Test::Mac(vec![CLIENT_MAC])), PROXY, PROXY),
        (isnt(Test::Mac(vec![[2, 9, 9, 9, 9, 9]])), A, PROXY),
    ] {
        install(&mut rig, &rules([line([cond.clone()], A)], PROXY), 1);
        assert_eq!(outcome(&rig, &to(ORIGIN)), with, "{cond:?}");
        // A test run takes the ethertype from bytes 12 and 13, here the source's "8.0".
        let p = udp("8.0.0.2:4000", ORIGIN);
        rig.clear("FLOW", 40);
        let ran = rig.run("lan_ingress_l3", &p.ip(), &mut Ctx::default());
        assert_eq!(ran.verdict, REDIRECT);
        assert_eq!(word(&rig, &p).ordinal, without, "{cond:?}");
    }
}

#[test]
fn t29_must_rules_is_sticky_for_later_lines_of_one_evaluation() {
    let mut rig = rig!();
    let set = rules(
        [
            line([dip(&["10.1.0.0/16"])], MUST_RULES),
            line([dport(80)], A),
        ],
        B,
    );
    install(&mut rig, &set, 1);
    let must = |p: &Packet| {
        outcome(&rig, p);
        word(&rig, p).flags & honk_common::flow::FLAG_MUST != 0
    };
    assert!(must(&to("10.1.2.3:80")));
    assert!(must(&to("10.1.2.3:81")));
    assert!(!must(&to("10.2.2.3:80")));
    assert_eq!(outcome(&rig, &to("10.1.2.3:80")), A);
    assert_eq!(outcome(&rig, &to("10.1.2.3:81")), B);
}

#[test]
fn every_dimension_selects() {
    let mut rig = rig!();
    let dscp46 = {
        let mut p = to(ORIGIN);
        p.dscp = 46;
        p
    };
    let cases: [(Test, Packet, Packet); 7] = [
        (
            Test::Dest(vec![net("198.51.100.0/24")]),
            to(ORIGIN),
            to("198.51.99.1:443"),
        ),
        (
            Test::Source(vec![net("10.66.0.2/32")]),
            to(ORIGIN),
            tcp("10.66.0.3:40001", ORIGIN, SYN),
        ),
        (
            Test::DestPort(vec![(443, 443)]),
            to(ORIGIN),
            to("198.51.100.131:444"),
        ),
        (
            Test::SourcePort(vec![(40_000, 40_001)]),
            to(ORIGIN),
            tcp("10.66.0.2:40002", ORIGIN, SYN),
        ),
        (
            Test::L4Proto {
                tcp: true,
                udp: false,
            },
            to(ORIGIN),
            udp(CLIENT, ORIGIN),
        ),
        (
            Test::IpVersion {
                v4: true,
                v6: false,
            },
            to(ORIGIN),
            to(ORIGIN6),
        ),
        (Test::Dscp(vec![46]), dscp46, to(ORIGIN)),
    ];
    for (test, hit, miss) in cases {
        install(&mut rig, &rules([line([is(test.clone())], A)], B), 1);
        assert_eq!(outcome(&rig, &hit), A, "{test:?}");
        assert_eq!(outcome(&rig, &miss), B, "{test:?}");
        install(&mut rig, &rules([line([isnt(test.clone())], A)], B), 2);
        assert_eq!(outcome(&rig, &hit), B, "not {test:?}");
        assert_eq!(outcome(&rig, &miss), A, "not {test:?}");
    }
}

#[test]
fn the_last_of_1024_lines_is_found() {
    let mut rig = rig!();
    let lines: Vec<_> = (0..1023u16).map(|i| line([dport(1000 + i)], A)).collect();
    install(&mut rig, &rules(lines, B), 1);
    for port in [1000, 1063, 1064, 1500, 2021, 2022] {
        let p = to(&format!("198.51.100.9:{port}"));
        assert_eq!(outcome(&rig, &p), A);
        assert_eq!(flow(&rig, &p).expect("entry").rule, port - 1000);
    }
    let p = to("198.51.100.9:2023");
    assert_eq!(outcome(&rig, &p), B);
    assert_eq!(flow(&rig, &p).expect("entry").rule, 1023);
}

#[test]
fn a_flip_changes_new_flows_at_once_and_both_ways() {
    let mut rig = rig!();
    install(&mut rig, &rules([line([dport(443)], A)], BLOCK), 6);
    install(&mut rig, &rules([line([dport(443)], B)], BLOCK), 7);
    assert_eq!(outcome(&rig, &to(ORIGIN)), B);
    rig.put("ROUTE_SEL", &0u32, &6u32);
    assert_eq!(outcome(&rig, &to(ORIGIN)), A);
    assert_eq!(flow(&rig, &to(ORIGIN)).expect("entry").generation, 6);
}

#[test]
fn strict_mode_asks_userspace_when_a_name_could_change_direct() {
    let mut rig = rig!();
    rig.put("FLAGS", &0u32, &(OFFLOAD_DIRECT | SNI_STRICT));
    let name = is(Test::Domain(vec![DomainTest::Suffix("example.org".into())]));
    let set = rules(
        [
            line([dip(&["198.51.100.0/24"])], DIRECT),
            must(line([dport(99)], DIRECT)),
            line([name, dport(443)], A),
        ],
        DIRECT,
    );
    install(&mut rig, &set, 1);
    // Decided before any name rule; excluded by the port; must.
    assert_eq!(lan(&rig, &to(ORIGIN)), NEXT);
    assert_eq!(lan(&rig, &to("203.0.113.1:80")), NEXT);
    assert_eq!(lan(&rig, &to("203.0.113.1:99")), NEXT);
    assert_eq!(outcome(&rig, &to("203.0.113.1:443")), CONTROL);
    let w = word(&rig, &to("203.0.113.1:443"));
    assert_eq!(w.flags & FLAG_PRELIM, FLAG_PRELIM);
    rig.put("FLAGS", &0u32, &OFFLOAD_DIRECT);
    rig.clear("FLOW", 40);
    assert_eq!(lan(&rig, &to("203.0.113.1:443")), NEXT);
}
