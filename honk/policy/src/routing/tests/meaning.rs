//! What single rules mean, in tables and reference alike.

use honk_common::outbound::CONTROL;

use super::*;
use crate::routing::{dns_first, rule::DomainTest};

#[test]
fn first_matching_line_wins() {
    let set = rules([
        line([is(Test::DestPort(vec![(80, 80)]))], 2),
        line([is(Test::DestPort(vec![(1, 100)]))], 3),
    ]);
    assert_eq!(outbound(&set, &to("1.2.3.4", 80)), 2);
    assert_eq!(outbound(&set, &to("1.2.3.4", 81)), 3);
    assert_eq!(outbound(&set, &to("1.2.3.4", 101)), 0);
}

// T23
#[test]
fn longer_prefix_of_a_later_line_does_not_hide_a_shorter_one() {
    let set = rules([
        line([is(dip(&["10.0.0.0/8"]))], 2),
        line([is(dip(&["10.1.0.0/16"]))], 3),
    ]);
    assert_eq!(outbound(&set, &to("10.1.2.3", 1)), 2);
}

// T24
#[test]
fn families_never_match_each_others_prefixes() {
    let v4 = rules([line([is(dip(&["0.0.0.0/0"]))], 2)]);
    assert_eq!(outbound(&v4, &to("8.8.8.8", 1)), 2);
    assert_eq!(outbound(&v4, &to("2001:db8::1", 1)), 0);
    let v6 = rules([line([is(dip(&["::/0"]))], 2)]);
    assert_eq!(outbound(&v6, &to("8.8.8.8", 1)), 0);
    assert_eq!(outbound(&v6, &to("2001:db8::1", 1)), 2);
    assert_eq!(outbound(&v6, &to("::1", 1)), 2);
    let mixed = rules([
        line([is(dip(&["::/64", "10.0.0.0/8"]))], 2),
        line([is(dip(&["::/0", "0.0.0.0/0"]))], 3),
    ]);
    assert_eq!(outbound(&mixed, &to("10.9.9.9", 1)), 2);
    assert_eq!(outbound(&mixed, &to("11.9.9.9", 1)), 3);
    assert_eq!(outbound(&mixed, &to("::5", 1)), 2);
    assert_eq!(outbound(&mixed, &to("2001:db8::1", 1)), 3);
}

#[test]
fn conditions_of_one_dimension_on_a_line_are_anded() {
    let set = rules([line(
        [is(dip(&["10.0.0.0/8"])), isnt(dip(&["10.1.0.0/16"]))],
        2,
    )]);
    assert_eq!(outbound(&set, &to("10.2.0.1", 1)), 2);
    assert_eq!(outbound(&set, &to("10.1.0.1", 1)), 0);
    assert_eq!(outbound(&set, &to("11.0.0.1", 1)), 0);
    let ports = rules([line(
        [
            is(Test::DestPort(vec![(10, 30)])),
            is(Test::DestPort(vec![(20, 40)])),
        ],
        2,
    )]);
    assert_eq!(outbound(&ports, &to("1.1.1.1", 15)), 0);
    assert_eq!(outbound(&ports, &to("1.1.1.1", 25)), 2);
    assert_eq!(outbound(&ports, &to("1.1.1.1", 35)), 0);
}

#[test]
fn overlapping_ranges_and_the_last_port_count() {
    let set = rules([line(
        [is(Test::DestPort(vec![(5, 10), (8, 20), (65_535, 65_535)]))],
        2,
    )]);
    for (port, expected) in [
        (4, 0),
        (5, 2),
        (15, 2),
        (20, 2),
        (21, 0),
        (65_534, 0),
        (65_535, 2),
    ] {
        assert_eq!(outbound(&set, &to("1.1.1.1", port)), expected, "{port}");
    }
}

#[test]
fn source_conditions_look_at_the_source() {
    let set = rules([
        line(
            [
                is(sip(&["192.168.1.0/24"])),
                is(Test::SourcePort(vec![(40_000, 40_000)])),
            ],
            2,
        ),
        line([isnt(sip(&["192.168.1.0/24"]))], 3),
    ]);
    assert_eq!(outbound(&set, &to("1.1.1.1", 1)), 2);
    let other_port = FlowFacts {
        sport: 1,
        ..to("1.1.1.1", 1)
    };
    assert_eq!(outbound(&set, &other_port), 0);
    let other_net = FlowFacts {
        src: ip("192.168.2.2"),
        ..to("1.1.1.1", 1)
    };
    assert_eq!(outbound(&set, &other_net), 3);
}

// T28
#[test]
fn packet_without_a_mac_matches_neither_mac_nor_its_negation() {
    let listed = [2, 0, 0, 0, 0, 1];
    let set = rules([
        line([is(Test::Mac(vec![listed]))], 2),
        line([isnt(Test::Mac(vec![listed]))], 3),
    ]);
    assert_eq!(outbound(&set, &to("1.1.1.1", 1)), 2);
    let other = FlowFacts {
        mac: [2, 0, 0, 0, 0, 9],
        ..to("1.1.1.1", 1)
    };
    assert_eq!(outbound(&set, &other), 3);
    let none = FlowFacts {
        mac: [0; 6],
        ..to("1.1.1.1", 1)
    };
    assert_eq!(outbound(&set, &none), 0);
}

