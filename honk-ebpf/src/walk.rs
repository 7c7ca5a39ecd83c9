//! The patient header walk: options, extension headers, fragments, ICMP errors, packets that
//! are not linear. Called only when the fast shapes of `packet` do not fit.

use aya_ebpf::{bindings::__sk_buff, helpers::generated::bpf_skb_load_bytes};
use honk_common::{
    key::{PROTO_TCP, PROTO_UDP},
    limits::MAX_EXT_HEADERS,
};

use crate::{
    maps::{Scratch, scratch},
    packet::{ETH_LEN, Kind, Packet},
};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DEST_OPTS: u8 = 60;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Reads headers of one packet into scratch memory.
struct Reader {
    skb: *mut __sk_buff,
    buf: *mut u8,
}

impl Reader {
    /// Loads `N` bytes from `at`; `N` is at most the 48 bytes of the buffer.
    #[inline(always)]
    fn load<const N: u32>(&self, at: u32) -> bool {
        const { assert!(N <= 48) };
        unsafe { bpf_skb_load_bytes(self.skb.cast(), at, self.buf.cast(), N) == 0 }
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        unsafe { self.buf.add(at).read() }
    }

    /// A network-order field; even offsets only.
    #[inline(always)]
    fn be16(&self, at: usize) -> u16 {
        u16::from_be(unsafe { self.buf.add(at).cast::<u16>().read() })
    }

    /// Four bytes as they are; offsets divisible by four only.
    #[inline(always)]
    fn word(&self, at: usize) -> u32 {
        unsafe { self.buf.add(at).cast::<u32>().read() }
    }
}

/// Walks the headers behind `l2` bytes of link header, into the packet of this CPU.
#[inline(never)]
pub fn walk(skb: *mut __sk_buff, l2: u32) -> Kind {
    let Some(scratch) = scratch() else {
        return Kind::Malformed;
    };
    let Scratch { packet, header, .. } = scratch;
    let r = Reader {
        skb,
        buf: header.as_mut_ptr().cast(),
    };
    if l2 as usize == ETH_LEN {
        if !r.load::<12>(0) {
            return Kind::Malformed;
        }
        let to = (&raw mut packet.dmac).cast::<u16>();
        let from = header.as_ptr().cast::<u16>();
        let mut i = 0;
        while i < 6 {
            unsafe { to.add(i).write(from.add(i).read()) };
            i += 1;
        }
    }
    if packet.v6 {
        v6(&r, l2, packet)
    } else {
        v4(&r, l2, packet)
    }
}

#[inline(always)]
fn v4(r: &Reader, at: u32, p: &mut Packet) -> Kind {
    if !r.load::<20>(at) {
        return Kind::Malformed;
    }
    let header = u32::from(r.byte(0) & 0x0f) * 4;
    let total = u32::from(r.be16(2));
    if r.byte(0) >> 4 != 4 || header < 20 || (total != 0 && total < header) {
        return Kind::Malformed;
    }
    p.dscp = r.byte(1) >> 2;
    p.set_v4(r.word(12), r.word(16));
    p.key.proto = r.byte(9);
    p.frag_id = u32::from(r.be16(4));
    let fragment = r.be16(6);
    if fragment & 0x1fff != 0 {
        return later(p, fragment & 0x1fff);
    }
    p.first_fragment = fragment & 0x2000 != 0;
    if p.key.proto == ICMP {
        return icmp(r, at + header, p);
    }
    if total != 0 && total < header + l4_len(p.key.proto) {
        return Kind::Short;
    }
    l4(r, at + header, p)
}

