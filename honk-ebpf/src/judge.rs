//! From a packet to what the kernel is told, for both programs that decide: `lan_ingress` and
//! `wan_egress`.

use aya_ebpf::bindings::__sk_buff;
use honk_common::{
    counter::Stat,
    event::{EVENT_BLOCKED, EVENT_EXT_CHAIN, EVENT_RETURN_OVERFLOW},
    flow::{FRAG_DROP, FRAG_PASS, FlowWord},
    outbound::{BLOCK, DIRECT},
};

use crate::{
    decide::{decide, one_armed},
    event::emit,
    fragment::{later_fragment, remember_fragment},
    handoff::{keep_return, redirect},
    lan_egress::is_ndp_redirect,
    maps::{FLOW, Scratch, scratch},
    packet::{Kind, Packet, parse},
    refuse::refuse,
    stats::{count, sent},
    verdict::{NEXT, QUIET, SHOT, Verdict},
};

/// Parses, decides and carries out. A packet of the gateway itself keeps its mark, since its
/// route is chosen.
#[inline(always)]
pub fn judge<const L2: bool, const WAN: bool>(skb: *mut __sk_buff, draining: bool) -> i32 {
    let Some(Scratch { packet, flow, .. }) = scratch() else {
        return SHOT;
    };
    let kind = parse::<L2>(skb, packet);
    let p: &Packet = packet;
    let mut verdict = match kind {
        Kind::Flow => decide::<L2, WAN>(skb, p, flow, draining),
        Kind::LaterFragment => later_fragment(p),
        Kind::IcmpError if !WAN => icmp_error(p),
        Kind::TooManyHeaders => {
            count(Stat::ExtDrop);
            Verdict::drop_loudly(BLOCK, EVENT_EXT_CHAIN, u16::MAX)
        }
        Kind::Malformed => {
            // The stack throws such away, and counts it.
            count(Stat::Malformed);
            Verdict::PASS
        }
        Kind::Short => {
            // The stack would forward it, and some stack behind put it together.
            count(Stat::ShortDrop);
            Verdict::drop(BLOCK)
        }
        Kind::Other if WAN && one_armed() && is_ndp_redirect::<L2>(skb) => {
            count(Stat::NdpRedirectDrop);
            Verdict::drop(BLOCK)
        }
        Kind::IcmpError | Kind::Other => {
            count(Stat::OtherPass);
            Verdict::PASS
        }
        Kind::NotIp => {
            count(Stat::NotIpPass);
            Verdict::PASS
        }
    };
    if verdict.learn && !keep_return::<L2, WAN>(skb, p) {
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
        FRAG_PASS => {
            if !WAN && verdict.mark != 0 {
                unsafe { (*skb).mark = verdict.mark };
            }
            NEXT
        }
        FRAG_DROP if verdict.event == EVENT_BLOCKED => refuse::<L2, WAN>(skb, p),
        FRAG_DROP => SHOT,
        _ => {
            sent(verdict.ordinal, unsafe { (*skb).len });
            redirect::<L2, WAN>(skb, p)
        }
    }
}

/// "Too big" and "unreachable" belong to the socket that stands in for the origin.
#[inline(always)]
fn icmp_error(p: &Packet) -> Verdict {
    if let Some(entry) = FLOW.get_ptr(&p.key) {
        let ordinal = FlowWord::unpack(unsafe { (*entry).word }).ordinal;
        if ordinal != DIRECT && ordinal != BLOCK {
            count(Stat::IcmpRedirect);
            return Verdict::redirect(ordinal);
        }
    }
    Verdict::PASS
}
