//! Takes idle entries out of `FLOW` and `RETURN`. A tick does a bounded amount of work and the
//! next one goes on where it stopped.
//!
//! The kernel offers no compare-and-delete. An entry is read again right before its deletion;
//! what can still slip in between is harmless, since entries of live relays are never touched.

use std::{
    collections::HashSet,
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use honk_common::{
    flow::{FLOW_CLOSING, FLOW_STALE, FlowVal, FlowWord, ReturnVal},
    key::{FlowKey, PROTO_TCP},
};

use super::{
    claims::Claims,
    map::{Addr, Map, Walk},
};

/// Time between ticks.
pub(super) const TICK: Duration = Duration::from_secs(2);
const BUDGET: Duration = Duration::from_millis(100);
const BUDGET_PRESSED: Duration = Duration::from_millis(200);

const SECOND: u64 = 1_000_000_000;
const CLOSING_NS: u64 = 10 * SECOND;
const IDLE_NS: u64 = 120 * SECOND;
/// Clients keep idle connections for hours; only their next packet tells that one is over.
const STALE_NS: u64 = 24 * 3600 * SECOND;
const RETURN_NS: u64 = 600 * SECOND;

/// Results, read by `counters`.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) expired: AtomicU64,
    pub(super) flows: AtomicU64,
    pub(super) returns: AtomicU64,
}

/// State of the scans.
#[derive(Debug)]
pub(super) struct Janitor {
    flows: Walk<FlowKey, FlowVal>,
    returns: Walk<Addr, ReturnVal>,
    capacity: u64,
    /// When the running or the last flow scan began.
    began: Option<Instant>,
    scanning: bool,
    counted: u64,
    clients: HashSet<Addr>,
    overflow: u64,
    pressed_ticks: u8,
}

impl Janitor {
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            flows: Walk::new(),
            returns: Walk::new(),
            capacity: capacity.max(1),
            began: None,
            scanning: false,
            counted: 0,
            clients: HashSet::new(),
            overflow: 0,
            pressed_ticks: 0,
        }
    }

    /// One tick. `overflow` is the kernel's count of refused insertions, `grown` how many
    /// flows it inserted since the last complete scan.
    pub(super) fn tick(
        &mut self,
        flow: &Map<FlowKey, FlowVal>,
        ret: &Map<Addr, ReturnVal>,
        claims: &Claims,
        tally: &Tally,
        load: Load,
    ) -> io::Result<()> {
        let now = Instant::now();
        if load.overflow > self.overflow {
            self.overflow = load.overflow;
            self.pressed_ticks = 3;
        }
        let pressed = self.pressed_ticks > 0;
        self.pressed_ticks = self.pressed_ticks.saturating_sub(1);
        let fill = (tally.flows.load(Ordering::Relaxed) + load.grown) * 100 / self.capacity;
        if !self.scanning {
            let due = self
                .began
                .is_none_or(|at| now.duration_since(at) >= interval(fill, pressed));
            if !due {
                return Ok(());
            }
            self.began = Some(now);
            self.scanning = true;
            self.counted = 0;
            self.clients.clear();
        }
        let budget = if pressed || fill > 85 {
            BUDGET_PRESSED
        } else {
            BUDGET
        };
        while now.elapsed() < budget {
            if self.step_flows(flow, claims, tally, pressed || fill > 85)? {
                tally.flows.store(self.counted, Ordering::Relaxed);
                self.scan_returns(ret, tally)?;
                self.scanning = false;
                break;
            }
        }
        Ok(())
    }

    /// Whether no scan is running, so that insertions count from here.
    pub(super) fn at_rest(&self) -> bool {
        !self.scanning
    }

    fn step_flows(
        &mut self,
        flow: &Map<FlowKey, FlowVal>,
        claims: &Claims,
        tally: &Tally,
        pressed: bool,
    ) -> io::Result<bool> {
        let now = monotonic_ns();
        let (end, keys, values) = self.flows.next(flow)?;
        for (key, value) in keys.iter().zip(values) {
            if expired(key, value, now, pressed)
                && !claims.contains(key)
                && delete_unchanged(flow, key, |v| (v.last_seen_ns, v.word), value)?
            {
                tally.expired.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.counted += 1;
            self.clients.insert(Addr(key.src));
        }
        Ok(end)
    }

    /// `RETURN` is small and mostly keyed by LAN clients: one pass.
    fn scan_returns(&mut self, ret: &Map<Addr, ReturnVal>, tally: &Tally) -> io::Result<()> {
        let now = monotonic_ns();
        let mut count = 0;
        loop {
            let (end, keys, values) = self.returns.next(ret)?;
            for (key, value) in keys.iter().zip(values) {
                let idle = now.saturating_sub(value.last_seen_ns) > RETURN_NS;
                if !(idle
                    && !self.clients.contains(key)
                    && delete_unchanged(ret, key, |v| v.last_seen_ns, value)?)
                {
                    count += 1;
                }
            }
            if end {
                break;
            }
        }
        tally.returns.store(count, Ordering::Relaxed);
        Ok(())
    }
}

