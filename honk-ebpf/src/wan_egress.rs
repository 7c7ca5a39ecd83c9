//! Packets of the gateway's own processes, on their way out (spec: datapath 2.3).
//!
//! Forwarded packets were judged where they came in, and the daemon's own carry its mark: both
//! cost one test.

use aya_ebpf::bindings::__sk_buff;
use honk_common::{
    counter::Stat,
    event::{EVENT_EXT_CHAIN, EVENT_RETURN_OVERFLOW},
    flow::{FRAG_DROP, FRAG_PASS},
    outbound::BLOCK,
    param::{GATE_CLOSED, GATE_DRAINING},
};

use crate::{
    decide::{decide, one_armed},
    event::emit,
    fragment::{later_fragment, remember_fragment},
    handoff::{keep_return, redirect},
    lan_egress::is_ndp_redirect,
    maps::{GATE, PARAM, Scratch, scratch},
    packet::{Kind, Packet, parse},
    stats::{count, sent},
    verdict::{NEXT, QUIET, SHOT, Verdict},
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
    let Some(Scratch { packet, flow, .. }) = scratch() else {
        return SHOT;
    };
    let kind = parse::<L2>(skb, packet);
    let p: &Packet = packet;
    let mut verdict = match kind {
        Kind::Flow => decide::<L2, true>(skb, p, flow, gate == GATE_DRAINING),
        Kind::LaterFragment => later_fragment(p),
        Kind::TooManyHeaders => {
            count(Stat::ExtDrop);
            Verdict::drop_loudly(BLOCK, EVENT_EXT_CHAIN, u16::MAX)
        }
        Kind::Malformed => {
            count(Stat::Malformed);
            Verdict::PASS
        }
        Kind::Other if one_armed() && is_ndp_redirect::<L2>(skb) => {
            count(Stat::NdpRedirectDrop);
            Verdict::drop(BLOCK)
        }
        Kind::IcmpError | Kind::Other | Kind::NotIp => Verdict::PASS,
    };
    if verdict.learn && !keep_return::<L2, true>(skb, p) {
        count(Stat::ReturnOverflow);
        verdict = Verdict::drop_loudly(verdict.ordinal, EVENT_RETURN_OVERFLOW, verdict.rule);
    }
    if verdict.event != QUIET {
        emit(verdict.event, verdict.ordinal, verdict.rule, &p.key);
    }
    if p.first_fragment {
        remember_fragment(p, verdict);
    }
    match verdict.action {
        FRAG_PASS => NEXT,
        FRAG_DROP => SHOT,
        _ => {
            sent(verdict.ordinal, unsafe { (*skb).len });
            redirect::<L2, true>(skb, p)
        }
    }
}
