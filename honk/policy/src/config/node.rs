//! `node`: link items to nodes, with the names and identities that must not clash.

use std::collections::HashMap;

use honk_grammar::{
    ast::{Item, LinkItem, Lit, Span},
    diag::{Diagnostic, Severity},
};

use super::{
    decl, hints,
    keys::NODE_NOTES,
    names::{Names, Use, reserved},
    report::{Report, with_help},
    value::shortened,
};
use crate::{
    id::NodeId,
    node::{
        Kind, Node, Protocol,
        link::{self, Link, LinkError, SCHEMES},
    },
};

/// Lowers the items of all `node` sections. Nodes that cannot be dialed are known by name only.
pub(super) fn lower(report: &mut Report<'_>, items: &[Item], names: &mut Names) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut seen: HashMap<NodeId, (String, Span)> = HashMap::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        at += match item {
            Item::Link(item) if equals_sign(item, &items[at + 1..]) => {
                let name = shortened(&item.link.text);
                let message = format!("`{name}` does not belong here");
                let finding = Diagnostic::error("E203", "item-misplaced", item.span, message)
                    .help(format!("a node is named with a colon: `{name}: 'link'`"));
                report.push(finding.about("node", name));
                3
            }
            Item::Link(item) => {
                one(report, item, names, &mut nodes, &mut seen);
                // `mux = true` reads as three links.
                let spaced = is_mux(item) && item.link.text == "mux";
                if spaced {
                    1 + mux_tail(&items[at + 1..])
                } else {
                    1
                }
            }
            _ => report.misplaced("node", items, at),
        };
    }
    nodes
}

fn one(
    report: &mut Report<'_>,
    item: &LinkItem,
    names: &mut Names,
    nodes: &mut Vec<Node>,
    seen: &mut HashMap<NodeId, (String, Span)>,
) {
    let place = item.tag.as_ref().map_or(item.span, |tag| tag.span);
    if is_mux(item) {
        let message = "`mux` is no setting of the `node` section";
        let finding = Diagnostic::error("E803", "node-mux", place, message);
        return report.push(
            finding
                .help("use `vless_mode=` in the link")
                .about("node", "mux"),
        );
    }
    if let Some(via) = &item.via {
        let message = "a node takes no `-> tag`";
        let finding = Diagnostic::error("E203", "item-misplaced", via.span, message)
            .help("quote the whole chain: `'exit -> entry'`");
        report.push(finding.about("node", "->"));
    }
    let notes = decl::notes(report, "node", NODE_NOTES, item.annotation.as_ref());
    let enabled = notes.bool("enabled").unwrap_or(true);
    let tag = item
        .tag
        .as_ref()
        .map(|tag| tag.text.as_str())
        .filter(|tag| !tag.is_empty());
    match link::parse(&item.link.text) {
        Ok(link) => {
            let name = tag.unwrap_or(&link.name).to_owned();
            accept(report, place, name, link, enabled, names, nodes, seen);
        }
        Err(error) => refuse(report, &item.link, place, tag, &error, names),
    }
}

/// `name = link`, which reads as three links.
fn equals_sign(item: &LinkItem, rest: &[Item]) -> bool {
    let next = |item: Option<&Item>| match item {
        Some(Item::Link(link)) if link.tag.is_none() => Some(link.link.text.clone()),
        _ => None,
    };
    item.tag.is_none()
        && item.link.text != "mux"
        && !item.link.text.contains("://")
        && next(rest.first()).as_deref() == Some("=")
        && next(rest.get(1)).is_some()
}

/// `mux: true` and `mux = true`, a setting of another program.
fn is_mux(item: &LinkItem) -> bool {
    let link = item.link.text.as_str();
    match &item.tag {
        Some(tag) => tag.text == "mux" && !link.contains("://"),
        None => link == "mux" || (link.starts_with("mux=") && !link.contains("://")),
    }
}

/// How many of the items behind `mux` are the rest of `mux = true`.
fn mux_tail(items: &[Item]) -> usize {
    let link = |item: &Item| match item {
        Item::Link(link) if link.tag.is_none() => Some(link.link.text.clone()),
        _ => None,
    };
    match (
        items.first().and_then(link).as_deref(),
        items.get(1).and_then(link),
    ) {
        (Some("="), Some(_)) => 2,
        (Some(text), _) if text.starts_with('=') => 1,
        _ => 0,
    }
}

