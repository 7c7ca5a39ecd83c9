//! `filter:` lines of a group: what they select, and which cannot be used.
//!
//! A line that cannot be used is ignored with a warning and never widens a group: membership
//! stays explicit. Lines are numbered as the groups document says: from 1, without the lines
//! that only add nested groups.

use std::borrow::Cow;
use std::collections::HashSet;

use honk_grammar::{
    ast::{Annotation, Arg, Call, Decl, Item, Span, Value},
    diag::Diagnostic,
};

use super::{
    Field, FilterLine, Policy, Predicate, TextTest, decl,
    keys::FILTER_NOTES,
    names::Names,
    report::{Report, call_name, did_you_mean, with_help},
    value::{Letters, remedy, shortened},
};

const FUNCTIONS: &[&str] = &["name", "subtag", "group", "bypass"];

/// Where the names of nodes are.
const NAMES: &str = "`honk validate --dump nodes` lists the names";

/// Takes literals that follow a `filter` line on its line out of a group body. Returns the other
/// items and the places of the lines that had any.
pub(super) fn trailing_strays<'a>(
    report: &Report<'_>,
    items: &'a [Item],
) -> (Cow<'a, [Item]>, HashSet<u32>) {
    let mut lines = HashSet::new();
    let mut drop = HashSet::new();
    let mut filter: Option<&Decl> = None;
    for (at, item) in items.iter().enumerate() {
        match (item, filter) {
            (Item::Decl(decl), _) => {
                filter = (decl.key.text == "filter").then_some(decl);
            }
            (Item::Stray(stray), Some(decl)) if decl.value != Value::Empty => {
                let end = Span {
                    start: decl.value_span.end,
                    ..decl.value_span
                };
                if report.line(end) == report.line(stray.span) {
                    lines.insert(decl.span.start);
                    drop.insert(at);
                }
            }
            _ => filter = None,
        }
    }
    if drop.is_empty() {
        return (Cow::Borrowed(items), lines);
    }
    let kept = items
        .iter()
        .enumerate()
        .filter(|(at, _)| !drop.contains(at));
    (
        Cow::Owned(kept.map(|(_, item)| item.clone()).collect()),
        lines,
    )
}

