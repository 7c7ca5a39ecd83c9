//! `group`: named bodies to group definitions, with policy spellings and reference checks.

use std::{collections::HashMap, time::Duration};

use honk_grammar::{
    ast::{Decl, Item, Section, Span, Value},
    diag::{Diagnostic, Severity},
};

use super::{
    FilterLine, GroupDef, Policy, Probing,
    decl::{self, Fields, repeated},
    filter,
    keys::{AUTO_OPTIONS, GROUP},
    names::{MAX_OUTBOUNDS, Names, reserved},
    places::{GroupPlaces, Places},
    report::Report,
    timing::IDLE,
    typed::arg_text,
    value::shortened,
};
use crate::id::{Ordinal, Secret};

/// Longest group name in bytes.
const MAX_NAME: usize = 128;

/// Registers the declared names first, so that groups may refer to later ones.
pub(super) fn declare<'a>(
    report: &mut Report<'_>,
    items: &'a [Item],
    names: &mut Names,
) -> Vec<&'a Section> {
    let mut bodies: Vec<&Section> = Vec::new();
    let mut first: HashMap<&str, Span> = HashMap::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        let Item::Sub(body) = item else {
            at += report.misplaced("group", items, at);
            continue;
        };
        at += 1;
        let name = body.name.text.as_str();
        if reserved(name) || name == "GLOBAL" || name.len() > MAX_NAME {
            let why = match name {
                "" => "is empty",
                _ if name.len() > MAX_NAME => "is longer than 128 bytes",
                _ => "is reserved",
            };
            let message = format!("group name `{}` {why}", shortened(name));
            let finding = Diagnostic::error("E502", "group-name-reserved", body.name.span, message)
                .help("choose another name");
            report.push(finding.about("group", name));
            continue;
        }
        if let Some(first) = first.get(name) {
            let message = format!("group `{}` is declared twice", shortened(name));
            let finding =
                Diagnostic::error("E208", "group-name-duplicate", body.name.span, message);
            let finding = finding.related(*first, "first declared here");
            report.push(
                finding
                    .help("groups do not merge: rename one")
                    .about("group", name),
            );
            continue;
        }
        first.insert(name, body.name.span);
        names.add_group(name, ordinal(bodies.len()), body.name.span);
        bodies.push(body);
    }
    if let Some(extra) = bodies.get(MAX_OUTBOUNDS) {
        let message = format!(
            "{} groups defined, the limit is {MAX_OUTBOUNDS} (ordinals 2-251)",
            bodies.len()
        );
        let finding = Diagnostic::error("E901", "too-many-groups", extra.name.span, message)
            .help("merge groups: one group may have many `filter:` lines");
        report.push(finding.about("group", &extra.name.text));
    }
    bodies
}

/// Configuration ordinal of user outbound `index`; past the limit the configuration is refused.
pub(super) fn ordinal(index: usize) -> Ordinal {
    Ordinal(u8::try_from(index + 2).unwrap_or(u8::MAX))
}

/// Lowers the bodies in declaration order.
pub(super) fn lower(
    report: &mut Report<'_>,
    bodies: &[&Section],
    names: &Names,
    check_interval: Duration,
    places: &mut Places,
) -> Vec<GroupDef> {
    let mut defs = Vec::with_capacity(bodies.len());
    for (at, body) in bodies.iter().enumerate() {
        let (def, fields) = one(report, body, ordinal(at), names);
        idle_raised(report, body, &def, &fields, check_interval);
        places.add_group(&def.name, places_of(body, &fields));
        defs.push(def);
    }
    defs
}

fn places_of(body: &Section, fields: &Fields) -> GroupPlaces {
    let mut nested = HashMap::new();
    let mut filters = Vec::new();
    for item in &body.items {
        let Item::Decl(decl) = item else { continue };
        if decl.key.text == "filter" {
            filters.push(decl.value_span);
        }
        let Value::Calls(calls) = &decl.value else {
            continue;
        };
        for arg in calls.iter().flat_map(|call| &call.args) {
            for tag in filter::tags(&arg.value.text) {
                nested.entry(tag.to_owned()).or_insert(arg.span);
            }
        }
    }
    let value = |key: &str| fields.get(key).map(|entry| entry.value);
    GroupPlaces {
        name: body.name.span,
        default: value("default"),
        final_: value("final"),
        filters,
        nested,
    }
}

