//! The typed configuration: what the syntax tree means.
//!
//! The model is in this file; [`lower()`] makes it of a parsed tree, one file per section, with
//! every finding collected. Types, ranges and what this build serves stand in the key table
//! ([`keys`]). Opens no file and knows no running state.

mod args;
mod check;
mod codes;
mod cond;
mod decl;
mod dns;
mod experimental;
mod filter;
mod geo;
mod global;
mod group;
mod hints;
mod interfaces;
pub mod keys;
mod later;
mod lower;
mod matcher;
mod names;
mod node;
mod places;
mod reach;
mod report;
mod routing;
mod subscription;
mod timing;
mod typed;
pub mod value;

pub use check::{BadCheckUrl, CheckDns, CheckUrl};
pub use codes::CODES;
pub use dns::{
    Dns, DnsAction, DnsCond, DnsRule, DnsTest, InternalName, Phase, Transport, Upstream,
};
pub use experimental::{MIN_SECRET, listen_address};
pub use global::OWN_MARK;
pub use lower::{Settings, examine, lower, restart_required};
pub use names::MAX_OUTBOUNDS;
pub use places::{GroupPlaces, Places};
pub use report::{NOT_BUILT, is_fatal, refuse_unbuilt};
pub use subscription::{Source, Subscription};
pub use timing::{Timing, timing};
pub use typed::Typed;

use std::time::Duration;

use crate::{
    id::{Ordinal, Secret},
    node::Node,
    routing::rule::RuleSet,
};

/// One accepted configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `global`.
    pub global: Global,
    /// Static nodes in declaration order.
    pub nodes: Vec<Node>,
    /// Groups in declaration order, then the implicit one-member groups of nodes that rules
    /// name. Entry `i` has configuration ordinal `2 + i`.
    pub groups: Vec<GroupDef>,
    /// Rules with their fallback.
    pub rules: RuleSet,
    /// `subscription` in declaration order.
    pub subscriptions: Vec<Subscription>,
    /// `dns`; its keys stand in the settings.
    pub dns: Dns,
    /// Declared values of the singleton sections.
    pub settings: Settings,
    /// Where its parts stand in the text.
    pub places: Places,
}

/// A code of a geodata file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GeoFile {
    /// File name.
    pub file: String,
    /// Code, lower-case.
    pub code: String,
    /// Attribute.
    pub attr: Option<String>,
}

/// Where a rule uses a geodata code for addresses.
struct GeoUse {
    /// Index of the rule line.
    line: usize,
    /// Index of the condition.
    cond: usize,
    /// What to look up.
    file: GeoFile,
}

/// `global`: the keys this build serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// UDP and TCP port of the transparent listeners inside the private namespace.
    pub tproxy_port: u16,
    /// `so_mark_from_dae`, or 0x100.
    pub own_mark: u32,
    /// Entries of the kernel flow table.
    pub flow_entries: u32,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub log_level: String,
    /// Patterns of LAN interfaces (`*` and `?` are wildcards).
    pub lan_interface: Vec<String>,
    /// Patterns of interfaces whose hooks take the gateway's own traffic; `auto` follows the
    /// default routes.
    pub wan_interface: Vec<String>,
    /// Write the gateway sysctls.
    pub auto_config_kernel_parameter: bool,
    /// `<state>`; `None` = built-in order.
    pub data_dir: Option<String>,
    /// What happens to non-direct verdicts after a crash.
    pub on_crash: OnCrash,
    /// Milliseconds a graceful stop waits for relays.
    pub drain_timeout_ms: u64,
    /// `ip:port` of the resolvers for node names, in order.
    pub bootstrap: Vec<std::net::SocketAddr>,
    /// Last resort for node names, after `bootstrap`.
    pub fallback_resolver: Option<std::net::SocketAddr>,
    /// Cap of concurrent physical proxied connects.
    pub max_concurrent_dials: u32,
    /// Per-flow log lines at info instead of debug.
    pub log_flows: bool,
    /// Opt the process out of transparent huge pages.
    pub disable_thp: bool,
    /// UDP flows that userspace finds direct go back to the kernel.
    pub nfqueue_enable: bool,
    /// What a rule with missing geodata does to the configuration.
    pub missing_geodata: MissingGeodata,
    /// Whether flows are sniffed for a name, and what the name is used for.
    pub dial_mode: DialMode,
    /// Milliseconds the first bytes of a client are awaited; 0 = not at all.
    pub sniffing_timeout_ms: u32,
}

