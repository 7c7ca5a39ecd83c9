//! Builders for rules and packets, shared by the tests of this room.

mod agree;
mod guard;
mod limits;
mod meaning;

use std::net::IpAddr;

use honk_common::{key::to_bytes, outbound::MUST_RULES};

use super::{
    compile, eval_tables,
    oracle::Oracle,
    rule::{Action, Cond, FlowFacts, Prefix, RuleLine, RuleSet, Test, Verdict},
};
use crate::id::Ordinal;

/// A condition that must hold.
fn is(test: Test) -> Cond {
    Cond { not: false, test }
}

/// A condition that must not hold.
fn isnt(test: Test) -> Cond {
    Cond { not: true, test }
}

fn line(conds: impl Into<Vec<Cond>>, ordinal: u8) -> RuleLine {
    RuleLine {
        conds: conds.into(),
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

fn must(mut line: RuleLine) -> RuleLine {
    line.action.must = true;
    line
}

fn must_rules(conds: impl Into<Vec<Cond>>) -> RuleLine {
    line(conds, MUST_RULES)
}

/// The lines, then `fallback: direct`.
fn rules(lines: impl Into<Vec<RuleLine>>) -> RuleSet {
    let mut lines = lines.into();
    lines.push(line([], 0));
    RuleSet { lines }
}

/// `10.0.0.0/8`; IPv4 lengths as written.
fn net(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').expect("a slash");
    let ip: IpAddr = addr.parse().expect("an address");
    let len: u8 = len.parse().expect("a length");
    Prefix {
        addr: to_bytes(ip),
        len: if ip.is_ipv4() { len + 96 } else { len },
    }
}

fn dip(nets: &[&str]) -> Test {
    Test::Dest(nets.iter().map(|n| net(n)).collect())
}

fn sip(nets: &[&str]) -> Test {
    Test::Source(nets.iter().map(|n| net(n)).collect())
}

fn ip(text: &str) -> [u8; 16] {
    to_bytes(text.parse().expect("an address"))
}

/// A TCP packet of a LAN client.
fn to(dst: &str, dport: u16) -> FlowFacts {
    FlowFacts {
        src: ip("192.168.1.2"),
        dst: ip(dst),
        sport: 40_000,
        dport,
        tcp: true,
        mac: [2, 0, 0, 0, 0, 1],
        dscp: 0,
        pname: [0; 16],
        domain: None,
    }
}

fn padded(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// The verdict, on which tables and reference must agree.
fn verdict(rules: &RuleSet, flow: &FlowFacts) -> Verdict {
    let expected = Oracle::new(rules).eval(flow);
    let tables = compile(rules).expect("rules within the limits");
    assert_eq!(
        eval_tables(&tables, flow, None),
        expected,
        "tables and reference"
    );
    expected
}

fn outbound(rules: &RuleSet, flow: &FlowFacts) -> u8 {
    verdict(rules, flow).ordinal.0
}
