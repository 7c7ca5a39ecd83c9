//! A failed parse, explained: what was found, what would have been legal, what was probably meant.
//!
//! The parser reports the furthest place it reached and the rules it would have accepted there.
//! This module renames the rules for people and recognises the common mistakes behind them.

use std::fmt::Write as _;

use pest::error::ErrorVariant;

use crate::{
    ast::{FileId, Span},
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
const FOUND: usize = 32;

/// Turns a parser error of one chunk into a diagnostic. `base` is the chunk's offset in `text`,
/// `hidden` are the places of `text` that must not be shown.
pub(crate) fn explain(
    file: FileId,
    text: &str,
    hidden: &Ranges,
    chunk: &Chunk,
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
struct Scene<'a> {
    text: &'a str,
    hidden: &'a Ranges,
    chunk: &'a Chunk,
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

    fn message(&self) -> String {
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

    /// Help for mistakes that are known by their surroundings.
    fn advice(&self) -> Option<String> {
        let token = self.found_token();
        match token {
            ";" => return Some("no separator is needed".to_owned()),
            "=>" | "->" => return Some(self.advice_arrow(token)),
            "(" if self.wants(Rule::rparen) => return Some("calls do not nest".to_owned()),
            "(" => {
                return Some(
                    "conditions are `name(...)`, the name of letters, digits and `_`".to_owned(),
                );
            }
            "{" if self.after(":") => {
                return Some(format!(
                    "a section has no colon: `{} {{ ... }}`",
                    self.word_before_colon()
                ));
            }
            "}" | "" if self.wants(Rule::rparen) => {
                return Some("close the arguments with `)`".to_owned());
            }
            "[" if self.wants(Rule::lbrace) => {
                return Some("the body of a section stands in braces: `name { ... }`".to_owned());
            }
            ":" => return self.advice_colon(),
            "," => return Some("a value is missing in front of this comma".to_owned()),
            "[" => return Some("lists are written without brackets".to_owned()),
            _ => {}
        }
        if token.starts_with('!') && self.after("->") {
            return Some("an outbound cannot be negated; negate conditions".to_owned());
        }
        if self.wants(Rule::function) && self.after("&&") {
            return Some("a condition must follow `&&`".to_owned());
        }
        if self.wants(Rule::lparen) {
            return Some(format!(
                "`{}` is not a call; write `{0}(...)`",
                self.word_before()
            ));
        }
        if self.wants(Rule::rparen) && self.wants(Rule::comma) && self.found_is_word() {
            let code = trim_gap(self.before());
            if self.before()[code.len()..].contains(['\n', '\r']) {
                let (line, _) = line_and_column(self.text, self.chunk.start + code.len());
                return Some(format!(
                    "add `)` at the end of line {line}, or `,` if the arguments go on"
                ));
            }
            let word = self.word_before();
            let keyed = self
                .before()
                .trim_end()
                .trim_end_matches(word)
                .trim_end()
                .ends_with(':');
            if keyed {
                return Some("missing `,` between the arguments?".to_owned());
            }
            if !word.is_empty() {
                return Some(format!(
                    "missing `:` after `{word}`, or missing `,` behind it?"
                ));
            }
        }
        if self.wants(Rule::comma) && self.found_is_word() && self.wants(Rule::rbrack) {
            return Some("separate notes with `,` and close them with `]`".to_owned());
        }
        None
    }

    /// `->` where no rule can be: a condition written like a setting, or an open parenthesis.
    fn advice_arrow(&self, token: &str) -> String {
        if self.wants(Rule::rparen) {
            return "close the arguments with `)`".to_owned();
        }
        if self.after("&&") {
            return "a condition must follow `&&`".to_owned();
        }
        if let Some((key, value)) = self.setting_before() {
            let function = match key {
                "geosite" | "suffix" | "full" | "keyword" | "regex" | "contains" => Some("domain"),
                "geoip" => Some("dip"),
                _ => None,
            };
            return match function {
                Some(function) => format!("write `{function}({key}: {value})`"),
                None => format!("write `{key}({value})`"),
            };
        }
        format!("a rule is `condition(...) -> outbound`; nothing for `{token}` to follow here")
    }

    fn advice_colon(&self) -> Option<String> {
        let word = self.word_before();
        let before = self.before().trim_end();
        let list = before.strip_suffix(word)?;
        if let Some(comma) = last_comma(list) {
            let (line, _) = line_and_column(self.text, comma);
            return Some(format!("trailing comma on line {line}?"));
        }
        if self.wants(Rule::lparen) {
            return Some(format!(
                "`{word}` is not a call; conditions look like `{word}(...)`"
            ));
        }
        Some("a value that ends in `:` must be quoted".to_owned())
    }

    fn wants(&self, wanted: Rule) -> bool {
        self.wanted.contains(&wanted)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The chunk's text in front of the failure.
    fn before(&self) -> &'a str {
        self.text.get(self.chunk.start..self.at).unwrap_or_default()
    }

    fn after(&self, token: &str) -> bool {
        self.before().trim_end().ends_with(token)
    }

    /// The bare word that ends right before the failure, blanks skipped.
    fn word_before(&self) -> &'a str {
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

    /// The word in front of the colon right before the failure.
    fn word_before_colon(&self) -> &'a str {
        let before = self.before().trim_end().trim_end_matches(':').trim_end();
        let word = before.rsplit(|c| !is_bare(c)).next().unwrap_or_default();
        if word.chars().count() > FOUND {
            ""
        } else {
            word
        }
    }

    /// `key: value` right before the failure.
    fn setting_before(&self) -> Option<(&'a str, &'a str)> {
        let before = self.before().trim_end();
        let colon = before.rfind(':')?;
        let value = before[colon + 1..].trim_start();
        let key = before[..colon].trim_end();
        let start = key
            .char_indices()
            .rev()
            .take_while(|(_, c)| c.is_ascii_alphanumeric() || *c == '_')
            .last()?
            .0;
        let plain = !value.is_empty() && value.chars().all(is_bare) && value.len() <= 64;
        (plain && !self.hidden(self.chunk.start + colon + 1)).then(|| (&key[start..], value))
    }

    fn found_is_word(&self) -> bool {
        self.rest()
            .chars()
            .next()
            .is_some_and(|c| is_bare(c) || c == '\'' || c == '"')
    }

    /// The word or punctuation at the failure; empty at the end of the file.
    fn found_token(&self) -> &'a str {
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
    fn hidden(&self, at: usize) -> bool {
        let at = at as u32;
        let first = self.hidden.partition_point(|range| range.1 <= at);
        self.hidden.get(first).is_some_and(|range| range.0 <= at)
    }
}

/// Offset of the comma that ends a text, blanks and comments skipped.
fn last_comma(text: &str) -> Option<usize> {
    trim_gap(text).strip_suffix(',').map(str::len)
}
