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
    mask,
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
    let cells = cells(file, span.start);
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
    if from > 0 {
        line.splice(..CUT.len(), CUT.chars());
    }
    if to < cells.len() {
        line.splice(WIDTH - CUT.len().., CUT.chars());
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

fn cells(file: &SourceFile, offset: u32) -> Vec<Cell> {
    let (start, end) = file.line_range(offset);
    let line = file
        .text
        .get(start as usize..end as usize)
        .unwrap_or_default();
    let secrets = hidden(file, line, start, end);
    let mut cells = Vec::with_capacity(line.len());
    let mut ranges = secrets.iter().peekable();
    for (at, c) in line.char_indices() {
        let at = start + at as u32;
        while ranges.peek().is_some_and(|range| range.1 <= at) {
            ranges.next();
        }
        match ranges.peek() {
            Some((from, to)) if *from <= at => {
                if *from == at {
                    let star = Cell {
                        shown: '*',
                        start: *from,
                        end: *to,
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

/// Byte ranges of a line to mask: in order, without overlaps, inside the line.
fn hidden(file: &SourceFile, line: &str, start: u32, end: u32) -> Vec<(u32, u32)> {
    let first = file.secrets.partition_point(|range| range.1 <= start);
    let known = file.secrets[first..]
        .iter()
        .take_while(|range| range.0 < end)
        .copied();
    let mut all: Vec<(u32, u32)> = known.map(|(a, b)| (a.max(start), b.min(end))).collect();
    if !file.mapped {
        all.extend(
            mask::guess(line)
                .iter()
                .map(|(a, b)| (start + *a as u32, start + *b as u32)),
        );
        all.sort_unstable();
    }
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (a, b) in all {
        match merged.last_mut() {
            Some(last) if a <= last.1 => last.1 = last.1.max(b),
            _ if a < b => merged.push((a, b)),
            _ => {}
        }
    }
    merged
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
