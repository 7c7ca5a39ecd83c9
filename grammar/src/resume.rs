//! Where the next item begins behind a broken one.
//!
//! A guess, but one that rather skips an item than takes the rest of a broken one for a new one:
//! a wrong guess would make a second error of one mistake.

use crate::{
    ast::Item,
    token::{is_bare, trim_gap},
};

/// A body and where it ends.
pub(crate) struct Reader<'a> {
    pub(crate) text: &'a str,
    /// Braces of the file that belong together, by the opening one.
    pub(crate) braces: &'a [(usize, usize)],
    pub(crate) close: usize,
}

impl Reader<'_> {
    /// Whether an item ends on the line of a place.
    pub(crate) fn same_line(&self, item: &Item, at: usize) -> bool {
        let between = self.text.get(item.span().end as usize..at);
        between.is_some_and(|gap| !gap.contains(['\n', '\r']))
    }

    /// Whether only blanks stand in front of a place on its line.
    pub(crate) fn begins_line(&self, at: usize) -> bool {
        let before = self.text.get(..at).unwrap_or_default();
        before.trim_end_matches([' ', '\t']).ends_with(['\n', '\r'])
    }

    /// The beginning of the line behind a place, or the end of the body.
    pub(crate) fn next_line(&self, at: usize) -> usize {
        let at = self.behind_brace(at).unwrap_or(at);
        let rest = self.text.get(at..self.close).unwrap_or_default();
        rest.find(['\n', '\r']).map_or(self.close, |n| at + n + 1)
    }

    /// A rule without an outbound takes the next line for one: where that line begins.
    pub(crate) fn swallowed(&self, item: &Item, at: usize) -> Option<usize> {
        let Item::Rule(rule) = item else { return None };
        let rest = self.text.get(at..)?;
        let follows = ["->", "&&", ":"]
            .iter()
            .any(|token| rest.starts_with(token));
        let arrow = rule.conds.last()?.span.end as usize;
        let out = rule.out.name.span.start as usize;
        let between = trim_gap(self.text.get(arrow..out)?);
        let below = self
            .text
            .get(arrow + between.len()..out)?
            .contains(['\n', '\r']);
        (follows && below && rule.out.span.end as usize <= at).then_some(out)
    }

    /// Where to read on behind an item that begins at `from` and is broken at `at`.
    pub(crate) fn resume(&self, from: usize, at: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut scan = Scan {
            text: self.text,
            at: from,
            depth: 0,
            joined: false,
        };
        while scan.at < self.close {
            match bytes[scan.at] {
                b'\n' | b'\r' if scan.at >= at => {
                    if let Some(next) = self.item_below(&scan) {
                        return next;
                    }
                    scan.at += 1;
                }
                b';' if scan.at == at => return at + 1,
                b'{' => {
                    scan.at = self.behind_brace(scan.at).unwrap_or(scan.at + 1);
                    scan.joined = false;
                }
                _ => scan.step(),
            }
        }
        self.close
    }

    /// The place behind the closing brace of an opening one.
    fn behind_brace(&self, open: usize) -> Option<usize> {
        let at = self.braces.binary_search_by_key(&open, |pair| pair.0);
        at.ok().map(|at| self.braces[at].1 + 1)
    }

    /// The item that begins on the lines below a line end, if the one above cannot go on there.
    fn item_below(&self, scan: &Scan<'_>) -> Option<usize> {
        let rest = self.text.get(scan.at..self.close)?;
        let next = scan.at + (rest.len() - rest.trim_start().len());
        let rest = self.text.get(next..self.close)?;
        if rest.is_empty() {
            return Some(self.close);
        }
        let goes_on = ["&&", "||", "->", "=>", ",", ")", "]", "#", "/*"];
        if goes_on.iter().any(|token| rest.starts_with(token)) {
            return None;
        }
        let begins = match (scan.depth, scan.joined) {
            // `key: value` may be an argument.
            (1.., _) => self.looks_like_call(next),
            (0, true) => self.looks_like_item(next),
            (0, false) => true,
        };
        begins.then_some(next)
    }

    /// `f(`, `name {`, `fallback:`: what no argument looks like.
    fn looks_like_call(&self, at: usize) -> bool {
        let (word, token) = self.word_at(at);
        matches!(token, Some('(' | '{'))
            || (token == Some(':') && matches!(word, "fallback" | "default"))
    }

    /// The above, or `key:`.
    pub(crate) fn looks_like_item(&self, at: usize) -> bool {
        matches!(self.word_at(at).1, Some('(' | '{' | ':'))
    }

    /// The word at a place, `!` skipped, and what follows it on its line.
    fn word_at(&self, at: usize) -> (&str, Option<char>) {
        let rest = self.text.get(at..self.close).unwrap_or_default();
        let rest = rest.trim_start_matches(['!', ' ', '\t']);
        let len = match rest.chars().next() {
            Some(quote @ ('\'' | '"')) => rest[1..].find([quote, '\n']).map_or(0, |n| n + 2),
            _ => rest.find(|c| !is_bare(c)).unwrap_or(rest.len()),
        };
        let word = rest.get(..len).unwrap_or_default();
        let tail = rest.get(len..).unwrap_or_default();
        let token = tail.trim_start_matches([' ', '\t']).chars().next();
        (word, token.filter(|_| !word.is_empty()))
    }
}

/// A walk over tokens.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// Parentheses and brackets that are open.
    depth: usize,
    /// What was read last wants more: a comma, `&&` or `->`.
    joined: bool,
}

impl Scan<'_> {
    /// Passes one token or comment; its first byte is neither a brace nor, where it counts, a
    /// line end.
    fn step(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let fresh = self
            .text
            .get(..self.at)
            .is_none_or(|b| !b.ends_with(is_bare));
        let Some(first) = rest.chars().next() else {
            self.at += 1;
            return;
        };
        let len = match first {
            '#' if fresh => rest.find(['\n', '\r']).unwrap_or(rest.len()),
            '/' if fresh && rest.starts_with("/*") => {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            }
            '\'' | '"' => {
                self.joined = false;
                quoted(rest)
            }
            _ => {
                self.code(first, rest);
                first.len_utf8()
            }
        };
        self.at += len;
    }

    fn code(&mut self, first: char, rest: &str) {
        match first {
            '(' | '[' => self.depth += 1,
            ')' | ']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if !first.is_whitespace() {
            let before = self.text.get(..self.at).unwrap_or_default();
            self.joined = match first {
                ',' => true,
                '&' => before.ends_with('&'),
                '>' => before.ends_with('-'),
                _ => rest.starts_with("->") || rest.starts_with("&&"),
            };
        }
    }
}

/// Length of a quoted text, quotes included.
fn quoted(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut at = 1;
    while let Some(byte) = text.as_bytes().get(at) {
        match *byte {
            b'\\' if text.as_bytes().get(at + 1) == Some(&quote) => at += 2,
            b'\n' | b'\r' => return at,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}
