//! The fastest member, with hysteresis.

/// A member that may serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Runner {
    /// Place in the member list.
    pub(super) at: u32,
    /// Milliseconds; infinite when unmeasured.
    pub(super) latency: f64,
    pub(super) struck: bool,
}

/// The runner with the lowest latency, the earlier declared one of equals, those with strikes
/// behind all others. The incumbent stays while nobody is faster by more than `tolerance`,
/// unless it is unmeasured or has strikes (G-132, G-133).
pub(super) fn fastest(
    runners: impl Iterator<Item = Runner>,
    incumbent: Option<u32>,
    tolerance: f64,
) -> Option<Runner> {
    let mut best: Option<Runner> = None;
    let mut held: Option<Runner> = None;
    for runner in runners {
        if Some(runner.at) == incumbent {
            held = Some(runner);
        }
        let better = |than: Runner| (runner.struck, runner.latency) < (than.struck, than.latency);
        if best.is_none_or(better) {
            best = Some(runner);
        }
    }
    let best = best?;
    let stays = |held: &Runner| {
        held.latency.is_finite() && !held.struck && best.latency + tolerance >= held.latency
    };
    Some(held.filter(stays).unwrap_or(best))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNMEASURED: f64 = f64::INFINITY;

    fn pick(latencies: &[f64], incumbent: Option<u32>) -> Option<u32> {
        pick_struck(latencies, &[], incumbent)
    }

    fn pick_struck(latencies: &[f64], struck: &[u32], incumbent: Option<u32>) -> Option<u32> {
        let runners = (0..).zip(latencies).map(|(at, &latency)| Runner {
            at,
            latency,
            struck: struck.contains(&at),
        });
        fastest(runners, incumbent, 50.0).map(|r| r.at)
    }

    #[test]
    fn lowest_latency_wins_and_the_first_declared_of_equals() {
        assert_eq!(pick(&[90.0, 30.0, 30.0], None), Some(1));
        assert_eq!(pick(&[UNMEASURED, 400.0], None), Some(1));
        assert_eq!(pick(&[UNMEASURED, UNMEASURED], None), Some(0));
        assert_eq!(pick(&[], None), None);
    }

    #[test]
    fn incumbent_stays_until_someone_is_faster_by_more_than_the_tolerance() {
        assert_eq!(pick(&[100.0, 50.0], Some(0)), Some(0));
        assert_eq!(pick(&[100.0, 49.9], Some(0)), Some(1));
        assert_eq!(pick(&[100.0, UNMEASURED], Some(0)), Some(0));
    }

    #[test]
    fn an_incumbent_that_is_gone_unmeasured_or_struck_is_not_held() {
        assert_eq!(pick(&[100.0, 99.0], Some(7)), Some(1));
        assert_eq!(pick(&[UNMEASURED, 900.0], Some(0)), Some(1));
        assert_eq!(pick_struck(&[10.0, 900.0], &[0], Some(0)), Some(1));
    }

    #[test]
    fn strikes_rank_below_everyone_even_the_unmeasured() {
        assert_eq!(pick_struck(&[10.0, UNMEASURED], &[0], None), Some(1));
        assert_eq!(pick_struck(&[20.0, 10.0], &[0, 1], None), Some(1));
    }
}
