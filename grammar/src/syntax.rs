//! A failed parse, explained: what was found, what would have been legal, what was probably meant.
//!
//! The parser reports the furthest place it reached and the rules it would have accepted there.
//! This module renames the rules for people and recognises the common mistakes behind them.

use std::fmt::Write as _;

use pest::error::ErrorVariant;

use crate::{
    ast::{FileId, Lit, Span},
    diag::Diagnostic,
    expected::expected,
    mask::Ranges,
    parse::Rule,
    prescan::Chunk,
    recover::place,
    source::line_and_column,
    token::{is_bare, trim_gap},
};

/// Characters of a found word shown at most.
pub(crate) const FOUND: usize = 32;

/// A file that did not parse.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) file: FileId,
    pub(crate) text: &'a str,
    /// Places that must not be shown.
    pub(crate) hidden: &'a Ranges,
}

/// Where the broken item begins, and whether it may be a rule.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub(crate) at: usize,
    pub(crate) rules: Rules,
}

/// Whether a section takes rules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    Taken,
    Foreign,
}

impl Rules {
    /// Of a section with that name.
    pub(crate) fn of(section: &Lit) -> Self {
        match section.text.as_str() {
            "routing" | "request" | "response" => Self::Taken,
            _ => Self::Foreign,
        }
    }
}

/// Turns a parser error of one chunk into a diagnostic. `base` is the offset of the text that the
/// error is about.
pub(crate) fn explain(
    Text { file, text, hidden }: Text<'_>,
    chunk: &Chunk,
    item: Option<Start>,
    base: usize,
    error: &pest::error::Error<Rule>,
) -> Diagnostic {
    let at = place(base, error).min(text.len());
    let wanted = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.as_slice(),
        ErrorVariant::CustomError { .. } => &[],
    };
    let scene = Scene {
        text,
        hidden,
        chunk,
        at,
        wanted,
    };
    let span = |start: usize, end: usize| Span {
        file,
        start: start as u32,
        end: end as u32,
    };
    if let Some(arrow) = scene.dangling_arrow() {
        let message = "expected an outbound behind `->`, found end of line";
        let found = Diagnostic::error("E113", "parse", span(arrow, arrow + 2), message)
            .help("name where these connections go, as in `-> direct`, on this line");
        return in_section(found, text, chunk);
    }
    let (number, message, help) = scene.verdict();
    if let (Some(item), "E113") = (item, number)
        && let Some(misread) = scene.misread(item)
    {
        let span = span(item.at, item.at + misread.len);
        let mut found = Diagnostic::error("E110", "parse", span, misread.message);
        found.help = Some(misread.help);
        return in_section(found, text, chunk);
    }
    let mut diagnostic =
        Diagnostic::error(number, "parse", span(at, at + scene.found_len()), message);
    diagnostic.help = help;
    if let (true, Some(end)) = (number == "E113", scene.rule_above()) {
        diagnostic = diagnostic.related(span(end - 1, end), "the rule without outbound ends here");
    }
    if let (true, Some(open)) = (number == "E111", chunk.unclosed.last()) {
        let brace = Span {
            file,
            start: open.brace as u32,
            end: open.brace as u32 + 1,
        };
        diagnostic = diagnostic.related(brace, "opened here");
    }
    in_section(diagnostic, text, chunk)
}

/// Names the section of a finding.
fn in_section(mut found: Diagnostic, text: &str, chunk: &Chunk) -> Diagnostic {
    let name = text.get(chunk.head.0..chunk.head.1).unwrap_or_default();
    if chunk.open.is_some() && !name.is_empty() {
        found.section = Some(name.trim_matches(['\'', '"']).to_owned());
    }
    found
}

/// The place of the failure and all that is known about it.
pub(crate) struct Scene<'a> {
    pub(crate) text: &'a str,
    hidden: &'a Ranges,
    pub(crate) chunk: &'a Chunk,
    at: usize,
    wanted: &'a [Rule],
}