/// Warns when a group would fall asleep between two of its own probes.
fn idle_raised(
    report: &mut Report<'_>,
    body: &Section,
    def: &GroupDef,
    fields: &Fields,
    check_interval: Duration,
) {
    let timing = def.timing(check_interval);
    if !timing.raised {
        return;
    }
    let entry = fields
        .get("idle_timeout")
        .or_else(|| fields.get("test_interval"));
    let span = entry.map_or(body.name.span, |entry| entry.value);
    let interval = timing.interval.as_secs();
    let written = def.idle_timeout_s.unwrap_or(IDLE.as_secs());
    let message = format!(
        "group `{}`: probes come every {interval} s, so `idle_timeout` is raised from {written} s to that",
        shortened(&def.name)
    );
    let finding = Diagnostic::new(
        Severity::Warning,
        "",
        "group-idle-raised",
        Some(span),
        message,
    );
    report.push(finding.about("group", "idle_timeout"));
}

fn one(
    report: &mut Report<'_>,
    body: &Section,
    ordinal: Ordinal,
    names: &Names,
) -> (GroupDef, Fields) {
    let name = body.name.text.as_str();
    let section = format!("group.{name}");
    let (items, trailing) = filter::trailing_strays(report, &body.items);
    let rest = decl::read(report, &section, GROUP, &items);
    for sub in &rest.subs {
        match sub.name.text.as_str() {
            "auto_options" => {
                let section = format!("{section}.auto_options");
                decl::only(report, &section, AUTO_OPTIONS, &sub.items);
                report.unbuilt("group", "auto_options", sub.name.span, "`auto_options` is");
            }
            _ => report.unknown_section(&section, &sub.name, &["auto_options"]),
        }
    }
    let mut policy: Option<(Policy, &Decl)> = None;
    let mut lines: Option<Vec<FilterLine>> = None;
    let mut add_latency = Vec::new();
    let mut filters = filter::Reader::new(name, names);
    for (row, decl) in &rest.own {
        match row.name {
            "policy" => {
                if let Some((_, old)) = policy {
                    repeated(report, &section, "policy", old.key.span, decl.key.span);
                }
                policy = read_policy(report, name, decl)
                    .map(|p| (p, *decl))
                    .or(policy);
            }
            "filter" => {
                let extra = trailing.contains(&decl.span.start);
                let lines = lines.get_or_insert_default();
                let (line, offset) = filters.line(report, decl, extra);
                add_latency.extend(offset.map(|offset| (lines.len(), offset)));
                lines.push(line);
            }
            _ => {}
        }
    }
    let policy = policy.map_or(Policy::Selector, |(policy, _)| policy);
    filters.finish(report, policy);
    let def = GroupDef {
        name: name.to_owned(),
        ordinal,
        policy,
        filters: lines,
        default: rest
            .fields
            .text("default")
            .filter(|t| !t.is_empty())
            .map(str::to_owned),
        final_: rest
            .fields
            .text("final")
            .filter(|t| !t.is_empty())
            .map(str::to_owned),
        check_url: check_url(policy, &rest.fields),
        tolerance_ms: ["tolerance", "check_tolerance"]
            .into_iter()
            .find_map(|key| rest.fields.millis(key))
            .map(|ms| u16::try_from(ms).unwrap_or(u16::MAX)),
        probing: probing(&rest.fields),
        idle_timeout_s: rest
            .fields
            .millis("idle_timeout")
            .map(|ms| ms.unsigned_abs().div_ceil(1000)),
        add_latency,
        interrupt_connections: rest.fields.bool("interrupt_connections").unwrap_or(false),
        icon: icon(report, name, &rest.fields),
        implicit: false,
    };
    unused_keys(report, name, policy, &rest.fields);
    references(report, &def, &rest.fields, names);
    (def, rest.fields)
}

/// Keys about measurements; 0 and empty are not set.
fn probing(fields: &Fields) -> Probing {
    let millis = |key: &str| {
        let ms = fields.millis(key).map(i64::unsigned_abs);
        ms.filter(|ms| *ms > 0)
    };
    Probing {
        test_interval_ms: millis("test_interval"),
        passive_check: match fields.text("passive_check") {
            Some("on") => Some(true),
            Some("off") => Some(false),
            _ => None,
        },
        ping_url: fields
            .text("ping_url")
            .filter(|url| !url.is_empty())
            .map(str::to_owned),
        ping_timeout_ms: millis("ping_timeout"),
    }
}

