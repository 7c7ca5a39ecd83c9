//! The comparison store: at most 512 cells and 1 MiB, whatever comes in.
//!
//! A sorted list holds everything that one node did in one place side by side, in canonical target
//! order; an index finds a single cell. Two nodes' common targets are those of one's run that the
//! index knows of the other: names are compared when a cell is made, never when it is read. What other state makes void (a fence, an evicted or removed cell) the engine forgets
//! here at once, so a read needs nothing but the store.

use std::fmt;

use super::{
    key::{About, CmpKey, Owner, Place, TrafficKey},
    ring::{Ring, When},
    timing::Timing,
};
use crate::{
    id::Network,
    score::{
        clock::T,
        consts::{COMPARISON_BYTES, COMPARISONS},
        ids::{GroupKey, NodeKey, mix},
        index::Index,
        targets::Targets,
    },
};

/// Most bytes that a key may own.
const KEY_HEAP: usize = 1024;
/// Logical bytes that can never be passed: the store, all cells, all places in the list, all keys.
pub(in crate::score) const LOGICAL_CAPACITY: usize = size_of::<Store>()
    + COMPARISONS * (size_of::<Cell>() + size_of::<[Ring; 3]>() + size_of::<Entry>() + KEY_HEAP)
    + Index::bytes_for(COMPARISONS);

const _: () = assert!(LOGICAL_CAPACITY <= COMPARISON_BYTES);
const _: () = assert!(size_of::<Cell>() + size_of::<[Ring; 3]>() <= 960);

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

/// Samples of one node about one thing.
struct Cell {
    owner: Owner,
    about: About,
    touched: u64,
    /// When its last block ends.
    ends: T,
}

/// A place in the sorted list: owner, led by bits of it that compare at once, and where the cell
/// is.
type Entry = ((u64, Owner), u16);

