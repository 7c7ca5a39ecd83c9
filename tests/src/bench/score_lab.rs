//! Score against urltest over real nodes: what clients lose and how long they wait.

use std::time::Duration;

use anyhow::Result;

use super::Line;
use super::stats::{median, spread};
use crate::lab::{Lab, Profile};
use crate::score_lab::{Outcome, Plan, Tally, play, prepare};

/// A value of a run.
type Value = fn(&Tally) -> f64;

/// Name, unit and value of each row; smaller is better everywhere.
const ROWS: [(&str, &str, Value); 5] = [
    ("failed", "1/1000", |tally| {
        1e3 * tally.failed as f64 / tally.asked().max(1) as f64
    }),
    ("mean", "ms", Tally::mean),
    ("p50", "ms", |tally| tally.percentile(0.5)),
    ("p95", "ms", |tally| tally.percentile(0.95)),
    ("p99", "ms", |tally| tally.percentile(0.99)),
];
/// Below this a difference is none: half a failed request, a tenth of a millisecond.
const LEAST: f64 = 0.1;

/// Plays several runs and compares them one by one.
pub(super) fn lines(quick: bool) -> Result<Vec<Line>> {
    let (runs, length) = if quick { (3, 60) } else { (5, 180) };
    let lab = Lab::new(Profile::Bridge)?;
    let _origin = prepare(&lab)?;
    let mut outcomes = Vec::new();
    for seed in 1..=runs {
        let plan = Plan {
            seed,
            length: Duration::from_secs(length),
            per_second: 15.0,
        };
        let outcome = play(&lab, &plan)?;
        for (who, tally) in [("score", &outcome.score), ("urltest", &outcome.urltest)] {
            let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| tally.percentile(share));
            eprintln!(
                "    {who:<8} {} of {} failed; mean {:.1} ms, p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms",
                tally.failed,
                tally.asked(),
                tally.mean(),
            );
        }
        eprintln!("    {}", outcome.explained.trim());
        outcomes.push(outcome);
    }
    Ok(ROWS.iter().map(|row| line(row, &outcomes)).collect())
}

fn line(&(name, unit, value): &(&str, &'static str, Value), outcomes: &[Outcome]) -> Line {
    let mine = || outcomes.iter().map(|o| value(&o.score));
    let peer = || outcomes.iter().map(|o| value(&o.urltest));
    let ratios = mine().zip(peer());
    let ratios = ratios.map(|(mine, peer)| peer.max(LEAST) / mine.max(LEAST));
    let failures = |of: fn(&Outcome) -> &Tally| outcomes.iter().map(|o| of(o).failed as u64).sum();
    Line {
        schema: "honk.bench/1",
        case: format!("score-lab.{name}"),
        value: median(mine()),
        unit,
        peer: "urltest",
        peer_value: median(peer()),
        ratio: median(ratios),
        target: 1.0,
        met: false,
        runs: outcomes.len(),
        spread: spread(mine()),
        peer_spread: spread(peer()),
        cpu_cores: 0.0,
        peer_cpu_cores: 0.0,
        failures: failures(|o| &o.score),
        peer_failures: failures(|o| &o.urltest),
        foreign_cores: 0.0,
        valid: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_compare_the_runs_one_by_one() {
        let tally = |failed, millis: f64| Tally {
            failed,
            millis: vec![millis; 90],
        };
        let outcome = |score, urltest| Outcome {
            score,
            urltest,
            explained: String::new(),
            choices: 0.0,
        };
        let outcomes = [
            outcome(tally(0, 10.0), tally(10, 40.0)),
            outcome(tally(10, 10.0), tally(10, 20.0)),
            outcome(tally(10, 10.0), tally(30, 5.0)),
        ];
        let failed = line(&ROWS[0], &outcomes);
        assert!((failed.ratio - 2.5).abs() < 1e-9, "{}", failed.ratio);
        assert_eq!((failed.failures, failed.peer_failures), (20, 50));
        let p50 = line(&ROWS[2], &outcomes);
        assert!((p50.ratio - 2.0).abs() < 1e-9, "{}", p50.ratio);
        assert_eq!((p50.runs, p50.peer), (3, "urltest"));
    }
}
