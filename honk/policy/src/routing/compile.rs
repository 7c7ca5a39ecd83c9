//! Rule lines to the tables of the kernel classifier.
//!
//! Pure and complete: every limit is checked before anything is published, nothing is ever
//! cut. Names are bits per address, which [`Oracle::domain_value`](super::oracle::Oracle)
//! computes; here is only what holds while the name of an address is unknown.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
};

use honk_common::{
    key::LpmKey,
    limits::{LPM_MAX_ENTRIES, MAC_ENTRIES, MAX_CLASSES, MAX_RULES, PNAME_ENTRIES},
    outbound::MUST_RULES,
    route::{
        self, ACT_FALLBACK, ACT_MUST, ACT_MUST_RULES, CLASS_ALL, DscpClasses, RouteMeta, RuleAct,
        RuleBits,
    },
    tables::RouteTables,
};

use super::{
    classes::{Classes, Dim, lines_where},
    guard, prefix,
    rule::{Cond, Prefix, RuleLine, RuleSet, Test},
};

/// `domain(...)` calls one rule set may have.
const MAX_DOMAIN_CALLS: usize = 1024;
/// Addresses of one generation; both share the map.
const MAX_MACS: usize = MAC_ENTRIES as usize / 2;
/// Process names of one generation; both share the map.
const MAX_PNAMES: usize = PNAME_ENTRIES as usize / 2;
const PORTS: usize = 65_536;

type Mac = [u8; 6];
type ProcessName = [u8; 16];
type PortRange = (u16, u16);

/// Why a rule set has no tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// More lines than a bitmap has bits.
    #[error(
        "routing has {0} rule lines, the limit is {MAX_RULES} with the fallback; merge lines that share an outbound"
    )]
    Rules(usize),
    /// More bitmaps than the table holds.
    #[error(
        "routing too complex: {0} distinct classes, the limit is {MAX_CLASSES}; use fewer overlapping address and port sets"
    )]
    Classes(usize),
    /// More name conditions than a name's bitmap has bits.
    #[error(
        "routing has {0} domain(...) calls, the limit is {MAX_DOMAIN_CALLS}; merge calls that share an outbound"
    )]
    DomainCalls(usize),
    /// More MAC addresses than the map holds.
    #[error("routing names {0} MAC addresses, the limit is {MAX_MACS}")]
    Macs(usize),
    /// More process names than the map holds.
    #[error("routing names {0} processes, the limit is {MAX_PNAMES}")]
    Processes(usize),
    /// More prefixes than a prefix table holds.
    #[error("routing needs {0} address prefixes in one direction, the limit is {LPM_MAX_ENTRIES}")]
    Prefixes(usize),
    /// The last line is no unconditional, final one.
    #[error("the last rule line must be a fallback without conditions")]
    Fallback,
}

impl CompileError {
    /// Number of the diagnostic this becomes.
    pub fn number(&self) -> &'static str {
        "E608"
    }
}

/// The tables for one generation. Ordinals must already be kernel slots.
pub fn compile(rules: &RuleSet) -> Result<RouteTables, CompileError> {
    let lines = &rules.lines[..];
    check(lines)?;
    let mut classes = Classes::new(lines.len());
    let (dest, dest_default) = prefixes(lines, &mut classes, dest_prefixes);
    let (src, src_default) = prefixes(lines, &mut classes, source_prefixes);
    let (dport, dport_default) = ports(lines, &mut classes, dest_ports);
    let (sport, sport_default) = ports(lines, &mut classes, source_ports);
    let (dscp, dscp_default) = dscp(lines, &mut classes);
    let (mac, mac_default) = macs(lines, &mut classes);
    let proto = proto_bits(lines).map(|bits| classes.number(bits));
    let (pname, pname_unknown) = processes(lines, &mut classes);
    let masks = Masks::of(lines);
    let [domain_unknown, last, must_rules, domain_rules] =
        masks.in_order().map(|bits| classes.number(bits));

    // Class numbers fit their fields only if this holds.
    if classes.len() > MAX_CLASSES {
        return Err(CompileError::Classes(classes.len()));
    }
    let longest = dest.len().max(src.len());
    if longest > LPM_MAX_ENTRIES as usize {
        return Err(CompileError::Prefixes(longest));
    }
    if mac.len() > MAX_MACS {
        return Err(CompileError::Macs(mac.len()));
    }
    if pname.len() > MAX_PNAMES {
        return Err(CompileError::Processes(pname.len()));
    }
    let meta = RouteMeta {
        rules: lines.len() as u16,
        dims: dims(lines),
        proto_class: proto.map(|c| c as u16),
        domain_unknown_class: domain_unknown as u16,
        pname_unknown_class: pname_unknown as u16,
        mac_default: mac_default as u16,
        dest_default: dest_default as u16,
        src_default: src_default as u16,
        all_class: CLASS_ALL,
        final_mask_class: last as u16,
        must_rules_class: must_rules as u16,
        domain_rules_class: domain_rules as u16,
        dport_default: dport_default as u16,
        sport_default: sport_default as u16,
        dscp_default: dscp_default as u16,
        ..RouteMeta::default()
    };
    let classes = classes.into_list();
    let guard = guard::table(lines, &dest, &classes);
    Ok(RouteTables {
        meta,
        acts: acts(lines),
        classes,
        dest,
        src,
        dport,
        sport,
        dscp,
        mac,
        guard,
        pname,
    })
}

