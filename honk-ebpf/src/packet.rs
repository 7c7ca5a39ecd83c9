//! The header walk: from a packet to its flow key.
//!
//! The common shapes (IPv4 without options, IPv6 without extension headers, neither a
//! fragment) are read straight from packet memory. Everything else takes `walk`, which
//! copies headers out piece by piece and so also reads packets that are not linear.

use aya_ebpf::bindings::__sk_buff;
use honk_common::key::{FlowKey, PROTO_TCP, PROTO_UDP};

use crate::walk;

pub const ETH_LEN: usize = 14;
/// `__sk_buff::protocol` holds network order.
pub const ETH_IPV4: u32 = 0x0800u16.to_be() as u32;
pub const ETH_IPV6: u32 = 0x86ddu16.to_be() as u32;

pub const TCP_FIN: u8 = 0x01;
pub const TCP_SYN: u8 = 0x02;
pub const TCP_RST: u8 = 0x04;
pub const TCP_ACK: u8 = 0x10;

/// What the walk found.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// TCP or UDP with ports; the key is complete.
    Flow = 0,
    /// A fragment without ports; the key holds addresses and protocol.
    LaterFragment = 1,
    /// An ICMP error; the key is the embedded tuple turned round, as the client sends it.
    IcmpError = 2,
    /// Some other protocol.
    Other = 3,
    /// Not IPv4 or IPv6.
    NotIp = 4,
    /// An IP header that no stack accepts.
    Malformed = 5,
    /// More extension headers than the walk follows.
    TooManyHeaders = 6,
    /// TCP or UDP without a whole header, which routers forward all the same.
    Short = 7,
}

/// A parsed packet. The alignment lets addresses be copied as words.
#[repr(C, align(8))]
pub struct Packet {
    pub key: FlowKey,
    /// Sequence number of a TCP segment, host order.
    pub seq: u32,
    pub frag_id: u32,
    /// Destination MAC of the frame; zero on header-less devices.
    pub dmac: [u8; 6],
    pub smac: [u8; 6],
    pub tcp_flags: u8,
    pub dscp: u8,
    pub v6: bool,
    pub first_fragment: bool,
}

const _: () = assert!(size_of::<Packet>() == 64);

impl Packet {
    /// Forgets the packet before.
    #[inline(always)]
    pub fn reset(&mut self) {
        let words = (&raw mut *self).cast::<u64>();
        let mut i = 0;
        while i < size_of::<Self>() / 8 {
            unsafe { words.add(i).write(0) };
            i += 1;
        }
    }

    /// A segment that opens a connection.
    #[inline(always)]
    pub fn is_pure_syn(&self) -> bool {
        self.tcp_flags & (TCP_SYN | TCP_ACK) == TCP_SYN
    }

    /// Stores the addresses of an IPv4 header, in mapped form.
    #[inline(always)]
    pub fn set_v4(&mut self, src: u32, dst: u32) {
        let k = (&raw mut self.key).cast::<u32>();
        unsafe {
            k.cast::<u64>().write(0);
            k.add(2).write(0xffffu32.to_be());
            k.add(3).write(src);
            k.add(4).cast::<u64>().write(0);
            k.add(6).write(0xffffu32.to_be());
            k.add(7).write(dst);
        }
    }

    /// Copies both addresses of an IPv6 header.
    #[inline(always)]
    pub unsafe fn set_v6(&mut self, addrs: *const u8) {
        unsafe {
            copy_addr((&raw mut self.key.src).cast(), addrs);
            copy_addr((&raw mut self.key.dst).cast(), addrs.add(16));
        }
    }

    /// Copies them with source and destination exchanged.
    #[inline(always)]
    pub unsafe fn set_v6_reversed(&mut self, addrs: *const u8) {
        unsafe {
            copy_addr((&raw mut self.key.dst).cast(), addrs);
            copy_addr((&raw mut self.key.src).cast(), addrs.add(16));
        }
    }

    /// Reads ports, and for TCP what the flow's life cycle needs, from 8 or 20 bytes.
    #[inline(always)]
    pub unsafe fn set_l4(&mut self, l4: *const u8) {
        unsafe {
            self.key.sport = u16::from_be(l4.cast::<u16>().read());
            self.key.dport = u16::from_be(l4.add(2).cast::<u16>().read());
            if self.key.proto == PROTO_TCP {
                self.seq = u32::from_be(l4.add(4).cast::<u32>().read());
                self.tcp_flags = l4.add(13).read();
            }
        }
    }
}

