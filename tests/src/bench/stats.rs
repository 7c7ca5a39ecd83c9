//! Medians and spreads of repeated runs.

/// Values of one metric of one engine over all rounds.
#[derive(Debug, Default)]
pub(super) struct Series {
    values: Vec<f64>,
    cpu: Vec<f64>,
    failures: u64,
}

impl Series {
    /// Adds a run: value, processor cores used, failures.
    pub(super) fn push(&mut self, value: f64, cpu: f64, failures: u64) {
        self.values.push(value);
        self.cpu.push(cpu);
        self.failures += failures;
    }

    /// Median value.
    pub(super) fn median(&self) -> f64 {
        median(&self.values)
    }

    /// Smallest and largest value.
    pub(super) fn spread(&self) -> [f64; 2] {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        [least, self.values.iter().copied().fold(0.0, f64::max)]
    }

    /// Median of processor cores.
    pub(super) fn cpu(&self) -> f64 {
        median(&self.cpu)
    }

    /// Failures of all runs.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// Number of runs.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_ignores_one_outlier() {
        assert!((median(&[1.0, 2.0, 90.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 2.0]) - 3.0).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }
}
