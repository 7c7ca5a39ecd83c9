//! `cargo xtask demo`: one command that shows the whole thing working on a fresh machine.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{lab, setup, sh};

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Optimised build
    #[arg(long)]
    release: bool,
}

/// Builds, raises the lab, runs the scenario; PASS is exit code 0.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if !sh::is_root() {
        bail!("the demo makes network namespaces and loads kernel programs: run it as root");
    }
    setup::require_lab_tools()?;
    let mut command = lab::built(args.release)?;
    Ok(sh::exit_code(sh::status(command.arg("demo"))?))
}