/// `global.dial_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialMode {
    /// Names are not looked for; proxies are given addresses.
    Ip,
    /// A sniffed name counts once it is known to exist: it is routed by and given to proxies.
    Domain,
    /// A sniffed name is given to proxies, and routed by where the kernel asks for it.
    DomainPlus,
    /// A sniffed name is given to proxies and routed by.
    DomainPlusPlus,
}

impl DialMode {
    /// As written in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Domain => "domain",
            Self::DomainPlus => "domain+",
            Self::DomainPlusPlus => "domain++",
        }
    }
}

/// `global.missing_geodata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingGeodata {
    /// The configuration is refused.
    Error,
    /// The rule never matches.
    Skip,
}

/// `global.on_crash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCrash {
    /// Dropped until the daemon is back.
    Block,
    /// Passed as direct.
    Direct,
}

/// A declared group, or the implicit group of a node named by a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDef {
    /// Unique name.
    pub name: String,
    /// Configuration ordinal.
    pub ordinal: Ordinal,
    /// Policy.
    pub policy: Policy,
    /// `None`: all nodes. `Some`: explicit membership.
    pub filters: Option<Vec<FilterLine>>,
    /// `default:` of a selector.
    pub default: Option<String>,
    /// `final:`.
    pub final_: Option<String>,
    /// `check_url:` of an automatic group.
    pub check_url: Option<String>,
    /// `tolerance:` in milliseconds, as written.
    pub tolerance_ms: Option<u16>,
    /// `idle_timeout:` in seconds, as written.
    pub idle_timeout_s: Option<u64>,
    /// How its members are measured.
    pub probing: Probing,
    /// Milliseconds that a filter line adds to measured latencies: index of the line, offset.
    pub add_latency: Vec<(usize, i64)>,
    /// Close affected flows on a selection change.
    pub interrupt_connections: bool,
    /// `icon:`.
    pub icon: Option<Secret>,
    /// Made for a node that a rule names.
    pub implicit: bool,
}

impl GroupDef {
    /// A declared group of all nodes with every other key at its default.
    pub fn new(name: String, ordinal: Ordinal, policy: Policy) -> Self {
        Self {
            name,
            ordinal,
            policy,
            filters: None,
            default: None,
            final_: None,
            check_url: None,
            tolerance_ms: None,
            idle_timeout_s: None,
            probing: Probing::default(),
            add_latency: Vec::new(),
            interrupt_connections: false,
            icon: None,
            implicit: false,
        }
    }

    /// Period of probes and idle time; only urltest groups are ever idle.
    pub fn timing(&self, check_interval: Duration) -> Timing {
        let test = self.probing.test_interval_ms.map(Duration::from_millis);
        let (test, idle) = match self.policy {
            Policy::Selector => (None, Some(Duration::ZERO)),
            Policy::UrlTest => (test, self.idle_timeout_s.map(Duration::from_secs)),
            Policy::LoadBalance | Policy::Fallback | Policy::Score => (test, Some(Duration::ZERO)),
        };
        timing(test, idle, check_interval)
    }
}

/// Keys of a group about measurements, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probing {
    /// `test_interval:` in milliseconds; 0 is absent.
    pub test_interval_ms: Option<u64>,
    /// `passive_check:`; `None` inherits.
    pub passive_check: Option<bool>,
    /// `ping_url:`.
    pub ping_url: Option<String>,
    /// `ping_timeout:` in milliseconds.
    pub ping_timeout_ms: Option<u64>,
}

/// Selection policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The user's choice, then `default`, then the first member.
    Selector,
    /// The fastest member.
    UrlTest,
    /// All alive members in turn.
    LoadBalance,
    /// The first alive member.
    Fallback,
    /// The member with the best evidence.
    Score,
}

impl Policy {
    /// Name as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Selector => "selector",
            Self::UrlTest => "urltest",
            Self::LoadBalance => "loadbalance",
            Self::Fallback => "fallback",
            Self::Score => "score",
        }
    }
}

/// One `filter:` line: adds members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterLine {
    /// All predicates must hold for a node to join.
    Nodes(Vec<Predicate>),
    /// Nested groups by name.
    Groups(Vec<String>),
    /// A line that could not be used (W904, W905): selects nothing.
    Ignored,
}

/// One call of a filter line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicate {
    /// Written with `!`.
    pub not: bool,
    /// `name` or `subtag`.
    pub field: Field,
    /// Alternatives.
    pub tests: Vec<TextTest>,
}

/// What a predicate looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Node name.
    Name,
    /// Tag of the node's subscription.
    Subtag,
}

/// One alternative of a predicate; case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextTest {
    /// Equal.
    Exact(String),
    /// Contains.
    Keyword(String),
    /// Matches; known to compile.
    Regex(String),
}
