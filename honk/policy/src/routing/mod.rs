//! Rules: the model, the compiler for the kernel classifier, and the reference evaluator.
//!
//! [`compile()`] turns lines into the tables the kernel reads, [`eval_tables`] is what the
//! kernel computes from them, and [`oracle::Oracle`] is the meaning both must agree with.
//! Ordinals pass through unchanged: the caller maps them to kernel slots first.

mod classes;
pub mod compile;
pub mod domain;
pub mod eval;
mod guard;
pub mod oracle;
mod prefix;
pub mod rule;
#[cfg(test)]
mod tests;

pub use compile::{CompileError, compile};
pub use eval::{dns_first, eval_tables, is_sensitive};
