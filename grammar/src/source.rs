//! The source files of one configuration and the way from a byte offset to a line and column.
//!
//! Offsets are cheap and exact, so the tree carries nothing else; lines and columns are worked
//! out only for the few places that are shown to a person.

use crate::ast::{FileId, Span};

/// One source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Path as shown to people.
    pub name: String,
    /// Text without byte order mark. Ends early when the file is not UTF-8.
    pub text: String,
    /// Whether the file began with a byte order mark: bytes on disk are three further.
    pub bom: bool,
    /// The `include` item that named this file.
    pub included_from: Option<Span>,
    /// Byte ranges of links and secrets, masked in excerpts: in order, none touching the next.
    /// `None` while the text was not looked at; excerpts guess then, on the safe side.
    pub(crate) secrets: Option<Vec<(u32, u32)>>,
    lines: Vec<u32>,
}

/// A place for people: 1-based, columns count Unicode scalar values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: u32,
    /// Column; a tab is one column.
    pub column: u32,
}

/// All source files, numbered in load order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// No files yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file. A byte order mark at the start is taken off.
    pub fn add(&mut self, name: &str, text: &str, included_from: Option<Span>) -> FileId {
        let (bom, text) = match text.strip_prefix('\u{FEFF}') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        self.files.push(SourceFile {
            name: name.to_owned(),
            lines: line_starts(text),
            text: text.to_owned(),
            bom,
            included_from,
            secrets: None,
        });
        FileId(u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX))
    }

    /// The file of that number.
    #[must_use]
    pub fn file(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id.0 as usize)
    }

    /// All files in load order.
    #[must_use]
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The line in which a span begins, 1-based. Cheaper than [`start`](Self::start), which counts
    /// the columns of a line that may be very long.
    #[must_use]
    pub fn line(&self, span: Span) -> Option<u32> {
        let line = self.file(span.file)?.line_of(span.start);
        Some(u32::try_from(line + 1).unwrap_or(u32::MAX))
    }

    /// Where a span begins.
    #[must_use]
    pub fn start(&self, span: Span) -> Option<Place> {
        Some(self.file(span.file)?.place(span.start))
    }

    /// Where a span ends: the place behind its last character.
    #[must_use]
    pub fn end(&self, span: Span) -> Option<Place> {
        Some(self.file(span.file)?.place(span.end))
    }

    /// The text of a span; empty when it is out of range.
    #[must_use]
    pub fn text(&self, span: Span) -> &str {
        self.file(span.file)
            .and_then(|f| f.text.get(span.start as usize..span.end as usize))
            .unwrap_or_default()
    }

    pub(crate) fn file_mut(&mut self, id: FileId) -> Option<&mut SourceFile> {
        self.files.get_mut(id.0 as usize)
    }
}

impl SourceFile {
    /// Line and column of a byte offset. An offset past the end is the end.
    #[must_use]
    pub fn place(&self, offset: u32) -> Place {
        let line = self.line_of(offset);
        let start = self.lines.get(line).copied().unwrap_or(0) as usize;
        let upto = (offset as usize).min(self.text.len());
        let column = 1 + self.text.as_bytes()[start.min(upto)..upto]
            .iter()
            .filter(|b| (**b & 0xC0) != 0x80)
            .count();
        Place {
            line: u32::try_from(line + 1).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    /// Byte range of the line that holds an offset, without its line ending.
    #[must_use]
    pub fn line_range(&self, offset: u32) -> (u32, u32) {
        let line = self.line_of(offset);
        let start = self.lines.get(line).copied().unwrap_or(0) as usize;
        let end = self
            .lines
            .get(line + 1)
            .map_or(self.text.len(), |n| *n as usize);
        let body = self.text.get(start..end).unwrap_or_default();
        let body = body.trim_end_matches(['\r', '\n']);
        (start as u32, (start + body.len()) as u32)
    }

    /// Zero-based number of the line that holds an offset.
    fn line_of(&self, offset: u32) -> usize {
        self.lines
            .partition_point(|start| *start <= offset)
            .saturating_sub(1)
    }
}

/// Line and column of an offset in a bare text, for the rare caller without a map.
pub(crate) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let upto = text.get(..offset).unwrap_or(text);
    let starts = line_starts(upto);
    let line = starts.last().copied().unwrap_or(0) as usize;
    (starts.len(), upto[line..].chars().count() + 1)
}

/// CRLF, LF and a lone CR each end a line.
fn line_starts(text: &str) -> Vec<u32> {
    let bytes = text.as_bytes();
    let mut starts = vec![0];
    for (at, byte) in bytes.iter().enumerate() {
        let ends = *byte == b'\n' || (*byte == b'\r' && bytes.get(at + 1) != Some(&b'\n'));
        if ends {
            starts.push(u32::try_from(at + 1).unwrap_or(u32::MAX));
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_scalars_and_every_line_ending_counts_once() {
        let mut map = SourceMap::new();
        let id = map.add("x.dae", "\u{FEFF}a\r\n\té日b\rc\nd", None);
        let file = map.file(id).expect("just added");
        assert!(file.bom);
        let place = |needle: &str| {
            let at = file.text.find(needle).expect("present") as u32;
            let place = file.place(at);
            (place.line, place.column)
        };
        assert_eq!(place("a"), (1, 1));
        assert_eq!(place("é"), (2, 2));
        assert_eq!(place("b"), (2, 4));
        assert_eq!(place("c"), (3, 1));
        assert_eq!(place("d"), (4, 1));
        assert_eq!(file.place(9999), Place { line: 4, column: 2 });
        assert_eq!(file.line_range(4), (3, 10));
    }
}
