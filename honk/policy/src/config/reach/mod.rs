//! Rules that no flow reaches: conditions that exclude each other, and lines behind others that
//! take all they could.
//!
//! Nobody writes such a line on purpose, and nothing else tells of it: the rule is just never
//! counted. Only what follows from the texts is said; a rule that is not listed here may still
//! be useless.

mod line;
mod names;
mod set;

use std::collections::HashMap;

use honk_grammar::{ast::Span, diag::Diagnostic};

use self::line::{Line, Meaning};
pub(super) use self::names::fits_all;
use super::{report::Report, routing::MAX_LINES, value::shortened};
use crate::routing::rule::{Cond, RuleLine, RuleSet, Test};

/// Steps spent on one configuration: intervals kept and comparisons made. What is beyond is not
/// looked at; a file that large is written by a program.
const STEPS: usize = 300_000;

/// Where a rule line and its conditions stand.
#[derive(Debug)]
pub(super) struct RulePlace {
    pub(super) line: Span,
    /// In the order of the conditions.
    pub(super) conds: Vec<Span>,
    /// A condition was left out after an error.
    pub(super) partial: bool,
}

/// Warns about rules that never decide. `places` are those of the lines before the fallback.
pub(super) fn check(report: &mut Report<'_>, rules: &RuleSet, places: &[RulePlace], must: u8) {
    // Lists may be empty for want of the directory of their files; a file of too many lines has
    // that to mend first.
    if report.parsed.suspect("global") || rules.lines.len() > MAX_LINES {
        return;
    }
    let mut left = STEPS;
    let mut earlier = Earlier::default();
    for (at, (rule, place)) in rules.lines.iter().zip(places).enumerate() {
        if place.partial || is_told(rule) {
            continue;
        }
        let Some(meaning) = Line::read(&rule.conds, &mut left) else {
            return;
        };
        let line = match meaning {
            Meaning::Never(guilty) => {
                report.push(never(place, &guilty));
                continue;
            }
            Meaning::Some(line) => line,
        };
        if let Some(first) = earlier.cover(&line, &mut left) {
            report.push(shadowed(rules, places, first, at));
            continue;
        }
        // What sets a flag and goes on takes nothing.
        if rule.action.ordinal.0 == must {
            continue;
        }
        if line.takes_all() {
            if let Some(next) = places.get(at + 1) {
                report.push(behind(rules, places, at, next.line));
            }
            return;
        }
        earlier.add(at, line);
    }
}

/// Whether geodata that is not there has its own finding.
fn is_told(rule: &RuleLine) -> bool {
    rule.conds.iter().any(|cond| match &cond.test {
        Test::L4Proto { tcp, udp } => !tcp && !udp,
        Test::Dest(list) | Test::Source(list) => list.is_empty(),
        _ => false,
    })
}

/// Lines that may take what a later one is for.
#[derive(Default)]
struct Earlier<'a> {
    lines: Vec<(usize, Line<'a>)>,
    /// Places in `lines` by a name or list that one of their conditions looks for.
    by_name: HashMap<String, Vec<usize>>,
    /// Lines that have to be looked at for every other.
    wide: Vec<usize>,
}

impl<'a> Earlier<'a> {
    fn add(&mut self, at: usize, line: Line<'a>) {
        let place = self.lines.len();
        match line.keys() {
            Some(keys) => {
                for key in keys {
                    self.by_name.entry(key).or_default().push(place);
                }
            }
            None => self.wide.push(place),
        }
        self.lines.push((at, line));
    }

    /// The first earlier line that takes every flow of this one.
    fn cover(&self, line: &Line<'_>, left: &mut usize) -> Option<usize> {
        let mut first: Option<usize> = None;
        let named = line.asks().into_iter();
        let named = named.filter_map(|key| self.by_name.get(&key)).flatten();
        for &place in named.chain(&self.wide) {
            let (at, other) = &self.lines[place];
            if first.is_none_or(|first| *at < first) && other.covers(line, left) {
                first = Some(*at);
            }
        }
        first
    }
}

fn never(place: &RulePlace, guilty: &[usize]) -> Diagnostic {
    let spans: Vec<Span> = guilty
        .iter()
        .filter_map(|at| place.conds.get(*at).copied())
        .collect();
    let (message, help) = match spans.len() {
        1 => (
            "no flow fulfils this condition: the rule is never used",
            "`!` excludes every value there is; remove the rule or the condition",
        ),
        _ => (
            "no flow fulfils these conditions together: the rule is never used",
            "all calls joined by `&&` must hold; write alternatives into one call, or a rule each",
        ),
    };
    let span = spans.first().copied().unwrap_or(place.line);
    let finding = Diagnostic::warning("", "rule-unreachable", span, message).help(help);
    let others = spans.into_iter().skip(1).take(3);
    let finding = others.fold(finding, |finding, other| {
        finding.related(other, "excludes it")
    });
    finding.about("routing", "")
}

fn behind(rules: &RuleSet, places: &[RulePlace], all: usize, next: Span) -> Diagnostic {
    let more = places.len() - all - 2;
    let which = match more {
        0 => "this rule is".to_owned(),
        n => format!("this rule and {n} more are"),
    };
    let message = format!(
        "{which} never used: `{}` before takes every flow",
        shortened(&rules.lines[all].text)
    );
    let finding = Diagnostic::warning("", "rule-unreachable", next, message)
        .help("move that rule to the end, or write it as `fallback:`");
    let finding = finding.related(places[all].line, "takes every flow");
    finding.about("routing", "")
}

fn shadowed(rules: &RuleSet, places: &[RulePlace], first: usize, at: usize) -> Diagnostic {
    let (one, other) = (&rules.lines[first], &rules.lines[at]);
    let same = same(&one.conds, &other.conds);
    let what = match same {
        true => "has the same conditions",
        false => "takes all its flows",
    };
    let message = format!(
        "this rule is never used: the earlier `{}` {what}",
        shortened(&one.text)
    );
    let help = match (same, one.action == other.action) {
        (_, true) => "remove it",
        (true, false) => "the first rule decides: remove one of them",
        (false, false) => "the first rule that fits decides: move it before the other",
    };
    let finding = Diagnostic::warning("", "rule-shadowed", places[at].line, message).help(help);
    let finding = finding.related(places[first].line, "decides first");
    finding.about("routing", "")
}

fn same(one: &[Cond], other: &[Cond]) -> bool {
    one.len() == other.len() && one.iter().all(|cond| other.contains(cond))
}
