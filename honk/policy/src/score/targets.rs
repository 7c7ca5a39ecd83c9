//! The targets that evidence is kept for, each once, as long as something refers to it.
//!
//! Everything that keeps a [`TargetId`] holds it with [`retain`](Targets::retain) and gives it
//! back with [`release`](Targets::release). So the number of targets is bounded by the bounds of
//! the tables that hold them, and an id never changes its meaning under its holder.

use std::hash::{DefaultHasher, Hasher as _};

use super::{
    ids::{Target, TargetId, TargetKey},
    index::Index,
};

/// Targets by number and by content.
#[derive(Debug)]
pub(super) struct Targets {
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: Index,
    /// Mixed into every hash: names come from clients, who must not choose where they land.
    seed: u64,
}

#[derive(Debug)]
struct Slot {
    held: Option<(TargetKey, u64)>,
    holders: u32,
}

impl Targets {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: Index::default(),
            seed,
        }
    }

    /// The id of a normal target, if it is known.
    pub(super) fn find(&self, target: Target<'_>) -> Option<TargetId> {
        self.lookup(target, self.hash(target))
    }

    /// The id of a normal target, held once for the caller.
    pub(super) fn intern(&mut self, target: Target<'_>) -> TargetId {
        let hash = self.hash(target);
        let id = self.lookup(target, hash).unwrap_or_else(|| {
            let held = Some((target.key(), hash));
            let fresh = Slot { held, holders: 0 };
            let slot = match self.free.pop() {
                Some(slot) => {
                    self.slots[slot as usize] = fresh;
                    slot
                }
                None => {
                    self.slots.push(fresh);
                    self.slots.len() as u32 - 1
                }
            };
            self.index.insert(hash, slot);
            TargetId(slot)
        });
        self.retain(id);
        id
    }

    /// Another holder.
    pub(super) fn retain(&mut self, id: TargetId) {
        self.slots[id.0 as usize].holders += 1;
    }

    /// One holder less; the last one lets it go.
    pub(super) fn release(&mut self, id: TargetId) {
        let slot = &mut self.slots[id.0 as usize];
        slot.holders -= 1;
        if slot.holders == 0
            && let Some((_, hash)) = slot.held.take()
        {
            self.index.remove(hash, id.0);
            self.free.push(id.0);
        }
    }

    /// The target itself, for canonical order and for what it weighs. Only of held ids.
    pub(super) fn key(&self, id: TargetId) -> Option<&TargetKey> {
        self.slots
            .get(id.0 as usize)?
            .held
            .as_ref()
            .map(|(key, _)| key)
    }

    /// Targets that are held.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn lookup(&self, target: Target<'_>, hash: u64) -> Option<TargetId> {
        let is_it = |slot: u32| {
            let held = self.slots[slot as usize].held.as_ref();
            held.is_some_and(|(key, _)| target.same(key))
        };
        self.index.find(hash, is_it).map(TargetId)
    }

    fn hash(&self, target: Target<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        match target {
            Target::Name(host, port) => {
                hasher.write_u16(port);
                for chunk in host.as_bytes().chunks(8) {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    word.make_ascii_lowercase();
                    hasher.write_u64(u64::from_le_bytes(word));
                }
                hasher.write_usize(host.len());
            }
            Target::Address(at) => {
                hasher.write_u16(at.port());
                match at.ip() {
                    std::net::IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
                    std::net::IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
                }
            }
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str) -> Target<'_> {
        Target::Name(host, 443).normal().unwrap()
    }

    #[test]
    fn spellings_of_one_target_have_one_id() {
        let mut targets = Targets::new(1);
        let id = targets.intern(name("Example.ORG."));
        assert_eq!(targets.find(name("example.org")), Some(id));
        assert_eq!(targets.find(Target::Name("example.org", 80)), None);
        let mapped = Target::Address("[::ffff:192.0.2.1]:53".parse().unwrap());
        let plain = Target::Address("192.0.2.1:53".parse().unwrap());
        let id = targets.intern(mapped.normal().unwrap());
        assert_eq!(targets.find(plain), Some(id));
        assert_eq!(Target::Name(&"a".repeat(256), 1).normal(), None);
        assert_eq!(Target::Name(".", 1).normal(), None);
        assert!(Target::Name(&"a".repeat(255), 1).normal().is_some());
    }

    #[test]
    fn the_last_holder_lets_a_target_go() {
        let mut targets = Targets::new(1);
        let id = targets.intern(name("a.example"));
        assert_eq!(targets.intern(name("a.example")), id);
        targets.release(id);
        assert!(targets.key(id).is_some());
        targets.release(id);
        assert_eq!((targets.key(id), targets.len()), (None, 0));
        assert_eq!(targets.find(name("a.example")), None);
        let next = targets.intern(name("b.example"));
        assert_eq!((next, targets.len()), (id, 1));
    }

    #[test]
    fn names_sort_before_addresses() {
        let mut keys = [
            Target::Address("192.0.2.1:1".parse().unwrap()).key(),
            Target::Name("b", 1).key(),
            Target::Name("a", 2).key(),
            Target::Name("a", 1).key(),
        ];
        keys.sort();
        assert!(keys[0] == Target::Name("a", 1).key());
        assert!(keys[3] == Target::Address("192.0.2.1:1".parse().unwrap()).key());
    }
}
