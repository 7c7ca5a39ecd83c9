//! Diagnostics for machines and for people.
//!
//! Every surface (validate, reload, API) shows the same findings in the same order; only this
//! room turns spans into files, lines and columns.

use honk_grammar::{
    diag::{self, Diagnostic, Severity, SourceMap},
    limits::DIAGNOSTICS,
};

use crate::{
    api::doc::{Diag, Related},
    words::plural,
};

/// Findings of one run with the texts they point into.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// In file order, no more than are shown.
    list: Vec<Diagnostic>,
    /// How many are not shown.
    dropped: usize,
    tally: Tally,
    sources: SourceMap,
}

/// How many of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
    pub(crate) notes: usize,
    /// Nobody counted on: there may be more of each.
    pub(crate) at_least: bool,
}

impl Findings {
    pub(crate) fn new(mut list: Vec<Diagnostic>, sources: SourceMap) -> Self {
        let mut tally = Tally::default();
        let told = list.len();
        list.retain(|finding| finding.slug != "more");
        tally.at_least = list.len() < told;
        for finding in &list {
            tally.count(finding.severity);
        }
        let (list, dropped) = diag::arrange(list);
        Self {
            list,
            dropped,
            tally,
            sources,
        }
    }

    /// A single finding about nothing in a file.
    pub(crate) fn one(finding: Diagnostic) -> Self {
        Self::new(vec![finding], SourceMap::new())
    }

    /// Says that reading stopped: there may be more.
    pub(crate) fn cut(mut self, cut: bool) -> Self {
        self.tally.at_least |= cut;
        self
    }

    /// One more, about the configuration as a whole. Beyond those that are shown it is counted,
    /// unless it is the first error: that decides the outcome.
    pub(crate) fn add(&mut self, finding: Diagnostic) {
        let is_error = |finding: &Diagnostic| finding.severity == Severity::Error;
        self.tally.count(finding.severity);
        if self.list.len() >= DIAGNOSTICS {
            self.dropped += 1;
            if !is_error(&finding) || self.list.iter().any(is_error) {
                return;
            }
            self.list.pop();
        }
        self.list.push(finding);
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// All that are shown, as documents.
    pub(crate) fn documents(&self) -> Vec<Diag> {
        let mut documents: Vec<Diag> = self.list.iter().map(|d| self.document(d)).collect();
        if self.dropped > 0 {
            let text = self.not_shown();
            let note = Diagnostic::new(Severity::Note, "", "more", None, text);
            documents.push(self.document(&note));
        }
        documents
    }

    /// Excerpt and caret for each, from a severity up.
    pub(crate) fn human(&self, least: Severity) -> String {
        let shown = self.list.iter().filter(|d| d.severity <= least);
        let mut text: String = shown
            .map(|d| diag::human(d, &self.sources) + "\n")
            .collect();
        if self.dropped > 0 {
            text.push_str(&self.not_shown());
            text.push('\n');
        }
        text
    }

    fn not_shown(&self) -> String {
        let count = plural(self.dropped, "more finding");
        match self.tally.at_least {
            true => "more findings are not shown: reading stopped".to_owned(),
            false if self.dropped == 1 => format!("{count} is not shown"),
            false => format!("{count} are not shown"),
        }
    }

    fn document(&self, finding: &Diagnostic) -> Diag {
        let d = diag::record(finding, &self.sources);
        let related = d.related.into_iter().map(|r| Related {
            file: r.file,
            line: r.line,
            column: r.column,
            message: r.message,
        });
        Diag {
            code: d.code.to_owned(),
            severity: d.severity.to_owned(),
            message: d.message,
            file: d.file,
            line: d.line,
            column: d.column,
            end_line: d.end_line,
            end_column: d.end_column,
            section: d.section,
            subject: d.subject,
            help: d.help,
            related: related.collect(),
        }
    }
}

impl Tally {
    /// `2 errors, 0 warnings, 1 note`
    pub(crate) fn words(self) -> String {
        let words = format!(
            "{}, {}, {}",
            plural(self.errors, "error"),
            plural(self.warnings, "warning"),
            plural(self.notes, "note"),
        );
        match self.at_least {
            true => format!("at least {words}"),
            false => words,
        }
    }

    fn count(&mut self, severity: Severity) {
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
            Severity::Note => self.notes += 1,
        }
    }
}

