//! Classes of one dimension: from "which value sets hold this input" to a bitmap of lines.
//!
//! Sets are shared by content, bitmaps by value, so an address list used by many lines costs as
//! much as one.

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

/// The conditions of one dimension, and which of them hold for an input that enters and leaves
/// sets one by one: each step costs what changes, however many conditions a line has.
pub(super) struct Dim<'a, T> {
    sets: Vec<&'a [T]>,
    /// Lines that use a set, and whether they want to be outside of it; none twice.
    users: Vec<Vec<(usize, bool)>>,
    /// Sets that a line wants to be in.
    wanted: Vec<u32>,
    /// Lines satisfied by an input that no set holds.
    outside: RuleBits,
    state: State,
}

/// Where an input is.
pub(super) struct State {
    /// How often each set was entered.
    inside: Vec<u32>,
    /// Sets entered that a line wants to be in.
    met: Vec<u32>,
    /// Sets entered that a line wants to be outside of.
    hurt: Vec<u32>,
    /// Lines satisfied.
    bits: RuleBits,
}

impl<'a, T: Eq + Hash> Dim<'a, T> {
    pub(super) fn new(
        rules: usize,
        conds: impl IntoIterator<Item = (usize, bool, &'a [T])>,
    ) -> Self {
        let mut sets: Vec<&'a [T]> = Vec::new();
        let mut users: Vec<Vec<(usize, bool)>> = Vec::new();
        let mut wanted = vec![0; rules];
        let mut outside = all_lines(rules);
        let mut ids: HashMap<&'a [T], usize> = HashMap::new();
        for (line, not, values) in conds {
            let set = *ids.entry(values).or_insert_with(|| {
                sets.push(values);
                users.push(Vec::new());
                sets.len() - 1
            });
            // Conditions come line by line.
            let known = users[set].iter().rev().take(2);
            if known.into_iter().any(|user| *user == (line, not)) {
                continue;
            }
            users[set].push((line, not));
            if !not {
                wanted[line] += 1;
                put(&mut outside, line, false);
            }
        }
        Self {
            state: State::new(sets.len(), rules, outside),
            sets,
            users,
            wanted,
            outside,
        }
    }
}

impl State {
    fn new(sets: usize, rules: usize, outside: RuleBits) -> Self {
        Self {
            inside: vec![0; sets],
            met: vec![0; rules],
            hurt: vec![0; rules],
            bits: outside,
        }
    }
}

impl<'a, T> Dim<'a, T> {
    /// Every value with the number of the set it stands in.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'a T, u32)> + '_ {
        let numbered = self.sets.iter().zip(0u32..);
        numbered.flat_map(|(values, set)| values.iter().map(move |v| (v, set)))
    }

    /// The input enters a set, perhaps not for the first time.
    pub(super) fn enter(&mut self, set: u32) {
        let times = &mut self.state.inside[set as usize];
        *times += 1;
        if *times == 1 {
            self.changed(set, |count| *count += 1);
        }
    }

    /// The input leaves a set as often as it entered it.
    pub(super) fn leave(&mut self, set: u32) {
        let times = &mut self.state.inside[set as usize];
        *times -= 1;
        if *times == 0 {
            self.changed(set, |count| *count -= 1);
        }
    }

    fn changed(&mut self, set: u32, change: fn(&mut u32)) {
        let state = &mut self.state;
        for &(line, not) in &self.users[set as usize] {
            let counts = if not { &mut state.hurt } else { &mut state.met };
            change(&mut counts[line]);
            let holds = state.met[line] == self.wanted[line] && state.hurt[line] == 0;
            put(&mut state.bits, line, holds);
        }
    }

    /// Leaves all sets, until [`resume`](Self::resume).
    pub(super) fn suspend(&mut self) -> State {
        let fresh = State::new(self.sets.len(), self.wanted.len(), self.outside);
        std::mem::replace(&mut self.state, fresh)
    }

    /// Goes back to where the input was.
    pub(super) fn resume(&mut self, state: State) {
        self.state = state;
    }

    /// Class of an input where it is.
    pub(super) fn here(&self, classes: &mut Classes) -> u32 {
        classes.number(self.state.bits)
    }

    /// Class of an input that exactly the sets in `members` hold.
    pub(super) fn class(&mut self, members: &[u32], classes: &mut Classes) -> u32 {
        members.iter().for_each(|&set| self.enter(set));
        let class = self.here(classes);
        members.iter().for_each(|&set| self.leave(set));
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
