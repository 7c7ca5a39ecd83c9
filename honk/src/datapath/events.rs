//! Records of the event ring: counted by kind, and logged at a bounded rate.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aya::maps::{MapData, RingBuf};
use honk_common::{
    event::{
        EVENT_BLOCKED, EVENT_EXT_CHAIN, EVENT_FLOW_OVERFLOW, EVENT_GROUP_DEAD,
        EVENT_LISTENER_MISSING, EVENT_RETURN_OVERFLOW, EVENT_TRACE, EVENT_TYPES, Event, kind_of,
    },
    key::from_bytes,
};

/// Lines per kind and second.
const LINES: u32 = 4;
/// Records taken in one go; the rest waits for the next.
const DRAIN: usize = 4096;

/// Records read, by kind.
#[derive(Default)]
pub(super) struct Seen {
    counts: [AtomicU64; EVENT_TYPES],
    pub(super) tap: OnceLock<Tap>,
}

/// Hears every record.
pub(crate) type Tap = Box<dyn Fn(&Event) + Send + Sync>;

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

impl Seen {
    fn count(&self, kind: u32) {
        if let Some(counter) = self.counts.get(kind as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// By name, in ABI order.
    pub(super) fn list(&self) -> Vec<(&'static str, u64)> {
        (0..)
            .zip(&self.counts)
            .filter_map(|(kind, n)| Some((name(kind)?, n.load(Ordering::Relaxed))))
            .collect()
    }
}

/// Reader of the ring.
pub(super) struct Events {
    ring: RingBuf<MapData>,
    limit: [Limit; EVENT_TYPES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    second: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl Limit {
    /// Whether a line may be written now, and how many were not since the last one.
    fn allow(&mut self, now: Instant) -> Option<u64> {
        let fresh = self
            .second
            .is_none_or(|at| now.duration_since(at) >= Duration::from_secs(1));
        if fresh {
            self.second = Some(now);
            self.lines = 0;
        }
        if self.lines < LINES {
            self.lines += 1;
            Some(std::mem::take(&mut self.suppressed))
        } else {
            self.suppressed += 1;
            None
        }
    }
}

impl Events {
    pub(super) fn new(ring: RingBuf<MapData>) -> Self {
        Self {
            ring,
            limit: [Limit::default(); EVENT_TYPES],
        }
    }

    /// To be polled for reading.
    pub(super) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.ring.as_fd()
    }

    /// Reads what is there.
    pub(super) fn drain(&mut self, seen: &Seen, now: Instant) {
        for _ in 0..DRAIN {
            let Some(record) = self.ring.next() else {
                return;
            };
            if let Some(event) = decode(&record) {
                seen.count(kind_of(event.kind));
                if let Some(tap) = seen.tap.get() {
                    tap(&event);
                }
                log(&mut self.limit, &event, now);
            }
        }
    }
}

fn decode(record: &[u8]) -> Option<Event> {
    if record.len() < size_of::<Event>() {
        return None;
    }
    // SAFETY: the record is long enough, Event is plain data, and the read needs no alignment.
    Some(unsafe { std::ptr::read_unaligned(record.as_ptr().cast()) })
}

fn name(kind: u32) -> Option<&'static str> {
    match kind {
        EVENT_BLOCKED => Some("event_blocked"),
        EVENT_FLOW_OVERFLOW => Some("event_flow_overflow"),
        EVENT_RETURN_OVERFLOW => Some("event_return_overflow"),
        EVENT_GROUP_DEAD => Some("event_group_dead"),
        EVENT_EXT_CHAIN => Some("event_ext_chain"),
        EVENT_LISTENER_MISSING => Some("event_listener_missing"),
        EVENT_TRACE => Some("event_trace"),
        _ => None,
    }
}

fn log(limits: &mut [Limit; EVENT_TYPES], event: &Event, now: Instant) {
    // Those who watch are told otherwise.
    let Some(kind) = name(event.kind).filter(|_| event.kind != EVENT_TRACE) else {
        return;
    };
    let Some(suppressed) = limits[event.kind as usize].allow(now) else {
        return;
    };
    let protocol = match event.proto {
        6 => "tcp",
        17 => "udp",
        _ => "other",
    };
    let source = std::net::SocketAddr::new(from_bytes(&event.src), event.sport);
    let target = std::net::SocketAddr::new(from_bytes(&event.dst), event.dport);
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: super::TARGET,
                kind,
                protocol,
                %source,
                %target,
                ordinal = event.ordinal,
                rule = event.rule,
                suppressed,
                "kernel event"
            )
        };
    }
    match event.kind {
        EVENT_BLOCKED => line!(debug),
        EVENT_GROUP_DEAD | EVENT_EXT_CHAIN => line!(info),
        _ => line!(warn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_records_are_ignored() {
        assert!(decode(&[0; 71]).is_none());
        let event = decode(&[0; 72]).unwrap();
        assert_eq!(event.kind, EVENT_BLOCKED);
    }

    #[test]
    fn every_kind_has_a_name_and_a_limit() {
        for kind in 0..EVENT_TYPES as u32 {
            assert!(name(kind).is_some(), "{kind}");
        }
        assert!(name(EVENT_TYPES as u32).is_none());
        let seen = Seen::default();
        seen.count(EVENT_GROUP_DEAD);
        seen.count(99);
        assert_eq!(seen.list().len(), EVENT_TYPES);
        assert!(seen.list().contains(&("event_group_dead", 1)));
    }

    #[test]
    fn lines_are_limited_per_second() {
        let mut limit = Limit::default();
        let start = Instant::now();
        let allowed = (0..100).filter(|_| limit.allow(start).is_some()).count();
        assert_eq!(allowed, LINES as usize);
        let later = start + Duration::from_secs(1);
        assert_eq!(limit.allow(later), Some(100 - u64::from(LINES)));
        assert_eq!(limit.allow(later), Some(0));
    }
}
