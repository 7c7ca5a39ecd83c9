//! The value of a candidate for a first choice: observed reliability, then a little for latency
//! and rates relative to the best of those that can be compared (S-130 to S-135).
//!
//! Probe round trips, setups and first responses are never pooled as interchangeable
//! milliseconds: each is compared only with its own kind, in the same scope.

use super::{
    cell::PROBE_SLOTS,
    consts::{W_LATENCY, W_RATE},
    snapshot::{Layered, Row},
    wm::Perf,
};

/// Best values among those that are fit, where at least two have one.
#[derive(Clone, Copy, Debug, Default)]
struct Best {
    /// Slot and identity of the check that two of them share.
    check: Option<(usize, u64)>,
    probe: Option<f64>,
    warm_setup: Option<f64>,
    setup: [Option<f64>; 2],
    response: [Option<f64>; 2],
    up: [Option<f64>; 2],
    down: [Option<f64>; 2],
}

/// Whether little or much is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Good {
    Low,
    High,
}

/// Gives every row its utility; `eligible` must be set.
pub(super) fn mark(rows: &mut [Row]) {
    let best = best(rows);
    for row in rows {
        row.utility = utility(row, &best);
    }
}

/// The check that most speaks for these candidates: the first that two of those that are fit
/// share (S-132).
pub(super) fn shared_check(rows: &[Row]) -> Option<(usize, u64)> {
    (0..PROBE_SLOTS).find_map(|slot| {
        let fit = || rows.iter().filter(|row| row.eligible);
        let scope_of = |row: &Row| row.known.probes[slot].map(|(scope, _)| scope);
        fit()
            .filter_map(scope_of)
            .find(|scope| fit().filter(|row| scope_of(row) == Some(*scope)).count() > 1)
            .map(|scope| (slot, scope))
    })
}

/// Latency of a candidate under a check.
pub(super) fn checked(row: &Row, check: Option<(usize, u64)>) -> Option<Perf> {
    let (slot, scope) = check?;
    row.known.probes[slot]
        .filter(|(own, _)| *own == scope)
        .map(|(_, perf)| perf)
}

fn best(rows: &[Row]) -> Best {
    let check = shared_check(rows);
    let mut probe = Top::default();
    let mut warm_setup = Top::default();
    let mut both = [[Top::default(); 2]; 4];
    for row in rows.iter().filter(|row| row.eligible) {
        let known = &row.known;
        probe.see(checked(row, check), Good::Low);
        warm_setup.see(known.warm_setup, Good::Low);
        for ((metric, good), top) in [
            (known.setup, Good::Low),
            (known.response, Good::Low),
            (known.up, Good::High),
            (known.down, Good::High),
        ]
        .into_iter()
        .zip(&mut both)
        {
            top[0].see(metric.aggregate, good);
            top[1].see(metric.target, good);
        }
    }
    let [setup, response, up, down] = both.map(|metric| metric.map(Top::shared));
    Best {
        check,
        probe: probe.shared(),
        warm_setup: warm_setup.shared(),
        setup,
        response,
        up,
        down,
    }
}

/// The best value so far, and how many there were.
#[derive(Clone, Copy, Debug, Default)]
struct Top {
    value: f64,
    count: u32,
}

impl Top {
    fn see(&mut self, perf: Option<Perf>, good: Good) {
        let Some(perf) = perf else {
            return;
        };
        self.value = match good {
            _ if self.count == 0 => perf.value,
            Good::Low => perf.value.min(self.value),
            Good::High => perf.value.max(self.value),
        };
        self.count += 1;
    }

    /// It counts where at least two have one.
    fn shared(self) -> Option<f64> {
        (self.count > 1).then_some(self.value)
    }
}

fn utility(row: &Row, best: &Best) -> f64 {
    let known = &row.known;
    let low = |own, best| relative(own, best, Good::Low);
    let probe = low(checked(row, best.check), best.probe);
    let mut latency = corrected(0.0, probe);
    if best.check.is_none() {
        if best.setup.iter().all(Option::is_none) {
            latency = corrected(latency, low(known.warm_setup, best.warm_setup));
        }
        latency = scoped(latency, known.setup, best.setup, Good::Low);
    }
    latency = scoped(latency, known.response, best.response, Good::Low);
    let up = scoped(0.0, known.up, best.up, Good::High);
    let down = scoped(0.0, known.down, best.down, Good::High);
    known.reliability.rate + W_LATENCY * latency + W_RATE * up.max(down)
}

/// Value of a candidate relative to the best, 0 to 1, with its confidence.
fn relative(own: Option<Perf>, best: Option<f64>, good: Good) -> Option<Perf> {
    let (own, best) = (own?, best?);
    let value = match good {
        Good::Low => best.max(1.0) / own.value.max(1.0),
        Good::High => own.value / best.max(1.0),
    };
    Some(Perf {
        value: value.clamp(0.0, 1.0),
        confidence: own.confidence,
    })
}

fn corrected(base: f64, relative: Option<Perf>) -> f64 {
    relative.map_or(base, |r| {
        base * (1.0 - r.confidence) + r.value * r.confidence
    })
}

