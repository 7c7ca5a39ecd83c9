//! `routing`: rules and fallback to the rule model, outbound names resolved to ordinals.

use std::collections::HashMap;

use honk_grammar::{
    ast::{Arg, Decl, Item, Lit, Rule, Span, Value},
    diag::Diagnostic,
};

use super::{
    Field, FilterLine, GeoFile, GeoUse, GroupDef, Policy, Predicate, TextTest, cond,
    decl::repeated,
    group::ordinal,
    names::{MAX_OUTBOUNDS, Names, Target, Use},
    places::{GroupPlaces, Places},
    reach::{self, RulePlace},
    report::{Report, with_help},
    value::{self, shortened},
};
use crate::{
    id::Ordinal,
    routing::rule::{Action, Cond, RuleLine, RuleSet, Test},
};

/// Rule lines, generated ones and the fallback included.
pub(super) const MAX_LINES: usize = 1024;
/// `domain(...)` calls.
const MAX_DOMAIN_CALLS: usize = 1024;
/// `must_rules`: sets the sticky flag and continues.
const MUST_RULES: Ordinal = Ordinal(252);
const DIRECT: Action = Action {
    ordinal: Ordinal(0),
    must: false,
    mark: 0,
};
/// Longest rule text kept for people.
const MAX_TEXT: usize = 512;

/// Lowers the items of all `routing` sections. Nodes that rules name are appended to `groups`.
pub(super) fn lower(
    report: &mut Report<'_>,
    items: &[Item],
    names: &mut Names,
    groups: &mut Vec<GroupDef>,
    places: &mut Places,
    own_mark: u32,
    generated_lines: usize,
) -> Lowered {
    let mut routing = Routing {
        report,
        names,
        groups,
        places,
        own_mark,
        lines: Vec::new(),
        written: Vec::new(),
        geo: Vec::new(),
        domain_calls: 0,
    };
    let mut fallback: Option<&Decl> = None;
    let mut rules = generated_lines;
    let mut at = 0;
    while let Some(item) = items.get(at) {
        at += match item {
            Item::Rule(rule) => {
                rules += 1;
                if rules == MAX_LINES {
                    routing.too_many(rule.span, items, generated_lines);
                }
                routing.rule(rule);
                1
            }
            Item::Decl(decl) if matches!(decl.key.text.as_str(), "fallback" | "default") => {
                if let Some(old) = fallback {
                    repeated(
                        routing.report,
                        "routing",
                        "fallback",
                        old.key.span,
                        decl.key.span,
                    );
                }
                fallback = Some(decl);
                1
            }
            Item::Decl(decl) => {
                routing.unknown_key(&decl.key);
                1
            }
            _ => routing.report.misplaced("routing", items, at),
        };
    }
    routing.fallback(fallback);
    Lowered {
        rules: RuleSet {
            lines: routing.lines,
        },
        networks: routing.geo,
        written: routing.written,
    }
}

/// The rules, and what is still to be done with them.
pub(super) struct Lowered {
    pub(super) rules: RuleSet,
    /// Address lists that geodata fills.
    pub(super) networks: Vec<GeoUse>,
    written: Vec<RulePlace>,
}

impl Lowered {
    /// Warns about rules that never decide, once all lists are filled.
    pub(super) fn check(&self, report: &mut Report<'_>) {
        reach::check(report, &self.rules, &self.written, MUST_RULES.0);
    }
}

/// The last line when none is written.
pub(super) fn direct_fallback() -> RuleLine {
    RuleLine {
        conds: Vec::new(),
        action: DIRECT,
        text: "fallback: direct".to_owned(),
        file: String::new(),
        line: 0,
    }
}

struct Routing<'r, 's, 'n> {
    report: &'r mut Report<'s>,
    names: &'n mut Names,
    groups: &'n mut Vec<GroupDef>,
    places: &'n mut Places,
    own_mark: u32,
    lines: Vec<RuleLine>,
    /// Where the lines stand.
    written: Vec<RulePlace>,
    geo: Vec<GeoUse>,
    domain_calls: usize,
}

