//! From written values to typed ones, by the kind of the key.
//!
//! Reports shape, type and range at the place of the value; knows no section.

use std::collections::HashSet;

use honk_grammar::{
    ast::{Arg, Call, Lit, Span, Value},
    diag::Diagnostic,
};

use super::{
    dns::value as dns_value,
    keys::{Key, Kind},
    matcher::{network, prefix},
    report::Report,
    value::{self, BadValue, Read},
};
use crate::id::Secret;

/// A typed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// Boolean.
    Bool(bool),
    /// Integer, mark or bytes per second.
    Int(u64),
    /// `auto` of a number.
    Auto,
    /// Inclusive range.
    Range(u64, u64),
    /// Milliseconds.
    Millis(i64),
    /// Word, path, URL or free text.
    Text(String),
    /// Text that is not shown.
    Secret(Secret),
    /// List.
    List(Vec<String>),
}

/// The default as a value, if the key has one.
pub(super) fn default_of(row: &Key) -> Option<Typed> {
    if row.kind.is_list() {
        let list = row
            .default
            .split(',')
            .map(str::trim)
            .filter(|s| !s.is_empty());
        return Some(Typed::List(list.map(str::to_owned).collect()));
    }
    match (row.kind, row.default) {
        (Kind::Mark | Kind::Bandwidth, "") => Some(Typed::Int(0)),
        (
            Kind::Text | Kind::CallText | Kind::Address | Kind::Preset | Kind::Bind | Kind::Subnet,
            text,
        ) => Some(Typed::Text(text.to_owned())),
        (_, "") => None,
        (kind, text) => read_one(kind, text).ok(),
    }
}

/// A value that is to be typed, with its places.
pub(super) struct Source<'a> {
    pub(super) key: Span,
    pub(super) value: &'a Value,
    pub(super) span: Span,
}

/// The typed value; reports what is wrong with it.
pub(super) fn typed(
    report: &mut Report<'_>,
    section: &str,
    row: &Key,
    source: &Source<'_>,
) -> Option<Typed> {
    let called = match source.value {
        Value::Calls(calls) if row.kind.takes_call() => call_text(calls),
        _ => None,
    };
    let literals: &[Lit] = match source.value {
        Value::Calls(_) if called.is_some() => &[],
        Value::Calls(_) => {
            let message = format!("`{}` takes a value, not a function", row.name);
            let finding = Diagnostic::error("E205", "value-shape", source.span, message);
            report.push(finding.about(section, row.name));
            return None;
        }
        Value::Empty if !row.kind.may_be_empty() => {
            let message = format!("`{}` has no value", row.name);
            let finding = Diagnostic::error("E206", "value-empty", source.key, message);
            let finding = finding.help("write the value on the line of the key");
            report.push(finding.about(section, row.name));
            return None;
        }
        Value::Empty => &[],
        Value::Literals(literals) => literals,
    };
    let result = if row.kind.is_list() {
        read_list(report, section, row, literals)
    } else {
        let written = || {
            literals
                .iter()
                .map(|l| l.text.as_str())
                .collect::<Vec<_>>()
                .join(",")
        };
        let text = called.unwrap_or_else(written);
        read_one(row.kind, &text).map_err(|bad| (source.span, bad))
    };
    match result {
        Ok(typed) => Some(typed),
        Err((span, bad)) => {
            report.bad_value(section, row.name, span, bad);
            None
        }
    }
}

/// A single call as the text it would be when quoted.
fn call_text(calls: &[Call]) -> Option<String> {
    let [call] = calls else { return None };
    let args: Vec<String> = call.args.iter().map(arg_text).collect();
    (!call.not).then(|| format!("{}({})", call.name.text, args.join(",")))
}

/// An argument without its quotes.
pub(super) fn arg_text(arg: &Arg) -> String {
    match arg.parts() {
        (Some(key), text) => format!("{}: {text}", key.text),
        (None, text) => text.to_owned(),
    }
}

