//! The sink of findings during lowering, with the phrases that several sections share.
//!
//! Knows the source texts for line numbers and excerpts; decides nothing about meaning.

use std::collections::HashMap;

use honk_grammar::{
    Parsed,
    ast::{Call, Item, Lit, Span, Value},
    diag::{Diagnostic, Severity},
    is_secret_key,
};

use super::{
    geo::Named,
    hints,
    value::{self, BadValue, Letters, Read, shortened},
};

/// Findings kept of each severity.
const MOST: usize = 4096;
/// Words compared with misspelt ones in one configuration.
const COMPARISONS: usize = 50_000;

/// Slug of findings about features that this build does not serve.
pub const NOT_BUILT: &str = "not-built";

/// Collects findings.
pub(super) struct Report<'a> {
    pub(super) parsed: &'a Parsed,
    found: Vec<Diagnostic>,
    /// Findings of each severity, and how many of them are not in `found`.
    kept: [usize; 3],
    more: usize,
    unbuilt: Vec<Unbuilt>,
    /// Places in `unbuilt` by section and subject.
    unbuilt_at: HashMap<(String, String), usize>,
    /// Words that may still be compared with misspelt ones.
    comparisons: usize,
    /// What may still be spent on regular expressions.
    patterns: usize,
    /// Geodata codes that rules name.
    pub(super) geodata: Vec<Named>,
}

/// A feature that is used but not served, with the number of places beyond the first.
struct Unbuilt {
    section: String,
    subject: String,
    what: String,
    span: Span,
    more: usize,
}

impl<'a> Report<'a> {
    pub(super) fn new(parsed: &'a Parsed) -> Self {
        Self {
            parsed,
            found: Vec::new(),
            kept: [0; 3],
            more: 0,
            unbuilt: Vec::new(),
            unbuilt_at: HashMap::new(),
            comparisons: COMPARISONS,
            patterns: parsed
                .sources
                .files()
                .iter()
                .fold(value::BUDGET, |sum, file| sum + file.text.len()),
            geodata: Vec::new(),
        }
    }

    /// Line of a place.
    pub(super) fn line(&self, span: Span) -> u32 {
        self.parsed.sources.line(span).unwrap_or(0)
    }

    /// Adds a finding. Of each severity only so many are kept: a hundred are shown.
    pub(super) fn push(&mut self, finding: Diagnostic) {
        let kept = &mut self.kept[finding.severity as usize];
        *kept += 1;
        match *kept > MOST {
            true => self.more += 1,
            false => self.found.push(finding),
        }
    }

    /// A finding, if there is one.
    pub(super) fn found(&mut self, finding: Option<Diagnostic>) {
        if let Some(finding) = finding {
            self.push(finding);
        }
    }

    /// An error without more to say.
    pub(super) fn error(
        &mut self,
        number: &'static str,
        slug: &'static str,
        span: Span,
        message: impl Into<String>,
    ) {
        self.push(Diagnostic::error(number, slug, span, message));
    }

    /// A warning without more to say.
    pub(super) fn warn(
        &mut self,
        number: &'static str,
        slug: &'static str,
        span: Span,
        message: impl Into<String>,
    ) {
        self.push(Diagnostic::warning(number, slug, span, message));
    }

    /// A value that does not fit its key.
    pub(super) fn bad_value(&mut self, section: &str, key: &str, span: Span, bad: BadValue) {
        let word = bad.text.split('`').nth(1).unwrap_or_default();
        let near = self.did_you_mean(word, bad.words.iter().copied());
        let message = format!("`{key}`: {}", bad.text);
        let finding = Diagnostic::error(bad.number, bad.slug, span, message);
        self.push(with_help(finding, near).about(section, key));
    }

    /// A feature that is typed but not served by this build.
    pub(super) fn unbuilt(&mut self, section: &str, subject: &str, span: Span, what: &str) {
        let key = (section.to_owned(), subject.to_owned());
        let at = *self.unbuilt_at.entry(key).or_insert(self.unbuilt.len());
        match self.unbuilt.get_mut(at) {
            Some(known) => known.more += 1,
            None => self.unbuilt.push(Unbuilt {
                section: section.to_owned(),
                subject: subject.to_owned(),
                what: what.to_owned(),
                span,
                more: 0,
            }),
        }
    }

    /// Checks a regular expression.
    pub(super) fn pattern(&mut self, text: &str, letters: Letters) -> Read<()> {
        value::pattern(text, letters, &mut self.patterns)
    }

