//! What one rule line asks for, in a form that can be compared.

use std::collections::BTreeMap;

use super::{
    names::{asks, covers, exclude, key},
    set::Set,
};
use crate::routing::rule::{Cond, DomainTest, Prefix, Test};

/// `::ffff:0:0/96`, where the IPv4 addresses live.
const V4: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);
/// Values of one line beyond which its names are compared as a whole only.
const MANY: usize = 64;

/// What a condition looks at. IP versions are about addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dim {
    Dest,
    Source,
    DestPort,
    SourcePort,
    Proto,
    Mac,
    Dscp,
    Process,
}

impl Dim {
    /// The greatest value.
    fn most(self) -> u128 {
        match self {
            Self::Dest | Self::Source | Self::Process => u128::MAX,
            Self::DestPort | Self::SourcePort => 65_535,
            Self::Proto => 1,
            Self::Mac => (1 << 48) - 1,
            Self::Dscp => 63,
        }
    }
}

/// The conditions of a line.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// What is left of each dimension that is restricted.
    sets: BTreeMap<Dim, Set>,
    names: Vec<&'a Cond>,
}

/// What a line amounts to.
#[derive(Debug)]
pub(super) enum Meaning<'a> {
    /// No flow fulfils these conditions.
    Never(Vec<usize>),
    Some(Line<'a>),
}

impl<'a> Line<'a> {
    /// Joins the conditions; `None` when nothing is left to spend.
    pub(super) fn read(conds: &'a [Cond], left: &mut usize) -> Option<Meaning<'a>> {
        let mut line = Self {
            sets: BTreeMap::new(),
            names: Vec::new(),
        };
        let mut families = Set::all(1);
        let mut versions = Vec::new();
        let mut seen: BTreeMap<Dim, Vec<usize>> = BTreeMap::new();
        for (at, cond) in conds.iter().enumerate() {
            let (dim, set) = match &cond.test {
                Test::Domain(_) => {
                    line.names.push(cond);
                    continue;
                }
                Test::IpVersion { v4, v6 } => {
                    let set = signed(Set::new(chosen(*v4, *v6)), cond.not, 1);
                    families = families.and(&set);
                    versions.push(at);
                    continue;
                }
                test => values(test)?,
            };
            let joined = line.sets.get(&dim).map_or(0, Set::len);
            *left = left.checked_sub(joined + set.len() + 1)?;
            let set = signed(set, cond.not, dim.most());
            let indices = seen.entry(dim).or_default();
            indices.push(at);
            let joined = match line.sets.get(&dim) {
                Some(old) => old.and(&set),
                None => set,
            };
            if joined.is_empty() {
                return Some(Meaning::Never(std::mem::take(indices)));
            }
            line.sets.insert(dim, joined);
        }
        if families.is_empty() {
            return Some(Meaning::Never(versions));
        }
        // Source and destination are of one family.
        for dim in [Dim::Dest, Dim::Source] {
            if let Some(set) = line.sets.get(&dim) {
                families = families.and(&family_of(set));
                versions.extend(seen.get(&dim).into_iter().flatten());
            }
            if families.is_empty() {
                versions.sort_unstable();
                return Some(Meaning::Never(versions));
            }
        }
        if families != Set::all(1) {
            let only = addresses(&families);
            for dim in [Dim::Dest, Dim::Source] {
                let set = line
                    .sets
                    .get(&dim)
                    .map_or_else(|| only.clone(), |s| s.and(&only));
                line.sets.insert(dim, set);
            }
        }
        line.sets.retain(|dim, set| *set != Set::all(dim.most()));
        Some(match line.excluded(conds, left)? {
            Some(guilty) => Meaning::Never(guilty),
            None => Meaning::Some(line),
        })
    }

    /// Two conditions on the name that no name fulfils, if there are; `None` when nothing is left
    /// to spend.
    fn excluded(&self, conds: &[Cond], left: &mut usize) -> Option<Option<Vec<usize>>> {
        let all = |one: &Cond, other: &Cond, holds: fn(&DomainTest, &DomainTest) -> bool| {
            let (one, other) = (tests(one), tests(other));
            one.len() <= MANY
                && other.len() <= MANY
                && other.iter().all(|b| one.iter().any(|a| holds(a, b)))
        };
        let apart = |one: &Cond, other: &Cond| {
            let (one, other) = (tests(one), tests(other));
            one.len() <= MANY
                && other.len() <= MANY
                && one.iter().all(|a| other.iter().all(|b| exclude(a, b)))
        };
        for (at, one) in self.names.iter().enumerate() {
            for other in &self.names[at + 1..] {
                let pairs = tests(one).len().saturating_mul(tests(other).len());
                *left = left.checked_sub(pairs.min(MANY * MANY))?;
                let empty = match (one.not, other.not) {
                    (false, false) => apart(one, other),
                    (true, false) => all(one, other, covers),
                    (false, true) => all(other, one, covers),
                    (true, true) => false,
                };
                if empty {
                    let place = |cond: &Cond| conds.iter().position(|c| std::ptr::eq(c, cond));
                    let both = [place(one), place(other)];
                    return Some(Some(both.into_iter().flatten().collect()));
                }
            }
        }
        Some(None)
    }

    /// Whether it takes every flow.
    pub(super) fn takes_all(&self) -> bool {
        self.sets.is_empty() && self.names.is_empty()
    }

    /// Whether it takes every flow of another line.
    pub(super) fn covers(&self, other: &Line<'_>, left: &mut usize) -> bool {
        let mut spend = |steps: usize| match left.checked_sub(steps) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => false,
        };
        self.sets.iter().all(|(dim, set)| {
            let of = other.sets.get(dim);
            of.is_some_and(|of| spend(of.len().min(8)) && set.contains(of))
        }) && self.names.iter().all(|cond| {
            other.names.iter().any(|of| {
                let steps = tests(cond).len().saturating_mul(tests(of).len()).min(MANY);
                spend(steps) && implies(of, cond)
            })
        })
    }

