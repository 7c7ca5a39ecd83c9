//! One thing that is alive or dead: a node in one domain and family, or a member under the
//! check URL of its group.
//!
//! Unknown is alive. Probes kill after three failures in a row and bring back after two
//! successes; real traffic has thresholds of its own.

use std::time::Duration;

use super::limits::{BACKOFF, BACKOFF_MAX, CONFIRM, PROBE_DEATH, RECOVERY, RELAPSE, RETRY, SECOND};
use crate::time::Moment;

/// What an observation changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    None,
    Died,
    Revived,
}

/// How seriously a failed probe is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// Counts.
    Full,
    /// The node is too new to be judged.
    Grace,
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    alive: bool,
    observed: bool,
    average: Option<f64>,
    fails: u8,
    oks: u8,
    traffic_fails: u16,
    /// Doublings of the pause.
    backoff: u8,
    revived: Option<Moment>,
    /// The network changed: a single success tells enough.
    fresh_network: bool,
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            alive: true,
            observed: false,
            average: None,
            fails: 0,
            oks: 0,
            traffic_fails: 0,
            backoff: 0,
            revived: None,
            fresh_network: false,
        }
    }
}

impl Cell {
    pub(super) fn alive(&self) -> bool {
        self.alive
    }

    pub(super) fn observed(&self) -> bool {
        self.observed
    }

    /// Halving moving average of the latency in milliseconds.
    pub(super) fn average(&self) -> Option<f64> {
        self.average
    }

    pub(super) fn probe_ok(&mut self, latency: Duration, now: Moment) -> Shift {
        let sample = latency.as_secs_f64() * 1e3;
        self.average = Some(
            self.average
                .map_or(sample, |old| f64::midpoint(old, sample)),
        );
        self.success(now)
    }

    pub(super) fn traffic_ok(&mut self, now: Moment) -> Shift {
        self.success(now)
    }

    fn success(&mut self, now: Moment) -> Shift {
        self.observed = true;
        (self.fails, self.traffic_fails) = (0, 0);
        if self.alive {
            return Shift::None;
        }
        self.oks += 1;
        if self.oks < RECOVERY && !self.fresh_network {
            return Shift::None;
        }
        self.alive = true;
        self.oks = 0;
        self.fresh_network = false;
        self.revived = Some(now);
        Shift::Revived
    }

    pub(super) fn probe_failed(&mut self, weight: Weight, now: Moment) -> Shift {
        self.oks = 0;
        if weight == Weight::Grace {
            return Shift::None;
        }
        self.observed = true;
        if !self.alive {
            self.backoff = self.backoff.saturating_add(1);
            return Shift::None;
        }
        self.fails += 1;
        if self.fails < PROBE_DEATH {
            return Shift::None;
        }
        self.die(now)
    }

    pub(super) fn traffic_failed(&mut self, death: u16, weight: Weight, now: Moment) -> Shift {
        if weight == Weight::Grace || !self.alive {
            return Shift::None;
        }
        self.observed = true;
        self.traffic_fails = self.traffic_fails.saturating_add(1);
        if self.traffic_fails < death {
            return Shift::None;
        }
        self.die(now)
    }

    fn die(&mut self, now: Moment) -> Shift {
        let relapse = self.revived.is_some_and(|at| now.since(at) < RELAPSE);
        // One that keeps coming and going is looked at less and less often.
        self.backoff = if relapse { self.backoff + 1 } else { 0 };
        self.alive = false;
        (self.fails, self.oks, self.traffic_fails) = (0, 0, 0);
        Shift::Died
    }

    /// The network changed: pauses are over, and a dead one needs one success only.
    pub(super) fn network_changed(&mut self) {
        self.backoff = 0;
        self.fresh_network = !self.alive;
    }

