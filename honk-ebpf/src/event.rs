//! Events for the daemon: at most 64 of one type per second and CPU, and never blocking.

use aya_ebpf::helpers::generated::bpf_ktime_get_coarse_ns;
use honk_common::{
    counter::Stat,
    event::{EVENT_TRACE, Event},
    flow::FlowVal,
    key::FlowKey,
    limits::EVENTS_PER_SECOND,
};

use crate::{
    maps::{EVENTS, scratch},
    stats::count,
};

const SECOND_NS: u64 = 1_000_000_000;

/// Tells the daemon about a packet. A real call, because it is rare and many places need it.
#[inline(never)]
pub fn emit(kind: u32, ordinal: u8, rule: u16, key: &FlowKey) {
    send(kind, ordinal, rule, None, key);
}

/// Tells those who watch what became of a new flow. `decided` is the ordinal below the flags.
#[inline(never)]
pub fn trace(decided: u32, rule: u16, value: &FlowVal, key: &FlowKey) {
    let kind = EVENT_TRACE | decided & 0xff00;
    send(kind, decided as u8, rule, Some(value), key);
}

/// Writes one record, or counts that it did not.
#[inline(always)]
fn send(kind: u32, ordinal: u8, rule: u16, process: Option<&FlowVal>, key: &FlowKey) {
    let now = unsafe { bpf_ktime_get_coarse_ns() };
    let slot = if admitted(kind & 0xff, now) {
        EVENTS.reserve(0)
    } else {
        None
    };
    let Some(mut slot) = slot else {
        count(match process {
            None => Stat::EventDrop,
            Some(_) => Stat::TraceDrop,
        });
        return;
    };
    slot.write(Event {
        ts_ns: now,
        kind,
        pid: process.map_or(0, |p| p.pid),
        pname: process.map_or([0; 16], |p| p.pname),
        ordinal,
        proto: key.proto,
        rule,
        src: key.src,
        dst: key.dst,
        sport: key.sport,
        dport: key.dport,
    });
    slot.submit(0);
}

#[inline(always)]
fn admitted(kind: u32, now: u64) -> bool {
    let Some(scratch) = scratch() else {
        return false;
    };
    let Some(bucket) = scratch.buckets.get_mut(kind as usize) else {
        return false;
    };
    if now.wrapping_sub(bucket.start_ns) >= SECOND_NS {
        bucket.start_ns = now;
        bucket.sent = 0;
    }
    bucket.sent += 1;
    bucket.sent <= EVENTS_PER_SECOND
}