/// What an automatic group checks its members with; a selector checks nothing (G-018).
fn check_url(policy: Policy, fields: &Fields) -> Option<String> {
    if policy == Policy::Selector {
        return None;
    }
    let own = fields.text("check_url").filter(|url| !url.is_empty());
    let alias = || fields.list("tcp_check_url")?.first().map(String::as_str);
    own.or_else(alias).map(str::to_owned)
}

/// The policy of a declaration; `None` after an error.
fn read_policy(report: &mut Report<'_>, group: &str, decl: &Decl) -> Option<Policy> {
    let shape = |report: &mut Report<'_>, why: &str| {
        let message = format!("group `{}`: {why}", shortened(group));
        let finding = Diagnostic::error("E205", "value-shape", decl.value_span, message);
        report.push(finding.about("group", "policy"));
        None
    };
    if let Some(note) = &decl.annotation {
        report.stray_annotation("group", note.span, false);
    }
    let (text, index) = match &decl.value {
        Value::Empty => {
            let finding = Diagnostic::error(
                "E206",
                "value-empty",
                decl.key.span,
                format!("group `{}`: `policy` has no value", shortened(group)),
            );
            report.push(finding.about("group", "policy"));
            return None;
        }
        Value::Literals(literals) => {
            let text = literals
                .iter()
                .map(|l| l.text.as_str())
                .collect::<Vec<_>>()
                .join(",");
            match text.split_once('(') {
                Some((word, index)) => (
                    word.to_owned(),
                    index.trim_end().trim_end_matches(')').to_owned(),
                ),
                None => (text, String::new()),
            }
        }
        Value::Calls(calls) => {
            let [call] = calls.as_slice() else {
                return shape(report, "`policy` takes one policy");
            };
            if call.not {
                return shape(report, "`policy` cannot be negated");
            }
            report.trailing_comma(call.trailing_comma);
            let index: Vec<String> = call.args.iter().map(arg_text).collect();
            (call.name.text.clone(), index.join(","))
        }
    };
    if !matches!(index.trim(), "" | "0") {
        let message = format!(
            "group `{}`: the index of a policy is ignored",
            shortened(group)
        );
        let finding = Diagnostic::warning("W910", "policy-index", decl.value_span, message);
        report.push(finding.help("use `default:`").about("group", "policy"));
    }
    spelling(report, group, text.trim(), decl.value_span)
}

const SPELLINGS: &[(&str, Policy)] = &[
    ("selector", Policy::Selector),
    ("select", Policy::Selector),
    ("fixed", Policy::Selector),
    ("urltest", Policy::UrlTest),
    ("min_moving_avg", Policy::UrlTest),
    ("min_avg10", Policy::UrlTest),
    ("min_last_delay", Policy::UrlTest),
    ("loadbalance", Policy::LoadBalance),
    ("roundrobin", Policy::LoadBalance),
    ("round_robin", Policy::LoadBalance),
    ("balance", Policy::LoadBalance),
    ("fallback", Policy::Fallback),
    ("score", Policy::Score),
];

const POLICIES: &str = "there are `selector`, `urltest`, `loadbalance`, `fallback` and `score`";

fn spelling(report: &mut Report<'_>, group: &str, text: &str, span: Span) -> Option<Policy> {
    let lower = text.to_ascii_lowercase();
    if let Some((_, policy)) = SPELLINGS.iter().find(|(word, _)| *word == lower) {
        return Some(*policy);
    }
    if lower == "honk" {
        let message = "policy `honk` was renamed to `score`";
        let finding = Diagnostic::error("E902", "policy-honk", span, message);
        report.push(
            finding
                .help("write `policy: score`")
                .about("group", "policy"),
        );
        return None;
    }
    let message = format!(
        "group `{}`: unknown policy `{}`, using selector",
        shortened(group),
        shortened(text)
    );
    let help = match lower.as_str() {
        "min" => Some("did you mean `min_last_delay`?".to_owned()),
        "random" => Some("did you mean `loadbalance`?".to_owned()),
        _ => report
            .did_you_mean(&lower, SPELLINGS.iter().map(|(word, _)| *word))
            .or_else(|| Some(POLICIES.to_owned())),
    };
    let finding = Diagnostic::warning("W903", "policy-unknown", span, message);
    report.push(super::report::with_help(finding, help).about("group", "policy"));
    Some(Policy::Selector)
}

