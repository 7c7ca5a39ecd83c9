//! Where sniffing is not worth the wait: servers that speak first, protocols without names.
//!
//! Three flows in a row without a name to the same place from the same program let the next
//! ones pass unsniffed for a while; one name clears the place.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Flows without a name until a place is left alone.
const MISSES: u8 = 3;
/// How long a place is left alone.
const PAUSE: Duration = Duration::from_secs(600);
/// Places remembered. Two halves: a full half displaces the older one.
pub(super) const PLACES: usize = 16_384;

/// What flows must have in common to be expected alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) target: SocketAddr,
    pub(super) pname: [u8; 16],
    pub(super) mac: [u8; 6],
    pub(super) dscp: u8,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    misses: u8,
    last: Instant,
}

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<Place, Record>,
    old: HashMap<Place, Record>,
    displaced: u64,
}

/// The memory.
#[derive(Debug, Default)]
pub(super) struct Misses(Mutex<Halves>);

impl Misses {
    /// Whether flows to a place are let pass.
    pub(super) fn paused(&self, place: &Place, now: Instant) -> bool {
        let halves = self.lock();
        let record = halves.young.get(place).or_else(|| halves.old.get(place));
        record.is_some_and(|r| r.misses >= MISSES && now.saturating_duration_since(r.last) < PAUSE)
    }

    /// A flow to a place had no name.
    pub(super) fn miss(&self, place: Place, now: Instant) {
        let mut halves = self.lock();
        let known = halves.young.get(&place).or_else(|| halves.old.get(&place));
        // After a pause the count begins anew.
        let misses = known.map_or(0, |r| {
            let over = now.saturating_duration_since(r.last) >= PAUSE;
            if over { 0 } else { r.misses }
        });
        if halves.young.len() >= PLACES / 2 && !halves.young.contains_key(&place) {
            halves.old = std::mem::take(&mut halves.young);
            halves.displaced += 1;
        }
        let record = Record {
            misses: misses.saturating_add(1),
            last: now,
        };
        halves.young.insert(place, record);
    }

    /// A flow to a place had a name.
    pub(super) fn hit(&self, place: &Place) {
        let mut halves = self.lock();
        halves.young.remove(place);
        halves.old.remove(place);
    }

    /// Places remembered, and how often half of them was displaced.
    pub(super) fn stats(&self) -> (usize, u64) {
        let halves = self.lock();
        (halves.young.len() + halves.old.len(), halves.displaced)
    }

    fn lock(&self) -> MutexGuard<'_, Halves> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u32) -> Place {
        Place {
            target: (std::net::Ipv4Addr::from(n), 22).into(),
            pname: [0; 16],
            mac: [0; 6],
            dscp: 0,
        }
    }

    #[test]
    fn three_misses_in_a_row_pause_a_place() {
        let (misses, start) = (Misses::default(), Instant::now());
        let late = start + PAUSE - Duration::from_millis(1);
        for _ in 0..2 {
            misses.miss(place(1), start);
        }
        assert!(!misses.paused(&place(1), start));
        misses.hit(&place(1));
        for _ in 0..2 {
            misses.miss(place(1), start);
        }
        assert!(!misses.paused(&place(1), start), "a name has cleared it");
        misses.miss(place(1), start);
        assert!(misses.paused(&place(1), late));
        assert!(!misses.paused(&place(2), late));
        assert!(!misses.paused(&place(1), start + PAUSE));
        misses.miss(place(1), start + PAUSE);
        assert!(!misses.paused(&place(1), start + PAUSE), "counted anew");
    }

    #[test]
    fn a_full_memory_displaces_its_older_half() {
        let (misses, now) = (Misses::default(), Instant::now());
        for _ in 0..3 {
            misses.miss(place(0), now);
        }
        for n in 1..PLACES as u32 / 2 {
            misses.miss(place(n), now);
        }
        assert_eq!(misses.stats(), (PLACES / 2, 0));
        for n in 0..PLACES as u32 / 2 {
            misses.miss(place(1 << 20 | n), now);
        }
        assert_eq!(misses.stats(), (PLACES, 1));
        assert!(misses.paused(&place(0), now));
        misses.miss(place(1 << 21), now);
        assert_eq!(misses.stats(), (PLACES / 2 + 1, 2));
        assert!(!misses.paused(&place(0), now));
    }
}
