//! Prometheus exposition: one list of names, one page per scrape.
//!
//! Decides how values are shown, not what they are: `api` hands in what it reads from atomics
//! and from the sampled kernel counters. Nothing here blocks the datapath.

pub(crate) mod histogram;
pub(crate) mod names;
pub(crate) mod page;
pub(crate) mod process;
