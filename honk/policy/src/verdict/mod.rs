//! Nodes that cannot be built: what is said about one ([`Rejection`]), in which steps a start
//! finds all of them ([`Rounds`]), and how long the word holds ([`Verdicts`]).
//!
//! Nothing here builds a node or writes a file. Only a rejection by the builder counts: what
//! happens on the network never switches a node off.

mod rejection;
mod rounds;
mod store;
#[cfg(test)]
mod tests;

pub use rejection::{Kind, NodeRef, Rejection, Told, parse};
pub use rounds::{End, LIMIT, Outcome, Rounds, Step};
pub use store::{Body, Verdict, Verdicts};
