//! What real dials through a node say about it: failures, and dials much slower than usual.
//!
//! Probes make no strikes: a node may fail its check and serve, and the other way round.

use std::time::Duration;

use super::limits::FORGET;
use crate::time::Moment;

/// Failures in a row that make a strike.
const RUN: u8 = 2;
/// Dials before slowness is judged.
const WARM_UP: u8 = 3;
/// Slow dials in a row that make a strike.
const SLOW_RUN: u8 = 3;
/// No dial below this is slow.
const FLOOR_MS: f64 = 250.0;
/// No dial needs to be slower than usual by more than this to be slow.
const MARGIN_MS: f64 = 500.0;

/// What a dial changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Nothing,
    /// One more strike.
    Struck,
    /// All are made good.
    Cleared,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Strikes {
    count: u32,
    fails: u8,
    good: u32,
    /// Moving average of the dial time in milliseconds.
    usual: f64,
    dials: u8,
    slow: u8,
    last: Moment,
}

impl Strikes {
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// A dial failed, and the node was to blame.
    pub(super) fn failed(&mut self, now: Moment) -> Verdict {
        self.good = 0;
        self.fails += 1;
        if self.fails < RUN {
            return Verdict::Nothing;
        }
        self.fails = 0;
        self.strike(now)
    }

    /// A dial went through; `took` is absent when the connection was there before.
    pub(super) fn succeeded(&mut self, took: Option<Duration>, now: Moment) -> Verdict {
        self.fails = 0;
        if took.is_some_and(|took| self.is_slow(took)) {
            self.good = 0;
            self.slow += 1;
            if self.slow == SLOW_RUN {
                self.slow = 0;
                return self.strike(now);
            }
            return Verdict::Nothing;
        }
        if took.is_some() {
            self.slow = 0;
        }
        if self.count == 0 {
            return Verdict::Nothing;
        }
        self.good += 1;
        if self.good < self.count.max(2) {
            return Verdict::Nothing;
        }
        (self.count, self.good) = (0, 0);
        Verdict::Cleared
    }

    /// A probe went through: old strikes fade.
    pub(super) fn probed(&mut self, now: Moment) -> Verdict {
        if self.count == 0 || now.since(self.last) < FORGET {
            return Verdict::Nothing;
        }
        (self.count, self.good) = (0, 0);
        Verdict::Cleared
    }

    fn strike(&mut self, now: Moment) -> Verdict {
        self.count = self.count.saturating_add(1);
        self.good = 0;
        self.last = now;
        Verdict::Struck
    }

    fn is_slow(&mut self, took: Duration) -> bool {
        let ms = took.as_secs_f64() * 1e3;
        if self.dials == 0 {
            self.usual = ms;
        }
        let limit = (2.0 * self.usual).min(self.usual + MARGIN_MS).max(FLOOR_MS);
        let judged = self.dials == WARM_UP;
        self.dials = (self.dials + 1).min(WARM_UP);
        self.usual += (ms - self.usual) / 8.0;
        judged && ms > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::START;

    fn ms(n: u64) -> Option<Duration> {
        Some(Duration::from_millis(n))
    }

    #[test]
    fn a_lone_failure_leaves_no_trace_and_two_in_a_row_strike() {
        let mut strikes = Strikes::default();
        assert_eq!(strikes.failed(NOW), Verdict::Nothing);
        strikes.succeeded(ms(1), NOW);
        assert_eq!(strikes.failed(NOW), Verdict::Nothing);
        assert_eq!(strikes.failed(NOW), Verdict::Struck);
        assert_eq!(strikes.count(), 1);
    }

    #[test]
    fn strikes_are_made_good_by_as_many_successes_but_two_at_least() {
        let mut strikes = Strikes::default();
        for _ in 0..2 {
            strikes.failed(NOW);
        }
        assert_eq!(strikes.succeeded(None, NOW), Verdict::Nothing);
        assert_eq!(strikes.succeeded(None, NOW), Verdict::Cleared);
        for _ in 0..6 {
            strikes.failed(NOW);
        }
        assert_eq!(strikes.count(), 3);
        strikes.succeeded(None, NOW);
        strikes.succeeded(None, NOW);
        strikes.failed(NOW);
        for n in 1..=3 {
            let verdict = strikes.succeeded(None, NOW);
            assert_eq!(verdict == Verdict::Cleared, n == 3, "in a row");
        }
    }

    #[test]
    fn three_slow_dials_in_a_row_strike_after_the_warm_up() {
        let mut strikes = Strikes::default();
        for _ in 0..3 {
            assert_eq!(strikes.succeeded(ms(100), NOW), Verdict::Nothing);
        }
        for _ in 0..2 {
            assert_eq!(strikes.succeeded(ms(900), NOW), Verdict::Nothing);
        }
        strikes.succeeded(ms(100), NOW);
        for n in 1..=3 {
            let verdict = strikes.succeeded(ms(3000), NOW);
            assert_eq!(verdict == Verdict::Struck, n == 3);
        }
    }

    #[test]
    fn what_is_slow_for_everyone_or_usual_for_the_node_is_not_slow() {
        let mut fast = Strikes::default();
        let mut far = Strikes::default();
        for _ in 0..50 {
            assert_eq!(fast.succeeded(ms(1), NOW), Verdict::Nothing);
            assert_eq!(far.succeeded(ms(800), NOW), Verdict::Nothing);
        }
        for _ in 0..9 {
            assert_eq!(fast.succeeded(ms(249), NOW), Verdict::Nothing, "the floor");
            assert_eq!(far.succeeded(ms(1250), NOW), Verdict::Nothing, "the margin");
        }
    }

    #[test]
    fn old_strikes_fade_while_probes_succeed() {
        let mut strikes = Strikes::default();
        strikes.failed(NOW);
        strikes.failed(NOW);
        assert_eq!(strikes.probed(NOW + FORGET / 2), Verdict::Nothing);
        assert_eq!(strikes.probed(NOW + FORGET), Verdict::Cleared);
    }
}
