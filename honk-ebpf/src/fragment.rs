//! Fragments: the first one is classified, the others repeat its verdict.

use aya_ebpf::helpers::generated::bpf_ktime_get_coarse_ns;
use honk_common::{counter::Stat, flow::FragVal, key::FragKey, limits::FRAG_TTL_NS};

use crate::{maps::FRAG, packet::Packet, stats::count, verdict::Verdict};

/// Later fragments carry no ports; they repeat what was decided for the first.
#[inline(always)]
pub fn remember_fragment(p: &Packet, verdict: Verdict) {
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

/// A fragment without ports.
#[inline(always)]
pub fn later_fragment(p: &Packet) -> Verdict {
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

#[inline(always)]
fn frag_key(p: &Packet) -> FragKey {
    FragKey {
        src: p.key.src,
        dst: p.key.dst,
        id: p.frag_id,
        // In IPv6 the identification alone is unique, and what a later fragment names as its
        // next header may be an extension header.
        proto: if p.v6 { 0 } else { p.key.proto },
        pad: [0; 3],
    }
}
