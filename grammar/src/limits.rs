//! Sizes the language refuses to exceed, so that no file can exhaust the program that reads it.

/// Bytes of one file.
pub const FILE_BYTES: usize = 8 << 20;
/// Bytes of all files together.
pub const TOTAL_BYTES: usize = 32 << 20;
/// Bytes of one line.
pub const LINE_BYTES: usize = 1 << 20;
/// Bytes between two quotes.
pub const QUOTED_BYTES: usize = 64 << 10;
/// Sections inside sections.
pub const NESTING: usize = 16;
/// Arguments of one call.
pub const ARGUMENTS: usize = 1_000_000;
/// Included files, the entry file not counted.
pub const INCLUDES: usize = 256;
/// Includes inside includes.
pub const INCLUDE_DEPTH: usize = 16;
/// Diagnostics reported before "N more".
pub const DIAGNOSTICS: usize = 100;
