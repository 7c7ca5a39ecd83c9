//! `subscription`: where further nodes come from. URLs are secret.

use std::collections::HashMap;

use honk_grammar::{
    ast::{Item, LinkItem, Span},
    diag::Diagnostic,
};

use super::{
    decl,
    keys::SUBSCRIPTION_NOTES,
    names::Names,
    places::Places,
    report::{Report, with_help},
    value::{host_port, shortened},
};
use crate::id::Secret;

/// One subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// What `subtag(...)` matches; may be empty.
    pub tag: String,
    /// Where the body comes from.
    pub url: Secret,
    /// How it is fetched.
    pub source: Source,
    /// Format of the body: `auto`, `simple`, `sip008`, `clash`, `singbox` or `xray`.
    pub format: String,
    /// Seconds between fetches; 0 is by hand only. `None`: as the provider wishes, else a day.
    pub update_interval: Option<u64>,
    /// What the server is told; `None` is honk's own.
    pub user_agent: Option<String>,
    /// Whether it is fetched and used.
    pub enabled: bool,
    /// Whether its host may have a private address.
    pub allow_private: bool,
}

/// How a body is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Over HTTP.
    Web,
    /// Over HTTP, the body always stored.
    StoredWeb,
    /// From a file below the directory of the entry file.
    File,
}

const SCHEMES: &[&str] = &["http", "https", "http-file", "https-file", "file"];

/// Shortest time between fetches, in milliseconds.
const SHORTEST_MS: i64 = 60_000;

/// Lowers the items of all `subscription` sections.
pub(super) fn lower(
    report: &mut Report<'_>,
    items: &[Item],
    places: &mut Places,
    names: &mut Names,
) -> Vec<Subscription> {
    let mut subscriptions = Vec::new();
    let mut tags: HashMap<&str, Span> = HashMap::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        let Item::Link(item) = item else {
            at += report.misplaced("subscription", items, at);
            continue;
        };
        at += 1;
        if let Some(tag) = item.tag.as_ref().filter(|tag| !tag.text.is_empty()) {
            if let Some(first) = tags.get(tag.text.as_str()) {
                let message = format!(
                    "two subscriptions are tagged `{}`: both contribute",
                    shortened(&tag.text)
                );
                let finding = Diagnostic::warning("W805", "name-duplicate", tag.span, message);
                let finding = finding.related(*first, "first used here");
                report.push(finding.about("subscription", &tag.text));
            } else {
                tags.insert(&tag.text, tag.span);
                names.tags.insert(tag.text.clone());
            }
        }
        if let Some(subscription) = one(report, item) {
            subscriptions.push(subscription);
            places.add_subscription(item.link.span);
        }
    }
    subscriptions
}

fn one(report: &mut Report<'_>, item: &LinkItem) -> Option<Subscription> {
    if let Some(via) = &item.via {
        let message = "a subscription takes no `-> tag`";
        let finding = Diagnostic::error("E203", "item-misplaced", via.span, message);
        report.push(finding.about("subscription", "->"));
    }
    let tag = item.tag.as_ref().map_or("", |tag| tag.text.as_str());
    let source = source(report, item, tag);
    let notes = decl::notes(
        report,
        "subscription",
        SUBSCRIPTION_NOTES,
        item.annotation.as_ref(),
    );
    let interval = notes.millis("update_interval");
    if let (Some(entry), Some(interval)) = (notes.get("update_interval"), interval)
        && (1..SHORTEST_MS).contains(&interval)
    {
        let message = "`update_interval` is 0 or at least 60s";
        let finding = Diagnostic::error("E403", "range", entry.value, message);
        report.push(finding.about("subscription", "update_interval"));
    }
    let allow_private = notes.bool("allow_private").unwrap_or(false);
    if source.is_some_and(|source| source != Source::File)
        && !allow_private
        && is_private_host(&item.link.text)
    {
        let message = "the host has a private address: it is not fetched";
        let finding = Diagnostic::warning("", "subscription-private", item.link.span, message);
        let finding = finding.help("if it is yours, add `[allow_private: true]` behind the URL");
        report.push(finding.about("subscription", tag));
    }
    Some(Subscription {
        tag: tag.to_owned(),
        url: Secret::new(&item.link.text),
        source: source?,
        format: notes.text("type").unwrap_or("auto").to_owned(),
        update_interval: interval.map(|ms| u64::try_from(ms / 1000).unwrap_or(0)),
        user_agent: notes
            .text("user_agent")
            .filter(|t| !t.is_empty())
            .map(str::to_owned),
        enabled: notes.bool("enabled").unwrap_or(true),
        allow_private,
    })
}

/// Host with port of a URL.
fn place_of(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Whether what is written leads to a private address whatever a resolver says.
fn is_private_host(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let Some((host, _)) = host_port(place_of(rest)) else {
        return false;
    };
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || host.parse().is_ok_and(crate::address::is_private)
}

fn source(report: &mut Report<'_>, item: &LinkItem, tag: &str) -> Option<Source> {
    let span = item.link.span;
    let refuse = |report: &mut Report<'_>, number, slug, message: &str, help: Option<String>| {
        let finding = Diagnostic::error(number, slug, span, message);
        report.push(with_help(finding, help).about("subscription", tag));
        None
    };
    let Some((scheme, rest)) = item.link.text.split_once("://") else {
        let message = "a subscription is an absolute URL";
        return refuse(report, "E806", "subscription-url", message, None);
    };
    let source = match scheme {
        "http" | "https" => Source::Web,
        "http-file" | "https-file" => Source::StoredWeb,
        "file" => {
            let path = rest.split(['?', '#']).next().unwrap_or_default();
            let outside = path.is_empty()
                || path.starts_with('/')
                || path.split('/').any(|part| part == "..");
            if outside {
                let message = "a subscription file must be below the directory of the entry file";
                let help = Some("write `file://relative/path`".to_owned());
                return refuse(report, "E807", "subscription-path", message, help);
            }
            return Some(Source::File);
        }
        _ => {
            let message = format!("unknown subscription scheme `{}`", shortened(scheme));
            let help = report.did_you_mean(scheme, SCHEMES.iter().copied());
            return refuse(report, "E806", "subscription-url", &message, help);
        }
    };
    if host_port(place_of(rest)).is_none_or(|(host, port)| host.is_empty() || port == Some(0)) {
        return refuse(
            report,
            "E806",
            "subscription-url",
            "the host or port of the URL is wrong",
            None,
        );
    }
    if source == Source::StoredWeb && tag.is_empty() {
        let message = format!("a `{scheme}` subscription needs a tag to be stored under");
        let help = Some("write `tag: 'url'`".to_owned());
        return refuse(report, "E808", "subscription-tag", &message, help);
    }
    Some(source)
}
