//! `dns`: upstreams, fixed TTLs and rules of queries and answers.

mod rule;
pub(super) mod value;

use std::collections::{HashMap, HashSet};

use honk_grammar::{
    ast::{Decl, Item, LinkItem, Lit, Section, Span},
    diag::Diagnostic,
};

pub use rule::{DnsAction, DnsCond, DnsRule, DnsTest, InternalName, Phase};
pub use value::Transport;

use super::{
    decl::{self, Fields, repeated},
    keys::DNS,
    names::{MAX_OUTBOUNDS, Names},
    report::{Report, with_help},
    value::{shortened, unsigned},
};
use crate::{id::Secret, name::to_ascii};

/// The typed section; keys stand in the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// Upstreams in declaration order.
    pub upstreams: Vec<Upstream>,
    /// Rules of queries; the last has no conditions.
    pub request: Vec<DnsRule>,
    /// Rules of answers; the last has no conditions.
    pub response: Vec<DnsRule>,
    /// Seconds by name; `*.` in front stands for sub-domains only.
    pub fixed_ttl: Vec<(String, u32)>,
}

/// One upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Name, case-sensitive.
    pub name: String,
    /// Address as written; its path may identify the user.
    pub uri: Secret,
    /// How it is asked.
    pub transport: Transport,
    /// Outbound it is asked through; `None`: traffic rules decide.
    pub via: Option<String>,
}

const SECTIONS: &[&str] = &["upstream", "routing", "fixed_domain_ttl", "hosts"];

/// Names with a meaning of their own in rules.
const RESERVED: &[&str] = &["asis", "reject", "accept", "fallback"];

/// Longest fixed TTL: a year.
const MAX_TTL: u64 = 31_536_000;

/// Lowers the items of all `dns` sections.
pub(super) fn lower(report: &mut Report<'_>, items: &[Item], names: &Names) -> (Dns, Fields) {
    let rest = decl::read(report, "dns", DNS, items);
    let mut dns = Dns::default();
    let mut first_upstream = None;
    let mut bodies: HashMap<&str, Vec<Item>> = HashMap::new();
    for sub in rest.subs {
        let name = sub.name.text.as_str();
        if !SECTIONS.contains(&name) {
            report.unknown_section("dns", &sub.name, SECTIONS);
            continue;
        }
        if sub.name.quoted && matches!(name, "upstream" | "fixed_domain_ttl") {
            let message = format!("the section name `{name}` must not be quoted");
            let finding = Diagnostic::error("E202", "section-misplaced", sub.name.span, message);
            report.push(finding.about("dns", name));
            continue;
        }
        if name == "upstream" {
            first_upstream.get_or_insert(sub.name.span);
        }
        bodies
            .entry(name)
            .or_default()
            .extend(sub.items.iter().cloned());
    }
    let body = |name: &str| bodies.get(name).map_or(&[][..], Vec::as_slice);
    dns.upstreams = upstreams(report, body("upstream"), names);
    dns.fixed_ttl = fixed_ttl(report, body("fixed_domain_ttl"));
    hosts(report, body("hosts"));
    let known: HashSet<&str> = dns.upstreams.iter().map(|u| u.name.as_str()).collect();
    let context = rule::Context {
        upstreams: &known,
        first_upstream: first_upstream
            .filter(|_| !known.is_empty() && !report.parsed.suspect("dns")),
        bind: rest
            .fields
            .text("bind")
            .is_some_and(|bind| !bind.is_empty()),
    };
    let (request, response) = rule::lower(report, body("routing"), &context);
    dns.request = request;
    dns.response = response;
    let most = rest.fields.int("max_cache_ttl").unwrap_or(86_400);
    if let Some(entry) = rest.fields.get("min_cache_ttl")
        && rest.fields.int("min_cache_ttl") > Some(most)
    {
        let message = "`min_cache_ttl` is above `max_cache_ttl`";
        let finding = Diagnostic::error("E402", "range", entry.value, message);
        report.push(finding.about("dns", "min_cache_ttl"));
    }
    (dns, rest.fields)
}

