//! Diagnostics: what is wrong, where, and what would be right.

use crate::{ast::Span, redact::redact};

pub use crate::{
    render::{Diag, RelatedPlace, arrange, human, record, short},
    source::{Place, SourceFile, SourceMap},
};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It loads, but something is probably not meant.
    Warning,
    /// Information.
    Note,
}

impl Severity {
    /// The word shown to people and machines.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Shorthand, `E204`; empty for slugs that have none.
    pub number: &'static str,
    /// Stable code, `unknown-key`.
    pub slug: &'static str,
    /// Severity.
    pub severity: Severity,
    /// One sentence.
    pub message: String,
    /// Primary place; `None` for findings about the configuration as a whole.
    pub span: Option<Span>,
    /// What to do, without "help:".
    pub help: Option<String>,
    /// Other places with a few words each.
    pub related: Vec<(Span, String)>,
    /// Section, as `group` or `dns.routing.request`.
    pub section: Option<String>,
    /// The key, name or function it is about.
    pub subject: Option<String>,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(
        number: &'static str,
        slug: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Error, number, slug, Some(span), message)
    }

    /// A warning at a place.
    pub fn warning(
        number: &'static str,
        slug: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Warning, number, slug, Some(span), message)
    }

    /// Any finding. Its texts lose what looks like a credential: they quote what people wrote.
    pub fn new(
        severity: Severity,
        number: &'static str,
        slug: &'static str,
        span: Option<Span>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            number,
            slug,
            severity,
            message: redact(&message.into()).into_owned(),
            span,
            help: None,
            related: Vec::new(),
            section: None,
            subject: None,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(redact(&text.into()).into_owned());
        self
    }

    /// Adds another place.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, redact(&text.into()).into_owned()));
        self
    }

    /// Names section and subject.
    #[must_use]
    pub fn about(mut self, section: impl Into<String>, subject: impl Into<String>) -> Self {
        self.section = Some(redact(&section.into()).into_owned());
        self.subject = Some(redact(&subject.into()).into_owned());
        self
    }
}
