//! The health family of `/metrics`.

use honk_policy::{
    config::Policy,
    group::builtin::is_builtin,
    health::{Condition, View},
    id::{Domain, Family, NodeId},
};

use crate::{
    app::{
        engine::Engine,
        health::{BUCKETS_MS, Prober, RESULTS, check_interval},
    },
    metrics::{names, page::Page},
};

/// Label values of `path`, with what they mean. Datagrams are judged by their own domain first.
pub(super) const PATHS: [(&str, Family, &[Domain]); 4] = [
    ("tcp_v4", Family::V4, &[Domain::Tcp]),
    ("tcp_v6", Family::V6, &[Domain::Tcp]),
    ("udp_v4", Family::V4, &[Domain::DataUdp, Domain::DnsUdp]),
    ("udp_v6", Family::V6, &[Domain::DataUdp, Domain::DnsUdp]),
];

/// What is known of a node on a path.
pub(super) fn on_path(
    view: &View,
    node: NodeId,
    family: Family,
    domains: &[Domain],
) -> Option<Condition> {
    let states = domains.iter().filter_map(|d| view.exact(node, *d, family));
    let mut states: Vec<Condition> = states.collect();
    let first = states.first().copied()?;
    let latency_ms = states.iter().find_map(|s| s.latency_ms);
    Some(Condition {
        // As for the selection: one of the domains is enough.
        alive: states.drain(..).any(|s| s.alive),
        latency_ms,
        ..first
    })
}

/// `alive`, `dead`, `disabled` or `unknown`: what a node is to someone who looks at a list.
pub(super) fn state(view: &View, node: NodeId) -> &'static str {
    if view.is_disabled(node) {
        return "disabled";
    }
    let tcp = Family::ALL.map(|family| view.exact(node, Domain::Tcp, family));
    let mut known = tcp.into_iter().flatten().peekable();
    if known.peek().is_none() {
        return "unknown";
    }
    if known.any(|s| s.alive) {
        "alive"
    } else {
        "dead"
    }
}

pub(super) fn health(engine: &Engine, page: &mut Page) {
    let snapshot = engine.snapshot();
    let report = engine.prober().map(Prober::report);
    let report = report.unwrap_or_default();
    let view = &report.view;
    let nodes = snapshot.groups.nodes().iter();
    let mut states = [("alive", 0), ("dead", 0), ("disabled", 0), ("unknown", 0)];
    for node in nodes.filter(|node| !is_builtin(node)) {
        let now = state(view, node.id);
        if let Some((_, count)) = states.iter_mut().find(|(state, _)| *state == now) {
            *count += 1;
        }
        let id = node.id.0.to_string();
        for (path, family, domains) in PATHS {
            let Some(state) = on_path(view, node.id, family, domains) else {
                continue;
            };
            let tag = node.origin.as_ref().map_or("", |o| &o.tag);
            let labels = [id.as_str(), &node.name, tag, path];
            page.count(&names::NODE_UP, &labels, u64::from(state.alive));
            if let Some(ms) = state.latency_ms {
                page.add(&names::NODE_DELAY, &[&id, &node.name, path], ms / 1e3);
            }
        }
    }
    for (state, count) in states {
        page.count(&names::NODES, &[state], count);
    }
    for node in snapshot.groups.nodes() {
        if let Some(off) = engine.judge.why_off(node) {
            let labels = [&*node.id.0.to_string(), &node.name, off.by];
            page.count(&names::NODE_DISABLED, &labels, 1);
        }
    }
    page.count(&names::NODE_REJECTIONS, &[], engine.judge.rejections());
    for group in snapshot.groups.groups() {
        let automatic = group.def.policy != Policy::Selector;
        let raised = group.def.timing(check_interval(&snapshot.config)).raised;
        if automatic {
            let skips = report.skips.iter().find(|(id, _)| *id == group.id);
            let skips = skips.map_or(0, |(_, skips)| *skips);
            page.count(&names::PASSIVE_SKIPS, &[&group.name], skips);
            page.count(&names::IDLE_RAISED, &[&group.name], u64::from(raised));
        }
    }
    let Some(prober) = engine.prober() else {
        return;
    };
    let bounds = BUCKETS_MS.map(|ms| std::time::Duration::from_millis(ms).as_secs_f64());
    for row in prober.counts().rows() {
        for (result, count) in RESULTS.iter().zip(row.results) {
            page.count(&names::PROBES, &[row.kind, result], count);
        }
        let (labels, buckets) = ([row.kind], &row.buckets);
        page.distribution(
            &names::PROBE_DURATION,
            &labels,
            &bounds,
            buckets,
            row.seconds,
        );
    }
    page.count(&names::PROBES_RUNNING, &[], report.counts.running as u64);
    page.count(&names::PROBE_TARGETS, &[], report.counts.targets as u64);
    page.count(&names::NODE_TRANSITIONS, &[], prober.transitions());
    for (what, count) in [
        ("target", report.counts.untracked as u64),
        ("event", prober.events_lost()),
        ("late", report.counts.late),
        ("order", prober.orders_lost()),
    ] {
        page.count(&names::HEALTH_DROPPED, &[what], count);
    }
}