/// Parses the packet into `p`, which is the packet of this CPU's scratch memory; `L2` tells
/// whether the device has an Ethernet header.
#[inline(always)]
pub fn parse<const L2: bool>(skb: *mut __sk_buff, p: &mut Packet) -> Kind {
    p.reset();
    let l2 = if L2 { ETH_LEN } else { 0 };
    let (proto, data, end) = unsafe {
        (
            (*skb).protocol,
            (*skb).data as usize,
            (*skb).data_end as usize,
        )
    };
    if proto == ETH_IPV4 {
        p.v6 = false;
        if data + l2 + 28 <= end && unsafe { fast_v4::<L2>(data, end, p) } {
            return Kind::Flow;
        }
    } else if proto == ETH_IPV6 {
        p.v6 = true;
        if data + l2 + 48 <= end && unsafe { fast_v6::<L2>(data, end, p) } {
            return Kind::Flow;
        }
    } else {
        return Kind::NotIp;
    }
    walk::walk(skb, l2 as u32)
}

/// IPv4 without options and not a fragment, 28 bytes proven.
#[inline(always)]
unsafe fn fast_v4<const L2: bool>(data: usize, end: usize, p: &mut Packet) -> bool {
    let l2 = if L2 { ETH_LEN } else { 0 };
    let ip = (data + l2) as *const u8;
    unsafe {
        let proto = ip.add(9).read();
        let fragment = u16::from_be(ip.add(6).cast::<u16>().read()) & 0x3fff != 0;
        let total = u16::from_be(ip.add(2).cast::<u16>().read());
        // Zero is a super-frame beyond 64 KiB.
        let room = if total == 0 { u16::MAX } else { total };
        let l4_len = match proto {
            PROTO_TCP => 20,
            PROTO_UDP => 8,
            _ => return false,
        };
        if ip.read() != 0x45 || fragment || room < 20 + l4_len {
            return false;
        }
        if proto == PROTO_TCP && data + l2 + 40 > end {
            return false;
        }
        macs::<L2>(data, p);
        p.dscp = ip.add(1).read() >> 2;
        p.set_v4(
            ip.add(12).cast::<u32>().read(),
            ip.add(16).cast::<u32>().read(),
        );
        p.key.proto = proto;
        p.set_l4(ip.add(20));
    }
    true
}

/// IPv6 without extension headers, 48 bytes proven.
#[inline(always)]
unsafe fn fast_v6<const L2: bool>(data: usize, end: usize, p: &mut Packet) -> bool {
    let l2 = if L2 { ETH_LEN } else { 0 };
    let ip = (data + l2) as *const u8;
    unsafe {
        let proto = ip.add(6).read();
        let l4_len = match proto {
            PROTO_TCP => 20,
            PROTO_UDP => 8,
            _ => return false,
        };
        let payload = u16::from_be(ip.add(4).cast::<u16>().read());
        if ip.read() >> 4 != 6 || payload < l4_len {
            return false;
        }
        if proto == PROTO_TCP && data + l2 + 60 > end {
            return false;
        }
        macs::<L2>(data, p);
        let head = u16::from_be(ip.cast::<u16>().read());
        p.dscp = ((head >> 6) & 0x3f) as u8;
        p.set_v6(ip.add(8));
        p.key.proto = proto;
        p.set_l4(ip.add(40));
    }
    true
}

/// Copies both MAC addresses. Packet memory is only known to be 2-aligned here.
#[inline(always)]
unsafe fn macs<const L2: bool>(data: usize, p: &mut Packet) {
    if !L2 {
        return;
    }
    let from = data as *const u16;
    let to = (&raw mut p.dmac).cast::<u16>();
    unsafe {
        to.write(from.read());
        to.add(1).write(from.add(1).read());
        to.add(2).write(from.add(2).read());
        to.add(3).write(from.add(3).read());
        to.add(4).write(from.add(4).read());
        to.add(5).write(from.add(5).read());
    }
}

#[inline(always)]
unsafe fn copy_addr(to: *mut u32, from: *const u8) {
    let from = from.cast::<u32>();
    unsafe {
        to.write(from.read());
        to.add(1).write(from.add(1).read());
        to.add(2).write(from.add(2).read());
        to.add(3).write(from.add(3).read());
    }
}
