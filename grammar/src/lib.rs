//! The dae-style configuration language, from text to a tree with places.
//!
//! This crate knows syntax only: what a section may contain and what a value means is decided
//! by `honk-policy`. It opens no file and reads no clock; include files are handed in by the
//! caller through a loader.

pub mod ast;
pub mod diag;