fn check(lines: &[RuleLine]) -> Result<(), CompileError> {
    if lines.len() > MAX_RULES {
        return Err(CompileError::Rules(lines.len()));
    }
    let calls = lines.iter().flat_map(|l| &l.conds);
    let calls = calls.filter(|c| matches!(c.test, Test::Domain(_))).count();
    if calls > MAX_DOMAIN_CALLS {
        return Err(CompileError::DomainCalls(calls));
    }
    match lines.last() {
        Some(l) if l.conds.is_empty() && l.action.ordinal.0 != MUST_RULES => Ok(()),
        _ => Err(CompileError::Fallback),
    }
}

/// The conditions of one dimension: line, negation, values.
fn dimension<'a, T: Eq + Hash>(
    lines: &'a [RuleLine],
    values: fn(&Test) -> Option<&[T]>,
) -> Dim<'a, T> {
    let conds = lines.iter().enumerate().flat_map(move |(line, l)| {
        let conds = l.conds.iter();
        conds.filter_map(move |c| values(&c.test).map(|v| (line, c.not, v)))
    });
    Dim::new(lines.len(), conds)
}

fn dest_prefixes(test: &Test) -> Option<&[Prefix]> {
    let Test::Dest(v) = test else { return None };
    Some(v)
}

fn source_prefixes(test: &Test) -> Option<&[Prefix]> {
    let Test::Source(v) = test else { return None };
    Some(v)
}

fn dest_ports(test: &Test) -> Option<&[PortRange]> {
    let Test::DestPort(v) = test else { return None };
    Some(v)
}

fn source_ports(test: &Test) -> Option<&[PortRange]> {
    let Test::SourcePort(v) = test else {
        return None;
    };
    Some(v)
}

fn dscp_values(test: &Test) -> Option<&[u8]> {
    let Test::Dscp(v) = test else { return None };
    Some(v)
}

fn process_names(test: &Test) -> Option<&[ProcessName]> {
    let Test::ProcessName(v) = test else {
        return None;
    };
    Some(v)
}

fn prefixes(
    lines: &[RuleLine],
    classes: &mut Classes,
    values: fn(&Test) -> Option<&[Prefix]>,
) -> (Vec<(LpmKey, u32)>, u32) {
    prefix::table(&mut dimension(lines, values), classes)
}

/// Class of every port, and of ports in no range: a sweep over the range ends.
fn ports(
    lines: &[RuleLine],
    classes: &mut Classes,
    values: fn(&Test) -> Option<&[PortRange]>,
) -> (Box<[u16]>, u32) {
    let mut dim = dimension(lines, values);
    let default = dim.here(classes);
    // Port, set, and whether a range of the set begins there or is over.
    let mut ends = Vec::new();
    for (&(lo, hi), set) in dim.values().filter(|((lo, hi), _)| lo <= hi) {
        ends.push((usize::from(lo), set, true));
        ends.push((usize::from(hi) + 1, set, false));
    }
    ends.sort_unstable();
    let mut table = Vec::with_capacity(PORTS);
    for here in ends.chunk_by(|a, b| a.0 == b.0) {
        table.resize(here[0].0, dim.here(classes) as u16);
        for &(_, set, enters) in here {
            match enters {
                true => dim.enter(set),
                false => dim.leave(set),
            }
        }
    }
    table.resize(PORTS, dim.here(classes) as u16);
    (table.into(), default)
}

/// Values that stand in some set, with the sets, ascending.
fn by_value<T: Copy + Ord>(dim: &Dim<'_, T>) -> BTreeMap<T, BTreeSet<u32>> {
    let mut sets: BTreeMap<T, BTreeSet<u32>> = BTreeMap::new();
    for (&value, set) in dim.values() {
        sets.entry(value).or_default().insert(set);
    }
    sets
}

/// Class of every value, and of values in no set.
fn dscp(lines: &[RuleLine], classes: &mut Classes) -> (DscpClasses, u32) {
    let mut dim = dimension(lines, dscp_values);
    let default = dim.class(&[], classes);
    let mut table = [default as u16; 64];
    for (value, sets) in by_value(&dim) {
        let members: Vec<u32> = sets.into_iter().collect();
        if let Some(class) = table.get_mut(usize::from(value)) {
            *class = dim.class(&members, classes) as u16;
        }
    }
    (DscpClasses(table), default)
}

