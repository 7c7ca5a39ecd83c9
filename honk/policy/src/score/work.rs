//! Attempts from their plan to their end, and the Score groups each one is evidence for.

use super::{
    call::Source,
    cell::CellRef,
    clock::T,
    consts::{NESTING, TRACKED, WORKS},
    ids::{GroupKey, Handle, NodeKey, TargetId},
    reporter::Reporter,
    slab::Slab,
};
use crate::id::{Family, Network};

/// One attempt.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) serial: u64,
    pub(super) stage: Stage,
    pub(super) kind: Kind,
    /// When it was planned, then when it was begun.
    pub(super) since: T,
    /// Number of the configuration it was planned under.
    pub(super) generation: u64,
    pub(super) network: Network,
    pub(super) family: Option<Family>,
    /// Held until the attempt is gone.
    pub(super) target: Option<TargetId>,
    /// The leaf.
    pub(super) node: NodeKey,
    /// First of its attributions; they are linked from the innermost group outwards.
    pub(super) last: Option<u32>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Chosen, not begun.
    Planned,
    /// Work on it has begun; it is paid for.
    Begun,
    /// On the wire.
    Started(Reporter, Source),
}

/// What it is to the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A flow of a client, counted once.
    Original,
    /// The same flow again.
    Continuation,
    /// Nobody's flow.
    Preparation,
}

/// A Score group an attempt is evidence for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribution {
    pub(super) group: GroupKey,
    /// The leaf this group chose; an inner group may have answered with another one since.
    pub(super) picked: NodeKey,
    /// Whether that leaf must still be in the serving pool when work begins.
    pub(super) pooled: bool,
    /// Whether it is a trial of this group.
    pub(super) trial: bool,
    /// Cells it reports to, from the widest.
    pub(super) cells: [Option<Reported>; 3],
    pub(super) next: Option<u32>,
}

/// A cell an attempt reports to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    pub(super) at: CellRef,
    /// The run of its cohort in which this attempt was counted.
    pub(super) credited: Option<u32>,
}

/// All attempts that are known.
#[derive(Debug)]
pub(super) struct Works {
    pub(super) works: Slab<Work>,
    pub(super) attributions: Slab<Attribution>,
    serial: u64,
    swept: Option<T>,
}

impl Works {
    pub(super) fn new() -> Self {
        Self {
            works: Slab::new(WORKS),
            attributions: Slab::new(WORKS * 2),
            serial: 0,
            swept: None,
        }
    }

    /// The number of the next attempt; `None` when there is no room or no number left.
    pub(super) fn next_serial(&mut self) -> Option<u64> {
        let free = self.works.has_room(1) && self.attributions.has_room(NESTING);
        let next = self.serial.checked_add(1).filter(|_| free);
        match next {
            Some(serial) => self.serial = serial,
            None => self.works.refuse(),
        }
        next
    }

    /// Keeps an attempt.
    pub(super) fn insert(&mut self, work: Work) -> Handle {
        let serial = work.serial;
        let slot = self.works.insert(work);
        Handle { slot, serial }
    }

    /// Adds a group to an attempt; false when it is there already or the attempt is full.
    pub(super) fn attribute(&mut self, handle: Handle, mut new: Attribution) -> bool {
        let Some(work) = self.get(handle) else {
            return false;
        };
        let known = self
            .chain(work.last)
            .any(|(_, held)| held.group == new.group);
        if known || !self.can_attribute(work) {
            return false;
        }
        new.next = work.last;
        let slot = self.attributions.insert(new);
        if let Some(work) = self.get_mut(handle) {
            work.last = Some(slot);
        }
        true
    }

    /// Whether an attempt can pass through one more group.
    pub(super) fn can_attribute(&self, work: &Work) -> bool {
        self.chain(work.last).count() < NESTING && self.attributions.has_room(1)
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&Work> {
        self.works
            .get(handle.slot)
            .filter(|work| work.serial == handle.serial)
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Work> {
        self.works
            .get_mut(handle.slot)
            .filter(|work| work.serial == handle.serial)
    }

    /// Attributions from one on.
    pub(super) fn chain(&self, first: Option<u32>) -> impl Iterator<Item = (u32, &Attribution)> {
        let mut at = first;
        std::iter::from_fn(move || {
            let slot = at?;
            let held = self.attributions.get(slot)?;
            at = held.next;
            Some((slot, held))
        })
    }

    /// Takes an attempt out together with its attributions.
    pub(super) fn remove(&mut self, handle: Handle) -> Option<Work> {
        self.get(handle)?;
        let work = self.works.remove(handle.slot)?;
        let mut at = work.last;
        while let Some(held) = at.and_then(|slot| self.attributions.remove(slot)) {
            at = held.next;
        }
        Some(work)
    }

    /// A planned attempt that has waited too long, when room is wanted: at most one search of the
    /// table a second.
    pub(super) fn forgotten(&mut self, now: T) -> Option<Handle> {
        if self.works.has_room(1) && self.attributions.has_room(NESTING) {
            return None;
        }
        if self.swept.is_some_and(|at| !now.is_after(at, 1)) {
            return None;
        }
        let old = self.works.iter().find(|(_, work)| {
            matches!(work.stage, Stage::Planned) && now.is_after(work.since, TRACKED)
        });
        let found = old.map(|(slot, work)| Handle {
            slot,
            serial: work.serial,
        });
        if found.is_none() {
            self.swept = Some(now);
        }
        found
    }
}
