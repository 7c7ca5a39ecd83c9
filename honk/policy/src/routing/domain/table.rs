//! Names and their parents to the conditions that list them: a frozen hash table.
//!
//! Keys stand in order of their hash, each at or after the place its hash points to, so a
//! search ends at the first larger key, found or not. A key costs 16 bytes, 20 with the empty
//! places. Which conditions want a name stands in a list that names in the same position share.

use std::{collections::HashMap, mem::size_of_val};

use super::hash::{Key, NameHash};

/// The name itself is wanted.
pub(super) const WHOLE: u32 = 1;
/// Names below it are wanted.
pub(super) const BELOW: u32 = 2;
const USES: u32 = 2;

const EMPTY: u64 = u64::MAX;
/// Of 5 places, 4 are taken.
const LOAD: (usize, usize) = (4, 5);
/// Searches that wait for memory at the same time.
const BATCH: usize = 8;
/// Label counts above this share the last bit of the mask.
const LABELS: usize = 127;

/// Collects names.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// Key, and condition with the uses.
    entries: Vec<(Key, u32)>,
    labels: u128,
}

impl Builder {
    pub(super) fn add(&mut self, name: &str, cond: u32, uses: u32) {
        let (key, labels) = NameHash::of(name);
        self.labels |= 1 << labels.min(LABELS);
        self.entries.push((key, cond << USES | uses));
    }

    pub(super) fn build(mut self) -> Table {
        self.entries.sort_unstable();
        self.entries.dedup();
        let mut lists = Lists::default();
        let groups = self.entries.chunk_by(|a, b| a.0 == b.0);
        let names = groups.clone().count();
        let places = names * LOAD.1 / LOAD.0 + 1;
        let mut table = Table {
            places,
            places_taken: Vec::with_capacity(places + 32),
            rest: Vec::with_capacity(places + 32),
            lists: Vec::new(),
            pool: Vec::new(),
            labels: self.labels,
            names,
        };
        for group in groups {
            let key = group[0].0;
            let list = lists.number(group.iter().map(|(_, used)| *used).collect());
            let place = table.place(key.place);
            table.fill(place);
            table.places_taken.push(key.place);
            table.rest.push((key.check, list));
        }
        // Every search ends before the end.
        table.fill(places);
        table.places_taken.push(EMPTY);
        table.rest.push((0, 0));
        table.places_taken.shrink_to_fit();
        table.rest.shrink_to_fit();
        (table.lists, table.pool) = lists.finish();
        table
    }
}

/// Uses of names, shared.
#[derive(Default)]
struct Lists {
    numbers: HashMap<Box<[u32]>, u32>,
    all: Vec<Box<[u32]>>,
}

impl Lists {
    fn number(&mut self, uses: Box<[u32]>) -> u32 {
        if let Some(&number) = self.numbers.get(&uses) {
            return number;
        }
        let number = self.all.len() as u32;
        self.all.push(uses.clone());
        self.numbers.insert(uses, number);
        number
    }

    /// Per list the ends of its two parts, whole names and names below; and the conditions.
    fn finish(self) -> (Vec<[u32; 3]>, Vec<u32>) {
        let mut pool = Vec::new();
        let mut lists = Vec::with_capacity(self.all.len());
        for list in self.all {
            let start = pool.len() as u32;
            let part = |wanted: u32| {
                let uses = list.iter().filter(move |used| *used & wanted != 0);
                uses.map(|used| used >> USES)
            };
            pool.extend(part(WHOLE));
            let middle = pool.len() as u32;
            pool.extend(part(BELOW));
            lists.push([start, middle, pool.len() as u32]);
        }
        (lists, pool)
    }
}

/// The table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Places that hashes point to; a few more follow them.
    places: usize,
    places_taken: Vec<u64>,
    /// Check bits and list, looked at when the key fits.
    rest: Vec<(u32, u32)>,
    lists: Vec<[u32; 3]>,
    pool: Vec<u32>,
    /// Label counts that some name has.
    labels: u128,
    names: usize,
}

/// A search under way.
#[derive(Clone, Copy)]
struct Search {
    key: Key,
    at: usize,
    /// Read early, so that the memory of all searches is on its way before one is waited for.
    first: u64,
    whole: bool,
}

impl Table {
    fn place(&self, hash: u64) -> usize {
        (u128::from(hash) * self.places as u128 >> 64) as usize
    }

    fn fill(&mut self, up_to: usize) {
        while self.places_taken.len() < up_to {
            self.places_taken.push(EMPTY);
            self.rest.push((0, 0));
        }
    }

    /// Distinct names.
    pub(super) fn names(&self) -> usize {
        self.names
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.places_taken[..])
            + size_of_val(&self.rest[..])
            + size_of_val(&self.lists[..])
            + size_of_val(&self.pool[..])
    }

    /// Calls `hit` with every list of conditions that `name` satisfies, until it returns `true`.
    pub(super) fn find(&self, name: &str, mut hit: impl FnMut(&[u32]) -> bool) {
        if self.names == 0 {
            return;
        }
        let bytes = name.as_bytes();
        let none = Search {
            key: Key { place: 0, check: 0 },
            at: 0,
            first: EMPTY,
            whole: false,
        };
        let (mut batch, mut waiting) = ([none; BATCH], 0);
        let mut hash = NameHash::EMPTY;
        let mut left = bytes.len();
        // Hashes of names with more labels than any key are not needed.
        let most = LABELS - self.labels.leading_zeros() as usize;
        for labels in 1.. {
            let dot = bytes[..left].iter().rposition(|b| *b == b'.');
            hash.label(&bytes[dot.map_or(0, |dot| dot + 1)..left]);
            if self.labels >> labels.min(LABELS) & 1 == 1 {
                let key = hash.key();
                let at = self.place(key.place);
                batch[waiting] = Search {
                    key,
                    at,
                    first: self.places_taken[at],
                    whole: dot.is_none(),
                };
                waiting += 1;
                if waiting == BATCH {
                    if self.finish(&batch, &mut hit) {
                        return;
                    }
                    waiting = 0;
                }
            }
            match dot {
                Some(dot) if labels < most || most == LABELS => left = dot,
                _ => break,
            }
        }
        self.finish(&batch[..waiting], &mut hit);
    }

    fn finish(&self, searches: &[Search], hit: &mut impl FnMut(&[u32]) -> bool) -> bool {
        searches.iter().any(|search| {
            let (mut at, mut found) = (search.at, search.first);
            while found < search.key.place {
                at += 1;
                found = self.places_taken[at];
            }
            while found == search.key.place {
                let (check, list) = self.rest[at];
                if check == search.key.check {
                    return hit(self.list(list, search.whole));
                }
                at += 1;
                found = self.places_taken[at];
            }
            false
        })
    }

    fn list(&self, number: u32, whole: bool) -> &[u32] {
        let [start, middle, end] = self.lists[number as usize];
        match whole {
            true => &self.pool[start as usize..middle as usize],
            false => &self.pool[middle as usize..end as usize],
        }
    }
}
