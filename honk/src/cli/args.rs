//! The command line: every command here works; what is not built does not exist.

mod groups;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::groups::{Group, Measure, Node, Order, PingSettings, Scope, Sort};

/// Transparent proxy for Linux gateways: eBPF decides, Rust relays.
#[derive(Debug, Parser)]
#[command(
    name = "honk",
    version = crate::cli::version::LINE,
    arg_required_else_help = true,
    infer_subcommands = false,
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 ok, 2 usage, 3 configuration, 4 permission, 5 no daemon, 6 conflict,\n\
                  7 not found, 8 timeout, 9 unsupported kernel, 10 findings, 11 partial."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes, before or after its name.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Entry configuration file [env: HONK_CONFIG] [default: /etc/honk/config.dae]
    #[arg(short, long, global = true, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of persistent files
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Directory of lock and API socket
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Daemon to talk to: `unix:PATH` or `http://HOST:PORT` [default: unix:<runtime>/api.sock]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "HONK_API",
        hide_env_values = true
    )]
    pub(crate) api: Option<String>,
    /// File whose first line is the token for an `http://` daemon [default: <state>/api.secret]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "HONK_API_TOKEN_FILE",
        hide_env_values = true
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// One JSON document on stdout
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Colours in human output
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
    /// How far a long command is, on stderr
    #[arg(long, global = true, value_name = "HOW", value_enum, default_value_t = Progress::Auto)]
    pub(crate) progress: Progress,
    /// How long a client waits in all, as 500ms, 10s or 2m; of `node ping` and `group test`, how
    /// long each measurement may take
    #[arg(long, global = true, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) timeout: Option<std::time::Duration>,
    /// What to do with configuration files whose mode is too open [env: HONK_CONFIG_PERM]
    #[arg(long, global = true, value_name = "WHAT", value_enum)]
    pub(crate) config_perm: Option<Perm>,
    /// Less on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// More on stderr
    #[arg(short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// error, warn, info, debug, trace, or a filter such as honk::dial=debug
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Same as --log-level debug
    #[arg(short, long, global = true, conflicts_with = "log_level")]
    pub(crate) debug: bool,
}

/// `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// `--progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    Auto,
    Always,
    Never,
    Json,
}

/// `--config-perm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Perm {
    Deny,
    Warn,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    Run(Run),
    /// Check a configuration and report everything that is wrong with it
    Validate(Validate),
    /// Print the canonical spelling of a configuration file
    Fmt(Fmt),
    /// Load the configuration again and wait for the outcome
    Reload(Reload),
    /// Let new flows go direct until `resume` or `reload`
    Suspend(Suspend),
    /// Intercept flows again after `suspend`
    Resume,
    /// Show the running daemon on one screen
    Status(Status),
    /// Groups: list, show, select, test
    #[command(subcommand, visible_aliases = ["groups", "g"])]
    Group(Group),
    /// Nodes: list, show, ping
    #[command(subcommand, visible_aliases = ["nodes", "n"])]
    Node(Node),
    /// What measurements ask for, and for how long
    #[command(subcommand)]
    PingSettings(PingSettings),
    /// Subscriptions: list, show, refresh, test
    #[command(subcommand, visible_aliases = ["subs", "subscription"])]
    Sub(Sub),
    /// Live connections: list, close
    #[command(subcommand, visible_aliases = ["conns", "c"])]
    Conn(Conn),
    /// DNS: what answers taught
    #[command(subcommand)]
    Dns(Dns),
    /// Watch decisions as they are taken
    #[command(subcommand)]
    Trace(Trace),
    /// Look for what keeps honk from working, and say what to do
    #[command(visible_alias = "doctor")]
    Diag(Diag),
    /// The API: its token
    #[command(subcommand)]
    Api(Api),
    /// Remove what a dead daemon left in the kernel
    Cleanup(Cleanup),
    /// Print a completion script
    Completion(Completion),
    /// Print a manual page
    Man(Man),
    /// Print version and build
    Version,
}

/// `honk fmt`
#[derive(Debug, Args)]
pub(crate) struct Fmt {
    /// Read the document from stdin
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Print nothing; exit 10 when the text differs
    #[arg(long)]
    pub(crate) check: bool,
}

/// `honk suspend`
#[derive(Debug, Args)]
pub(crate) struct Suspend {
    /// Process number; refused unless it is that of the running daemon
    pub(crate) pid: Option<u32>,
    /// Close the flows that honk carries
    #[arg(short, long)]
    pub(crate) abort: bool,
}

