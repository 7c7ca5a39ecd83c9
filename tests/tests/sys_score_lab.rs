//! Score against urltest over real nodes, and what people are told about it.

use std::time::Duration;

use anyhow::{Result, ensure};
use honk_tests::lab::{Lab, Profile};
use honk_tests::score_lab::{Plan, play, prepare};
use honk_tests::skip;

// The figures are in docs/SCORE.md; here it is enough that Score does not lose.
#[test]
fn clients_of_score_lose_no_more_than_those_of_urltest() {
    let test = "clients_of_score_lose_no_more_than_those_of_urltest";
    if skip::without_root(test) {
        return;
    }
    if let Err(error) = contest() {
        panic!("{test}: {error:#}");
    }
}

fn contest() -> Result<()> {
    let lab = Lab::new(Profile::Bridge)?;
    let _origin = prepare(&lab)?;
    let plan = Plan {
        seed: 1,
        length: Duration::from_secs(30),
        per_second: 12.0,
    };
    let outcome = play(&lab, &plan)?;
    let (score, urltest) = (&outcome.score, &outcome.urltest);
    eprintln!(
        "{} of {} failed with score, {} with urltest\n{}",
        score.failed,
        score.asked(),
        urltest.failed,
        outcome.explained
    );
    ensure!(score.asked() == urltest.asked() && score.asked() > 200);
    let margin = score.asked() / 20;
    ensure!(
        score.failed <= urltest.failed + margin,
        "{} of {} failed, {} with urltest",
        score.failed,
        score.asked(),
        urltest.failed
    );
    // What was decided is what clients asked.
    ensure!(
        outcome.choices >= score.asked() as f64,
        "{} choices",
        outcome.choices
    );
    ensure!(outcome.explained.starts_with("scored learns"));
    Ok(())
}
