//! Links, read and written.

mod cases;
mod describe;
mod login;
mod random;
