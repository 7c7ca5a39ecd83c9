//! Flows that have an entry: the decision stands, whatever the rules say now.

use aya_ebpf::{bindings::__sk_buff, helpers::generated::bpf_ktime_get_coarse_ns};
use honk_common::{
    counter::Stat,
    flow::{FLOW_CLOSING, FLOW_STALE, FlowVal, FlowWord},
    limits::TOUCH_NS,
    outbound::{BLOCK, DIRECT, STATE_DEAD},
};

use crate::{
    group::{dead, group_state},
    packet::{Packet, TCP_FIN, TCP_RST},
    stats::{count, sent},
    verdict::Verdict,
};

/// Repeats the decision of a known flow. `opening` packets also need a living group:
/// established TCP is left to userspace, which may want to end it in its own way.
#[inline(always)]
pub fn apply(skb: *mut __sk_buff, p: &Packet, entry: *mut FlowVal, opening: bool) -> Verdict {
    let now = unsafe { bpf_ktime_get_coarse_ns() };
    let word = unsafe { (*entry).word };
    if now.wrapping_sub(unsafe { (*entry).last_seen_ns }) > TOUCH_NS {
        unsafe { (*entry).last_seen_ns = now };
    }
    let flow = FlowWord::unpack(word);
    // One packet of a stale flow is enough: it is answered with a reset.
    let ends = p.tcp_flags & (TCP_FIN | TCP_RST) != 0 || flow.state == FLOW_STALE;
    if ends && flow.state != FLOW_CLOSING {
        let closing = FlowWord {
            state: FLOW_CLOSING,
            ..flow
        };
        unsafe { (*entry).word = closing.pack() };
    }
    if flow.ordinal == DIRECT {
        sent(DIRECT, unsafe { (*skb).len });
        return Verdict::pass_marked(flow.mark);
    }
    if flow.ordinal == BLOCK {
        count(Stat::Block);
        return Verdict::drop(BLOCK);
    }
    if opening && group_state(p, flow.ordinal, false) & STATE_DEAD != 0 {
        return dead(flow.ordinal, unsafe { (*entry).rule });
    }
    Verdict::proxy(flow.ordinal)
}
