//! Availability: distinct attempts whose answers arrived without a long silence between them
//! (S-260, S-262).

use super::{
    clock::T,
    consts::{LEASE, REPORTERS},
};

/// Received data since the last fence or silence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cohort {
    /// Counts restarts, so that each attempt is credited once in each run.
    pub(super) epoch: u32,
    /// Distinct attempts that received data, up to four.
    pub(super) credits: u8,
    /// When data last came.
    pub(super) last_rx: Option<T>,
    /// Earlier data does not count.
    floor: Option<T>,
}

/// What became of received data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    /// It lies before the fence, the floor or a silence, or ahead of now.
    Rejected,
    /// It counts.
    Accepted {
        /// Whether it is the first of this attempt in this epoch.
        first: bool,
    },
}

impl Cohort {
    /// Starts anew: only what comes after `floor` will count.
    pub(super) fn restart(&mut self, floor: T) {
        *self = Self {
            epoch: self.epoch.wrapping_add(1),
            credits: 0,
            last_rx: None,
            floor: Some(floor),
        };
    }

    /// Takes data received at `at`. `credited` is the epoch in which this attempt was counted
    /// last, and is brought up to date.
    pub(super) fn take(
        &mut self,
        now: T,
        at: T,
        fence: Option<T>,
        credited: &mut Option<u32>,
    ) -> Credit {
        if let Some(last) = self.last_rx.filter(|last| now.is_after(*last, LEASE)) {
            self.restart(last.plus_secs(LEASE));
        }
        let latest = self.last_rx.map_or(now, |last| last.max(now));
        let stale = latest.is_after(at, LEASE);
        let early = self.floor.is_some_and(|floor| at < floor);
        if at > now || stale || early || fence.is_some_and(|fence| at <= fence) {
            return Credit::Rejected;
        }
        let first = *credited != Some(self.epoch);
        if first {
            *credited = Some(self.epoch);
            self.credits = (self.credits + 1).min(REPORTERS);
        }
        self.last_rx = self.last_rx.max(Some(at));
        Credit::Accepted { first }
    }

    /// Credits that still count now.
    pub(super) fn live(&self, now: T, fence: Option<T>) -> u8 {
        match self.last_rx {
            Some(last) if Some(last) > fence && !now.is_after(last, LEASE) => self.credits,
            _ => 0,
        }
    }

    /// Until when the cell is usable, if it is now.
    pub(super) fn usable_until(&self, now: T, fence: Option<T>) -> Option<T> {
        let end = self.last_rx?.plus_secs(LEASE);
        (self.live(now, fence) >= REPORTERS).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(secs: u64) -> T {
        T::from_secs(secs)
    }

    fn take(cohort: &mut Cohort, now: u64, at: u64) -> bool {
        cohort.take(s(now), s(at), None, &mut None) != Credit::Rejected
    }

    #[test]
    fn what_came_a_minute_ago_proves_nothing() {
        assert!(take(&mut Cohort::default(), 100, 41));
        assert!(!take(&mut Cohort::default(), 100, 40));
        let mut cohort = Cohort::default();
        assert!(take(&mut cohort, 100, 95));
        assert!(take(&mut cohort, 154, 95), "no silence yet");
        assert!(!take(&mut cohort, 154, 94), "too old next to now");
    }

    #[test]
    fn a_silence_ends_a_minute_after_the_last_data() {
        for (at, counts) in [(159, false), (160, true)] {
            let mut cohort = Cohort::default();
            assert!(take(&mut cohort, 100, 100));
            assert_eq!(take(&mut cohort, 170, at), counts, "{at}");
            assert_eq!((cohort.epoch, cohort.credits), (1, u8::from(counts)));
        }
    }
}
