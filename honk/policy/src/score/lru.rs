//! A bounded table that gives up what was not used for longest: a slab with links, an index of
//! hashes over it, and a counter.
//!
//! Slots are stable while an entry lives; a slot that was reused is told by what it holds. After
//! the table was full once, nothing is allocated any more.

use super::index::Index;

/// What a table is searched by.
pub(super) trait Key: Copy + Eq {
    /// Well-spread bits.
    fn bits(&self) -> u64;
}

/// No slot.
const NONE: u32 = u32::MAX;

/// At most `cap` entries, in order of use.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    slots: Vec<Slot<K, V>>,
    index: Index,
    /// Used most recently.
    head: u32,
    /// Used least recently.
    tail: u32,
    /// First of the empty slots, linked by `next`.
    free: u32,
    len: usize,
    cap: usize,
    evictions: u64,
}

#[derive(Debug)]
struct Slot<K, V> {
    entry: Option<(K, V)>,
    prev: u32,
    next: u32,
}

impl<K: Key, V> Lru<K, V> {
    /// An empty table; it grows as it is used.
    pub(super) fn new(cap: usize) -> Self {
        Self {
            slots: Vec::new(),
            index: Index::default(),
            head: NONE,
            tail: NONE,
            free: NONE,
            len: 0,
            cap,
            evictions: 0,
        }
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Entries that were given up for others.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Where the entry of a key is.
    pub(super) fn find(&self, key: &K) -> Option<u32> {
        self.index.find(key.bits(), |slot| {
            self.slots[slot as usize]
                .entry
                .as_ref()
                .is_some_and(|(held, _)| held == key)
        })
    }

    /// What a slot holds.
    pub(super) fn at(&self, slot: u32) -> Option<(&K, &V)> {
        let entry = self.slots.get(slot as usize)?.entry.as_ref()?;
        Some((&entry.0, &entry.1))
    }

    /// What a slot holds, to be changed.
    pub(super) fn at_mut(&mut self, slot: u32) -> Option<&mut V> {
        Some(&mut self.slots.get_mut(slot as usize)?.entry.as_mut()?.1)
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        Some(self.at(self.find(key)?)?.1)
    }

    /// Makes an entry the most recently used one.
    pub(super) fn touch(&mut self, slot: u32) {
        if self.head != slot {
            self.unlink(slot);
            self.link_first(slot);
        }
    }

    /// Adds a key that is not in the table, and tells its slot and what had to go for it.
    pub(super) fn insert(&mut self, key: K, value: V) -> (u32, Option<(K, V)>) {
        let mut evicted = None;
        if self.len == self.cap {
            evicted = self.remove(self.tail);
            self.evictions = self.evictions.saturating_add(1);
        }
        let slot = self.place(key, value);
        self.index.insert(key.bits(), slot);
        self.link_first(slot);
        self.len += 1;
        (slot, evicted)
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, slot: u32) -> Option<(K, V)> {
        let entry = self.slots.get_mut(slot as usize)?.entry.take()?;
        self.unlink(slot);
        self.index.remove(entry.0.bits(), slot);
        self.slots[slot as usize].next = self.free;
        self.free = slot;
        self.len -= 1;
        Some(entry)
    }

    /// Bytes of a slot with its place in the index.
    #[cfg(test)]
    pub(super) fn slot_size() -> usize {
        size_of::<Slot<K, V>>() + Index::bytes_for(1024) / 1024
    }

    #[cfg(test)]
    pub(super) fn occupied(&self) -> impl Iterator<Item = (u32, &K, &V)> {
        (0..).zip(&self.slots).filter_map(|(slot, held)| {
            let (key, value) = held.entry.as_ref()?;
            Some((slot, key, value))
        })
    }

    /// Slots there are, used or not: the end of a walk by number.
    pub(super) fn width(&self) -> u32 {
        self.slots.len() as u32
    }

    fn place(&mut self, key: K, value: V) -> u32 {
        let entry = Some((key, value));
        if self.free == NONE {
            self.slots.push(Slot {
                entry,
                prev: NONE,
                next: NONE,
            });
            return self.slots.len() as u32 - 1;
        }
        let slot = self.free;
        let held = &mut self.slots[slot as usize];
        self.free = held.next;
        held.entry = entry;
        slot
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { prev, next, .. } = self.slots[slot as usize];
        match self.slots.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => self.tail = prev,
        }
    }

    fn link_first(&mut self, slot: u32) {
        let head = self.head;
        let held = &mut self.slots[slot as usize];
        (held.prev, held.next) = (NONE, head);
        match self.slots.get_mut(head as usize) {
            Some(second) => second.prev = slot,
            None => self.tail = slot,
        }
        self.head = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Key for u64 {
        fn bits(&self) -> u64 {
            *self % 7
        }
    }

    fn order(lru: &Lru<u64, u64>) -> Vec<u64> {
        let mut found = Vec::new();
        let mut slot = lru.head;
        while let Some((key, _)) = lru.at(slot) {
            found.push(*key);
            slot = lru.slots[slot as usize].next;
        }
        found
    }

    #[test]
    fn the_least_recently_used_entry_goes_first() {
        let mut lru = Lru::new(3);
        for key in 0..3 {
            assert_eq!(lru.insert(key, key * 10).1, None);
        }
        lru.touch(lru.find(&0).unwrap());
        assert_eq!(order(&lru), [0, 2, 1]);
        assert_eq!(lru.insert(9, 90).1, Some((1, 10)));
        assert_eq!((lru.len(), lru.evictions()), (3, 1));
        assert_eq!((lru.get(&1), lru.get(&9)), (None, Some(&90)));
    }

    #[test]
    fn removed_slots_are_used_again() {
        let mut lru = Lru::new(4);
        for key in 0..4 {
            lru.insert(key, key);
        }
        for key in [1, 3, 0] {
            let slot = lru.find(&key).unwrap();
            assert_eq!(lru.remove(slot), Some((key, key)));
            assert_eq!(lru.remove(slot), None);
        }
        assert_eq!(order(&lru), [2]);
        for key in 10..13 {
            assert_eq!(lru.insert(key, key).1, None);
        }
        assert_eq!((order(&lru), lru.width()), (vec![12, 11, 10, 2], 4));
        assert_eq!(lru.occupied().count(), 4);
        assert_eq!(lru.evictions(), 0);
    }

    #[test]
    fn it_agrees_with_a_plain_list() {
        let mut lru = Lru::new(50);
        let mut plain: Vec<u64> = Vec::new();
        let mut state = 3_u64;
        for _ in 0..5000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = (state >> 33) % 90;
            let known = plain.iter().position(|k| *k == key);
            match (lru.find(&key), known) {
                (Some(slot), Some(at)) if state >> 60 == 0 => {
                    lru.remove(slot);
                    plain.remove(at);
                }
                (Some(slot), Some(at)) => {
                    lru.touch(slot);
                    let key = plain.remove(at);
                    plain.insert(0, key);
                }
                (None, None) => {
                    let (_, evicted) = lru.insert(key, key);
                    let gone = (plain.len() == 50).then(|| plain.pop().unwrap());
                    assert_eq!(evicted.map(|(k, _)| k), gone);
                    plain.insert(0, key);
                }
                (slot, at) => panic!("{slot:?} against {at:?}"),
            }
        }
        assert_eq!(order(&lru), plain);
    }
}
