//! The reference evaluator: what rules mean, as the list of match sets dae would run.
//!
//! Values of a condition are chained by OR (254), conditions of a line by AND (255); the
//! last match set of a line carries the outbound. Slower than the tables and independent of
//! them, so it is both the second opinion of their tests and the evaluator for flows whose
//! name is known only in userspace.

use honk_common::{
    key::is_v4_mapped,
    outbound::{CONTROL, LOGICAL_AND, LOGICAL_OR, MUST_RULES},
};

use super::{
    domain::DomainSet,
    rule::{Cond, FlowFacts, Prefix, RuleLine, RuleSet, Test, Verdict},
};
use crate::id::Ordinal;

/// A rule set, lowered.
#[derive(Clone, Debug)]
pub struct Oracle {
    sets: Vec<MatchSet>,
}

/// One step of the evaluation.
#[derive(Clone, Debug)]
struct MatchSet {
    value: Value,
    not: bool,
    /// Ordinal, or how the next match set is joined.
    outbound: u8,
    must: bool,
    mark: u32,
    line: u16,
}

#[derive(Clone, Debug)]
enum Value {
    Domain(DomainSet),
    Ip(Ranges),
    SourceIp(Ranges),
    /// Inclusive; empty when the first is above the second.
    Port(u16, u16),
    SourcePort(u16, u16),
    L4Proto {
        tcp: bool,
        udp: bool,
    },
    IpVersion {
        v4: bool,
        v6: bool,
    },
    Mac(Vec<[u8; 6]>),
    /// `None` for a condition without values.
    ProcessName(Option<[u8; 16]>),
    Dscp(Option<u8>),
    Fallback,
}

impl Oracle {
    /// Lowers the lines.
    pub fn new(rules: &RuleSet) -> Self {
        let mut sets = Vec::new();
        for (index, line) in rules.lines.iter().enumerate() {
            lower(line, index as u16, &mut sets);
        }
        Self { sets }
    }

    /// Number of match sets.
    pub fn match_sets(&self) -> usize {
        self.sets.len()
    }

    /// The verdict of the rules alone; [`dns_first`](super::dns_first) comes after it.
    pub fn eval(&self, flow: &FlowFacts) -> Verdict {
        let (mut good, mut bad, mut must) = (false, false, false);
        for set in &self.sets {
            // Later values cannot change a line or a condition that is decided.
            good = good || !bad && set.value.matches(flow);
            if set.outbound == LOGICAL_OR {
                continue;
            }
            bad |= good == set.not;
            good = false;
            if set.outbound == LOGICAL_AND {
                continue;
            }
            match (std::mem::take(&mut bad), set.outbound) {
                (true, _) => {}
                (false, MUST_RULES) => must = true,
                (false, outbound) => {
                    return Verdict {
                        ordinal: Ordinal(outbound),
                        must: must || set.must,
                        mark: set.mark,
                        rule: set.line,
                    };
                }
            }
        }
        Verdict {
            ordinal: Ordinal(CONTROL),
            must: false,
            mark: 0,
            rule: self.sets.last().map_or(0, |s| s.line.saturating_add(1)),
        }
    }
}

fn lower(line: &RuleLine, index: u16, sets: &mut Vec<MatchSet>) {
    let start = sets.len();
    let mut push = |value, not, outbound| {
        sets.push(MatchSet {
            value,
            not,
            outbound,
            must: line.action.must,
            mark: line.action.mark,
            line: index,
        });
    };
    for cond in &line.conds {
        let mut values = values(cond);
        let last = values.pop();
        for value in values {
            push(value, cond.not, LOGICAL_OR);
        }
        if let Some(value) = last {
            push(value, cond.not, LOGICAL_AND);
        }
    }
    if sets.len() == start {
        sets.push(MatchSet {
            value: Value::Fallback,
            not: false,
            outbound: 0,
            must: line.action.must,
            mark: line.action.mark,
            line: index,
        });
    }
    if let Some(last) = sets.last_mut() {
        last.outbound = line.action.ordinal.0;
    }
}

