//! How often a group probes its members, and when it stops.

use std::time::Duration;

/// Inactivity after which a urltest group stops probing, unless configured.
pub(super) const IDLE: Duration = Duration::from_secs(1800);

/// Effective period and idle time of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Period of probes.
    pub interval: Duration,
    /// `None`: never idle.
    pub idle: Option<Duration>,
    /// The idle time had to be raised to the period.
    pub raised: bool,
}

/// The timing of a group from what is written: a group must not fall asleep between two of its
/// own probes, and the period is what its owner asked for, so the idle time gives way.
pub fn timing(
    test_interval: Option<Duration>,
    idle_timeout: Option<Duration>,
    check_interval: Duration,
) -> Timing {
    let written = test_interval.filter(|interval| !interval.is_zero());
    let interval = written.unwrap_or(check_interval);
    let idle = idle_timeout.unwrap_or(IDLE);
    let raised = !idle.is_zero() && interval > idle;
    Timing {
        interval,
        idle: (!idle.is_zero()).then(|| idle.max(interval)),
        raised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_idle_time_gives_way_to_the_period() {
        let check = MINUTE / 2;
        for (test, idle, want, raised) in [
            (Some(45), Some(30), (MINUTE * 45, Some(MINUTE * 45)), true),
            (Some(15), Some(30), (MINUTE * 15, Some(MINUTE * 30)), false),
            (Some(0), None, (check, Some(IDLE)), false),
            (None, None, (check, Some(IDLE)), false),
            (None, Some(0), (check, None), false),
            (Some(45), Some(0), (MINUTE * 45, None), false),
            (Some(31), None, (MINUTE * 31, Some(MINUTE * 31)), true),
        ] {
            let minutes = |n: Option<u32>| n.map(|n| MINUTE * n);
            let timing = timing(minutes(test), minutes(idle), check);
            assert_eq!((timing.interval, timing.idle), want, "{test:?} {idle:?}");
            assert_eq!(timing.raised, raised, "{test:?} {idle:?}");
        }
    }
}
