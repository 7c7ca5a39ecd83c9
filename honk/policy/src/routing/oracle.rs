//! The reference evaluator: what rules mean, as the list of match sets dae would run.
//!
//! Values of a condition are chained by OR (254), conditions of a line by AND (255); the
//! last match set of a line carries the outbound. Slower than the tables and independent of
//! them, so it is both the second opinion of their tests and the evaluator for flows whose
//! name is known only in userspace.

use honk_common::{
    key::is_v4_mapped,
    limits::RULE_WORDS,
    outbound::{CONTROL, LOGICAL_AND, LOGICAL_OR, MUST_RULES},
    route::{DomainVal, RuleBits},
};

use super::{
    domain::DomainIndex,
    rule::{Cond, DomainTest, FlowFacts, Prefix, RuleLine, RuleSet, Test, Verdict},
};
use crate::id::Ordinal;

/// A rule set, lowered.
#[derive(Clone, Debug)]
pub struct Oracle {
    sets: Vec<MatchSet>,
    names: DomainIndex,
    /// Line and negation of each condition in the index.
    calls: Vec<(u16, bool)>,
    lines: usize,
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
    /// Number of the condition in the index.
    Domain(usize),
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
        let mut names = Vec::new();
        for (index, line) in rules.lines.iter().enumerate() {
            lower(line, index as u16, &mut sets, &mut names);
        }
        let calls = rules.lines.iter().zip(0u16..).flat_map(|(line, index)| {
            let names = |c: &&Cond| matches!(c.test, Test::Domain(_));
            let conds = line.conds.iter().filter(names);
            conds.map(move |c| (index, c.not))
        });
        Self {
            sets,
            names: DomainIndex::new(names),
            calls: calls.collect(),
            lines: rules.lines.len(),
        }
    }

    /// Whether some line has a name condition.
    pub fn has_names(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Which `domain(...)` calls a name satisfies, negation aside: bit `i` for the `i`-th call.
    pub fn domain_calls(&self, name: &str) -> RuleBits {
        let mut calls = [0; RULE_WORDS];
        self.names.find(name, &mut calls);
        calls
    }

    /// What the names of one address, given as their [calls](Self::domain_calls), say about the
    /// lines. Without a name there is nothing to say: the address is unknown.
    pub fn domain_value<'a>(
        &self,
        owners: impl IntoIterator<Item = &'a RuleBits>,
    ) -> Option<DomainVal> {
        let (mut any, mut all, mut count) = ([0; RULE_WORDS], [u64::MAX; RULE_WORDS], 0);
        for calls in owners {
            for word in 0..RULE_WORDS {
                any[word] |= calls[word];
                all[word] &= calls[word];
            }
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let mut value = DomainVal {
            bits: super::classes::all_lines(self.lines),
            amb: [0; RULE_WORDS],
            owners: count,
            pad: 0,
        };
        for (call, &(line, not)) in self.calls.iter().enumerate() {
            let bit = |set: &RuleBits| {
                set.get(call / 64)
                    .is_some_and(|w| w >> (call % 64) & 1 == 1)
            };
            let (word, mask) = (usize::from(line) / 64, 1 << (line % 64));
            if bit(&any) == not {
                value.bits[word] &= !mask;
            }
            if bit(&any) != bit(&all) {
                value.amb[word] |= mask;
            }
        }
        Some(value)
    }

    /// Number of match sets.
    pub fn match_sets(&self) -> usize {
        self.sets.len()
    }

    /// The verdict of the rules alone; [`dns_first`](super::dns_first) comes after it.
    pub fn eval(&self, flow: &FlowFacts) -> Verdict {
        let (mut good, mut bad, mut must) = (false, false, false);
        let mut names = Names::new(&self.names, flow.domain.as_deref());
        for set in &self.sets {
            // Later values cannot change a line or a condition that is decided.
            good = good || !bad && set.value.matches(flow, &mut names);
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

/// The conditions that the name of a flow satisfies, found when the first of them is asked for.
struct Names<'a> {
    index: &'a DomainIndex,
    name: Option<&'a str>,
    found: bool,
    few: [u64; RULE_WORDS],
    /// In their place when they do not suffice, which the configuration rules out.
    many: Vec<u64>,
}

impl<'a> Names<'a> {
    fn new(index: &'a DomainIndex, name: Option<&'a str>) -> Self {
        Self {
            index,
            name,
            found: false,
            few: [0; RULE_WORDS],
            many: Vec::new(),
        }
    }

    fn satisfies(&mut self, cond: usize) -> bool {
        let Some(name) = self.name else { return false };
        if self.index.words() > RULE_WORDS {
            self.many.resize(self.index.words(), 0);
        }
        let bits = match self.many.as_mut_slice() {
            [] => &mut self.few[..],
            many => many,
        };
        if !self.found {
            self.index.find(name, bits);
            self.found = true;
        }
        bits.get(cond / 64)
            .is_some_and(|word| word >> (cond % 64) & 1 == 1)
    }
}

fn lower<'a>(
    line: &'a RuleLine,
    index: u16,
    sets: &mut Vec<MatchSet>,
    names: &mut Vec<&'a [DomainTest]>,
) {
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
        let mut values = values(cond, names);
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
fn values<'a>(cond: &'a Cond, names: &mut Vec<&'a [DomainTest]>) -> Vec<Value> {
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
        Test::Domain(tests) => {
            names.push(tests);
            vec![Value::Domain(names.len() - 1)]
        }
    }
}

fn each<T>(items: &[T], value: impl Fn(&T) -> Value, never: Value) -> Vec<Value> {
    if items.is_empty() {
        return vec![never];
    }
    items.iter().map(value).collect()
}

impl Value {
    fn matches(&self, flow: &FlowFacts, names: &mut Names<'_>) -> bool {
        match self {
            Self::Domain(cond) => names.satisfies(*cond),
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
