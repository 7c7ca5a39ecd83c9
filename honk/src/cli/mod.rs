//! Subcommands and their output.
//!
//! Parses arguments, calls one command, turns its outcome into text and an exit code. Commands
//! that need the daemon talk to its API; nothing here touches the kernel or a daemon's memory.

mod api;
pub(crate) mod args;
mod cleanup;
pub(crate) mod client;
pub(crate) mod config_path;
mod conn;
mod diag;
mod dns;
mod dump;
pub(crate) mod exit;
mod explain;
mod fmt;
mod generate;
mod group;
mod latency;
mod lookup;
mod measure;
mod node;
pub(crate) mod output;
mod ping_settings;
mod progress;
mod reload;
mod run;
mod sarif;
mod score;
mod status;
mod sub;
mod table;
mod trace;
mod validate;
pub(crate) mod version;
mod watch;

use std::{ffi::OsString, process::ExitCode, time::Duration};

use clap::{
    CommandFactory as _, Parser as _,
    error::{ContextKind, ContextValue},
};
use rustix::fs::Access;

use self::{
    args::{Cli, Command, Global, Perm},
    client::{Client, Token},
    exit::{Exit, Failure},
    output::Output,
};
use crate::{
    app::{
        loader::{Files, ModeRule},
        source::Spec,
    },
    state::{
        dirs::{Dirs, Wanted},
        geodata::Geodata,
    },
};

pub(crate) use crate::words::plural;

/// What every command gets.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) global: Global,
    pub(crate) out: Output,
}

/// The process's environment.
pub(crate) fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The program: arguments in, exit code out.
pub(crate) fn main() -> ExitCode {
    let json = std::env::args_os().any(|a| a == "--json");
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&named(e), json),
    };
    let out = Output::new(&cli.global, &env);
    let invocation = Invocation {
        global: cli.global,
        out,
    };
    let result = dispatch(&invocation, cli.command);
    finish(&invocation.out, result)
}

fn dispatch(invocation: &Invocation, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(invocation, args),
        Command::Validate(args) => validate::run(invocation, &args),
        Command::Fmt(args) => fmt::run(invocation, &args),
        Command::Cleanup(args) => cleanup::run(invocation, &args),
        Command::Diag(args) => diag::run(invocation, &args),
        Command::Api(command) => api::run(invocation, &command),
        Command::Completion(args) => generate::completion(&invocation.out, &args),
        Command::Man(args) => generate::man(&invocation.out, &args),
        Command::Version => version::run(&invocation.out),
        Command::Sub(args::Sub::Test { source, format }) => {
            sub::test(&invocation.out, &source, &format)
        }
        command => with_daemon(invocation, command),
    }
}

/// Commands that ask the daemon.
fn with_daemon(invocation: &Invocation, command: Command) -> Result<Exit, Failure> {
    let session = invocation.session()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Exit::Failure, "runtime", e.to_string()))?;
    runtime.block_on(ask(&session, command))
}

async fn ask(session: &Session, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Status(args) => status::run(session, &args).await,
        Command::Reload(args) => reload::run(session, &args).await,
        Command::Suspend(args) => reload::suspend(session, &args).await,
        Command::Resume => reload::resume(session).await,
        Command::Group(command) => group::run(session, command).await,
        Command::Node(command) => node::run(session, command).await,
        Command::PingSettings(command) => ping_settings::run(session, &command).await,
        Command::Sub(command) => sub::run(session, command).await,
        Command::Conn(command) => conn::run(session, command).await,
        Command::Dns(command) => dns::run(session, command).await,
        Command::Trace(command) => trace::run(session, command).await,
        Command::Run(_)
        | Command::Validate(_)
        | Command::Fmt(_)
        | Command::Cleanup(_)
        | Command::Diag(_)
        | Command::Api(_)
        | Command::Completion(_)
        | Command::Man(_)
        | Command::Version => Ok(Exit::Success),
    }
}

/// A conversation with the daemon.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) out: Output,
    pub(crate) dirs: Dirs,
    /// `--timeout`
    pub(crate) timeout: Option<Duration>,
    /// `--progress`
    pub(crate) progress: args::Progress,
}

/// Help and version are results; anything else is a mistake in the arguments.
fn usage(e: &clap::Error, json: bool) -> ExitCode {
    let code = u8::try_from(e.exit_code()).unwrap_or_else(|_| Exit::Usage.code());
    if json && code != 0 {
        let failure = Failure::new(Exit::Usage, "usage", said(&e.to_string()));
        println_quietly(&failure.document().to_string());
    }
    // A closed pipe has nobody to complain to.
    let _ = e.print();
    ExitCode::from(code)
}

