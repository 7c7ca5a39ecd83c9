//! Connections by number: slots are reused, a generation tells stale events apart.

/// A table of connections.
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores a connection; the token is unique for its life.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(value);
        u64::from(entry.0) << 32 | u64::from(slot)
    }

    /// The connection of a token, unless it has ended.
    pub(crate) fn get(&mut self, token: u64) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(token as u32 as usize)?;
        if u64::from(*generation) != token >> 32 {
            None
        } else {
            value.as_mut()
        }
    }

    /// Ends a connection.
    pub(crate) fn remove(&mut self, token: u64) -> Option<T> {
        self.get(token)?;
        let entry = &mut self.slots[token as u32 as usize];
        entry.0 = entry.0.wrapping_add(1) & 0x3fff_ffff;
        self.free.push(token as u32);
        entry.1.take()
    }

    /// All living connections with their tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, (generation, value))| {
                Some((u64::from(*generation) << 32 | slot as u64, value.as_ref()?))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_token_finds_nothing() {
        let mut slab = Slab::new();
        let old = slab.insert('a');
        assert_eq!(slab.remove(old), Some('a'));
        let new = slab.insert('b');
        assert_eq!(slab.get(old), None);
        assert_eq!(slab.get(new), Some(&mut 'b'));
        assert_eq!(slab.iter().count(), 1);
    }
}
