//! An open-addressed table from hash to slot, for slabs that keep their keys themselves.

/// Slots by hash. Doubles until it holds what its slab holds, then never allocates again.
#[derive(Debug, Default)]
pub(super) struct Index {
    cells: Vec<Entry>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    /// [`NONE`] where no entry is.
    slot: u32,
}

/// No slot.
const NONE: u32 = u32::MAX;

impl Entry {
    const EMPTY: Self = Self {
        hash: 0,
        slot: NONE,
    };

    fn is_empty(self) -> bool {
        self.slot == NONE
    }
}

/// Cells of the first table.
const FIRST: usize = 16;

impl Index {
    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Entry>()
    }

    /// Bytes in use with so many entries, at most.
    pub(super) const fn bytes_for(entries: usize) -> usize {
        let cells = if entries * 2 < FIRST {
            FIRST
        } else {
            (entries * 2).next_power_of_two()
        };
        cells * size_of::<Entry>()
    }

    /// The slot with this hash that is the wanted one.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.cells.len().checked_sub(1)?;
        let short = shorten(hash);
        let mut at = short as usize & mask;
        loop {
            let entry = self.cells[at];
            if entry.is_empty() {
                return None;
            }
            if entry.hash == short && is_it(entry.slot) {
                return Some(entry.slot);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a slot that is not in it.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) {
        if (self.len + 1) * 2 > self.cells.len() {
            self.grow();
        }
        self.len += 1;
        let hash = shorten(hash);
        place(&mut self.cells, Entry { hash, slot });
    }

    /// Takes a slot out.
    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let Some(mask) = self.cells.len().checked_sub(1) else {
            return;
        };
        let short = shorten(hash);
        let mut at = short as usize & mask;
        loop {
            let entry = self.cells[at];
            if entry.is_empty() {
                return;
            }
            if entry.hash == short && entry.slot == slot {
                break;
            }
            at = (at + 1) & mask;
        }
        self.len -= 1;
        self.close_gap(at, mask);
    }

    /// Moves later entries of the run into the gap where that does not put them before their
    /// home, so that no search ends early.
    fn close_gap(&mut self, mut gap: usize, mask: usize) {
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let entry = self.cells[at];
            if entry.is_empty() {
                break;
            }
            let home = entry.hash as usize & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.cells[gap] = entry;
                gap = at;
            }
        }
        self.cells[gap] = Entry::EMPTY;
    }

    fn grow(&mut self) {
        let mut wider = vec![Entry::EMPTY; (self.cells.len() * 2).max(FIRST)];
        for entry in self.cells.iter().filter(|entry| !entry.is_empty()) {
            place(&mut wider, *entry);
        }
        self.cells = wider;
    }
}

fn place(cells: &mut [Entry], entry: Entry) {
    let mask = cells.len() - 1;
    let mut at = entry.hash as usize & mask;
    while !cells[at].is_empty() {
        at = (at + 1) & mask;
    }
    cells[at] = entry;
}

fn shorten(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_agrees_with_a_map_when_hashes_collide() {
        let mut index = Index::default();
        let mut held: BTreeMap<u32, u64> = BTreeMap::new();
        let mut state = 1_u64;
        for step in 0..20_000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let slot = (state >> 40) as u32 % 200;
            if let Some(hash) = held.remove(&slot) {
                index.remove(hash, slot);
            } else {
                // Only 32 hashes for 200 slots: long runs.
                let hash = (state >> 20) % 32;
                index.insert(hash, slot);
                held.insert(slot, hash);
            }
            if step % 64 == 0 {
                for slot in 0..200 {
                    let hash = held.get(&slot).copied();
                    let found = index.find(hash.unwrap_or(3), |s| s == slot);
                    assert_eq!(found, hash.map(|_| slot));
                }
            }
        }
        assert_eq!(index.len, held.len());
    }

    #[test]
    fn an_empty_one_finds_nothing() {
        let mut index = Index::default();
        assert_eq!(index.find(1, |_| true), None);
        index.remove(1, 1);
    }
}
