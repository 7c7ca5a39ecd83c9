//! The weighted mean of recent performance: four samples deep, gone after two minutes (S-042).

use super::{
    clock::T,
    consts::{A_PERF, WM_MAX},
};

/// A running mean that forgets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wm {
    sum: f64,
    weight: f64,
    at: Option<T>,
}

/// A value with how far it is to be trusted, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Perf {
    pub(super) value: f64,
    pub(super) confidence: f64,
}

impl Wm {
    /// Adds a sample.
    pub(super) fn record(&mut self, now: T, sample: f64) {
        if self.at.is_none_or(|at| now.secs_since(at) >= A_PERF) {
            (self.sum, self.weight) = (0.0, 0.0);
        }
        if self.weight >= WM_MAX {
            self.sum *= (WM_MAX - 1.0) / self.weight;
            self.weight = WM_MAX - 1.0;
        }
        self.sum += sample;
        self.weight += 1.0;
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
    }

    /// Its value and confidence, until it expires.
    pub(super) fn read(&self, now: T) -> Option<Perf> {
        let age = now.secs_since(self.at?);
        if age >= A_PERF {
            return None;
        }
        let fresh = (2.0 * (1.0 - age / A_PERF)).min(1.0);
        Some(Perf {
            value: self.sum / self.weight,
            confidence: (self.weight / WM_MAX).min(1.0) * fresh,
        })
    }

    #[cfg(test)]
    pub(super) fn weight(&self) -> f64 {
        self.weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[f64]) -> Wm {
        let mut wm = Wm::default();
        for sample in samples {
            wm.record(T::START, *sample);
        }
        wm
    }

    #[test]
    fn mean_is_that_of_the_design() {
        let wm = of(&[100.0, 100.0, 100.0, 100.0, 40.0, 40.0, 40.0, 40.0]);
        let read = wm.read(T::START).unwrap();
        assert!((read.value - 58.984_375).abs() < 1e-6);
        assert_eq!((wm.weight(), read.confidence), (4.0, 1.0));
    }

    #[test]
    fn confidence_falls_in_the_second_minute() {
        let wm = of(&[1.0; 4]);
        for (age, want) in [
            (0, 1.0),
            (60, 1.0),
            (75, 0.75),
            (90, 0.5),
            (119, 0.016_666_7),
        ] {
            let read = wm.read(T::from_secs(age)).unwrap();
            assert!((read.confidence - want).abs() < 1e-6, "{age}");
        }
        assert_eq!(wm.read(T::from_secs(120)), None);
        assert_eq!(of(&[1.0]).read(T::START).unwrap().confidence, 0.25);
    }

    #[test]
    fn an_expired_mean_starts_again() {
        let mut wm = of(&[100.0; 4]);
        wm.record(T::from_secs(120), 10.0);
        assert_eq!(wm.read(T::from_secs(120)).unwrap().value, 10.0);
        assert_eq!(Wm::default().read(T::START), None);
    }
}
