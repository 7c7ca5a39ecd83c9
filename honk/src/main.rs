//! The honk binary: arguments in, exit code out.

mod api;
mod app;
mod cli;
mod clock;
mod datapath;
mod dns;
mod flow;
mod inbound;
mod log;
mod metrics;
mod netlink;
mod netns;
mod outbound;
mod probe;
mod relay;
mod socket;
mod state;
mod subscription;
#[cfg(test)]
mod testkit;
mod words;

fn main() -> std::process::ExitCode {
    cli::main()
}