fn upstreams(report: &mut Report<'_>, items: &[Item], names: &Names) -> Vec<Upstream> {
    let mut upstreams: Vec<Upstream> = Vec::new();
    let mut places: HashMap<String, Span> = HashMap::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        let Item::Link(item) = item else {
            at += report.misplaced("dns.upstream", items, at);
            continue;
        };
        at += 1;
        if let Some(Item::Link(uri)) = items.get(at)
            && item.tag.is_none()
            && is_name(&item.link.text)
            && report.line(uri.span) == report.line(item.span)
        {
            at += 1;
            let message = format!("missing `:` after `{}`", item.link.text);
            let finding = Diagnostic::error("E701", "dns-upstream-name", item.link.span, message)
                .help("write `name: 'uri'`");
            report.push(finding.about("dns.upstream", &item.link.text));
            continue;
        }
        let Some(upstream) = upstream(report, item, names) else {
            continue;
        };
        let place = item.tag.as_ref().map_or(item.span, |tag| tag.span);
        if let Some(first) = places.get(&upstream.name) {
            let message = format!("upstream `{}` is declared twice", shortened(&upstream.name));
            let finding = Diagnostic::error("E208", "name-repeated", place, message);
            let finding = finding.related(*first, "first declared here");
            report.push(finding.about("dns.upstream", &upstream.name));
            continue;
        }
        places.insert(upstream.name.clone(), place);
        upstreams.push(upstream);
        if upstreams.len() == MAX_OUTBOUNDS + 1 {
            let count = items.len();
            let message = format!("{count} upstreams defined, the limit is {MAX_OUTBOUNDS}");
            let finding = Diagnostic::error("E705", "dns-upstream-too-many", place, message);
            report.push(finding.about("dns.upstream", ""));
        }
    }
    upstreams
}

fn upstream(report: &mut Report<'_>, item: &LinkItem, names: &Names) -> Option<Upstream> {
    let tag = item.tag.as_ref().filter(|tag| !tag.text.is_empty());
    let Some(tag) = tag.filter(|tag| is_name(&tag.text)) else {
        let (place, message) = match tag {
            None => (item.link.span, "an upstream needs a name".to_owned()),
            Some(tag) => (
                tag.span,
                format!("`{}` is no upstream name", shortened(&tag.text)),
            ),
        };
        let finding = Diagnostic::error("E701", "dns-upstream-name", place, message)
            .help("write `name: 'uri'` with a name of letters, digits, `_`, `.` and `-`");
        report.push(finding.about("dns.upstream", ""));
        return None;
    };
    if RESERVED.contains(&tag.text.as_str()) {
        let message = format!("upstream name `{}` is reserved", tag.text);
        let finding = Diagnostic::error("E502", "name-reserved", tag.span, message);
        report.push(finding.about("dns.upstream", &tag.text));
        return None;
    }
    if let Some(annotation) = &item.annotation {
        report.stray_annotation("dns.upstream", annotation.span, false);
    }
    let transport = match value::upstream(&item.link.text) {
        Ok(transport) => transport,
        Err(why) => {
            let message = format!("upstream `{}`: {why}", tag.text);
            let finding = Diagnostic::error("E702", "dns-upstream-uri", item.link.span, message);
            report.push(finding.about("dns.upstream", &tag.text));
            return None;
        }
    };
    if let Some(via) = &item.via {
        if via.legacy {
            let message = "`outbound:` behind an upstream is the old spelling";
            let finding = Diagnostic::warning("W213", "deprecated", via.span, message)
                .help(format!("write `-> {}`", via.name.text));
            report.push(finding.about("dns.upstream", &tag.text));
        }
        let name = via.name.text.as_str();
        if !names.is_outbound(name) && !names.partial {
            let message = format!("unknown outbound `{}`", shortened(name));
            let finding = Diagnostic::error("E501", "rule-target-unknown", via.name.span, message);
            let help = report.did_you_mean(name, names.all());
            report.push(with_help(finding, help).about("dns.upstream", name));
        }
        if matches!(transport, Transport::Quic | Transport::H3) && name != "direct" {
            let message = format!("upstream `{}` cannot be asked through a proxy", tag.text);
            let finding = Diagnostic::warning("W711", "dns-quic-via-proxy", via.name.span, message);
            report.push(
                finding
                    .help("use `tls://` or `https://`")
                    .about("dns.upstream", &tag.text),
            );
        }
    }
    Some(Upstream {
        name: tag.text.clone(),
        uri: Secret::new(&item.link.text),
        transport,
        via: item.via.as_ref().map(|via| via.name.text.clone()),
    })
}

