//! What reads take from the store; none of it changes anything.

use super::{
    super::{
        key::{About, Place, SideKey},
        ring::{Ring, When},
        sides::Side,
        timing::Timing,
    },
    Cell, Metric, Store,
};
use crate::score::{clock::T, consts::REPORTERS};

/// A cell with its samples, as a read sees it.
#[derive(Clone, Copy)]
pub(in crate::score::compare) struct Samples<'a> {
    cell: &'a Cell,
    rings: &'a [Ring; 3],
}

impl Store {
    /// A node in a network of a group, with its number, if it has cells.
    pub(in crate::score::compare) fn side(&self, key: SideKey) -> Option<(u32, &Side)> {
        let number = self.sides.find(key)?;
        Some((number, self.sides.get(number)?))
    }

    /// What a side has about one thing.
    pub(in crate::score::compare) fn samples(
        &self,
        side: u32,
        place: Place,
        about: About,
    ) -> Option<Samples<'_>> {
        self.at(self.lookup(side, place, about)?)
    }

    fn at(&self, slot: u32) -> Option<Samples<'_>> {
        Some(Samples {
            cell: self.cells.get(slot)?,
            rings: self.rings.get(slot as usize)?,
        })
    }

    /// Whether a side has a cell in a place whose response can be a side of a pair now.
    pub(in crate::score::compare) fn has_response(
        &self,
        now: T,
        place: Place,
        side: &Side,
    ) -> bool {
        self.sides.slots(side.run(place)).iter().any(|slot| {
            let cell = self.cells.get(u32::from(*slot));
            cell.is_some_and(|c| c.flows[Metric::Response as usize] >= REPORTERS && c.ends > now)
        })
    }

    /// What a side has in a place and has not ended, in canonical order.
    pub(in crate::score::compare) fn live(
        &self,
        now: T,
        place: Place,
        side: &Side,
    ) -> impl Iterator<Item = Samples<'_>> + use<'_> {
        let slots = self.sides.slots(side.run(place)).iter();
        let cells = slots.filter_map(|slot| self.at(u32::from(*slot)));
        cells.filter(move |samples| samples.cell.ends > now)
    }

    /// What another side, given by its number, has about the same and has not ended.
    pub(in crate::score::compare) fn same(
        &self,
        now: T,
        place: Place,
        side: u32,
        about: Samples<'_>,
    ) -> Option<Samples<'_>> {
        self.samples(side, place, about.cell.about)
            .filter(|samples| samples.cell.ends > now)
    }

    /// What a read needs besides the rings; nothing before the first sample.
    pub(in crate::score::compare) fn when(&self, now: T, timing: Timing) -> Option<When> {
        self.origin.map(|origin| When {
            timing,
            origin,
            now,
        })
    }
}

impl<'a> Samples<'a> {
    /// What it is about.
    pub(in crate::score::compare) fn about(self) -> About {
        self.cell.about
    }

    /// Samples of a metric.
    pub(in crate::score::compare) fn ring(self, metric: Metric) -> &'a Ring {
        &self.rings[metric as usize]
    }

    /// Whether a metric may have enough flows for a side of a pair.
    pub(in crate::score::compare) fn may_pair(self, metric: Metric) -> bool {
        self.cell.flows[metric as usize] >= REPORTERS
    }
}
