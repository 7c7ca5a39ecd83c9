//! UDP that began outside: its answers stay direct, whatever the rules say about their target.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{__sk_buff, BPF_NOEXIST, bpf_sock_tuple},
    helpers::generated::{bpf_ktime_get_coarse_ns, bpf_sk_lookup_udp, bpf_sk_release},
};
use honk_common::{
    counter::Stat,
    flow::{DirectVal, INBOUND_KIND},
};

use crate::{
    decide::DNS_PORT,
    maps::{DCACHE, FLOW},
    packet::Packet,
    stats::count,
};

/// Remembers the opposite direction of a datagram for a local socket. Without a socket it may
/// be the answer to a masqueraded client, which the client's own flow covers.
#[inline(always)]
pub fn track(skb: *mut __sk_buff, p: &Packet) {
    // Queries are decided one by one.
    if p.key.sport == DNS_PORT {
        return;
    }
    let key = p.key.reversed();
    if FLOW.get_ptr(&key).is_some() || DCACHE.get_ptr(&key).is_some() {
        return;
    }
    let local = if p.v6 {
        socket6(skb, p)
    } else {
        socket4(skb, p)
    };
    if local {
        remember(p);
    }
}

/// Notes that answers to this datagram are direct.
#[inline(always)]
pub fn remember(p: &Packet) {
    let value = DirectVal {
        created_ns: unsafe { bpf_ktime_get_coarse_ns() },
        generation: 0,
        kind: INBOUND_KIND,
        pad: [0; 3],
    };
    let key = p.key.reversed();
    if DCACHE.insert(&key, &value, BPF_NOEXIST.into()).is_ok() {
        count(Stat::InboundTrack);
    }
}

/// Source, destination, ports: the two members of `struct bpf_sock_tuple`.
#[repr(C)]
struct Tuple4 {
    src: u32,
    dst: u32,
    sport: u16,
    dport: u16,
}

#[repr(C)]
struct Tuple6 {
    src: [u32; 4],
    dst: [u32; 4],
    sport: u16,
    dport: u16,
}

#[inline(always)]
fn socket4(skb: *mut __sk_buff, p: &Packet) -> bool {
    let at = words(p);
    let mut tuple = Tuple4 {
        src: at(3),
        dst: at(7),
        sport: p.key.sport.to_be(),
        dport: p.key.dport.to_be(),
    };
    found(skb, (&raw mut tuple).cast(), size_of::<Tuple4>() as u32)
}

#[inline(always)]
fn socket6(skb: *mut __sk_buff, p: &Packet) -> bool {
    let at = words(p);
    let mut tuple = Tuple6 {
        src: [at(0), at(1), at(2), at(3)],
        dst: [at(4), at(5), at(6), at(7)],
        sport: p.key.sport.to_be(),
        dport: p.key.dport.to_be(),
    };
    found(skb, (&raw mut tuple).cast(), size_of::<Tuple6>() as u32)
}

#[inline(always)]
fn words(p: &Packet) -> impl Fn(usize) -> u32 {
    let k = (&raw const p.key).cast::<u32>();
    move |i| unsafe { k.add(i).read() }
}

#[inline(always)]
fn found(skb: *mut __sk_buff, tuple: *mut c_void, size: u32) -> bool {
    /// The namespace of the packet's device.
    const CURRENT_NETNS: u64 = u32::MAX as u64;
    let tuple = tuple.cast::<bpf_sock_tuple>();
    unsafe {
        let socket = bpf_sk_lookup_udp(skb.cast(), tuple, size, CURRENT_NETNS, 0);
        if socket.is_null() {
            return false;
        }
        bpf_sk_release(socket.cast());
    }
    true
}
