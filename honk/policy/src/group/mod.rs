//! Groups: who is in them, what they select, and the kernel slot each one keeps.
//!
//! A [`GroupTable`] is an immutable snapshot. Every selection is worked out when the table is
//! made, so that asking for one on the accept path is an array access. Changes make a new
//! table; the caller publishes it. Slots, ids and choices follow the group's name from one
//! table to the next.

mod assembly;
pub mod builtin;
pub mod choice;
mod graph;
mod health;
mod member;
mod resolve;
mod slot;
mod table;
#[cfg(test)]
mod tests;
mod view;

pub use choice::{Changed, Choice, ChooseError, Scope};
pub use health::{AllAlive, Health, NodeState};
pub use member::Member;
pub use resolve::{Refuse, Selected, Source};
pub use slot::Retired;
pub use table::{Group, GroupTable};
pub use view::{
    DroppedView, FinalKind, FinalProblem, FinalView, GroupView, MemberView, SelectionView,
};
