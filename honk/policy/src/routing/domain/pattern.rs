//! Keywords and regular expressions of many conditions at once.
//!
//! All keywords are found in one walk over the name, all expressions by few sets. Both are
//! bounded: an expression that needs more memory than its limit counts as one that does not
//! compile.

use std::mem::size_of_val;

use aho_corasick::AhoCorasick;
use regex::bytes::{RegexBuilder, RegexSet, RegexSetBuilder};

/// Compiled size of one expression of a configuration.
const ONE: usize = 10 << 20;
/// Compiled size of one set; what does not fit is split.
const SET: usize = 16 << 20;

/// The form in which an expression is compiled, if it compiles within `limit` bytes. Names are
/// ASCII, so classes such as `\w` need no more than that, which makes them a hundred times
/// smaller; an expression that asks for Unicode itself keeps it.
pub(crate) fn compiled_form(pattern: &str, limit: usize) -> Option<String> {
    let good = |text: &str| RegexBuilder::new(text).size_limit(limit).build().is_ok();
    let ascii = format!("(?-u){pattern}");
    if good(&ascii) {
        return Some(ascii);
    }
    good(pattern).then(|| pattern.to_owned())
}

/// Collects patterns.
#[derive(Debug, Default)]
pub(super) struct Builder {
    keywords: Vec<(String, u32)>,
    regexes: Vec<(String, u32)>,
}

impl Builder {
    pub(super) fn keyword(&mut self, text: &str, cond: u32) {
        self.keywords.push((text.to_owned(), cond));
    }

    /// An expression that does not compile matches nothing.
    pub(super) fn regex(&mut self, pattern: &str, cond: u32) {
        if let Some(pattern) = compiled_form(pattern, ONE) {
            self.regexes.push((pattern, cond));
        }
    }

    pub(super) fn build(self) -> Patterns {
        let (keywords, keyword_conds) = grouped(self.keywords);
        let (regexes, regex_conds) = grouped(self.regexes);
        let finder = match keywords.is_empty() {
            true => Finder::None,
            false => match AhoCorasick::new(&keywords) {
                Ok(automaton) => Finder::All(Box::new(automaton)),
                // More text than an automaton can number.
                Err(_) => Finder::Each(keywords),
            },
        };
        let mut sets = Vec::new();
        split(&regexes, 0, &mut sets);
        Patterns {
            finder,
            keyword_conds,
            sets,
            regex_conds,
        }
    }
}

/// Distinct texts, and for each the conditions that have it.
fn grouped(mut all: Vec<(String, u32)>) -> (Vec<String>, Vec<Box<[u32]>>) {
    all.sort_unstable();
    all.dedup();
    all.chunk_by(|a, b| a.0 == b.0)
        .map(|same| (same[0].0.clone(), same.iter().map(|s| s.1).collect()))
        .unzip()
}

fn split(patterns: &[String], first: usize, sets: &mut Vec<(usize, RegexSet)>) {
    if patterns.is_empty() {
        return;
    }
    match RegexSetBuilder::new(patterns).size_limit(SET).build() {
        Ok(set) => sets.push((first, set)),
        Err(_) => {
            let (left, right) = patterns.split_at(patterns.len() / 2);
            if left.is_empty() {
                return;
            }
            split(left, first, sets);
            split(right, first + left.len(), sets);
        }
    }
}

#[derive(Clone, Debug, Default)]
enum Finder {
    #[default]
    None,
    All(Box<AhoCorasick>),
    Each(Vec<String>),
}

/// The patterns.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    finder: Finder,
    keyword_conds: Vec<Box<[u32]>>,
    /// Number of the first expression of each set.
    sets: Vec<(usize, RegexSet)>,
    regex_conds: Vec<Box<[u32]>>,
}

impl Patterns {
    /// Calls `hit` with the conditions of every pattern that `name` satisfies, until it returns
    /// `true`.
    pub(super) fn find(&self, name: &str, hit: &mut impl FnMut(&[u32]) -> bool) {
        let stopped = match &self.finder {
            Finder::None => false,
            Finder::All(automaton) => automaton
                .find_overlapping_iter(name)
                .any(|found| hit(&self.keyword_conds[found.pattern().as_usize()])),
            Finder::Each(keywords) => keywords
                .iter()
                .zip(&self.keyword_conds)
                .any(|(keyword, conds)| name.contains(keyword.as_str()) && hit(conds)),
        };
        if stopped {
            return;
        }
        let name = name.as_bytes();
        // Most names satisfy none, and to know that takes no allocation.
        for (first, set) in self.sets.iter().filter(|(_, set)| set.is_match(name)) {
            for at in &set.matches(name) {
                if hit(&self.regex_conds[first + at]) {
                    return;
                }
            }
        }
    }

    /// Bytes on the heap, those of compiled expressions not included.
    pub(super) fn bytes(&self) -> usize {
        let automaton = match &self.finder {
            Finder::None => 0,
            Finder::All(automaton) => automaton.memory_usage(),
            Finder::Each(keywords) => keywords.iter().map(String::len).sum(),
        };
        let conds = self.keyword_conds.iter().chain(&self.regex_conds);
        automaton
            + conds
                .map(|c| size_of_val(&**c) + size_of::<Box<[u32]>>())
                .sum::<usize>()
    }
}
