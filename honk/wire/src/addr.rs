//! Addresses as proxies see them: an IP address or a name, with a port.
//!
//! The SOCKS encoding (type, address, port) is shared by SOCKS5 requests, replies and
//! datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest name the encoding can carry.
pub const MAX_NAME: usize = 255;
/// Longest encoded address: type, length, name, port.
pub const MAX_ENCODED: usize = 1 + 1 + MAX_NAME + 2;

const TYPE_V4: u8 = 1;
const TYPE_NAME: u8 = 3;
const TYPE_V6: u8 = 4;

/// Where a flow wants to go, or where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target<'a> {
    /// A literal address.
    Ip(SocketAddr),
    /// A name for the proxy to resolve, and a port.
    Name(&'a str, u16),
}

impl Target<'_> {
    /// The port.
    pub fn port(&self) -> u16 {
        match self {
            Self::Ip(addr) => addr.port(),
            Self::Name(_, port) => *port,
        }
    }
}

/// Why an address could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddrError {
    /// The type byte is none of 1, 3, 4.
    #[error("address type {0:#04x} is not IPv4, name or IPv6")]
    Type(u8),
    /// A name of no bytes.
    #[error("the name in the address is empty")]
    EmptyName,
    /// Not text.
    #[error("the name in the address is not UTF-8")]
    NotText,
    /// A name that does not fit the length byte.
    #[error("the name has {0} bytes, the protocol carries 255")]
    NameTooLong(usize),
}

/// Appends the encoding. IPv4-mapped IPv6 addresses are sent as IPv4.
pub fn encode(target: &Target<'_>, out: &mut Vec<u8>) -> Result<(), AddrError> {
    match target {
        Target::Ip(addr) => {
            match addr.ip().to_canonical() {
                IpAddr::V4(ip) => {
                    out.push(TYPE_V4);
                    out.extend_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    out.push(TYPE_V6);
                    out.extend_from_slice(&ip.octets());
                }
            }
            out.extend_from_slice(&addr.port().to_be_bytes());
        }
        Target::Name(name, port) => {
            if name.is_empty() {
                return Err(AddrError::EmptyName);
            }
            let len = u8::try_from(name.len()).map_err(|_| AddrError::NameTooLong(name.len()))?;
            out.push(TYPE_NAME);
            out.push(len);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&port.to_be_bytes());
        }
    }
    Ok(())
}

/// Reads an address from the front: `None` when more bytes are needed, else the address and
/// its length. IPv4-mapped IPv6 addresses come back as IPv4.
pub fn decode(input: &[u8]) -> Result<Option<(Target<'_>, usize)>, AddrError> {
    let Some((&kind, rest)) = input.split_first() else {
        return Ok(None);
    };
    match kind {
        TYPE_V4 => Ok(fixed::<4>(rest).map(|(octets, port)| {
            let ip = IpAddr::V4(Ipv4Addr::from(octets));
            (Target::Ip(SocketAddr::new(ip, port)), 1 + 4 + 2)
        })),
        TYPE_V6 => Ok(fixed::<16>(rest).map(|(octets, port)| {
            let ip = IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
            (Target::Ip(SocketAddr::new(ip, port)), 1 + 16 + 2)
        })),
        TYPE_NAME => {
            let Some((&len, rest)) = rest.split_first() else {
                return Ok(None);
            };
            let len = usize::from(len);
            if len == 0 {
                return Err(AddrError::EmptyName);
            }
            let (Some(name), Some(port)) = (rest.get(..len), rest.get(len..len + 2)) else {
                return Ok(None);
            };
            let name = std::str::from_utf8(name).map_err(|_| AddrError::NotText)?;
            let port = u16::from_be_bytes([port[0], port[1]]);
            Ok(Some((Target::Name(name, port), 1 + 1 + len + 2)))
        }
        other => Err(AddrError::Type(other)),
    }
}

fn fixed<const N: usize>(rest: &[u8]) -> Option<([u8; N], u16)> {
    let (octets, rest) = rest.split_first_chunk::<N>()?;
    let (port, _) = rest.split_first_chunk::<2>()?;
    Some((*octets, u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(target: &Target<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(target, &mut out).unwrap();
        out
    }

    #[test]
    fn known_vectors() {
        let name = Target::Name("example.com", 443);
        assert_eq!(encoded(&name), b"\x03\x0bexample.com\x01\xbb");
        let ip = Target::Ip("192.0.2.1:80".parse().unwrap());
        assert_eq!(encoded(&ip), [1, 192, 0, 2, 1, 0, 80]);
        let mapped = Target::Ip("[::ffff:192.0.2.1]:80".parse().unwrap());
        assert_eq!(encoded(&mapped), [1, 192, 0, 2, 1, 0, 80]);
    }

    #[test]
    fn every_prefix_asks_for_more() {
        for target in [
            Target::Name("example.com", 443),
            Target::Ip("192.0.2.1:80".parse().unwrap()),
            Target::Ip("[2001:db8::1]:8080".parse().unwrap()),
        ] {
            let bytes = encoded(&target);
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Ok(None), "{target:?} cut at {cut}");
            }
            assert_eq!(decode(&bytes), Ok(Some((target, bytes.len()))));
        }
    }

    #[test]
    fn bad_addresses_are_refused() {
        assert_eq!(decode(&[2, 0, 0]), Err(AddrError::Type(2)));
        assert_eq!(decode(&[3, 0, 0, 80]), Err(AddrError::EmptyName));
        assert_eq!(decode(&[3, 1, 0xff, 0, 80]), Err(AddrError::NotText));
        let long = "x".repeat(256);
        assert_eq!(
            encode(&Target::Name(&long, 1), &mut Vec::new()),
            Err(AddrError::NameTooLong(256))
        );
    }

    #[test]
    fn mapped_addresses_come_back_as_ipv4() {
        let mut bytes = vec![4];
        bytes.extend_from_slice(&"::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend_from_slice(&[0, 53]);
        let want = Target::Ip("10.0.0.1:53".parse().unwrap());
        assert_eq!(decode(&bytes), Ok(Some((want, 19))));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            if let Ok(Some((_, used))) = decode(&bytes) {
                assert!(used <= bytes.len() && used <= MAX_ENCODED);
            }
        }

        #[test]
        fn what_is_written_is_read_back(octets: [u8; 16], port: u16, name in "[a-z0-9.-]{1,255}") {
            let ip = IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
            for target in [Target::Ip(SocketAddr::new(ip, port)), Target::Name(&name, port)] {
                let bytes = encoded(&target);
                assert_eq!(decode(&bytes), Ok(Some((target, bytes.len()))));
            }
        }
    }
}
