//! Failures that exclude, the pauses after them, and the way back (section 14 of the design).

use super::{
    cell::{Cell, PROBE_SLOTS, ProbeSlot},
    clock::T,
    cohort::Credit,
    consts::{BACKOFF, BACKOFF_MAX, LEASE, N_QUAL, REPORTERS},
};

/// Seconds without exploration after so many outages in a row.
fn delay(step: u8) -> u64 {
    let doublings = u32::from(step.saturating_sub(1)).min(7);
    (BACKOFF << doublings).min(BACKOFF_MAX)
}

/// Counts a hard failure of work that was begun at `begun`.
///
/// Flows that one outage ends together are one step of the pause: the step grows only for work
/// that was begun after the failure before it.
pub(super) fn failed(cell: &mut Cell, now: T, begun: T) {
    cell.streak = cell.streak.saturating_add(1);
    let again = cell.failed_at.is_none_or(|before| begun >= before);
    if cell.backoff_step == 0 || again {
        cell.backoff_step = cell.backoff_step.saturating_add(1);
        cell.explore_not_before = Some(now.plus_secs(delay(cell.backoff_step)));
    }
    cell.failed_at = cell.failed_at.max(Some(now));
    cell.fence = cell.fence.max(Some(now));
    cell.cohort.restart(now);
    cell.lease_until = None;
    cell.probes = [ProbeSlot::default(); PROBE_SLOTS];
}

/// Takes data received at `at` by an attempt that was counted last in epoch `credited`. Tells
/// whether it counted.
pub(super) fn received(
    cell: &mut Cell,
    now: T,
    at: T,
    fence: Option<T>,
    credited: &mut Option<u32>,
) -> bool {
    let fence = cell.fence.max(fence);
    let Credit::Accepted { .. } = cell.cohort.take(now, at, fence, credited) else {
        return false;
    };
    // Half-open: it may be tried again, though the failure is not resolved.
    cell.explore_not_before = None;
    if cell.streak > 0 && cell.cohort.credits >= REPORTERS {
        cell.streak = 0;
        cell.backoff_step = 0;
        lengthen(cell, at);
    }
    let earned = cell.counts(now).useful() >= N_QUAL;
    if earned || cell.lease_until.is_some_and(|until| at < until) {
        lengthen(cell, at);
    }
    true
}

fn lengthen(cell: &mut Cell, at: T) {
    let latest = cell.cohort.last_rx.map_or(at, |last| last.max(at));
    cell.lease_until = cell.lease_until.max(Some(latest.plus_secs(LEASE)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::outcome::Marks;

    fn s(secs: u64) -> T {
        T::from_secs(secs)
    }

    fn receive(cell: &mut Cell, secs: u64) -> bool {
        received(cell, s(secs), s(secs), None, &mut None)
    }

    #[test]
    fn pauses_double_up_to_six_hours() {
        let delays: Vec<u64> = (1..=9).map(delay).collect();
        assert_eq!(
            delays,
            [300, 600, 1200, 2400, 4800, 9600, 19_200, 21_600, 21_600]
        );
        assert_eq!(delay(u8::MAX), 21_600);
    }

    /// SI-38.
    #[test]
    fn flows_of_one_outage_are_one_step() {
        let mut cell = Cell::new(1, None);
        for now in [100, 101, 102] {
            failed(&mut cell, s(now), s(90));
        }
        assert_eq!((cell.streak, cell.backoff_step), (3, 1));
        assert_eq!(cell.explore_not_before, Some(s(400)));
        failed(&mut cell, s(500), s(450));
        assert_eq!((cell.streak, cell.backoff_step), (4, 2));
        assert_eq!(cell.explore_not_before, Some(s(1100)));
    }

    #[test]
    fn four_attempts_after_the_failure_resolve_it() {
        let mut cell = Cell::new(1, None);
        failed(&mut cell, s(100), s(90));
        assert!(!receive(&mut cell, 100), "not after the fence");
        for (n, now) in [110, 120, 130].into_iter().enumerate() {
            assert!(receive(&mut cell, now));
            assert_eq!(usize::from(cell.cohort.credits), n + 1);
            assert_eq!((cell.streak, cell.explore_not_before), (1, None));
            assert_eq!(cell.lease_until, None);
        }
        assert!(receive(&mut cell, 140));
        assert_eq!((cell.streak, cell.backoff_step), (0, 0));
        assert_eq!(cell.lease_until, Some(s(200)));
    }

    #[test]
    fn one_attempt_counts_once() {
        let mut cell = Cell::new(1, None);
        failed(&mut cell, s(100), s(90));
        let mut credited = None;
        for now in 101..150 {
            received(&mut cell, s(now), s(now), None, &mut credited);
        }
        assert_eq!((cell.cohort.credits, cell.streak), (1, 1));
    }

    #[test]
    fn silence_starts_the_count_again() {
        let mut cell = Cell::new(1, None);
        failed(&mut cell, s(100), s(90));
        for now in [110, 120, 130] {
            receive(&mut cell, now);
        }
        assert!(receive(&mut cell, 190), "sixty seconds after the last");
        assert_eq!((cell.cohort.credits, cell.streak), (1, 1));
        assert_eq!(cell.cohort.live(s(249), cell.fence), 1);
        assert_eq!(cell.cohort.live(s(250), cell.fence), 0);
    }

    #[test]
    fn a_lease_is_renewed_but_not_revived() {
        let mut cell = Cell::new(1, None);
        failed(&mut cell, s(100), s(90));
        for now in [110, 120, 130, 140] {
            receive(&mut cell, now);
        }
        receive(&mut cell, 199);
        assert_eq!(cell.lease_until, Some(s(259)));
        receive(&mut cell, 300);
        assert_eq!(cell.lease_until, Some(s(259)), "too late");
        let useful = Marks {
            ok: 5.0,
            ..Marks::default()
        };
        cell.mark(s(300), useful);
        receive(&mut cell, 301);
        assert_eq!(cell.lease_until, Some(s(361)), "earned anew");
    }

    #[test]
    fn a_failure_ends_the_lease() {
        let mut cell = Cell::new(1, None);
        cell.lease_until = Some(s(200));
        failed(&mut cell, s(100), s(90));
        assert_eq!(cell.lease_until, None);
    }

    #[test]
    fn the_first_failure_after_a_recovery_pauses_whenever_its_work_began() {
        let mut cell = Cell::new(1, None);
        failed(&mut cell, s(100), s(90));
        for now in [110, 120, 130, 140] {
            receive(&mut cell, now);
        }
        assert_eq!((cell.backoff_step, cell.explore_not_before), (0, None));
        failed(&mut cell, s(150), s(95));
        assert_eq!(cell.backoff_step, 1);
        assert_eq!(cell.explore_not_before, Some(s(450)));
    }

    #[test]
    fn data_from_before_a_newer_fence_of_the_group_cell_is_nothing() {
        let mut cell = Cell::new(1, None);
        assert!(!received(&mut cell, s(50), s(40), Some(s(45)), &mut None));
        assert!(received(&mut cell, s(50), s(46), Some(s(45)), &mut None));
        assert!(!received(&mut cell, s(50), s(51), None, &mut None), "ahead");
    }
}