    /// Pause before the next probe.
    pub(super) fn pause(&self, interval: Duration, selected: bool) -> Duration {
        if !self.alive {
            let doubled = BACKOFF * (1 << self.backoff.min(6));
            return if self.oks > 0 {
                SECOND
            } else {
                doubled.min(BACKOFF_MAX)
            };
        }
        match (self.fails, selected) {
            (0, _) => interval,
            (_, true) => CONFIRM,
            (_, false) => interval.min(RETRY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::default() + Duration::from_secs(secs)
    }

    const INTERVAL: Duration = Duration::from_secs(30);

    fn kill(cell: &mut Cell, now: Moment) {
        for n in 1..=PROBE_DEATH {
            let shift = cell.probe_failed(Weight::Full, now);
            assert_eq!(shift == Shift::Died, n == PROBE_DEATH);
        }
    }

    #[test]
    fn three_failures_kill_and_two_successes_revive() {
        let mut cell = Cell::default();
        assert!(cell.alive() && !cell.observed());
        cell.probe_failed(Weight::Full, at(0));
        cell.probe_failed(Weight::Full, at(1));
        assert_eq!(cell.probe_ok(INTERVAL, at(2)), Shift::None);
        kill(&mut cell, at(3));
        assert!(!cell.alive());
        assert_eq!(cell.probe_ok(INTERVAL, at(4)), Shift::None);
        assert_eq!(cell.pause(INTERVAL, false), SECOND);
        cell.probe_failed(Weight::Full, at(5));
        assert_eq!(cell.probe_ok(INTERVAL, at(6)), Shift::None, "not in a row");
        assert_eq!(cell.probe_ok(INTERVAL, at(7)), Shift::Revived);
    }

    #[test]
    fn failures_in_the_grace_period_are_no_observation() {
        let mut cell = Cell::default();
        for _ in 0..100 {
            assert_eq!(cell.probe_failed(Weight::Grace, at(0)), Shift::None);
            assert_eq!(cell.traffic_failed(3, Weight::Grace, at(0)), Shift::None);
        }
        assert!(cell.alive() && !cell.observed());
    }

    #[test]
    fn pauses_double_to_the_limit() {
        let mut cell = Cell::default();
        assert_eq!(cell.pause(INTERVAL, false), INTERVAL);
        cell.probe_failed(Weight::Full, at(0));
        assert_eq!(cell.pause(INTERVAL, false), RETRY);
        assert_eq!(cell.pause(INTERVAL, true), CONFIRM);
        assert_eq!(cell.pause(Duration::from_secs(1), false).as_secs(), 1);
        cell.probe_failed(Weight::Full, at(0));
        cell.probe_failed(Weight::Full, at(0));
        for secs in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(cell.pause(INTERVAL, true).as_secs(), secs);
            cell.probe_failed(Weight::Full, at(0));
        }
        cell.network_changed();
        assert_eq!(cell.pause(INTERVAL, false), BACKOFF);
        assert_eq!(cell.probe_ok(INTERVAL, at(9)), Shift::Revived);
    }

    #[test]
    fn one_that_relapses_waits_longer() {
        let mut cell = Cell::default();
        for (round, secs) in [5, 10, 20].into_iter().enumerate() {
            let now = at(round as u64 * 60);
            kill(&mut cell, now);
            assert_eq!(cell.pause(INTERVAL, false).as_secs(), secs);
            cell.probe_ok(INTERVAL, now);
            cell.probe_ok(INTERVAL, now);
        }
        kill(&mut cell, at(1000));
        assert_eq!(cell.pause(INTERVAL, false), BACKOFF, "long healthy");
    }

    #[test]
    fn real_traffic_has_its_own_threshold_and_recovers() {
        let mut cell = Cell::default();
        for n in 1..=10 {
            let shift = cell.traffic_failed(10, Weight::Full, at(0));
            assert_eq!(shift == Shift::Died, n == 10);
        }
        assert_eq!(cell.traffic_ok(at(1)), Shift::None);
        assert_eq!(cell.traffic_ok(at(2)), Shift::Revived);
        assert_eq!(
            cell.average(),
            None,
            "traffic is no measurement of the check"
        );
    }

    #[test]
    fn a_flow_that_works_makes_earlier_failures_forgotten() {
        let mut cell = Cell::default();
        for _ in 0..5 {
            for _ in 0..9 {
                assert_eq!(cell.traffic_failed(10, Weight::Full, at(0)), Shift::None);
            }
            cell.traffic_ok(at(1));
        }
    }

    #[test]
    fn the_average_halves() {
        let mut cell = Cell::default();
        for (sample, average) in [(100, 100.0), (200, 150.0), (50, 100.0), (0, 50.0)] {
            cell.probe_ok(Duration::from_millis(sample), at(0));
            assert_eq!(cell.average(), Some(average));
        }
    }
}
