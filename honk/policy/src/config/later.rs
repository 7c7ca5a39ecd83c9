//! Sections that are checked and not served yet: `chain`, `speedtest`, `watch`, `bypass`.
//!
//! Every key is typed, so that a file which validates here means the same once they are served.

use std::collections::HashMap;

use honk_grammar::{
    ast::{Item, Section, Span, Value},
    diag::Diagnostic,
};

use super::{
    cond, decl,
    keys::{BYPASS, CHAIN, ESCALATE, Key, SPEEDTEST, SPEEDTEST_SERVER, WATCH, WATCH_SET},
    names::{Names, Use, reserved},
    report::Report,
    value::shortened,
};

/// Checks named subsections; names of `chain` and `bypass` become targets of rules.
pub(super) fn lower(report: &mut Report<'_>, section: &str, items: &[Item], names: &mut Names) {
    let top: &'static [Key] = match section {
        "speedtest" => SPEEDTEST,
        "watch" => WATCH,
        _ => &[],
    };
    let named: Vec<&Section> = if top.is_empty() {
        only_sections(report, section, items)
    } else {
        decl::read(report, section, top, items).subs
    };
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for body in named {
        let name = body.name.text.as_str();
        if let Some(first) = seen.get(name) {
            let message = format!("`{}` is declared twice in `{section}`", shortened(name));
            let finding = Diagnostic::error("E208", "name-repeated", body.name.span, message);
            report.push(
                finding
                    .related(*first, "first declared here")
                    .about(section, name),
            );
            continue;
        }
        seen.insert(name, body.name.span);
        let outbound = matches!(section, "chain" | "bypass");
        if outbound && reserved(name) {
            let message = format!("the name `{}` is reserved", shortened(name));
            let finding = Diagnostic::error("E502", "name-reserved", body.name.span, message);
            report.push(finding.about(section, name));
            continue;
        }
        if outbound {
            names.add_node(name, body.name.span, Use::Unbuilt);
        }
        one(report, section, body);
    }
}

fn only_sections<'a>(
    report: &mut Report<'_>,
    section: &str,
    items: &'a [Item],
) -> Vec<&'a Section> {
    let mut subs = Vec::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        at += match item {
            Item::Sub(sub) => {
                subs.push(sub);
                1
            }
            _ => report.misplaced(section, items, at),
        };
    }
    subs
}

fn one(report: &mut Report<'_>, section: &str, body: &Section) {
    let label = format!("{section}.{}", body.name.text);
    let table = match section {
        "chain" => CHAIN,
        "speedtest" => SPEEDTEST_SERVER,
        "watch" => WATCH_SET,
        _ => BYPASS,
    };
    let rest = decl::read(report, &label, table, &body.items);
    for (_, targets) in rest.own.iter().filter(|(row, _)| row.name == "targets") {
        match &targets.value {
            Value::Calls(calls) => {
                for call in calls {
                    cond::lower(report, call);
                }
            }
            _ => {
                let message = "`targets` takes conditions such as `domain(...)`";
                let finding = Diagnostic::error("E205", "value-shape", targets.value_span, message);
                report.push(finding.about(&label, "targets"));
            }
        }
    }
    for sub in rest.subs {
        match (section, sub.name.text.as_str()) {
            ("bypass", "escalate") => {
                decl::only(report, &format!("{label}.escalate"), ESCALATE, &sub.items);
            }
            // Protocols and fields of nodes: checked where chains are built.
            ("chain", "rewrite") => {}
            ("bypass", _) => report.unknown_section(&label, &sub.name, &["escalate"]),
            ("chain", _) => report.unknown_section(&label, &sub.name, &["rewrite"]),
            _ => report.unknown_section(&label, &sub.name, &[]),
        }
    }
}
