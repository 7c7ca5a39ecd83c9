//! Names and their parents to the conditions that list them: a frozen hash table.
//!
//! A name is one number of eight bytes: how far it stands from the place its hash points to, as
//! many bits of the second hash as there is room for, and the list of conditions that want it,
//! which names in the same position share. Names stand in order of their place, so a search ends
//! at the first name that belongs further on. With the empty places and the filter before the
//! table a name costs 12 bytes.
//!
//! Texts are not kept. A foreign name is taken for one of the table if it has the place of one
//! and agrees in the other bits, 48 or more of them with up to 500 lists: a chance of 1 in 10^14.

use std::{collections::HashMap, mem::size_of_val};

use super::hash::{Key, NameHash};

/// The name itself is wanted.
pub(super) const WHOLE: u32 = 1;
/// Names below it are wanted.
pub(super) const BELOW: u32 = 2;
const USES: u32 = 2;

/// Bits of a slot that say how far it is from its place.
const AWAY_BITS: u32 = 7;
/// Distances that fit. Names come by chance, and then the largest of a million is about 30.
const AWAY: usize = 1 << AWAY_BITS;
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
        // Number 0 is that of empty places.
        let mut lists = Lists::default();
        lists.number(Box::default());
        let groups = self.entries.chunk_by(|a, b| a.0 == b.0);
        let mut names: Vec<(Key, u32)> = Vec::with_capacity(groups.clone().count());
        for group in groups {
            let uses = group.iter().map(|(_, used)| *used).collect();
            names.push((group[0].0, lists.number(uses)));
        }
        drop(std::mem::take(&mut self.entries));
        let places = names.len() * LOAD.1 / LOAD.0 + 1;
        let list_bits = u32::BITS - (lists.all.len() as u32).leading_zeros();
        let (lists, pool) = lists.finish();
        let mut table = Table {
            places,
            slots: Vec::with_capacity(places + AWAY),
            crowded: Vec::new(),
            list_bits,
            filter: Filter::for_names(names.len()),
            lists,
            pool,
            labels: self.labels,
            names: names.len(),
        };
        names.sort_unstable_by_key(|(key, _)| (table.place(key.place), table.tag(key.check)));
        for (key, list) in names {
            table.put(key, list);
        }
        table.crowded.sort_unstable();
        table.slots.resize(table.slots.len().max(places) + 1, 0);
        table.slots.shrink_to_fit();
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
    /// From high to low: distance, tag, list; 0 is empty.
    slots: Vec<u64>,
    /// Names that found no slot near their place. Only lists made for that purpose have any.
    crowded: Vec<(Key, u32)>,
    /// Bits of a slot that number a list.
    list_bits: u32,
    filter: Filter,
    lists: Vec<[u32; 3]>,
    pool: Vec<u32>,
    /// Label counts that some name has.
    labels: u128,
    names: usize,
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

    /// The bits of a second hash that a slot has room for.
    fn tag(&self, check: u64) -> u64 {
        check >> (AWAY_BITS + self.list_bits)
    }

    /// Distance and tag as they stand in a slot.
    fn head(&self, away: usize, key: Key) -> u64 {
        (away as u64) << (u64::BITS - AWAY_BITS - self.list_bits) | self.tag(key.check)
    }

    /// Adds a name; they come in the order of place and tag.
    fn put(&mut self, key: Key, list: u32) {
        self.filter.add(key.place);
        let place = self.place(key.place);
        let at = place.max(self.slots.len());
        let away = at - place;
        if away >= AWAY {
            self.crowded.push((key, list));
            return;
        }
        self.slots.resize(at, 0);
        let slot = self.head(away, key) << self.list_bits | u64::from(list);
        self.slots.push(slot);
    }

    /// Distinct names.
    pub(super) fn names(&self) -> usize {
        self.names
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.slots[..])
            + size_of_val(&self.crowded[..])
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
                    first: self.slots[at],
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
            let list = self.search(search).or_else(|| self.crowded(search.key));
            list.is_some_and(|list| hit(self.list(list, search.whole)))
        })
    }

    fn search(&self, search: &Search) -> Option<u32> {
        let mut slot = search.first;
        for away in 0..AWAY {
            let found = slot >> self.list_bits;
            let wanted = self.head(away, search.key);
            if found == wanted && slot != 0 {
                return Some((slot ^ found << self.list_bits) as u32);
            }
            // Nearer to its place than we are: it belongs further on, and so does the rest.
            if slot == 0
                || found
                    < self.head(
                        away,
                        Key {
                            check: 0,
                            ..search.key
                        },
                    )
            {
                return None;
            }
            slot = *self.slots.get(search.at + away + 1)?;
        }
        None
    }

    fn crowded(&self, key: Key) -> Option<u32> {
        let at = self.crowded.binary_search_by_key(&key, |(key, _)| *key);
        Some(self.crowded[at.ok()?].1)
    }

    fn list(&self, number: u32, whole: bool) -> &[u32] {
        let [start, middle, end] = self.lists[number as usize];
        match whole {
            true => &self.pool[start as usize..middle as usize],
            false => &self.pool[middle as usize..end as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conditions of a key that is not the whole name.
    fn below(table: &Table, key: Key) -> Vec<u32> {
        let mut found = Vec::new();
        let at = table.place(key.place);
        let search = Search {
            key,
            at,
            first: table.slots[at],
            whole: false,
        };
        table.finish(&[search], &mut |conds| {
            found.extend_from_slice(conds);
            false
        });
        found
    }

    fn built(keys: impl Iterator<Item = Key>) -> Table {
        let entries = keys.zip(0..).map(|(key, cond)| (key, cond << USES | BELOW));
        Builder {
            entries: entries.collect(),
            labels: 2,
        }
        .build()
    }

    #[test]
    fn names_that_share_a_place_are_all_found() {
        // As many as no list has by chance, at the start, in the middle and at the very end.
        let crowd = [0, u64::MAX / 2, u64::MAX];
        let keys = crowd.iter().flat_map(|&place| {
            (0..300u64).map(move |n| Key {
                place,
                check: n << 40 | 1 << 63,
            })
        });
        let table = built(keys.clone());
        assert!(table.crowded.len() > 300, "{}", table.crowded.len());
        for (key, cond) in keys.zip(0u32..) {
            assert_eq!(below(&table, key), [cond], "{key:?}");
            let other = Key {
                check: key.check ^ 1 << 62,
                ..key
            };
            assert!(below(&table, other).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn a_name_costs_twelve_bytes() {
        let keys = (0..20_000).map(|n| NameHash::of(&format!("d{n}.example")).0);
        let mut builder = Builder::default();
        builder.entries.extend(keys.map(|key| (key, BELOW)));
        let table = builder.build();
        assert!(table.crowded.is_empty());
        assert!(table.bytes() <= 20_000 * 12, "{}", table.bytes());
        assert_eq!(table.names(), 20_000);
    }
}
