//! Comparison evidence: what two nodes did for the same target in the same seconds.
//!
//! Separate from the cells that utility reads: bounded by itself, never an average of anything,
//! and unknown when it is missing. Promotion and the questions of optional trials read it.

mod gain;
mod key;
mod pair;
mod relation;
mod ring;
mod sides;
mod store;
mod timing;

#[cfg(test)]
mod tests;

pub(super) use gain::{Gain, gain};
pub(super) use key::{CmpKey, ProbeKey, TrafficKey};
#[cfg(test)]
pub(super) use pair::{Basis, Pairing};
pub(super) use pair::{Beside, Reading};
pub(super) use relation::{Relation, relation};
pub use store::ComparisonStats;
pub(super) use store::{Metric, Sample, Store};