impl Routing<'_, '_, '_> {
    fn unknown_key(&mut self, key: &Lit) {
        let message = format!(
            "unknown key `{}` in section `routing`",
            shortened(&key.text)
        );
        let finding = Diagnostic::error("E204", "unknown-key", key.span, message);
        let help = self.report.did_you_mean(&key.text, ["fallback", "default"]);
        let help = help.or_else(|| {
            Some(
                "`routing` holds rules, `condition(...) -> outbound`, and one `fallback:`"
                    .to_owned(),
            )
        });
        let finding = with_help(finding, help);
        self.report.push(finding.about("routing", &key.text));
    }

    fn too_many(&mut self, span: Span, items: &[Item], generated: usize) {
        let rules = items
            .iter()
            .filter(|item| matches!(item, Item::Rule(_)))
            .count();
        let message = format!(
            "{} rule lines with the fallback, the limit is {MAX_LINES}",
            rules + generated + 1
        );
        let finding = Diagnostic::error("E608", "rule-too-many", span, message);
        self.report.push(finding.about("routing", ""));
    }

    fn rule(&mut self, rule: &Rule) {
        let mut conds: Vec<Cond> = Vec::with_capacity(rule.conds.len());
        let mut geo: Vec<(usize, GeoFile)> = Vec::new();
        let mut spans = Vec::with_capacity(rule.conds.len());
        for call in &rule.conds {
            let Some(lowered) = cond::lower(self.report, call) else {
                continue;
            };
            if let Test::Domain(_) = &lowered.cond.test {
                self.domain_calls += 1;
                if self.domain_calls == MAX_DOMAIN_CALLS + 1 {
                    let message = format!("more than {MAX_DOMAIN_CALLS} `domain(...)` conditions");
                    self.report
                        .error("E608", "rule-too-many", call.span, message);
                }
            }
            geo.extend(lowered.geo.into_iter().map(|file| (conds.len(), file)));
            conds.push(lowered.cond);
            spans.push(call.span);
        }
        self.report.trailing_comma(rule.out.trailing_comma);
        let out = &rule.out;
        let Some(action) = self.outbound(&out.name, &out.args, out.parens, false) else {
            return;
        };
        let line = self.lines.len();
        self.geo.extend(
            geo.into_iter()
                .map(|(cond, file)| GeoUse { line, cond, file }),
        );
        self.written.push(RulePlace {
            line: rule.span,
            partial: spans.len() < rule.conds.len(),
            conds: spans,
        });
        self.push(conds, action, rule.span);
    }

    fn push(&mut self, conds: Vec<Cond>, action: Action, span: Span) {
        let file = self
            .report
            .parsed
            .sources
            .file(span.file)
            .map_or("", |f| f.name.as_str());
        self.lines.push(RuleLine {
            conds,
            action,
            text: one_line(self.report.parsed.sources.text(span)),
            file: file.to_owned(),
            line: self.report.line(span),
        });
    }

    fn fallback(&mut self, decl: Option<&Decl>) {
        let Some(decl) = decl else {
            self.lines.push(direct_fallback());
            return;
        };
        if let Some(note) = &decl.annotation {
            self.report.stray_annotation("routing", note.span, false);
        }
        let action = match &decl.value {
            Value::Empty => {
                let finding = Diagnostic::error(
                    "E206",
                    "value-empty",
                    decl.key.span,
                    format!("`{}` has no value", decl.key.text),
                );
                self.report.push(finding.about("routing", &decl.key.text));
                None
            }
            Value::Literals(literals) => match literals.as_slice() {
                [name] => self.outbound(name, &[], false, true),
                _ => self.fallback_shape(decl.value_span),
            },
            Value::Calls(calls) => match calls.as_slice() {
                [call] if !call.not => {
                    self.report.trailing_comma(call.trailing_comma);
                    self.outbound(&call.name, &call.args, true, true)
                }
                _ => self.fallback_shape(decl.value_span),
            },
        };
        self.push(Vec::new(), action.unwrap_or(DIRECT), decl.span);
    }

    fn fallback_shape(&mut self, span: Span) -> Option<Action> {
        let message = "`fallback` takes one outbound";
        let finding = Diagnostic::error("E205", "value-shape", span, message);
        self.report.push(finding.about("routing", "fallback"));
        None
    }

    /// The right-hand side of a rule or the value of `fallback`.
    fn outbound(
        &mut self,
        name: &Lit,
        args: &[Arg],
        parens: bool,
        is_fallback: bool,
    ) -> Option<Action> {
        let text = name.text.as_str();
        if text == "must_rules" {
            if is_fallback || parens {
                let message = match is_fallback {
                    true => "`must_rules` cannot be the fallback",
                    false => "`must_rules` takes no parameters",
                };
                let finding = Diagnostic::error("E607", "must-rules", name.span, message);
                self.report.push(finding.about("routing", text));
                return None;
            }
            return Some(Action {
                ordinal: MUST_RULES,
                must: false,
                mark: 0,
            });
        }
        let (bare, prefixed) = match text.strip_prefix("must_") {
            Some(bare) => (bare, true),
            None => (text, false),
        };
        let parameters = self.parameters(args);
        let ordinal = self.target(bare, name.span)?;
        let (must, mark) = parameters?;
        Some(Action {
            ordinal,
            must: must || prefixed,
            mark,
        })
    }

    fn parameters(&mut self, args: &[Arg]) -> Option<(bool, u32)> {
        let (mut must, mut mark) = (None, None);
        let mut failed = false;
        for arg in args {
            let (key, text) = arg.parts();
            let repeated = match key.map(|key| key.text.as_str()) {
                None if text == "must" => must.replace(true).is_some(),
                Some("mark") => match value::mark(text) {
                    Ok(value) => mark.replace((value, arg.span)).is_some(),
                    Err(bad) => {
                        self.report.bad_value("routing", "mark", arg.span, bad);
                        failed = true;
                        false
                    }
                },
                Some("must") => {
                    failed |= self.bad_parameter(arg.span, "`must` takes no value", None);
                    false
                }
                _ => {
                    let word = key.map_or(text, |key| key.text.as_str());
                    let message = format!("unknown parameter `{}`", shortened(word));
                    let help = self.report.did_you_mean(word, ["must", "mark"]);
                    failed |= self.bad_parameter(arg.span, &message, help);
                    false
                }
            };
            if repeated {
                failed |= self.bad_parameter(arg.span, "the parameter is repeated", None);
            }
        }
        if let Some((mark, span)) = mark.filter(|(mark, _)| mark & self.own_mark == self.own_mark) {
            let message = format!(
                "mark {mark:#x} contains honk's own mark {:#x}",
                self.own_mark
            );
            let finding = Diagnostic::warning("W613", "mark-bypass", span, message)
                .help("such packets look like honk's own and are not intercepted");
            self.report.push(finding.about("routing", "mark"));
        }
        (!failed).then(|| (must.is_some(), mark.map_or(0, |(mark, _)| mark)))
    }

    fn bad_parameter(&mut self, span: Span, message: &str, help: Option<String>) -> bool {
        let finding = Diagnostic::error("E606", "outbound-param", span, message);
        self.report
            .push(with_help(finding, help).about("routing", ""));
        true
    }

    /// The ordinal of a name; a node gets an implicit group at its first use.
    fn target(&mut self, name: &str, span: Span) -> Option<Ordinal> {
        let message = match self.names.target(name) {
            Some(Target::Outbound(ordinal)) => return Some(ordinal),
            Some(Target::Node(usable)) => {
                match usable {
                    Use::Served => {}
                    Use::Disabled(place) => self.disabled(name, span, place),
                    Use::Unbuilt => {
                        let what = "a rule names a node that cannot be dialed: it is";
                        self.report.unbuilt("routing", name, span, what);
                    }
                }
                return Some(self.implicit(name, span));
            }
            Some(Target::Skipped(_)) => {
                format!(
                    "the node `{}` was skipped, no rule can use it",
                    shortened(name)
                )
            }
            None if self.names.partial => return Some(Ordinal(0)),
            None => format!("unknown outbound `{}`", shortened(name)),
        };
        let mut finding = Diagnostic::error("E501", "rule-target-unknown", span, message);
        if let Some(Target::Skipped(place)) = self.names.target(name) {
            finding = finding.related(place, "its link cannot be used");
        }
        let help = self.report.did_you_mean(name, self.names.all());
        self.report
            .push(with_help(finding, help).about("routing", name));
        None
    }

    /// The first rule with a node that is switched off; later ones find its group.
    fn disabled(&mut self, name: &str, span: Span, place: Span) {
        let name = shortened(name);
        let message = format!("the node `{name}` is disabled: flows of this rule are refused");
        let finding = Diagnostic::warning("", "node-disabled", span, message)
            .related(place, "disabled here")
            .help("enable the node, or name another outbound");
        self.report.push(finding.about("routing", name));
    }

    fn implicit(&mut self, name: &str, span: Span) -> Ordinal {
        let ordinal = ordinal(self.groups.len());
        if self.groups.len() == MAX_OUTBOUNDS {
            let declared = self.groups.iter().filter(|group| !group.implicit).count();
            let message = format!(
                "{declared} groups and {} nodes named by rules, the limit is {MAX_OUTBOUNDS}",
                self.groups.len() + 1 - declared
            );
            let finding = Diagnostic::error("E901", "too-many-groups", span, message);
            self.report.push(finding.about("routing", name));
        }
        let exact = Predicate {
            not: false,
            field: Field::Name,
            tests: vec![TextTest::Exact(name.to_owned())],
        };
        self.names.add_group(name, ordinal, span);
        let places = GroupPlaces {
            name: span,
            default: None,
            final_: None,
            filters: Vec::new(),
            nested: HashMap::new(),
        };
        self.places.add_group(name, places);
        self.groups.push(GroupDef {
            filters: Some(vec![FilterLine::Nodes(vec![exact])]),
            default: Some(name.to_owned()),
            implicit: true,
            ..GroupDef::new(name.to_owned(), ordinal, Policy::Selector)
        });
        ordinal
    }
}

/// Rule text with white space collapsed, cut when it is very long.
fn one_line(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
        if out.len() > MAX_TEXT {
            let cut = (0..=MAX_TEXT)
                .rev()
                .find(|at| out.is_char_boundary(*at))
                .unwrap_or(0);
            out.truncate(cut);
            out.push('…');
            break;
        }
    }
    out
}