    /// What its first condition on the name is found by; `None` when it must always be looked at.
    pub(super) fn keys(&self) -> Option<Vec<String>> {
        let cond = self.names.iter().find(|cond| !cond.not)?;
        tests(cond).iter().map(key).collect()
    }

    /// The keys of lines that may cover this one.
    pub(super) fn asks(&self) -> Vec<String> {
        let conds = self.names.iter().filter(|cond| !cond.not);
        conds
            .filter_map(|cond| tests(cond).first())
            .flat_map(asks)
            .collect()
    }
}

/// Whether a flow that fulfils `one` fulfils `other`.
fn implies(one: &Cond, other: &Cond) -> bool {
    if one.not != other.not {
        return false;
    }
    // What is excluded must be excluded there too.
    let (wide, narrow) = match one.not {
        true => (tests(one), tests(other)),
        false => (tests(other), tests(one)),
    };
    if wide.len().saturating_mul(narrow.len()) > MANY {
        return wide == narrow;
    }
    narrow.iter().all(|n| wide.iter().any(|w| covers(w, n)))
}

fn tests(cond: &Cond) -> &[DomainTest] {
    match &cond.test {
        Test::Domain(tests) => tests,
        _ => &[],
    }
}

fn signed(set: Set, not: bool, most: u128) -> Set {
    match not {
        true => set.without(most),
        false => set,
    }
}

fn chosen(zero: bool, one: bool) -> impl Iterator<Item = (u128, u128)> {
    let zero = zero.then_some((0, 0));
    zero.into_iter().chain(one.then_some((1, 1)))
}

/// The values of a condition that is not about names or versions.
fn values(test: &Test) -> Option<(Dim, Set)> {
    let ports =
        |list: &[(u16, u16)]| Set::new(list.iter().map(|(a, b)| ((*a).into(), (*b).into())));
    let single = |n: u128| (n, n);
    Some(match test {
        Test::Dest(list) => (Dim::Dest, Set::new(list.iter().flat_map(range))),
        Test::Source(list) => (Dim::Source, Set::new(list.iter().flat_map(range))),
        Test::DestPort(list) => (Dim::DestPort, ports(list)),
        Test::SourcePort(list) => (Dim::SourcePort, ports(list)),
        Test::L4Proto { tcp, udp } => (Dim::Proto, Set::new(chosen(*tcp, *udp))),
        Test::Mac(list) => {
            let number = |mac: &[u8; 6]| mac.iter().fold(0, |n, byte| n << 8 | u128::from(*byte));
            (
                Dim::Mac,
                Set::new(list.iter().map(|mac| single(number(mac)))),
            )
        }
        Test::Dscp(list) => (
            Dim::Dscp,
            Set::new(list.iter().map(|n| single((*n).into()))),
        ),
        Test::ProcessName(list) => {
            let names = list.iter().map(|name| single(u128::from_be_bytes(*name)));
            (Dim::Process, Set::new(names))
        }
        Test::IpVersion { .. } | Test::Domain(_) => return None,
    })
}

/// The addresses of a prefix; an IPv6 prefix around the IPv4 block means IPv6 only.
fn range(prefix: &Prefix) -> impl Iterator<Item = (u128, u128)> {
    let from = u128::from_be_bytes(prefix.addr);
    let hosts = u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
    let to = from | hosts;
    let around = prefix.len < 96 && from <= V4.0 && V4.1 <= to;
    let (first, second) = match around {
        true => ((from, V4.0 - 1), Some((V4.1 + 1, to))),
        false => ((from, to), None),
    };
    std::iter::once(first).chain(second)
}

/// Addresses of the families: 0 is IPv4.
fn addresses(families: &Set) -> Set {
    let four = Set::new([V4]);
    match families.contains(&Set::new([(0, 0)])) {
        true => four,
        false => four.without(u128::MAX),
    }
}

fn family_of(set: &Set) -> Set {
    let four = Set::new([V4]);
    let some = |part: &Set| !set.and(part).is_empty();
    Set::new(chosen(some(&four), some(&four.without(u128::MAX))))
}
