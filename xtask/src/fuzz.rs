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
        match one(target, args.seconds, Seed::Fresh)? {
            Outcome::Clean => {}
            Outcome::Slow(input) => bail!("`{target}` was slow with `{}`", input.display()),
            Outcome::Broken(why) => bail!("{why}"),
        }
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

/// Where the inputs of a run come from.
#[derive(Clone, Copy)]
pub(crate) enum Seed {
    /// New ones every time.
    Fresh = 0,
    /// The same every time: a check of a change must not depend on luck.
    Fixed = 1,
}

/// How the run of a target ended.
pub(crate) enum Outcome {
    /// No input harmed it.
    Clean,
    /// This input took too long or too much, but not when it ran alone.
    Slow(PathBuf),
    /// An input breaks it.
    Broken(String),
}

/// Runs one target from its seeds and what earlier runs found. What failed runs once more with
/// its input alone: only time and memory can differ, and a busy machine is no defect.
pub(crate) fn one(target: &str, seconds: u32, seed: Seed) -> Result<Outcome> {
    let corpus = folder().join("corpus").join(target);
    std::fs::create_dir_all(&corpus)
        .with_context(|| format!("cannot create `{}`", corpus.display()))?;
    let program = folder().join(triple()).join("release").join(target);
    let mut command = sh::tool(&program.to_string_lossy(), &[]);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-seed={}", seed as u32))
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
        return Ok(Outcome::Clean);
    }
    // The panic comes before libFuzzer's own report, the name of the input after it.
    for line in &lines[lines.len().saturating_sub(60)..] {
        eprintln!("  {line}");
    }
    let Some(input) = lines.iter().find_map(|line| artifact(line)) else {
        return Ok(Outcome::Broken(format!(
            "`{target}` failed before any input"
        )));
    };
    let mut again = sh::tool(&program.to_string_lossy(), &["-timeout=5"]);
    if sh::status(again.arg("-rss_limit_mb=512").arg(&input))?.success() {
        return Ok(Outcome::Slow(input));
    }
    Ok(Outcome::Broken(format!(
        "`{target}` fails with `{}`",
        input.display()
    )))
}

/// The file that libFuzzer says it wrote the input to.
fn artifact(line: &str) -> Option<PathBuf> {
    let path = line.split_once("Test unit written to ")?.1;
    Some(path.trim().into())
}

fn folder() -> PathBuf {
    sh::target_dir().join("fuzz")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_is_found_in_what_libfuzzer_says() {
        let line = "artifact_prefix='/t/'; Test unit written to /t/timeout-0a1b";
        assert_eq!(artifact(line), Some("/t/timeout-0a1b".into()));
        assert_eq!(artifact("Base64: AAA="), None);
    }
}