#[test]
fn protocol_and_version_share_a_dimension() {
    let udp = Test::L4Proto {
        tcp: false,
        udp: true,
    };
    let v6 = Test::IpVersion {
        v4: false,
        v6: true,
    };
    let set = rules([
        line([is(udp.clone()), is(v6.clone())], 2),
        line([is(udp), isnt(v6)], 3),
    ]);
    let udp_to = |dst| FlowFacts {
        tcp: false,
        ..to(dst, 1)
    };
    assert_eq!(outbound(&set, &udp_to("2001:db8::1")), 2);
    assert_eq!(outbound(&set, &udp_to("1.1.1.1")), 3);
    assert_eq!(outbound(&set, &to("2001:db8::1", 1)), 0);
}

#[test]
fn dscp_is_matched_by_value() {
    let set = rules([line([is(Test::Dscp(vec![0, 46]))], 2)]);
    let with = |dscp| FlowFacts {
        dscp,
        ..to("1.1.1.1", 1)
    };
    assert_eq!(outbound(&set, &with(46)), 2);
    assert_eq!(outbound(&set, &with(0)), 2);
    assert_eq!(outbound(&set, &with(45)), 0);
}

// T29
#[test]
fn must_rules_is_sticky_for_later_lines_only() {
    let set = rules([
        line([is(Test::DestPort(vec![(22, 22)]))], 2),
        must_rules([is(dip(&["10.0.0.0/8"]))]),
        line([is(Test::DestPort(vec![(80, 80)]))], 3),
    ]);
    let got = |dst, port| {
        let v = verdict(&set, &to(dst, port));
        (v.ordinal.0, v.must)
    };
    assert_eq!(got("10.0.0.1", 22), (2, false));
    assert_eq!(got("10.0.0.1", 80), (3, true));
    assert_eq!(got("11.0.0.1", 80), (3, false));
    assert_eq!(got("10.0.0.1", 81), (0, true));
}

#[test]
fn must_line_is_final_and_keeps_its_mark() {
    let mut marked = must(line([is(Test::DestPort(vec![(53, 53)]))], 0));
    marked.action.mark = 7;
    let set = rules([marked, line([], 2)]);
    let v = verdict(&set, &to("1.1.1.1", 53));
    assert_eq!((v.ordinal.0, v.must, v.mark, v.rule), (0, true, 7, 0));
}

#[test]
fn port_53_goes_to_userspace_unless_must() {
    let set = rules([must(line([is(dip(&["10.0.0.0/8"]))], 0)), line([], 2)]);
    let at = |dst, port| dns_first(verdict(&set, &to(dst, port)), port).ordinal.0;
    assert_eq!(at("10.0.0.1", 53), 0);
    assert_eq!(at("11.0.0.1", 53), CONTROL);
    assert_eq!(at("11.0.0.1", 54), 2);
}

#[test]
fn unknown_name_fails_a_domain_test_and_passes_its_negation() {
    let name = || Test::Domain(vec![DomainTest::Suffix("a.b".into())]);
    let set = rules([line([is(name())], 2), line([isnt(name())], 3)]);
    assert_eq!(outbound(&set, &to("1.1.1.1", 1)), 3);
}

#[test]
fn known_name_is_tested_by_the_reference() {
    let set = rules([line(
        [is(Test::Domain(vec![DomainTest::Suffix("a.b".into())]))],
        2,
    )]);
    let oracle = Oracle::new(&set);
    let named = |n: &str| FlowFacts {
        domain: Some(n.into()),
        ..to("1.1.1.1", 1)
    };
    assert_eq!(oracle.eval(&named("x.a.b")).ordinal.0, 2);
    assert_eq!(oracle.eval(&named("x.a.c")).ordinal.0, 0);
}

#[test]
fn known_process_is_tested_by_the_reference_and_unknown_matches_none() {
    let set = rules([
        line(
            [is(Test::ProcessName(vec![padded("curl"), padded("wget")]))],
            2,
        ),
        line([isnt(Test::ProcessName(vec![padded("curl")]))], 3),
    ]);
    assert_eq!(outbound(&set, &to("1.1.1.1", 1)), 3);
    let by = |n| FlowFacts {
        pname: padded(n),
        ..to("1.1.1.1", 1)
    };
    let oracle = Oracle::new(&set);
    assert_eq!(oracle.eval(&by("wget")).ordinal.0, 2);
    assert_eq!(oracle.eval(&by("ssh")).ordinal.0, 3);
}

#[test]
fn must_rules_behind_an_unknown_name_does_not_stick() {
    let name = Test::Domain(vec![DomainTest::Full("a.b".into())]);
    let set = rules([must_rules([is(name)]), line([], 2)]);
    assert!(!verdict(&set, &to("1.1.1.1", 1)).must);
}

#[test]
fn condition_without_values_never_matches() {
    let set = rules([
        line([is(Test::DestPort(vec![]))], 2),
        line([is(dip(&[]))], 3),
        line([is(Test::Dscp(vec![]))], 4),
        line([is(Test::Mac(vec![]))], 5),
        line([isnt(dip(&[])), isnt(Test::DestPort(vec![]))], 6),
    ]);
    assert_eq!(outbound(&set, &to("1.1.1.1", 1)), 6);
}

#[test]
fn renumbering_changes_user_outbounds_only() {
    let set = rules([line([], 2), must_rules([]), line([], 1)]);
    let mapped = set.map_ordinals(|o| Ordinal(o.0 + 40));
    let ordinals: Vec<u8> = mapped.lines.iter().map(|l| l.action.ordinal.0).collect();
    assert_eq!(ordinals, [42, MUST_RULES, 1, 0]);
}
