//! `cargo xtask test [SUITE..]`: every check of the project, in one fixed order.
//!
//! Each step adds to one tally; the last line is `N passed, N failed, N skipped, N flaky`. A
//! step that cannot run here (no root, tool absent) says why and counts as skipped, never as
//! passed. Flaky is what passed only when it ran alone a second time: look at it, it is a bug.

mod deny;
mod report;
mod runner;
mod source;
mod tally;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use tally::Tally;

use crate::{build, ebpf, fuzz, setup, sh};

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// lint, unit, fuzz, gen, kernel, sys, or a step of lint: fmt, clippy, tidy, deny; default all
    suites: Vec<String>,
}

type Step = fn(&mut Tally) -> Result<()>;

/// Name, suite and code of every step, in running order.
const STEPS: [(&str, &str, Step); 9] = [
    ("fmt", "lint", fmt),
    ("tidy", "lint", tidy_step),
    ("deny", "lint", deny::step),
    ("clippy", "lint", clippy),
    ("unit", "unit", unit),
    ("fuzz", "fuzz", fuzz_step),
    ("gen", "gen", generated),
    ("kernel", "kernel", kernel),
    ("sys", "sys", system),
];

/// Runs the wanted steps; fails when one failed.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let known = |name: &str| {
        STEPS
            .iter()
            .any(|(step, suite, _)| *step == name || *suite == name)
    };
    if let Some(bad) = args.suites.iter().find(|name| !known(name)) {
        bail!(
            "unknown suite `{bad}`; there are lint (fmt, tidy, deny, clippy), unit, fuzz, gen, kernel, sys"
        );
    }
    let wanted = |step: &str, suite: &str| {
        args.suites.is_empty() || args.suites.iter().any(|name| name == step || name == suite)
    };
    let mut tally = Tally::default();
    for (name, suite, step) in STEPS {
        if !wanted(name, suite) {
            continue;
        }
        let start = Instant::now();
        eprintln!("== {name}");
        if let Err(error) = step(&mut tally) {
            tally.fail(name, &format!("{error:#}"));
        }
        eprintln!("== {name}: {}", sh::secs(start));
    }
    Ok(tally.close())
}

fn fmt(tally: &mut Tally) -> Result<()> {
    let status = sh::status(&mut sh::cargo(&["fmt", "--all", "--check"]))?;
    tally.check("fmt", status.success(), "run `cargo fmt --all`");
    let manifest = sh::root().join("honk-ebpf/Cargo.toml");
    if manifest.is_file() {
        let mut command = sh::cargo(&["fmt", "--check", "--manifest-path"]);
        let status = sh::status(command.arg(&manifest))?;
        tally.check(
            "fmt honk-ebpf",
            status.success(),
            "run `cargo fmt` in honk-ebpf",
        );
    }
    Ok(())
}

fn clippy(tally: &mut Tally) -> Result<()> {
    let args = [
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    let status = sh::status(&mut sh::cargo(&args))?;
    tally.check("clippy", status.success(), "warnings above");
    Ok(())
}

fn tidy_step(tally: &mut Tally) -> Result<()> {
    for (name, problems) in tidy::run(sh::root())? {
        for problem in &problems {
            eprintln!("  {problem}");
        }
        tally.check(
            name,
            problems.is_empty(),
            &format!("{} problems above", problems.len()),
        );
    }
    Ok(())
}

fn unit(tally: &mut Tally) -> Result<()> {
    runner::run(tally, &["--workspace", "--exclude", "honk-tests"], None)?;
    runner::run(tally, &["-p", "honk-tests", "--lib", "--bins"], None)?;
    runner::run(tally, &["-p", "honk-tests", "--test", "sim"], None)?;
    let mut docs = sh::cargo(&["test", "--quiet", "--workspace", "--doc"]);
    let status = sh::status(&mut docs)?;
    tally.check("examples in documents", status.success(), "see above");
    Ok(())
}

/// A short run of every fuzz target; `cargo xtask fuzz` runs them for longer.
fn fuzz_step(tally: &mut Tally) -> Result<()> {
    const SECONDS: u32 = 5;
    fuzz::build()?;
    for target in fuzz::targets()? {
        let name = format!("fuzz {target}");
        match fuzz::one(&target, SECONDS, fuzz::Seed::Fixed)? {
            fuzz::Outcome::Clean => tally.check(&name, true, ""),
            fuzz::Outcome::Slow(input) => {
                tally.check(&name, true, "");
                tally.flaky(&name, &format!("passes alone: `{}`", input.display()));
            }
            fuzz::Outcome::Broken(why) => tally.check(&name, false, &why),
        }
    }
    Ok(())
}

fn generated(tally: &mut Tally) -> Result<()> {
    if setup::core_source().is_none() || !sh::in_path("bpf-linker") {
        tally.skip(
            "gen",
            "no nightly rust-src or bpf-linker: run `cargo xtask setup`",
        );
        return Ok(());
    }
    let result = ebpf::run(&ebpf::Args::check());
    let problem = result
        .as_ref()
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap_or_default();
    tally.check(
        "kernel object equals a fresh build",
        result.is_ok(),
        &problem,
    );
    Ok(())
}

fn kernel(tally: &mut Tally) -> Result<()> {
    root_tests(tally, "kernel", &test_targets("kernel")?)
}

fn system(tally: &mut Tally) -> Result<()> {
    let targets = test_targets("sys_")?;
    if sh::is_root() && !targets.is_empty() {
        build::programs(false)?;
        setup::require_lab_tools()?;
    }
    root_tests(tally, "sys", &targets)
}

/// Integration tests of package `tests/` whose file name starts with `prefix`.
fn test_targets(prefix: &str) -> Result<Vec<String>> {
    let folder = sh::root().join("tests/tests");
    let mut names: Vec<String> = match std::fs::read_dir(&folder) {
        Ok(entries) => entries
            .filter_map(|entry| target_name(&entry.ok()?.path()))
            .collect(),
        Err(_) => Vec::new(),
    };
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    Ok(names)
}

fn target_name(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    path.extension()
        .is_some_and(|e| e == "rs")
        .then(|| stem.to_owned())
}

fn root_tests(tally: &mut Tally, suite: &str, targets: &[String]) -> Result<()> {
    if targets.is_empty() {
        tally.skip(suite, "no test of this suite in tests/tests");
        return Ok(());
    }
    if !sh::is_root() {
        tally.skip(suite, "needs root: network namespaces and kernel programs");
        return Ok(());
    }
    let mut args = vec!["-p", "honk-tests"];
    for target in targets {
        args.extend(["--test", target.as_str()]);
    }
    let honk: PathBuf =
        std::env::var_os("HONK_BIN").map_or_else(|| sh::bin_dir(false).join("honk"), PathBuf::from);
    runner::run(tally, &args, Some(&honk))
}