/// At least one value: a condition without any is one that never matches.
fn values(cond: &Cond) -> Vec<Value> {
    match &cond.test {
        Test::Dest(prefixes) => vec![Value::Ip(Ranges::new(prefixes))],
        Test::Source(prefixes) => vec![Value::SourceIp(Ranges::new(prefixes))],
        Test::DestPort(ranges) => each(ranges, |&(lo, hi)| Value::Port(lo, hi), Value::Port(1, 0)),
        Test::SourcePort(ranges) => each(
            ranges,
            |&(lo, hi)| Value::SourcePort(lo, hi),
            Value::SourcePort(1, 0),
        ),
        &Test::L4Proto { tcp, udp } => vec![Value::L4Proto { tcp, udp }],
        &Test::IpVersion { v4, v6 } => vec![Value::IpVersion { v4, v6 }],
        Test::Mac(macs) => {
            // No MAC is not "some other MAC".
            let zero = cond.not.then_some([0; 6]);
            vec![Value::Mac(macs.iter().copied().chain(zero).collect())]
        }
        Test::Dscp(values) => each(values, |&v| Value::Dscp(Some(v)), Value::Dscp(None)),
        Test::ProcessName(names) => each(
            names,
            |&n| Value::ProcessName(Some(n)),
            Value::ProcessName(None),
        ),
        Test::Domain(tests) => vec![Value::Domain(DomainSet::new(tests))],
    }
}

fn each<T>(items: &[T], value: impl Fn(&T) -> Value, never: Value) -> Vec<Value> {
    if items.is_empty() {
        return vec![never];
    }
    items.iter().map(value).collect()
}

impl Value {
    fn matches(&self, flow: &FlowFacts) -> bool {
        match self {
            Self::Domain(set) => flow.domain.as_deref().is_some_and(|n| set.contains(n)),
            Self::Ip(ranges) => ranges.contain(&flow.dst),
            Self::SourceIp(ranges) => ranges.contain(&flow.src),
            Self::Port(lo, hi) => (*lo..=*hi).contains(&flow.dport),
            Self::SourcePort(lo, hi) => (*lo..=*hi).contains(&flow.sport),
            Self::L4Proto { tcp, udp } => *if flow.tcp { tcp } else { udp },
            Self::IpVersion { v4, v6 } => *if is_v4_mapped(&flow.dst) { v4 } else { v6 },
            Self::Mac(macs) => macs.contains(&flow.mac),
            // An unknown process is no process of any name.
            Self::ProcessName(name) => *name == Some(flow.pname) && flow.pname != [0; 16],
            Self::Dscp(value) => *value == Some(flow.dscp),
            Self::Fallback => true,
        }
    }
}

/// Address ranges of one set, sorted and disjoint. The families are apart, so that an IPv6
/// prefix around the IPv4 block holds no IPv4 address.
#[derive(Clone, Debug)]
struct Ranges {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

impl Ranges {
    fn new(prefixes: &[Prefix]) -> Self {
        let is_v4 = |p: &&Prefix| p.len >= 96 && is_v4_mapped(&p.addr);
        let (v4, v6): (Vec<&Prefix>, Vec<_>) = prefixes.iter().partition(is_v4);
        Self {
            v4: merged(v4),
            v6: merged(v6),
        }
    }

    fn contain(&self, addr: &[u8; 16]) -> bool {
        let ranges = if is_v4_mapped(addr) {
            &self.v4
        } else {
            &self.v6
        };
        let addr = u128::from_be_bytes(*addr);
        let after = ranges.partition_point(|&(first, _)| first <= addr);
        after > 0 && addr <= ranges[after - 1].1
    }
}

fn merged(prefixes: Vec<&Prefix>) -> Vec<(u128, u128)> {
    let range = |p: &&Prefix| {
        let addr = u128::from_be_bytes(p.addr);
        let host = u128::MAX.checked_shr(p.len.into()).unwrap_or(0);
        (addr & !host, addr | host)
    };
    let mut all: Vec<_> = prefixes.iter().map(range).collect();
    all.sort_unstable();
    all.dedup_by(|next, kept| {
        let joined = next.0 <= kept.1;
        if joined {
            kept.1 = kept.1.max(next.1);
        }
        joined
    });
    all
}
