//! Diagnostics for people and for machines, with secrets masked.
//!
//! The human form shows the line and points at the place; the short form is one line for logs;
//! the record is what the JSON output is made of. All three come from the same [`Diagnostic`], and
//! none of them shows a link or a secret.

use std::fmt::Write as _;

use crate::{
    ast::Span,
    diag::{Diagnostic, Severity},
    limits::DIAGNOSTICS,
    mask::{self, Ranges},
    redact,
    source::{SourceFile, SourceMap},
};

/// Columns of an excerpt.
const WIDTH: usize = 120;
/// Columns kept in front of the span when an excerpt is cut.
const LEAD: usize = 40;
const CUT: &str = "...";

/// A diagnostic without spans, field by field as in the JSON output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names are the documentation of the output format"
)]
pub struct Diag {
    pub code: &'static str,
    pub severity: &'static str,
    pub message: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
    pub end_line: Option<u32>,
    /// Column behind the last character.
    pub end_column: Option<u32>,
    pub section: Option<String>,
    pub subject: Option<String>,
    pub help: Option<String>,
    pub related: Vec<RelatedPlace>,
}

/// Another place of a [`Diag`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names are the documentation of the output format"
)]
pub struct RelatedPlace {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub message: String,
}

/// Sorts by file and place and keeps as many as are shown; the number is how many were dropped.
#[must_use]
pub fn arrange(mut all: Vec<Diagnostic>) -> (Vec<Diagnostic>, usize) {
    all.sort_by_key(|found| found.span.map(|span| (span.file, span.start, span.end)));
    let dropped = all.len().saturating_sub(DIAGNOSTICS);
    if dropped > 0 {
        // An error must not vanish behind a hundred warnings: it decides the outcome.
        let mut errors_last = all.split_off(DIAGNOSTICS);
        let shown_error = all.iter().any(|found| found.severity == Severity::Error);
        let hidden = errors_last
            .iter()
            .position(|found| found.severity == Severity::Error);
        if let (false, Some(at)) = (shown_error, hidden) {
            all.pop();
            all.push(errors_last.swap_remove(at));
        }
    }
    (all, dropped)
}

/// `path:line:col: error[slug]: message`
#[must_use]
pub fn short(found: &Diagnostic, sources: &SourceMap) -> String {
    let head = format!(
        "{}[{}]: {}",
        found.severity.word(),
        found.slug,
        found.message
    );
    match found.span.and_then(|span| locate(span, sources)) {
        Some(place) => format!("{place}: {head}"),
        None => head,
    }
}

/// Message, place, excerpt with the span underlined, help and notes.
#[must_use]
pub fn human(found: &Diagnostic, sources: &SourceMap) -> String {
    let mut out = format!(
        "{}[{}]: {}\n",
        found.severity.word(),
        found.slug,
        found.message
    );
    let mut gutter = 1;
    if let Some(span) = found.span
        && let Some(file) = sources.file(span.file)
    {
        let place = file.place(span.start);
        gutter = place.line.to_string().len();
        let (line, carets) = excerpt(file, span);
        let _ = writeln!(
            out,
            "{:gutter$} --> {}:{}:{}",
            "", file.name, place.line, place.column
        );
        let _ = writeln!(out, "{:gutter$}  |", "");
        let _ = writeln!(out, " {} |{}", place.line, spaced(&line));
        let _ = writeln!(out, "{:gutter$}  |{}", "", spaced(&carets));
    }
    if let Some(help) = &found.help {
        let _ = writeln!(out, "{:gutter$}  = help: {help}", "");
    }
    for (span, text) in &found.related {
        if let Some(place) = locate(*span, sources) {
            let _ = writeln!(out, "{:gutter$}  = note: {text}: {place}", "");
        }
    }
    for place in includers(found.span, sources) {
        let _ = writeln!(out, "{:gutter$}  = note: included from {place}", "");
    }
    out
}

/// The plain record.
#[must_use]
pub fn record(found: &Diagnostic, sources: &SourceMap) -> Diag {
    let file = found.span.and_then(|span| sources.file(span.file));
    let start = found.span.and_then(|span| sources.start(span));
    let end = found.span.and_then(|span| sources.end(span));
    let related = found.related.iter().filter_map(|(span, text)| {
        let place = sources.start(*span)?;
        Some(RelatedPlace {
            file: sources.file(span.file)?.name.clone(),
            line: place.line,
            column: place.column,
            message: text.clone(),
        })
    });
    Diag {
        code: found.slug,
        severity: found.severity.word(),
        message: found.message.clone(),
        file: file.map(|file| file.name.clone()),
        line: start.map(|place| place.line),
        column: start.map(|place| place.column),
        end_line: end.map(|place| place.line),
        end_column: end.map(|place| place.column),
        section: found.section.clone(),
        subject: found.subject.clone(),
        help: found.help.clone(),
        related: related.collect(),
    }
}

fn spaced(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(" {text}")
    }
}

fn locate(span: Span, sources: &SourceMap) -> Option<String> {
    let file = sources.file(span.file)?;
    let place = file.place(span.start);
    Some(format!("{}:{}:{}", file.name, place.line, place.column))
}

/// Places of the `include` items that led to a file, nearest first.
fn includers(span: Option<Span>, sources: &SourceMap) -> Vec<String> {
    let mut out = Vec::new();
    let mut next = span.and_then(|span| sources.file(span.file)?.included_from);
    while let Some(from) = next {
        out.extend(locate(from, sources));
        next = sources.file(from.file).and_then(|file| file.included_from);
    }
    out
}

