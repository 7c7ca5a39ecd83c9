//! Comments, and what people take for one.

use super::{Body, Scanner};
use crate::diag::Diagnostic;

impl Scanner<'_> {
    pub(super) fn line_comment(&mut self) -> Option<()> {
        while let Some(byte) = self.byte(self.at) {
            if byte == b'\n' || byte == b'\r' {
                break;
            }
            self.inert_char();
        }
        self.fresh = true;
        Some(())
    }

    /// Whether `//` begins what other languages take for a comment: where a word could begin,
    /// but hardly one that begins so.
    pub(super) fn is_slash_comment(&self) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(rest) = rest.strip_prefix("//") else {
            return false;
        };
        let body = self.stack.last().map_or(Body::Plain, |open| open.body);
        let line = self.text.get(self.line_start..self.at).unwrap_or_default();
        if line.ends_with(':') {
            return false;
        }
        let line = line.trim_end_matches([' ', '\t']);
        let wants_more = ["(", "[", ",", ":", "->", "&&"]
            .iter()
            .any(|token| line.ends_with(token));
        let spaced = rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']);
        let named = rest.trim_start_matches([' ', '\t']).starts_with(['{', ':']);
        body != Body::Paths && !named && (spaced || !wants_more)
    }

    pub(super) fn slash_comment(&mut self) -> Option<()> {
        let start = self.at;
        self.line_comment()?;
        self.out.slashes.push((start, self.at));
        Some(())
    }

    /// One finding for all such comments: who writes one writes many.
    pub(super) fn tell_slashes(&mut self) {
        let Some(&(start, _)) = self.out.slashes.first() else {
            return;
        };
        let more = match self.out.slashes.len() - 1 {
            0 => String::new(),
            n => format!(" ({n} more)"),
        };
        let message = format!("`//` is no comment{more}");
        let span = self.span(start, start + 2);
        let found = Diagnostic::error("E203", "item-misplaced", span, message);
        let help = "comments begin with `#`, or stand between `/*` and `*/`";
        self.out.diagnostics.push(found.help(help));
    }

    pub(super) fn block_comment(&mut self) -> Option<()> {
        let start = self.at;
        self.at += 2;
        loop {
            match self.byte(self.at) {
                None => {
                    return self.fatal(
                        "E105",
                        start,
                        start + 2,
                        "comment is never closed",
                        "close it with `*/`; comments do not nest",
                    );
                }
                Some(b'*') if self.byte(self.at + 1) == Some(b'/') => {
                    self.at += 2;
                    self.fresh = true;
                    return Some(());
                }
                Some(b'\r' | b'\n') => self.newline()?,
                Some(_) => self.inert_char(),
            }
        }
    }
}
