//! `cargo xtask lab`: hands over to the `honk-lab` binary of package `tests/`.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::{build, sh};

/// Arguments of `cargo xtask lab`: those of `honk-lab` itself.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `up [--flat]`, `down`, `exec NS -- CMD`, `serve`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        default_value = "--help"
    )]
    args: Vec<String>,
}

/// Builds the lab binary when needed and runs it with the given arguments.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    sh::run(&mut sh::cargo(&[
        "build",
        "-q",
        "-p",
        "honk-tests",
        "--bins",
    ]))?;
    Ok(sh::exit_code(sh::status(lab(false)?.args(&args.args))?))
}

/// The lab binary of a profile, told where the daemon is.
pub(crate) fn lab(release: bool) -> Result<Command> {
    let dir = sh::bin_dir(release);
    let mut command = Command::new(dir.join("honk-lab"));
    command.current_dir(sh::root());
    if std::env::var_os("HONK_BIN").is_none() {
        command.env("HONK_BIN", dir.join("honk"));
    }
    Ok(command)
}

/// Builds both programs and returns the lab binary.
pub(crate) fn built(release: bool) -> Result<Command> {
    build::programs(release)?;
    lab(release)
}
