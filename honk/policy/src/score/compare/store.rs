//! The comparison store: at most 512 cells and 1 MiB, whatever comes in.
//!
//! The cells of one node lie side by side in canonical target order; an index finds a single one.
//! Two nodes' common targets are those of one's run that the index knows of the other: names are
//! compared when a cell is made, never when it is read. What other state makes void (a fence, an
//! evicted or removed cell) the engine forgets here at once, so a read needs nothing but the store.

pub(super) mod read;

use std::{cmp::Ordering, fmt};

use super::{
    key::{About, CmpKey, Place, SideKey, TrafficKey},
    ring::Ring,
    sides::Sides,
};
use crate::{
    id::Network,
    score::{
        clock::T,
        consts::{COMPARISON_BYTES, COMPARISONS, REPORTERS},
        ids::{GroupKey, NodeKey, mix},
        index::Index,
        slab::Slab,
        targets::Targets,
    },
};

/// Most bytes that a key may own.
const KEY_HEAP: usize = 1024;
/// Logical bytes that can never be passed: the store, all cells, all sides, all keys.
pub(in crate::score) const LOGICAL_CAPACITY: usize = size_of::<Store>()
    + Slab::<Cell>::bytes_for(COMPARISONS)
    + COMPARISONS * (size_of::<[Ring; 3]>() + KEY_HEAP)
    + Sides::bytes_for(COMPARISONS)
    + Index::bytes_for(COMPARISONS);

const _: () = assert!(LOGICAL_CAPACITY <= COMPARISON_BYTES);
const _: () = assert!(size_of::<Cell>() + size_of::<[Ring; 3]>() <= 960);
// A slot fits the lists of the sides, and growing by doubling ends at the cap.
const _: () = assert!(COMPARISONS <= u16::MAX as usize && COMPARISONS.is_power_of_two());

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::score) enum Metric {
    /// Milliseconds until the first response.
    Response,
    /// Bytes per second towards the target.
    Up,
    /// Bytes per second from the target.
    Down,
}

/// One sample of one flow or probe.
#[derive(Clone, Copy, Debug)]
pub(in crate::score) struct Sample {
    pub(in crate::score) metric: Metric,
    pub(in crate::score) at: T,
    pub(in crate::score) value: f64,
    /// Number of the flow or measurement, never used twice; 0 is none.
    pub(in crate::score) reporter: u64,
}

/// One node about one thing.
#[derive(Debug)]
struct Cell {
    side: u32,
    place: Place,
    about: About,
    touched: u64,
    /// When its last block ends.
    ends: T,
    /// Of each metric: no more flows than this can be told apart.
    flows: [u8; 3],
}

/// Size, and what was removed or refused so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparisonStats {
    /// Cells now.
    pub cells: u64,
    /// Bytes in use: the store, its lists at their capacity, and what keys own.
    pub logical_bytes: u64,
    /// Bytes that can never be passed.
    pub logical_capacity: u64,
    /// Cells that had to make room although they still counted.
    pub evictions: u64,
    /// Cells that made room and had ended.
    pub expired: u64,
    /// Samples refused.
    pub rejected: u64,
}

/// See the module.
pub(in crate::score) struct Store {
    cells: Slab<Cell>,
    /// Response, up and down of each cell. Apart from the cells, so that looking for one does not
    /// pull its samples into the processor's cache.
    rings: Vec<[Ring; 3]>,
    sides: Sides,
    index: Index,
    origin: Option<T>,
    clock: u64,
    heap: usize,
    evictions: u64,
    expired: u64,
    rejected: u64,
}

impl Store {
    pub(in crate::score) fn new() -> Self {
        Self {
            cells: Slab::new(COMPARISONS),
            rings: Vec::new(),
            sides: Sides::new(COMPARISONS),
            index: Index::default(),
            origin: None,
            clock: 0,
            heap: 0,
            evictions: 0,
            expired: 0,
            rejected: 0,
        }
    }

    /// Takes a sample whose evidence cell is alive and not fenced; one that proves nothing is
    /// refused and counted.
    pub(in crate::score) fn record(
        &mut self,
        targets: &mut Targets,
        now: T,
        key: CmpKey,
        sample: Sample,
    ) {
        if !self.take(targets, now, key, sample) {
            self.rejected = self.rejected.saturating_add(1);
        }
    }

