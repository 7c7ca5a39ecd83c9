//! DNS messages (RFC 1035 and what came after) as honk needs them: queries and answers are
//! looked at where they lie, and short error replies are written.
//!
//! [`Query`] is a question a client asks, [`read_answer`] checks that bytes answer it and
//! takes the addresses out, [`refuse`] writes a reply without records, and [`host`] resolves
//! host names of honk's own. Nothing here allocates in proportion to what a header claims.

mod answer;
mod build;
mod edns;
pub mod host;
mod message;
mod name;
mod query;
mod svcb;
#[cfg(test)]
mod testkit;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Learned, MAX_LEARNED, Rejected, read_answer};
pub use build::{Explanation, refuse};
pub use edns::Edns;
pub use host::{Addresses, Error, Kind, MAX_ADDRESSES, answer, query};
pub use name::Name;
pub use query::Query;

/// Record types honk knows by number.
pub mod kind {
    /// IPv4 address.
    pub const A: u16 = 1;
    /// Alias.
    pub const CNAME: u16 = 5;
    /// Pointer, for reverse look-ups.
    pub const PTR: u16 = 12;
    /// IPv6 address.
    pub const AAAA: u16 = 28;
    /// Pseudo record of EDNS.
    pub const OPT: u16 = 41;
    /// Service binding.
    pub const SVCB: u16 = 64;
    /// Service binding of HTTPS.
    pub const HTTPS: u16 = 65;
    /// Incremental zone transfer.
    pub const IXFR: u16 = 251;
    /// Zone transfer.
    pub const AXFR: u16 = 252;
}

/// Response codes honk knows by number.
pub mod rcode {
    /// Success, with or without records.
    pub const NOERROR: u8 = 0;
    /// The query could not be read.
    pub const FORMERR: u8 = 1;
    /// The server failed.
    pub const SERVFAIL: u8 = 2;
    /// The name does not exist.
    pub const NXDOMAIN: u8 = 3;
    /// The server does not do this.
    pub const NOTIMP: u8 = 4;
    /// The server does not want to.
    pub const REFUSED: u8 = 5;
}

const CLASS_IN: u16 = 1;
const HEADER: usize = 12;
const FLAG_RESPONSE: u16 = 0x8000;
const FLAG_TRUNCATED: u16 = 0x0200;
const FLAG_RECURSION_DESIRED: u16 = 0x0100;
const FLAG_RECURSION_AVAILABLE: u16 = 0x0080;
const FLAG_CHECKING_DISABLED: u16 = 0x0010;
const OPCODE: u16 = 0x7800;

fn word(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes))
}

fn long(message: &[u8], at: usize) -> Option<u32> {
    let bytes = message.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}
