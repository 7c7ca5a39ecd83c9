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

/// Index of the row that serves, and why. `gain_of` tells the gain of a challenger over the
/// incumbent where their evidence can be compared.
pub(super) fn choose(
    rows: &[Row],
    incumbent: Option<usize>,
    mut gain_of: impl FnMut(usize) -> Option<Gain>,
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
        let Some(gain) = gain_of(at) else {
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
    use crate::score::{
        cell::{Layers, Scope},
        clock::T,
        ids::key,
        snapshot::Snapshot,
    };

    /// A mature candidate that is fit.
    fn row(number: u128, utility: f64) -> Row {
        let mut known = Snapshot::read(T::START, &Scope::TEST, Layers::default());
        known.completions = 8.0;
        Row {
            node: key(number),
            index: number as usize,
            member: 0,
            known,
            eligible: true,
            utility,
        }
    }

    fn gain(value: f64, tradeoff: bool) -> Option<Gain> {
        Some(Gain { value, tradeoff })
    }

    /// The first of three is the incumbent.
    fn held(rows: &[Row], gains: [Option<Gain>; 2]) -> (usize, Reason) {
        choose(rows, Some(0), |at| gains[at - 1])
    }

    fn three() -> Vec<Row> {
        vec![row(1, 1.0), row(2, 1.03), row(3, 1.01)]
    }

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

    #[test]
    fn the_best_wins_and_ties_go_by_declaration() {
        assert_eq!(best(&three()), (1, Reason::PerformanceWinner));
        assert_eq!(best(&[row(1, 1.0), row(2, 1.0)]).0, 0);
        let mut one = three();
        (one[1].eligible, one[2].eligible) = (false, false);
        assert_eq!(best(&one), (0, Reason::ReliabilityWinner));
        one[0].eligible = false;
        assert_eq!(best(&one).0, 0, "nobody is fit: the first");
        assert_eq!(choose(&three(), None, |_| None).0, 1);
    }

    #[test]
    fn utility_alone_never_moves_a_healthy_incumbent() {
        let reason = Reason::InsufficientEvidenceHeld;
        assert_eq!(held(&three(), [None, None]), (0, reason));
        // The comparison with another than the best does not matter.
        assert_eq!(held(&three(), [None, gain(0.001, false)]), (0, reason));
        let compared = [gain(0.0049, false), None];
        assert_eq!(held(&three(), compared), (0, Reason::IncumbentHeld));
        let tradeoff = [gain(0.0, true), gain(0.0, false)];
        let reason = Reason::DirectionalTradeoffHeld;
        assert_eq!(held(&three(), tradeoff), (0, reason));
    }

    #[test]
    fn the_best_one_is_held_against_any_comparison() {
        let rows = vec![row(1, 1.05), row(2, 1.03), row(3, 1.01)];
        let one = [None, gain(0.001, false)];
        assert_eq!(held(&rows, one), (0, Reason::IncumbentHeld));
        let reason = Reason::InsufficientEvidenceHeld;
        assert_eq!(held(&rows, [None, None]), (0, reason));
    }

    #[test]
    fn the_greatest_gain_that_clears_the_margin_is_promoted() {
        let reason = Reason::PerformanceWinner;
        let both = [gain(0.005, false), gain(0.006, true)];
        assert_eq!(held(&three(), both), (2, reason));
        let equal = [gain(0.006, false), gain(0.006, false)];
        assert_eq!(held(&three(), equal), (1, reason));
        let mut young = three();
        young[0].known.completions = 0.5;
        assert_eq!(held(&young, [gain(0.0004, false), None]), (1, reason));
        assert_eq!(held(&young, [gain(0.0, false), None]).0, 0);
    }

    #[test]
    fn who_is_unfit_or_untried_is_not_promoted() {
        let mut rows = three();
        rows[1].eligible = false;
        rows[2].known.completions = 0.4;
        assert_eq!(held(&rows, [gain(1.0, false); 2]).0, 0);
    }

    #[test]
    fn an_unfit_failing_or_untried_incumbent_is_not_held() {
        let mut rows = three();
        rows[0].eligible = false;
        let reason = Reason::IncumbentIneligible;
        assert_eq!(held(&rows, [None, None]), (1, reason));
        let mut rows = three();
        rows[0].known.unresolved = true;
        let reason = Reason::FreshFailureBypass;
        assert_eq!(held(&rows, [None, None]), (1, reason));
        let mut rows = three();
        rows[0].known.completions = 0.4;
        let reason = Reason::PerformanceWinner;
        assert_eq!(held(&rows, [None, None]), (1, reason));
    }
}
