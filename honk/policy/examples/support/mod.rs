//! What the measuring examples share: runs in processes of their own, medians, result lines.

pub(crate) mod rss;

use std::{env, process::Command};

/// One value of a run, for the process that reads it.
pub(crate) fn print(name: &str, value: f64) {
    println!("{name} {value}");
}

/// Runs this program again with `args` and returns what it [`print()`]ed.
pub(crate) fn run(args: &[&str]) -> Vec<(String, f64)> {
    let this = env::current_exe().unwrap();
    let output = Command::new(this).arg("--run").args(args).output().unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// The median, the least and the most.
pub(crate) fn median(values: &mut [f64]) -> (f64, [f64; 2]) {
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        [values[0], values[values.len() - 1]],
    )
}

/// One figure with its spread and the number of its runs.
#[derive(Clone, Copy)]
pub(crate) struct Figure<'a> {
    pub(crate) case: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) value: f64,
    pub(crate) spread: [f64; 2],
    pub(crate) runs: usize,
}

impl Figure<'_> {
    /// The result line. Smaller is better: the ratio says how many times the peer's value is ours.
    pub(crate) fn line(&self, peer: &str, peer_value: f64) {
        let Self {
            case,
            unit,
            value,
            spread: [least, most],
            runs,
        } = self;
        let ratio = peer_value / value;
        let met = ratio >= 1.0;
        println!(
            "{{\"schema\":\"honk.bench/1\",\"case\":\"{case}\",\"value\":{value:.2},\
             \"unit\":\"{unit}\",\"peer\":\"{peer}\",\"peer_value\":{peer_value:.2},\
             \"ratio\":{ratio:.2},\"target\":1.0,\"met\":{met},\"runs\":{runs},\
             \"spread\":[{least:.2},{most:.2}]}}"
        );
    }
}
