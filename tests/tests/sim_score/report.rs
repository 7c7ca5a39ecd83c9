//! The report for other tools: one line for each run.

use honk_tests::sim::score::{Who, csv, play, scenario};

#[test]
fn every_run_is_a_line_with_a_value_for_each_name() {
    let text = csv(&scenario::ALL[..1], 2);
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), Who::ALL.len() * 2);
    assert!(rows.iter().all(|row| row.len() == names.len()));
    let at = |name: &str| names.iter().position(|n| *n == name).expect("a name");
    let second = &rows[1];
    let who = [at("scenario"), at("policy"), at("seed")].map(|at| second[at]);
    assert_eq!(who, ["1", "Score", "2"]);
    let outcome = play(&scenario::one_target(), 2, Who::Score);
    let figures = outcome.figures();
    let value = |name: &str| second[at(name)].parse::<f64>().expect("a number");
    assert_eq!(value("flows"), outcome.chosen().count() as f64);
    assert_eq!(value("failed"), figures.failed);
    assert_eq!(value("mean_ms"), figures.mean);
    assert_eq!(value("trials"), figures.trials);
}
