//! Links, read and written.

mod cases;
pub(crate) mod describe;
mod login;
mod random;
