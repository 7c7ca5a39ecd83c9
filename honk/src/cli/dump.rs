//! `validate --dump` and `--explain`: what was understood. Links and passwords are never part
//! of it.

use honk_policy::{
    group::{GroupView, SelectionView},
    node::Host,
    routing::rule::RuleLine,
};
use serde_json::{Value, json};

use super::{args::Dump, output::clean};
use crate::app::source::Candidate;

/// One part as data.
pub(crate) fn value(candidate: &Candidate, what: Dump) -> Value {
    match what {
        Dump::Resolved => json!({
            "global": global(candidate),
            "nodes": nodes(candidate),
            "groups": groups(candidate),
            "rules": rules(candidate),
        }),
        Dump::Nodes => nodes(candidate),
        Dump::Groups => groups(candidate),
        Dump::Rules => rules(candidate),
        Dump::Ordinals => ordinals(candidate),
    }
}

/// One part as indented text.
pub(crate) fn text(candidate: &Candidate, what: Dump) -> String {
    format!("{:#}", value(candidate, what))
}

/// Groups with members and rules with what they lead to, for people.
pub(crate) fn explain(candidate: &Candidate) -> String {
    let mut text = format!(
        "{} nodes, {} groups, {} rule lines\n\ngroups\n",
        candidate.config.nodes.len(),
        candidate.config.groups.len(),
        candidate.rules.lines.len()
    );
    for g in candidate.groups.views() {
        let members: Vec<&str> = g.members.iter().map(|m| m.name.as_str()).collect();
        let kind = if g.implicit { "node" } else { g.policy.name() };
        text.push_str(&format!(
            "  {:3}  {} ({kind}): {}\n       tcp {}, udp {}\n",
            g.ordinal.0,
            clean(&g.name),
            clean(&members.join(", ")),
            clean(&selected(&g.tcp)),
            clean(&selected(&g.udp)),
        ));
    }
    text.push_str("\nrules\n");
    for (index, line) in candidate.rules.lines.iter().enumerate() {
        let to = outbound(candidate, line);
        text.push_str(&format!(
            "  {index:3}  {}  => {}\n",
            clean(&line.text),
            clean(&to)
        ));
    }
    text
}

fn selected(s: &SelectionView) -> String {
    match (&s.leaf, s.refuse) {
        (Some((_, name)), _) => name.clone(),
        (None, Some(refuse)) => format!("- ({})", refuse.name()),
        (None, None) => "-".to_owned(),
    }
}

fn outbound(candidate: &Candidate, line: &RuleLine) -> String {
    let name = match line.action.ordinal.0 {
        honk_common::outbound::DIRECT => "direct".to_owned(),
        honk_common::outbound::BLOCK => "block".to_owned(),
        honk_common::outbound::MUST_RULES => "must_rules".to_owned(),
        _ => candidate
            .groups
            .group_in(line.action.ordinal)
            .map_or_else(|| "?".to_owned(), |g| g.name.to_string()),
    };
    let must = if line.action.must { " (must)" } else { "" };
    let mark = match line.action.mark {
        0 => String::new(),
        mark => format!(" (mark {mark:#x})"),
    };
    format!("{name}{must}{mark}")
}

fn global(candidate: &Candidate) -> Value {
    let g = &candidate.config.global;
    let bootstrap: Vec<String> = g.bootstrap.iter().map(ToString::to_string).collect();
    json!({
        "tproxy_port": g.tproxy_port,
        "own_mark": format!("{:#x}", g.own_mark),
        "bpf_conn_state_map_size": g.flow_entries,
        "log_level": g.log_level,
        "lan_interface": g.lan_interface,
        "wan_interface": g.wan_interface,
        "auto_config_kernel_parameter": g.auto_config_kernel_parameter,
        "data_dir": g.data_dir,
        "drain_timeout_ms": g.drain_timeout_ms,
        "bootstrap_resolver": bootstrap,
        "max_concurrent_dials": g.max_concurrent_dials,
        "log_flows": g.log_flows,
    })
}

fn nodes(candidate: &Candidate) -> Value {
    let node = |n: &honk_policy::node::Node| {
        // Where a server is counts as a credential: hosts are told apart, not told.
        let family = n.protocol.proxy().map(|proxy| match proxy.host {
            Host::Ip(ip) if ip.is_ipv4() => "v4",
            Host::Ip(_) => "v6",
            Host::Name(_) => "name",
        });
        json!({
            "id": n.id.0.to_string(),
            "name": n.name,
            "protocol": n.protocol.name(),
            "udp": n.protocol.udp(),
            "server": family,
        })
    };
    candidate.config.nodes.iter().map(node).collect()
}

fn groups(candidate: &Candidate) -> Value {
    let group = |g: GroupView| {
        let members: Vec<&String> = g.members.iter().map(|m| &m.name).collect();
        json!({
            "name": g.name,
            "ordinal": g.ordinal.0,
            "policy": g.policy.name(),
            "implicit": g.implicit,
            "filters": g.filters,
            "default": g.default,
            "final": g.final_.map(|f| f.name),
            "members": members,
            "tcp": selected(&g.tcp),
            "udp": selected(&g.udp),
        })
    };
    candidate.groups.views().into_iter().map(group).collect()
}

fn rules(candidate: &Candidate) -> Value {
    let line = |(index, line): (usize, &RuleLine)| {
        json!({
            "index": index,
            "text": line.text,
            "file": line.file,
            "line": line.line,
            "outbound": outbound(candidate, line),
            "must": line.action.must,
            "mark": line.action.mark,
        })
    };
    candidate.rules.lines.iter().enumerate().map(line).collect()
}

fn ordinals(candidate: &Candidate) -> Value {
    let mut list = vec![
        json!({ "ordinal": 0, "name": "direct" }),
        json!({ "ordinal": 1, "name": "block" }),
    ];
    let groups = candidate.config.groups.iter();
    list.extend(groups.map(|g| json!({ "ordinal": g.ordinal.0, "name": g.name })));
    list.into()
}