/// One character of an excerpt and the bytes it stands for.
#[derive(Clone, Copy)]
struct Cell {
    shown: char,
    start: u32,
    end: u32,
}

/// The masked line of a span, cut to width, and the line of carets below it.
fn excerpt(file: &SourceFile, span: Span) -> (String, String) {
    let Strip {
        cells,
        before,
        after,
    } = strip(file, span.start);
    let first = cells
        .iter()
        .position(|cell| cell.end > span.start)
        .unwrap_or(cells.len());
    let last = cells
        .iter()
        .rposition(|cell| cell.start < span.end)
        .map_or(first, |at| at + 1);
    let from = if cells.len() <= WIDTH {
        0
    } else {
        first.saturating_sub(LEAD).min(cells.len() - WIDTH)
    };
    let to = (from + WIDTH).min(cells.len());
    let mut line: Vec<char> = cells[from..to].iter().map(|cell| cell.shown).collect();
    if from > 0 || before {
        line.splice(..CUT.len().min(line.len()), CUT.chars());
    }
    if to < cells.len() || after {
        line.splice(line.len().saturating_sub(CUT.len()).., CUT.chars());
    }
    let first = first - from;
    let last = last
        .saturating_sub(from)
        .clamp(first + 1, WIDTH.max(first + 1));
    let carets = " ".repeat(first) + &"^".repeat(last - first);
    (
        line.into_iter().collect::<String>().trim_end().to_owned(),
        carets,
    )
}

/// The part of a line around an offset that an excerpt may show.
struct Strip {
    cells: Vec<Cell>,
    /// The line has more in front of it.
    before: bool,
    /// The line has more behind it.
    after: bool,
}

/// Bytes looked at on either side of a place; a line may be a megabyte long.
const REACH: u32 = 4 * (WIDTH + LEAD) as u32;

fn strip(file: &SourceFile, offset: u32) -> Strip {
    let (start, end) = file.line_range(offset);
    let offset = offset.min(end);
    let guessed = match &file.secrets {
        Some(_) => Ranges::new(),
        None => {
            let line = file.text.get(start as usize..end as usize);
            let mut guessed = mask::guess(line.unwrap_or_default());
            guessed.iter_mut().for_each(|range| {
                range.0 += start;
                range.1 += start;
            });
            guessed
        }
    };
    let known = file.secrets.as_ref().unwrap_or(&guessed);
    let secrets = &by_the_look(file, (start, end), offset, known);
    // A secret at the edge is shown whole, as the three stars it becomes.
    let around = |at: u32| {
        let first = secrets.partition_point(|range| range.1 <= at);
        secrets.get(first).filter(|range| range.0 < at)
    };
    let mut from = offset.saturating_sub(REACH).max(start);
    let mut to = (offset + REACH).min(end);
    while !file.text.is_char_boundary(from as usize) {
        from -= 1;
    }
    while !file.text.is_char_boundary(to as usize) {
        to += 1;
    }
    from = around(from).map_or(from, |range| range.0.max(start));
    to = around(to).map_or(to, |range| range.1.min(end));
    Strip {
        cells: cells(file, from, to, secrets),
        before: from > start,
        after: to < end,
    }
}

/// The known secrets around a place of a line, and what looks like one.
fn by_the_look(file: &SourceFile, line: (u32, u32), offset: u32, known: &Ranges) -> Ranges {
    let text = &file.text;
    let mut from = offset.saturating_sub(REACH).max(line.0);
    let mut to = offset.saturating_add(REACH).min(line.1);
    while !text.is_char_boundary(from as usize) {
        from -= 1;
    }
    while !text.is_char_boundary(to as usize) {
        to += 1;
    }
    let look = redact::line(text.get(from as usize..to as usize).unwrap_or_default());
    let look = look.into_iter().map(|(a, b)| (a + from, b + from));
    let first = known.partition_point(|range| range.1 <= from);
    let near = known[first..].iter().take_while(|range| range.0 < to);
    mask::merged(near.copied().chain(look).collect())
}

fn cells(file: &SourceFile, from: u32, to: u32, secrets: &Ranges) -> Vec<Cell> {
    let text = file.text.get(from as usize..to as usize);
    let text = text.unwrap_or_default();
    let first = secrets.partition_point(|range| range.1 <= from);
    let mut ranges = secrets[first..].iter().peekable();
    let mut cells = Vec::new();
    let mut starred = None;
    for (at, c) in text.char_indices() {
        let at = from + at as u32;
        while ranges.peek().is_some_and(|range| range.1 <= at) {
            ranges.next();
        }
        match ranges.peek() {
            Some(&range) if range.0 <= at => {
                if starred.replace(range) != Some(range) {
                    let star = Cell {
                        shown: '*',
                        start: range.0.max(from),
                        end: range.1.min(to),
                    };
                    cells.extend([star, star, star]);
                }
            }
            _ => cells.push(Cell {
                shown: visible(c),
                start: at,
                end: at + c.len_utf8() as u32,
            }),
        }
    }
    cells
}

/// A tab is one column; what a terminal would obey instead of show is replaced.
fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => '\u{FFFD}',
        _ if c.is_control() => '\u{FFFD}',
        _ => c,
    }
}
