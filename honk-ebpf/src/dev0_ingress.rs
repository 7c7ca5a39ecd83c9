//! Packets out of the private namespace: replies to their clients, and datagrams handed back.
//!
//! Nothing passes: the host stack would forward a packet with a foreign source address
//! depending on firewall policy and reverse-path filters.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_INGRESS},
    helpers::generated::{
        bpf_fib_lookup, bpf_redirect, bpf_redirect_neigh, bpf_skb_store_bytes, bpf_skb_vlan_push,
    },
};
use honk_common::{
    counter::Stat,
    flow::{FLOW_REINJECT, FlowWord, RETURN_FROM_WAN},
    limits::MAX_LAN_PARAM,
    param::{MARK_CLASSIFIED, MARK_REPLY},
};

use crate::{
    maps::{FLOW, PARAM, RETURN, Scratch, scratch},
    packet::{Kind, Packet, parse},
    stats::{count, received},
    verdict::SHOT,
};

const VLAN_8021Q: u16 = 0x8100u16.to_be();

/// Entry for `honk0`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn dev0_ingress(skb: *mut __sk_buff) -> i32 {
    let Some(Scratch { packet, .. }) = scratch() else {
        return SHOT;
    };
    let kind = parse::<true>(skb, packet);
    let p: &Packet = packet;
    if kind == Kind::NotIp || kind == Kind::Malformed {
        return SHOT;
    }
    if let Some(way) = RETURN.get_ptr(&p.key.dst) {
        let way = unsafe { &*way };
        if kind == Kind::Flow && !charge(skb, p) {
            // No reply of a flow we know: perhaps a datagram handed back, whose target was a
            // client itself.
            if let Some(verdict) = hand_back(skb, p) {
                return verdict;
            }
        }
        if !set_macs(skb, way.smac, way.dmac)
            || way.vlan != 0 && unsafe { bpf_skb_vlan_push(skb, VLAN_8021Q, way.vlan) } != 0
        {
            return SHOT;
        }
        return if way.flags & RETURN_FROM_WAN != 0 {
            unsafe { (*skb).mark = MARK_REPLY };
            unsafe { bpf_redirect(way.ifindex, BPF_F_INGRESS.into()) as i32 }
        } else {
            unsafe { bpf_redirect(way.ifindex, 0) as i32 }
        };
    }
    if kind == Kind::Flow
        && let Some(verdict) = hand_back(skb, p)
    {
        return verdict;
    }
    by_route(p, skb)
}

/// Charges a reply to the ordinal that carries its flow; false if there is no such flow.
#[inline(always)]
fn charge(skb: *mut __sk_buff, p: &Packet) -> bool {
    let key = p.key.reversed();
    let Some(entry) = FLOW.get_ptr(&key) else {
        return false;
    };
    let ordinal = FlowWord::unpack(unsafe { (*entry).word }).ordinal;
    received(ordinal, unsafe { (*skb).len });
    true
}

/// Puts a datagram that userspace sends in a client's name on the way the client's own took,
/// for the time in which it may.
#[inline(always)]
fn hand_back(skb: *mut __sk_buff, p: &Packet) -> Option<i32> {
    let entry = FLOW.get_ptr(&p.key)?;
    let entry = unsafe { &*entry };
    let word = FlowWord::unpack(entry.word);
    if word.state != FLOW_REINJECT {
        return None;
    }
    if !set_macs(skb, entry.gw_mac, entry.mac) {
        return Some(SHOT);
    }
    count(Stat::Reinject);
    unsafe { (*skb).mark = MARK_CLASSIFIED | word.mark };
    Some(unsafe { bpf_redirect(entry.ifindex, BPF_F_INGRESS.into()) as i32 })
}

#[inline(always)]
fn set_macs(skb: *mut __sk_buff, dst: [u8; 6], src: [u8; 6]) -> bool {
    let macs = [dst, src];
    let from = (&raw const macs).cast::<c_void>();
    unsafe { bpf_skb_store_bytes(skb, 0, from, 12, 0) == 0 }
}

/// A client that has no return entry any more, but a route to a LAN interface.
#[inline(always)]
fn by_route(p: &Packet, skb: *mut __sk_buff) -> i32 {
    if let Some(param) = PARAM.get(0) {
        let target = fib_interface(skb, p, param.lan_ifindex[0]);
        let mut i = 0;
        while i < MAX_LAN_PARAM {
            if target != 0 && param.lan_ifindex[i] == target {
                return unsafe { bpf_redirect_neigh(target, core::ptr::null_mut(), 0, 0) as i32 };
            }
            i += 1;
        }
    }
    count(Stat::ReturnMiss);
    SHOT
}

/// `struct bpf_fib_lookup`, 64 bytes.
#[repr(C)]
struct Fib {
    family: u8,
    l4: u8,
    sport: u16,
    dport: u16,
    len: u16,
    ifindex: u32,
    tos: u32,
    src: [u32; 4],
    dst: [u32; 4],
    tail: [u32; 4],
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const FIB_SUCCESS: i64 = 0;
/// A route, but the neighbour is not resolved yet; the redirect does that.
const FIB_NO_NEIGH: i64 = 7;

/// The interface a packet would leave through, had it come in through `from`; 0 if none.
/// Asked from a LAN interface, because forwarding is off on `honk0`.
#[inline(always)]
fn fib_interface(skb: *mut __sk_buff, p: &Packet, from: u32) -> u32 {
    if from == 0 {
        return 0;
    }
    let k = (&raw const p.key).cast::<u32>();
    let at = |i: usize| unsafe { k.add(i).read() };
    let mut fib = Fib {
        family: if p.v6 { AF_INET6 } else { AF_INET },
        l4: p.key.proto,
        sport: 0,
        dport: 0,
        len: 0,
        ifindex: from,
        tos: 0,
        src: [0; 4],
        dst: [0; 4],
        tail: [0; 4],
    };
    if p.v6 {
        fib.src = [at(0), at(1), at(2), at(3)];
        fib.dst = [at(4), at(5), at(6), at(7)];
    } else {
        fib.src[0] = at(3);
        fib.dst[0] = at(7);
    }
    let params = (&raw mut fib).cast();
    let r = unsafe { bpf_fib_lookup(skb.cast(), params, size_of::<Fib>() as i32, 0) };
    if r == FIB_SUCCESS || r == FIB_NO_NEIGH {
        fib.ifindex
    } else {
        0
    }
}