/// `honk completion`
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// For which shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// `honk man`
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Of this command, such as `group select`
    pub(crate) command: Vec<String>,
}

/// `honk run`
#[derive(Clone, Debug, Args)]
pub(crate) struct Run {
    /// Root of BPF pins
    #[arg(long, value_name = "PATH", default_value = "/sys/fs/bpf")]
    pub(crate) bpf_pin_root: PathBuf,
    /// Start without the API socket
    #[arg(long)]
    pub(crate) no_api: bool,
    /// Leave out nodes that cannot be built, even more than 10
    #[arg(long)]
    pub(crate) keep_checking: bool,
    /// Start everything, report ready, stop
    #[arg(long)]
    pub(crate) check: bool,
    /// Log format
    #[arg(long, value_enum, default_value_t = LogFormat::Auto)]
    pub(crate) log_format: LogFormat,
    /// Leave times out of text logs
    #[arg(long)]
    pub(crate) disable_timestamp: bool,
    /// Write no <runtime>/honk.pid
    #[arg(long)]
    pub(crate) disable_pidfile: bool,
}

/// `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Auto,
    Text,
    Json,
}

/// `honk validate`
#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    /// Exit 10 on this code, or on any warning
    #[arg(long, value_name = "warnings|CODE")]
    pub(crate) deny: Vec<String>,
    /// Never exit 10 because of this code
    #[arg(long, value_name = "CODE")]
    pub(crate) allow: Vec<String>,
    /// Deny all warnings
    #[arg(long)]
    pub(crate) strict: bool,
    /// Read the entry document from stdin; includes are relative to the directory of -c
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Also build every node, as a start would
    #[arg(long)]
    pub(crate) build: bool,
    /// Also print a part of the accepted configuration
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) dump: Option<Dump>,
    /// Also print the resolved picture: what each file gave, groups with members, rules
    #[arg(long, conflicts_with = "dump")]
    pub(crate) explain: bool,
}

/// `validate --format`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Human,
    Short,
    Json,
    /// SARIF 2.1.0, findings only
    Sarif,
}

/// `validate --dump`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dump {
    Resolved,
    Sections,
    Nodes,
    Groups,
    Rules,
    Ordinals,
}

/// `honk reload`
#[derive(Debug, Args)]
pub(crate) struct Reload {
    /// Process number; refused unless it is that of the running daemon
    pub(crate) pid: Option<u32>,
    /// Close every flow of the generation that ends
    #[arg(short, long)]
    pub(crate) abort: bool,
    /// Ask for the reload and leave
    #[arg(long, conflicts_with = "attach")]
    pub(crate) no_wait: bool,
    /// Wait for a reload that already runs instead of asking for another
    #[arg(long)]
    pub(crate) attach: bool,
    /// Do not fetch subscriptions
    #[arg(long)]
    pub(crate) no_subscriptions: bool,
}

/// Redrawing.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Watch {
    /// Redraw every SECS seconds (1..60)
    #[arg(
        long,
        value_name = "SECS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=60)
    )]
    pub(crate) watch: Option<u64>,
}

/// `honk status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) watch: Watch,
    /// Wait until flows are intercepted, at most this many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with = "watch")]
    pub(crate) wait: Option<u64>,
}

/// `honk sub`
#[derive(Debug, Subcommand)]
pub(crate) enum Sub {
    /// All subscriptions with their state
    List {
        #[command(flatten)]
        watch: Watch,
    },
    /// One subscription: what it brought, what was left out and why
    Show {
        /// Tag or id
        sub: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Fetch now and wait for the outcome
    #[command(visible_alias = "update")]
    Refresh {
        /// Tags or ids; none is all
        subs: Vec<String>,
        /// Ask for it and leave
        #[arg(long)]
        no_wait: bool,
    },
    /// Read a body from a file, or from stdin with `-`, and report what it holds
    Test {
        /// File, or `-`
        source: PathBuf,
        /// auto, simple, sip008, clash, singbox or xray
        #[arg(long, default_value = "auto", value_parser = ["auto", "simple", "sip008", "clash", "singbox", "xray"])]
        format: String,
    },
}

/// `honk dns`
#[derive(Debug, Subcommand)]
pub(crate) enum Dns {
    /// Addresses, the names they were given out for, and the rules those meet
    Map {
        /// Only this address
        #[arg(long, conflicts_with = "name")]
        ip: Option<std::net::IpAddr>,
        /// Only addresses of this name
        #[arg(long)]
        name: Option<String>,
    },
}

/// `honk api`
#[derive(Debug, Subcommand)]
pub(crate) enum Api {
    /// Print the token that was made for the TCP API
    Secret {
        /// Make another one; the daemon takes it at its next start
        #[arg(long)]
        rotate: bool,
    },
}

/// `honk conn`
#[derive(Debug, Subcommand)]
pub(crate) enum Conn {
    /// Live connections
    List {
        #[command(flatten)]
        filter: Filter,
        /// The last ones that ended instead
        #[arg(long)]
        closed: bool,
    },
    /// Close connections
    Close {
        /// Their ids
        #[arg(conflicts_with_all = ["all", "src", "dst", "host", "group", "node", "network", "rule"])]
        ids: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with_all = ["src", "dst", "host", "group", "node", "network", "rule"])]
        all: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        filter: Filter,
    },
}

