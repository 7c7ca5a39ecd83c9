//! The ordinary choice: who serves a flow that is no trial (section 8 of the design).
//!
//! A healthy incumbent keeps serving until a challenger shows a gain over it in evidence of both
//! (promotion); the utility of a first choice is too rough for that. A missing comparison is never
//! a gain.

use super::{
    compare::Gain,
    consts::{MARGIN, N_FULL, N_TRAIN},
    reasons::Reason,
    snapshot::Row,
};

/// Index of the row with the highest utility among those that are fit, and why it won.
pub(super) fn best(rows: &[Row]) -> (usize, Reason) {
    let mut best: Option<usize> = None;
    let mut fit = 0;
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.eligible) {
        fit += 1;
        // Rows are in declaration order, so a tie stays with the first.
        if best.is_none_or(|b| row.utility > rows[b].utility) {
            best = Some(at);
        }
    }
    let reason = if fit > 1 {
        Reason::PerformanceWinner
    } else {
        Reason::ReliabilityWinner
    };
    (best.unwrap_or(0), reason)
}

/// Index of the row that serves, and why. `gain_over` tells the gain of a challenger over the
/// incumbent where their evidence can be compared.
pub(super) fn choose(
    rows: &[Row],
    incumbent: Option<usize>,
    mut gain_over: impl FnMut(usize, usize) -> Option<Gain>,
) -> (usize, Reason) {
    let (best, reason) = best(rows);
    let Some(current) = incumbent else {
        return (best, reason);
    };
    let held = &rows[current];
    if !held.eligible {
        return (best, Reason::IncumbentIneligible);
    }
    if held.known.unresolved {
        return (best, Reason::FreshFailureBypass);
    }
    if held.known.completions < N_TRAIN {
        return (best, reason);
    }
    let margin = margin(held.known.completions);
    let mut winner: Option<(usize, f64)> = None;
    let (mut tradeoff, mut compared) = (false, false);
    for (at, row) in rows.iter().enumerate() {
        if at == current || !row.eligible || row.known.completions < N_TRAIN {
            continue;
        }
        let Some(gain) = gain_over(current, at) else {
            continue;
        };
        tradeoff |= gain.tradeoff;
        compared |= at == best || best == current;
        let wins = gain.value >= margin && gain.value > 0.0;
        if wins && winner.is_none_or(|(_, most)| gain.value > most) {
            winner = Some((at, gain.value));
        }
    }
    match winner {
        Some((at, _)) => (at, Reason::PerformanceWinner),
        None if tradeoff => (current, Reason::DirectionalTradeoffHeld),
        None if compared => (current, Reason::IncumbentHeld),
        None => (current, Reason::InsufficientEvidenceHeld),
    }
}

/// What a challenger must gain over an incumbent with so many completions (S-140).
pub(super) fn margin(completions: f64) -> f64 {
    MARGIN * (completions / N_FULL).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_grow_with_completions() {
        for (completions, want) in [
            (0.0, 0.0),
            (1.0, 0.000_625),
            (4.0, 0.0025),
            (8.0, 0.005),
            (100.0, 0.005),
        ] {
            assert_eq!(margin(completions), want);
        }
    }
}