/// Addresses that differ from the default, and the default.
fn macs(lines: &[RuleLine], classes: &mut Classes) -> (Vec<(Mac, u32)>, u32) {
    // The zero address joins negated sets: a packet without a MAC is not "some other MAC".
    let mut sets: Vec<(usize, bool, Vec<Mac>)> = Vec::new();
    for (line, l) in lines.iter().enumerate() {
        for cond in &l.conds {
            if let Test::Mac(values) = &cond.test {
                let zero = cond.not.then_some([0; 6]);
                let values = values.iter().copied().chain(zero).collect();
                sets.push((line, cond.not, values));
            }
        }
    }
    let conds = sets.iter().map(|(line, not, v)| (*line, *not, &v[..]));
    let mut dim = Dim::new(lines.len(), conds);
    let default = dim.class(&[], classes);
    let mut table = Vec::new();
    for (mac, sets) in by_value(&dim) {
        let members: Vec<u32> = sets.into_iter().collect();
        let class = dim.class(&members, classes);
        if class != default {
            table.push((mac, class));
        }
    }
    (table, default)
}

/// Names that differ from an unknown one, and what an unknown process means.
fn processes(lines: &[RuleLine], classes: &mut Classes) -> (Vec<(ProcessName, u32)>, u32) {
    let mut dim = dimension(lines, process_names);
    let unknown = dim.class(&[], classes);
    let mut table = Vec::new();
    for (name, sets) in by_value(&dim) {
        let members: Vec<u32> = sets.into_iter().collect();
        let class = dim.class(&members, classes);
        // The empty name stands for "unknown", which is no process of any name.
        if class != unknown && name != [0; 16] {
            table.push((name, class));
        }
    }
    (table, unknown)
}

/// Lines possible for tcp4, tcp6, udp4, udp6.
fn proto_bits(lines: &[RuleLine]) -> [RuleBits; 4] {
    let combos = [(false, false), (false, true), (true, false), (true, true)];
    combos.map(|(is_udp, is_v6)| {
        let holds = |c: &Cond| {
            let value = match c.test {
                Test::L4Proto { tcp, udp } => {
                    if is_udp {
                        udp
                    } else {
                        tcp
                    }
                }
                Test::IpVersion { v4, v6 } => {
                    if is_v6 {
                        v6
                    } else {
                        v4
                    }
                }
                _ => return true,
            };
            value != c.not
        };
        lines_where(lines.len(), |l| lines[l].conds.iter().all(holds))
    })
}

/// Sets of lines that the evaluation needs beside the dimensions.
struct Masks {
    name_unknown: RuleBits,
    ending: RuleBits,
    must_rules: RuleBits,
    domain: RuleBits,
}

impl Masks {
    fn of(lines: &[RuleLine]) -> Self {
        let name = |c: &Cond| matches!(c.test, Test::Domain(_));
        let conds = |l: usize| lines[l].conds.iter();
        let continues = |l: usize| lines[l].action.ordinal.0 == MUST_RULES;
        let bits = |test: &dyn Fn(usize) -> bool| lines_where(lines.len(), test);
        Self {
            name_unknown: bits(&|l| conds(l).all(|c| c.not || !name(c))),
            ending: bits(&|l| !continues(l)),
            must_rules: bits(&continues),
            domain: bits(&|l| conds(l).any(name)),
        }
    }

    fn in_order(self) -> [RuleBits; 4] {
        [self.name_unknown, self.ending, self.must_rules, self.domain]
    }
}

/// Dimensions the kernel must look up.
fn dims(lines: &[RuleLine]) -> u16 {
    let conds = lines.iter().flat_map(|l| &l.conds);
    conds.fold(0, |dims, cond| dims | dim_of(&cond.test))
}

fn dim_of(test: &Test) -> u16 {
    match test {
        Test::Dest(_) => route::DIM_DEST,
        Test::Source(_) => route::DIM_SRC,
        Test::DestPort(_) => route::DIM_DPORT,
        Test::SourcePort(_) => route::DIM_SPORT,
        Test::L4Proto { .. } | Test::IpVersion { .. } => route::DIM_PROTO,
        Test::Mac(_) => route::DIM_MAC,
        Test::Dscp(_) => route::DIM_DSCP,
        Test::ProcessName(_) => route::DIM_PNAME,
        Test::Domain(_) => route::DIM_DOMAIN,
    }
}

fn acts(lines: &[RuleLine]) -> Vec<RuleAct> {
    let act = |(index, line): (usize, &RuleLine)| {
        let mut flags = 0;
        if line.action.must {
            flags |= ACT_MUST;
        }
        if line.action.ordinal.0 == MUST_RULES {
            flags |= ACT_MUST_RULES;
        }
        if index + 1 == lines.len() {
            flags |= ACT_FALLBACK;
        }
        RuleAct {
            ordinal: line.action.ordinal.0,
            flags,
            rule: index as u16,
            mark: line.action.mark,
            source_line: line.line,
            pad: 0,
        }
    };
    lines.iter().enumerate().map(act).collect()
}
