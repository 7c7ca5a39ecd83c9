//! Cost of the compiler at its limits and of one selection.
//!
//! Prints one figure per line: name, value, unit. Run with `--release`; the figures of a
//! debug build mean nothing.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![allow(clippy::unwrap_used, reason = "the input is made here")]

use std::{hint::black_box, net::Ipv4Addr, time::Instant};

use honk_common::{key::v4_mapped, limits::MAX_RULES};
use honk_policy::{
    config::{Config, FilterLine, GroupDef, Policy},
    group::GroupTable,
    id::{Family, Network, NodeId, Ordinal, Uuid},
    node::{Host, Node, Protocol, Server},
    routing::{
        compile,
        oracle::Oracle,
        rule::{Action, Cond, FlowFacts, Prefix, RuleLine, RuleSet, Test},
    },
};

const PREFIXES: usize = 100_000;
const ROUNDS: u32 = 5;
const CALLS: u32 = 1_000_000;

fn main() {
    let rules = rules();
    let tables = compile(&rules).unwrap();
    print("lines", rules.lines.len() as f64, "");
    print("prefixes", tables.dest.len() as f64, "");
    print("classes", tables.classes.len() as f64, "");
    let compiling = time(ROUNDS, || drop(black_box(compile(black_box(&rules)))));
    print("compile", compiling * 1e3, "ms");

    let oracle = Oracle::new(&rules);
    let flow = flow();
    let evaluating = time(1000, || {
        let _ = black_box(oracle.eval(black_box(&flow)));
    });
    print("reference_eval", evaluating * 1e9, "ns");

    let table = groups();
    for (name, ordinal) in [("select_direct_members", 2), ("select_nested", 3)] {
        let slot = table.slot_of(Ordinal(ordinal));
        let selecting = time(CALLS, || {
            let _ = black_box(black_box(&table).apply(black_box(slot), Network::Tcp, Family::V4));
        });
        print(name, selecting * 1e9, "ns");
    }
}

fn print(name: &str, value: f64, unit: &str) {
    let line = format!("{name} {value:.1} {unit}");
    println!("{}", line.trim_end());
}

/// Seconds of one call.
fn time(calls: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_secs_f64() / f64::from(calls)
}

/// As many lines as there may be, with prefixes of which every tenth nests in another.
fn rules() -> RuleSet {
    let per_line = PREFIXES / (MAX_RULES - 1);
    let spare = PREFIXES % (MAX_RULES - 1);
    let mut next = 0u32;
    let mut lines: Vec<RuleLine> = (0..MAX_RULES - 1)
        .map(|line| {
            let count = per_line + usize::from(line < spare);
            let prefixes = (0..count).map(|_| {
                next += 1;
                prefix(next)
            });
            let not = false;
            let dest = Test::Dest(prefixes.collect());
            let port = Test::DestPort(vec![(0, 1000 + line as u16)]);
            let conds = vec![Cond { not, test: dest }, Cond { not, test: port }];
            rule(conds, 2 + line as u8 % 250)
        })
        .collect();
    lines.push(rule(Vec::new(), 0));
    RuleSet { lines }
}

fn prefix(number: u32) -> Prefix {
    let (addr, len) = match number % 10 {
        // Inside a prefix of another line.
        0 => (number.saturating_sub(489) << 8 | 0x80, 96 + 25),
        _ => (number << 8, 96 + 24),
    };
    let addr = v4_mapped(addr.wrapping_add(0x0100_0000).to_be_bytes());
    Prefix { addr, len }
}

fn rule(conds: Vec<Cond>, ordinal: u8) -> RuleLine {
    RuleLine {
        conds,
        action: Action {
            ordinal: Ordinal(ordinal),
            must: false,
            mark: 0,
        },
        text: String::new(),
        file: String::new(),
        line: 0,
    }
}

/// A flow that only the fallback takes.
fn flow() -> FlowFacts {
    FlowFacts {
        src: v4_mapped([192, 168, 1, 2]),
        dst: v4_mapped([250, 1, 1, 1]),
        sport: 40_000,
        dport: 443,
        tcp: true,
        mac: [0; 6],
        dscp: 0,
        pname: [0; 16],
        domain: None,
    }
}

/// A group of 100 nodes, and one that reaches it through seven others.
fn groups() -> GroupTable {
    let nodes = (0..100).map(|i| Node {
        id: NodeId(Uuid::from_u128(i)),
        name: format!("node {i}"),
        protocol: Protocol::Socks5(Server {
            host: Host::Ip(Ipv4Addr::LOCALHOST.into()),
            port: 1080,
            auth: None,
        }),
        origin: None,
    });
    let mut groups = vec![group(0, None), group(1, Some(2))];
    groups.extend((2..7).map(|i| group(i, Some(i + 1))));
    groups.push(group(7, Some(0)));
    let config = Config {
        nodes: nodes.collect(),
        groups,
        rules: RuleSet {
            lines: vec![rule(Vec::new(), 0)],
        },
        ..Config::default()
    };
    let mut ids = 1000;
    let (table, findings) = GroupTable::build(&config, None, &mut || {
        ids += 1;
        Uuid::from_u128(ids)
    });
    assert!(findings.is_empty(), "{findings:?}");
    table
}

fn group(number: u8, nested: Option<u8>) -> GroupDef {
    GroupDef {
        filters: nested.map(|n| vec![FilterLine::Groups(vec![format!("group {n}")])]),
        ..GroupDef::new(
            format!("group {number}"),
            Ordinal(2 + number),
            Policy::Selector,
        )
    }
}
