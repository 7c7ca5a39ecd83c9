//! Time as the engine sees it: nanoseconds on a clock that never goes back, handed into every call.

use std::{fmt, num::NonZeroU64};

use crate::time::Moment;

/// A point in time. Held off by one so that an optional one costs no more than a plain one: cells
/// hold many of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct T(NonZeroU64);

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

impl T {
    /// The beginning of the clock.
    pub const START: Self = Self(NonZeroU64::MIN);

    /// So many nanoseconds after the beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        match NonZeroU64::new(nanos.saturating_add(1)) {
            Some(n) => Self(n),
            None => Self::START,
        }
    }

    /// So many whole seconds after the beginning.
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_nanos(secs.saturating_mul(SECOND))
    }

    /// Nanoseconds since the beginning.
    pub const fn nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Nanoseconds passed since `earlier`; 0 when it lies ahead.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }

    /// Seconds passed since `earlier`; 0 when it lies ahead.
    pub fn secs_since(self, earlier: Self) -> f64 {
        self.since(earlier) as f64 / SECOND as f64
    }

    /// Milliseconds passed since `earlier`; 0 when it lies ahead.
    pub fn millis_since(self, earlier: Self) -> f64 {
        self.since(earlier) as f64 / 1e6
    }

    /// This much later.
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self::from_nanos(self.nanos().saturating_add(nanos))
    }

    /// This much later.
    pub const fn plus_secs(self, secs: u64) -> Self {
        self.plus_nanos(secs.saturating_mul(SECOND))
    }

    /// Whether at least `secs` have passed since `earlier`.
    pub const fn is_after(self, earlier: Self, secs: u64) -> bool {
        self.since(earlier) >= secs.saturating_mul(SECOND)
    }
}

impl From<Moment> for T {
    fn from(moment: Moment) -> Self {
        let nanos = moment.since(Moment::START).as_nanos();
        Self::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for T {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.nanos() as f64 / SECOND as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_saturate_at_both_ends() {
        let early = T::from_secs(1);
        let late = T::from_secs(61);
        assert_eq!(late.since(early), 60 * SECOND);
        assert_eq!(early.since(late), 0);
        assert!(late.is_after(early, 60) && !late.is_after(early, 61));
        assert_eq!(T::from_nanos(u64::MAX).plus_secs(1).nanos(), u64::MAX - 1);
        assert_eq!(size_of::<Option<T>>(), 8);
    }
}
