//! Flows of one event loop, addressed by tokens that are never mistaken for a later flow.

/// Slot index, generation of the slot and which end of the flow, packed for epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) u64);

const GENERATION: u32 = 0x7fff_ffff;

impl Token {
    fn new(index: usize, generation: u32) -> Self {
        Self((index as u64) << 32 | u64::from(generation & GENERATION) << 1)
    }

    /// The same flow, the other end: what the server's descriptor is registered with.
    pub(crate) fn server(self) -> Self {
        Self(self.0 | 1)
    }

    /// The flow itself, as given out by [`Slab::insert`].
    pub(crate) fn flow(self) -> Self {
        Self(self.0 & !1)
    }

    pub(crate) fn is_server(self) -> bool {
        self.0 & 1 == 1
    }

    fn index(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 1) as u32 & GENERATION
    }
}

/// The container.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores what `make` builds from its future token.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Token) -> T) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        let (generation, slot) = &mut self.slots[index];
        let token = Token::new(index, *generation);
        *slot = Some(make(token));
        token
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let (generation, slot) = self.slots.get_mut(token.index())?;
        (*generation == token.generation()).then_some(slot.as_mut())?
    }

    /// Takes a value out; its token becomes void.
    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(token.index())?;
        if *generation != token.generation() {
            return None;
        }
        let value = slot.take()?;
        *generation = (*generation + 1) & GENERATION;
        self.free.push(token.index());
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Tokens of all values.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        let occupied = |(i, (generation, slot)): (usize, &(u32, Option<T>))| {
            slot.as_ref().map(|_| Token::new(i, *generation))
        };
        self.slots.iter().enumerate().filter_map(occupied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_token_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert(|_| 'a');
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert(|_| 'b');
        assert_ne!(a, b);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(b.server().flow()), Some(&mut 'b'));
        assert_eq!(
            (slab.len(), slab.tokens().collect::<Vec<_>>()),
            (1, vec![b])
        );
    }

    #[test]
    fn the_generation_wraps_without_touching_the_index() {
        let token = Token::new(5, u32::MAX);
        assert_eq!((token.index(), token.generation()), (5, GENERATION));
        assert!(token.server().is_server() && !token.is_server());
    }
}
