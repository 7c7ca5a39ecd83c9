//! Names that rules, `default`, `final` and nested filters may use, and the ordinals they get.

use std::collections::{HashMap, HashSet};

use honk_grammar::ast::Span;

use crate::id::Ordinal;
pub(super) use crate::name::reserved;

/// User outbounds: ordinals 2..=251.
pub const MAX_OUTBOUNDS: usize = 250;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A declared group or built-in.
    Outbound(Ordinal),
    /// A static node or chain.
    Node(Use),
    /// A node whose link was skipped.
    Skipped(Span),
}

/// Whether a named node can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It can.
    Served,
    /// It is switched off where it is declared.
    Disabled(Span),
    /// This build cannot dial what it is.
    Unbuilt,
}

/// The name table of one configuration.
#[derive(Debug, Default)]
pub(super) struct Names {
    groups: HashMap<String, (Ordinal, Span)>,
    nodes: HashMap<String, (Span, Use)>,
    skipped: HashMap<String, Span>,
    /// Checks of references are off: their section could not be read.
    pub(super) partial: bool,
    /// Names of nodes may still arrive at run time.
    pub(super) subscriptions: bool,
    /// Tags of subscriptions.
    pub(super) tags: HashSet<String>,
}

impl Names {
    pub(super) fn add_group(&mut self, name: &str, ordinal: Ordinal, span: Span) {
        self.groups.insert(name.to_owned(), (ordinal, span));
    }

    pub(super) fn add_node(&mut self, name: &str, span: Span, usable: Use) {
        self.nodes.entry(name.to_owned()).or_insert((span, usable));
    }

    pub(super) fn add_skipped(&mut self, name: &str, span: Span) {
        self.skipped.insert(name.to_owned(), span);
    }

    /// Where the first node of that name stands.
    pub(super) fn node(&self, name: &str) -> Option<Span> {
        self.nodes.get(name).map(|(span, _)| *span)
    }

    pub(super) fn group(&self, name: &str) -> Option<Ordinal> {
        self.groups.get(name).map(|(ordinal, _)| *ordinal)
    }

    /// Where a group of that name is declared.
    pub(super) fn group_place(&self, name: &str) -> Option<Span> {
        self.groups.get(name).map(|(_, span)| *span)
    }

    /// Target of a rule; a group hides a node of the same name.
    pub(super) fn target(&self, name: &str) -> Option<Target> {
        match name {
            "direct" => return Some(Target::Outbound(Ordinal(0))),
            "block" => return Some(Target::Outbound(Ordinal(1))),
            _ => {}
        }
        self.group(name)
            .map(Target::Outbound)
            .or_else(|| {
                self.nodes
                    .get(name)
                    .map(|(_, usable)| Target::Node(*usable))
            })
            .or_else(|| self.skipped.get(name).map(|span| Target::Skipped(*span)))
    }

    /// Whether `default` or `final` may name it.
    pub(super) fn is_outbound(&self, name: &str) -> bool {
        matches!(
            self.target(name),
            Some(Target::Outbound(_) | Target::Node(_))
        )
    }

    /// Whether a static node has the name, usable or not.
    pub(super) fn is_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name) || self.skipped.contains_key(name)
    }

    /// Names of static nodes, for suggestions.
    pub(super) fn all_nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Every declared name, for suggestions.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        let groups = self.groups.keys().map(String::as_str);
        groups
            .chain(self.nodes.keys().map(String::as_str))
            .chain(["direct", "block"])
    }
}
