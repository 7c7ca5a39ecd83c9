//! Packets from LAN clients (spec: datapath 2.2): the gate, what is never classified, then
//! `decide`.

use aya_ebpf::bindings::__sk_buff;
use honk_common::{
    counter::Stat,
    event::{EVENT_BLOCKED, EVENT_EXT_CHAIN, EVENT_RETURN_OVERFLOW},
    flow::{FRAG_DROP, FRAG_PASS, FlowWord},
    outbound::{BLOCK, DIRECT},
    param::{GATE_CLOSED, GATE_DRAINING, MARK_CLASSIFIED, MARK_REPLY},
};

use crate::{
    decide::decide,
    event::emit,
    fragment::{later_fragment, remember_fragment},
    handoff::{keep_return, redirect},
    maps::{FLOW, GATE, Scratch, scratch},
    packet::{Kind, Packet, parse},
    refuse::refuse,
    stats::{count, sent},
    verdict::{NEXT, QUIET, SHOT, Verdict},
};

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
        Kind::Flow => decide::<L2, false>(skb, p, flow, gate == GATE_DRAINING),
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
    if verdict.learn && !keep_return::<L2, false>(skb, p) {
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
            redirect::<L2, false>(skb, p)
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
