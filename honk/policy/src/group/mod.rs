//! Groups: who is in them, what they select, and the kernel slot each one keeps.
//!
//! A [`GroupTable`] is an immutable snapshot. Every selection is worked out when something it
//! depends on changes (a node's health, a choice, the configuration), so that asking for one
//! on the accept path is an array access. Changes make a new table that shares what they do not
//! touch; the caller publishes it and acts on the [`Change`]s that come with it. Slots, ids and
//! choices follow the group's name from one table to the next.

mod activity;
mod admit;
mod assembly;
pub mod builtin;
mod change;
mod check_url;
pub mod choice;
mod fallback;
mod field;
mod graph;
mod health;
mod live;
mod member;
mod pick;
mod reach;
mod rivals;
mod scan;
mod scores;
mod shape;
mod slot;
mod standing;
mod table;
#[cfg(test)]
mod tests;
mod urltest;
mod view;
mod walks;
mod warm;

pub use activity::Activity;
pub use change::{Cause, Change, Update};
pub use choice::{Changed, Choice, ChooseError, Scope};
pub use field::{Offer, Ranker, Ranks, Unranked};
pub use health::{AllAlive, Health, NodeState};
pub use member::Member;
pub use pick::{Refuse, Selected, Source};
pub use reach::{Leads, Reach};
pub use rivals::{Rival, Rivals};
pub use slot::Retired;
pub use table::{Group, GroupTable};
pub use view::{
    DroppedView, FinalKind, FinalProblem, FinalView, GroupView, Ineligible, MemberView,
    SelectionView, ToleranceSource,
};
