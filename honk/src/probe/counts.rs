//! How many probes there were, and how long they took.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::measure::{Failure, Stage};

/// Label values of `kind`.
pub(crate) const KINDS: [&str; 2] = ["http", "dns"];
/// Label values of `result`.
pub(crate) const RESULTS: [&str; 3] = ["ok", "timeout", "error"];
/// Upper bounds of the duration buckets, milliseconds; one more bucket takes the rest.
pub(crate) const BUCKETS_MS: [u64; 10] = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];

/// What is probed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Http,
    Dns,
}

/// Counters of one kind.
#[derive(Debug, Default)]
struct Row {
    results: [AtomicU64; RESULTS.len()],
    buckets: [AtomicU64; BUCKETS_MS.len() + 1],
    sum_us: AtomicU64,
}

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct ProbeCounts([Row; KINDS.len()]);

/// One kind, copied out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProbeRow {
    pub(crate) kind: &'static str,
    /// Same order as [`RESULTS`].
    pub(crate) results: [u64; RESULTS.len()],
    /// Successes per bucket, not cumulative.
    pub(crate) buckets: Vec<u64>,
    pub(crate) seconds: f64,
}

impl ProbeCounts {
    pub(crate) fn add(&self, kind: Kind, result: &Result<Duration, Failure>) {
        let Self(rows) = self;
        let row = &rows[kind as usize];
        let at = match result {
            Ok(took) => {
                let ms = took.as_micros().div_ceil(1000);
                let bucket = BUCKETS_MS.partition_point(|&bound| u128::from(bound) < ms);
                row.buckets[bucket].fetch_add(1, Relaxed);
                row.sum_us.fetch_add(took.as_micros() as u64, Relaxed);
                0
            }
            Err(failure) if failure.stage == Stage::Timeout => 1,
            Err(_) => 2,
        };
        row.results[at].fetch_add(1, Relaxed);
    }

    pub(crate) fn rows(&self) -> Vec<ProbeRow> {
        let load = |n: &AtomicU64| n.load(Relaxed);
        let row = |(row, kind): (&Row, &'static str)| ProbeRow {
            kind,
            results: row.results.each_ref().map(load),
            buckets: row.buckets.iter().map(load).collect(),
            seconds: Duration::from_micros(load(&row.sum_us)).as_secs_f64(),
        };
        self.0.iter().zip(KINDS).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::error::{Class, DialError};

    #[test]
    fn outcomes_are_told_apart() {
        let counts = ProbeCounts::default();
        counts.add(Kind::Http, &Ok(Duration::from_millis(20)));
        counts.add(Kind::Http, &Ok(Duration::from_secs(60)));
        let error = DialError::new(Class::ProxyAuth, "wrong password");
        let failure = Failure::from(error);
        counts.add(Kind::Dns, &Err(failure));
        let rows = counts.rows();
        assert_eq!(rows[0].results, [2, 0, 0]);
        assert_eq!((rows[0].buckets[1], rows[0].buckets[10]), (1, 1));
        assert_eq!((rows[1].kind, rows[1].results), ("dns", [0, 0, 1]));
    }
}
