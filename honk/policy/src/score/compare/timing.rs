//! Blocks of comparison time: how wide they are, when they end, how fresh a pair must be.
//!
//! Both sides of a comparison are cut into the same blocks, counted from the first observation
//! the store ever took, so only what happened at the same time is compared.

use crate::score::{
    clock::T,
    consts::{BLOCK, BLOCKS, LEASE},
};

const SEC: u64 = 1_000_000_000;

/// Width of a block of business samples, and the least width of any block.
const WIDTH: u64 = BLOCK * SEC;
/// How long the weaker side's last sample supports a pair, at least.
const FRESH: u64 = LEASE * SEC;

/// How samples of one source are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    width: u64,
    fresh: u64,
}

impl Timing {
    /// Business samples.
    pub(super) const BUSINESS: Self = Self {
        width: WIDTH,
        fresh: FRESH,
    };

    /// Probes that repeat each `interval` nanoseconds. An unknown cadence counts as business;
    /// one of zero, or one too long to count in, proves nothing.
    pub(super) fn probe(interval: Option<u64>) -> Option<Self> {
        let Some(interval) = interval else {
            return Some(Self::BUSINESS);
        };
        let twice = interval.checked_mul(2).filter(|&twice| twice > 0)?;
        let width = twice.max(WIDTH);
        width.checked_mul(BLOCKS as u64)?;
        let fresh = twice.max(FRESH);
        Some(Self { width, fresh })
    }

    /// The block that a moment falls into; none before the origin or past what can be counted.
    pub(super) fn block(self, origin: T, at: T) -> Option<u32> {
        if at < origin {
            return None;
        }
        u32::try_from(at.since(origin) / self.width).ok()
    }

    /// When a block and everything in it expires.
    pub(super) fn deadline(self, origin: T, block: u32) -> T {
        let widths = u64::from(block) + BLOCKS as u64;
        origin.plus_nanos(widths.saturating_mul(self.width))
    }

    /// Until when a sample supports a pair.
    pub(super) fn fresh_until(self, last: T) -> T {
        last.plus_nanos(self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn business_blocks_are_15_seconds_and_live_60() {
        let origin = T::from_secs(7);
        let of = |s: u64| Timing::BUSINESS.block(origin, T::from_secs(s));
        assert_eq!(
            [of(7), of(21), of(22), of(67)],
            [Some(0), Some(0), Some(1), Some(4)]
        );
        assert_eq!(of(6), None, "before the origin");
        assert_eq!(
            Timing::BUSINESS.deadline(origin, 2),
            T::from_secs(7 + 30 + 60)
        );
        assert_eq!(
            Timing::BUSINESS.fresh_until(T::from_secs(5)),
            T::from_secs(65)
        );
    }

    #[test]
    fn probe_blocks_are_twice_the_interval_and_at_least_15_seconds() {
        let of = |s: u64| Timing::probe(Some(s * SEC)).unwrap();
        assert_eq!(
            of(5),
            Timing {
                width: 15 * SEC,
                fresh: 60 * SEC
            }
        );
        assert_eq!(
            of(30),
            Timing {
                width: 60 * SEC,
                fresh: 60 * SEC
            }
        );
        assert_eq!(
            of(300),
            Timing {
                width: 600 * SEC,
                fresh: 600 * SEC
            }
        );
    }

    #[test]
    fn an_unknown_cadence_is_business_and_an_absurd_one_proves_nothing() {
        assert_eq!(Timing::probe(None), Some(Timing::BUSINESS));
        assert_eq!(Timing::probe(Some(0)), None);
        assert_eq!(Timing::probe(Some(u64::MAX)), None);
        assert_eq!(Timing::probe(Some(u64::MAX / 4)), None);
    }
}
