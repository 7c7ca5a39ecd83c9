//! Between the engine and the probes: what a snapshot asks to be watched, and what follows from
//! a change of health.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use honk_policy::{
    config::{CheckDns, CheckUrl, Config, Policy, Typed},
    group::{Group, GroupTable, Member, builtin::is_builtin},
    health::{GroupFacts, NodeFacts, Outcome, Selection, Setup, Subject, Touched, View},
    id::{Family, GroupId, MemberId, Network, NodeId},
    node::{Host, Node, Protocol},
};

use super::{engine::Engine, snapshot::Snapshot};
use crate::probe::{Groups, Plan};
pub(crate) use crate::probe::{
    Prober, Report,
    counts::{BUCKETS_MS, RESULTS},
};

impl Groups for Engine {
    fn plan(&self) -> Plan {
        Plan {
            off: self.judge.off(),
            ..plan(&self.snapshot())
        }
    }

    fn selections(&self) -> Vec<Selection> {
        let snapshot = self.snapshot();
        let table = &snapshot.groups;
        table.groups().map(|g| selection(table, g)).collect()
    }

    fn used(&self) -> Vec<GroupId> {
        let snapshot = self.snapshot();
        let used = snapshot.groups.groups().filter(|g| g.activity().take());
        used.map(|g| g.id).collect()
    }

    async fn woken(&self) {
        self.gatekeeper.woken().await;
    }

    fn node(&self, id: NodeId) -> Option<Arc<Node>> {
        let snapshot = self.snapshot();
        let node = snapshot.groups.nodes().iter().find(|n| n.id == id);
        node.cloned()
    }

    fn leaf(&self, group: GroupId, member: MemberId) -> Option<Arc<Node>> {
        let snapshot = self.snapshot();
        match member {
            MemberId::Node(id) => {
                let mut nodes = snapshot.groups.nodes().iter();
                nodes.find(|n| n.id == id).cloned()
            }
            MemberId::Group(nested) => {
                // The member must still be one: the probe may be of a generation before.
                let group = snapshot.groups.group(group)?;
                group.members.iter().find(|m| m.id() == member)?;
                let slot = snapshot.groups.group(nested)?.slot;
                let selected = snapshot.groups.select(slot, Network::Tcp, Family::V4);
                selected.ok().map(|s| Arc::clone(s.leaf))
            }
        }
    }

    fn shifted(&self, node: &Node, what: &'static str, family: Family, alive: bool) {
        let data = serde_json::json!({
            "node_id": node.id.0.to_string(),
            "node": node.name,
            "domain": what,
            "family": family.name(),
            "state": if alive { "alive" } else { "dead" },
        });
        self.tell("node.health", None, data);
    }

    fn probed(&self, generation: u64, subject: Subject, outcome: Outcome) {
        self.score
            .probed(&self.snapshot(), generation, subject, outcome);
    }

    async fn judge(&self, view: Arc<View>, touched: Touched) {
        if let Err(error) = self.health_changed(view, &touched).await {
            tracing::warn!(target: "honk::health", %error, "the kernel was not told of a change of health");
        }
    }
}

fn selection(table: &GroupTable, group: &Group) -> Selection {
    let spreads = group.def.policy == Policy::LoadBalance;
    let leaf = |network| {
        let selected = table.select(group.slot, network, Family::V4).ok()?;
        (!spreads && !is_builtin(selected.leaf)).then_some(selected.leaf.id)
    };
    Selection {
        group: group.id,
        tcp: leaf(Network::Tcp),
        udp: leaf(Network::Udp),
        unseen: table.kernel_serves(group.id),
    }
}

/// What is to be watched in a generation.
fn plan(snapshot: &Snapshot) -> Plan {
    let (config, table) = (&snapshot.config, &snapshot.groups);
    let mut group_urls = HashMap::new();
    let mut wanted: BTreeSet<NodeId> = BTreeSet::new();
    let mut groups = Vec::new();
    for group in table.groups() {
        let url = group.def.check_url.as_deref();
        let url = url.filter(|_| group.is_automatic());
        let url = url.and_then(|url| CheckUrl::parse(url).ok()).map(Arc::new);
        let facts = facts(config, table, group, url.as_ref());
        wanted.extend(facts.tcp.iter().chain(&facts.udp));
        let members = facts.members.iter();
        wanted.extend(members.filter_map(|m| match m {
            MemberId::Node(node) => Some(*node),
            MemberId::Group(_) => None,
        }));
        groups.push(facts);
        if let Some(url) = url {
            group_urls.insert(group.id, url);
        }
    }
    let nodes = table.nodes().iter().filter(|n| wanted.contains(&n.id));
    let facts = |node: &Arc<Node>| NodeFacts {
        id: node.id,
        families: families(&node.protocol),
    };
    Plan {
        setup: Setup {
            nodes: nodes.map(facts).collect(),
            groups,
            parallel: number(config, "ping_concurrency", 10),
        },
        off: BTreeSet::new(),
        generation: snapshot.generation,
        url: check_url(config),
        method: check_method(config).into(),
        dns: check_dns(config),
        group_urls,
    }
}