type Verdict = (&'static str, String, Option<String>);

impl<'a> Scene<'a> {
    fn verdict(&self) -> Verdict {
        if self.rest().is_empty()
            && let Some(open) = self.chunk.unclosed.last()
        {
            return self.unclosed(open.name, open.brace);
        }
        if self.chunk.open.is_none_or(|open| self.at <= open) {
            return self.outside();
        }
        if self.wants(Rule::arrow) && self.wants(Rule::and) {
            return self.no_target();
        }
        ("E110", self.message(), self.advice())
    }

    fn unclosed(&self, name: (usize, usize), brace: usize) -> Verdict {
        let (line, column) = line_and_column(self.text, brace);
        let name = self.text.get(name.0..name.1).unwrap_or_default();
        let message = format!("missing `}}` for section `{name}` opened at {line}:{column}");
        (
            "E111",
            message,
            Some("add `}` where the section ends".to_owned()),
        )
    }

    fn outside(&self) -> Verdict {
        if self.rest().starts_with('}') {
            let help = "remove it, or look for a section closed too early".to_owned();
            return ("E112", "unmatched `}`".to_owned(), Some(help));
        }
        let help = if self.rest().starts_with(';') {
            "no separator is needed between sections"
        } else {
            "settings must be inside a section, as in `global { log_level: info }`"
        };
        ("E114", self.message(), Some(help.to_owned()))
    }

    fn no_target(&self) -> Verdict {
        let help = match self.found_token() {
            "=>" | "=" | ":" | "-" | "=>>" | ">" | "--" | "\u{2192}" => "write `->`".to_owned(),
            "||" | "|" | "or" => "repeat the rule with the other condition".to_owned(),
            "&" | "and" | "," => "conditions are joined with `&&`".to_owned(),
            ";" => "no separator is needed; the rule has no target, add `-> outbound`".to_owned(),
            _ => "the rule has no target; add `-> outbound`".to_owned(),
        };
        let Some(end) = self.rule_above() else {
            return ("E113", self.message(), Some(help));
        };
        let (line, _) = line_and_column(self.text, end);
        let message = format!(
            "the rule that ends in line {line} has no outbound: {}",
            self.message()
        );
        let help = format!("add `-> outbound` at the end of line {line}");
        ("E113", message, Some(help))
    }

    /// The end of the conditions before the failure, if they end on a line above.
    fn rule_above(&self) -> Option<usize> {
        let code = trim_gap(self.before());
        let above = self.before()[code.len()..].contains(['\n', '\r']);
        (above && code.ends_with(')')).then(|| self.chunk.start + code.len())
    }

    /// The `->` whose outbound is missing, so that the next line was taken for one or failed.
    fn dangling_arrow(&self) -> Option<usize> {
        let before = self.before();
        let mut code = trim_gap(before);
        if ["->", "&&", ":"].contains(&self.found_token()) {
            // What stands below: a name, or a name with parameters.
            let named = match code.strip_suffix(')') {
                Some(open) => open[..open.rfind('(')?].trim_end_matches([' ', '\t']),
                None => code,
            };
            let below = named.trim_end_matches(|c| is_bare(c) || matches!(c, '\'' | '"' | '!'));
            if below.len() == named.len()
                || !below.trim_end_matches([' ', '\t']).ends_with(['\n', '\r'])
            {
                return None;
            }
            code = trim_gap(below);
        } else if !before[code.len()..].contains(['\n', '\r']) {
            return None;
        }
        let arrow = code.strip_suffix("->")?;
        Some(self.chunk.start + arrow.len())
    }

    pub(crate) fn message(&self) -> String {
        let expected = expected(self.wanted);
        let found = self.found();
        if expected.is_empty() {
            return format!("unexpected {found}");
        }
        let mut message = "expected ".to_owned();
        for (i, word) in expected.iter().enumerate() {
            let joint = match i {
                0 => "",
                _ if i + 1 == expected.len() => " or ",
                _ => ", ",
            };
            let _ = write!(message, "{joint}{word}");
        }
        let _ = write!(message, ", found {found}");
        message
    }

    pub(crate) fn wants(&self, wanted: Rule) -> bool {
        self.wanted.contains(&wanted)
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The chunk's text in front of the failure.
    pub(crate) fn before(&self) -> &'a str {
        self.text.get(self.chunk.start..self.at).unwrap_or_default()
    }

    pub(crate) fn after(&self, token: &str) -> bool {
        self.before().trim_end().ends_with(token)
    }

    /// The bare word that ends right before the failure, blanks skipped.
    pub(crate) fn word_before(&self) -> &'a str {
        let before = self.before().trim_end();
        let start = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_bare(*c))
            .last()
            .map_or(before.len(), |(at, _)| at);
        let word = &before[start..];
        if word.chars().count() > FOUND || self.hidden(self.chunk.start + start) {
            ""
        } else {
            word
        }
    }

    pub(crate) fn found_is_word(&self) -> bool {
        self.rest()
            .chars()
            .next()
            .is_some_and(|c| is_bare(c) || c == '\'' || c == '"')
    }

    /// The word or punctuation at the failure; empty at the end of the file.
    pub(crate) fn found_token(&self) -> &'a str {
        let rest = self.rest();
        for token in ["=>", "->", "&&", "||", "\r\n"] {
            if rest.starts_with(token) {
                return &rest[..token.len()];
            }
        }
        let Some(first) = rest.chars().next() else {
            return "";
        };
        if !is_bare(first) {
            return &rest[..first.len_utf8()];
        }
        let mut end = 0;
        for (at, c) in rest.char_indices() {
            if !is_bare(c) || rest[at..].starts_with("->") {
                break;
            }
            end = at + c.len_utf8();
        }
        &rest[..end.max(first.len_utf8())]
    }

    fn found_len(&self) -> usize {
        let token = self.found_token();
        if token.starts_with(['\r', '\n']) {
            0
        } else {
            token.len()
        }
    }

    fn found(&self) -> String {
        match self.found_token() {
            "" => "end of file".to_owned(),
            "\n" | "\r" | "\r\n" => "end of line".to_owned(),
            "'" | "\"" => "a quoted text".to_owned(),
            _ if self.hidden(self.at) => "`***`".to_owned(),
            token if token.chars().count() > FOUND => {
                let short: String = token.chars().take(FOUND).collect();
                format!("`{short}...`")
            }
            token => format!("`{token}`"),
        }
    }

    /// Whether an offset lies in something that must not be shown.
    pub(crate) fn hidden(&self, at: usize) -> bool {
        let at = at as u32;
        let first = self.hidden.partition_point(|range| range.1 <= at);
        self.hidden.get(first).is_some_and(|range| range.0 <= at)
    }
}
