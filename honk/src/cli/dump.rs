//! `validate --dump` and `--explain`: what was understood. Links and passwords are never part
//! of it.

use honk_policy::{
    group::{GroupView, MemberView, SelectionView},
    id::MemberId,
    node::Host,
    routing::rule::RuleLine,
};
use serde_json::{Value, json};

use super::{args::Dump, output::clean, plural};
use crate::app::{share::Share, source::Candidate};

/// What was understood of a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Understood<'a> {
    pub(crate) candidate: &'a Candidate,
    /// What each file contributed.
    pub(crate) shares: &'a [Share],
}

impl Understood<'_> {
    /// One part as data.
    pub(crate) fn value(self, what: Dump) -> Value {
        let candidate = self.candidate;
        match what {
            Dump::Resolved => json!({
                "sections": self.sections(),
                "global": global(candidate),
                "nodes": nodes(candidate),
                "groups": groups(candidate),
                "rules": rules(candidate),
            }),
            Dump::Sections => self.sections(),
            Dump::Nodes => nodes(candidate),
            Dump::Groups => groups(candidate),
            Dump::Rules => rules(candidate),
            Dump::Ordinals => ordinals(candidate),
        }
    }

    /// One part as indented text.
    pub(crate) fn text(self, what: Dump) -> String {
        format!("{:#}", self.value(what))
    }

    /// Files with what they gave, groups with their members, and rules with what they lead to,
    /// for people.
    pub(crate) fn explain(self) -> String {
        let candidate = self.candidate;
        let mut text = format!(
            "{}, {}, {}\n\nfiles\n",
            plural(candidate.groups.nodes().len(), "node"),
            plural(candidate.config.groups.len(), "group"),
            plural(candidate.rules.lines.len(), "rule line"),
        );
        for share in self.shares {
            let sections = share.sections.iter();
            let sections: Vec<String> = sections.map(|(name, n)| format!("{name} {n}")).collect();
            let from = share.included_from.as_ref();
            let from = from.map_or_else(String::new, |(file, line)| {
                format!(" (included from {}:{line})", clean(file))
            });
            text.push_str(&format!(
                "  {}{from}\n       {}\n",
                clean(&share.file),
                match sections.is_empty() {
                    true => "nothing".to_owned(),
                    false => clean(&sections.join(", ")),
                }
            ));
        }
        text.push_str("\ngroups\n");
        for g in candidate.groups.views() {
            text.push_str(&group_text(&g));
        }
        text.push_str("\nrules (number, ordinal, outbound)\n");
        for (index, line) in candidate.rules.lines.iter().enumerate() {
            text.push_str(&format!(
                "  {index:4}  {:3}  {}  => {}\n",
                line.action.ordinal.0,
                clean(&line.text),
                clean(&outbound(candidate, line))
            ));
        }
        text
    }

    fn sections(self) -> Value {
        let share = |share: &Share| {
            let sections = share.sections.iter();
            let sections: Vec<Value> = sections
                .map(|(name, items)| json!({ "name": name, "items": items }))
                .collect();
            let from = share.included_from.as_ref();
            json!({
                "file": share.file,
                "included_from": from.map(|(file, line)| json!({ "file": file, "line": line })),
                "sections": sections,
            })
        };
        self.shares.iter().map(share).collect()
    }
}

/// A group with all that decides what it selects.
fn group_text(g: &GroupView) -> String {
    let kind = match g.implicit {
        true => "a node that a rule names",
        false => g.policy.name(),
    };
    let mut text = format!("  {:3}  {} ({kind})\n", g.ordinal.0, clean(&g.name));
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("       {name:<8} {}\n", clean(value)));
    };
    for filter in &g.filters {
        match filter.as_str() {
            "" => line("filter", "(ignored)"),
            filter => line("filter", filter),
        }
    }
    let members: Vec<String> = g.members.iter().map(member).collect();
    match members.is_empty() {
        true => line("members", "none"),
        false => line("members", &members.join(", ")),
    }
    if let Some(default) = &g.default {
        let known = g.default_member.is_some();
        line("default", &marked(default, known, "not a member"));
    }
    if let Some(last) = &g.final_ {
        line("final", &last.name);
    }
    line(
        "selects",
        &format!("tcp {}, udp {}", selected(&g.tcp), selected(&g.udp)),
    );
    text
}

fn member(member: &MemberView) -> String {
    match member.id {
        MemberId::Group(_) => format!("{} (group)", member.name),
        MemberId::Node(_) => member.name.clone(),
    }
}

fn marked(name: &str, good: bool, why: &str) -> String {
    match good {
        true => name.to_owned(),
        false => format!("{name} ({why})"),
    }
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
    candidate.groups.nodes().iter().map(|n| node(n)).collect()
}

fn groups(candidate: &Candidate) -> Value {
    let group = |g: GroupView| {
        let members: Vec<&String> = g.members.iter().map(|m| &m.name).collect();
        let nested = g.members.iter();
        let nested = nested.filter(|m| matches!(m.id, MemberId::Group(_)));
        let nested: Vec<&String> = nested.map(|m| &m.name).collect();
        json!({
            "name": g.name,
            "ordinal": g.ordinal.0,
            "slot": g.slot.0,
            "policy": g.policy.name(),
            "implicit": g.implicit,
            "filters": g.filters,
            "default": g.default,
            "final": g.final_.map(|f| f.name),
            "default_known": g.default.as_ref().map(|_| g.default_member.is_some()),
            "members": members,
            "nested": nested,
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
            "slot": line.action.ordinal.0,
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
