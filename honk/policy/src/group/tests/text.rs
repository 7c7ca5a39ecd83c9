//! From configuration text to the leaf of a flow, through every room of the package.

use honk_common::key::to_bytes;
use honk_grammar::parse_text;

use super::*;
use crate::{
    config::lower,
    routing::{compile, eval_tables, rule::FlowFacts},
};

/// Counts up, so that ids differ and tests repeat.
fn ids() -> impl FnMut() -> Uuid {
    let mut next = 0x1_0000_0000_0000_0000_u128;
    move || {
        next += 1;
        Uuid::from_u128(next)
    }
}

fn flow(dst: &str, dport: u16) -> FlowFacts {
    let ip = |text: &str| to_bytes(text.parse().expect("an address"));
    FlowFacts {
        src: ip("192.168.1.2"),
        dst: ip(dst),
        sport: 40_000,
        dport,
        tcp: true,
        mac: [0; 6],
        dscp: 0,
        pname: [0; 16],
        domain: None,
    }
}

const TEXT: &str = "
    global { }
    node {
        'HK 1': 'socks5://127.0.0.1:1081'
        backup: 'http://127.0.0.1:1082'
        lone: 'socks5://127.0.0.1:1083'
    }
    group {
        hk { filter: name(keyword: 'HK') final: direct }
        proxy {
            filter: group('hk')
            filter: name('backup')
            policy: select
            default: hk
            final: direct
        }
    }
    routing {
        dip(10.0.0.0/8) -> direct(must)
        dport(8443) -> lone
        dport(443) -> proxy
        fallback: block
    }
";

// G-006, with static nodes
#[test]
fn flow_takes_the_leaf_that_the_text_means_also_after_a_reorder() {
    let config = |text: &str| {
        let (config, found) = lower(&parse_text("config.dae", text), &mut ());
        config.unwrap_or_else(|| panic!("{found:?}"))
    };
    let mut new_id = ids();
    let first = config(TEXT);
    let (old, found) = GroupTable::build(&first, None, &mut new_id);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(members(&old, "proxy"), ["backup", "hk"]);
    let turned = TEXT.replace(
        "hk { filter: name(keyword: 'HK') final: direct }",
        "early { }",
    );
    let turned = turned.replace("policy: select", "} hk { filter: name(keyword: 'HK')");
    let turned = turned.replace("default: hk", "");
    let second = config(&turned);
    let (new, _) = GroupTable::build(&second, Some(&old), &mut new_id);
    for (config, table) in [(&first, &old), (&second, &new)] {
        let rules = config.rules.map_ordinals(|o| table.slot_of(o));
        let tables = compile(&rules).expect("within the limits");
        let serves = |dst, port| {
            let verdict = eval_tables(&tables, &flow(dst, port), None);
            let pick = table
                .select(verdict.ordinal, Network::Tcp, Family::V4)
                .expect("a leaf");
            (pick.leaf.name.clone(), verdict.ordinal)
        };
        assert_eq!(serves("10.1.1.1", 443).0, "direct");
        assert_eq!(serves("1.1.1.1", 80).0, "block");
        assert_eq!(
            serves("1.1.1.1", 8443),
            (
                "lone".to_owned(),
                old.group_named("lone").expect("implicit").slot
            )
        );
        let proxy = old.group_named("proxy").expect("declared").slot;
        assert_eq!(serves("1.1.1.1", 443).1, proxy);
    }
    assert_eq!(tcp_leaf(&old, "proxy"), "HK 1");
    assert_eq!(tcp_leaf(&new, "proxy"), "backup");
}

fn tcp_leaf(table: &GroupTable, group: &str) -> String {
    selected(table, group, Network::Tcp)
        .expect("a leaf")
        .leaf
        .name
        .clone()
}