/// Reads the filter lines of one group in order.
pub(super) struct Reader<'a> {
    group: &'a str,
    names: &'a Names,
    number: usize,
    /// Places of `add_latency` notes, which only urltest uses.
    latency: Vec<Span>,
    /// Names that filters give in full and no node has, and whether one has another of them.
    strangers: Vec<(String, Span)>,
    known: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(group: &'a str, names: &'a Names) -> Self {
        Self {
            group,
            names,
            number: 0,
            latency: Vec::new(),
            strangers: Vec::new(),
            known: false,
        }
    }

    /// Reads one line and its `add_latency`; `extra` says that other text stood behind it.
    pub(super) fn line(
        &mut self,
        report: &mut Report<'_>,
        decl: &Decl,
        extra: bool,
    ) -> (FilterLine, Option<i64>) {
        let calls: &[Call] = match &decl.value {
            Value::Calls(calls) => calls,
            _ => &[],
        };
        let standalone = match calls {
            [call] => call.name.text == "group" && !call.not && !extra,
            _ => false,
        };
        let nested = calls.iter().any(|call| call.name.text == "group");
        if !(standalone && calls.iter().any(|call| !call.args.is_empty())) {
            self.number += 1;
        }
        for call in calls {
            report.trailing_comma(call.trailing_comma);
        }
        let offset = self.notes(report, decl.annotation.as_ref(), standalone);
        let line = match calls {
            [call] if standalone => self.groups(report, call, decl.value_span),
            _ if nested => {
                let message = format!(
                    "group `{}`: filter #{} mixes `group()` with something else and is ignored",
                    shortened(self.group),
                    self.number
                );
                let finding =
                    Diagnostic::warning("W905", "filter-mixed-group", decl.value_span, message);
                report.push(
                    finding
                        .help("write `group(...)` on a `filter:` line of its own")
                        .about("group", self.group),
                );
                FilterLine::Ignored
            }
            _ => self.predicates(report, decl, calls, extra),
        };
        (line, offset)
    }

    fn predicates(
        &mut self,
        report: &mut Report<'_>,
        decl: &Decl,
        calls: &[Call],
        extra: bool,
    ) -> FilterLine {
        let mut problem = match &decl.value {
            Value::Empty => Some(("it is empty".to_owned(), decl.key.span, None)),
            Value::Literals(words) => {
                let quoted = words.iter().find(|word| word.text.contains('('));
                let help = match quoted {
                    Some(word) => format!("remove the quotes: `{}`", shortened(&word.text)),
                    None => "filters are calls, as in `name(keyword: 'HK')`".to_owned(),
                };
                Some(("it is no function".to_owned(), decl.value_span, Some(help)))
            }
            Value::Calls(_) if extra => Some((
                "other text follows on its line".to_owned(),
                decl.value_span,
                None,
            )),
            Value::Calls(_) => None,
        };
        let mut predicates = Vec::new();
        for call in calls {
            match predicate(report, call) {
                Ok(predicate) => predicates.push(predicate),
                Err(Unusable { why, span, help }) => {
                    problem.get_or_insert((why, span, help));
                }
            }
        }
        let Some((why, span, help)) = problem else {
            if let Some(call) = calls.iter().find(|call| call.name.text == "bypass") {
                report.unbuilt("group", "bypass()", call.span, "filter `bypass()` is");
            }
            self.literals(report, calls);
            return FilterLine::Nodes(predicates.into_iter().flatten().collect());
        };
        let message = format!(
            "group `{}`: filter #{} is ignored: {why}",
            shortened(self.group),
            self.number
        );
        let finding = Diagnostic::warning("W904", "filter-ignored", span, message);
        report.push(with_help(finding, help).about("group", self.group));
        FilterLine::Ignored
    }

    /// Literals of filters that can be used: tags that no subscription has, names of no node.
    fn literals(&mut self, report: &mut Report<'_>, calls: &[Call]) {
        if self.names.partial {
            return;
        }
        for call in calls {
            let literal = |arg: &Arg| arg.parts().0.is_none();
            let words = call.args.iter().filter(|arg| literal(arg));
            let words = words.map(|arg| (arg.parts().1, arg.span));
            let words = words.filter(|(text, _)| !text.is_empty());
            match call.name.text.as_str() {
                // Beside a pattern a tag may be one of others that come and go.
                "subtag" if call.args.iter().all(literal) => {
                    for (text, span) in words.filter(|(t, _)| !self.names.tags.contains(*t)) {
                        let message = format!(
                            "group `{}`: no subscription has the tag `{}`",
                            shortened(self.group),
                            shortened(text)
                        );
                        let tags = self.names.tags.iter().map(String::as_str);
                        let help = report.did_you_mean(text, tags);
                        let finding = Diagnostic::warning("W503", "subtag-unknown", span, message);
                        report.push(with_help(finding, help).about("group", text));
                    }
                }
                "name" if !self.names.subscriptions => {
                    for (text, span) in words {
                        match self.names.is_node(text) || matches!(text, "direct" | "block") {
                            true => self.known = true,
                            false => self.strangers.push((text.to_owned(), span)),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn groups(&self, report: &mut Report<'_>, call: &Call, span: Span) -> FilterLine {
        let mut tags: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        for arg in &call.args {
            let (key, text) = arg.parts();
            if key.is_some() {
                let message = format!(
                    "group `{}`: `group()` takes names only; this line is ignored",
                    shortened(self.group)
                );
                let finding = Diagnostic::warning("W904", "filter-ignored", arg.span, message);
                report.push(finding.about("group", self.group));
                return FilterLine::Ignored;
            }
            for tag in self::tags(text) {
                if !seen.insert(tag) {
                    continue;
                }
                tags.push(tag.to_owned());
                let known = self.names.group(tag).is_some();
                if !known && !self.names.partial {
                    let message = format!(
                        "group `{}`: nested group `{}` is not declared",
                        shortened(self.group),
                        shortened(tag)
                    );
                    let finding = Diagnostic::warning("W503", "group-unknown", arg.span, message);
                    let help = report.did_you_mean(tag, self.names.all());
                    report.push(with_help(finding, help).about("group", tag));
                }
            }
        }
        if tags.is_empty() {
            let message = format!(
                "group `{}`: `group()` names no group and selects nothing",
                shortened(self.group)
            );
            let finding = Diagnostic::warning("W906", "empty-subgroup", span, message);
            let help = "remove all `filter:` lines to select every node";
            report.push(finding.help(help).about("group", self.group));
        }
        FilterLine::Groups(tags)
    }

    /// `[add_latency: D]`, in milliseconds.
    fn notes(
        &mut self,
        report: &mut Report<'_>,
        notes: Option<&Annotation>,
        standalone: bool,
    ) -> Option<i64> {
        if let Some(annotation) = notes.filter(|a| a.notes.is_empty()) {
            report.stray_annotation("group", annotation.span, false);
        }
        let fields = decl::notes(report, "group", FILTER_NOTES, notes);
        let entry = fields.get("add_latency")?;
        if standalone {
            let message = "`add_latency` has no effect on nested groups";
            report.warn("W214", "ignored-key", entry.key, message);
            return None;
        }
        self.latency.push(entry.key);
        fields.millis("add_latency")
    }

    /// Reports what only urltest uses, and names without a node. (When all of them are wrong the
    /// group is empty, which is told.)
    pub(super) fn finish(self, report: &mut Report<'_>, policy: Policy) {
        for (name, span) in self.strangers.iter().filter(|_| self.known) {
            let message = format!(
                "group `{}`: no node is called `{}`",
                shortened(self.group),
                shortened(name)
            );
            let help = report.did_you_mean(name, self.names.all_nodes());
            let help = help.unwrap_or_else(|| NAMES.to_owned());
            let finding = Diagnostic::warning("W503", "name-unknown", *span, message);
            report.push(finding.help(help).about("group", name));
        }
        for span in self.latency {
            if policy != Policy::UrlTest {
                let message = format!("`add_latency` has no effect in a {} group", policy.name());
                report.warn("W214", "ignored-key", span, message);
            }
        }
    }
}

/// The names of one argument of `group(...)`.
pub(super) fn tags(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(['|', ',']).map(str::trim);
    parts.filter(|tag| !tag.is_empty())
}

/// Why a line cannot be used.
struct Unusable {
    why: String,
    span: Span,
    help: Option<String>,
}

/// One predicate; `None` for `bypass()`, which the caller reports.
fn predicate(report: &mut Report<'_>, call: &Call) -> Result<Option<Predicate>, Unusable> {
    let unusable = |why: String, span, help| Unusable { why, span, help };
    let field = match call.name.text.as_str() {
        "name" => Field::Name,
        "subtag" => Field::Subtag,
        "bypass" => return Ok(None),
        _ => {
            let help = did_you_mean(&call.name.text, FUNCTIONS);
            let why = format!("unknown function `{}`", call_name(call));
            return Err(unusable(why, call.name.span, help));
        }
    };
    let mut tests = Vec::new();
    for arg in &call.args {
        let (key, text) = arg.parts();
        if text.is_empty() {
            continue;
        }
        tests.push(match key.map(|key| key.text.as_str()) {
            None => TextTest::Exact(text.to_owned()),
            Some("keyword") => TextTest::Keyword(text.to_owned()),
            Some("regex") => {
                report.pattern(text, Letters::Any).map_err(|bad| {
                    let help = remedy(text, &call.name.text);
                    unusable(bad.text, arg.span, help)
                })?;
                TextTest::Regex(text.to_owned())
            }
            Some(key) => {
                let why = format!("`{}` takes no `{}:`", call_name(call), shortened(key));
                let help = did_you_mean(key, &["keyword", "regex"]);
                return Err(unusable(why, arg.span, help));
            }
        });
    }
    if tests.is_empty() {
        let why = format!("`{}` has no argument", call_name(call));
        return Err(unusable(why, call.span, None));
    }
    Ok(Some(Predicate {
        not: call.not,
        field,
        tests,
    }))
}
