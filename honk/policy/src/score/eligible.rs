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
        } else if known.recovered {
            true
        } else if any_qualified {
            known.qualified && reliability.upper + BAND >= lower && reliability.rate + BAND >= rate
        } else {
            reliability.lower + BAND >= lower
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::score::{
        cell::{Cell, Layers, Scope},
        clock::T,
        ids::key,
        outcome::Marks,
        snapshot::Snapshot,
    };

    fn row(number: u128, ok: f64, bad: f64, streak: u32) -> Row {
        let mut cell = Cell::new(1, None);
        let marks = Marks {
            ok,
            bad,
            set_up: ok + bad,
            not_set_up: 0.0,
        };
        cell.mark(T::START, marks);
        cell.streak = streak;
        let layers = Layers {
            group: Some(&cell),
            ..Layers::default()
        };
        Row {
            node: key(number),
            index: number as usize,
            member: 0,
            known: Snapshot::read(T::START, &Scope::TEST, layers),
            eligible: false,
            utility: 0.0,
        }
    }

    fn marked(mut rows: Vec<Row>) -> Vec<bool> {
        mark(&mut rows);
        rows.iter().map(|row| row.eligible).collect()
    }

    #[test]
    fn three_failures_exclude_while_another_is_healthy() {
        let rows = vec![row(1, 9.0, 1.0, 3), row(2, 9.0, 1.0, 2)];
        assert_eq!(marked(rows), [false, true]);
        let all = vec![row(1, 9.0, 1.0, 3), row(2, 9.0, 1.0, 4)];
        assert_eq!(marked(all), [true, true], "the choice goes on among all");
    }

    #[test]
    fn an_observed_excess_of_failures_excludes() {
        let rows = vec![row(1, 100.0, 0.0, 0), row(2, 80.0, 20.0, 0)];
        assert_eq!(marked(rows), [true, false]);
        let near = vec![row(1, 100.0, 0.0, 0), row(2, 97.0, 3.0, 0)];
        assert_eq!(marked(near), [true, true]);
    }

    #[test]
    fn without_a_record_nobody_competes_with_one() {
        let rows = vec![row(1, 4.0, 0.0, 0), row(2, 3.9, 0.0, 0)];
        assert_eq!(marked(rows), [true, false]);
        let nobody = vec![row(1, 0.0, 0.0, 0), row(2, 1.0, 0.0, 0)];
        assert_eq!(marked(nobody), [false, true], "the bounds decide");
        assert_eq!(
            marked(vec![row(1, 0.0, 0.0, 0), row(2, 0.0, 0.0, 0)]),
            [true; 2]
        );
    }

    #[test]
    fn the_observed_rate_and_the_upper_bound_each_exclude() {
        let sound = || row(1, 1000.0, 0.0, 0);
        // Too few attempts to bound it, but one of five failed.
        assert_eq!(marked(vec![sound(), row(2, 4.0, 1.0, 0)]), [true, false]);
        // A rate close enough, but failed setups weigh three in the bounds.
        let of = |failed_setups| {
            let mut cell = Cell::new(1, None);
            let marks = Marks {
                ok: 300.0,
                bad: 15.0,
                set_up: 300.0,
                not_set_up: failed_setups,
            };
            cell.mark(T::START, marks);
            let layers = Layers {
                group: Some(&cell),
                ..Layers::default()
            };
            Row {
                known: Snapshot::read(T::START, &Scope::TEST, layers),
                ..row(2, 0.0, 0.0, 0)
            }
        };
        assert_eq!(marked(vec![sound(), of(0.0)]), [true, true]);
        assert_eq!(marked(vec![sound(), of(15.0)]), [true, false]);
    }

    #[test]
    fn who_came_back_is_fit_whatever_its_record() {
        let mut back = row(2, 5.0, 20.0, 0);
        assert_eq!(marked(vec![row(1, 100.0, 0.0, 0), back]), [true, false]);
        back.known.recovered = true;
        assert_eq!(marked(vec![row(1, 100.0, 0.0, 0), back]), [true, true]);
        back.known.streak = 3;
        assert_eq!(marked(vec![row(1, 100.0, 0.0, 0), back]), [true, false]);
    }

    proptest! {
        /// SI-25: more successes of one never exclude another that has not failed.
        #[test]
        fn successes_of_one_exclude_no_other(
            ok in 4.0..1000.0_f64,
            factor in 1.0..1e6_f64,
            other in 4.0..1000.0_f64,
        ) {
            let rows = vec![row(1, ok * factor, 0.0, 0), row(2, other, 0.0, 0)];
            prop_assert_eq!(marked(rows), vec![true, true]);
        }
    }
}
