//! Wire formats as pure functions: no socket, no clock, no randomness that was not passed in.
//!
//! Every parser takes what has arrived so far and says how much of it was used, so callers
//! may read in any portions and never lose a byte that belongs to the payload.
#![forbid(unsafe_code)]

pub mod addr;
mod base64;
pub mod dns;
pub mod http;
pub mod sniff;
pub mod socks5;

pub use addr::Target;
