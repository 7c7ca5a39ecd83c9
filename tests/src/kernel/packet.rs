//! Packets for the tests, built header by header. Checksums stay zero, since no program reads
//! them, but in [`Packet::wire`].

use std::net::{IpAddr, SocketAddr};

use honk_common::key::{FlowKey, PROTO_TCP, PROTO_UDP};

use super::GATEWAY_MAC;

/// MAC of the usual client.
pub const CLIENT_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x22];

/// TCP flag bits.
pub const FIN: u8 = 0x01;
/// TCP flag bits.
pub const SYN: u8 = 0x02;
/// TCP flag bits.
pub const RST: u8 = 0x04;
/// TCP flag bits.
pub const ACK: u8 = 0x10;

/// IPv6 extension headers, by number.
pub const HOP_BY_HOP: u8 = 0;
/// IPv6 extension headers, by number.
pub const ROUTING: u8 = 43;
/// IPv6 extension headers, by number.
pub const DEST_OPTS: u8 = 60;
/// Authentication header: not skipped.
pub const AH: u8 = 51;

/// A packet in parts. Change what a test is about, then [`build`](Self::build) it.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Source MAC.
    pub smac: [u8; 6],
    /// Destination MAC.
    pub dmac: [u8; 6],
    /// Ethertype, when it is not that of the addresses.
    pub ethertype: Option<u16>,
    /// Source; the port is used by TCP and UDP.
    pub src: SocketAddr,
    /// Destination.
    pub dst: SocketAddr,
    /// IP protocol.
    pub proto: u8,
    /// Differentiated services code point.
    pub dscp: u8,
    /// TCP flags.
    pub flags: u8,
    /// TCP sequence number.
    pub seq: u32,
    /// Bytes of IPv4 options, a multiple of four.
    pub options: usize,
    /// IPv6 extension headers, in order.
    pub extensions: Vec<u8>,
    /// Fragment: identification, offset in bytes, more to come.
    pub fragment: Option<(u32, u16, bool)>,
    /// What follows the layer-4 header; for other protocols, all of it.
    pub payload: Vec<u8>,
}

/// A TCP segment, `flags` as given.
pub fn tcp(src: &str, dst: &str, flags: u8) -> Packet {
    Packet::new(src, dst, PROTO_TCP, flags)
}

/// A UDP datagram.
pub fn udp(src: &str, dst: &str) -> Packet {
    Packet::new(src, dst, PROTO_UDP, 0)
}

/// A packet of another protocol; ports are ignored.
pub fn other(src: &str, dst: &str, proto: u8) -> Packet {
    Packet::new(src, dst, proto, 0)
}

impl Packet {
    fn new(src: &str, dst: &str, proto: u8, flags: u8) -> Self {
        let addr = |s: &str| s.parse().unwrap_or_else(|e| panic!("{s}: {e}"));
        Self {
            smac: CLIENT_MAC,
            dmac: GATEWAY_MAC,
            ethertype: None,
            src: addr(src),
            dst: addr(dst),
            proto,
            dscp: 0,
            flags,
            seq: 1000,
            options: 0,
            extensions: Vec::new(),
            fragment: None,
            payload: vec![0xab; 16],
        }
    }

    /// Sets the sequence number.
    #[must_use]
    pub fn seq(mut self, seq: u32) -> Self {
        self.seq = seq;
        self
    }

    /// Puts extension headers before the payload.
    #[must_use]
    pub fn extensions(mut self, headers: &[u8]) -> Self {
        self.extensions = headers.to_vec();
        self
    }

    /// Makes it a fragment: the first if `offset` is 0.
    #[must_use]
    pub fn fragment(mut self, id: u32, offset: u16, more: bool) -> Self {
        self.fragment = Some((id, offset, more));
        self
    }

    /// Sets the destination MAC.
    #[must_use]
    pub fn dmac(mut self, mac: [u8; 6]) -> Self {
        self.dmac = mac;
        self
    }

    /// Sets the source MAC.
    #[must_use]
    pub fn smac(mut self, mac: [u8; 6]) -> Self {
        self.smac = mac;
        self
    }

