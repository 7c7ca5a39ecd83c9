//! Health of nodes: who is alive, how fast, and what to probe when.
//!
//! [`Monitor`] is fed what happened and asked what to do; it opens no socket and reads no
//! clock. It judges each node in three domains and two families, and the members of groups
//! with a check URL of their own. Readers get an immutable [`View`]. [`measure`] holds what
//! pings found, for people only.

mod cell;
mod event;
mod history;
pub mod limits;
pub mod measure;
mod monitor;
mod node;
mod schedule;
mod setup;
mod strikes;
mod target;
#[cfg(test)]
mod tests;
mod view;

pub use event::{Effects, Event, Outcome, Probe, ProbeId, Shift, Subject, Transition, Urgency};
pub use history::{Kind as SampleKind, Sample};
pub use monitor::{Counts, Monitor, TestStart, Touched};
pub use setup::{GroupFacts, NodeFacts, Selection, Setup};
pub use view::{Condition, View};
