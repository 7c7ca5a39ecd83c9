//! Which configured nodes the `filter` lines of all groups admit, found in one pass.
//!
//! A subscription brings ten thousand nodes and an owner may have 250 groups: asking every line of
//! every group about every node costs a second. Here all names, keywords and patterns of all
//! groups look at a node once, and the lines only combine what was found.

use std::{collections::HashMap, ops::Range, sync::Arc};

use aho_corasick::AhoCorasick;
use regex::{Regex, RegexSet};

use crate::{
    config::{Field, FilterLine, GroupDef, Predicate, TextTest},
    node::Node,
};

/// From so many patterns on they are tried together.
const TOGETHER: usize = 16;

/// What the filters of one group admit.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    /// Places in the list of all nodes, in its order.
    pub(super) nodes: Vec<u32>,
    /// Lines about nodes that admit none, by their number among all lines.
    pub(super) idle: Vec<usize>,
}

/// What each group admits; `None` for a group without filters.
pub(super) fn admitted(defs: &[GroupDef], all: &[Arc<Node>]) -> Vec<Option<Admitted>> {
    let mut builder = Builder::default();
    let mut groups: Vec<Option<Lines>> = defs.iter().map(|def| builder.group(def)).collect();
    let mut search = builder.build();
    for (at, node) in (0..).zip(all) {
        search.look_at(node);
        for group in groups.iter_mut().flatten() {
            group.ask(at, &search);
        }
    }
    let found = groups.into_iter().map(|group| group.map(Lines::found));
    found.collect()
}

/// The lines of a group about nodes.
struct Lines {
    /// Predicates of those that have admitted a node, then of those that have not; each with its
    /// number.
    lines: Vec<(Range<usize>, usize)>,
    used: usize,
    nodes: Vec<u32>,
}

impl Lines {
    /// Asks about the node looked at last: once admitted, only lines that never were of use are
    /// asked still.
    fn ask(&mut self, at: u32, search: &Search<'_>) {
        let (used, idle) = self.lines.split_at(self.used);
        let mut admitted = used.iter().any(|(line, _)| search.admits(line));
        for place in self.used..self.used + idle.len() {
            if search.admits(&self.lines[place].0) {
                admitted = true;
                self.lines.swap(place, self.used);
                self.used += 1;
            }
        }
        if admitted {
            self.nodes.push(at);
        }
    }

    fn found(self) -> Admitted {
        let mut idle: Vec<usize> = self.lines[self.used..].iter().map(|(_, n)| *n).collect();
        idle.sort_unstable();
        Admitted {
            nodes: self.nodes,
            idle,
        }
    }
}

/// The text of a node that a predicate looks at, if the node has one.
pub(super) fn text_of(field: Field, node: &Node) -> Option<&str> {
    match field {
        Field::Name => Some(&node.name),
        // Never a static node, whatever the pattern (G-042).
        Field::Subtag => Some(&node.origin.as_ref()?.tag),
    }
}

#[derive(Default)]
struct Builder<'a> {
    /// Whether each predicate is negated.
    not: Vec<bool>,
    fields: [Texts<'a>; 2],
}

/// What is looked for in one text of a node, and the predicates that ask for it.
#[derive(Default)]
struct Texts<'a> {
    exact: HashMap<&'a str, Vec<u32>>,
    keywords: HashMap<&'a str, Vec<u32>>,
    patterns: HashMap<&'a str, Vec<u32>>,
}

impl<'a> Builder<'a> {
    /// The lines of a group as ranges of predicates.
    fn group(&mut self, def: &'a GroupDef) -> Option<Lines> {
        let filters = def.filters.as_ref()?.iter().enumerate();
        let lines = filters.filter_map(|(number, line)| match line {
            FilterLine::Nodes(predicates) => Some((self.line(predicates), number)),
            FilterLine::Groups(_) | FilterLine::Ignored => None,
        });
        Some(Lines {
            lines: lines.collect(),
            used: 0,
            nodes: Vec::new(),
        })
    }

