//! Project automation: one subcommand per module.
//!
//! Everything a developer or a checking machine does goes through here, so that both do the same.
//! No shell scripts; the modules read manifests and run tools, they never use the daemon's code.

mod bench;
mod bench_alone;
mod build;
mod demo;
mod ebpf;
mod fuzz;
mod lab;
mod peers;
mod setup;
mod sh;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Build, test and demonstrate honk",
    version
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what a fresh Debian 12 with Rust lacks; --check only reports
    Setup(setup::Args),
    /// Build the daemon (and the lab binary)
    Build(build::Args),
    /// Build the kernel object; --check proves the checked-in one
    Ebpf(ebpf::Args),
    /// Run all suites, or the named ones
    Test(test::Args),
    /// Raise a lab, send real flows through honk, print what went where
    Demo(demo::Args),
    /// Measure: direct, relay, udp, datapath, packets, policy, geo, config; play: score
    Bench(bench::Args),
    /// Namespace lab: up, down, exec
    Lab(lab::Args),
    /// Feed the parsers what they do not expect, for as long as wanted
    Fuzz(fuzz::Args),
    /// Fetch the rival proxies of the benchmark, checked by hash
    Peers(peers::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Setup(args) => setup::run(&args),
        Command::Build(args) => build::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Ebpf(args) => ebpf::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Test(args) => test::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Fuzz(args) => fuzz::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Peers(args) => peers::run(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
