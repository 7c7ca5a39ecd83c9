//! A bounded table with stable slots, for entries that are found by the slot they were given.

/// At most `cap` entries; a refused one is counted.
#[derive(Debug)]
pub(super) struct Slab<V> {
    slots: Vec<Option<V>>,
    free: Vec<u32>,
    cap: usize,
    refused: u64,
}

impl<V> Slab<V> {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            cap,
            refused: 0,
        }
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<V>>() + self.free.capacity() * size_of::<u32>()
    }

    /// Bytes in use with room for so many entries, a power of two, at most.
    pub(super) const fn bytes_for(cap: usize) -> usize {
        cap * (size_of::<Option<V>>() + size_of::<u32>())
    }

    /// Slots there are, used or not: the end of a walk by number.
    pub(super) fn width(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Entries there was no room for.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether so many more fit.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.len() + more <= self.cap
    }

    /// Counts an entry there was no room for.
    pub(super) fn refuse(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// Adds an entry; the caller has looked for room.
    pub(super) fn insert(&mut self, value: V) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(value);
                slot
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() as u32 - 1
            }
        }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&V> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut V> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, slot: u32) -> Option<V> {
        let value = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    /// Entries with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(slot, held)| Some((slot, held.as_ref()?)))
    }

    /// Entries with their slots, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut V)> {
        (0..)
            .zip(&mut self.slots)
            .filter_map(|(slot, held)| Some((slot, held.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_stable_and_used_again() {
        let mut slab = Slab::new(3);
        let slots = ["a", "b", "c"].map(|v| slab.insert(v));
        assert!(!slab.has_room(1));
        slab.refuse();
        assert_eq!(slab.remove(slots[1]), Some("b"));
        assert_eq!((slab.remove(slots[1]), slab.get(slots[1])), (None, None));
        assert!(slab.has_room(1) && !slab.has_room(2));
        assert_eq!(slab.insert("d"), slots[1]);
        assert_eq!((slab.len(), slab.refused()), (3, 1));
        assert_eq!(slab.iter().map(|(_, v)| *v).collect::<String>(), "adc");
    }
}
