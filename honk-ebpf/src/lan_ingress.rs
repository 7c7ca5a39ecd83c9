//! Packets from LAN clients: the verdict of every flow (spec: datapath 2.2, steps L0-L11).

use aya_ebpf::{bindings::__sk_buff, helpers::generated::bpf_ktime_get_coarse_ns};
use honk_common::{
    counter::Stat,
    event::{
        EVENT_BLOCKED, EVENT_EXT_CHAIN, EVENT_FLOW_OVERFLOW, EVENT_GROUP_DEAD,
        EVENT_RETURN_OVERFLOW,
    },
    flow::{
        DIRECT_KIND, DirectVal, FLAG_AMBIGUOUS, FLAG_DOMAIN_KNOWN, FLAG_L3DEV, FLAG_MUST,
        FLAG_PRELIM, FLAG_V6, FLOW_ACTIVE, FLOW_CLOSING, FRAG_DROP, FRAG_PASS, FlowVal, FlowWord,
        FragVal, INBOUND_KIND,
    },
    key::{FragKey, PROTO_TCP},
    limits::{FRAG_TTL_NS, TOUCH_NS},
    outbound::{
        BLOCK, CONTROL, DIRECT, NET_DNS, NET_TCP, NET_UDP, STATE_BLOCK, STATE_DEAD, STATE_DIRECT,
        group_slot, is_user,
    },
    param::{
        AMBIG_USER, GATE_CLOSED, GATE_DRAINING, MARK_CLASSIFIED, MARK_REPLY, OFFLOAD_ALL,
        OFFLOAD_DIRECT, SNI_STRICT,
    },
};

