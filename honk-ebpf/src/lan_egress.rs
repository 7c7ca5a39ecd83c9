//! Packets to LAN clients: remembers UDP flows that began outside, so that their answers stay
//! direct, and drops the gateway's own neighbour-discovery redirects.

use aya_ebpf::{bindings::__sk_buff, helpers::generated::bpf_skb_load_bytes};
use honk_common::{counter::Stat, key::PROTO_UDP, param::GATE_CLOSED};

use crate::{
    decide::DNS_PORT,
    inbound::remember,
    maps::{DCACHE, FLOW, GATE, PARAM, Scratch, scratch},
    packet::{ETH_IPV6, ETH_LEN, Kind, parse},
    special::is_special,
    stats::count,
    verdict::{NEXT, SHOT},
};

const IPPROTO_ICMPV6: u8 = 58;
const NDP_REDIRECT: u8 = 137;

/// Entry for Ethernet devices.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn lan_egress_l2(skb: *mut __sk_buff) -> i32 {
    run::<true>(skb)
}

/// Entry for devices without a link header.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn lan_egress_l3(skb: *mut __sk_buff) -> i32 {
    run::<false>(skb)
}

#[inline(always)]
fn run<const L2: bool>(skb: *mut __sk_buff) -> i32 {
    if GATE.get(0).copied().unwrap_or(GATE_CLOSED) == GATE_CLOSED {
        return NEXT;
    }
    let from = unsafe { (*skb).ingress_ifindex };
    if from == 0 && is_ndp_redirect::<L2>(skb) {
        // It would tell clients to bypass the gateway.
        count(Stat::NdpRedirectDrop);
        return SHOT;
    }
    let Some(param) = PARAM.get(0) else {
        return NEXT;
    };
    // A proxied reply. Tracking it would pin an expired flow to direct: a leak.
    if from == param.honk0_ifindex || unsafe { (*skb).vlan_present } != 0 {
        return NEXT;
    }
    let Some(Scratch { packet: p, .. }) = scratch() else {
        return NEXT;
    };
    if parse::<L2>(skb, p) != Kind::Flow || p.key.proto != PROTO_UDP {
        return NEXT;
    }
    if p.key.sport == DNS_PORT || p.key.dport == DNS_PORT || is_special(p, false) {
        return NEXT;
    }
    let key = p.key.reversed();
    if FLOW.get_ptr(&key).is_none() && DCACHE.get_ptr(&key).is_none() {
        remember(p);
    }
    NEXT
}

#[inline(always)]
pub fn is_ndp_redirect<const L2: bool>(skb: *mut __sk_buff) -> bool {
    if unsafe { (*skb).protocol } != ETH_IPV6 {
        return false;
    }
    let l2 = if L2 { ETH_LEN as u32 } else { 0 };
    byte(skb, l2 + 6) == Some(IPPROTO_ICMPV6) && byte(skb, l2 + 40) == Some(NDP_REDIRECT)
}

#[inline(always)]
fn byte(skb: *mut __sk_buff, at: u32) -> Option<u8> {
    let mut b = 0u8;
    let r = unsafe { bpf_skb_load_bytes(skb.cast(), at, (&raw mut b).cast(), 1) };
    (r == 0).then_some(b)
}