#[allow(clippy::too_many_arguments)] // the state of one section
fn accept(
    report: &mut Report<'_>,
    place: Span,
    name: String,
    link: Link,
    enabled: bool,
    names: &mut Names,
    nodes: &mut Vec<Node>,
    seen: &mut HashMap<NodeId, (String, Span)>,
) {
    if reserved(&name) {
        let message = format!("node name `{}` is reserved", shortened(&name));
        let finding = Diagnostic::error("E502", "name-reserved", place, message);
        return report.push(finding.about("node", name));
    }
    if let Some((other, first)) = seen.get(&link.id) {
        let message = format!(
            "nodes `{}` and `{}` are the same server with the same credentials",
            shortened(other),
            shortened(&name)
        );
        let finding = Diagnostic::error("E804", "node-id-collision", place, message);
        report.push(
            finding
                .related(*first, "first declared here")
                .help("remove one of them; rules and filters may name the other as often as needed")
                .about("node", &name),
        );
        // It is refused; what is told about groups is told as if it were not.
        names.add_node(&name, place, Use::Served);
        nodes.push(Node {
            id: link.id,
            name,
            protocol: link.protocol,
            origin: None,
        });
        return;
    }
    seen.insert(link.id, (name.clone(), place));
    if let Some(first) = names.node(&name) {
        let message = format!(
            "two nodes are named `{}`: the first is meant",
            shortened(&name)
        );
        let finding = Diagnostic::warning("W805", "name-duplicate", place, message);
        report.push(
            finding
                .related(first, "first declared here")
                .about("node", &name),
        );
    }
    if let Some(group) = names.group_place(&name) {
        let message = format!(
            "a group is named `{}` too: rules mean the group",
            shortened(&name)
        );
        let finding = Diagnostic::warning("W805", "name-duplicate", place, message)
            .related(group, "the group")
            .help("rename one of them");
        report.push(finding.about("node", &name));
    }
    for note in &link.notes {
        let message = format!("node `{}`: {note}", shortened(&name));
        let finding = Diagnostic::new(Severity::Note, "", "node-link", Some(place), message);
        report.push(finding.about("node", &name));
    }
    let usable = match enabled {
        true => Use::Served,
        false => Use::Disabled(place),
    };
    names.add_node(&name, place, usable);
    if !link.protocol.built() {
        let what = match &link.protocol {
            Protocol::Proxy(proxy) if !proxy.via.is_empty() => "chains are".to_owned(),
            Protocol::Proxy(proxy) if matches!(proxy.kind, Kind::Socks5(_)) => {
                "`tls`, `udp=0` and socket options of socks5 nodes are".to_owned()
            }
            _ => format!("`{}` nodes are", link.scheme),
        };
        report.unbuilt("node", &link.scheme, place, &what);
    }
    if enabled {
        nodes.push(Node {
            id: link.id,
            name,
            protocol: link.protocol,
            origin: None,
        });
    }
}

fn refuse(
    report: &mut Report<'_>,
    written: &Lit,
    place: Span,
    tag: Option<&str>,
    error: &LinkError,
    names: &mut Names,
) {
    let link = written.span;
    let finding = match error {
        LinkError::Unknown { scheme } => {
            let finding = Diagnostic::error("E801", "node-unsupported", link, error.to_string());
            let help = report.did_you_mean(scheme, SCHEMES.iter().copied());
            let finding = with_help(finding, help);
            return report.push(finding.about("node", scheme));
        }
        LinkError::Unsupported { .. } | LinkError::Feature { .. } => Diagnostic::warning(
            "W810",
            "node-unsupported",
            link,
            format!("{error}: skipped"),
        ),
        LinkError::NoScheme | LinkError::Malformed { .. } => {
            let help = hints::link(&written.text).or_else(|| {
                let bare = *error == LinkError::NoScheme;
                bare.then(|| "a node is a share link, as in `name: 'socks5://...'`".to_owned())
            });
            let finding =
                Diagnostic::warning("W802", "node-link", link, format!("{error}: skipped"));
            with_help(finding, help)
        }
        // A hop is never left out: the rest would be another way.
        LinkError::Hop { .. } | LinkError::Chain(_) => {
            let which = match tag {
                Some(tag) => format!("chain `{}`", shortened(tag)),
                None => "a chain".to_owned(),
            };
            let message = format!("{which} is dropped: {error}");
            Diagnostic::warning("W809", "chain-dropped", link, message)
        }
    };
    if let Some(tag) = tag {
        names.add_skipped(tag, place);
    }
    report.push(finding.about("node", tag.unwrap_or_default()));
}
