//! Reliability: bounds for admission, and the observed rate that candidates are compared by
//! (S-043, S-044).

use super::consts::{KAPPA, KAPPA_EXACT, N_FULL, N_TRAIN, Z};

/// Counters of a cell, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) ok: f64,
    pub(super) bad: f64,
    pub(super) set_up: f64,
    pub(super) not_set_up: f64,
}

/// Reliability of a candidate over its layers, from the widest to the most specific.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reliability {
    /// Lower bound.
    pub(super) lower: f64,
    /// Upper bound.
    pub(super) upper: f64,
    /// Observed rate of success, what failure risk is read from.
    pub(super) rate: f64,
}

impl Counts {
    /// Attempts that were useful or failed.
    pub(super) fn useful(self) -> f64 {
        self.ok + self.bad
    }

    /// Attempts whose setup was decided.
    pub(super) fn completions(self) -> f64 {
        self.set_up + self.not_set_up
    }

    /// Lower and upper bound. A failed setup weighs three.
    pub(super) fn bounds(self) -> (f64, f64) {
        let a = self.ok + 1.0;
        let b = self.bad + 2.0 * self.not_set_up + 1.0;
        let n = a + b;
        let mean = a / n;
        let deviation = (a * b / (n * n * (n + 1.0))).sqrt();
        let clamp = |v: f64| v.clamp(0.0, 1.0);
        (clamp(mean - Z * deviation), clamp(mean + Z * deviation))
    }

    /// Without a failure this is 1 however few attempts there were; a thin layer with one failure
    /// is not condemned by it.
    fn rate(self, pseudo: f64) -> f64 {
        (self.ok + pseudo) / (self.useful() + pseudo)
    }

    /// This layer over wider ones, by the weight of its attempts.
    fn over(self, pseudo: f64, wide: impl FnOnce() -> Reliability) -> Reliability {
        let (lower, upper) = self.bounds();
        let own = Reliability {
            lower,
            upper,
            rate: self.rate(pseudo),
        };
        let weight = self.useful() / N_FULL;
        if weight >= 1.0 {
            return own;
        }
        let wide = wide();
        let blend = |wide: f64, own: f64| (1.0 - weight) * wide + weight * own;
        Reliability {
            lower: blend(wide.lower, own.lower),
            upper: blend(wide.upper, own.upper),
            rate: blend(wide.rate, own.rate),
        }
    }
}

impl Reliability {
    /// Over the layers there are. A layer with its whole weight hides those under it, and then
    /// they are not worked out.
    pub(super) fn of(group: Counts, family: Option<Counts>, exact: Option<Counts>) -> Self {
        let wide = || match family {
            Some(family) => family.over(KAPPA, || Self::group(group)),
            None => Self::group(group),
        };
        match exact {
            Some(exact) => exact.over(KAPPA_EXACT, wide),
            None => wide(),
        }
    }

    /// Of the group layer alone.
    fn group(counts: Counts) -> Self {
        let (lower, upper) = counts.bounds();
        let observed = counts.rate(KAPPA);
        // Untried is a half, and the way from there to the observed rate has no step.
        let tried = (counts.useful() / N_TRAIN).min(1.0);
        Self {
            lower,
            upper,
            rate: 0.5 + tried * (observed - 0.5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ok: f64, bad: f64) -> Counts {
        Counts {
            ok,
            bad,
            ..Counts::default()
        }
    }

    fn near(found: f64, want: f64) {
        assert!((found - want).abs() < 1e-6, "{found} is not {want}");
    }

    #[test]
    fn bounds_are_those_of_the_design() {
        let (lower, upper) = counts(0.0, 0.0).bounds();
        near(lower, 0.026_573);
        near(upper, 0.973_427);
        for (ok, want) in [(4.0, 0.602_325), (20.0, 0.883_315), (1000.0, 0.997_367)] {
            let (lower, upper) = counts(ok, 0.0).bounds();
            near(lower, want);
            near(upper, 1.0);
        }
    }

    #[test]
    fn a_failed_setup_weighs_three() {
        let setup = Counts {
            not_set_up: 1.0,
            ..counts(4.0, 1.0)
        };
        assert_eq!(setup.bounds(), counts(4.0, 3.0).bounds());
    }

    #[test]
    fn rates_are_those_of_the_design() {
        let rate = |group, family, exact| Reliability::of(group, family, exact).rate;
        let (group, family) = (counts(990.0, 10.0), Some(counts(100.0, 1.0)));
        near(rate(group, None, None), 0.990_079);
        near(rate(group, family, None), 0.990_826);
        near(rate(group, family, Some(counts(8.0, 1.0))), 0.96);
        near(rate(group, family, Some(counts(4.0, 1.0))), 0.966_798);
        near(rate(counts(100.0, 2.0), Some(counts(0.0, 8.0)), None), 0.5);
        near(
            rate(counts(100.0, 0.0), Some(counts(0.0, 7.6)), None),
            0.05 + 0.95 * 8.0 / 15.6,
        );
        near(rate(counts(20.0, 0.0), None, None), 1.0);
        near(rate(counts(0.0, 0.0), None, None), 0.5);
    }
}