    /// Replaces what follows the headers.
    #[must_use]
    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload = bytes.to_vec();
        self
    }

    /// Key of the flow this packet belongs to, seen from its sender.
    pub fn key(&self) -> FlowKey {
        FlowKey::new(self.src, self.dst, self.proto)
    }

    /// The frame.
    pub fn build(&self) -> Vec<u8> {
        let ethertype = match self.src {
            SocketAddr::V4(_) => 0x0800u16,
            SocketAddr::V6(_) => 0x86dd,
        };
        let mut out = self.dmac.to_vec();
        out.extend(self.smac);
        out.extend(self.ethertype.unwrap_or(ethertype).to_be_bytes());
        out.extend(self.ip());
        out
    }

    /// The packet without link header.
    pub fn ip(&self) -> Vec<u8> {
        let l4 = self.l4();
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(s), IpAddr::V4(d)) => self.v4(s.octets(), d.octets(), l4),
            (IpAddr::V6(s), IpAddr::V6(d)) => self.v6(s.octets(), d.octets(), l4),
            _ => panic!("two families in one packet"),
        }
    }

    /// The frame with the checksums a receiver wants.
    pub fn wire(&self) -> Vec<u8> {
        let mut frame = self.build();
        let l4 = self.l4().len();
        let (start, addresses) = match self.src {
            SocketAddr::V4(_) => (14, 26..34),
            SocketAddr::V6(_) => (14, 22..54),
        };
        let pseudo = [
            &frame[addresses],
            &[0, self.proto],
            &(l4 as u16).to_be_bytes(),
        ]
        .concat();
        let at = frame.len() - l4;
        let sum = checksum(&[&pseudo, &frame[at..]].concat());
        let field = at + if self.proto == PROTO_TCP { 16 } else { 6 };
        frame[field..field + 2].copy_from_slice(&sum);
        if self.src.is_ipv4() {
            let header = 20 + self.options;
            let sum = checksum(&frame[start..start + header]);
            frame[start + 10..start + 12].copy_from_slice(&sum);
        }
        frame
    }

    fn l4(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let later = self.fragment.is_some_and(|(_, offset, _)| offset != 0);
        if !later && self.proto == PROTO_TCP {
            out.extend(self.src.port().to_be_bytes());
            out.extend(self.dst.port().to_be_bytes());
            out.extend(self.seq.to_be_bytes());
            out.extend([0, 0, 0, 0, 0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        } else if !later && self.proto == PROTO_UDP {
            out.extend(self.src.port().to_be_bytes());
            out.extend(self.dst.port().to_be_bytes());
            out.extend((8 + self.payload.len() as u16).to_be_bytes());
            out.extend([0, 0]);
        }
        out.extend(&self.payload);
        out
    }

    fn v4(&self, src: [u8; 4], dst: [u8; 4], l4: Vec<u8>) -> Vec<u8> {
        let header = 20 + self.options;
        let (id, offset, more) = self.fragment.unwrap_or((0, 0, false));
        let field = (offset / 8) | if more { 0x2000 } else { 0 };
        let mut out = vec![0x40 | (header / 4) as u8, self.dscp << 2];
        out.extend(((header + l4.len()) as u16).to_be_bytes());
        out.extend((id as u16).to_be_bytes());
        out.extend(field.to_be_bytes());
        out.extend([64, self.proto, 0, 0]);
        out.extend(src);
        out.extend(dst);
        out.extend(vec![1; self.options]);
        out.extend(l4);
        out
    }

    fn v6(&self, src: [u8; 16], dst: [u8; 16], l4: Vec<u8>) -> Vec<u8> {
        // Headers are chained from the back.
        let mut chain = Vec::new();
        let mut next = self.proto;
        if let Some((id, offset, more)) = self.fragment {
            let field = (offset & 0xfff8) | u16::from(more);
            let mut h = vec![next, 0];
            h.extend(field.to_be_bytes());
            h.extend(id.to_be_bytes());
            chain = h;
            next = 44;
        }
        for kind in self.extensions.iter().rev() {
            let mut h = vec![next, 0, 1, 4, 0, 0, 0, 0];
            h.extend(chain);
            chain = h;
            next = *kind;
        }
        let mut out = vec![0x60 | self.dscp >> 2, (self.dscp & 3) << 6, 0, 0];
        out.extend(((chain.len() + l4.len()) as u16).to_be_bytes());
        out.extend([next, 64]);
        out.extend(src);
        out.extend(dst);
        out.extend(chain);
        out.extend(l4);
        out
    }
}

/// An ICMP error of the client about `quoted`, a packet the client received.
pub fn icmp_error(kind: u8, quoted: &Packet) -> Packet {
    let v6 = quoted.src.is_ipv6();
    let mut p = quoted.clone();
    p.src = SocketAddr::new(quoted.dst.ip(), 0);
    p.dst = SocketAddr::new(quoted.src.ip(), 0);
    p.proto = if v6 { 58 } else { 1 };
    p.payload = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    p.payload.extend(quoted.ip());
    p
}

/// The Internet checksum of some bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
