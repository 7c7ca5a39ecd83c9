//! What a subscription body holds: bytes in, nodes and a report out.
//!
//! Recognises the format, reads every entry on its own so that a bad one costs only itself,
//! follows the detours that entries name among themselves, and drops repetitions. It fetches and
//! stores nothing; nothing it reports contains a link, an address or a credential.

mod changes;
mod clash;
mod entry;
mod info;
mod list;
mod resolve;
mod shared;
mod singbox;
mod sip008;
#[cfg(test)]
mod tests;
mod xray;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use honk_grammar::diag::{Diagnostic, Severity};

pub use self::changes::Changes;
use self::entry::{Content, Entry, Refusal};
pub use self::info::{Info, UserInfo};
use crate::{
    document::{Tree, Unreadable},
    name::reserved,
    node::{Node, Origin},
};

/// Longest body.
pub const MAX_BODY: usize = 10 << 20;
/// Entries of one body; the rest is cut.
pub const MAX_ENTRIES: usize = 8192;

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Share links, one a line, perhaps in base64 as a whole.
    List,
    /// SIP008 JSON.
    Sip008,
    /// Clash or mihomo YAML.
    Clash,
    /// sing-box JSON.
    SingBox,
    /// Xray or V2Ray JSON.
    Xray,
}

impl Format {
    /// Name as in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "simple",
            Self::Sip008 => "sip008",
            Self::Clash => "clash",
            Self::SingBox => "singbox",
            Self::Xray => "xray",
        }
    }

    /// The format of a name; `auto` and others are `None`.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::List,
            Self::Sip008,
            Self::Clash,
            Self::SingBox,
            Self::Xray,
        ];
        all.into_iter().find(|format| format.name() == name)
    }
}

/// A body that was read.
#[derive(Clone, Debug)]
pub struct Body {
    /// What it was.
    pub format: Format,
    /// Its nodes in order, never empty.
    pub members: Vec<Member>,
    /// How many entries became what.
    pub counts: Counts,
    /// What the provider says about the account in the body itself.
    pub info: Info,
    skipped: BTreeMap<String, usize>,
    detours: Vec<resolve::Dropped>,
}

/// A node of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: Node,
    /// It is there for others to go through: groups leave it out unless they ask for links.
    pub is_link: bool,
}

/// How many entries became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries that were looked at.
    pub entries: usize,
    /// Wrong entries.
    pub malformed: usize,
    /// Entries that need what honk does not speak.
    pub unsupported: usize,
    /// Repetitions of a node before them.
    pub duplicate: usize,
    /// Entries whose way through another one is broken.
    pub detour: usize,
    /// Entries beyond the limit.
    pub cut: usize,
}

