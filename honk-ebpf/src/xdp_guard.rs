//! The early drop program (spec: datapath 6.3): what `lan_ingress` would drop in any case is
//! dropped before the kernel makes a socket buffer of it.
//!
//! It never says more than the rules do. Datagrams to networks that every packet is blocked to go,
//! unless the flow was decided otherwise before; and headers that contradict the frame, which the
//! stack would throw away. Whatever has any other shape, or needs a rule, is left to `lan_ingress`,
//! also SYNs: those are answered.

use aya_ebpf::{
    bindings::{
        xdp_action::{XDP_DROP, XDP_PASS},
        xdp_md,
    },
    btf_maps::lpm_trie::Key,
};
use honk_common::{
    counter::Stat, flow::INBOUND_KIND, key::PROTO_UDP, limits::GUARDED, param::GATE_OPEN,
    route::bank,
};

use crate::{
    decide::DNS_PORT,
    maps::{DCACHE, FLOW, GATE, XDP_BLOCK, XDP_MAC, scratch},
    packet::{ETH_LEN, Packet},
    route::generation,
    special::{is_local, is_special},
    stats::count,
};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// What the headers of a frame say.
enum Shape {
    /// A datagram with its ports, in scratch memory.
    Datagram,
    /// Anything that has to be looked at later.
    Other,
    /// Lengths or version that no receiver accepts.
    Bogus,
}

/// Entry for drivers. Frames may come in fragments; only the first bytes are looked at.
#[unsafe(no_mangle)]
#[unsafe(link_section = "xdp.frags")]
pub extern "C" fn xdp_guard(ctx: *mut xdp_md) -> u32 {
    run(ctx)
}

/// Entry for the generic mode. There a program for fragments gets a copy of the packet that forgets
/// where its Ethernet header ends (seen on 6.18), and `lan_ingress` would read garbage.
#[unsafe(no_mangle)]
#[unsafe(link_section = "xdp")]
pub extern "C" fn xdp_guard_generic(ctx: *mut xdp_md) -> u32 {
    run(ctx)
}

#[inline(always)]
fn run(ctx: *mut xdp_md) -> u32 {
    if GATE.get(0).copied().unwrap_or(0) != GATE_OPEN {
        return XDP_PASS;
    }
    let Some(scratch) = scratch() else {
        return XDP_PASS;
    };
    let p = &mut scratch.packet;
    match shape(ctx, p) {
        Shape::Datagram if is_guarded(p) => {
            count(Stat::XdpDrop);
            XDP_DROP
        }
        Shape::Bogus => {
            count(Stat::XdpBogus);
            XDP_DROP
        }
        Shape::Datagram | Shape::Other => XDP_PASS,
    }
}

/// Nothing but the block can come of this datagram.
#[inline(always)]
fn is_guarded(p: &Packet) -> bool {
    let generation = generation();
    let listed = XDP_BLOCK
        .get(bank(generation))
        .and_then(|map| map.get(&Key::new(128, p.key.dst)))
        .copied();
    if listed != Some(GUARDED) || p.key.dport == DNS_PORT {
        return false;
    }
    if is_special(p, false) || is_local(p) || FLOW.get_ptr(&p.key).is_some() {
        return false;
    }
    let Some(d) = DCACHE.get_ptr(&p.key) else {
        return true;
    };
    let d = unsafe { &*d };
    d.kind != INBOUND_KIND && d.generation != generation
}

#[inline(always)]
fn shape(ctx: *mut xdp_md, p: &mut Packet) -> Shape {
    let (data, end) = unsafe { ((*ctx).data as usize, (*ctx).data_end as usize) };
    if data + ETH_LEN > end {
        return Shape::Other;
    }
    let ethertype = u16::from_be(unsafe { ((data + 12) as *const u16).read() });
    if ethertype != IPV4 && ethertype != IPV6 || !is_for_us(ctx, data) {
        return Shape::Other;
    }
    p.reset();
    if ethertype == IPV4 {
        v4(data + ETH_LEN, end, p)
    } else {
        v6(data + ETH_LEN, end, p)
    }
}

/// The frame is addressed to the interface itself. Others may belong to a bridge or to somebody
/// who listens, and `lan_ingress` lets them pass.
#[inline(always)]
fn is_for_us(ctx: *mut xdp_md, data: usize) -> bool {
    let ifindex = unsafe { (*ctx).ingress_ifindex };
    let Some(mac) = XDP_MAC.get_ptr(&ifindex) else {
        return false;
    };
    let (mac, frame) = (mac.cast::<u16>(), data as *const u16);
    let differ = |i: usize| unsafe { mac.add(i).read() ^ frame.add(i).read() };
    differ(0) | differ(1) | differ(2) == 0
}

#[inline(always)]
fn v4(ip: usize, end: usize, p: &mut Packet) -> Shape {
    if ip + 28 > end {
        return Shape::Other;
    }
    let at = ip as *const u8;
    unsafe {
        let first = at.read();
        let total = u32::from(u16::from_be(at.add(2).cast::<u16>().read()));
        let header = u32::from(first & 0x0f) * 4;
        // Zero is a super-frame beyond 64 KiB.
        if first >> 4 != 4 || header < 20 || (total != 0 && total < header) {
            return Shape::Bogus;
        }
        let fragment = u16::from_be(at.add(6).cast::<u16>().read()) & 0x3fff != 0;
        if first != 0x45 || fragment || at.add(9).read() != PROTO_UDP || total < 28 {
            return Shape::Other;
        }
        p.set_v4(
            at.add(12).cast::<u32>().read(),
            at.add(16).cast::<u32>().read(),
        );
        p.key.proto = PROTO_UDP;
        p.set_l4(at.add(20));
    }
    Shape::Datagram
}

#[inline(always)]
fn v6(ip: usize, end: usize, p: &mut Packet) -> Shape {
    if ip + 48 > end {
        return Shape::Other;
    }
    let at = ip as *const u8;
    unsafe {
        if at.read() >> 4 != 6 {
            return Shape::Bogus;
        }
        if at.add(6).read() != PROTO_UDP {
            return Shape::Other;
        }
        p.v6 = true;
        p.set_v6(at.add(8));
        p.key.proto = PROTO_UDP;
        p.set_l4(at.add(40));
    }
    Shape::Datagram
}
