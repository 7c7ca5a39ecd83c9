//! What was found on ways that are too long or lead back, so that nothing is walked twice.
//!
//! Such selections depend on where one comes from. Where no `final` leads back, only the depth
//! counts, and what a group contributes at a depth is found out once. Elsewhere the ways
//! themselves count: there are more of them than could be walked, so that their number is
//! bounded, and beyond it a group contributes nothing.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use super::pick::Outcome;

/// Steps one selection may take where ways lead back. Sensible groups take a few dozen.
const STEPS: u32 = 256;

/// Where a group was asked: its place, groups above, network and family.
pub(super) type Spot = (usize, usize, usize, usize);

#[derive(Debug, Default)]
pub(super) struct Walks {
    known: RefCell<HashMap<Spot, Rc<Outcome>>>,
    steps: Cell<u32>,
}

impl Walks {
    /// A new selection begins.
    pub(super) fn begin(&self) {
        self.steps.set(0);
    }

    /// One more step where ways lead back; false when there were too many.
    pub(super) fn step(&self) -> bool {
        self.steps.set(self.steps.get().saturating_add(1));
        self.steps.get() <= STEPS
    }

    pub(super) fn known(&self, spot: &Spot) -> Option<Rc<Outcome>> {
        self.known.borrow().get(spot).cloned()
    }

    pub(super) fn learn(&self, spot: Spot, outcome: Rc<Outcome>) {
        self.known.borrow_mut().insert(spot, outcome);
    }
}