/// Why a body gives no nodes. The nodes of the last good body stay in use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Longer than [`MAX_BODY`].
    #[error("the body is longer than 10 MiB")]
    TooLong,
    /// Not UTF-8.
    #[error("the body is not text")]
    NotText,
    /// Nothing in it.
    #[error("the body is empty")]
    Empty,
    /// None of the known formats.
    #[error("the body is none of the known formats")]
    Unknown,
    /// A web page, as a provider sends it on a wrong or expired address.
    #[error("the body is a web page, not a list of nodes")]
    WebPage,
    /// Damaged JSON or YAML.
    #[error("the body is not correct {0}")]
    Syntax(&'static str),
    /// JSON or YAML with too many values or levels.
    #[error("the {0} body has too many values or levels")]
    Excessive(&'static str),
    /// Another format than the one it was said to be.
    #[error("the body is `{}`, not `{}`", .is.name(), .said.name())]
    OtherFormat {
        /// What it was said to be.
        said: Format,
        /// What it is.
        is: Format,
    },
    /// No node.
    #[error("{}{}", none_of(*.entries), listed(.reasons))]
    NoNodes {
        /// Entries that were looked at.
        entries: usize,
        /// Why they were skipped, the most frequent reason first.
        reasons: Vec<String>,
    },
    /// All entries are the same node, as providers answer to an unknown account.
    #[error("all {entries} entries are the same node")]
    OneNode {
        /// Entries.
        entries: usize,
    },
}

fn none_of(entries: usize) -> String {
    match entries {
        0 => "the body has no entries of this format".to_owned(),
        1 => "its only entry is no usable node".to_owned(),
        n => format!("none of the {n} entries is a usable node"),
    }
}

fn listed(reasons: &[String]) -> String {
    match reasons {
        [] => String::new(),
        reasons => format!(": {}", reasons.join(", ")),
    }
}

/// Reads a body; without a format it is recognised.
pub fn parse(body: &[u8], format: Option<Format>) -> Result<Body, BodyError> {
    if body.len() > MAX_BODY {
        return Err(BodyError::TooLong);
    }
    let text = std::str::from_utf8(body).map_err(|_| BodyError::NotText)?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{FEFF}');
    if text.is_empty() {
        return Err(BodyError::Empty);
    }
    let Some(said) = format else {
        return read(text, None);
    };
    // What has no node of the format may be of another one, which is the better news.
    read(text, Some(said)).map_err(|error| match recognise(text) {
        Ok((is, _)) if is != said => BodyError::OtherFormat { said, is },
        _ => error,
    })
}

fn read(text: &str, format: Option<Format>) -> Result<Body, BodyError> {
    let (format, tree) = match format {
        None => recognise(text)?,
        Some(Format::List) => (Format::List, None),
        Some(Format::Clash) => (Format::Clash, Some(yaml(text)?)),
        Some(format) => (format, Some(json(text)?)),
    };
    let read = match (format, &tree) {
        (Format::List, _) | (_, None) => list::read(text)?,
        (Format::Sip008, Some(tree)) => sip008::read(tree),
        (Format::Clash, Some(tree)) => clash::read(tree),
        (Format::SingBox, Some(tree)) => singbox::read(tree),
        (Format::Xray, Some(tree)) => xray::read(tree),
    };
    collect(format, read)
}

fn json(text: &str) -> Result<Tree, BodyError> {
    Tree::json(text).map_err(|error| unreadable(error, "JSON"))
}

fn yaml(text: &str) -> Result<Tree, BodyError> {
    Tree::yaml(text).map_err(|error| unreadable(error, "YAML"))
}

fn unreadable(error: Unreadable, language: &'static str) -> BodyError {
    match error {
        Unreadable::Syntax => BodyError::Syntax(language),
        Unreadable::TooLarge | Unreadable::TooDeep => BodyError::Excessive(language),
    }
}

fn recognise(text: &str) -> Result<(Format, Option<Tree>), BodyError> {
    if text.starts_with(['{', '[']) {
        let tree = json(text)?;
        let format = json_format(&tree).ok_or(BodyError::Unknown)?;
        return Ok((format, Some(tree)));
    }
    if text.starts_with('<') {
        return Err(BodyError::WebPage);
    }
    let tree = text.contains("proxies").then(|| yaml(text));
    match tree {
        Some(Ok(tree)) if matches!(tree.get("proxies"), Some(Tree::List(_))) => {
            Ok((Format::Clash, Some(tree)))
        }
        _ if list::is_list(text) => Ok((Format::List, None)),
        // What was meant for Clash should say what is wrong with it.
        Some(Err(error)) if text.contains("\nproxies:") || text.starts_with("proxies:") => {
            Err(error)
        }
        _ => Err(BodyError::Unknown),
    }
}

fn json_format(tree: &Tree) -> Option<Format> {
    let first = tree.items().first().map(|item| &**item);
    if matches!(tree.get("servers"), Some(Tree::List(_)))
        || first.is_some_and(|server| {
            server.get("server_port").is_some() && server.get("type").is_none()
        })
    {
        return Some(Format::Sip008);
    }
    if matches!(tree.get("proxies"), Some(Tree::List(_))) {
        return Some(Format::Clash);
    }
    let outbounds = [Some(tree), first].into_iter().flatten();
    let outbounds = outbounds.filter_map(|holder| holder.get("outbounds"));
    let mut entries = outbounds
        .flat_map(|list| list.items())
        .map(|entry| &**entry);
    let bare = [Some(tree), first].into_iter().flatten();
    entries.by_ref().chain(bare).find_map(|entry| {
        match (entry.text("type"), entry.text("protocol")) {
            (Some(_), _) => Some(Format::SingBox),
            (None, Some(_)) => Some(Format::Xray),
            (None, None) => None,
        }
    })
}

/// Ends the part of a tag that tells one configuration of a body from the next; never shown.
const SCOPE: char = '\u{1f}';

/// Entries of a body with what else it says.
struct Read {
    entries: Vec<Entry>,
    cut: usize,
    info: Info,
}

impl Read {
    /// From the entries of a list, up to the limit.
    fn of(entries: impl ExactSizeIterator<Item = Entry>) -> Self {
        Self {
            cut: entries.len().saturating_sub(MAX_ENTRIES),
            entries: entries.take(MAX_ENTRIES).collect(),
            info: Info::default(),
        }
    }
}

fn collect(format: Format, read: Read) -> Result<Body, BodyError> {
    let mut counts = Counts {
        cut: read.cut,
        ..Counts::default()
    };
    let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
    let mut skip = |reason: String| {
        // Reasons name features of the body's choosing: their number is bounded.
        let room = skipped.len() < MAX_REASONS || skipped.contains_key(&reason);
        let reason = if room { reason } else { OTHERS.to_owned() };
        *skipped.entry(reason).or_default() += 1;
    };
    let (nodes, dropped) = resolve::resolve(&read.entries);
    for entry in &read.entries {
        match &entry.content {
            Content::Service | Content::Group => continue,
            Content::Refused(Refusal::Malformed(why)) => {
                counts.malformed += 1;
                skip(why.clone());
            }
            Content::Refused(Refusal::Unsupported(what)) => {
                counts.unsupported += 1;
                skip(format!("{what} not supported"));
            }
            Content::Proxy(_) | Content::Node(_) | Content::Layer(_) => {}
        }
        counts.entries += 1;
    }
    let mut seen = HashSet::new();
    let mut members: Vec<Member> = Vec::new();
    for member in nodes {
        if reserved(&member.node.name) {
            counts.malformed += 1;
            skip("with a reserved name".to_owned());
        } else if seen.insert(member.node.id) {
            members.push(member);
        } else {
            counts.duplicate += 1;
        }
    }
    counts.detour = dropped.iter().map(|target| target.holders).sum();
    if members.is_empty() {
        return Err(BodyError::NoNodes {
            entries: counts.entries,
            reasons: reasons(&skipped, MAX_REASONS + 1),
        });
    }
    if members.len() == 1 && counts.duplicate > 0 && counts.duplicate + 1 == counts.entries {
        return Err(BodyError::OneNode {
            entries: counts.entries,
        });
    }
    Ok(Body {
        format,
        members,
        counts,
        info: read.info,
        skipped,
        detours: dropped,
    })
}

/// Reasons that are counted apart.
const MAX_REASONS: usize = 32;
/// Reasons that one message lists.
const SHOWN_REASONS: usize = 8;
/// All other reasons.
const OTHERS: &str = "for other reasons";

/// The reasons with their numbers, the most frequent first.
fn sorted(skipped: &BTreeMap<String, usize>) -> Vec<(usize, &str)> {
    let list = skipped.iter().map(|(why, times)| (*times, why.as_str()));
    let mut list: Vec<(usize, &str)> = list.collect();
    list.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    list
}

/// So many of the most frequent reasons, and how many entries the others concern.
fn reasons(skipped: &BTreeMap<String, usize>, most: usize) -> Vec<String> {
    let mut list = sorted(skipped);
    list.retain(|(_, why)| *why != OTHERS);
    let uncounted = skipped.get(OTHERS).copied().unwrap_or_default();
    let (shown, rest) = list.split_at(most.min(list.len()));
    let rest: usize = uncounted + rest.iter().map(|(times, _)| times).sum::<usize>();
    let shown = shown.iter().map(|(times, why)| format!("{times} {why}"));
    let others = (rest > 0).then(|| format!("{rest} {OTHERS}"));
    shown.chain(others).collect()
}

impl Body {
    /// The nodes that this build can dial, as nodes of a subscription, and how many it cannot by
    /// protocol. Links of chains are left out: nobody selects them.
    pub fn nodes(&self, origin: &Arc<Origin>) -> (Vec<Node>, BTreeMap<&'static str, usize>) {
        let mut unbuilt: BTreeMap<&'static str, usize> = BTreeMap::new();
        let mut nodes = Vec::new();
        for member in self.members.iter().filter(|member| !member.is_link) {
            let protocol = &member.node.protocol;
            if protocol.built() {
                nodes.push(Node {
                    origin: Some(Arc::clone(origin)),
                    ..member.node.clone()
                });
                continue;
            }
            let chain = protocol.proxy().is_some_and(|proxy| !proxy.via.is_empty());
            let what = if chain { "chain" } else { protocol.name() };
            *unbuilt.entry(what).or_default() += 1;
        }
        (nodes, unbuilt)
    }

    /// Why entries were skipped and how many for each reason, the most frequent first.
    pub fn skipped(&self) -> Vec<(usize, &str)> {
        sorted(&self.skipped)
    }

    /// What the operator should know, for a subscription with this tag.
    pub fn findings(&self, tag: &str) -> Vec<Diagnostic> {
        let which = match tag {
            "" => "a subscription".to_owned(),
            tag => format!("subscription `{tag}`"),
        };
        let warn = |number, slug, message: String| {
            Diagnostic::new(Severity::Warning, number, slug, None, message)
                .about("subscription", tag)
        };
        let mut findings = Vec::new();
        let Counts {
            entries,
            malformed,
            unsupported,
            cut,
            ..
        } = self.counts;
        if malformed + unsupported > 0 {
            let why = reasons(&self.skipped, SHOWN_REASONS).join(", ");
            let message = format!(
                "{which}: {} of {entries} entries skipped: {why}",
                malformed + unsupported
            );
            findings.push(warn("W802", "node-link", message));
        }
        if cut > 0 {
            let message =
                format!("{which}: {cut} entries beyond the first {MAX_ENTRIES} are left out");
            findings.push(warn("", "subscription-limit", message));
        }
        for target in &self.detours {
            let message = format!("{which}: {target}");
            findings.push(warn("", "detour-unresolved", message));
        }
        findings
    }
}