    fn line(&mut self, predicates: &'a [Predicate]) -> Range<usize> {
        let start = self.not.len();
        for predicate in predicates {
            let id = self.not.len() as u32;
            self.not.push(predicate.not);
            let texts = &mut self.fields[place(predicate.field)];
            for test in &predicate.tests {
                let (map, text) = match test {
                    TextTest::Exact(text) => (&mut texts.exact, text),
                    TextTest::Keyword(text) => (&mut texts.keywords, text),
                    TextTest::Regex(text) => (&mut texts.patterns, text),
                };
                map.entry(text).or_default().push(id);
            }
        }
        start..self.not.len()
    }

    fn build(self) -> Search<'a> {
        Search {
            seen: vec![0; self.not.len()],
            not: self.not,
            round: 0,
            finders: self.fields.map(Finder::new),
        }
    }
}

fn place(field: Field) -> usize {
    match field {
        Field::Name => 0,
        Field::Subtag => 1,
    }
}

struct Search<'a> {
    not: Vec<bool>,
    /// The round in which each predicate last found its text.
    seen: Vec<u32>,
    round: u32,
    finders: [Finder<'a>; 2],
}

impl Search<'_> {
    fn look_at(&mut self, node: &Node) {
        self.round += 1;
        let (seen, round) = (&mut self.seen, self.round);
        for field in [Field::Name, Field::Subtag] {
            if let Some(text) = text_of(field, node) {
                self.finders[place(field)].find(text, |ids| {
                    ids.iter().for_each(|id| seen[*id as usize] = round);
                });
            }
        }
    }

    /// Whether all predicates of a line hold for the node looked at last.
    fn admits(&self, line: &Range<usize>) -> bool {
        line.clone()
            .all(|id| (self.seen[id] == self.round) != self.not[id])
    }
}

struct Finder<'a> {
    exact: HashMap<&'a str, Vec<u32>>,
    keywords: Keywords<'a>,
    patterns: Patterns,
}

enum Keywords<'a> {
    All(AhoCorasick, Vec<Vec<u32>>),
    /// None, or more text than an automaton can number.
    Each(Vec<(&'a str, Vec<u32>)>),
}

enum Patterns {
    Together(RegexSet, Vec<Vec<u32>>),
    Each(Vec<(Regex, Vec<u32>)>),
}

impl<'a> Finder<'a> {
    fn new(texts: Texts<'a>) -> Self {
        let (words, ids): (Vec<&str>, Vec<Vec<u32>>) = texts.keywords.into_iter().unzip();
        let automaton = match words.is_empty() {
            true => None,
            false => AhoCorasick::new(&words).ok(),
        };
        let keywords = match automaton {
            Some(automaton) => Keywords::All(automaton, ids),
            None => Keywords::Each(words.into_iter().zip(ids).collect()),
        };
        // The configuration has refused what does not compile.
        let (patterns, ids): (Vec<&str>, Vec<Vec<u32>>) = texts.patterns.into_iter().unzip();
        let together = match patterns.len() < TOGETHER {
            true => None,
            false => RegexSet::new(&patterns).ok(),
        };
        let patterns = match together {
            Some(set) => Patterns::Together(set, ids),
            None => {
                let each = patterns.into_iter().zip(ids);
                let each = each.filter_map(|(pattern, ids)| Some((Regex::new(pattern).ok()?, ids)));
                Patterns::Each(each.collect())
            }
        };
        Self {
            exact: texts.exact,
            keywords,
            patterns,
        }
    }

    fn find(&self, text: &str, mut hit: impl FnMut(&[u32])) {
        if let Some(ids) = self.exact.get(text) {
            hit(ids);
        }
        match &self.keywords {
            Keywords::All(automaton, ids) => automaton
                .find_overlapping_iter(text)
                .for_each(|found| hit(&ids[found.pattern().as_usize()])),
            Keywords::Each(words) => words
                .iter()
                .filter(|(word, _)| text.contains(word))
                .for_each(|(_, ids)| hit(ids)),
        }
        match &self.patterns {
            Patterns::Together(set, ids) => set.matches(text).iter().for_each(|at| hit(&ids[at])),
            Patterns::Each(patterns) => patterns
                .iter()
                .filter(|(pattern, _)| pattern.is_match(text))
                .for_each(|(_, ids)| hit(ids)),
        }
    }
}
