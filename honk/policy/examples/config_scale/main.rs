//! Cost of reading configurations: a large one, and the worst of 64 KiB.
//!
//! `config_scale` prints one JSON line per figure. Each run is a process of its own, so that
//! memory of one does not hide in another. `config_scale --list` prints every hostile family.
//! Run with `--release`.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![allow(clippy::unwrap_used, reason = "the input is made here")]

#[path = "../../tests/hostile/cpu.rs"]
mod cpu;
mod hostile;
#[path = "../../tests/hostile/inputs.rs"]
mod inputs;
mod large;
#[path = "../support/mod.rs"]
mod support;

use std::{env, path::Path};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--run", "large", file] => large::run(Path::new(file)),
        ["--run", "hostile", name] => hostile::run(name),
        ["--list"] => hostile::list(),
        [] => {
            large::compare();
            hostile::compare();
        }
        _ => panic!("usage: config_scale [--list]"),
    }
}
