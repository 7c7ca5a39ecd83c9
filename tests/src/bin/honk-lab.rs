//! The lab at the command line: up, down, exec, serve, demo, bench.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use honk_tests::bench::Settings;
use honk_tests::lab::{Lab, Profile, addr, origin_addresses};
use honk_tests::netns::Netns;
use honk_tests::serve::{Origin, Proxy, ProxySettings};

/// The one lasting lab that `up`, `down`, `exec` and `serve` share.
const ID: &str = "lab";

#[derive(Parser)]
#[command(name = "honk-lab", about = "Namespace lab of honk")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the lasting lab
    Up {
        /// The client's cable is `lan` itself, without a bridge
        #[arg(long)]
        flat: bool,
    },
    /// Take the lasting lab down
    Down,
    /// Run a command in a namespace of the lasting lab: hc1, hc2, hg, hw, hp, hp2, ho
    Exec {
        /// Role of the namespace
        role: String,
        /// The command
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Measure honk against plain forwarding (direct) and rivals (relay)
    Bench {
        /// direct, relay, udp, datapath, packets, policy, probes, score-lab; all when none is named
        cases: Vec<String>,
        /// Only these engines, to profile one: kernel, honk, sing-box, mihomo
        #[arg(long = "engine")]
        engines: Vec<String>,
        /// Fewer seconds per run
        #[arg(long)]
        quick: bool,
        /// File for JSON lines; `-` is standard output
        #[arg(long)]
        json: Option<String>,
    },
    /// Send real flows through honk and print what went where
    Demo,
    /// Run origins and both upstreams in the lasting lab until interrupted
    Serve,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Up { flat } => up(flat),
        Command::Down => Lab::down(ID).map(|()| ExitCode::SUCCESS),
        Command::Exec { role, command } => exec(&role, &command),
        Command::Demo => honk_tests::demo::run().map(passed),
        Command::Bench {
            cases,
            engines,
            quick,
            json,
        } => honk_tests::bench::run(&Settings {
            cases,
            engines,
            quick,
            json,
        })
        .map(|()| ExitCode::SUCCESS),
        Command::Serve => serve(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("honk-lab: {error:#}");
        ExitCode::FAILURE
    })
}

fn passed(ok: bool) -> ExitCode {
    if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn up(flat: bool) -> Result<ExitCode> {
    let lab = Lab::up(if flat { Profile::Flat } else { Profile::Bridge }, ID)?;
    for (role, ns) in lab.all() {
        println!("{role:<4} {}", ns.name());
    }
    println!("enter one with `cargo xtask lab exec hc1 -- CMD`, end with `cargo xtask lab down`");
    Ok(ExitCode::SUCCESS)
}

fn role(role: &str) -> Result<Netns> {
    if !Lab::lasting().iter().any(|id| id == ID) {
        bail!("the lab is not up: `cargo xtask lab up`");
    }
    Netns::open(&format!("hl-{ID}-{role}"))
        .with_context(|| format!("no role {role}: hc1, hc2, hg, hw, hp, hp2, ho"))
}

fn exec(name: &str, command: &[String]) -> Result<ExitCode> {
    let (program, args) = command.split_first().context("no command")?;
    let status = role(name)?
        .command(program)
        .args(args)
        .status()
        .with_context(|| format!("cannot start {program}"))?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    ))
}

fn serve() -> Result<ExitCode> {
    let _origin = Origin::start(&role("ho")?, &origin_addresses())?;
    let settings = || ProxySettings::default();
    let _first = Proxy::start(&role("hp")?, &[addr::HP, addr::HP_V6], settings())?;
    let _second = Proxy::start(&role("hp2")?, &[addr::HP2, addr::HP2_V6], settings())?;
    println!(
        "serving: origins in ho, SOCKS5 1080 and HTTP CONNECT 8080 in hp and hp2; Ctrl-C ends"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    Ok(ExitCode::SUCCESS)
}