    /// The best suggestions for a misspelt word as a help text. Files that are wrong in
    /// thousands of places get none for the later ones: comparing words costs more than all
    /// else.
    pub(super) fn did_you_mean<'w>(
        &mut self,
        word: &str,
        legal: impl IntoIterator<Item = &'w str>,
    ) -> Option<String> {
        if self.comparisons == 0 {
            return None;
        }
        let legal: Vec<&str> = legal.into_iter().collect();
        self.comparisons = self.comparisons.saturating_sub(legal.len());
        did_you_mean(word, &legal).or_else(|| {
            // Keys and words are written in small letters.
            let small = word.to_ascii_lowercase();
            (small != word)
                .then(|| did_you_mean(&small, &legal))
                .flatten()
        })
    }

    /// E207: an annotation where none is read.
    pub(super) fn stray_annotation(&mut self, section: &str, span: Span, empty_value: bool) {
        let finding = Diagnostic::error(
            "E207",
            "annotation",
            span,
            "an annotation has no meaning here",
        );
        let finding = match empty_value {
            true => finding.help("lists are written without brackets"),
            false => finding,
        };
        self.push(finding.about(section, "["));
    }

    /// W212: a comma before the closing parenthesis.
    pub(super) fn trailing_comma(&mut self, comma: Option<Span>) {
        if let Some(span) = comma {
            self.warn(
                "W212",
                "trailing-comma",
                span,
                "trailing comma in an argument list",
            );
        }
    }

    /// E201: a section that does not exist here.
    pub(super) fn unknown_section(&mut self, within: &str, name: &Lit, legal: &[&str]) {
        let place = match within {
            "" => String::new(),
            within => format!(" in `{within}`"),
        };
        let message = format!("unknown section `{}`{place}", shortened(&name.text));
        let finding = Diagnostic::error("E201", "unknown-section", name.span, message);
        let help = self.did_you_mean(&name.text, legal.iter().copied());
        let help = help.or_else(|| {
            let words: Vec<String> = legal.iter().map(|word| format!("`{word}`")).collect();
            (!words.is_empty()).then(|| format!("there are {}", words.join(", ")))
        });
        let finding = with_help(finding, help);
        self.push(finding.about(within, &name.text));
    }

    /// E203 for an item of a kind that `section` does not hold. Returns how many of the items
    /// from `at` on it covers.
    pub(super) fn misplaced(&mut self, section: &str, items: &[Item], at: usize) -> usize {
        let Some(item) = items.get(at) else { return 1 };
        let (span, what, help) = match item {
            Item::Decl(decl) if decl.value == Value::Empty && is_link_section(section) => {
                let message = format!("`{}` has no value", shortened(&decl.key.text));
                let finding = Diagnostic::error("E206", "value-empty", decl.key.span, message)
                    .help("write the value on the line of the name");
                self.push(finding.about(section, &decl.key.text));
                return 1;
            }
            Item::Decl(decl) => {
                let help = match section {
                    "group" | "experimental" => Some(format!(
                        "it takes bodies with a name: `{} {{ ... }}`",
                        shortened(&decl.key.text)
                    )),
                    _ => None,
                };
                (decl.key.span, "a declaration is", help)
            }
            Item::Rule(rule) => (rule.span, "a rule is", None),
            Item::Sub(sub) => (sub.name.span, "a section is", None),
            Item::Link(link) => (link.span, "a link is", None),
            Item::Path(path) => (path.span, "a path is", None),
            Item::Stray(stray) => return self.stray(section, stray, items, at),
        };
        let finding = Diagnostic::error(
            "E203",
            "item-misplaced",
            span,
            format!("{what} not allowed in `{section}`"),
        );
        self.push(with_help(finding, help).about(section, ""));
        1
    }

    /// E203 for a literal that is no item, with a guess of what was meant.
    fn stray(&mut self, section: &str, stray: &Lit, items: &[Item], at: usize) -> usize {
        let line = |span: Span| self.line(span);
        let before = at.checked_sub(1).and_then(|at| items.get(at));
        let key = match before {
            Some(Item::Decl(decl)) => decl.key.text.as_str(),
            Some(Item::Stray(word)) => word.text.as_str(),
            _ => "",
        };
        // Part of the value of a secret, or all of it.
        let text = match is_secret_key(key) {
            true => "***".to_owned(),
            false => shortened(&stray.text),
        };
        let mut covers = 1;
        let help = match (before, items.get(at + 1)) {
            (_, Some(Item::Stray(next)))
                if next.text.starts_with('=') && line(next.span) == line(stray.span) =>
            {
                let words = items[at + 1..].iter().take_while(
                    |item| matches!(item, Item::Stray(w) if line(w.span) == line(stray.span)),
                );
                covers += words.count();
                Some(format!(
                    "settings are written with a colon: `{text}: value`"
                ))
            }
            (Some(Item::Decl(d)), _)
                if d.value == Value::Empty && line(d.key.span) != line(stray.span) =>
            {
                Some(format!(
                    "the value must be on the line of `{}:`",
                    d.key.text
                ))
            }
            (before, Some(Item::Stray(next)))
                if line(next.span) == line(stray.span)
                    && !before.is_some_and(|b| same_line_decl(b, stray, &line)) =>
            {
                covers = 2;
                Some(format!("missing `:` after `{text}`?"))
            }
            (_, Some(Item::Sub(next)))
                if next.name.text == "=" && line(next.span) == line(stray.span) =>
            {
                covers = 2;
                Some(format!("a section has no `=`: `{text} {{ ... }}`"))
            }
            (Some(Item::Decl(_)), _) if hints::is_joint(&text) => {
                let words = items[at..].iter().take_while(
                    |item| matches!(item, Item::Stray(w) if line(w.span) == line(stray.span)),
                );
                covers = words.count();
                Some(format!("`{key}` takes one value; nothing joins two"))
            }
            (Some(Item::Decl(decl)), _)
                if !is_secret_key(key) && same_line_decl(&items[at - 1], stray, &line) =>
            {
                match &decl.value {
                    Value::Literals(values) => values
                        .last()
                        .map(|value| hints::behind(key, &shortened(&value.text), &text)),
                    _ => None,
                }
            }
            _ => None,
        };
        let finding = Diagnostic::error(
            "E203",
            "item-misplaced",
            stray.span,
            format!("`{text}` does not belong here"),
        );
        self.push(with_help(finding, help).about(section, text));
        covers
    }

    /// All findings in source order, those about unserved features included.
    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        for u in self.unbuilt {
            let more = match u.more {
                0 => String::new(),
                n => format!(" ({n} more)"),
            };
            let message = format!("`honk run` refuses this: {} not built yet{more}", u.what);
            self.found.push(
                Diagnostic::warning("", NOT_BUILT, u.span, message).about(u.section, u.subject),
            );
        }
        if self.more > 0 {
            let message = format!("{} more findings are not listed", self.more);
            let place = self.found.iter().filter_map(|f| f.span).max();
            self.found
                .push(Diagnostic::new(Severity::Note, "", "more", place, message));
        }
        self.found
            .sort_by_key(|d| d.span.map_or((u32::MAX, 0), |s| (s.file.0, s.start)));
        self.found
    }
}

