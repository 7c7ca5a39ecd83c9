//! Replies honk writes itself.

use super::{FLAG_RECURSION_AVAILABLE, FLAG_RESPONSE, kind, query::Query};

/// Datagram size honk announces.
const OWN_SIZE: u16 = 1232;
const OPTION_EDE: u16 = 15;
const DO: u32 = 0x8000;

/// Why there is no answer (RFC 8914), for askers that speak EDNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// A rule of the gateway forbids it.
    Blocked,
    /// The server did not answer in time.
    NoReachableAuthority,
    /// The way to the server is down, or the gateway has no room.
    NetworkError,
}

impl Explanation {
    fn code(self) -> u16 {
        match self {
            Self::Blocked => 15,
            Self::NoReachableAuthority => 22,
            Self::NetworkError => 23,
        }
    }
}

/// Appends the reply to a query: the code, the question, no record.
pub fn refuse(query: &Query<'_>, code: u8, why: Explanation, out: &mut Vec<u8>) {
    let flags = FLAG_RESPONSE | FLAG_RECURSION_AVAILABLE | query.copied | u16::from(code & 15);
    let additionals = u16::from(query.edns.is_some());
    for word in [query.id, flags, 1, 0, 0, additionals] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(query.question);
    if let Some(edns) = query.edns {
        let ttl = if edns.dnssec { DO } else { 0 };
        out.push(0);
        out.extend_from_slice(&kind::OPT.to_be_bytes());
        out.extend_from_slice(&OWN_SIZE.to_be_bytes());
        out.extend_from_slice(&ttl.to_be_bytes());
        for word in [6, OPTION_EDE, 2, why.code()] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
}
