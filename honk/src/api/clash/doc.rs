//! Documents of nodes and groups in the words of Clash.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use honk_policy::{
    config::Policy,
    group::{GroupView, Ineligible, SelectionView, builtin},
    health::View,
    id::{MemberId, NodeId},
    node::{Kind, Node, Protocol},
};
use serde_json::{Map, Value, json};

use super::super::{
    Shared, metrics_health,
    samples::{Past, Samples},
    score,
};
use crate::{
    app::{health::Prober, snapshot::Snapshot},
    clock,
};

/// The group of everything, which dashboards take their order from.
pub(super) const GLOBAL: &str = "GLOBAL";

/// What documents are made of.
pub(super) struct Documents<'a> {
    shared: &'a Shared,
    snapshot: Arc<Snapshot>,
    views: Vec<GroupView>,
    health: Arc<View>,
    samples: Samples<'a>,
}

impl<'a> Documents<'a> {
    pub(super) fn of(shared: &'a Shared) -> Self {
        let engine = &shared.engine;
        let snapshot = engine.snapshot();
        let report = engine.prober().map(Prober::report);
        let views = snapshot.groups.views().into_iter();
        Self {
            shared,
            views: views.filter(|view| !view.implicit).collect(),
            health: report.map(|r| Arc::clone(&r.view)).unwrap_or_default(),
            samples: Samples::of(engine),
            snapshot,
        }
    }

    /// Everything by name: groups hide nodes, the first node hides its namesakes.
    pub(super) fn all(&self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert(GLOBAL.to_owned(), self.global());
        for view in &self.views {
            all.insert(view.name.clone(), self.of_group(view));
        }
        for node in self.nodes() {
            if !all.contains_key(&node.name) {
                all.insert(node.name.clone(), self.of_node(node));
            }
        }
        all
    }

    pub(super) fn one(&self, name: &str) -> Option<Value> {
        if name == GLOBAL {
            return Some(self.global());
        }
        self.group(name).or_else(|| {
            let node = self.nodes().find(|n| n.name == name);
            node.map(|node| self.of_node(node))
        })
    }

    pub(super) fn group(&self, name: &str) -> Option<Value> {
        let view = self.views.iter().find(|view| view.name == name);
        view.map(|view| self.of_group(view))
    }

    pub(super) fn groups(&self) -> Vec<Value> {
        self.views.iter().map(|view| self.of_group(view)).collect()
    }

    /// The documents of these members.
    pub(super) fn members(&self, ids: &HashSet<MemberId>) -> HashMap<MemberId, Value> {
        let nodes = self.nodes().map(|node| (MemberId::Node(node.id), node));
        let nodes = nodes.filter(|(id, _)| ids.contains(id));
        let views = self.views.iter();
        let groups = views.map(|view| (MemberId::Group(view.id), view));
        let groups = groups.filter(|(id, _)| ids.contains(id));
        nodes
            .map(|(id, node)| (id, self.of_node(node)))
            .chain(groups.map(|(id, view)| (id, self.of_group(view))))
            .collect()
    }

    /// Those that have any.
    pub(super) fn groups_with_members(&self) -> impl Iterator<Item = &GroupView> + Clone {
        self.views.iter().filter(|view| !view.members.is_empty())
    }

    /// What the members of a group are measured by.
    pub(super) fn url(&self, view: &GroupView) -> String {
        let engine = &self.shared.engine;
        engine.usual_url(&self.snapshot, view.id).to_string()
    }