use crate::{
    event::emit,
    handoff::{keep_return, redirect},
    maps::{DCACHE, FLAGS, FLOW, FRAG, GATE, GROUP_STATE, Scratch, scratch},
    packet::{Kind, Packet, TCP_FIN, TCP_RST, parse},
    route::{Decision, generation, route},
    special::{is_local, is_special},
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
    if !dns && is_local(p) {
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
            if unsafe { (*entry).isn } == p.seq && word.state != FLOW_CLOSING {
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

/// Repeats the decision of a known flow. `opening` packets also need a living group:
/// established TCP is left to userspace, which may want to end it in its own way.
#[inline(always)]
fn apply(skb: *mut __sk_buff, p: &Packet, entry: *mut FlowVal, opening: bool) -> Verdict {
    let now = unsafe { bpf_ktime_get_coarse_ns() };
    let word = unsafe { (*entry).word };
    if now.wrapping_sub(unsafe { (*entry).last_seen_ns }) > TOUCH_NS {
        unsafe { (*entry).last_seen_ns = now };
    }
    let flow = FlowWord::unpack(word);
    if p.tcp_flags & (TCP_FIN | TCP_RST) != 0 && flow.state != FLOW_CLOSING {
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

/// L7-L11: the rules, the groups, the mode flags.
#[inline(always)]
fn new_flow<const L2: bool>(
    skb: *mut __sk_buff,
    p: &Packet,
    value: &mut FlowVal,
    dns: bool,
) -> Verdict {
    let d = route(p);
    count(Stat::NewFlows);
    if !d.matched {
        count(Stat::RouteNomatch);
    }
    let mut ordinal = d.ordinal;
    let mut mark = d.mark;
    let mut flags = 0;
    if dns && !d.must {
        // The controller answers, or relays through what the rules say.
        ordinal = CONTROL;
    } else if d.matched && !d.must {
        let mode = FLAGS.get(0).copied().unwrap_or(OFFLOAD_DIRECT);
        if mode & OFFLOAD_ALL != 0 {
            if ordinal != BLOCK {
                ordinal = DIRECT;
                mark = 0;
            }
        } else if mode & AMBIG_USER != 0 && d.domain_known && d.sensitive {
            ordinal = CONTROL;
            flags = FLAG_PRELIM | FLAG_AMBIGUOUS;
        } else {
            let state = group_state(p, ordinal, dns);
            if state & STATE_DEAD != 0 {
                return dead(ordinal, d.rule);
            }
            if state & STATE_BLOCK != 0 {
                ordinal = BLOCK;
            } else if state & STATE_DIRECT != 0 {
                ordinal = DIRECT;
            }
            if ordinal == DIRECT {
                if mode & OFFLOAD_DIRECT == 0 {
                    ordinal = CONTROL;
                } else if mode & SNI_STRICT != 0 && !d.domain_known && d.sensitive {
                    ordinal = CONTROL;
                    flags = FLAG_PRELIM;
                }
            }
        }
    } else {
        let state = group_state(p, ordinal, dns);
        if state & STATE_DEAD != 0 {
            return dead(ordinal, d.rule);
        }
        if state & STATE_BLOCK != 0 {
            ordinal = BLOCK;
        }
    }
    let decided = Decided {
        ordinal,
        mark,
        flags,
    };
    commit::<L2>(skb, p, value, dns, &d, decided)
}

/// What rules, groups and mode made of a new flow.
struct Decided {
    ordinal: u8,
    mark: u32,
    /// Provisional or ambiguous.
    flags: u8,
}

/// L11: leaves the state the verdict needs.
#[inline(always)]
fn commit<const L2: bool>(
    skb: *mut __sk_buff,
    p: &Packet,
    value: &mut FlowVal,
    dns: bool,
    d: &Decision,
    out: Decided,
) -> Verdict {
    let Decided { ordinal, mark, .. } = out;
    let udp = p.key.proto != PROTO_TCP;
    if ordinal == BLOCK {
        count(Stat::Block);
        return Verdict::drop_loudly(BLOCK, EVENT_BLOCKED, d.rule);
    }
    // Queries are decided one by one; an entry would only outlive its answer.
    let keep = !(udp && dns);
    if ordinal == DIRECT && mark == 0 {
        count(Stat::DirectNew);
        if udp && keep {
            remember_direct(p, d.generation);
            sent(DIRECT, unsafe { (*skb).len });
        }
        return Verdict::PASS;
    }
    let kept = !keep || insert::<L2>(skb, p, value, d, &out);
    if !kept {
        count(Stat::FlowOverflow);
    }
    if ordinal == DIRECT {
        count(Stat::DirectNew);
        sent(DIRECT, unsafe { (*skb).len });
        // Without an entry later packets lack the mark; dropping would be worse.
        return Verdict::pass_marked(mark);
    }
    if !kept {
        return Verdict::drop_loudly(ordinal, EVENT_FLOW_OVERFLOW, d.rule);
    }
    count(if dns && ordinal == CONTROL {
        Stat::DnsRedirect
    } else {
        Stat::ProxyNew
    });
    Verdict::proxy(ordinal)
}

/// A cache: when it is full, the next packet is evaluated again.
#[inline(always)]
fn remember_direct(p: &Packet, generation: u32) {
    let value = DirectVal {
        created_ns: unsafe { bpf_ktime_get_coarse_ns() },
        generation,
        kind: DIRECT_KIND,
        pad: [0; 3],
    };
    let _ = DCACHE.insert(&p.key, &value, 0);
}

#[inline(always)]
fn insert<const L2: bool>(
    skb: *mut __sk_buff,
    p: &Packet,
    value: &mut FlowVal,
    d: &Decision,
    out: &Decided,
) -> bool {
    let mut flags = out.flags;
    flags |= if d.must { FLAG_MUST } else { 0 };
    flags |= if d.domain_known { FLAG_DOMAIN_KNOWN } else { 0 };
    flags |= if p.v6 { FLAG_V6 } else { 0 };
    flags |= if L2 { 0 } else { FLAG_L3DEV };
    let word = FlowWord {
        ordinal: out.ordinal,
        flags,
        dscp: p.dscp,
        state: FLOW_ACTIVE,
        mark: out.mark,
    };
    value.last_seen_ns = unsafe { bpf_ktime_get_coarse_ns() };
    value.word = word.pack();
    value.isn = p.seq;
    value.generation = d.generation;
    value.rule = d.rule;
    value.vlan = 0;
    value.pid = 0;
    value.pname = [0; 16];
    value.mac = p.smac;
    value.gw_mac = p.dmac;
    value.ifindex = unsafe { (*skb).ifindex };
    FLOW.insert(&p.key, &*value, 0).is_ok()
}

#[inline(always)]
fn dead(ordinal: u8, rule: u16) -> Verdict {
    count(Stat::DeadDrop);
    Verdict::drop_loudly(ordinal, EVENT_GROUP_DEAD, rule)
}

/// State bits of the group for this kind of flow; none for ordinals that are no group.
#[inline(always)]
fn group_state(p: &Packet, ordinal: u8, dns: bool) -> u32 {
    if !is_user(ordinal) {
        return 0;
    }
    let net = if p.key.proto == PROTO_TCP {
        NET_TCP
    } else if dns {
        NET_DNS
    } else {
        NET_UDP
    };
    GROUP_STATE
        .get(group_slot(ordinal, net, p.v6))
        .copied()
        .unwrap_or(0)
}

#[inline(always)]
fn frag_key(p: &Packet) -> FragKey {
    FragKey {
        src: p.key.src,
        dst: p.key.dst,
        id: p.frag_id,
        proto: p.key.proto,
        pad: [0; 3],
    }
}

/// Later fragments carry no ports; they repeat what was decided for the first.
#[inline(always)]
fn remember_fragment(p: &Packet, verdict: Verdict) {
    count(Stat::FragFirst);
    if verdict.is_plain() {
        return;
    }
    let value = FragVal {
        ts_ns: unsafe { bpf_ktime_get_coarse_ns() },
        ordinal: verdict.ordinal,
        action: verdict.action,
        pad: [0; 2],
        mark: verdict.mark,
    };
    let _ = FRAG.insert(frag_key(p), &value, 0);
}

#[inline(always)]
fn later_fragment(p: &Packet) -> Verdict {
    if let Some(f) = FRAG.get_ptr(frag_key(p)) {
        let f = unsafe { &*f };
        let now = unsafe { bpf_ktime_get_coarse_ns() };
        if now.wrapping_sub(f.ts_ns) < FRAG_TTL_NS {
            count(Stat::FragHit);
            return Verdict::repeat(f.action, f.ordinal, f.mark);
        }
    }
    count(Stat::FragMiss);
    Verdict::PASS
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
