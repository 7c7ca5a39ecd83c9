//! Flow, fragment and prefix keys, and the one address form they all use.

use crate::abi;

pub const PROTO_TCP: u8 = 6;
pub const PROTO_UDP: u8 = 17;

/// One direction of a flow, as the client sends it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    pub src: [u8; 16],
    pub dst: [u8; 16],
    /// Host order.
    pub sport: u16,
    /// Host order.
    pub dport: u16,
    pub proto: u8,
    /// Always zero: maps hash keys byte by byte.
    pub pad: [u8; 3],
}
abi!(FlowKey, 40);

impl FlowKey {
    /// The key a packet of the opposite direction has.
    pub const fn reversed(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            proto: self.proto,
            pad: [0; 3],
        }
    }
}

/// Identifies the fragments of one datagram.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragKey {
    pub src: [u8; 16],
    pub dst: [u8; 16],
    pub id: u32,
    pub proto: u8,
    pub pad: [u8; 3],
}
abi!(FragKey, 40);

/// Key of the inner prefix maps: length in bits of the 16-byte form, so IPv4 adds 96.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LpmKey {
    /// Host order, 0..=128.
    pub prefix_len: u32,
    pub addr: [u8; 16],
}
abi!(LpmKey, 20);

/// `a.b.c.d` as the 16 bytes of `::ffff:a.b.c.d`.
pub const fn v4_mapped(a: [u8; 4]) -> [u8; 16] {
    [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a[0], a[1], a[2], a[3],
    ]
}

/// Whether the address is an IPv4 address in mapped form.
pub fn is_v4_mapped(a: &[u8; 16]) -> bool {
    a[..10] == [0; 10] && a[10] == 0xff && a[11] == 0xff
}

#[cfg(feature = "std")]
mod convert {
    use std::net::{IpAddr, Ipv6Addr, SocketAddr};

    use super::{FlowKey, is_v4_mapped, v4_mapped};

    /// The map form of an address. A mapped IPv6 address counts as IPv4.
    pub fn to_bytes(ip: IpAddr) -> [u8; 16] {
        match ip {
            IpAddr::V4(v4) => v4_mapped(v4.octets()),
            IpAddr::V6(v6) => v6.octets(),
        }
    }

    /// The address of a map entry.
    pub fn from_bytes(a: &[u8; 16]) -> IpAddr {
        if is_v4_mapped(a) {
            IpAddr::from([a[12], a[13], a[14], a[15]])
        } else {
            IpAddr::V6(Ipv6Addr::from(*a))
        }
    }

    impl FlowKey {
        /// Key of the flow `src -> dst` of IP protocol `proto` (6 or 17).
        pub fn new(src: SocketAddr, dst: SocketAddr, proto: u8) -> Self {
            Self {
                src: to_bytes(src.ip()),
                dst: to_bytes(dst.ip()),
                sport: src.port(),
                dport: dst.port(),
                proto,
                pad: [0; 3],
            }
        }

        /// Source address and port.
        pub fn source(&self) -> SocketAddr {
            SocketAddr::new(from_bytes(&self.src), self.sport)
        }

        /// Destination address and port.
        pub fn destination(&self) -> SocketAddr {
            SocketAddr::new(from_bytes(&self.dst), self.dport)
        }
    }
}
#[cfg(feature = "std")]
pub use convert::{from_bytes, to_bytes};
