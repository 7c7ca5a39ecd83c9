//! The key table: every declaration the language knows, with type, default, range and class.
//!
//! Drives unknown-key checks, suggestions, type checks, the "not built yet" refusal, the
//! restart check of a reload and the reference documentation. Holds data only; `decl` reads
//! declarations by it.

mod dns;
mod experimental;
mod global;
mod group;
mod later;
mod note;

pub use dns::DNS;
pub use experimental::EXPERIMENTAL;
pub use global::GLOBAL;
pub use group::{AUTO_OPTIONS, GROUP};
pub use later::{BYPASS, CHAIN, ESCALATE, SPEEDTEST, SPEEDTEST_SERVER, WATCH, WATCH_SET};
pub use note::{FILTER_NOTES, NODE_NOTES, SUBSCRIPTION_NOTES};

use std::fmt;

use super::value::Unit;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name as written.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// Default as it would be written; empty for unset, an empty text or an empty list.
    pub default: &'static str,
    /// What a change needs.
    pub reload: Reload,
    /// Whether this build serves it.
    pub built: Built,
    /// One line for people.
    pub meaning: &'static str,
}

/// What a changed value needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// Applied on reload.
    Hot,
    /// Restart required: a reload that changes it is refused.
    Restart,
}

/// Whether this build serves a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Built {
    /// Served.
    Yes,
    /// Only the default is served; `honk run` refuses other values.
    No,
    /// Its whole section is not served; the refusal names the section.
    Section,
    /// Accepted without effect; other values than the default get W214.
    NoOp,
    /// Left over from dae: accepted without effect, W213.
    Deprecated,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Boolean.
    Bool,
    /// Integer with bounds.
    Int(u64, u64),
    /// Integer with bounds, or `auto`.
    AutoInt(u64, u64),
    /// `a-b` or one integer, with bounds.
    IntRange(u64, u64),
    /// Duration: base unit, bounds in milliseconds.
    Duration(Unit, i64, i64),
    /// Bytes per second.
    Bandwidth,
    /// One of these words; the pairs are other spellings.
    Word(
        &'static [&'static str],
        &'static [(&'static str, &'static str)],
    ),
    /// As `Word`, in any case.
    AnyCaseWord(&'static [&'static str]),
    /// Packet mark.
    Mark,
    /// Absolute path.
    AbsolutePath,
    /// Free text.
    Text,
    /// Free text, or a function call.
    CallText,
    /// Free text that is never shown.
    Secret,
    /// Absolute http or https URL.
    Url,
    /// `ip:port` or empty.
    Address,
    /// List of interface patterns; whether `auto` is legal.
    Interfaces(bool),
    /// List of resolvers: `ip[:port]`, with `udp://` or `tcp://` in front.
    Resolvers,
    /// URL, then addresses used instead of resolving its host.
    CheckUrl,
    /// Host or address, then addresses.
    CheckDns,
    /// List of texts.
    Texts,
    /// List of these words.
    Words(&'static [&'static str]),
    /// List of address prefixes.
    Prefixes,
    /// List of integers with bounds.
    Integers(u64, u64),
    /// Path, not empty.
    Path,
    /// URL or `preset(name)`.
    Preset,
    /// Address of the DNS listener.
    Bind,
    /// Client subnet of DNS queries.
    Subnet,
    /// Gone; what to use instead.
    Removed(&'static str),
    /// Anything: read by its own code.
    Own,
}

impl Kind {
    /// Whether the value is a list: literals are split on commas and declarations add up.
    pub fn is_list(self) -> bool {
        matches!(
            self,
            Self::Interfaces(_)
                | Self::Resolvers
                | Self::CheckUrl
                | Self::CheckDns
                | Self::Texts
                | Self::Words(_)
                | Self::Prefixes
                | Self::Integers(..)
        )
    }

    /// Whether a call is a legal value; it means the same as its text in quotes.
    pub fn takes_call(self) -> bool {
        matches!(self, Self::Preset | Self::Subnet | Self::CallText)
    }

