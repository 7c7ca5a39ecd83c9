//! Words for people that every surface needs.

use std::fmt::Display;

/// `1 error`, `2 errors`
pub(crate) fn plural<N: Display + PartialEq + From<u8>>(count: N, word: &str) -> String {
    let s = if count == N::from(1) { "" } else { "s" };
    format!("{count} {word}{s}")
}
