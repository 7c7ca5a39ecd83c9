//! `cargo xtask bench`: measures in the lab, always with release builds.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{lab, peers, setup, sh};

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// direct, relay, datapath, policy; all when none is named
    cases: Vec<String>,
    /// Fewer seconds per run (still at least five runs)
    #[arg(long)]
    quick: bool,
    /// Write one JSON line per case to FILE; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

const CASES: [&str; 4] = ["direct", "relay", "datapath", "policy"];

/// Runs the named cases.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(bad) = args
        .cases
        .iter()
        .find(|case| !CASES.contains(&case.as_str()))
    {
        bail!("unknown case `{bad}`; there are: {}", CASES.join(", "));
    }
    if !sh::is_root() {
        bail!("the benchmark makes network namespaces and loads kernel programs: run it as root");
    }
    setup::require_lab_tools()?;
    let wants = |case: &str| args.cases.is_empty() || args.cases.iter().any(|c| c == case);
    if wants("relay") {
        peers::run(&peers::Args {})?;
    }
    let mut command = lab::built(true)?;
    command
        .arg("bench")
        .args(&args.cases)
        .env("HONK_PEERS", peers::folder());
    if args.quick {
        command.arg("--quick");
    }
    if let Some(file) = &args.json {
        command.args(["--json", file]);
    }
    Ok(sh::exit_code(sh::status(&mut command)?))
}
