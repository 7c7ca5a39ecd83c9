//! Packets from LAN clients (spec: datapath 2.2). This file holds the order of the steps: the
//! gate, what is never classified, known flows (`known`), then the rules (`new_flow`).

use aya_ebpf::bindings::__sk_buff;
use honk_common::{
    counter::Stat,
    event::{EVENT_BLOCKED, EVENT_EXT_CHAIN, EVENT_RETURN_OVERFLOW},
    flow::{FLOW_CLOSING, FLOW_STALE, FRAG_DROP, FRAG_PASS, FlowVal, FlowWord, INBOUND_KIND},
    key::PROTO_TCP,
    outbound::{BLOCK, DIRECT},
    param::{GATE_CLOSED, GATE_DRAINING, MARK_CLASSIFIED, MARK_REPLY},
};

use crate::{
    event::emit,
    fragment::{later_fragment, remember_fragment},
    handoff::{keep_return, redirect},
    known::apply,
    maps::{DCACHE, FLOW, GATE, Scratch, scratch},
    new_flow::new_flow,
    packet::{Kind, Packet, parse},
    refuse::refuse,
    route::generation,
    special::{dns_is_local, is_local, is_special},
    stats::{count, sent},
    verdict::{NEXT, QUIET, SHOT, Verdict},
};

const DNS_PORT: u16 = 53;
const PACKET_HOST: u32 = 0;

/// Entry for Ethernet devices.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn lan_ingress_l2(skb: *mut __sk_buff) -> i32 {
    run::<true>(skb)
}

/// Entry for devices without a link header.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn lan_ingress_l3(skb: *mut __sk_buff) -> i32 {
    run::<false>(skb)
}

#[inline(always)]
fn run<const L2: bool>(skb: *mut __sk_buff) -> i32 {
    let gate = GATE.get(0).copied().unwrap_or(GATE_CLOSED);
    if gate == GATE_CLOSED {
        return NEXT;
    }
    let mark = unsafe { (*skb).mark };
    if mark & (MARK_CLASSIFIED | MARK_REPLY) != 0 {
        unsafe { (*skb).mark = mark & !(MARK_CLASSIFIED | MARK_REPLY) };
        return NEXT;
    }
    count(Stat::PktsLan);
    if unsafe { (*skb).vlan_present } != 0 {
        count(Stat::VlanPass);
        return NEXT;
    }
    // Group addresses and frames for other stations; header-less devices know neither.
    if L2 && unsafe { (*skb).pkt_type } != PACKET_HOST {
        return NEXT;
    }
    let Some(Scratch { packet, flow, .. }) = scratch() else {
        return SHOT;
    };
    let kind = parse::<L2>(skb, packet);
    let p: &Packet = packet;
    let mut verdict = match kind {
        Kind::Flow => decide::<L2>(skb, p, flow, gate == GATE_DRAINING),
        Kind::LaterFragment => later_fragment(p),
        Kind::IcmpError => icmp_error(p),
        Kind::TooManyHeaders => {
            count(Stat::ExtDrop);
            Verdict::drop_loudly(BLOCK, EVENT_EXT_CHAIN, u16::MAX)
        }
        Kind::Malformed => {
            count(Stat::Malformed);
            Verdict::PASS
        }
        Kind::Other | Kind::NotIp => Verdict::PASS,
    };
    if verdict.learn && !keep_return::<L2>(skb, p) {
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
            if verdict.mark != 0 {
                unsafe { (*skb).mark = verdict.mark };
            }
            NEXT
        }
        FRAG_DROP if verdict.event == EVENT_BLOCKED => refuse::<L2>(skb, p),
        FRAG_DROP => SHOT,
        _ => {
            sent(verdict.ordinal, unsafe { (*skb).len });
            redirect::<L2>(skb, p)
        }
    }
}

/// L4-L6: what needs no rules.
#[inline(always)]
fn decide<const L2: bool>(
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
    new_flow::<L2>(skb, p, value, dns)
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
