//! Who has comparison cells, and where they are: one entry for each node in a network of a group.
//!
//! A read finds both nodes here once. Most challengers have too few flows for any comparison, and
//! a side knows that of itself, so that most reads end without looking at a cell.

use super::key::{PLACES, Place, SideKey};
use crate::score::{clock::T, index::Index, slab::Slab};

/// All sides, and the cells of each in canonical order.
#[derive(Debug)]
pub(super) struct Sides {
    sides: Slab<Side>,
    index: Index,
    /// Slots of cells, the run of one place of one side after the other.
    order: Vec<u16>,
}

/// One node in a network of a group.
#[derive(Debug)]
pub(super) struct Side {
    key: SideKey,
    runs: [Run; PLACES],
}

/// The cells of a side in one place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// Where they begin in the order; 0 while there are none.
    start: u16,
    len: u16,
    /// Those with enough flows for a side of a pair, when nothing of them is over.
    ready: u16,
    /// When the last block of them all ends.
    ends: Option<T>,
}

impl Side {
    pub(super) fn run(&self, place: Place) -> &Run {
        &self.runs[place as usize]
    }

    pub(super) fn run_mut(&mut self, place: Place) -> &mut Run {
        &mut self.runs[place as usize]
    }

    fn is_empty(&self) -> bool {
        self.runs.iter().all(|run| run.len == 0)
    }
}

impl Run {
    #[cfg(test)]
    pub(super) fn ready(&self) -> usize {
        usize::from(self.ready)
    }

    /// Whether a cell of it can be a side of a pair now. Some such run may not, never the reverse.
    pub(super) fn may_pair(&self, now: T) -> bool {
        self.ready > 0 && self.ends > Some(now)
    }

    /// A cell took a sample: until when it counts, and whether it had and has enough flows.
    pub(super) fn note(&mut self, ends: T, [was, is]: [bool; 2]) {
        self.ends = self.ends.max(Some(ends));
        self.ready = self.ready - u16::from(was) + u16::from(is);
    }
}

impl Sides {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            sides: Slab::new(cap),
            index: Index::default(),
            order: Vec::new(),
        }
    }

    /// Bytes that so many cells can take here at most.
    pub(super) const fn bytes_for(cells: usize) -> usize {
        Slab::<Side>::bytes_for(cells) + Index::bytes_for(cells) + cells * size_of::<u16>()
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.sides.bytes() + self.index.bytes() + self.order.capacity() * size_of::<u16>()
    }

    /// The number of a side, if it has cells.
    pub(super) fn find(&self, key: SideKey) -> Option<u32> {
        let is_it = |slot: u32| self.sides.get(slot).is_some_and(|side| side.key == key);
        self.index.find(key.bits(), is_it)
    }

    pub(super) fn get(&self, side: u32) -> Option<&Side> {
        self.sides.get(side)
    }

    /// The number of a side that is about to get a cell.
    pub(super) fn open(&mut self, key: SideKey) -> u32 {
        self.find(key).unwrap_or_else(|| {
            let side = self.sides.insert(Side {
                key,
                runs: Default::default(),
            });
            self.index.insert(key.bits(), side);
            side
        })
    }

    pub(super) fn key(&self, side: u32) -> Option<SideKey> {
        Some(self.sides.get(side)?.key)
    }

    pub(super) fn run_mut(&mut self, side: u32, place: Place) -> Option<&mut Run> {
        Some(self.sides.get_mut(side)?.run_mut(place))
    }

    /// Slots of the cells of a run.
    pub(super) fn slots(&self, run: &Run) -> &[u16] {
        let start = usize::from(run.start);
        &self.order[start..start + usize::from(run.len)]
    }

    /// Puts a cell at a place of a run.
    pub(super) fn insert(&mut self, side: u32, place: Place, within: usize, cell: u16) {
        let end = self.order.len();
        let Some(run) = self.run_mut(side, place) else {
            return;
        };
        if run.len == 0 {
            *run = Run {
                start: end as u16,
                ..Run::default()
            };
        }
        run.len += 1;
        let own = run.start;
        let at = usize::from(own) + within;
        self.order.insert(at, cell);
        self.each_other(own, |start| {
            if usize::from(*start) >= at {
                *start += 1;
            }
        });
    }

    /// Takes a cell out of a run. `ready`: it had enough flows.
    pub(super) fn remove(&mut self, side: u32, place: Place, within: usize, ready: bool) {
        let Some(run) = self.run_mut(side, place) else {
            return;
        };
        let own = run.start;
        let at = usize::from(own) + within;
        run.len -= 1;
        run.ready -= u16::from(ready);
        if run.len == 0 {
            *run = Run::default();
        }
        self.order.remove(at);
        self.each_other(own, |start| {
            if usize::from(*start) > at {
                *start -= 1;
            }
        });
        let empty = self.sides.get(side).is_some_and(Side::is_empty);
        if let Some(gone) = empty.then(|| self.sides.remove(side)).flatten() {
            self.index.remove(gone.key.bits(), side);
        }
    }

    /// Where the other runs begin: no two that hold anything begin at the same place.
    fn each_other(&mut self, own: u16, mut change: impl FnMut(&mut u16)) {
        let runs = self.sides.iter_mut().flat_map(|(_, side)| &mut side.runs);
        for run in runs.filter(|run| run.len > 0 && run.start != own) {
            change(&mut run.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};

    use super::*;
    use crate::{
        id::Network,
        score::ids::{GroupKey, key},
    };

    fn side(node: u8) -> SideKey {
        SideKey {
            group: GroupKey(1),
            network: Network::Tcp,
            node: key(u128::from(node)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(1),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Every run keeps its own cells in its own order, whatever happens beside it.
        #[test]
        fn runs_do_not_disturb_each_other(
            steps in proptest::collection::vec((0..4_u8, 0..3_usize, any::<bool>(), 0..100_usize), 1..120)
        ) {
            let mut sides = Sides::new(8);
            let mut expected: Vec<[Vec<u16>; PLACES]> = vec![Default::default(); 4];
            for (count, (node, place, remove, within)) in steps.into_iter().enumerate() {
                let at = [Place::V4, Place::V6, Place::Probes][place];
                let held = &mut expected[usize::from(node)][place];
                if remove {
                    if held.is_empty() {
                        continue;
                    }
                    let within = within % held.len();
                    held.remove(within);
                    let number = sides.find(side(node)).unwrap();
                    sides.remove(number, at, within, false);
                } else {
                    let within = within % (held.len() + 1);
                    held.insert(within, count as u16);
                    let number = sides.open(side(node));
                    sides.insert(number, at, within, count as u16);
                }
                for (node, places) in (0..).zip(&expected) {
                    let found = sides.find(side(node)).and_then(|number| sides.get(number));
                    prop_assert_eq!(found.is_some(), places.iter().any(|held| !held.is_empty()));
                    for (run, held) in found.iter().flat_map(|side| &side.runs).zip(places) {
                        if !held.is_empty() {
                            prop_assert_eq!(sides.slots(run), held.as_slice());
                        }
                    }
                }
            }
        }
    }
}
