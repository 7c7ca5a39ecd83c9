//! `cargo xtask build`: the daemon and the lab binary, from the checked-in kernel object.

use anyhow::Result;

use crate::sh;

/// Arguments of `cargo xtask build`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Optimised build
    #[arg(long)]
    pub(crate) release: bool,
    /// Build the kernel object first instead of using the checked-in one
    #[arg(long)]
    pub(crate) ebpf: bool,
}

/// Builds the workspace's programs.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.ebpf {
        sh::run(&mut sh::cargo(&["xtask", "ebpf"]))?;
    }
    programs(args.release)
}

/// Builds `honk` and `honk-lab` with one profile.
pub(crate) fn programs(release: bool) -> Result<()> {
    let mut command = sh::cargo(&["build", "-p", "honk", "-p", "honk-tests", "--bins"]);
    if release {
        command.arg("--release");
    }
    sh::run(&mut command)
}
