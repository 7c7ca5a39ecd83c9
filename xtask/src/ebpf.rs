//! Builds the kernel object and proves that the checked-in one equals a fresh build.

use anyhow::bail;

/// Arguments of `cargo xtask ebpf`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Prove that the checked-in object equals a fresh build
    #[arg(long)]
    check: bool,
}

impl Args {
    /// The arguments of `--check`.
    pub(crate) fn check() -> Self {
        Self { check: true }
    }
}

/// Builds, or proves with `--check`.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let verb = if args.check { "checked" } else { "built" };
    bail!("the kernel object cannot be {verb} yet: its sources are not in the tree")
}
