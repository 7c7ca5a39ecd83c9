//! Canonical text: one item per line, four blanks per level, comments kept.
//!
//! Blanks, line breaks and trailing commas change, and words get the quotes that `spelling` gives
//! them. An item with a comment inside it is copied as it stands, because no rule could say where
//! the comment belongs. Formatting twice gives the same text; the meaning never changes.

mod link;

use std::borrow::Cow;

use crate::{
    ast::{Arg, Call, Decl, Item, Lit, Out, Rule, Section, Span, Value},
    diag::Diagnostic,
    load::parse_text,
    spelling,
};

/// Columns after which rules and lists are broken.
const WIDTH: usize = 100;
const STEP: &str = "    ";

/// The text cannot be formatted because it does not parse.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the text has syntax errors")]
pub struct FormatError {
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
}

/// Formats one file.
///
/// # Errors
/// When the text has syntax errors.
pub fn format(text: &str) -> Result<String, FormatError> {
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let parsed = parse_text("", text);
    if !parsed.diagnostics.is_empty() {
        return Err(FormatError {
            diagnostics: parsed.diagnostics,
        });
    }
    let mut printer = Printer {
        text,
        out: String::new(),
        last: Last::Start,
        depth: 0,
    };
    let mut at = 0;
    for section in &parsed.sections {
        printer.gap(at, section.span.start as usize, Last::Start);
        printer.section(section);
        at = section.span.end as usize;
    }
    printer.gap(at, text.len(), Last::Start);
    let mut out = printer.out;
    if !out.is_empty() {
        out.push('\n');
    }
    Ok(out)
}

/// What was printed last, still without its line end; a comment behind it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Start,
    Open,
    Item,
    Section,
    Comment,
}

struct Printer<'a> {
    text: &'a str,
    out: String,
    last: Last,
    depth: usize,
}

impl<'a> Printer<'a> {
    fn section(&mut self, section: &Section) {
        let head = self
            .slice(section.span.start, section.open_brace)
            .trim_end();
        let name = self.written(&section.name);
        // A comment may stand between the name and the brace.
        let commented = squeeze(head) != squeeze(name);
        let ends_in_comment = head.lines().last().is_some_and(|line| line.contains('#'));
        match spelling::section(&section.name) {
            Some(name) if !commented => self.push(&name),
            _ if commented => self.push(&unify(head)),
            _ => self.push(name),
        }
        if commented && ends_in_comment {
            self.push("\n");
            self.push("{");
        } else {
            self.push(" {");
        }
        let (mut at, end) = (
            section.open_brace as usize + 1,
            section.close_brace as usize,
        );
        let empty = section.items.is_empty() && self.text[at..end].trim().is_empty();
        self.last = Last::Open;
        self.depth += 1;
        for item in &section.items {
            let span = item.span();
            let gap = self.text.get(at..span.start as usize);
            let blank = gap.is_some_and(|gap| gap.trim_matches([' ', '\t']).is_empty());
            match item {
                // A word behind an item is told by its line: on another it means something else.
                Item::Stray(_) if self.last == Last::Item && blank => self.push(" "),
                _ => self.gap(at, span.start as usize, Last::Open),
            }
            match item {
                Item::Sub(sub) => self.section(sub),
                other => {
                    let text = self.item(other);
                    self.push(&text);
                    self.last = Last::Item;
                }
            }
            at = span.end as usize;
        }
        self.comments(at, end);
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.push("}");
        self.last = Last::Section;
    }

    /// Comments before an item, then the line on which it begins.
    fn gap(&mut self, from: usize, to: usize, begin: Last) {
        let blank = self.comments(from, to);
        if to == self.text.len() && begin == Last::Start {
            return;
        }
        self.begin(blank, self.depth == 0 && self.last == Last::Section);
    }

    /// Starts a new line for an element; `blank` asks for an empty line in front of it.
    fn begin(&mut self, blank: bool, forced: bool) {
        if self.last == Last::Start {
            return;
        }
        if forced || (blank && self.last != Last::Open) {
            self.out.push('\n');
        }
        self.line();
    }

