//! Diagnostics for machines and for people.
//!
//! Every surface (validate, reload, API) shows the same findings in the same order; only this
//! room turns spans into files, lines and columns.

use honk_grammar::{
    diag::{Diagnostic, Severity, SourceMap},
    limits::DIAGNOSTICS,
};

use crate::api::doc::{Diag, Related};

/// Findings of one run with the texts they point into.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Diagnostic>,
    pub(crate) sources: SourceMap,
}

/// How many of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
    pub(crate) notes: usize,
}

impl Findings {
    /// Sorted by load order of the file, then by place; findings without a place come first.
    pub(crate) fn new(mut list: Vec<Diagnostic>, sources: SourceMap) -> Self {
        list.sort_by_key(|d| d.span.map(|s| (s.file, s.start, s.end)));
        Self { list, sources }
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for finding in &self.list {
            match finding.severity {
                Severity::Error => tally.errors += 1,
                Severity::Warning => tally.warnings += 1,
                Severity::Note => tally.notes += 1,
            }
        }
        tally
    }

    /// All of them as documents, at most [`DIAGNOSTICS`]; errors are never the ones left out
    /// while something milder is shown.
    pub(crate) fn documents(&self) -> Vec<Diag> {
        let shown = self.shown();
        let mut documents: Vec<Diag> = shown.iter().map(|d| self.document(d)).collect();
        let more = self.list.len() - shown.len();
        if more > 0 {
            let text = format!("{more} more diagnostics are not shown");
            let note = Diagnostic::new(Severity::Note, "", "more", None, text);
            documents.push(self.document(&note));
        }
        documents
    }

    /// What fits the limit, in order.
    pub(crate) fn shown(&self) -> Vec<&Diagnostic> {
        if self.list.len() <= DIAGNOSTICS {
            return self.list.iter().collect();
        }
        let mut ranked: Vec<usize> = (0..self.list.len()).collect();
        ranked.sort_by_key(|i| self.list[*i].severity);
        ranked.truncate(DIAGNOSTICS);
        ranked.sort_unstable();
        ranked.into_iter().map(|i| &self.list[i]).collect()
    }

    fn document(&self, finding: &Diagnostic) -> Diag {
        let start = finding.span.and_then(|s| self.sources.start(s));
        let end = finding.span.and_then(|s| self.sources.end(s));
        let file = finding.span.and_then(|s| self.sources.file(s.file));
        let related = finding.related.iter().filter_map(|(span, message)| {
            let place = self.sources.start(*span)?;
            Some(Related {
                file: self.sources.file(span.file)?.name.clone(),
                line: place.line,
                column: place.column,
                message: message.clone(),
            })
        });
        Diag {
            code: finding.slug.to_owned(),
            severity: severity(finding.severity).to_owned(),
            message: finding.message.clone(),
            file: file.map(|f| f.name.clone()),
            line: start.map(|p| p.line),
            column: start.map(|p| p.column),
            end_line: end.map(|p| p.line),
            end_column: end.map(|p| p.column),
            section: finding.section.clone(),
            subject: finding.subject.clone(),
            help: finding.help.clone(),
            related: related.collect(),
        }
    }
}

/// A finding whose sources are no longer at hand.
pub(crate) fn placeless(finding: &Diagnostic) -> Diag {
    Findings::default().document(finding)
}

/// Name in documents.
pub(crate) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
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
    fn the_limit_leaves_out_the_mildest() {
        let at = |i: u32| span(0, i, i);
        let mut list: Vec<Diagnostic> = (0..DIAGNOSTICS as u32 + 5)
            .map(|i| Diagnostic::warning("", "w", at(i), ""))
            .collect();
        list.push(Diagnostic::error("", "e", at(999), ""));
        let documents = Findings::new(list, SourceMap::new()).documents();
        assert_eq!(documents.len(), DIAGNOSTICS + 1);
        assert_eq!(documents[DIAGNOSTICS - 1].code, "e");
        assert!(documents[DIAGNOSTICS].message.starts_with("6 more"));
    }
}
