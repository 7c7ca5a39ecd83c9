//! Sending a packet into the private namespace, and remembering the way back.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::__sk_buff,
    helpers::generated::{
        bpf_ktime_get_coarse_ns, bpf_redirect, bpf_redirect_peer, bpf_skb_change_head,
        bpf_skb_store_bytes,
    },
};
use honk_common::{
    counter::Stat,
    flow::{RETURN_FROM_WAN, RETURN_L3DEV, ReturnVal},
    limits::TOUCH_NS,
    param::{FEATURE_REDIRECT_PEER, HANDOFF_LAN, HANDOFF_WAN, MAGIC_MAC},
};

use crate::{
    frame::untag,
    maps::{PARAM, RETURN},
    packet::{ETH_LEN, Packet},
    stats::count,
    verdict::SHOT,
};

/// Redirects to the private side. The magic source MAC survives everything a veth does to a
/// packet, which neither the mark nor the control block does. From an egress hook the packet may
/// not skip a hop.
#[inline(always)]
pub fn redirect<const L2: bool, const WAN: bool>(skb: *mut __sk_buff, p: &Packet) -> i32 {
    let Some(param) = PARAM.get(0) else {
        return SHOT;
    };
    if !untag(skb) {
        return SHOT;
    }
    if !L2 && unsafe { bpf_skb_change_head(skb, ETH_LEN as u32, 0) } != 0 {
        // Without a link header the redirect would swallow the packet silently.
        count(Stat::ChangeHeadFail);
        return SHOT;
    }
    let peer = &param.peer_mac;
    let ethertype: [u8; 2] = if p.v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
    let header: [u8; ETH_LEN] = [
        peer[0],
        peer[1],
        peer[2],
        peer[3],
        peer[4],
        peer[5],
        MAGIC_MAC[0],
        MAGIC_MAC[1],
        MAGIC_MAC[2],
        if WAN { HANDOFF_WAN } else { HANDOFF_LAN },
        p.key.proto,
        param.nonce,
        ethertype[0],
        ethertype[1],
    ];
    let from = (&raw const header).cast::<c_void>();
    if unsafe { bpf_skb_store_bytes(skb, 0, from, ETH_LEN as u32, 0) } != 0 {
        return SHOT;
    }
    let target = param.honk0_ifindex;
    (if !WAN && param.features & FEATURE_REDIRECT_PEER != 0 {
        unsafe { bpf_redirect_peer(target, 0) }
    } else {
        unsafe { bpf_redirect(target, 0) }
    }) as i32
}

/// Records where replies to this client leave. False if the table is full.
#[inline(always)]
pub fn keep_return<const L2: bool, const WAN: bool>(skb: *mut __sk_buff, p: &Packet) -> bool {
    let now = unsafe { bpf_ktime_get_coarse_ns() };
    let ifindex = unsafe { (*skb).ifindex };
    if let Some(r) = RETURN.get_ptr(&p.key.src) {
        let r = unsafe { &*r };
        if now.wrapping_sub(r.last_seen_ns) < TOUCH_NS
            && r.ifindex == ifindex
            && same_mac(&r.smac, &p.smac)
            && same_mac(&r.dmac, &p.dmac)
        {
            return true;
        }
    }
    let value = ReturnVal {
        last_seen_ns: now,
        ifindex,
        smac: p.smac,
        dmac: p.dmac,
        vlan: 0,
        flags: if L2 { 0 } else { RETURN_L3DEV } | if WAN { RETURN_FROM_WAN } else { 0 },
        pad: [0; 5],
    };
    RETURN.insert(&p.key.src, &value, 0).is_ok()
}

#[inline(always)]
fn same_mac(a: &[u8; 6], b: &[u8; 6]) -> bool {
    let (a, b) = (a.as_ptr().cast::<u16>(), b.as_ptr().cast::<u16>());
    let differ = |i: usize| unsafe { a.add(i).read() ^ b.add(i).read() };
    differ(0) | differ(1) | differ(2) == 0
}