    fn take(&mut self, targets: &mut Targets, now: T, key: CmpKey, s: Sample) -> bool {
        let (key, place, about) = key.split();
        let sound = s.reporter != 0 && s.value.is_finite() && s.value >= 0.0 && s.at <= now;
        let Some(timing) = about.timing().filter(|_| sound) else {
            return false;
        };
        let origin = *self.origin.get_or_insert(s.at);
        let Some(block) = timing.block(origin, s.at) else {
            return false;
        };
        let ends = timing.deadline(origin, block);
        if ends <= now {
            return false;
        }
        let known = self.sides.find(key);
        let slot = match known.and_then(|side| self.lookup(side, place, about)) {
            Some(slot) => slot,
            None if heap_of(targets, about) > KEY_HEAP => return false,
            None => self.insert(targets, now, key, place, about),
        };
        self.clock += 1;
        let Some(cell) = self.cells.get_mut(slot) else {
            return false;
        };
        let was = cell.is_ready();
        let ring = &mut self.rings[slot as usize][s.metric as usize];
        let taken = ring.record(block, s.at, s.value, s.reporter);
        cell.touched = self.clock;
        cell.ends = cell.ends.max(ends);
        cell.flows[s.metric as usize] = ring.flows();
        if let Some(run) = self.sides.run_mut(cell.side, cell.place) {
            run.note(cell.ends, [was, cell.is_ready()]);
        }
        taken
    }

    /// The slot of a cell.
    fn lookup(&self, side: u32, place: Place, about: About) -> Option<u32> {
        let is_it = |slot: u32| {
            self.cells
                .get(slot)
                .is_some_and(|cell| cell.about == about && cell.side == side && cell.place == place)
        };
        self.index.find(hash(side, place, about), is_it)
    }

    /// Where the cell stands in its run, or where it would.
    fn find(
        &self,
        targets: &Targets,
        side: u32,
        place: Place,
        about: About,
    ) -> Result<usize, usize> {
        let run = self
            .sides
            .get(side)
            .map_or(&[][..], |side| self.sides.slots(side.run(place)));
        run.binary_search_by(|slot| {
            let held = self.cells.get(u32::from(*slot));
            held.map_or(Ordering::Less, |cell| cell.about.order(about, targets))
        })
    }

    fn insert(
        &mut self,
        targets: &mut Targets,
        now: T,
        key: SideKey,
        place: Place,
        about: About,
    ) -> u32 {
        if !self.cells.has_room(1) {
            self.make_room(targets, now);
        }
        if let Some(target) = about.target() {
            targets.retain(target);
        }
        self.heap += heap_of(targets, about);
        let side = self.sides.open(key);
        let within = self
            .find(targets, side, place, about)
            .unwrap_or_else(|at| at);
        let slot = self.cells.insert(Cell {
            side,
            place,
            about,
            touched: 0,
            ends: T::START,
            flows: [0; 3],
        });
        match self.rings.get_mut(slot as usize) {
            Some(rings) => *rings = Default::default(),
            None => self.rings.push(Default::default()),
        }
        self.sides.insert(side, place, within, slot as u16);
        self.index.insert(hash(side, place, about), slot);
        slot
    }

    /// Drops what has ended; when nothing has, the cell that was touched the longest time ago.
    fn make_room(&mut self, targets: &mut Targets, now: T) {
        let before = self.cells.len();
        self.forget(targets, |cell, _| cell.ends <= now);
        let ended = before - self.cells.len();
        if ended > 0 {
            self.expired = self.expired.saturating_add(ended as u64);
            return;
        }
        let oldest = self.cells.iter().min_by_key(|(_, cell)| cell.touched);
        if let Some((slot, _)) = oldest {
            self.remove(targets, slot);
        }
        self.evictions = self.evictions.saturating_add(1);
    }

    fn forget(&mut self, targets: &mut Targets, gone: impl Fn(&Cell, &Sides) -> bool) {
        for slot in 0..self.cells.width() {
            if self
                .cells
                .get(slot)
                .is_some_and(|cell| gone(cell, &self.sides))
            {
                self.remove(targets, slot);
            }
        }
    }

    fn remove(&mut self, targets: &mut Targets, slot: u32) {
        let Some(cell) = self.cells.get(slot) else {
            return;
        };
        let (side, place, about) = (cell.side, cell.place, cell.about);
        if let Ok(within) = self.find(targets, side, place, about) {
            self.sides.remove(side, place, within, cell.is_ready());
        }
        self.index.remove(hash(side, place, about), slot);
        self.cells.remove(slot);
        self.heap -= heap_of(targets, about);
        if let Some(target) = about.target() {
            targets.release(target);
        }
    }

