//! Medians and spreads of repeated runs, and processor time from `/proc`.

/// Median of a list; 0 for an empty one.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// Smallest and largest value.
pub(super) fn spread(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    values
        .into_iter()
        .fold([f64::INFINITY, 0.0], |[least, most], value| {
            [value.min(least), value.max(most)]
        })
}

/// Seconds of processor time that all processes have used, without interrupts.
pub(super) fn all_cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    busy(&text)
}

fn busy(stat: &str) -> f64 {
    let first = stat.lines().next().unwrap_or_default();
    let ticks = first
        .split_whitespace()
        .skip(1)
        .map(|word| word.parse::<f64>().unwrap_or(0.0));
    // user, nice, system; then idle and waiting, which are not work.
    ticks.take(3).sum::<f64>() / 100.0
}

/// Seconds of processor time of one process with all its threads.
pub(super) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_ignores_one_outlier() {
        assert!((median([1.0, 90.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median([4.0, 2.0]) - 3.0).abs() < 1e-9);
        assert!(median([]).abs() < 1e-9);
    }

    #[test]
    fn idle_time_is_not_work() {
        assert!((busy("cpu  100 50 50 9999 7 1 1 0\ncpu0 1 2 3 4\n") - 2.0).abs() < 1e-9);
    }
}
