//! Networks the early drop program may drop datagrams to.

use honk_common::{limits::GUARDED, outbound::BLOCK};

use super::*;
use crate::routing::rule::DomainTest;

fn dip(text: &str) -> Cond {
    is(Test::Dest(vec![net(text)]))
}

/// The guarded and excepted networks of some lines, `+` and `-` before each.
fn guard(lines: Vec<RuleLine>) -> Vec<String> {
    let table = compile(&rules(lines)).unwrap().guard;
    let show = |(key, value): (honk_common::key::LpmKey, u32)| {
        let sign = if value == GUARDED { '+' } else { '-' };
        let ip = honk_common::key::from_bytes(&key.addr);
        let len = key.prefix_len - if ip.is_ipv4() { 96 } else { 0 };
        format!("{sign}{ip}/{len}")
    };
    table.into_iter().map(show).collect()
}

fn blocks(cond: Cond) -> RuleLine {
    line(vec![cond], BLOCK)
}

const NET: &str = "203.0.113.0/24";

#[test]
fn a_plain_block_is_proof() {
    assert_eq!(guard(vec![blocks(dip(NET))]), [format!("+{NET}")]);
    assert!(guard(vec![line(vec![dip(NET)], 2)]).is_empty());
    assert!(guard(vec![line(vec![], BLOCK)]).is_empty());
}

#[test]
fn an_earlier_line_that_may_take_a_datagram_is_none() {
    let udp = |udp: bool| Test::L4Proto { tcp: !udp, udp };
    let name = |n: &str| Test::Domain(vec![DomainTest::Suffix(n.to_owned())]);
    let process = Test::ProcessName(vec![padded("curl")]);
    let port = Test::DestPort(vec![(443, 443)]);
    let cases = [
        (vec![is(port.clone())], 2, false),
        (vec![is(port)], BLOCK, true),
        (vec![is(udp(true))], 2, false),
        (vec![is(udp(false))], 2, true),
        (vec![isnt(udp(true))], 2, true),
        (vec![is(process.clone())], 2, true),
        (vec![isnt(process)], 2, false),
        (vec![is(name("a.b"))], 2, false),
        (vec![is(name("a.b"))], BLOCK, false),
        (
            vec![is(Test::IpVersion {
                v4: false,
                v6: true,
            })],
            2,
            true,
        ),
        (
            vec![is(Test::IpVersion {
                v4: true,
                v6: false,
            })],
            2,
            false,
        ),
        (vec![dip("198.51.100.0/24")], 2, true),
        (vec![isnt(Test::Dest(vec![net("203.0.0.0/16")]))], 2, true),
        (vec![], MUST_RULES, true),
    ];
    for (conds, ordinal, proof) in cases {
        let shown = format!("{conds:?} -> {ordinal}");
        let table = guard(vec![line(conds, ordinal), blocks(dip(NET))]);
        assert_eq!(!table.is_empty(), proof, "{shown}");
    }
}

#[test]
fn inner_networks_are_excepted_and_outer_ones_are_not_implied() {
    let lines = vec![
        line(vec![dip("203.0.113.64/26")], 2),
        blocks(dip("203.0.113.0/24")),
        line(vec![dip("203.0.0.0/16")], 0),
    ];
    assert_eq!(guard(lines), ["+203.0.113.0/24", "-203.0.113.64/26"]);
}

#[test]
fn a_block_for_one_protocol_or_family_counts_for_that() {
    let udp = is(Test::L4Proto {
        tcp: false,
        udp: true,
    });
    assert_eq!(guard(vec![line(vec![dip(NET), udp], BLOCK)]).len(), 1);
    let tcp = is(Test::L4Proto {
        tcp: true,
        udp: false,
    });
    assert!(guard(vec![line(vec![dip(NET), tcp], BLOCK)]).is_empty());
    let v6 = is(Test::IpVersion {
        v4: false,
        v6: true,
    });
    assert!(guard(vec![line(vec![dip(NET), v6.clone()], BLOCK)]).is_empty());
    assert_eq!(
        guard(vec![line(vec![dip("2001:db8::/32"), v6], BLOCK)]).len(),
        1
    );
}
