//! Membership: which nodes and groups the `filter` lines of a group admit.
//!
//! Order is that of declaration: nodes as configured, then `direct` and `block` if spelled
//! out, then nested groups as listed (G-058). Explicit filters that match nothing stay
//! empty; they never turn into "all nodes" (G-050).

use std::{collections::HashSet, sync::Arc};

use regex::Regex;

use super::{admit::text_of, builtin};
use crate::{
    config::{Field, FilterLine, GroupDef, Predicate, TextTest},
    id::{GroupId, MemberId},
    node::Node,
};

/// One direct member of a group.
#[derive(Clone, Debug)]
pub enum Member {
    /// A node.
    Node(Arc<Node>),
    /// A nested group.
    Group {
        /// Its identity.
        id: GroupId,
        /// Its name.
        name: Arc<str>,
        /// Its place in the table.
        index: usize,
    },
}

impl Member {
    /// Identity.
    pub fn id(&self) -> MemberId {
        match self {
            Self::Node(node) => MemberId::Node(node.id),
            Self::Group { id, .. } => MemberId::Group(*id),
        }
    }

    /// Display name.
    pub fn name(&self) -> &str {
        match self {
            Self::Node(node) => &node.name,
            Self::Group { name, .. } => name,
        }
    }
}

/// The nodes that are direct members; `admitted` are those that the filters admit.
pub(super) fn nodes(def: &GroupDef, admitted: Option<&[u32]>, all: &[Arc<Node>]) -> Vec<Arc<Node>> {
    if def.implicit {
        // Made for one node: a namesake further down is not meant (G-063).
        return all
            .iter()
            .filter(|n| n.name == def.name)
            .take(1)
            .cloned()
            .collect();
    }
    let (Some(filters), Some(admitted)) = (&def.filters, admitted) else {
        return all.to_vec();
    };
    let spelled = |node: &&Arc<Node>| {
        filters.iter().any(|line| match line {
            FilterLine::Nodes(predicates) => spells(predicates, node),
            FilterLine::Groups(_) | FilterLine::Ignored => false,
        })
    };
    let builtins = [builtin::direct(), builtin::block()];
    let configured = admitted.iter().filter_map(|at| all.get(*at as usize));
    configured
        .chain(builtins.into_iter().filter(spelled))
        .cloned()
        .collect()
}

/// Whether a line spells out `direct` or `block`.
pub(super) fn spells_builtin(predicates: &[Predicate]) -> bool {
    let builtins = [builtin::direct(), builtin::block()];
    builtins.iter().any(|node| spells(predicates, node))
}

/// What the first line that admits each node adds to its latency (G-059); empty when no line
/// adds anything.
pub(super) fn extra(def: &GroupDef, members: &[Arc<Node>]) -> Arc<[f64]> {
    let Some(filters) = def.filters.as_ref().filter(|_| !def.add_latency.is_empty()) else {
        return Arc::new([]);
    };
    let lines: Vec<Option<Vec<Term<'_>>>> = filters.iter().map(terms).collect();
    let of = |node: &Arc<Node>| {
        let builtin = builtin::is_builtin(node);
        let admits = |line: &Option<Vec<Term<'_>>>| match line {
            Some(line) if builtin => spells(line.iter().map(|term| term.predicate), node),
            Some(line) => line.iter().all(|t| t.holds(node)),
            None => false,
        };
        let first = lines.iter().position(admits);
        let offset = def
            .add_latency
            .iter()
            .find(|(line, _)| Some(*line) == first);
        offset.map_or(0.0, |(_, ms)| *ms as f64)
    };
    members.iter().map(of).collect()
}

/// Tags of nested groups, each once.
pub(super) fn tags(def: &GroupDef) -> Vec<&str> {
    let mut tags: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    for line in def.filters.iter().flatten() {
        if let FilterLine::Groups(names) = line {
            for name in names {
                if seen.insert(name.as_str()) {
                    tags.push(name);
                }
            }
        }
    }
    tags
}

/// A predicate with its patterns compiled.
struct Term<'a> {
    predicate: &'a Predicate,
    patterns: Vec<Regex>,
}

fn terms(line: &FilterLine) -> Option<Vec<Term<'_>>> {
    let FilterLine::Nodes(predicates) = line else {
        return None;
    };
    Some(predicates.iter().map(Term::new).collect())
}

impl<'a> Term<'a> {
    fn new(predicate: &'a Predicate) -> Self {
        let patterns = predicate.tests.iter().filter_map(|test| match test {
            TextTest::Regex(pattern) => Regex::new(pattern).ok(),
            TextTest::Exact(_) | TextTest::Keyword(_) => None,
        });
        Self {
            predicate,
            patterns: patterns.collect(),
        }
    }

    fn holds(&self, node: &Node) -> bool {
        self.positive(node) != self.predicate.not
    }

    fn positive(&self, node: &Node) -> bool {
        let Some(text) = text_of(self.predicate.field, node) else {
            return false;
        };
        let plain = |test: &TextTest| match test {
            TextTest::Exact(s) => text == s,
            TextTest::Keyword(s) => text.contains(s.as_str()),
            TextTest::Regex(_) => false,
        };
        self.predicate.tests.iter().any(plain) || self.patterns.iter().any(|p| p.is_match(text))
    }
}

/// Whether a line admits a built-in: spelled exactly, with nothing on the line against it.
/// Patterns never hold for a built-in (G-056, G-057).
fn spells<'a>(
    line: impl IntoIterator<Item = &'a Predicate, IntoIter: Clone>,
    builtin: &Node,
) -> bool {
    let exact = |test: &TextTest| matches!(test, TextTest::Exact(s) if *s == builtin.name);
    let named = |p: &Predicate| p.field == Field::Name && p.tests.iter().any(exact);
    let line = line.into_iter();
    line.clone().any(|p| !p.not && named(p)) && line.into_iter().all(|p| named(p) != p.not)
}
