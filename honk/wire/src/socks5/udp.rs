//! The header in front of every datagram that passes a SOCKS5 relay.

use std::net::{IpAddr, SocketAddr};

use crate::addr::{self, AddrError, Target};

/// Longest header with an address.
pub const MAX_HEADER: usize = 3 + 1 + 16 + 2;
/// Largest content of a UDP datagram over IPv4, header included.
pub const MAX_DATAGRAM: usize = 65_507;

/// Why a datagram from the relay was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Shorter than its header.
    #[error("the datagram ends inside its header")]
    Short,
    /// Fragments are optional in RFC 1928 and nobody needs them.
    #[error("the datagram is a fragment")]
    Fragment,
    /// The source address is malformed.
    #[error(transparent)]
    Address(#[from] AddrError),
}

/// A header on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    bytes: [u8; MAX_HEADER],
    len: u8,
}

impl Header {
    /// The header for a target. IPv4-mapped addresses are written as IPv4.
    pub fn new(target: SocketAddr) -> Self {
        let mut bytes = [0u8; MAX_HEADER];
        let len = match target.ip().to_canonical() {
            IpAddr::V4(ip) => {
                bytes[3] = 1;
                bytes[4..8].copy_from_slice(&ip.octets());
                8
            }
            IpAddr::V6(ip) => {
                bytes[3] = 4;
                bytes[4..20].copy_from_slice(&ip.octets());
                20
            }
        };
        bytes[len..len + 2].copy_from_slice(&target.port().to_be_bytes());
        Self {
            bytes,
            len: len as u8 + 2,
        }
    }

    /// The bytes to send before the payload.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The header for a target with a name; `None` for a name that does not fit.
pub fn named_header(name: &str, port: u16) -> Option<Box<[u8]>> {
    let mut header = vec![0; 3];
    addr::encode(&Target::Name(name, port), &mut header).ok()?;
    Some(header.into())
}

/// Splits a datagram from the relay into its source and its payload, which may be empty.
pub fn parse(datagram: &[u8]) -> Result<(Target<'_>, &[u8]), Error> {
    let Some((&[_, _, fragment], rest)) = datagram.split_first_chunk::<3>() else {
        return Err(Error::Short);
    };
    if fragment != 0 {
        return Err(Error::Fragment);
    }
    let (source, len) = addr::decode(rest)?.ok_or(Error::Short)?;
    Ok((source, &rest[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back() {
        for text in ["192.0.2.1:53", "[2001:db8::1]:443"] {
            let target: SocketAddr = text.parse().unwrap();
            let mut datagram = Header::new(target).as_bytes().to_vec();
            assert_eq!(parse(&datagram), Ok((Target::Ip(target), &[][..])));
            datagram.extend_from_slice(b"data");
            assert_eq!(parse(&datagram), Ok((Target::Ip(target), &b"data"[..])));
        }
    }

    #[test]
    fn fragments_and_stubs_are_refused() {
        let mut datagram = Header::new("192.0.2.1:53".parse().unwrap())
            .as_bytes()
            .to_vec();
        for cut in 0..datagram.len() {
            assert_eq!(parse(&datagram[..cut]), Err(Error::Short));
        }
        datagram[2] = 1;
        assert_eq!(parse(&datagram), Err(Error::Fragment));
    }

    #[test]
    fn names_are_passed_on() {
        let datagram = b"\0\0\0\x03\x03dns\0\x35hi";
        assert_eq!(parse(datagram), Ok((Target::Name("dns", 53), &b"hi"[..])));
        assert_eq!(named_header("dns", 53).as_deref(), Some(&datagram[..10]));
        assert_eq!(named_header(&"x".repeat(256), 53), None);
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_datagrams_never_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
