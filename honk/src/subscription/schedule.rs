//! When a subscription is fetched next. Chance comes in as a number, so that tests repeat.

use std::time::Duration;

/// Pause after a first failure; it doubles with each further one.
const RETRY: Duration = Duration::from_secs(60);
/// Longest pause after failures.
const LONGEST_RETRY: Duration = Duration::from_secs(6 * 3600);

/// Time between updates; `None` when only the owner asks for them.
pub(crate) fn interval(written: Option<u64>, wished_hours: Option<u16>) -> Option<Duration> {
    match (written, wished_hours) {
        (Some(0), _) => None,
        (Some(seconds), _) => Some(Duration::from_secs(seconds)),
        (None, Some(hours)) => Some(Duration::from_secs(u64::from(hours) * 3600)),
        (None, None) => Some(Duration::from_secs(86_400)),
    }
}

/// Pause after a success.
pub(crate) fn after_success(interval: Option<Duration>, chance: u32) -> Option<Duration> {
    interval.map(|interval| spread(interval, chance))
}

/// Pause after that many failures in a row. Without nodes it is tried again even if only the
/// owner asks for updates: there is nothing to be lost.
pub(crate) fn after_failure(
    interval: Option<Duration>,
    failures: u32,
    has_nodes: bool,
    chance: u32,
) -> Option<Duration> {
    if interval.is_none() && has_nodes {
        return None;
    }
    let doubled = RETRY.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let longest = interval.map_or(LONGEST_RETRY, |i| i.clamp(RETRY, LONGEST_RETRY));
    Some(spread(doubled.min(longest), chance))
}

/// Up to a tenth more or less: gateways of one provider must not all come at once.
fn spread(pause: Duration, chance: u32) -> Duration {
    let share = f64::from(chance) / f64::from(u32::MAX);
    pause.mul_f64(0.9 + 0.2 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: u32 = u32::MAX / 2;

    fn seconds(pause: Option<Duration>) -> Option<u64> {
        pause.map(|p| p.as_secs_f64().round() as u64)
    }

    #[test]
    fn what_is_written_wins_over_the_wish_of_the_provider() {
        let of = |written, wished| seconds(interval(written, wished));
        assert_eq!(of(None, None), Some(86_400));
        assert_eq!(of(None, Some(12)), Some(43_200));
        assert_eq!(of(Some(600), Some(12)), Some(600));
        assert_eq!(of(Some(0), Some(12)), None);
    }

    #[test]
    fn pauses_grow_to_the_interval_and_are_spread() {
        let day = interval(None, None);
        let pauses = |interval| -> Vec<_> {
            let after = |n| seconds(after_failure(interval, n, true, MIDDLE));
            [1, 2, 3, 20, u32::MAX].into_iter().map(after).collect()
        };
        let want = [60, 120, 240, 21_600, 21_600].map(Some);
        assert_eq!(pauses(day), want);
        let short = Some(Duration::from_secs(100));
        assert_eq!(pauses(short), [60, 100, 100, 100, 100].map(Some));
        assert_eq!(pauses(None), [None; 5]);
        assert_eq!(seconds(after_failure(None, 1, false, MIDDLE)), Some(60));
        assert_eq!(seconds(after_success(day, 0)), Some(77_760));
        assert_eq!(seconds(after_success(day, u32::MAX)), Some(95_040));
    }
}