    /// Whether `key:` without a value is legal.
    pub fn may_be_empty(self) -> bool {
        match self {
            Self::Text | Self::Secret | Self::Address | Self::Preset | Self::Own => true,
            Self::Bind | Self::Subnet | Self::CallText => true,
            Self::Word(_, aliases) => aliases.iter().any(|(from, _)| from.is_empty()),
            kind => kind.is_list(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int(min, max) => write!(f, "integer {}", Bounds(*min, *max)),
            Self::AutoInt(min, max) => write!(f, "`auto` or integer {}", Bounds(*min, *max)),
            Self::IntRange(min, max) => write!(f, "range `a-b` within {}", Bounds(*min, *max)),
            Self::Duration(unit, ..) => match unit {
                Unit::Millis => f.write_str("duration, bare number in milliseconds"),
                Unit::Seconds => f.write_str("duration, bare number in seconds"),
            },
            Self::Bandwidth => f.write_str("bandwidth"),
            Self::Word(words, aliases) => {
                f.write_str(&choice(words))?;
                let aliases = aliases.iter().filter(|(from, _)| !from.is_empty());
                aliases
                    .into_iter()
                    .try_for_each(|(from, to)| write!(f, "; `{from}` is `{to}`"))
            }
            Self::AnyCaseWord(words) => f.write_str(&choice(words)),
            Self::Words(words) => write!(f, "list of {}", choice(words)),
            Self::Mark => f.write_str("packet mark"),
            Self::AbsolutePath => f.write_str("absolute path"),
            Self::Path => f.write_str("path"),
            Self::Text | Self::CallText | Self::Own | Self::Removed(_) => f.write_str("text"),
            Self::Secret => f.write_str("secret text"),
            Self::Url => f.write_str("http(s) URL"),
            Self::Preset => f.write_str("http(s) URL or `preset(name)`"),
            Self::Address => f.write_str("`ip:port`"),
            Self::Bind => f.write_str("listener address"),
            Self::Subnet => f.write_str("address, prefix or `auto`"),
            Self::Interfaces(_) => f.write_str("list of interfaces"),
            Self::Resolvers => f.write_str("list of resolver addresses"),
            Self::CheckUrl => f.write_str("http(s) URL, then addresses"),
            Self::CheckDns => f.write_str("host or address, then addresses"),
            Self::Texts => f.write_str("list of texts"),
            Self::Prefixes => f.write_str("list of prefixes"),
            Self::Integers(min, max) => write!(f, "list of integers {}", Bounds(*min, *max)),
        }
    }
}

/// `min-max`, or `>= min` when the upper end is only that of the type.
struct Bounds(u64, u64);

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(min, max) if *max >= u64::from(u32::MAX) => write!(f, ">= {min}"),
            Self(min, max) => write!(f, "{min}-{max}"),
        }
    }
}

fn choice(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// Every table with the section it belongs to, for documentation and checks.
pub fn tables() -> Vec<(String, &'static [Key])> {
    let fixed = [
        ("global", GLOBAL),
        ("group.NAME", GROUP),
        ("group.NAME.auto_options", AUTO_OPTIONS),
        ("dns", DNS),
        ("chain.NAME", CHAIN),
        ("speedtest", SPEEDTEST),
        ("speedtest.NAME", SPEEDTEST_SERVER),
        ("watch", WATCH),
        ("watch.NAME", WATCH_SET),
        ("bypass.NAME", BYPASS),
        ("bypass.NAME.escalate", ESCALATE),
        ("node [annotation]", NODE_NOTES),
        ("filter [annotation]", FILTER_NOTES),
        ("subscription [annotation]", SUBSCRIPTION_NOTES),
    ];
    let fixed = fixed
        .into_iter()
        .map(|(name, table)| (name.to_owned(), table));
    let nested = EXPERIMENTAL
        .iter()
        .map(|(name, t)| (format!("experimental.{name}"), *t));
    fixed.chain(nested).collect()
}

/// Finds a key of a table.
pub fn find(table: &'static [Key], name: &str) -> Option<&'static Key> {
    table.iter().find(|key| key.name == name)
}

/// A row; keeps the tables readable.
const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reload: Reload,
    built: Built,
    meaning: &'static str,
) -> Key {
    Key {
        name,
        kind,
        default,
        reload,
        built,
        meaning,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::config::typed::default_of;

    #[test]
    fn every_default_is_legal_and_every_name_unique() {
        for (section, table) in tables() {
            let mut names = HashSet::new();
            for row in table {
                assert!(names.insert(row.name), "{section}.{} twice", row.name);
                let typed = row.default.is_empty() || default_of(row).is_some();
                assert!(typed || row.kind == Kind::Own, "{section}.{}", row.name);
                assert!(!row.meaning.is_empty() && !row.kind.to_string().is_empty());
            }
        }
    }

    #[test]
    fn kinds_for_people() {
        let kind = |name| find(GLOBAL, name).map(|row| row.kind.to_string());
        assert_eq!(kind("tproxy_port").as_deref(), Some("integer 1-65535"));
        assert_eq!(
            kind("max_concurrent_dials").as_deref(),
            Some("integer >= 0")
        );
        assert_eq!(kind("on_crash").as_deref(), Some("`block`, `direct`"));
    }
}