/// What the kernel's counters say about the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Refused insertions.
    pub(super) overflow: u64,
    /// Insertions since the last complete scan.
    pub(super) grown: u64,
}

/// Time between the beginnings of two scans.
fn interval(fill: u64, pressed: bool) -> Duration {
    match fill {
        _ if pressed => Duration::ZERO,
        0..70 => Duration::from_secs(60),
        70..=85 => Duration::from_secs(15),
        _ => Duration::ZERO,
    }
}

fn expired(key: &FlowKey, value: &FlowVal, now: u64, pressed: bool) -> bool {
    let limit = match FlowWord::unpack(value.word).state {
        FLOW_CLOSING if key.proto == PROTO_TCP => CLOSING_NS,
        // Room for live flows comes before connections that are dead.
        FLOW_STALE if !pressed => STALE_NS,
        _ => IDLE_NS,
    };
    now.saturating_sub(value.last_seen_ns) > limit
}

/// Deletes an entry if what matters about it is still as read before.
fn delete_unchanged<K: honk_common::Pod, V: honk_common::Pod, T: PartialEq>(
    map: &Map<K, V>,
    key: &K,
    of: impl Fn(&V) -> T,
    seen: &V,
) -> io::Result<bool> {
    match map.lookup(key)? {
        Some(now) if of(&now) == of(seen) => map.delete(key),
        _ => Ok(false),
    }
}

/// The clock of `bpf_ktime_get_ns`.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * SECOND + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(proto: u8, state: u8, last_seen_ns: u64) -> (FlowKey, FlowVal) {
        let a = "10.0.0.1:1".parse().unwrap();
        let word = FlowWord {
            ordinal: 2,
            flags: 0,
            dscp: 0,
            state,
            mark: 0,
        };
        let value = FlowVal {
            last_seen_ns,
            word: word.pack(),
            isn: 0,
            generation: 1,
            rule: 0,
            vlan: 0,
            pid: 0,
            pname: [0; 16],
            mac: [0; 6],
            gw_mac: [0; 6],
            ifindex: 0,
        };
        (FlowKey::new(a, a, proto), value)
    }

    #[test]
    fn timeouts_follow_protocol_and_state() {
        let at = 1000 * SECOND;
        for (proto, state, age, gone) in [
            (6, FLOW_CLOSING, 9, false),
            (6, FLOW_CLOSING, 11, true),
            (6, 0, 119, false),
            (6, 0, 121, true),
            (6, 3, 121, true),
            (17, FLOW_CLOSING, 11, false),
            (17, 0, 121, true),
            (6, FLOW_STALE, 86_399, false),
            (6, FLOW_STALE, 86_401, true),
        ] {
            let (key, value) = flow(proto, state, at);
            assert_eq!(
                expired(&key, &value, at + age * SECOND, false),
                gone,
                "{proto} {state} {age}"
            );
        }
        let (key, value) = flow(6, 0, at);
        assert!(
            !expired(&key, &value, at - SECOND, true),
            "seen in the future"
        );
        let (key, value) = flow(6, FLOW_STALE, at);
        assert!(expired(&key, &value, at + 121 * SECOND, true), "no room");
    }

    #[test]
    fn a_full_table_is_scanned_more_often() {
        assert_eq!(interval(10, false).as_secs(), 60);
        assert_eq!(interval(70, false).as_secs(), 15);
        assert_eq!(interval(86, false).as_secs(), 0);
        assert_eq!(interval(1, true).as_secs(), 0);
    }
}