/// Reads one scalar.
pub(super) fn read_one(kind: Kind, text: &str) -> Read<Typed> {
    let own = |text: &str| Typed::Text(text.to_owned());
    Ok(match kind {
        Kind::Bool => Typed::Bool(value::boolean(text)?),
        Kind::Int(min, max) => Typed::Int(value::integer(text, min, max)?),
        Kind::AutoInt(..) if text == "auto" => Typed::Auto,
        Kind::AutoInt(min, max) => Typed::Int(value::integer(text, min, max)?),
        Kind::IntRange(min, max) => {
            let (a, b) = value::span_of_integers(text, min, max)?;
            Typed::Range(a, b)
        }
        Kind::Duration(unit, min, max) => Typed::Millis(value::duration(text, unit, min, max)?),
        Kind::Bandwidth => Typed::Int(value::bandwidth(text)?),
        Kind::Word(words, aliases) => {
            let text = aliases
                .iter()
                .find(|(a, _)| *a == text)
                .map_or(text, |(_, to)| to);
            own(value::word(text, words)?)
        }
        Kind::AnyCaseWord(words) => own(value::word(&text.to_ascii_lowercase(), words)?),
        Kind::Mark => Typed::Int(u64::from(value::mark(text)?)),
        Kind::AbsolutePath if text.starts_with('/') => own(text),
        Kind::AbsolutePath => {
            return Err(BadValue::shape("E408", "expected an absolute path"));
        }
        Kind::Path if text.is_empty() => {
            return Err(BadValue::shape("E408", "expected a path"));
        }
        Kind::Preset if text.is_empty() => own(""),
        Kind::Preset => {
            value::url_or_preset(text)?;
            own(text)
        }
        Kind::Bind => Typed::Text(dns_value::bind(text)?),
        Kind::Subnet => {
            dns_value::client_subnet(text)?;
            own(text)
        }
        Kind::Secret => Typed::Secret(Secret::new(text)),
        Kind::Url if text.contains(',') => {
            return Err(BadValue::shape("E406", "expected one URL without commas"));
        }
        Kind::Url => {
            value::url(text, &["http", "https"])?;
            own(text)
        }
        Kind::Address if text.is_empty() => own(""),
        Kind::Address => own(&value::address(text, 53)?.to_string()),
        _ => own(text),
    })
}

/// Reads a list: literals are split on commas and trimmed, empty elements dropped.
fn read_list(
    report: &mut Report<'_>,
    section: &str,
    row: &Key,
    literals: &[Lit],
) -> Result<Typed, (Span, BadValue)> {
    let mut list: Vec<String> = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    for literal in literals {
        for element in literal.text.split(',').map(str::trim) {
            if element.is_empty() {
                if literals.len() > 1 || !literal.text.is_empty() {
                    let message = format!("`{}`: an empty element is dropped", row.name);
                    let finding =
                        Diagnostic::warning("W215", "empty-element", literal.span, message);
                    report.push(finding.about(section, row.name));
                }
                continue;
            }
            let first = list.is_empty();
            if row.kind == Kind::Prefixes
                && let Ok(prefix) = prefix(element)
            {
                let finding = network(element, &prefix, literal.span);
                report.found(finding.map(|f| f.about(section, row.name)));
            }
            let element = read_element(report, row.kind, element, first, literal.span)
                .map_err(|bad| (literal.span, bad))?;
            let Some(element) = element else { continue };
            if seen.insert(element.clone()) {
                list.push(element);
            } else {
                let message = format!(
                    "`{}`: `{}` is listed twice",
                    row.name,
                    value::shortened(&element)
                );
                let finding = Diagnostic::warning("", "duplicate-element", literal.span, message);
                report.push(finding.help("remove one of them").about(section, row.name));
            }
        }
    }
    Ok(Typed::List(list))
}

/// One element of a list; `None` when it is ignored.
fn read_element(
    report: &mut Report<'_>,
    kind: Kind,
    text: &str,
    first: bool,
    span: Span,
) -> Read<Option<String>> {
    match kind {
        Kind::Words(words) => {
            value::word(text, words)?;
        }
        Kind::Prefixes => {
            prefix(text).map_err(|why| BadValue::shape("E407", why))?;
        }
        Kind::Integers(min, max) => {
            value::integer(text, min, max)?;
        }
        Kind::Interfaces(auto) => value::interface(text, auto)?,
        Kind::Resolvers => {
            let bare = text
                .strip_prefix("udp://")
                .or_else(|| text.strip_prefix("tcp://"));
            value::address(bare.unwrap_or(text), 53)?;
        }
        Kind::CheckUrl if first => value::url(text, &["http", "https"])?,
        Kind::CheckUrl if text.contains("://") => {
            report.warn("W214", "ignored-key", span, "only the first URL is used");
            return Ok(None);
        }
        Kind::CheckDns if first => value::host_or_address(text)?,
        Kind::CheckUrl | Kind::CheckDns => {
            text.parse::<std::net::IpAddr>().map_err(|_| {
                BadValue::shape("E407", "expected an address after the first element")
            })?;
        }
        _ => {}
    }
    Ok(Some(text.to_owned()))
}
