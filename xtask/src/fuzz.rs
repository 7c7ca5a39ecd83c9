//! `cargo xtask fuzz`: builds the targets of `tests/fuzz` with coverage counters and runs them.
//!
//! Needs no nightly and no cargo-fuzz: the flags below are what cargo-fuzz passes without a
//! sanitizer, and honk's parsers are safe Rust. New inputs stay in `target/fuzz/corpus`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::sh;

/// Coverage of every branch and comparison.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table";

/// With `--target` the flags do not reach build scripts, which have no place for counters.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Arguments of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Targets to run; default all
    targets: Vec<String>,
    /// Seconds for each
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Runs the wanted targets; the first that fails ends the run.
pub(crate) fn run(args: &Args) -> Result<()> {
    let known = targets()?;
    if let Some(bad) = args.targets.iter().find(|name| !known.contains(name)) {
        bail!("unknown target `{bad}`; there are {}", known.join(", "));
    }
    build()?;
    let wanted = if args.targets.is_empty() {
        &known
    } else {
        &args.targets
    };
    for target in wanted {
        one(target, args.seconds)?;
    }
    Ok(())
}

/// Names of all targets.
pub(crate) fn targets() -> Result<Vec<String>> {
    let folder = sh::root().join("tests/fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder)
        .with_context(|| format!("cannot read `{}`", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds all targets.
pub(crate) fn build() -> Result<()> {
    let mut command = sh::cargo(&["build", "--quiet", "--release", "--target", &triple()]);
    command
        .args(["--manifest-path", "tests/fuzz/Cargo.toml"])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", folder());
    sh::run(&mut command)
}

/// Runs one target from its seeds and what earlier runs found.
pub(crate) fn one(target: &str, seconds: u32) -> Result<()> {
    let corpus = folder().join("corpus").join(target);
    std::fs::create_dir_all(&corpus)
        .with_context(|| format!("cannot create `{}`", corpus.display()))?;
    let program = folder().join(triple()).join("release").join(target);
    let mut command = sh::tool(&program.to_string_lossy(), &[]);
    command
        .arg(format!("-max_total_time={seconds}"))
        // 64 KiB of anything in 50 ms; the counters and a busy machine cost a multiple.
        .args(["-timeout=5", "-max_len=65536", "-rss_limit_mb=512"])
        .arg(format!("-artifact_prefix={}/", folder().display()))
        .arg(&corpus);
    let seeds = match target {
        "config" => sh::root().join("grammar/tests/cases"),
        _ => sh::root().join("tests/fuzz/seeds").join(target),
    };
    command.arg(seeds);
    eprintln!("  $ {}", sh::show(&command));
    let output = command
        .output()
        .with_context(|| format!("cannot start `{}`", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    if output.status.success() {
        eprintln!("  {}", lines.last().copied().unwrap_or_default());
        return Ok(());
    }
    // The panic comes before libFuzzer's own report, the name of the input after it.
    for line in &lines[lines.len().saturating_sub(60)..] {
        eprintln!("  {line}");
    }
    bail!(
        "`{target}` failed; the input is in `{}`",
        folder().display()
    );
}

fn folder() -> PathBuf {
    sh::target_dir().join("fuzz")
}