/// The error with aliases among its suggestions replaced by the commands they stand for.
fn named(mut e: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    if let Some(ContextValue::Strings(words)) = e.get(kind) {
        let table = Cli::command();
        let name = |word: &String| {
            let command = table.find_subcommand(word);
            command.map_or_else(|| word.clone(), |c| c.get_name().to_owned())
        };
        let mut names: Vec<String> = words.iter().map(name).collect();
        names.sort_unstable();
        names.dedup();
        e.insert(kind, ContextValue::Strings(names));
    }
    e
}

/// What an error of the parser says, in one line and without the usage that follows it.
fn said(text: &str) -> String {
    let text = text.trim_start_matches("error: ");
    let end = ["\nUsage:", "\nFor more information"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let text = text.get(..end.unwrap_or(text.len())).unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn finish(out: &Output, result: Result<Exit, Failure>) -> ExitCode {
    let failure = match result {
        Ok(exit) => return ExitCode::from(exit.code()),
        Err(failure) => failure,
    };
    if !failure.message.is_empty() {
        eprintln!("honk: {}", failure.message);
        if out.json {
            println_quietly(&failure.document().to_string());
        }
    }
    ExitCode::from(failure.exit.code())
}

fn println_quietly(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// A file that may not be read is no mistake in the configuration.
fn allowed(path: &std::path::Path) -> Result<(), Failure> {
    match std::fs::metadata(path)
        .and_then(|_| rustix::fs::access(path, Access::READ_OK).map_err(Into::into))
    {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            let text = format!(
                "not allowed to read {}; run as root or as its owner",
                path.display()
            );
            Err(Failure::new(Exit::Permission, "permission", text))
        }
        _ => Ok(()),
    }
}

impl Invocation {
    /// The configuration to read, by the search order.
    pub(crate) fn spec(&self) -> Result<Spec, Failure> {
        let found = config_path::find(self.global.config.as_ref(), &env, &|p| p.exists())?;
        if let Some(note) = &found.note {
            self.out.note(note);
        }
        allowed(&found.path)?;
        Ok(Spec {
            entry: found.path,
            files: self.files(),
            geodata: Geodata::new(&self.wanted(), &env),
        })
    }

    /// The same for a document that comes from elsewhere: without `-c`, includes are relative
    /// to the working directory.
    pub(crate) fn spec_or_here(&self) -> Spec {
        let entry = self.global.config.clone();
        Spec {
            entry: entry.unwrap_or_else(|| "./stdin.dae".into()),
            files: self.files(),
            geodata: Geodata::new(&self.wanted(), &env),
        }
    }

    fn files(&self) -> Files {
        let from_env = env("HONK_CONFIG_PERM").is_some_and(|v| v == "warn");
        let warn = match self.global.config_perm {
            Some(perm) => perm == Perm::Warn,
            None => from_env,
        };
        let rule = if warn { ModeRule::Warn } else { ModeRule::Deny };
        Files::new(rule, &env)
    }

    fn session(&self) -> Result<Session, Failure> {
        let dirs = self.dirs(None)?;
        let api = self.global.api.as_deref();
        let client = Client::new(api, dirs.socket(), self.global.timeout)?;
        let token = || {
            let variable = env("HONK_API_TOKEN").and_then(|v| v.into_string().ok());
            Token::find(self.global.token_file.as_deref(), variable, &dirs.secret())
        };
        Ok(Session {
            client: client.with_token(token)?,
            out: self.out.clone(),
            dirs,
            timeout: self.global.timeout,
            progress: self.global.progress,
        })
    }

    /// The log filter from flag or environment; it wins over the configuration.
    fn log_filter(&self) -> Option<String> {
        let variable = |name| env(name).and_then(|v| v.into_string().ok());
        let steps = match (self.global.quiet, self.global.verbose) {
            (true, _) => Some("error"),
            (false, 0) => None,
            (false, 1) => Some("debug"),
            (false, _) => Some("trace"),
        };
        let debug = self.global.debug.then_some("debug");
        let flag = self.global.log_level.as_deref().or(debug).or(steps);
        let flag = flag.map(str::to_owned);
        flag.or_else(|| variable("HONK_LOG"))
            .or_else(|| variable("RUST_LOG"))
    }

    /// The directories of the instance; `data_dir` as configured, when it is known.
    pub(crate) fn dirs(&self, data_dir: Option<&str>) -> Result<Dirs, Failure> {
        Dirs::resolve(&self.wanted(), data_dir, &env)
            .map_err(|e| Failure::new(Exit::Usage, "usage", e.to_string()))
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            state: self.global.state_dir.clone(),
            runtime: self.global.runtime_dir.clone(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
