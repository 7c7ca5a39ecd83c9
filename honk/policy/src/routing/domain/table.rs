//! Names and their parents to the conditions that list them: a frozen hash table.
//!
//! Keys stand in order of their hash, each at or after the place its hash points to, so a
//! search ends at the first larger key, found or not. A name costs 22 bytes: 16 for its key, the
//! share of empty places, and one in the filter before the table. Which conditions want a name
//! stands in a list that names in the same position share.

use std::{collections::HashMap, mem::size_of_val};

use super::hash::{Key, NameHash};

/// The name itself is wanted.
pub(super) const WHOLE: u32 = 1;
/// Names below it are wanted.
pub(super) const BELOW: u32 = 2;
const USES: u32 = 2;

/// Of 4 places, 3 are taken.
const LOAD: (usize, usize) = (3, 4);
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
            slots: Vec::with_capacity(places + 32),
            filter: Filter::for_names(names),
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
            table.filter.add(key.place);
            table.slots.push(Slot {
                place: key.place,
                check: key.check,
                list,
            });
        }
        // Every search ends before the end.
        table.fill(places);
        table.slots.push(Slot::EMPTY);
        table.slots.shrink_to_fit();
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
    slots: Vec<Slot>,
    filter: Filter,
    lists: Vec<[u32; 3]>,
    pool: Vec<u32>,
    /// Label counts that some name has.
    labels: u128,
    names: usize,
}

/// Key and list side by side: a hit takes one line of the cache.
#[derive(Clone, Copy, Debug)]
struct Slot {
    place: u64,
    check: u32,
    list: u32,
}

impl Slot {
    const EMPTY: Self = Self {
        place: u64::MAX,
        check: 0,
        list: 0,
    };
}

/// Says of most keys that are not in the table that they are not. Eight bits a name, so that it
/// stays in a cache the table is too large for: most parents of a name are in no list, and each
/// would wait for memory to learn it.
#[derive(Clone, Debug, Default)]
struct Filter {
    words: Vec<u64>,
}

impl Filter {
    fn for_names(names: usize) -> Self {
        Self {
            words: vec![0; names.div_ceil(8)],
        }
    }

    fn add(&mut self, hash: u64) {
        let at = scaled(hash, self.words.len());
        if let Some(word) = self.words.get_mut(at) {
            *word |= bits(hash);
        }
    }

    fn may_have(&self, hash: u64) -> bool {
        let word = self.words.get(scaled(hash, self.words.len()));
        word.is_some_and(|word| word & bits(hash) == bits(hash))
    }
}

/// Two of 64 bits, by the low end of a hash; its high end says where.
fn bits(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63)
}

/// A number below `len`, in the order of the hashes.
fn scaled(hash: u64, len: usize) -> usize {
    ((u128::from(hash) * len as u128) >> 64) as usize
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
        scaled(hash, self.places)
    }

    fn fill(&mut self, up_to: usize) {
        if self.slots.len() < up_to {
            self.slots.resize(up_to, Slot::EMPTY);
        }
    }

    /// Distinct names.
    pub(super) fn names(&self) -> usize {
        self.names
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.slots[..])
            + size_of_val(&self.filter.words[..])
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
            first: 0,
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
            let some = self.labels >> labels.min(LABELS) & 1 == 1;
            if some && self.filter.may_have(hash.place()) {
                let key = hash.key();
                let at = self.place(key.place);
                batch[waiting] = Search {
                    key,
                    at,
                    first: self.slots[at].place,
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
                found = self.slots[at].place;
            }
            while found == search.key.place {
                let Slot { check, list, .. } = self.slots[at];
                if check == search.key.check {
                    return hit(self.list(list, search.whole));
                }
                at += 1;
                found = self.slots[at].place;
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