/// `[A-Za-z_][A-Za-z0-9_.-]*`
fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(legal)
}

/// E710.
fn refuse(report: &mut Report<'_>, span: Span, message: &str) {
    let finding = Diagnostic::error("E710", "dns-ttl", span, message)
        .help("write `domain: seconds`, 0 to 31536000");
    report.push(finding.about("dns.fixed_domain_ttl", ""));
}

fn fixed_ttl(report: &mut Report<'_>, items: &[Item]) -> Vec<(String, u32)> {
    let mut ttls: Vec<(String, u32)> = Vec::new();
    let mut places: HashMap<String, (usize, Span)> = HashMap::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        if let Item::Stray(Lit { span, .. }) | Item::Decl(Decl { span, .. }) = item {
            at += 1;
            refuse(report, *span, "a fixed TTL is `domain: seconds`");
            continue;
        }
        let Item::Link(item) = item else {
            at += report.misplaced("dns.fixed_domain_ttl", items, at);
            continue;
        };
        at += 1;
        let place = item.tag.as_ref().map_or(item.link.span, |tag| tag.span);
        if let Some(via) = &item.via {
            refuse(report, via.span, "a fixed TTL takes no `-> tag`");
            continue;
        }
        let Some(tag) = &item.tag else {
            refuse(report, item.link.span, "a fixed TTL is `domain: seconds`");
            continue;
        };
        let Some(name) = ttl_name(&tag.text) else {
            refuse(report, tag.span, "this is no domain name");
            continue;
        };
        let seconds = unsigned(&item.link.text).filter(|n| *n <= MAX_TTL);
        let Some(seconds) = seconds.and_then(|n| u32::try_from(n).ok()) else {
            refuse(
                report,
                item.link.span,
                "expected seconds between 0 and 31536000",
            );
            continue;
        };
        match places.get_mut(&name) {
            Some((at, old)) => {
                if let Some(known) = ttls.get_mut(*at) {
                    known.1 = seconds;
                }
                repeated(report, "dns.fixed_domain_ttl", &name, *old, place);
                *old = place;
            }
            None => {
                places.insert(name.clone(), (ttls.len(), place));
                ttls.push((name, seconds));
            }
        }
    }
    ttls
}

fn ttl_name(text: &str) -> Option<String> {
    match text.strip_prefix("*.") {
        Some(parent) => Some(format!("*.{}", to_ascii(parent).filter(|n| !n.is_empty())?)),
        None => to_ascii(text).filter(|name| !name.is_empty()),
    }
}

/// `hosts { 'name': 'ip, ip' }`
fn hosts(report: &mut Report<'_>, items: &[Item]) {
    let mut at = 0;
    while let Some(item) = items.get(at) {
        let Item::Decl(decl) = item else {
            at += report.misplaced("dns.hosts", items, at);
            continue;
        };
        at += 1;
        let texts: Vec<&str> = match &decl.value {
            honk_grammar::ast::Value::Literals(literals) => literals
                .iter()
                .flat_map(|l| l.text.split(','))
                .map(str::trim)
                .collect(),
            _ => Vec::new(),
        };
        let legal = |text: &&str| text.parse::<std::net::IpAddr>().is_ok();
        if texts.is_empty() || !texts.iter().all(legal) {
            let message = format!("`{}` takes addresses", shortened(&decl.key.text));
            let finding = Diagnostic::error("E407", "type", decl.value_span, message);
            report.push(finding.about("dns.hosts", &decl.key.text));
        }
    }
}

/// Whether a section holds anything.
pub(super) fn is_used(items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Sub(Section { items, .. }) => is_used(items),
        _ => true,
    })
}