    fn line(&mut self) {
        self.out.push('\n');
        for _ in 0..self.depth {
            self.out.push_str(STEP);
        }
    }

    /// Prints the comments of a stretch of blanks. True when an empty line follows the last.
    fn comments(&mut self, from: usize, to: usize) -> bool {
        let gap = self.text.get(from..to).unwrap_or_default();
        let mut at = 0;
        let mut breaks = 0;
        while let Some(c) = gap[at..].chars().next() {
            let rest = &gap[at..];
            if c == '#' || rest.starts_with("/*") {
                let len = comment_len(rest);
                let behind = &self.text[from + at + len..];
                self.comment(&rest[..len], behind, breaks);
                at += len;
                breaks = 0;
            } else {
                breaks += usize::from(c == '\n' || (c == '\r' && !rest.starts_with("\r\n")));
                at += c.len_utf8();
            }
        }
        breaks > 1
    }

    fn comment(&mut self, text: &str, behind: &str, breaks: usize) {
        let behind = behind.trim_start_matches([' ', '\t']);
        let ends_line = behind.is_empty() || behind.starts_with(['\n', '\r']);
        if breaks == 0 && ends_line && self.last != Last::Start {
            self.out.push(' ');
            self.push(unify(text).trim_end());
            return;
        }
        let forced = self.depth == 0 && self.last == Last::Section;
        self.begin(breaks > 1, forced);
        self.push(unify(text).trim_end());
        self.last = Last::Comment;
    }

    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn slice(&self, start: u32, end: u32) -> &'a str {
        self.text
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    fn written(&self, lit: &Lit) -> &'a str {
        self.slice(lit.span.start, lit.span.end)
    }

    /// A name or value.
    fn lit(&self, lit: &Lit, how: Spelling) -> Cow<'a, str> {
        match how {
            Spelling::Written => Cow::Borrowed(self.written(lit)),
            Spelling::Canonical => match spelling::word(&lit.text) {
                Some(word) => Cow::Owned(word),
                None => Cow::Borrowed(self.written(lit)),
            },
        }
    }

    fn item(&self, item: &Item) -> String {
        let span = item.span();
        let written = self.slice(span.start, span.end).trim_end();
        let plain = self.pieces(item, Spelling::Written).concat();
        if squeeze(&plain) != squeeze(written) {
            return unify(written);
        }
        let pieces = self.pieces(item, Spelling::Canonical);
        match item {
            // Links must stay on their line.
            Item::Link(_) | Item::Path(_) | Item::Stray(_) => pieces.join(" "),
            Item::Decl(_) | Item::Rule(_) | Item::Sub(_) => self.fill(&pieces),
        }
    }

    /// Joins pieces with blanks, breaking lines that get too long.
    fn fill(&self, pieces: &[String]) -> String {
        let indent = self.depth * STEP.len();
        let mut out = String::new();
        let mut column = indent;
        for (i, piece) in pieces.iter().enumerate() {
            let width = piece.chars().count();
            if i > 0 && column + 1 + width > WIDTH {
                out.push('\n');
                out.push_str(&STEP.repeat(self.depth + 1));
                column = indent + STEP.len();
            } else if i > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(piece);
            column += width;
        }
        out
    }

    /// The words of an item between which a line may be broken.
    fn pieces(&self, item: &Item, how: Spelling) -> Vec<String> {
        match item {
            Item::Rule(rule) => self.rule(rule, how),
            Item::Decl(decl) => self.declaration(decl, how),
            Item::Link(link) => self.link(link, how),
            Item::Path(lit) => vec![self.path(lit, how)],
            // An error anyway: nobody knows what was meant.
            Item::Stray(lit) => vec![self.written(lit).to_owned()],
            Item::Sub(_) => Vec::new(),
        }
    }

    fn rule(&self, rule: &Rule, how: Spelling) -> Vec<String> {
        let mut pieces = self.calls(&rule.conds, how);
        pieces.push(format!("-> {}", self.out(&rule.out, how)));
        pieces
    }

    fn out(&self, out: &Out, how: Spelling) -> String {
        let name = self.lit(&out.name, how);
        if !out.parens {
            return name.into_owned();
        }
        let args: Vec<String> = out.args.iter().map(|arg| self.arg(arg, how)).collect();
        format!(
            "{name}({}{})",
            args.join(", "),
            how.trailing(out.trailing_comma)
        )
    }

    fn declaration(&self, decl: &Decl, how: Spelling) -> Vec<String> {
        let mut pieces = match &decl.value {
            Value::Empty => vec![String::new()],
            Value::Calls(calls) => self.calls(calls, how),
            Value::Literals(list) => {
                let last = list.len().saturating_sub(1);
                let comma = |i: usize| if i == last { "" } else { "," };
                let one = |(i, lit)| format!("{}{}", self.lit(lit, how), comma(i));
                list.iter().enumerate().map(one).collect()
            }
        };
        let key = self.lit(&decl.key, how);
        if let Some(first) = pieces.first_mut() {
            let space = if first.is_empty() { "" } else { " " };
            *first = format!("{key}:{space}{first}");
        }
        if let Some(annotation) = &decl.annotation {
            pieces.extend(self.annotation(annotation, how));
        }
        pieces
    }

    fn calls(&self, calls: &[Call], how: Spelling) -> Vec<String> {
        let mut pieces = Vec::new();
        for (i, call) in calls.iter().enumerate() {
            if i > 0
                && let Some(last) = pieces.last_mut()
            {
                let last: &mut String = last;
                last.push_str(" &&");
            }
            self.call(call, how, &mut pieces);
        }
        pieces
    }

    fn call(&self, call: &Call, how: Spelling, pieces: &mut Vec<String>) {
        let not = if call.not { "!" } else { "" };
        let head = format!("{not}{}(", self.written(&call.name));
        let Some(last) = call.args.len().checked_sub(1) else {
            pieces.push(head + ")");
            return;
        };
        for (i, arg) in call.args.iter().enumerate() {
            let before = if i == 0 { head.as_str() } else { "" };
            let after = if i == last {
                format!("{})", how.trailing(call.trailing_comma))
            } else {
                ",".to_owned()
            };
            pieces.push(format!("{before}{}{after}", self.arg(arg, how)));
        }
    }

    fn arg(&self, arg: &Arg, how: Spelling) -> String {
        let (key, value) = arg.parts();
        match (how, key, &arg.key) {
            (Spelling::Written, _, None) => self.written(&arg.value).to_owned(),
            // A comment beside the colon is not among the words.
            (Spelling::Written, _, Some(key)) if arg.spaced => {
                format!("{}:{}", self.written(key), self.written(&arg.value))
            }
            (Spelling::Written, ..) => self.slice(arg.span.start, arg.span.end).to_owned(),
            (Spelling::Canonical, Some(key), _) => {
                let value = self.lit(&arg.value, how);
                format!("{}: {value}", self.written(key))
            }
            (Spelling::Canonical, None, _) => spelling::word(value)
                .unwrap_or_else(|| self.slice(arg.span.start, arg.span.end).to_owned()),
        }
    }

    fn path(&self, lit: &Lit, how: Spelling) -> String {
        let written = self.written(lit);
        match how {
            Spelling::Canonical if lit.quoted => spelling::path(&lit.text),
            _ => None,
        }
        .unwrap_or_else(|| written.to_owned())
    }
}

/// How words are printed.
#[derive(Clone, Copy)]
enum Spelling {
    /// As they stand there, trailing commas included: to see whether a comment is among them.
    Written,
    Canonical,
}

impl Spelling {
    const fn trailing(self, comma: Option<Span>) -> &'static str {
        match (self, comma) {
            (Self::Written, Some(_)) => ",",
            _ => "",
        }
    }
}

fn comment_len(text: &str) -> usize {
    if text.starts_with('#') {
        return text.find(['\n', '\r']).unwrap_or(text.len());
    }
    text.get(2..)
        .and_then(|rest| rest.find("*/"))
        .map_or(text.len(), |at| at + 4)
}

/// The text without blanks: two spellings of the same words squeeze to the same text.
fn squeeze(text: &str) -> String {
    text.chars()
        .filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r'))
        .collect()
}

fn unify(text: &str) -> String {
    if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        text.to_owned()
    }
}