/// Filters of `conn`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filter {
    #[command(flatten)]
    pub(crate) flows: Flows,
    /// Node name or id
    #[arg(long)]
    pub(crate) node: Option<String>,
}

/// Which flows are meant: of those carried, and of those decided.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Flows {
    /// Source address or prefix
    #[arg(long, value_name = "CIDR")]
    pub(crate) src: Option<String>,
    /// Destination address or prefix
    #[arg(long, value_name = "CIDR")]
    pub(crate) dst: Option<String>,
    /// Name of the target, or `.suffix`
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Outbound, or any group on the way
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// tcp or udp
    #[arg(long, value_parser = ["tcp", "udp"])]
    pub(crate) network: Option<String>,
    /// Index of the rule line
    #[arg(long)]
    pub(crate) rule: Option<u16>,
}

/// `honk cleanup`
#[derive(Debug, Args)]
pub(crate) struct Cleanup {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// Keep what a crashed daemon left on purpose (`on_crash: block`)
    #[arg(long)]
    pub(crate) if_stale: bool,
    /// Root of BPF pins
    #[arg(long, value_name = "PATH", default_value = "/sys/fs/bpf")]
    pub(crate) bpf_pin_root: PathBuf,
}

/// `honk trace`
#[derive(Debug, Subcommand)]
pub(crate) enum Trace {
    /// New flows: who, where to, verdict, reason, rule line; until Ctrl-C
    Flow(Flow),
}

/// `honk trace flow`
#[derive(Debug, Args)]
pub(crate) struct Flow {
    #[command(flatten)]
    pub(crate) flows: Flows,
    /// End after this many
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// End after this time
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) duration: Option<std::time::Duration>,
}

/// `honk diag`
#[derive(Debug, Args)]
pub(crate) struct Diag {
    /// Root of BPF pins
    #[arg(long, value_name = "PATH", default_value = "/sys/fs/bpf")]
    pub(crate) bpf_pin_root: PathBuf,
}

/// `90s`, `500ms`, `2m`, `1h`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| "expected a number with ms, s, m or h, such as 90s".to_owned())?;
    let scale = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        other => return Err(format!("unknown unit `{other}`; use ms, s, m or h")),
    };
    let millis = number.checked_mul(scale).filter(|ms| *ms <= 86_400_000);
    millis
        .map(std::time::Duration::from_millis)
        .ok_or_else(|| "at most 24h".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_table_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_stand_before_or_after_the_command() {
        for line in [
            ["honk", "--json", "group", "list", "-c", "/x.dae"],
            ["honk", "-c", "/x.dae", "groups", "list", "--json"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert!(cli.global.json);
            assert_eq!(cli.global.config.as_deref(), Some("/x.dae".as_ref()));
        }
    }

    #[test]
    fn no_command_is_short_help_with_exit_2() {
        let error = Cli::try_parse_from(["honk"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("Usage: honk"));
    }

    #[test]
    fn an_unknown_command_suggests_the_nearest() {
        let error = Cli::try_parse_from(["honk", "relaod"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("'reload'"), "{error}");
    }

    #[test]
    fn durations_have_units_and_a_limit() {
        let ms = |t| parse_duration(t).map(|d| d.as_millis());
        assert_eq!(ms("90s"), Ok(90_000));
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("2"), Ok(2_000));
        assert!(ms("2d").is_err() && ms("s").is_err() && ms("25h").is_err());
    }

    #[test]
    fn watch_without_a_number_is_two_seconds() {
        let Command::Status(s) = Cli::try_parse_from(["honk", "status", "--watch"])
            .unwrap()
            .command
        else {
            panic!("status expected");
        };
        assert_eq!(s.watch.watch, Some(2));
        assert!(Cli::try_parse_from(["honk", "status", "--watch", "61"]).is_err());
    }
}
