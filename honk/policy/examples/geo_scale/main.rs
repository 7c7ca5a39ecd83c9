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
mod rules;
#[path = "../support/mod.rs"]
mod support;

use std::{collections::BTreeMap, env, path::Path};

use support::{Figure, median, print, rss, run};

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

/// Values of one side by figure.
type Values = BTreeMap<String, Vec<f64>>;

fn compare(parts: &[&[&str]]) {
    let mut sides: [(&str, Values); 2] = [("honk", Values::new()), ("plain", Values::new())];
    for round in 0..ROUNDS {
        for part in parts {
            for turn in 0..2 {
                let (side, values) = &mut sides[(round + turn) % 2];
                for (name, value) in run(&[&[*side], *part].concat()) {
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
        let figure = Figure {
            case: name,
            unit,
            value,
            spread,
            runs: ROUNDS,
        };
        if most > 0.0 {
            figure.line("target", most);
        }
        if let Some((peer, _)) = plain.get_mut(name).map(|v| median(v)) {
            figure.line("plain", peer);
        }
    }
}
