//! Subscription bodies: samples of every format, their limits, and hostile ones.

mod formats;
mod hostile;
mod lists;

use super::{Body, Format, Member, parse};
use crate::node::{link, link::tests::describe::describe};

fn read(body: &str) -> Body {
    parse(body.as_bytes(), None).unwrap_or_else(|error| panic!("{error}"))
}

fn names(body: &Body) -> Vec<&str> {
    body.members.iter().map(|m| m.node.name.as_str()).collect()
}

/// The properties of a node by its name; every node is also written and read as a link.
#[track_caller]
fn node(body: &Body, name: &str, properties: &[&str]) -> Member {
    let named = body.members.iter().find(|member| member.node.name == name);
    let member = named.unwrap_or_else(|| panic!("no {name} in {:?}", names(body)));
    let seen = describe(&member.node);
    for property in properties {
        let there = seen.iter().any(|line| line == property);
        assert!(there, "{name}: {property} is not in {seen:?}");
    }
    let link = link::format(&member.node).unwrap();
    let back = link::parse(&link).unwrap_or_else(|error| panic!("{name}: {link}: {error}"));
    assert_eq!(back.protocol, member.node.protocol, "{link}");
    assert_eq!(back.id, member.node.id, "{link}");
    member.clone()
}

fn findings(body: &Body) -> Vec<String> {
    let findings = body.findings("tag");
    let shown = findings.iter().map(|f| format!("{} {}", f.slug, f.message));
    shown.collect()
}

#[test]
fn formats_have_names() {
    for name in ["simple", "sip008", "clash", "singbox", "xray"] {
        assert_eq!(Format::from_name(name).map(Format::name), Some(name));
    }
    assert_eq!(Format::from_name("auto"), None);
}
