//! The worst that 64 KiB can do, in processor time and memory.

use crate::{
    cpu, inputs,
    support::{Figure, median, print, rss, run as again},
};

const SIZE: usize = 64 << 10;
const ROUNDS: usize = 3;
/// What the families may cost, in milliseconds and MiB.
const MOST: [f64; 2] = [50.0, 32.0];

pub(crate) fn run(number: &str) {
    let number = number.parse().unwrap();
    let family = inputs::families().nth(number).unwrap();
    let name = family.name;
    let text = family.text(SIZE);
    assert!(text.len() <= SIZE + 256, "{name}: {}", text.len());
    // Tables of the libraries are made at their first use.
    inputs::read(family.reader, "");
    rss::forget_peak();
    let before = rss::now();
    let seconds = cpu::seconds(|| inputs::read(family.reader, &text));
    print("cpu", seconds * 1e3);
    print("peak", rss::peak() - before);
}

/// Median milliseconds and MiB of a family by number, with their spreads.
fn measured(number: usize) -> [(f64, [f64; 2]); 2] {
    let number = number.to_string();
    let runs: Vec<_> = (0..ROUNDS).map(|_| again(&["hostile", &number])).collect();
    [0, 1].map(|at| median(&mut runs.iter().map(|run| run[at].1).collect::<Vec<_>>()))
}

pub(crate) fn list() {
    for (number, family) in inputs::families().enumerate() {
        let [(cpu, _), (peak, _)] = measured(number);
        println!(
            "{cpu:8.2} ms {peak:7.2} MiB  {} ({:?})",
            family.name, family.reader
        );
    }
}

pub(crate) fn compare() {
    let all: Vec<_> = inputs::families()
        .enumerate()
        .map(|(number, family)| (family, measured(number)))
        .collect();
    for (at, case, unit) in [
        (0, "config.hostile", "ms"),
        (1, "config.hostile.peak", "MiB"),
    ] {
        let worst = all.iter().max_by(|a, b| a.1[at].0.total_cmp(&b.1[at].0));
        let (family, figures) = worst.unwrap();
        eprintln!(
            "{case}: `{}` ({:?}) is the worst of {}",
            family.name,
            family.reader,
            all.len()
        );
        let (value, spread) = figures[at];
        let figure = Figure {
            case,
            unit,
            value,
            spread,
            runs: ROUNDS,
        };
        figure.line("target", MOST[at]);
    }
}