fn icon(report: &mut Report<'_>, group: &str, fields: &Fields) -> Option<Secret> {
    let text = fields.text("icon").filter(|text| !text.is_empty())?;
    let legal = text.chars().count() <= 2048
        && (text.starts_with("data:") || http_with_host(text))
        && !text.chars().any(|c| c.is_control());
    if legal {
        return Some(Secret::new(text));
    }
    let span = fields.get("icon")?.value;
    let message = format!(
        "group `{}`: the icon is no absolute http(s) URL or data: URI of at most 2048 characters",
        shortened(group)
    );
    report.push(Diagnostic::error("E908", "icon-invalid", span, message).about("group", "icon"));
    None
}

fn http_with_host(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']))
}

/// W907, W911 and the alias conflicts of check keys.
fn unused_keys(report: &mut Report<'_>, group: &str, policy: Policy, fields: &Fields) {
    for (alias, key) in [
        ("tcp_check_url", "check_url"),
        ("check_tolerance", "tolerance"),
    ] {
        if let (Some(alias_entry), Some(entry)) = (fields.get(alias), fields.get(key)) {
            let message = format!("`{key}` and its alias `{alias}` are both set: `{key}` wins");
            let finding = Diagnostic::warning("W211", "duplicate-key", alias_entry.key, message);
            report.push(finding.related(entry.key, "set here").about("group", alias));
        }
    }
    let extra = fields
        .list("tcp_check_url")
        .is_some_and(|list| list.len() > 1);
    if let Some(entry) = fields.get("tcp_check_url").filter(|_| extra) {
        let message = "`tcp_check_url` of a group uses its first element only";
        report.warn("W214", "ignored-key", entry.value, message);
    }
    let mut unused = |key: &str, used: bool, slug| {
        if let Some(entry) = fields.get(key).filter(|_| !used) {
            let message = format!(
                "group `{}`: `{}` ignores `{key}`",
                shortened(group),
                policy.name()
            );
            let finding = Diagnostic::warning("W907", slug, entry.key, message);
            report.push(finding.about("group", key));
        }
    };
    let probes = policy == Policy::UrlTest;
    unused(
        "check_url",
        policy != Policy::Selector,
        "selector-check-url",
    );
    unused(
        "tcp_check_url",
        policy != Policy::Selector,
        "selector-check-url",
    );
    unused("tolerance", probes, "key-unused");
    unused("check_tolerance", probes, "key-unused");
    unused("idle_timeout", probes, "key-unused");
    unused("default", policy == Policy::Selector, "key-unused");
    for key in ["test_interval", "passive_check"] {
        unused(key, policy != Policy::Selector, "key-unused");
    }
    for key in ["tolerance", "check_tolerance"] {
        if let Some(entry) = fields
            .get(key)
            .filter(|_| fields.millis(key) > Some(65_535))
        {
            let message = format!("`{key}` is clamped to 65535 ms");
            report.warn("W911", "tolerance-clamped", entry.value, message);
        }
    }
}

/// Whether a name that a subscription could bring is near to a declared one. Names that differ
/// in numbers only are those of a series.
fn is_misspelt(name: &str, names: &Names) -> bool {
    let letters = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let own = letters(name);
    let declared = names.all().filter(|known| letters(known) != own);
    !honk_grammar::suggest(name, declared).is_empty()
}

/// W503 for names nobody declares, unless a subscription may still bring them.
fn references(report: &mut Report<'_>, def: &GroupDef, fields: &Fields, names: &Names) {
    if names.partial {
        return;
    }
    let mut check = |name: &str, span: Span, slug: &'static str, what: &str| {
        if names.is_outbound(name) || names.subscriptions && !is_misspelt(name, names) {
            return;
        }
        let message = format!(
            "group `{}`: {what} `{}` is no declared group or node",
            shortened(&def.name),
            shortened(name)
        );
        let finding = Diagnostic::warning("W503", slug, span, message);
        let help = report.did_you_mean(name, names.all());
        report.push(super::report::with_help(finding, help).about("group", name));
    };
    if let (Some(name), Some(entry), Policy::Selector) =
        (&def.default, fields.get("default"), def.policy)
    {
        check(name, entry.value, "default-unknown", "default");
    }
    if let (Some(name), Some(entry)) = (&def.final_, fields.get("final")) {
        check(name, entry.value, "final-missing", "final");
    }
}
