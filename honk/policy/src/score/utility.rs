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
    let of = |good, value: &dyn Fn(&Row) -> Option<Perf>| best_of(rows, good, value);
    let both = |good, metric: fn(&Row) -> Layered| {
        [
            of(good, &|row| metric(row).aggregate),
            of(good, &|row| metric(row).target),
        ]
    };
    Best {
        check,
        probe: of(Good::Low, &|row| checked(row, check)),
        warm_setup: of(Good::Low, &|row| row.known.warm_setup),
        setup: both(Good::Low, |row| row.known.setup),
        response: both(Good::Low, |row| row.known.response),
        up: both(Good::High, |row| row.known.up),
        down: both(Good::High, |row| row.known.down),
    }
}

fn best_of(rows: &[Row], good: Good, value: &dyn Fn(&Row) -> Option<Perf>) -> Option<f64> {
    let (mut count, mut best) = (0, None);
    for perf in rows.iter().filter(|row| row.eligible).filter_map(value) {
        count += 1;
        best = Some(match (best, good) {
            (None, _) => perf.value,
            (Some(b), Good::Low) => perf.value.min(b),
            (Some(b), Good::High) => perf.value.max(b),
        });
    }
    best.filter(|_| count > 1)
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