/// A finding whose sources are no longer at hand.
pub(crate) fn placeless(finding: &Diagnostic) -> Diag {
    Findings::default().document(finding)
}

/// `path:line:col: error[slug]: message`
pub(crate) fn short(diag: &Diag) -> String {
    let place = match (&diag.file, diag.line, diag.column) {
        (Some(file), Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
        (Some(file), ..) => format!("{file}: "),
        _ => String::new(),
    };
    format!("{place}{}[{}]: {}", diag.severity, diag.code, diag.message)
}

#[cfg(test)]
mod tests {
    use honk_grammar::ast::{FileId, Span};

    use super::*;

    fn span(file: u32, start: u32, end: u32) -> Span {
        let file = FileId(file);
        Span { file, start, end }
    }

    #[test]
    fn findings_stand_in_file_order_with_their_places() {
        let mut sources = SourceMap::new();
        sources.add("a.dae", "one\ntwo", None);
        sources.add("b.dae", "three", None);
        let late = Diagnostic::error("E204", "unknown-key", span(1, 0, 5), "late")
            .related(span(0, 0, 3), "first here");
        let early = Diagnostic::warning("W211", "duplicate-key", span(0, 4, 7), "early");
        let findings = Findings::new(vec![late, early], sources);
        let documents = findings.documents();
        assert_eq!(
            short(&documents[0]),
            "a.dae:2:1: warning[duplicate-key]: early"
        );
        assert_eq!(short(&documents[1]), "b.dae:1:1: error[unknown-key]: late");
        assert_eq!(documents[1].related[0].file, "a.dae");
        assert_eq!(
            (documents[1].end_line, documents[1].end_column),
            (Some(1), Some(6))
        );
        let tally = findings.tally();
        assert_eq!((tally.errors, tally.warnings, tally.notes), (1, 1, 0));
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let at = |i: u32| span(0, i, i);
        let list: Vec<Diagnostic> = (0..105)
            .map(|i| Diagnostic::warning("", "w", at(i), ""))
            .collect();
        let findings = Findings::new(list, SourceMap::new());
        let documents = findings.documents();
        let tally = findings.tally();
        assert_eq!((documents.len(), tally.warnings), (101, 105));
        assert_eq!(documents[100].message, "5 more findings are not shown");
        assert_eq!(tally.words(), "0 errors, 105 warnings, 0 notes");
    }

    #[test]
    fn what_is_added_later_is_counted_beyond_the_limit() {
        let mut findings = Findings::default();
        let mut add = |severity, slug, times| {
            (0..times).for_each(|_| findings.add(Diagnostic::new(severity, "", slug, None, "")));
            let documents = findings.documents();
            let errors: Vec<String> = documents
                .iter()
                .filter(|d| d.severity == "error")
                .map(|d| d.code.clone())
                .collect();
            let last = documents.last().map(|d| d.message.clone());
            (documents.len(), errors, last.unwrap_or_default())
        };
        let told = |count, errors: &[&str], last: &str| {
            let errors: Vec<String> = errors.iter().map(|code| (*code).to_owned()).collect();
            (count, errors, last.to_owned())
        };
        assert_eq!(add(Severity::Warning, "w", DIAGNOSTICS), told(100, &[], ""));
        assert_eq!(
            add(Severity::Warning, "w", 7),
            told(101, &[], "7 more findings are not shown")
        );
        assert_eq!(
            add(Severity::Error, "first", 1),
            told(101, &["first"], "8 more findings are not shown")
        );
        assert_eq!(
            add(Severity::Error, "second", 2),
            told(101, &["first"], "10 more findings are not shown")
        );
        let words = "3 errors, 107 warnings, 0 notes";
        assert_eq!(findings.tally().words(), words);
        assert!(findings.human(Severity::Note).contains("error[first]"));
    }

    #[test]
    fn what_was_not_counted_is_not_claimed() {
        let one = || Diagnostic::error("", "e", span(0, 0, 0), "");
        let more = Diagnostic::new(Severity::Note, "", "more", None, "7 more");
        let counted = Findings::new(vec![one(), more], SourceMap::new());
        let words = "at least 1 error, 0 warnings, 0 notes";
        assert_eq!(counted.tally().words(), words);
        assert_eq!(counted.documents().len(), 1);
        let stopped = Findings::new(vec![one()], SourceMap::new()).cut(true);
        assert_eq!(stopped.tally().words(), words);
    }
}
