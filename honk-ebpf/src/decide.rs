//! What every classified packet goes through, whichever side it comes from: what is never
//! proxied, known flows, then the rules.

use aya_ebpf::bindings::__sk_buff;
use honk_common::{
    counter::Stat,
    flow::{FLOW_CLOSING, FLOW_STALE, FlowVal, FlowWord, INBOUND_KIND},
    key::PROTO_TCP,
    outbound::DIRECT,
    param::FEATURE_ONE_ARMED,
};

use crate::{
    inbound::track,
    known::apply,
    maps::{DCACHE, FLOW, PARAM},
    new_flow::new_flow,
    packet::Packet,
    route::generation,
    special::{dns_is_local, is_local, is_special},
    stats::{count, sent},
    verdict::Verdict,
};

pub const DNS_PORT: u16 = 53;

/// L4-L6: what needs no rules.
#[inline(always)]
pub fn decide<const L2: bool, const WAN: bool>(
    skb: *mut __sk_buff,
    p: &Packet,
    value: &mut FlowVal,
    draining: bool,
) -> Verdict {
    let dns = p.key.dport == DNS_PORT;
    if is_special(p, dns) {
        count(Stat::SpecialPass);
        return Verdict::PASS;
    }
    if (!dns || dns_is_local()) && is_local(p) {
        count(Stat::LocalPass);
        if !WAN && p.key.proto != PROTO_TCP && one_armed() {
            track(skb, p);
        }
        return Verdict::PASS;
    }
    if p.key.proto == PROTO_TCP {
        let known = FLOW.get_ptr_mut(&p.key);
        if !p.is_pure_syn() {
            let Some(entry) = known else {
                count(Stat::NoflowPass);
                return Verdict::PASS;
            };
            return apply(skb, p, entry, false);
        }
        if let Some(entry) = known {
            let word = FlowWord::unpack(unsafe { (*entry).word });
            let over = word.state == FLOW_CLOSING || word.state == FLOW_STALE;
            if unsafe { (*entry).isn } == p.seq && !over {
                count(Stat::SynRetransmit);
                return apply(skb, p, entry, true);
            }
            // The port is used again: a new life, a new decision.
            let _ = FLOW.remove(&p.key);
        }
    } else if !dns {
        if let Some(entry) = FLOW.get_ptr_mut(&p.key) {
            return apply(skb, p, entry, true);
        }
        if let Some(d) = DCACHE.get_ptr(&p.key) {
            let d = unsafe { &*d };
            if d.kind == INBOUND_KIND || d.generation == generation() {
                sent(DIRECT, unsafe { (*skb).len });
                return Verdict::PASS;
            }
        }
    }
    if draining {
        return Verdict::PASS;
    }
    new_flow::<L2, WAN>(skb, p, value, dns)
}

/// Whether an interface is both LAN and WAN.
#[inline(always)]
pub fn one_armed() -> bool {
    PARAM
        .get(0)
        .is_some_and(|param| param.features & FEATURE_ONE_ARMED != 0)
}