    /// Configured nodes in order, then the built-ins.
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let builtins = [&**builtin::direct(), &**builtin::block()];
        let nodes = self.snapshot.groups.nodes().iter();
        nodes.map(|n| &**n).chain(builtins)
    }

    /// A list of names more than a group: it decides nothing in the mode Rule.
    fn global(&self) -> Value {
        let groups = self.views.iter().map(|view| view.name.as_str());
        let all = once(groups.chain(self.nodes().map(|n| n.name.as_str())));
        json!({
            "name": GLOBAL,
            "type": "Selector",
            "now": all.first(),
            "all": all,
            "udp": true,
            "alive": true,
            "history": [],
            "hidden": false,
            "icon": "",
            "fixed": "",
        })
    }

    /// Where a server is stays out, as everywhere.
    pub(super) fn of_node(&self, node: &Node) -> Value {
        let past = self.samples.of_node(node.id);
        let state = match self.shared.engine.judge.why_off(node) {
            Some(_) => "disabled",
            None => metrics_health::state(&self.health, node.id),
        };
        let mut document = json!({
            "name": node.name,
            "type": kind(&node.protocol),
            "id": node.id.0.to_string(),
            "udp": node.protocol.udp(),
            "xudp": false,
            "uot": false,
            "tfo": false,
            "mptcp": false,
            "smux": false,
            // Nobody has found it dead.
            "alive": builtin::is_builtin(node) || !matches!(state, "dead" | "disabled"),
            "history": history(&past),
            "extra": extra(&past),
            "dialer-proxy": "",
        });
        if let Some(origin) = node.origin.as_ref().filter(|o| !o.tag.is_empty()) {
            document["provider-name"] = json!(origin.tag);
        }
        document
    }

    fn of_group(&self, view: &GroupView) -> Value {
        let past = view.tcp.leaf.as_ref();
        let past = past.map_or_else(Vec::new, |(leaf, _)| self.past(view, *leaf));
        let now = now(view, &view.tcp);
        let now_udp = now_of_udp(view, &now);
        let icon = view.icon.as_ref();
        let icon = icon.map_or_else(String::new, |i| self.shared.mask.text(i.reveal()));
        let pinned = view.tcp.pinned_at_ms.is_some();
        let mut document = json!({
            "name": view.name,
            "id": view.id.0.to_string(),
            "type": policy(view.policy),
            "all": once(view.members.iter().map(|m| m.name.as_str())),
            "udp": view.members.iter().any(|m| m.udp != Some(Ineligible::UdpIncapable)),
            "alive": view.tcp.alive,
            "history": history(&past),
            "extra": extra(&past),
            "icon": icon,
            "hidden": false,
            "testUrl": self.url(view),
            "fixed": if pinned { now.as_str() } else { "" },
            "now": now,
        });
        if let Some(now_udp) = now_udp {
            document["nowUdp"] = json!(now_udp);
        }
        let engine = &self.shared.engine;
        if let Some(known) = score::verified_group(engine, &self.snapshot, view) {
            document["scoreVerification"] = json!(known);
        }
        document
    }

    /// Of the leaf a group leads to now, and of the member it is reached by.
    fn past(&self, view: &GroupView, leaf: NodeId) -> Vec<Past> {
        let mut past = self.samples.of_node(leaf);
        if let Some((member @ MemberId::Group(_), _)) = &view.tcp.member {
            past.extend(self.samples.of_member(*member));
            past.sort_by_key(|sample| sample.at_ms);
        }
        past
    }
}

/// The name shown as selected.
fn now(view: &GroupView, selection: &SelectionView) -> String {
    let first = || view.members.first().map(|m| m.name.clone());
    let selected = || selection.member.as_ref().map(|(_, name)| name.clone());
    let pinned = selection.pinned_at_ms.is_some();
    let now = match view.policy {
        // All of them, in turn.
        Policy::LoadBalance if !pinned => first(),
        _ => selected(),
    };
    now.unwrap_or_default()
}

/// The same for UDP, when it is another one.
fn now_of_udp(view: &GroupView, tcp: &str) -> Option<String> {
    let udp = now(view, &view.udp);
    (udp != tcp).then_some(udp)
}

/// Each name once: clients that know names only cannot tell two apart.
fn once<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

fn history(past: &[Past]) -> Vec<Value> {
    let of = |sample: &Past| {
        json!({
            "time": clock::text(sample.at_ms),
            // 0 is a failure.
            "delay": sample.delay_ms.map_or(0, |ms| ms.max(1)),
        })
    };
    past.iter().map(of).collect()
}

/// The samples by URL.
fn extra(past: &[Past]) -> Map<String, Value> {
    let mut extra = Map::new();
    for url in once(past.iter().map(|sample| &*sample.url)) {
        let of_url: Vec<Past> = past.iter().filter(|s| &*s.url == url).cloned().collect();
        let alive = of_url.last().is_some_and(|s| s.delay_ms.is_some());
        let entry = json!({ "alive": alive, "history": history(&of_url) });
        extra.insert(url.to_owned(), entry);
    }
    extra
}

/// Spellings that dashboards compare exactly.
fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Selector => "Selector",
        Policy::UrlTest => "URLTest",
        Policy::Fallback => "Fallback",
        Policy::LoadBalance => "LoadBalance",
        // Shown as a plain automatic group.
        Policy::Score => "url_test",
    }
}

fn kind(protocol: &Protocol) -> &'static str {
    match protocol {
        Protocol::Direct => "Direct",
        Protocol::Block => "Reject",
        Protocol::Socks5(_) => "Socks5",
        Protocol::Http(_) => "Http",
        Protocol::Proxy(proxy) => match &proxy.kind {
            Kind::Socks5(_) | Kind::Socks4 { .. } => "Socks5",
            Kind::Http(_) | Kind::Naive(_) => "Http",
            Kind::Shadowsocks(_) | Kind::SimpleObfs(_) | Kind::ShadowTls(_) | Kind::Layer => {
                "Shadowsocks"
            }
            Kind::Trojan(_) => "Trojan",
            Kind::Vmess(_) => "Vmess",
            Kind::Vless(_) => "Vless",
            Kind::Hysteria2(_) => "Hysteria2",
            Kind::Tuic(_) => "Tuic",
            Kind::Juicity(_) => "Juicity",
            Kind::AnyTls(_) => "AnyTLS",
        },
    }
}