fn facts(
    config: &Config,
    table: &GroupTable,
    group: &Group,
    url: Option<&Arc<CheckUrl>>,
) -> GroupFacts {
    let mut nodes: Vec<&Arc<Node>> = Vec::new();
    for member in &*group.members {
        if let Member::Node(node) = member {
            nodes.push(node);
        }
    }
    nodes.retain(|node| !is_builtin(node));
    let last = group.def.final_.as_deref();
    let last = last.and_then(|name| table.nodes().iter().find(|n| n.name == name));
    let last = last.filter(|node| !is_builtin(node));
    let of = |nodes: &[&Arc<Node>], carries: fn(&Protocol) -> bool| {
        let all = nodes.iter().copied().chain(last);
        let able = all.filter(|n| carries(&n.protocol) && n.protocol.built());
        let ids: BTreeSet<NodeId> = able.map(|n| n.id).collect();
        ids.into_iter().collect::<Vec<_>>()
    };
    let members = match url {
        Some(_) => {
            let probed = |m: &&Member| match m {
                Member::Node(node) => !is_builtin(node) && node.protocol.built(),
                Member::Group { .. } => true,
            };
            group
                .members
                .iter()
                .filter(probed)
                .map(Member::id)
                .collect()
        }
        None => Vec::new(),
    };
    let own = if url.is_some() { &[][..] } else { &nodes };
    let timing = group.def.timing(check_interval(config));
    let passive = group.def.probing.passive_check;
    let global = matches!(
        config.settings.global("passive_check"),
        Some(Typed::Bool(true))
    );
    GroupFacts {
        id: group.id,
        tcp: of(own, Protocol::tcp),
        udp: of(&nodes, Protocol::udp),
        members,
        check_url: url.map(|url| Arc::clone(&url.text)),
        automatic: group.is_automatic(),
        interval: timing.interval,
        idle: timing.idle,
        passive: group.is_automatic()
            && group.def.policy != Policy::Score
            && passive.unwrap_or(global),
    }
}

/// Families in which the server next to the gateway may have an address.
fn families(protocol: &Protocol) -> Vec<Family> {
    let Some(proxy) = protocol.proxy() else {
        return Vec::new();
    };
    let first = proxy.via.last().and_then(|hop| hop.protocol.proxy());
    let host = first.as_ref().map_or(&proxy.host, |hop| &hop.host);
    match host {
        Host::Ip(ip) => vec![crate::outbound::open::family_of(ip.to_canonical())],
        Host::Name(_) => Family::ALL.to_vec(),
    }
}

/// `global.check_interval`.
pub(crate) fn check_interval(config: &Config) -> Duration {
    match config.settings.global("check_interval") {
        Some(Typed::Millis(ms)) => Duration::from_millis(ms.unsigned_abs()),
        _ => Duration::from_secs(30),
    }
}

/// What nodes are asked over HTTP.
pub(crate) fn check_url(config: &Config) -> Arc<CheckUrl> {
    let list = match config.settings.global("tcp_check_url") {
        Some(Typed::List(list)) => CheckUrl::parse_list(&list).ok(),
        _ => None,
    };
    Arc::new(list.unwrap_or_else(default_url))
}

/// What is asked where the configuration names nothing that can be.
pub(super) fn default_url() -> CheckUrl {
    CheckUrl::parse("preset(google)").expect("a preset is a URL")
}

/// How nodes are asked over HTTP.
pub(super) fn check_method(config: &Config) -> String {
    text(config, "tcp_check_http_method", "HEAD")
}

/// What nodes are asked over UDP.
pub(super) fn check_dns(config: &Config) -> Arc<CheckDns> {
    let declared = match config.settings.global("udp_check_dns") {
        Some(Typed::List(list)) => CheckDns::parse_list(&list),
        _ => None,
    };
    let default = || CheckDns {
        host: "dns.google".to_owned(),
        port: 53,
        addresses: vec![[8, 8, 8, 8].into()],
    };
    Arc::new(declared.unwrap_or_else(default))
}

fn text(config: &Config, key: &str, default: &str) -> String {
    match config.settings.global(key) {
        Some(Typed::Text(text)) if !text.is_empty() => text,
        _ => default.to_owned(),
    }
}

pub(super) fn number(config: &Config, key: &str, default: usize) -> usize {
    match config.settings.global(key) {
        Some(Typed::Int(n)) => usize::try_from(n).unwrap_or(default),
        _ => default,
    }
}

#[cfg(test)]
mod tests;
