//! Packets of the gateway's own processes, on their way out (spec: datapath 2.3).
//!
//! Forwarded packets were judged where they came in, and the daemon's own carry its mark: both
//! cost one test.

use aya_ebpf::bindings::__sk_buff;
use honk_common::{
    counter::Stat,
    param::{GATE_CLOSED, GATE_DRAINING},
};

use crate::{
    judge::judge,
    maps::{GATE, PARAM},
    stats::count,
    verdict::NEXT,
};

/// Entry for Ethernet devices.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn wan_egress_l2(skb: *mut __sk_buff) -> i32 {
    run::<true>(skb)
}

/// Entry for devices without a link header.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn wan_egress_l3(skb: *mut __sk_buff) -> i32 {
    run::<false>(skb)
}

#[inline(always)]
fn run<const L2: bool>(skb: *mut __sk_buff) -> i32 {
    if unsafe { (*skb).ingress_ifindex } != 0 {
        return NEXT;
    }
    let gate = GATE.get(0).copied().unwrap_or(GATE_CLOSED);
    if gate == GATE_CLOSED {
        return NEXT;
    }
    let Some(param) = PARAM.get(0) else {
        return NEXT;
    };
    if unsafe { (*skb).mark } & param.own_mark == param.own_mark {
        count(Stat::OwnBypass);
        return NEXT;
    }
    count(Stat::PktsWan);
    judge::<L2, true>(skb, gate == GATE_DRAINING)
}
