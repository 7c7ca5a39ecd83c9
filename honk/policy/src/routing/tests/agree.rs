//! Tables and reference agree on random rules and packets.
//!
//! Values come from small pools so that prefixes nest, ranges overlap, negations meet in
//! one dimension and packets hit what rules say.

use proptest::{collection::vec, prelude::*, sample::select};

use honk_common::{limits::GUARDED, outbound::BLOCK};

use super::*;
use crate::routing::{eval::longest, is_sensitive, rule::DomainTest};

const RULE_SETS: u32 = 2000;
const PACKETS: usize = 16;
const NAMES: [&str; 5] = ["a.b", "x.a.b", "d.c", "c", "elsewhere.org"];

fn prefix() -> impl Strategy<Value = Prefix> {
    let seeds = vec![
        ip("10.1.2.3"),
        ip("10.1.128.0"),
        ip("10.200.0.1"),
        ip("203.0.113.9"),
        ip("2001:db8::1"),
        ip("2001:db8:0:1::1"),
        ip("::1"),
    ];
    (select(seeds), 0..=128u8).prop_map(|(addr, len)| {
        // Half of the lengths are where IPv4 nests.
        let v4 = addr[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let len = if v4 && len % 8 != 0 {
            96 + len % 33
        } else {
            len
        };
        let addr = crate::routing::prefix::mask(u128::from_be_bytes(addr), len);
        Prefix {
            addr: addr.to_be_bytes(),
            len,
        }
    })
}

fn range() -> impl Strategy<Value = (u16, u16)> {
    let ends = vec![0, 1, 53, 79, 80, 443, 444, 1000, 65_534, 65_535];
    (select(ends.clone()), select(ends)).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn mac() -> impl Strategy<Value = [u8; 6]> {
    (0..4u8).prop_map(|last| [0, 0, 0, 0, 0, last])
}

fn pair() -> impl Strategy<Value = (bool, bool)> {
    select(vec![(true, false), (false, true), (true, true)])
}

fn test() -> impl Strategy<Value = Test> {
    let domain = vec(select(vec!["a.b", "x.a.b", "c", "d.c"]), 0..3).prop_map(|names| {
        let tests = names.into_iter().map(|n| DomainTest::Suffix(n.into()));
        Test::Domain(tests.collect())
    });
    prop_oneof![
        6 => vec(prefix(), 0..5).prop_map(Test::Dest),
        3 => vec(prefix(), 0..4).prop_map(Test::Source),
        3 => vec(range(), 0..4).prop_map(Test::DestPort),
        2 => vec(range(), 1..3).prop_map(Test::SourcePort),
        1 => pair().prop_map(|(tcp, udp)| Test::L4Proto { tcp, udp }),
        1 => pair().prop_map(|(v4, v6)| Test::IpVersion { v4, v6 }),
        2 => vec(mac(), 0..3).prop_map(Test::Mac),
        1 => vec(select(vec![0, 1, 46, 63]), 0..3).prop_map(Test::Dscp),
        2 => domain,
        2 => vec(select(vec![padded("curl"), padded("wget"), [0; 16]]), 0..3).prop_map(Test::ProcessName),
    ]
}

fn rule_line() -> impl Strategy<Value = RuleLine> {
    let cond = (any::<bool>(), test()).prop_map(|(not, test)| Cond { not, test });
    let ordinals = select(vec![0, 1, 2, 3, 4, 5, MUST_RULES, MUST_RULES]);
    (vec(cond, 0..4), ordinals, any::<bool>(), 0..3u32).prop_map(|(conds, ordinal, must, mark)| {
        let mut line = line(conds, ordinal);
        line.action.must = must;
        line.action.mark = mark;
        line
    })
}

fn address() -> impl Strategy<Value = [u8; 16]> {
    let near = vec![
        ip("10.1.2.3"),
        ip("10.1.2.200"),
        ip("10.1.129.1"),
        ip("10.200.0.1"),
        ip("203.0.113.9"),
        ip("2001:db8::1"),
        ip("2001:db8:0:1::77"),
        ip("::1"),
        ip("::fffe:0:1"),
    ];
    // A flipped bit leaves some of the prefixes around the address.
    (select(near), 0..=128u32).prop_map(|(addr, bit)| {
        let flip = 1u128.checked_shl(bit).unwrap_or(0);
        (u128::from_be_bytes(addr) ^ flip).to_be_bytes()
    })
}

fn packet() -> impl Strategy<Value = FlowFacts> {
    let port = || prop_oneof![3 => select(vec![0, 1, 53, 80, 443, 500, 65_535]), 1 => any::<u16>()];
    let dscp = select(vec![0, 1, 2, 46, 63]);
    let process = select(vec![[0; 16], padded("curl"), padded("ssh")]);
    (
        address(),
        address(),
        port(),
        port(),
        any::<bool>(),
        mac(),
        dscp,
        process,
    )
        .prop_map(
            |(src, dst, sport, dport, tcp, mac, dscp, pname)| FlowFacts {
                src,
                dst,
                sport,
                dport,
                tcp,
                mac,
                dscp,
                pname,
                domain: None,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(RULE_SETS))]

    #[test]
    fn tables_answer_like_the_reference(
        lines in vec(rule_line(), 0..12),
        packets in vec(packet(), PACKETS),
    ) {
        let set = rules(lines);
        let tables = compile(&set).unwrap();
        let oracle = Oracle::new(&set);
        for packet in &packets {
            let tables = eval_tables(&tables, packet, None);
            prop_assert_eq!(tables, oracle.eval(packet), "{:?}", packet);
        }
    }

    /// What the early drop program drops can only be blocked, whatever its name.
    #[test]
    fn guarded_datagrams_are_blocked(
        lines in vec(rule_line(), 0..8),
        packet in packet(),
        owners in vec(select(NAMES.to_vec()), 0..3),
    ) {
        let set = rules(lines);
        let tables = compile(&set).unwrap();
        let datagram = FlowFacts { tcp: false, pname: [0; 16], ..packet };
        let guarded = longest(&tables.guard, &datagram.dst) == Some(GUARDED);
        if guarded && datagram.dport != 53 {
            let oracle = Oracle::new(&set);
            for name in [None].into_iter().chain(NAMES.map(Some)) {
                let named = FlowFacts { domain: name.map(Into::into), ..datagram.clone() };
                prop_assert_eq!(oracle.eval(&named).ordinal.0, BLOCK, "{:?} {:?}", name, named);
            }
            let calls: Vec<_> = owners.iter().map(|n| oracle.domain_calls(n)).collect();
            let known = oracle.domain_value(&calls);
            prop_assert!(!is_sensitive(&tables, &datagram, known.as_ref()));
        }
    }

    /// A verdict that is called insensitive is the one of every name the address may have.
    #[test]
    fn names_change_only_what_is_called_sensitive(
        lines in vec(rule_line(), 0..8),
        packet in packet(),
        owners in vec(select(NAMES.to_vec()), 0..3),
    ) {
        let set = rules(lines);
        let tables = compile(&set).unwrap();
        let oracle = Oracle::new(&set);
        let calls: Vec<_> = owners.iter().map(|n| oracle.domain_calls(n)).collect();
        let known = oracle.domain_value(&calls);
        prop_assert_eq!(known.map_or(0, |v| v.owners as usize), owners.len());
        let verdict = eval_tables(&tables, &packet, known.as_ref());
        let sensitive = is_sensitive(&tables, &packet, known.as_ref());
        let possible = if owners.is_empty() { &NAMES[..] } else { &owners[..] };
        for name in possible {
            let named = FlowFacts { domain: Some((*name).into()), ..packet.clone() };
            if owners.len() == 1 || !sensitive {
                prop_assert_eq!(verdict, oracle.eval(&named), "{} {:?}", name, packet);
            }
        }
        prop_assert!(owners.len() != 1 || !sensitive);
    }
}