/// The target's own metric decides where it can be compared, else that of all targets.
fn scoped(base: f64, own: Layered, best: [Option<f64>; 2], good: Good) -> f64 {
    let target = relative(own.target, best[1], good);
    corrected(
        base,
        target.or_else(|| relative(own.aggregate, best[0], good)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::{
        cell::{Layers, Scope},
        clock::T,
        ids::key,
        snapshot::Snapshot,
    };

    fn perf(value: f64) -> Option<Perf> {
        Some(Perf {
            value,
            confidence: 1.0,
        })
    }

    fn half(value: f64) -> Option<Perf> {
        Some(Perf {
            value,
            confidence: 0.5,
        })
    }

    fn row(number: u128, change: impl FnOnce(&mut Snapshot)) -> Row {
        let mut known = Snapshot::read(T::START, &Scope::TEST, Layers::default());
        known.reliability.rate = 1.0;
        change(&mut known);
        Row {
            node: key(number),
            index: number as usize,
            member: 0,
            known,
            eligible: true,
            utility: 0.0,
        }
    }

    /// Utilities above the reliability of 1.
    fn gains(mut rows: Vec<Row>) -> Vec<f64> {
        mark(&mut rows);
        let thousandths = |row: &Row| ((row.utility - 1.0) * 1e6).round() / 1e3;
        rows.iter().map(thousandths).collect()
    }

    fn probed(number: u128, scope: u64, millis: f64) -> Row {
        row(number, |known| {
            known.probes[0] = perf(millis).map(|p| (scope, p));
        })
    }

    #[test]
    fn a_check_counts_where_two_share_it() {
        let alone = vec![probed(1, 7, 50.0), row(2, |_| {})];
        assert_eq!(gains(alone), [0.0, 0.0]);
        let others = vec![probed(1, 7, 50.0), probed(2, 8, 100.0)];
        assert_eq!(gains(others), [0.0, 0.0]);
        let shared = vec![probed(1, 7, 50.0), probed(2, 7, 100.0), row(3, |_| {})];
        assert_eq!(gains(shared), [30.0, 15.0, 0.0]);
        let stranger = vec![probed(1, 7, 50.0), probed(2, 7, 100.0), probed(3, 8, 10.0)];
        assert_eq!(gains(stranger), [30.0, 15.0, 0.0]);
        let mut unfit = vec![probed(1, 7, 50.0), probed(2, 7, 100.0)];
        unfit[1].eligible = false;
        assert_eq!(gains(unfit), [0.0, 0.0]);
    }

    #[test]
    fn latencies_below_a_millisecond_are_alike() {
        let rows = vec![probed(1, 7, 0.1), probed(2, 7, 0.9)];
        assert_eq!(gains(rows), [30.0, 30.0]);
    }

    #[test]
    fn business_takes_over_as_far_as_it_is_trusted() {
        let with = |number, millis: f64, response: Option<Perf>| {
            let mut row = probed(number, 7, millis);
            row.known.response.aggregate = response;
            row
        };
        let rows = vec![
            with(1, 50.0, half(200.0)),
            with(2, 100.0, perf(100.0)),
            with(3, 50.0, None),
        ];
        assert_eq!(gains(rows), [22.5, 30.0, 30.0]);
    }

    #[test]
    fn a_target_is_judged_by_itself_where_it_can_be_compared() {
        let with = |number, all: f64, own: Option<Perf>| {
            row(number, |known| {
                known.response.aggregate = perf(all);
                known.response.target = own;
            })
        };
        let both = vec![with(1, 50.0, perf(100.0)), with(2, 100.0, perf(50.0))];
        assert_eq!(gains(both), [15.0, 30.0]);
        let one = vec![with(1, 50.0, perf(100.0)), with(2, 100.0, None)];
        assert_eq!(gains(one), [30.0, 15.0]);
    }

    #[test]
    fn setups_count_only_without_a_check_and_warm_ones_only_without_business() {
        let with = |number, warm: f64, setup: Option<Perf>| {
            row(number, |known| {
                known.warm_setup = perf(warm);
                known.setup.aggregate = setup;
            })
        };
        let warm = vec![with(1, 10.0, None), with(2, 20.0, None)];
        assert_eq!(gains(warm), [30.0, 15.0]);
        let business = vec![with(1, 10.0, perf(80.0)), with(2, 20.0, perf(40.0))];
        assert_eq!(gains(business), [15.0, 30.0]);
        let mut checked = vec![with(1, 10.0, perf(80.0)), with(2, 20.0, perf(40.0))];
        for row in &mut checked {
            row.known.probes[0] = perf(30.0).map(|p| (7, p));
        }
        assert_eq!(gains(checked), [30.0, 30.0]);
    }

    #[test]
    fn the_better_direction_counts() {
        let with = |number, up: f64, down: f64| {
            row(number, |known| {
                known.up.aggregate = perf(up);
                known.down.aggregate = perf(down);
            })
        };
        let rows = vec![with(1, 1000.0, 4000.0), with(2, 500.0, 1000.0)];
        assert_eq!(gains(rows), [20.0, 10.0]);
    }
}
