//! Cost of geodata: loading real files and matching names against a million rules, beside plain
//! maps and a trie.
//!
//! `geo_scale [FOLDER]` prints one JSON line per figure. FOLDER holds `geosite.dat` and
//! `geoip.dat`; without it the figures about files are left out. Each run is a process of its
//! own, so that memory of one does not hide in another; the sides take turns. Run with
//! `--release`.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![allow(clippy::unwrap_used, reason = "the input is made here")]

mod files;
mod plain;
mod rss;
mod rules;

use std::{collections::BTreeMap, env, path::Path, process::Command};

const ROUNDS: usize = 5;

/// A figure, its unit and what it must not exceed.
const FIGURES: [(&str, &str, f64); 10] = [
    ("geo.load", "ms", 300.0),
    ("geo.load.rss", "MiB", 30.0),
    ("geo.load.peak", "MiB", 0.0),
    ("geo.real.lookup", "ns", 0.0),
    ("geo.match.build", "ms", 0.0),
    ("geo.match.lookup", "ns", 150.0),
    ("geo.match.hit", "ns", 0.0),
    ("geo.match.miss", "ns", 0.0),
    ("geo.match.bytes", "B/domain", 24.0),
    ("geo.match.rss", "B/domain", 0.0),
];

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--run", "honk", "files", folder] => files::honk(Path::new(folder)),
        ["--run", "plain", "files", folder] => files::plain(Path::new(folder)),
        ["--run", "honk", "rules"] => rules::honk(),
        ["--run", "plain", "rules"] => rules::plain(),
        [] => {
            eprintln!(
                "no folder with geosite.dat and geoip.dat given: figures about them are left out"
            );
            compare(&[&["rules"]]);
        }
        [folder] => compare(&[&["files", folder], &["rules"]]),
        _ => panic!("usage: geo_scale [FOLDER]"),
    }
}

/// One value of a run.
fn print(name: &str, value: f64) {
    println!("{name} {value}");
}

/// Values of one side by figure.
type Values = BTreeMap<String, Vec<f64>>;

fn compare(parts: &[&[&str]]) {
    let mut sides: [(&str, Values); 2] = [("honk", Values::new()), ("plain", Values::new())];
    for round in 0..ROUNDS {
        for part in parts {
            for turn in 0..2 {
                let (side, values) = &mut sides[(round + turn) % 2];
                for (name, value) in run(side, part) {
                    values.entry(name).or_default().push(value);
                }
            }
        }
    }
    let [(_, honk), (_, plain)] = &mut sides;
    for (name, unit, most) in FIGURES {
        let Some((value, spread)) = honk.get_mut(name).map(|v| median(v)) else {
            continue;
        };
        if most > 0.0 {
            line(name, unit, value, spread, "target", most);
        }
        if let Some((peer, _)) = plain.get_mut(name).map(|v| median(v)) {
            line(name, unit, value, spread, "plain", peer);
        }
    }
}

fn run(side: &str, part: &[&str]) -> Vec<(String, f64)> {
    let this = env::current_exe().unwrap();
    let output = Command::new(this)
        .args(["--run", side])
        .args(part)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{side} {part:?}: {}",
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

fn median(values: &mut [f64]) -> (f64, [f64; 2]) {
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        [values[0], values[values.len() - 1]],
    )
}

/// Smaller is better: the ratio says how many times the peer's value is ours.
fn line(case: &str, unit: &str, value: f64, spread: [f64; 2], peer: &str, peer_value: f64) {
    let ratio = peer_value / value;
    let met = ratio >= 1.0;
    let [least, most] = spread;
    println!(
        "{{\"schema\":\"honk.bench/1\",\"case\":\"{case}\",\"value\":{value:.2},\
         \"unit\":\"{unit}\",\"peer\":\"{peer}\",\"peer_value\":{peer_value:.2},\
         \"ratio\":{ratio:.2},\"target\":1.0,\"met\":{met},\"runs\":{ROUNDS},\
         \"spread\":[{least:.2},{most:.2}]}}"
    );
}
