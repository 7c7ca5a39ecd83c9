//! Who is fit for an ordinary choice (S-120 to S-123).
//!
//! Admission is closed to candidates with an observed excess of failures, never to those with
//! merely fewer successes than another.

use super::{
    consts::{BAND, STREAK_OUT},
    snapshot::Row,
};

/// Whether any candidate is left after those that failed three times in a row.
pub(super) fn any_healthy(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.known.streak < STREAK_OUT)
}

/// Whether a candidate is kept out because it failed three times in a row. When all of them did,
/// nobody is: the choice goes on among all.
pub(super) fn is_excluded(row: &Row, any_healthy: bool) -> bool {
    any_healthy && row.known.streak >= STREAK_OUT
}

/// Marks who is fit.
pub(super) fn mark(rows: &mut [Row]) {
    let any_healthy = any_healthy(rows);
    let healthy = |row: &&Row| !is_excluded(row, any_healthy);
    let any_qualified = rows.iter().filter(healthy).any(|row| row.known.qualified);
    let compared = |row: &&Row| healthy(row) && (row.known.qualified || !any_qualified);
    let (mut lower, mut rate) = (0.0_f64, 0.0_f64);
    for row in rows.iter().filter(compared) {
        lower = lower.max(row.known.reliability.lower);
        rate = rate.max(row.known.reliability.rate);
    }
    for row in rows {
        let known = &row.known;
        let reliability = known.reliability;
        row.eligible = if is_excluded(row, any_healthy) {
            false
        } else if known.recovered && !known.unresolved {
            true
        } else if any_qualified {
            known.qualified && reliability.upper + BAND >= lower && reliability.rate + BAND >= rate
        } else {
            reliability.lower + BAND >= lower
        };
    }
}
