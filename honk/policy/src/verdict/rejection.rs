//! A node that the builder rejects, as a value and as a line of text.

use std::fmt;

use crate::{
    id::{NodeId, Uuid},
    node::Node,
};

/// A node where it comes from: names may repeat and move, this does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeRef {
    /// Identity.
    pub id: NodeId,
    /// The subscription that brought it; `None` for a node of the configuration.
    pub source: Option<Uuid>,
}

impl From<&Node> for NodeRef {
    fn from(node: &Node) -> Self {
        Self {
            id: node.id,
            source: node.origin.as_ref().map(|origin| origin.subscription),
        }
    }
}

/// What kind of thing was to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something that dials.
    Outbound,
    /// Something with a network stack of its own.
    Endpoint,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Endpoint => "endpoint",
        }
    }
}

/// A node that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What was to be built.
    pub kind: Kind,
    /// Place in the list of nodes; never used to find it again.
    pub index: usize,
    /// Name of the protocol.
    pub protocol: String,
    /// Display name.
    pub tag: String,
    /// The node.
    pub node: NodeRef,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, index) = (self.kind.name(), self.index);
        let (protocol, tag, reason) = (&self.protocol, &self.tag, &self.reason);
        write!(f, "initialize {kind}[{index}] {protocol}[{tag}]: {reason}")
    }
}

/// What a line of text says about a rejected node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'t> {
    /// What was to be built.
    pub kind: Kind,
    /// Name of the protocol.
    pub protocol: &'t str,
    /// Display name.
    pub tag: &'t str,
    /// Why, without what stands before it.
    pub reason: &'t str,
}

/// Reads such a line. Prefixes are usual, so it may begin anywhere; a name may contain what ends
/// names, so the longest one that `known` accepts counts.
pub fn parse<'t>(text: &'t str, known: impl Fn(&str) -> bool) -> Option<Told<'t>> {
    const BEGIN: &str = "initialize ";
    let mut begins = text.match_indices(BEGIN);
    begins.find_map(|(at, _)| one(&text[at + BEGIN.len()..], &known))
}

fn one<'t>(text: &'t str, known: &impl Fn(&str) -> bool) -> Option<Told<'t>> {
    let (kind, rest) = [Kind::Outbound, Kind::Endpoint]
        .into_iter()
        .find_map(|kind| Some((kind, text.strip_prefix(kind.name())?)))?;
    let (index, rest) = rest.strip_prefix('[')?.split_once("] ")?;
    if index.is_empty() || !index.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (protocol, rest) = rest.split_once('[')?;
    let ends = rest.rmatch_indices("]: ").map(|(at, end)| {
        let (tag, reason) = (&rest[..at], &rest[at + end.len()..]);
        (tag, reason)
    });
    let (tag, reason) = { ends }.find(|(tag, _)| known(tag))?;
    Some(Told {
        kind,
        protocol,
        tag,
        reason,
    })
}
