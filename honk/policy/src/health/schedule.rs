//! When each target is due: a queue by time, and the chance that keeps probes apart.

use std::{collections::BTreeSet, time::Duration};

use crate::time::Moment;

/// Seeded, so that a run can be repeated.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A part of `whole`.
    pub(super) fn part(&mut self, whole: Duration) -> Duration {
        // xorshift64*: spreads well enough for pauses.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        whole.mul_f64(word as f64 / f64::from(u32::MAX))
    }

    /// A tenth more or less.
    pub(super) fn about(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(0.9) + self.part(pause / 5)
    }
}

/// Targets by the time at which they are due.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(BTreeSet<(Moment, usize)>);

impl Queue {
    pub(super) fn put(&mut self, at: Moment, target: usize) {
        self.0.insert((at, target));
    }

    pub(super) fn take_out(&mut self, at: Moment, target: usize) {
        self.0.remove(&(at, target));
    }

    /// The first one that is due.
    pub(super) fn pop(&mut self, now: Moment) -> Option<usize> {
        let first = *self.0.first()?;
        (first.0 <= now).then(|| {
            self.0.pop_first();
            first.1
        })
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.0.first().map(|(at, _)| *at)
    }

    /// All that are due.
    pub(super) fn overdue(&self, now: Moment) -> Vec<usize> {
        let due = self.0.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, target)| *target).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_stays_inside_and_repeats() {
        let second = Duration::from_secs(1);
        let run = |seed| {
            let mut chance = Chance::new(seed);
            (0..1000).map(|_| chance.about(second)).collect::<Vec<_>>()
        };
        let (a, b) = (run(7), run(8));
        assert_eq!(a, run(7));
        assert_ne!(a, b);
        let range = Duration::from_millis(899)..Duration::from_millis(1101);
        assert!(a.iter().all(|pause| range.contains(pause)));
        let late = a.iter().filter(|pause| **pause > second).count();
        assert!((400..600).contains(&late), "{late}");
    }

    #[test]
    fn what_is_due_first_comes_first() {
        let mut queue = Queue::default();
        let at = |n| Moment::START + Duration::from_secs(n);
        queue.put(at(3), 1);
        queue.put(at(1), 2);
        queue.put(at(2), 3);
        queue.take_out(at(2), 3);
        assert_eq!(queue.pop(at(0)), None);
        assert_eq!(queue.overdue(at(5)), [2, 1]);
        assert_eq!(queue.pop(at(5)), Some(2));
        assert_eq!(queue.next(), Some(at(3)));
    }
}