/// Longest run that is searched from end to end.
const NEAR: usize = 16;

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
#[derive(Default)]
pub(in crate::score) struct Store {
    cells: Vec<Cell>,
    /// Response, up and down of each cell. Apart from the cells, so that looking for one does not
    /// pull its samples into the processor's cache.
    rings: Vec<[Ring; 3]>,
    /// Sorted by owner, then by what the cell is about.
    order: Vec<Entry>,
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
        Self::default()
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
        let (owner, about) = key.split();
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
        let slot = match self.lookup(owner, about) {
            Some(slot) => slot,
            None if heap_of(targets, about) > KEY_HEAP => return false,
            None => self.insert(targets, now, owner, about),
        };
        self.clock += 1;
        let cell = &mut self.cells[slot];
        cell.touched = self.clock;
        cell.ends = cell.ends.max(ends);
        self.rings[slot][s.metric as usize].record(block, s.at, s.value, s.reporter)
    }

    /// The slot of a cell.
    fn lookup(&self, owner: Owner, about: About) -> Option<usize> {
        let is_it = |slot: u32| {
            let cell = &self.cells[slot as usize];
            cell.about == about && cell.owner == owner
        };
        let slot = self.index.find(hash(owner, about), is_it)?;
        Some(slot as usize)
    }

    /// Where the cell stands in the list, or where it would.
    fn find(&self, targets: &Targets, owner: Owner, about: About) -> Result<usize, usize> {
        let owner = ordered(owner);
        self.order.binary_search_by(|(o, slot)| {
            o.cmp(&owner)
                .then_with(|| self.cells[usize::from(*slot)].about.order(about, targets))
        })
    }

    fn insert(&mut self, targets: &mut Targets, now: T, owner: Owner, about: About) -> usize {
        if self.cells.len() >= COMPARISONS {
            self.make_room(targets, now);
        }
        if let Some(target) = about.target() {
            targets.retain(target);
        }
        self.heap += heap_of(targets, about);
        let at = self.find(targets, owner, about).unwrap_or_else(|at| at);
        let slot = self.cells.len();
        self.cells.push(Cell {
            owner,
            about,
            touched: 0,
            ends: T::START,
        });
        self.rings.push(Default::default());
        // The cap keeps every slot within u16.
        let short = u16::try_from(slot).unwrap_or(u16::MAX);
        self.order.insert(at, (ordered(owner), short));
        self.index.insert(hash(owner, about), slot as u32);
        slot
    }

    /// Drops what has ended; when nothing has, the cell that was touched the longest time ago.
    fn make_room(&mut self, targets: &mut Targets, now: T) {
        let before = self.cells.len();
        self.forget(targets, |cell| cell.ends <= now);
        let ended = before - self.cells.len();
        if ended > 0 {
            self.expired = self.expired.saturating_add(ended as u64);
            return;
        }
        let oldest = self.cells.iter().map(|cell| cell.touched).min();
        self.forget(targets, |cell| Some(cell.touched) == oldest);
        self.evictions = self.evictions.saturating_add(1);
    }

    fn forget(&mut self, targets: &mut Targets, gone: impl Fn(&Cell) -> bool) {
        let mut slot = 0;
        while slot < self.cells.len() {
            if gone(&self.cells[slot]) {
                self.remove(targets, slot);
            } else {
                slot += 1;
            }
        }
    }

    fn remove(&mut self, targets: &mut Targets, slot: usize) {
        let entry_of = |store: &Self, targets: &Targets, slot: usize| {
            let cell = &store.cells[slot];
            store.find(targets, cell.owner, cell.about)
        };
        if let Ok(at) = entry_of(self, targets, slot) {
            self.order.remove(at);
        }
        // First the one that goes: with equal hashes, the entry of the moved one looks the same.
        self.index.remove(self.cells[slot].hash(), slot as u32);
        let last = self.cells.len() - 1;
        if slot != last
            && let Ok(moved) = entry_of(self, targets, last)
        {
            self.order[moved].1 = u16::try_from(slot).unwrap_or(u16::MAX);
            let hash = self.cells[last].hash();
            self.index.remove(hash, last as u32);
            self.index.insert(hash, slot as u32);
        }
        let gone = self.cells.swap_remove(slot);
        self.rings.swap_remove(slot);
        self.heap -= heap_of(targets, gone.about);
        if let Some(target) = gone.about.target() {
            targets.release(target);
        }
    }

    /// The evidence cell of a target ended or was fenced.
    pub(in crate::score) fn forget_exact(&mut self, targets: &mut Targets, key: &TrafficKey) {
        if let Some(slot) = self.lookup(key.owner(), About::Target(key.target)) {
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
        for place in Place::all(network) {
            let owner = Owner { group, place, node };
            while let Some(slot) = self.run(owner).first().map(|&(_, slot)| slot) {
                self.remove(targets, usize::from(slot));
            }
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
        let place = Place::probes(network);
        let owner = Owner { group, place, node };
        let is_it = |cell: &Cell| matches!(cell.about, About::Probe { slot: s, .. } if s == slot);
        let find = |store: &Self| {
            let slots = store.run(owner).iter().map(|&(_, slot)| usize::from(slot));
            slots.into_iter().find(|&slot| is_it(&store.cells[slot]))
        };
        while let Some(slot) = find(self) {
            self.remove(targets, slot);
        }
    }

    /// No probe counts any more.
    pub(in crate::score) fn clear_probes(&mut self, targets: &mut Targets) {
        self.forget(targets, |cell| cell.about.target().is_none());
    }

    /// Only these nodes of these groups are left.
    pub(in crate::score) fn retain(
        &mut self,
        targets: &mut Targets,
        keep: impl Fn(GroupKey, NodeKey) -> bool,
    ) {
        self.forget(targets, |cell| !keep(cell.owner.group, cell.owner.node));
    }

    /// Cells of one owner, in canonical order of what they are about.
    fn run(&self, owner: Owner) -> &[Entry] {
        let owner = ordered(owner);
        let start = self.order.partition_point(|(o, _)| *o < owner);
        let run = self.order[start..].iter();
        let len = run.take_while(|(o, _)| *o == owner).count();
        &self.order[start..start + len]
    }

    /// Rings of a node about one thing.
    pub(super) fn rings(&self, owner: Owner, about: About) -> Option<&[Ring; 3]> {
        Some(&self.rings[self.lookup(owner, about)?])
    }

    /// What both owners have cells about that have not ended, in canonical order.
    pub(super) fn matched(
        &self,
        now: T,
        [a, b]: [Owner; 2],
    ) -> impl Iterator<Item = (About, [&[Ring; 3]; 2])> {
        let mut rest = self.run(b);
        self.run(a).iter().filter_map(move |(_, slot)| {
            let slot = usize::from(*slot);
            let cell = &self.cells[slot];
            if cell.ends <= now {
                return None;
            }
            let other = if rest.len() > NEAR {
                self.lookup(b, cell.about)?
            } else {
                let is_it = |e: &Entry| self.cells[usize::from(e.1)].about == cell.about;
                let at = rest.iter().position(is_it)?;
                let found = usize::from(rest[at].1);
                // Both runs are in the same order.
                rest = &rest[at + 1..];
                found
            };
            let lasts = self.cells[other].ends > now;
            lasts.then(|| (cell.about, [slot, other].map(|slot| &self.rings[slot])))
        })
    }

    /// What a read needs besides the rings; nothing before the first sample.
    pub(super) fn when(&self, now: T, timing: Timing) -> Option<When> {
        self.origin.map(|origin| When {
            timing,
            origin,
            now,
        })
    }

    /// Size, and what was removed or refused so far.
    pub(in crate::score) fn stats(&self) -> ComparisonStats {
        let bytes = size_of::<Self>()
            + self.cells.capacity() * size_of::<Cell>()
            + self.rings.capacity() * size_of::<[Ring; 3]>()
            + self.order.capacity() * size_of::<Entry>()
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
    fn hash(&self) -> u64 {
        hash(self.owner, self.about)
    }
}

fn hash(owner: Owner, about: About) -> u64 {
    mix(owner.bits(), about.bits())
}

fn ordered(owner: Owner) -> (u64, Owner) {
    (owner.bits(), owner)
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
