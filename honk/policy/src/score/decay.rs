//! Decay by half-lives: counters are kept as of their last write and read as of now (S-040).

use super::{clock::T, consts::H_REL};

/// How much of something is left after `secs`.
pub(super) fn left(secs: f64, half_life: f64) -> f64 {
    if secs <= 0.0 {
        return 1.0;
    }
    (-secs / half_life).exp2()
}

/// What is left of business reliability at one moment. Layers of a node are often written
/// together, so the last answer is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fade {
    now: T,
    last: (T, f64),
}

impl Fade {
    pub(super) fn new(now: T) -> Self {
        Self {
            now,
            last: (now, 1.0),
        }
    }

    /// What is left of counters that were written at `at`.
    pub(super) fn since(&mut self, at: T) -> f64 {
        if self.last.0 != at {
            self.last = (at, left(self.now.secs_since(at), H_REL));
        }
        self.last.1
    }
}

/// One counter with its own time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Decayed {
    value: f64,
    at: Option<T>,
}

impl Decayed {
    /// What is left of it now.
    pub(super) fn now(self, now: T, half_life: f64) -> f64 {
        self.at
            .map_or(0.0, |at| self.value * left(now.secs_since(at), half_life))
    }

    /// Adds to it.
    pub(super) fn add(&mut self, now: T, half_life: f64, amount: f64) {
        self.value = self.now(now, half_life) + amount;
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::consts::H_REL;

    #[test]
    fn factors_are_those_of_the_design() {
        for (secs, want) in [(1800.0, 0.5), (60.0, 0.977_160), (300.0, 0.890_899)] {
            assert!((left(secs, H_REL) - want).abs() < 1e-6, "{secs}");
        }
        assert_eq!(left(-5.0, H_REL), 1.0);
        assert_eq!(left(f64::from(u32::MAX), 1.0), 0.0);
    }

    #[test]
    fn reading_does_not_write() {
        let mut count = Decayed::default();
        assert_eq!(count.now(T::from_secs(9), 300.0), 0.0);
        count.add(T::from_secs(0), 300.0, 2.0);
        assert_eq!(count.now(T::from_secs(300), 300.0), 1.0);
        assert_eq!(count.now(T::from_secs(0), 300.0), 2.0);
        count.add(T::from_secs(300), 300.0, 1.0);
        assert_eq!(count.now(T::from_secs(300), 300.0), 2.0);
    }
}
