//! `cargo xtask bench`: measures in the lab, always with release builds.

use std::process::{ExitCode, Stdio};

use anyhow::{Result, bail};

use crate::{bench_alone, lab, peers, setup, sh};

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// direct, relay, udp, datapath, packets, policy, probes, score-lab, geo, config, score; all when none is named
    cases: Vec<String>,
    /// Fewer seconds per run (still at least five runs)
    #[arg(long)]
    quick: bool,
    /// Write one JSON line per case to FILE; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

const IN_LAB: [&str; 8] = [
    "direct",
    "relay",
    "udp",
    "datapath",
    "packets",
    "policy",
    "probes",
    "score-lab",
];

/// Plays Score against other policies: nothing is measured, so it ends in a table.
const SCORE: &str = "score";

/// Runs the named cases.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let known = || IN_LAB.iter().chain(&bench_alone::CASES).chain([&SCORE]);
    if let Some(bad) = args.cases.iter().find(|case| !known().any(|k| k == case)) {
        let known: Vec<&str> = known().copied().collect();
        bail!("unknown case `{bad}`; there are: {}", known.join(", "));
    }
    let wants = |case: &str| args.cases.is_empty() || args.cases.iter().any(|c| c == case);
    if wants(SCORE) {
        print_score_table()?;
        if args.cases.iter().all(|case| case == SCORE) && !args.cases.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let alone: Vec<&str> = bench_alone::CASES
        .into_iter()
        .filter(|c| wants(c))
        .collect();
    let in_lab: Vec<&String> = args
        .cases
        .iter()
        .filter(|case| IN_LAB.contains(&case.as_str()))
        .collect();
    if !args.cases.is_empty() && in_lab.is_empty() {
        return bench_alone::run(&alone, args.json.as_deref(), bench_alone::Lines::Alone);
    }
    if !sh::is_root() {
        bail!("the benchmark makes network namespaces and loads kernel programs: run it as root");
    }
    setup::require_lab_tools()?;
    if wants("relay") || wants("udp") {
        peers::run(&peers::Args {})?;
    }
    let mut command = lab::built(true)?;
    command
        .arg("bench")
        .args(&in_lab)
        .env("HONK_PEERS", peers::folder());
    if args.quick {
        command.arg("--quick");
    }
    if let Some(file) = &args.json {
        command.args(["--json", file]);
    }
    let lab = sh::status(&mut command)?;
    if alone.is_empty() || !lab.success() {
        return Ok(sh::exit_code(lab));
    }
    bench_alone::run(
        &alone,
        args.json.as_deref(),
        bench_alone::Lines::AfterOthers,
    )
}

/// The table of `docs/SCORE.md`, in virtual time: no speed is measured, so the usual build does.
fn print_score_table() -> Result<()> {
    let mut command = sh::cargo(&["run", "--quiet", "--locked", "--package", "honk-tests"]);
    command.args(["--example", "score_table"]);
    eprintln!("$ {}", sh::show(&command));
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("score_table failed: {}", output.status);
    }
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