/// Sections whose items are links.
fn is_link_section(section: &str) -> bool {
    matches!(section, "node" | "subscription" | "dns.upstream")
}

fn same_line_decl(before: &Item, stray: &Lit, line: &dyn Fn(Span) -> u32) -> bool {
    matches!(before, Item::Decl(d) if line(d.value_span) == line(stray.span))
}

/// Turns findings about unserved features into errors, for `honk run` and reloads.
pub fn refuse_unbuilt(findings: &mut [Diagnostic]) {
    for finding in findings.iter_mut().filter(|f| f.slug == NOT_BUILT) {
        finding.severity = Severity::Error;
    }
}

/// Whether a configuration with these findings must not run. N714 and N715 only cost a listener.
pub fn is_fatal(findings: &[Diagnostic]) -> bool {
    findings
        .iter()
        .any(|f| f.severity == Severity::Error && !f.number.starts_with('N'))
}

/// The best suggestions for a misspelt word as a help text: near spellings, else a legal word
/// that contains it.
pub(super) fn did_you_mean(word: &str, legal: &[&str]) -> Option<String> {
    let near = honk_grammar::suggest(word, legal.iter().copied());
    match near.as_slice() {
        [] => legal
            .iter()
            .find(|candidate| word.len() >= 4 && candidate.contains(word))
            .map(|candidate| format!("did you mean `{candidate}`?")),
        [one] => Some(format!("did you mean `{one}`?")),
        [one, two, ..] => Some(format!("did you mean `{one}` or `{two}`?")),
    }
}

pub(super) fn with_help(finding: Diagnostic, help: Option<String>) -> Diagnostic {
    match help {
        Some(text) => finding.help(text),
        None => finding,
    }
}

/// A call for messages: its name with parentheses.
pub(super) fn call_name(call: &Call) -> String {
    format!("{}()", shortened(&call.name.text))
}
