//! The comparison store: at most 512 cells and 1 MiB, whatever comes in.
//!
//! Cells are found through one sorted list, in which everything that one node did in one place
//! lies side by side in canonical target order: two nodes' common targets are a merge of two
//! runs. What other state makes void (a fence, an evicted or removed cell) the engine forgets
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
        ids::{GroupKey, NodeKey},
        targets::Targets,
    },
};

/// Most bytes that a key may own.
const KEY_HEAP: usize = 1024;
/// Logical bytes that can never be passed: the store, all cells, all places in the list, all keys.
pub(in crate::score) const LOGICAL_CAPACITY: usize =
    size_of::<Store>() + COMPARISONS * (size_of::<Cell>() + size_of::<Entry>() + KEY_HEAP);

const _: () = assert!(LOGICAL_CAPACITY <= COMPARISON_BYTES);
const _: () = assert!(size_of::<Cell>() <= 960);

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
    rings: [Ring; 3],
}

/// A place in the sorted list: owner, and where the cell is.
type Entry = (Owner, u16);

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
    /// Sorted by owner, then by what the cell is about.
    order: Vec<Entry>,
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
        let slot = match self.find(targets, owner, about) {
            Ok(at) => usize::from(self.order[at].1),
            Err(_) if heap_of(targets, about) > KEY_HEAP => return false,
            Err(_) => self.insert(targets, now, owner, about),
        };
        self.clock += 1;
        let cell = &mut self.cells[slot];
        cell.touched = self.clock;
        cell.ends = cell.ends.max(ends);
        cell.rings[s.metric as usize].record(block, s.at, s.value, s.reporter)
    }

    /// Where the cell stands in the list, or where it would.
    fn find(&self, targets: &Targets, owner: Owner, about: About) -> Result<usize, usize> {
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
            rings: Default::default(),
        });
        // The cap keeps every slot within u16.
        let short = u16::try_from(slot).unwrap_or(u16::MAX);
        self.order.insert(at, (owner, short));
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
        let last = self.cells.len() - 1;
        if slot != last
            && let Ok(moved) = entry_of(self, targets, last)
        {
            self.order[moved].1 = u16::try_from(slot).unwrap_or(u16::MAX);
        }
        let gone = self.cells.swap_remove(slot);
        self.heap -= heap_of(targets, gone.about);
        if let Some(target) = gone.about.target() {
            targets.release(target);
        }
    }

    /// The evidence cell of a target ended or was fenced.
    pub(in crate::score) fn forget_exact(&mut self, targets: &mut Targets, key: &TrafficKey) {
        if let Ok(at) = self.find(targets, key.owner(), About::Target(key.target)) {
            self.remove(targets, usize::from(self.order[at].1));
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
        let start = self.order.partition_point(|(o, _)| *o < owner);
        let len = self.order[start..].partition_point(|(o, _)| *o == owner);
        &self.order[start..start + len]
    }

    /// Rings of a node about one thing.
    pub(super) fn rings(
        &self,
        targets: &Targets,
        owner: Owner,
        about: About,
    ) -> Option<&[Ring; 3]> {
        let at = self.find(targets, owner, about).ok()?;
        Some(&self.cells[usize::from(self.order[at].1)].rings)
    }

    /// What both owners have cells about, in canonical order.
    pub(super) fn matched(
        &self,
        targets: &Targets,
        owners: [Owner; 2],
    ) -> impl Iterator<Item = (About, [&[Ring; 3]; 2])> {
        let [mut a, mut b] = owners.map(|owner| self.run(owner));
        std::iter::from_fn(move || {
            loop {
                let (&(_, x), &(_, y)) = (a.first()?, b.first()?);
                let [x, y] = [x, y].map(|slot| &self.cells[usize::from(slot)]);
                let order = x.about.order(y.about, targets);
                if order.is_le() {
                    a = &a[1..];
                }
                if order.is_ge() {
                    b = &b[1..];
                }
                if order.is_eq() {
                    return Some((x.about, [&x.rings, &y.rings]));
                }
            }
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
            + self.order.capacity() * size_of::<Entry>()
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
