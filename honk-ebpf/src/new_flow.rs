//! New flows: rules, group states, mode flags, and the state the verdict needs.

use aya_ebpf::{
    bindings::__sk_buff,
    helpers::generated::{bpf_get_socket_cookie, bpf_ktime_get_coarse_ns},
};
use honk_common::{
    counter::Stat,
    event::{EVENT_BLOCKED, EVENT_FLOW_OVERFLOW},
    flow::{
        DIRECT_KIND, DirectVal, FLAG_AMBIGUOUS, FLAG_DOMAIN_KNOWN, FLAG_L3DEV, FLAG_MUST,
        FLAG_PRELIM, FLAG_V6, FLAG_WAN, FLOW_ACTIVE, FlowVal, FlowWord,
    },
    key::PROTO_TCP,
    outbound::{BLOCK, CONTROL, DIRECT, STATE_BLOCK, STATE_DEAD, STATE_DIRECT},
    param::{AMBIG_USER, OFFLOAD_ALL, OFFLOAD_DIRECT, SNI_STRICT, TRACE},
};

use crate::{
    event::trace,
    group::{dead, group_state},
    maps::{COOKIE, DCACHE, FLAGS, FLOW, PARAM},
    packet::Packet,
    route::{Decision, route},
    stats::{count, sent},
    verdict::Verdict,
};

/// L7-L11: the rules, the groups, the mode flags.
#[inline(always)]
pub fn new_flow<const L2: bool, const WAN: bool>(
    skb: *mut __sk_buff,
    p: &Packet,
    value: &mut FlowVal,
    dns: bool,
) -> Verdict {
    value.pid = 0;
    value.pname = [0; 16];
    if WAN && is_own(skb, value) {
        count(Stat::OwnBypass);
        return Verdict::PASS;
    }
    let mode = FLAGS.get(0).copied().unwrap_or(OFFLOAD_DIRECT);
    let d = route::<WAN>(p, &value.pname, mode & (AMBIG_USER | SNI_STRICT) != 0);
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
    if WAN && ordinal == DIRECT && mark != 0 {
        // The route is chosen already: only another socket can follow the mark.
        ordinal = CONTROL;
    }
    let decided = Decided {
        ordinal,
        mark,
        flags,
    };
    if FLAGS.get(0).copied().unwrap_or(0) & TRACE != 0 {
        watched::<WAN>(p, value, &d, &decided);
    }
    commit::<L2, WAN>(skb, p, value, dns, &d, decided)
}

/// Somebody wants to know.
#[inline(always)]
fn watched<const WAN: bool>(p: &Packet, value: &FlowVal, d: &Decision, out: &Decided) {
    let mut flags = out.flags;
    flags |= if d.must { FLAG_MUST } else { 0 };
    flags |= if d.domain_known { FLAG_DOMAIN_KNOWN } else { 0 };
    flags |= if WAN { FLAG_WAN } else { 0 };
    let decided = u32::from(out.ordinal) | u32::from(flags) << 8;
    trace(decided, d.rule, value, &p.key);
}

/// Notes the process of a local packet; says whether it is the daemon's own.
#[inline(always)]
fn is_own(skb: *mut __sk_buff, value: &mut FlowVal) -> bool {
    let cookie = unsafe { bpf_get_socket_cookie(skb.cast()) };
    let Some(process) = COOKIE.get_ptr(&cookie) else {
        return false;
    };
    unsafe {
        value.pid = (*process).tgid;
        value.pname = (*process).name;
    }
    PARAM
        .get(0)
        .is_some_and(|param| param.own_tgid == value.pid)
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
fn commit<const L2: bool, const WAN: bool>(
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
    let kept = !keep || insert::<L2, WAN>(skb, p, value, d, &out);
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
fn insert<const L2: bool, const WAN: bool>(
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
    flags |= if WAN { FLAG_WAN } else { 0 };
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
    // A local process is no station of the network.
    value.mac = if WAN { [0; 6] } else { p.smac };
    value.gw_mac = p.dmac;
    value.ifindex = unsafe { (*skb).ifindex };
    FLOW.insert(&p.key, &*value, 0).is_ok()
}
