//! Points in time as pure code knows them: handed in, never asked for.

use std::{
    ops::{Add, AddAssign},
    time::Duration,
};

/// Time since the start of the engine, on a clock that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The start itself.
    pub const START: Self = Self(0);

    /// The moment this long after the start.
    pub fn after_start(since: Duration) -> Self {
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time passed since `earlier`; nothing when it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        let wait = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(wait))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, wait: Duration) {
        *self = *self + wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_both_ends() {
        let start = Moment::default();
        let later = start + Duration::from_secs(5);
        assert_eq!(later.since(start), Duration::from_secs(5));
        assert_eq!(start.since(later), Duration::ZERO);
        assert_eq!(later + Duration::MAX, Moment(u64::MAX));
    }
}
