//! What the OPT record of a query says (RFC 6891).

use super::{kind, message::Message};

/// Flag "DNSSEC OK" in the TTL field of OPT.
const DO: u32 = 0x8000;

/// The OPT record of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// Largest datagram the asker takes.
    pub size: u16,
    /// Signatures are wanted.
    pub dnssec: bool,
    /// 0, as far as anybody knows.
    pub version: u8,
}

/// Finds the OPT record among the `additionals` from `start` on. `None` when the section
/// cannot be read or holds more than one.
pub(super) fn find(message: &Message<'_>, start: usize) -> Option<Option<Edns>> {
    let mut found = None;
    for record in message.records(start, message.additionals) {
        let record = record?;
        if record.kind != kind::OPT {
            continue;
        }
        // A TTL with the top bit set was read as 0: extended codes never occur in queries.
        let edns = Edns {
            size: record.class,
            dnssec: record.ttl & DO != 0,
            version: (record.ttl >> 16) as u8,
        };
        if found.replace(edns).is_some() {
            return None;
        }
    }
    Some(found)
}
