//! Address hints of SVCB and HTTPS records (RFC 9460).

use std::net::IpAddr;

use super::{name::Name, word};

const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;

/// Gives every hinted address; false when the data cannot be read.
pub(super) fn hints(data: &[u8], mut give: impl FnMut(IpAddr)) -> bool {
    let mut walk = || {
        // Priority, then a target name that is never compressed.
        let priority = word(data, 0)?;
        let (_, mut at) = Name::read_plain(data, 2)?;
        while at < data.len() {
            let key = word(data, at)?;
            let len = usize::from(word(data, at + 2)?);
            let value = data.get(at + 4..at + 4 + len)?;
            at += 4 + len;
            // An alias carries no parameters that count.
            match key {
                IPV4_HINT if priority != 0 => {
                    let (addresses, rest) = value.as_chunks::<4>();
                    rest.is_empty().then_some(())?;
                    addresses.iter().for_each(|a| give(IpAddr::from(*a)));
                }
                IPV6_HINT if priority != 0 => {
                    let (addresses, rest) = value.as_chunks::<16>();
                    rest.is_empty().then_some(())?;
                    addresses.iter().for_each(|a| give(IpAddr::from(*a)));
                }
                _ => {}
            }
        }
        Some(())
    };
    walk().is_some()
}