#[inline(always)]
fn v6(r: &Reader, at: u32, p: &mut Packet) -> Kind {
    if !r.load::<40>(at) || r.byte(0) >> 4 != 6 {
        return Kind::Malformed;
    }
    p.dscp = ((r.be16(0) >> 6) & 0x3f) as u8;
    unsafe { p.set_v6(r.buf.add(8)) };
    let mut next = r.byte(6);
    let end = at + v6_len(r, next);
    let mut at = at + 40;
    let mut i = 0;
    while i < MAX_EXT_HEADERS && is_extension(next) {
        if at + 8 > end || !r.load::<8>(at) {
            return Kind::Short;
        }
        if next == FRAGMENT {
            p.frag_id = r.word(4);
            let field = r.be16(2);
            p.key.proto = r.byte(0);
            if field & 0xfff8 != 0 {
                return later(p, field >> 3);
            }
            p.first_fragment |= field & 1 != 0;
            at += 8;
        } else {
            at += (u32::from(r.byte(1)) + 1) * 8;
        }
        next = r.byte(0);
        i += 1;
    }
    p.key.proto = next;
    if is_extension(next) {
        return Kind::TooManyHeaders;
    }
    if next == ICMP6 {
        return icmp6(r, at, p);
    }
    if at + l4_len(next) > end {
        return Kind::Short;
    }
    l4(r, at, p)
}

/// How far an IPv6 packet reaches: receivers cut off what is behind. A length of zero is that of a
/// super-frame, or stands elsewhere.
#[inline(always)]
fn v6_len(r: &Reader, next: u8) -> u32 {
    let payload = u32::from(r.be16(4));
    let elsewhere = next == HOP_BY_HOP || unsafe { (*r.skb).gso_size } != 0;
    if payload == 0 && elsewhere {
        u32::MAX >> 1
    } else {
        40 + payload
    }
}

#[inline(always)]
fn is_extension(next: u8) -> bool {
    next == HOP_BY_HOP || next == ROUTING || next == FRAGMENT || next == DEST_OPTS
}

/// A fragment behind the first, at `offset` times eight bytes. An IPv6 one may name an extension
/// header: what follows that is known from the first. One that would write over a TCP header is
/// nothing that honest senders make (RFC 3128).
#[inline(always)]
fn later(p: &Packet, offset: u16) -> Kind {
    let next = p.key.proto;
    if next == PROTO_TCP && offset < 3 {
        Kind::Short
    } else if next == PROTO_TCP || next == PROTO_UDP || p.v6 && is_extension(next) {
        Kind::LaterFragment
    } else {
        Kind::Other
    }
}

#[inline(always)]
fn l4_len(proto: u8) -> u32 {
    match proto {
        PROTO_TCP => 20,
        PROTO_UDP => 8,
        _ => 0,
    }
}

#[inline(always)]
fn l4(r: &Reader, at: u32, p: &mut Packet) -> Kind {
    let loaded = if p.key.proto == PROTO_TCP {
        r.load::<20>(at)
    } else if p.key.proto == PROTO_UDP {
        r.load::<8>(at)
    } else {
        return Kind::Other;
    };
    if !loaded {
        return Kind::Short;
    }
    unsafe { p.set_l4(r.buf) };
    Kind::Flow
}

/// An IPv4 error quotes the packet it is about; only its flow matters.
#[inline(always)]
fn icmp(r: &Reader, at: u32, p: &mut Packet) -> Kind {
    if p.first_fragment || !r.load::<28>(at) {
        return Kind::Other;
    }
    let kind = r.byte(0);
    if (kind != 3 && kind != 11 && kind != 12) || r.byte(8) >> 4 != 4 {
        return Kind::Other;
    }
    let header = u32::from(r.byte(8) & 0x0f) * 4;
    // Quoted: origin -> client. The flow is keyed the other way.
    p.set_v4(r.word(24), r.word(20));
    p.key.proto = r.byte(17);
    quoted(r, at + 8 + header, p)
}

#[inline(always)]
fn icmp6(r: &Reader, at: u32, p: &mut Packet) -> Kind {
    if p.first_fragment || !r.load::<48>(at) {
        return Kind::Other;
    }
    let kind = r.byte(0);
    if kind == 0 || kind > 4 || r.byte(8) >> 4 != 6 {
        return Kind::Other;
    }
    unsafe { p.set_v6_reversed(r.buf.add(16)) };
    p.key.proto = r.byte(14);
    quoted(r, at + 48, p)
}

#[inline(always)]
fn quoted(r: &Reader, at: u32, p: &mut Packet) -> Kind {
    if (p.key.proto != PROTO_TCP && p.key.proto != PROTO_UDP) || !r.load::<4>(at) {
        return Kind::Other;
    }
    p.key.sport = r.be16(2);
    p.key.dport = r.be16(0);
    Kind::IcmpError
}
