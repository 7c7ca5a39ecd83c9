//! Commands about groups and nodes, and about measuring them.

use clap::{Args, Subcommand, ValueEnum};

use super::{Watch, parse_duration};

/// `honk group`
#[derive(Debug, Subcommand)]
pub(crate) enum Group {
    /// All groups with their current members
    List {
        #[command(flatten)]
        watch: Watch,
    },
    /// One group with members and selection paths
    Show {
        /// Name or id
        group: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// What the group does and why, in a paragraph
    Explain {
        /// Name or id
        group: String,
    },
    /// Choose a member
    Select {
        /// Name or id
        group: String,
        /// Name or id of a direct member
        member: String,
        /// Which flows
        #[arg(long, value_enum, default_value_t = Scope::Both)]
        network: Scope,
        /// Take the first member of that name
        #[arg(long)]
        first: bool,
    },
    /// Measure the members; Ctrl-C calls it off
    Test {
        /// Name or id
        group: String,
        /// Test an automatic group instead, which then chooses anew
        #[arg(long, conflicts_with_all = ["url", "concurrency", "family", "sort", "limit"])]
        reselect: bool,
        #[command(flatten)]
        how: Measure,
    },
    /// Drop the choice: back to `default`, else the first member
    Unpin {
        /// Name or id
        group: String,
        /// Which flows
        #[arg(long, value_enum, default_value_t = Scope::Both)]
        network: Scope,
    },
}

/// How measurements are made and shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct Measure {
    /// What to ask for; else the `ping_url` of the group or of `global`
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Measurements at a time; else `ping_concurrency`
    #[arg(long, value_name = "1..64")]
    pub(crate) concurrency: Option<usize>,
    /// Over which addresses of the nodes
    #[arg(long, value_parser = ["v4", "v6", "any"])]
    pub(crate) family: Option<String>,
    /// Order of the table
    #[arg(long, value_enum, default_value_t = Sort::Latency)]
    pub(crate) sort: Sort,
    /// Show only the first N
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// `--sort` of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Latency,
    Name,
}

/// `--sort` of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// As configured
    Config,
    Name,
    Delay,
    Sub,
}

/// `--network`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    Tcp,
    Udp,
    Both,
}

impl Scope {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Both => "both",
        }
    }
}

/// `honk node`
#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// All nodes
    List {
        /// Only members of this group
        #[arg(long)]
        group: Option<String>,
        /// Only nodes of this subscription
        #[arg(long)]
        sub: Option<String>,
        /// Only nodes in this state
        #[arg(long, value_parser = ["alive", "dead", "unknown", "disabled"])]
        state: Option<String>,
        /// Order of the table
        #[arg(long, value_enum, default_value_t = Order::Config)]
        sort: Order,
        #[command(flatten)]
        watch: Watch,
    },
    /// Measure nodes; Ctrl-C calls it off
    Ping {
        /// Names or ids
        #[arg(required_unless_present_any = ["group", "all"], conflicts_with_all = ["group", "all"])]
        nodes: Vec<String>,
        /// The members of a group
        #[arg(long, conflicts_with = "all")]
        group: Option<String>,
        /// All nodes
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        how: Measure,
    },
    /// One node
    Show {
        /// Name or id
        node: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Use a node again
    Enable {
        /// Name or id
        node: String,
    },
    /// Use a node no more, until it is enabled again
    Disable {
        /// Name or id
        node: String,
        /// A word why, for others
        #[arg(long)]
        reason: Option<String>,
    },
}

/// `honk ping-settings`
#[derive(Debug, Subcommand)]
pub(crate) enum PingSettings {
    /// What holds, and who says so
    Get {
        /// For the members of this group
        #[arg(long)]
        group: Option<String>,
    },
    /// Set it until it is reset; what is left out is not set
    Set {
        /// For the members of this group
        #[arg(long)]
        group: Option<String>,
        /// What to ask for
        #[arg(long, required_unless_present = "deadline")]
        url: Option<String>,
        /// How long a measurement may take
        #[arg(long, value_name = "DUR", value_parser = parse_duration)]
        deadline: Option<std::time::Duration>,
    },
    /// Back to what the configuration says
    Reset {
        /// For the members of this group
        #[arg(long)]
        group: Option<String>,
    },
}
