//! Four blocks of samples of one metric of one node.

use super::timing::Timing;
use crate::score::{
    clock::T,
    consts::{BLOCKS, REPORTERS},
};

/// Distinct flows that a block remembers: as many as a side of a pair needs.
const KEPT: usize = REPORTERS as usize;

/// Samples of one block.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    block: u32,
    count: u32,
    sum: f64,
    last: Option<T>,
    /// Flows that reported, each once; 0 is no flow.
    reporters: [u64; KEPT],
}

/// The last four blocks; block `b` lives in place `b mod 4`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ring([Bucket; BLOCKS]);

/// What two rings hold in common at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shared {
    /// Means of block means, first and second side.
    pub(super) values: [f64; 2],
    /// Distinct flows of each side.
    pub(super) reporters: [u8; 2],
    /// The weaker side's latest sample.
    pub(super) last: T,
    /// When the first block or the support ends.
    pub(super) expires: T,
}

/// When samples were counted from, and what time it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) timing: Timing,
    pub(super) origin: T,
    pub(super) now: T,
}

impl Ring {
    /// Adds a sample, unless its place belongs to a newer block by now.
    pub(super) fn record(&mut self, block: u32, at: T, value: f64, reporter: u64) -> bool {
        let bucket = &mut self.0[block as usize % BLOCKS];
        if bucket.count > 0 && bucket.block > block {
            return false;
        }
        if bucket.count == 0 || bucket.block < block {
            *bucket = Bucket {
                block,
                ..Bucket::default()
            };
        }
        bucket.count = bucket.count.saturating_add(1);
        bucket.sum += value;
        bucket.last = bucket.last.max(Some(at));
        if !bucket.reporters.contains(&reporter)
            && let Some(free) = bucket.reporters.iter_mut().find(|r| **r == 0)
        {
            *free = reporter;
        }
        true
    }

    /// No more distinct flows than this are in it, those of blocks that are over among them.
    pub(super) fn flows(&self) -> u8 {
        let ids = self.0.iter().flat_map(|bucket| bucket.reporters);
        ids.filter(|id| *id != 0).count() as u8
    }

    /// Whether a block still counts.
    pub(super) fn is_live(&self, when: When) -> bool {
        let mut blocks = self.0.iter();
        blocks.any(|b| b.count > 0 && when.now < when.timing.deadline(when.origin, b.block))
    }

    /// What both hold in common; nothing without a common block that still counts.
    pub(super) fn shared(&self, other: &Self, when: When) -> Option<Shared> {
        let mut sums = [0.0; 2];
        let mut last = [None; 2];
        let mut blocks = 0u32;
        let mut first_deadline = T::from_nanos(u64::MAX);
        let mut flows = [Flows::default(), Flows::default()];
        for (a, b) in self.0.iter().zip(&other.0) {
            let deadline = when.timing.deadline(when.origin, a.block);
            if a.count == 0 || b.count == 0 || a.block != b.block || when.now >= deadline {
                continue;
            }
            blocks += 1;
            first_deadline = first_deadline.min(deadline);
            for (side, bucket) in [a, b].into_iter().enumerate() {
                sums[side] += bucket.sum / f64::from(bucket.count);
                last[side] = last[side].max(bucket.last);
                flows[side].add(&bucket.reporters);
            }
        }
        let last = last[0].min(last[1])?;
        let expires = first_deadline.min(when.timing.fresh_until(last));
        (blocks > 0 && when.now < expires).then(|| Shared {
            values: sums.map(|sum| sum / f64::from(blocks)),
            reporters: flows.map(|f| f.len),
            last,
            expires,
        })
    }
}

/// A set of at most sixteen flows.
#[derive(Default)]
struct Flows {
    ids: [u64; KEPT * BLOCKS],
    len: u8,
}

impl Flows {
    fn add(&mut self, reporters: &[u64; KEPT]) {
        for &id in reporters.iter().filter(|&&id| id != 0) {
            let len = usize::from(self.len);
            if !self.ids[..len].contains(&id) {
                self.ids[len] = id;
                self.len += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn when(now: u64) -> When {
        When {
            timing: Timing::BUSINESS,
            origin: T::START,
            now: T::from_secs(now),
        }
    }

    /// Samples of seconds and values, each by its own flow.
    fn ring(samples: &[(u64, f64)]) -> Ring {
        let mut ring = Ring::default();
        for (id, &(at, value)) in samples.iter().enumerate() {
            let block = Timing::BUSINESS.block(T::START, T::from_secs(at)).unwrap();
            ring.record(block, T::from_secs(at), value, id as u64 + 1);
        }
        ring
    }

    #[test]
    fn blocks_weigh_equal_whatever_their_load() {
        let a = ring(&[(1, 10.0), (2, 10.0), (3, 10.0), (16, 40.0)]);
        let b = ring(&[(1, 5.0), (16, 15.0)]);
        let shared = a.shared(&b, when(20)).unwrap();
        assert_eq!(shared.values, [25.0, 10.0]);
        assert_eq!(shared.reporters, [4, 2]);
        assert_eq!(shared.last, T::from_secs(16));
        assert_eq!(shared.expires, T::from_secs(60), "block 0 ends first");
    }

    #[test]
    fn only_common_blocks_count() {
        let a = ring(&[(1, 10.0), (16, 20.0)]);
        let b = ring(&[(1, 30.0), (31, 99.0)]);
        let shared = a.shared(&b, when(40)).unwrap();
        assert_eq!(shared.values, [10.0, 30.0]);
        assert!(a.shared(&ring(&[(31, 1.0)]), when(40)).is_none());
        // An old block in the place of a new one is not the same block.
        let (new, old) = (ring(&[(60, 10.0)]), ring(&[(1, 20.0)]));
        assert!(new.shared(&old, when(60)).is_none());
        assert!(old.shared(&new, when(60)).is_none());
    }

    #[test]
    fn a_block_is_gone_at_its_deadline() {
        let (a, b) = (ring(&[(14, 1.0)]), ring(&[(14, 1.0)]));
        assert!(a.shared(&b, when(59)).is_some());
        assert!(a.shared(&b, when(60)).is_none());
        assert!(a.is_live(when(59)) && !a.is_live(when(60)));
    }

    #[test]
    fn what_is_left_of_two_blocks_counts_alone() {
        let a = ring(&[(1, 10.0), (16, 30.0)]);
        let b = ring(&[(1, 50.0), (16, 20.0)]);
        let both = a.shared(&b, when(59)).unwrap();
        assert_eq!(
            (both.values, both.expires),
            ([20.0, 35.0], T::from_secs(60))
        );
        let later = a.shared(&b, when(60)).unwrap();
        assert_eq!(
            (later.values, later.expires),
            ([30.0, 20.0], T::from_secs(75))
        );
    }

    #[test]
    fn a_late_sample_never_replaces_a_newer_block() {
        let mut a = ring(&[(61, 7.0)]);
        assert!(!a.record(0, T::from_secs(1), 99.0, 9));
        let shared = a.shared(&ring(&[(61, 7.0)]), when(62)).unwrap();
        assert_eq!(shared.values, [7.0, 7.0]);
    }

    #[test]
    fn a_flow_counts_once_and_a_block_keeps_four() {
        let mut a = Ring::default();
        for id in [1, 1, 2, 3, 4, 5, 6] {
            a.record(0, T::START, 1.0, id);
        }
        a.record(1, T::from_secs(16), 1.0, 1);
        let shared = a.shared(&a, when(17)).unwrap();
        assert_eq!(shared.reporters, [4, 4]);
    }
}
