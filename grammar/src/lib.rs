//! The dae-style configuration language, from text to a tree with places.
//!
//! This crate knows syntax only: what a section may contain and what a value means is decided
//! by `honk-policy`. It opens no file and reads no clock; include files are handed in by the
//! caller through a [`Loader`].

pub mod ast;
pub mod diag;
pub mod edit;
pub mod limits;
mod source;

mod advice;
mod encoding;
mod expected;
mod glob;
mod load;
mod loader;
mod mask;
mod parse;
mod prescan;
mod print;
mod recover;
mod redact;
mod render;
mod resume;
mod spelling;
mod suggest;
mod syntax;
mod token;
mod tree;

pub use glob::matches as fits;
pub use load::{Parsed, parse, parse_bytes, parse_document, parse_text};
pub use loader::{LoadError, Loaded, Loader};
pub use mask::masked;
pub use print::{FormatError, format};
pub use redact::{is_secret_key, redact};
pub use suggest::suggest;
