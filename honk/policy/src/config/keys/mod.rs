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
    /// Only these values are served when the key is written at all.
    Only(&'static [&'static str]),
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
