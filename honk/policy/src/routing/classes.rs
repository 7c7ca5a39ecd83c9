//! Classes of one dimension: from "which value sets hold this input" to a bitmap of lines.
//!
//! Sets are shared by content, bitmaps by value, and a bitmap is built only once for each
//! combination of sets, so an address list used by many lines costs as much as one.

use std::{collections::HashMap, hash::Hash};

use honk_common::{limits::RULE_WORDS, route::RuleBits};

/// All bitmaps of one rule set, numbered; number 0 has every line.
pub(super) struct Classes {
    numbers: HashMap<RuleBits, u32>,
    list: Vec<RuleBits>,
}

impl Classes {
    pub(super) fn new(rules: usize) -> Self {
        let mut classes = Self {
            numbers: HashMap::new(),
            list: Vec::new(),
        };
        classes.number(all_lines(rules));
        classes
    }

    /// Numbers go past the limit; the compiler counts at the end, so that the error can
    /// tell how far the rules are over it.
    pub(super) fn number(&mut self, bits: RuleBits) -> u32 {
        *self.numbers.entry(bits).or_insert_with(|| {
            self.list.push(bits);
            self.list.len() as u32 - 1
        })
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn into_list(self) -> Vec<RuleBits> {
        self.list
    }
}

/// The conditions of one dimension.
pub(super) struct Dim<'a, T> {
    sets: Vec<&'a [T]>,
    /// Lines that use a set.
    users: Vec<Vec<usize>>,
    /// Conditions of a line: set and negation.
    lines: HashMap<usize, Vec<(u32, bool)>>,
    /// Lines satisfied by an input that no set holds.
    outside: RuleBits,
    known: HashMap<Box<[u32]>, u32>,
}

impl<'a, T: Eq + Hash> Dim<'a, T> {
    pub(super) fn new(
        rules: usize,
        conds: impl IntoIterator<Item = (usize, bool, &'a [T])>,
    ) -> Self {
        let mut dim = Self {
            sets: Vec::new(),
            users: Vec::new(),
            lines: HashMap::new(),
            outside: all_lines(rules),
            known: HashMap::new(),
        };
        let mut ids: HashMap<&'a [T], u32> = HashMap::new();
        for (line, not, values) in conds {
            let set = *ids.entry(values).or_insert_with(|| {
                dim.sets.push(values);
                dim.users.push(Vec::new());
                dim.sets.len() as u32 - 1
            });
            dim.users[set as usize].push(line);
            dim.lines.entry(line).or_default().push((set, not));
            if !not {
                put(&mut dim.outside, line, false);
            }
        }
        dim
    }
}

impl<'a, T> Dim<'a, T> {
    /// Every value with the number of the set it stands in.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'a T, u32)> + '_ {
        let numbered = self.sets.iter().zip(0u32..);
        numbered.flat_map(|(values, set)| values.iter().map(move |v| (v, set)))
    }

    /// Class of an input that exactly the sets in `members` (ascending) hold.
    pub(super) fn class(&mut self, members: &[u32], classes: &mut Classes) -> u32 {
        if let Some(&class) = self.known.get(members) {
            return class;
        }
        let mut bits = self.outside;
        for &line in members.iter().flat_map(|&s| &self.users[s as usize]) {
            let holds = |&(set, not): &(u32, bool)| members.binary_search(&set).is_ok() != not;
            put(&mut bits, line, self.lines[&line].iter().all(holds));
        }
        let class = classes.number(bits);
        self.known.insert(members.into(), class);
        class
    }
}

/// One bit for each of the first `rules` lines.
pub(super) fn all_lines(rules: usize) -> RuleBits {
    lines_where(rules, |_| true)
}

/// The lines for which `test` holds, of the first `rules`.
pub(super) fn lines_where(rules: usize, test: impl Fn(usize) -> bool) -> RuleBits {
    let mut bits = [0; RULE_WORDS];
    for line in (0..rules).filter(|&l| test(l)) {
        put(&mut bits, line, true);
    }
    bits
}

fn put(bits: &mut RuleBits, line: usize, on: bool) {
    let mask = 1 << (line % 64);
    if on {
        bits[line / 64] |= mask;
    } else {
        bits[line / 64] &= !mask;
    }
}