    /// The evidence cell of a target ended or was fenced.
    pub(in crate::score) fn forget_exact(&mut self, targets: &mut Targets, key: &TrafficKey) {
        let side = self.sides.find(key.side());
        let about = About::Target(key.target);
        let slot = side.and_then(|side| self.lookup(side, key.family.into(), about));
        if let Some(slot) = slot {
            self.remove(targets, slot);
        }
    }

    /// Everything about a node in one network of a group is void.
    pub(in crate::score) fn forget_node(
        &mut self,
        targets: &mut Targets,
        group: GroupKey,
        network: Network,
        node: NodeKey,
    ) {
        for place in [Place::V4, Place::V6, Place::Probes] {
            self.forget_of(
                targets,
                SideKey {
                    group,
                    network,
                    node,
                },
                place,
                |_| true,
            );
        }
    }

    /// A probe failed, or asks for something else now.
    pub(in crate::score) fn forget_probe(
        &mut self,
        targets: &mut Targets,
        group: GroupKey,
        network: Network,
        node: NodeKey,
        slot: u8,
    ) {
        let side = SideKey {
            group,
            network,
            node,
        };
        self.forget_of(
            targets,
            side,
            Place::Probes,
            |about| matches!(about, About::Probe { slot: s, .. } if s == slot),
        );
    }

    /// Takes out cells of one side in one place.
    fn forget_of(
        &mut self,
        targets: &mut Targets,
        key: SideKey,
        place: Place,
        gone: impl Fn(About) -> bool,
    ) {
        let find = |store: &Self| {
            let side = store.sides.get(store.sides.find(key)?)?;
            let mut slots = store.sides.slots(side.run(place)).iter();
            let is_it = |slot: &&u16| {
                let cell = store.cells.get(u32::from(**slot));
                cell.is_some_and(|cell| gone(cell.about))
            };
            slots.find(is_it).map(|slot| u32::from(*slot))
        };
        while let Some(slot) = find(self) {
            self.remove(targets, slot);
        }
    }

    /// No probe counts any more.
    pub(in crate::score) fn clear_probes(&mut self, targets: &mut Targets) {
        self.forget(targets, |cell, _| cell.place == Place::Probes);
    }

    /// Only these nodes of these groups are left.
    pub(in crate::score) fn retain(
        &mut self,
        targets: &mut Targets,
        keep: impl Fn(GroupKey, NodeKey) -> bool,
    ) {
        self.forget(targets, |cell, sides| {
            let side = sides.key(cell.side);
            side.is_some_and(|side| !keep(side.group, side.node))
        });
    }

    /// Panics unless every side knows how many of its cells may pair.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (_, cell) in self.cells.iter() {
            let run = self.sides.get(cell.side).map(|side| side.run(cell.place));
            let run = run.expect("a cell has a side");
            let cells = self.sides.slots(run).iter();
            let ready = cells.filter(|slot| {
                let cell = self.cells.get(u32::from(**slot));
                cell.expect("in the order").is_ready()
            });
            assert_eq!(run.ready(), ready.count());
        }
    }

    /// Size, and what was removed or refused so far.
    pub(in crate::score) fn stats(&self) -> ComparisonStats {
        let bytes = size_of::<Self>()
            + self.cells.bytes()
            + self.rings.capacity() * size_of::<[Ring; 3]>()
            + self.sides.bytes()
            + self.index.bytes()
            + self.heap;
        ComparisonStats {
            cells: self.cells.len() as u64,
            logical_bytes: bytes as u64,
            logical_capacity: LOGICAL_CAPACITY as u64,
            evictions: self.evictions,
            expired: self.expired,
            rejected: self.rejected,
        }
    }
}

impl Cell {
    /// Whether a metric may have enough flows for a side of a pair.
    fn is_ready(&self) -> bool {
        self.flows.iter().any(|flows| *flows >= REPORTERS)
    }
}

fn hash(side: u32, place: Place, about: About) -> u64 {
    mix(about.bits(), u64::from(side) << 2 | place as u64)
}

/// Bytes that a key owns.
fn heap_of(targets: &Targets, about: About) -> usize {
    let key = about.target().and_then(|target| targets.key(target));
    key.map_or(0, |key| key.heap())
}

/// Keys are private: numbers only.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("cells", &self.cells.len())
            .finish_non_exhaustive()
    }
}
