//! The rule model: what a `routing` section means once names are resolved to ordinals.

use std::sync::Arc;

use honk_common::outbound;

use crate::{geo::SiteList, id::Ordinal};

/// Lines in order; the last is the fallback and has no conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    /// At most 1024.
    pub lines: Vec<RuleLine>,
}

impl RuleSet {
    /// The same lines with other numbers for user outbounds, as for kernel slots. The
    /// built-ins and the reserved ordinals mean the same everywhere and stay.
    #[must_use]
    pub fn map_ordinals(&self, map: impl Fn(Ordinal) -> Ordinal) -> Self {
        let mut lines = self.lines.clone();
        for line in &mut lines {
            let ordinal = &mut line.action.ordinal;
            if outbound::is_user(ordinal.0) {
                *ordinal = map(*ordinal);
            }
        }
        Self { lines }
    }
}

/// One rule line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLine {
    /// All must hold.
    pub conds: Vec<Cond>,
    /// What follows when they do.
    pub action: Action,
    /// Text as written, for people.
    pub text: String,
    /// Source file and line (1-based); empty and 0 for generated lines.
    pub file: String,
    /// 1-based.
    pub line: u32,
}

/// One condition: some value matches (or, negated, none does).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cond {
    /// Written with `!`.
    pub not: bool,
    /// The values, any of which may match.
    pub test: Test,
}

/// Values of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// `dip`: destination in one of the prefixes.
    Dest(Vec<Prefix>),
    /// `sip`: source in one of the prefixes.
    Source(Vec<Prefix>),
    /// `dport`: inclusive ranges.
    DestPort(Vec<(u16, u16)>),
    /// `sport`: inclusive ranges.
    SourcePort(Vec<(u16, u16)>),
    /// `l4proto`.
    L4Proto {
        /// TCP matches.
        tcp: bool,
        /// UDP matches.
        udp: bool,
    },
    /// `ipversion`.
    IpVersion {
        /// IPv4 matches.
        v4: bool,
        /// IPv6 matches.
        v6: bool,
    },
    /// `mac`: source MAC address.
    Mac(Vec<[u8; 6]>),
    /// `dscp`: 0..=63.
    Dscp(Vec<u8>),
    /// `pname`: NUL-padded process names; gateway-local traffic only.
    ProcessName(Vec<[u8; 16]>),
    /// `domain`: conditions on the name; unknown names match none.
    Domain(Vec<DomainTest>),
}

/// One value of a `domain` condition. Texts are lower-case, without trailing dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainTest {
    /// The name or any of its sub-domains.
    Suffix(String),
    /// Sub-domains only (written with a leading dot).
    SubdomainsOf(String),
    /// Exactly this name.
    Full(String),
    /// Substring.
    Keyword(String),
    /// Regular expression, unanchored.
    Regex(String),
    /// `geosite: code@attr` of a file (`geosite.dat` unless `ext`).
    Geosite {
        /// File name.
        file: String,
        /// Code, lower-case.
        code: String,
        /// Attribute.
        attr: Option<String>,
        /// The names, once the file is read.
        list: Arc<SiteList>,
    },
}

/// An address prefix in the 16-byte form: IPv4 lengths are 96..=128 of `::ffff:0:0/96`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// Network-order address, host bits zero.
    pub addr: [u8; 16],
    /// 0..=128.
    pub len: u8,
}

/// Right-hand side of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Outbound; 252 (`must_rules`) sets the sticky flag and continues.
    pub ordinal: Ordinal,
    /// Nothing may change the verdict afterwards.
    pub must: bool,
    /// Mark of direct packets and of dialed sockets; 0 for none.
    pub mark: u32,
}

/// What is known of a flow when rules are evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFacts {
    /// Source, 16-byte form.
    pub src: [u8; 16],
    /// Destination, 16-byte form.
    pub dst: [u8; 16],
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// TCP, else UDP.
    pub tcp: bool,
    /// Source MAC; zero when the packet has none.
    pub mac: [u8; 6],
    /// 0..=63.
    pub dscp: u8,
    /// Process name, all zero when unknown.
    pub pname: [u8; 16],
    /// Learned or sniffed name.
    pub domain: Option<String>,
}

/// Outcome of the rules for one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Outbound.
    pub ordinal: Ordinal,
    /// Final against modes, DNS and sniffing.
    pub must: bool,
    /// Mark, 0 for none.
    pub mark: u32,
    /// Index of the line that decided.
    pub rule: u16,
}
