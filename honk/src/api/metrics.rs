//! `/metrics`: everything the daemon counts, as one page.

use std::{collections::BTreeMap, sync::Arc, sync::atomic::Ordering, time::Instant};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use honk_policy::{
    group::{Ineligible, MemberView},
    id::Network,
};

use super::{
    Shared,
    error::ApiError,
    events, guard, layer, metrics_health, metrics_score,
    query::{Nothing, Params},
    seats, server, stats, status,
};
use crate::{
    app::{
        admission::KINDS,
        engine::{Datagrams, Dials, Engine},
        notify::Task,
        refusal::REFUSALS,
        registry::REASONS,
        reload::{RESULTS, TRIGGERS},
        sniffing,
        subscriptions::{FetchResult, View},
    },
    cli::version,
    log,
    metrics::{
        names,
        page::{Page, encode},
        process,
    },
};

const STATES: [&str; 5] = ["starting", "running", "degraded", "suspended", "stopping"];

pub(super) async fn scrape(
    State(shared): State<Shared>,
    _: Params<Nothing>,
) -> Result<Response, ApiError> {
    let Ok(_permit) = shared.scrapes.try_acquire() else {
        let text = "two scrapes are running already";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text));
    };
    let engine = Arc::clone(&shared.engine);
    let streams = shared.streams.open();
    // Kernel maps are read with system calls.
    let text = tokio::task::spawn_blocking(move || page(&engine, streams))
        .await
        .map_err(|e| internal(&e))?
        .map_err(|e| internal(&e))?;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn internal(e: &dyn std::fmt::Display) -> ApiError {
    let text = format!("the metrics could not be collected: {e}");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
}

fn page(engine: &Engine, streams: usize) -> Result<Vec<u8>, prometheus::Error> {
    let mut page = Page::default();
    let abi = honk_common::ABI_VERSION.to_string();
    let build = [version::VERSION, version::REVISION, version::TARGET, &abi];
    page.count(&names::BUILD_INFO, &build, 1);
    daemon(engine, &mut page);
    kernel(engine, &mut page);
    flows(engine, &mut page);
    groups(engine, &mut page);
    metrics_score::score(engine, &mut page);
    subscriptions(engine, &mut page);
    dns(engine, &mut page);
    metrics_health::health(engine, &mut page);
    for (level, count) in log::LEVELS.iter().zip(log::counts()) {
        page.count(&names::LOG_EVENTS, &[level], count);
    }
    for (surface, method, class, count) in layer::answered() {
        // Most combinations never happen.
        if count > 0 {
            let labels = [
                layer::SURFACES[surface],
                layer::METHODS[method],
                layer::CLASSES[class],
            ];
            page.count(&names::API_REQUESTS, &labels, count);
        }
    }
    page.count(&names::API_REFUSED, &["denied"], server::refused());
    for (reason, count) in guard::refused() {
        page.count(&names::API_REFUSED, &[reason], count);
    }
    page.count(&names::API_EVICTED, &[], seats::evicted());
    page.count(&names::API_STREAMS, &["events"], streams as u64);
    page.count(&names::API_STREAM_DROPS, &["events"], events::dropped());
    process::collect(&mut page);
    encode(&page.gathered(engine.histograms.gather()))
}

fn daemon(engine: &Engine, page: &mut Page) {
    let snapshot = engine.snapshot();
    let (now, _) = status::state(engine, &engine.kernel.interfaces());
    for state in STATES {
        page.count(&names::UP_STATE, &[state], u64::from(state == now));
    }
    page.count(&names::CONFIG_GENERATION, &[], snapshot.generation);
    let (at_ms, accepted) = engine.reloads.last();
    page.count(&names::CONFIG_RELOAD_SUCCESS, &[], u64::from(accepted));
    page.count(&names::CONFIG_RELOAD_TIME, &[], at_ms / 1000);
    for (t, trigger) in TRIGGERS.iter().enumerate() {
        for (r, result) in RESULTS.iter().enumerate() {
            let count = engine.reloads.count(t, r);
            page.count(&names::CONFIG_RELOADS, &[result, trigger], count);
        }
    }
    let tally = snapshot.tally;
    for (severity, count) in [
        ("error", tally.errors),
        ("warning", tally.warnings),
        ("note", tally.notes),
    ] {
        page.count(&names::CONFIG_DIAGNOSTICS, &[severity], count as u64);
    }
    let now = Instant::now();
    for (task, name) in Task::ALL {
        let age = engine.beats.age(task, now).as_secs_f64();
        page.add(&names::HEARTBEAT_AGE, &[name], age);
    }
}

fn kernel(engine: &Engine, page: &mut Page) {
    for i in engine.kernel.interfaces() {
        let attached = u64::from(i.attached);
        let none = [String::new()];
        let hooks = if i.hooks.is_empty() {
            &none[..]
        } else {
            &i.hooks
        };
        for hook in hooks {
            page.count(
                &names::DATAPATH_ATTACHED,
                &[&i.name, &i.role, hook],
                attached,
            );
        }
    }
    let counters = engine.kernel_counters();
    for (stat, value) in &counters.stats {
        match (*stat, stat.strip_prefix("event_")) {
            ("event_drop", _) => page.count(&names::DATAPATH_EVENTS_LOST, &[], *value),
            ("trace_drop", _) => page.count(&names::TRACE_LOST, &["ring"], *value),
            (_, Some(event)) => page.count(&names::DATAPATH_EVENTS, &[event], *value),
            ("flow_overflow", None) => page.count(&names::MAP_ERRORS, &["flow", "insert"], *value),
            ("return_overflow", None) => {
                page.count(&names::MAP_ERRORS, &["return", "insert"], *value);
            }
            (stat, None) => page.count(&names::DATAPATH_STATS, &[stat], *value),
        }
    }
    for map in &counters.maps {
        page.count(&names::MAP_ENTRIES, &[&map.name], map.entries);
        page.count(&names::MAP_CAPACITY, &[&map.name], map.capacity);
    }
    for (name, used) in &counters.features {
        page.count(&names::DATAPATH_FEATURE, &[name], u64::from(*used));
    }
    let snapshot = engine.snapshot();
    for (slot, s) in &counters.outbounds {
        // Slots without a name belong to generations that are gone.
        let Some(name) = snapshot.name_of(*slot) else {
            continue;
        };
        for (direction, packets, bytes) in [
            ("up", s.tx_packets, s.tx_bytes),
            ("down", s.rx_packets, s.rx_bytes),
        ] {
            page.count(&names::DATAPATH_PACKETS, &[name, direction], packets);
            page.count(&names::DATAPATH_BYTES, &[name, direction], bytes);
        }
    }
    let stat = |wanted: &str| {
        let found = counters.stats.iter().find(|(name, _)| *name == wanted);
        found.map_or(0, |(_, value)| *value)
    };
    for (kind, value) in [
        ("direct", stat("direct_new")),
        ("block", stat("block")),
        ("group", stat("proxy_new")),
    ] {
        page.count(&names::ROUTE_DECISIONS, &["kernel", kind], value);
    }
}

fn dns(engine: &Engine, page: &mut Page) {
    let dns = engine.dns.snapshot();
    for (ingress, qtype, count) in dns.queries {
        page.count(&names::DNS_QUERIES, &[ingress, qtype], count);
    }
    for (code, source, count) in dns.responses {
        page.count(&names::DNS_RESPONSES, &[code, source], count);
    }
    for (reason, count) in dns.refused {
        page.count(&names::DNS_REFUSED, &[reason], count);
    }
    for (cause, count) in [
        ("unlearned", dns.unlearned),
        ("reply_queue", dns.unsent),
        ("big_answer", dns.cut),
    ] {
        page.count(&names::DNS_LOST, &[cause], count);
    }
    for (family, value) in [
        (&names::DNS_INFLIGHT, dns.waiting as u64),
        (&names::DNS_STREAMS, dns.streams as u64),
        (&names::DNS_OPAQUE, dns.opaque),
        (&names::DNS_TIMEOUTS, dns.timeouts),
        (&names::DNS_MISMATCH, dns.mismatch),
        (&names::DNS_MALFORMED, dns.malformed),
        (&names::DNS_MAP_LEASES, dns.leases as u64),
        (&names::DNS_MAP_ADDRESSES, dns.addresses as u64),
        (&names::DNS_MAP_NAMES, dns.names as u64),
        (&names::DNS_MAP_ENTRIES, dns.entries as u64),
        (&names::DNS_MAP_UNWRITTEN, dns.unwritten as u64),
        (&names::DNS_MAP_AMBIGUOUS, dns.ambiguous as u64),
        (&names::DNS_MAP_EVICTED, dns.evicted),
        (&names::DNS_MAP_FAILURES, dns.map_failures),
        (&names::DNS_MAP_LATE, dns.late),
    ] {
        page.count(family, &[], value);
    }
}

fn names_of_flows(engine: &Engine, page: &mut Page) {
    let counters = engine.gatekeeper.sniffing();
    for (kind, row) in sniffing::KINDS.iter().zip(&counters.sniffed) {
        for (result, count) in sniffing::RESULTS.iter().zip(row) {
            let count = count.load(Ordering::Relaxed);
            page.count(&names::SNIFF, &[kind, result], count);
        }
    }
    let one_label = [
        (
            &names::SNIFF_SKIPPED,
            &sniffing::SKIPS[..],
            &counters.skipped[..],
        ),
        (&names::SNIFF_CHECKS, &sniffing::CHECKS, &counters.checks),
        (&names::AMBIGUOUS, &sniffing::RESOLVED, &counters.ambiguous),
    ];
    for (family, labels, counts) in one_label {
        for (label, count) in labels.iter().zip(counts) {
            page.count(family, &[label], count.load(Ordering::Relaxed));
        }
    }
    let (places, displaced) = engine.gatekeeper.silent_places();
    page.count(&names::SNIFF_PLACES, &[], places as u64);
    page.count(&names::SNIFF_DISPLACED, &[], displaced);
}

fn flows(engine: &Engine, page: &mut Page) {
    let counters = &engine.gatekeeper.counters;
    for (kind, count) in KINDS.iter().zip(&counters.decisions) {
        let count = count.load(Ordering::Relaxed);
        page.count(&names::ROUTE_DECISIONS, &["userspace", kind], count);
    }
    for (reason, count) in REFUSALS.iter().zip(&counters.refused) {
        let count = count.load(Ordering::Relaxed);
        page.count(&names::CONNECTIONS_REFUSED, &[reason], count);
    }
    let (watchers, lost) = engine.gatekeeper.traces.counts();
    page.count(&names::TRACE_WATCHERS, &[], watchers as u64);
    page.count(&names::TRACE_LOST, &["queue"], lost);
    let missed = counters.handoff_miss.load(Ordering::Relaxed);
    page.count(&names::HANDOFF_MISS, &[], missed);
    names_of_flows(engine, page);
    let live = stats::live(engine);
    for (outbound, counted) in engine.registry.stats() {
        for network in [Network::Tcp, Network::Udp] {
            let (net, name) = (counted.of(network), network.name());
            let labels = [name, &*outbound];
            page.count(
                &names::CONNECTIONS,
                &labels,
                net.open.load(Ordering::Relaxed),
            );
            let opened = net.opened.load(Ordering::Relaxed);
            page.count(&names::CONNECTIONS_OPENED, &labels, opened);
            for (reason, count) in REASONS.iter().zip(&net.closed) {
                let count = count.load(Ordering::Relaxed);
                page.count(
                    &names::CONNECTIONS_CLOSED,
                    &[name, &outbound, reason],
                    count,
                );
            }
            let key = (Arc::clone(&outbound), name);
            let (up, down) = live.get(&key).copied().unwrap_or_default();
            for (direction, bytes) in [
                ("up", up + net.up.load(Ordering::Relaxed)),
                ("down", down + net.down.load(Ordering::Relaxed)),
            ] {
                page.count(&names::TRANSFER_BYTES, &[&outbound, name, direction], bytes);
            }
        }
    }
    if let Some(carriers) = engine.carriers() {
        for (stat, value) in carriers.relay_stats() {
            page.count(&names::RELAY_STATS, &[stat], value);
        }
        page.count(&names::RELAY_PIPES, &[], carriers.pipes() as u64);
        datagrams(&carriers.datagrams(), page);
        dials(&carriers.dials(), page);
    }
}

fn datagrams(udp: &Datagrams, page: &mut Page) {
    page.count(&names::UDP_ENDPOINTS, &[], udp.flows as u64);
    page.count(&names::UDP_HELD, &[], udp.held as u64);
    page.count(&names::UDP_TUNNELS, &[], udp.tunnels as u64);
    page.count(&names::UDP_REPLY_SOCKETS, &[], udp.reply_sockets as u64);
    page.count(&names::UDP_LOOKUPS, &["hit"], udp.hits);
    page.count(&names::UDP_LOOKUPS, &["miss"], udp.misses);
    page.count(&names::UDP_DATAGRAMS, &["received"], udp.received);
    page.count(&names::UDP_DATAGRAMS, &["sent"], udp.sent);
    for (cause, count) in &udp.drops {
        page.count(&names::UDP_DROPS, &[cause], *count);
    }
}

fn dials(dials: &Dials, page: &mut Page) {
    for row in &dials.rows {
        for (result, count) in &row.results {
            page.count(&names::DIALS, &[row.network, row.protocol, result], *count);
        }
        let labels = [row.network, row.protocol];
        let (bounds, sum) = (&dials.bounds, row.seconds);
        page.distribution(&names::DIAL_DURATION, &labels, bounds, &row.buckets, sum);
    }
    page.count(&names::DIAL_PERMITS, &[], dials.permits as u64);
    page.count(&names::DIAL_LIMIT, &[], dials.limit as u64);
}

/// What a direct member can do on a network; a nested group without a leaf counts as dead.
fn member_state(member: &MemberView, network: &str) -> &'static str {
    let why = match network {
        "tcp" => member.tcp,
        _ => member.udp,
    };
    match why {
        None => "alive",
        Some(Ineligible::UdpIncapable) => "udp_incapable",
        Some(Ineligible::Disabled) => "disabled",
        Some(Ineligible::Dead | Ineligible::NoMember | Ineligible::Depth) => "dead",
    }
}

fn groups(engine: &Engine, page: &mut Page) {
    let snapshot = engine.snapshot();
    let views = snapshot.groups.views();
    let mut policies: BTreeMap<&str, u64> = BTreeMap::new();
    for group in views.iter().filter(|g| !g.implicit) {
        *policies.entry(group.policy.name()).or_default() += 1;
    }
    for (policy, count) in policies {
        page.count(&names::GROUPS, &[policy], count);
    }
    for group in &views {
        for (network, sel) in [("tcp", &group.tcp), ("udp", &group.udp)] {
            for state in ["alive", "dead", "udp_incapable", "disabled"] {
                let members = group.members.iter();
                let count = members
                    .filter(|m| member_state(m, network) == state)
                    .count();
                let labels = [group.name.as_str(), network, state];
                page.count(&names::GROUP_MEMBERS, &labels, count as u64);
            }
            if let (Some((id, leaf)), Some(source)) = (&sel.leaf, sel.source) {
                let id = id.0.to_string();
                let labels = [group.name.as_str(), network, &id, leaf, source.name()];
                page.count(&names::GROUP_SELECTED, &labels, 1);
            }
        }
    }
    for ((group, network, outcome), count) in engine.gatekeeper.unselected() {
        page.count(
            &names::GROUP_NO_SELECTION,
            &[&group, network, outcome],
            count,
        );
    }
    for (group, flows) in engine.gatekeeper.last_resorts.counts() {
        page.count(&names::GROUP_LAST_RESORT, &[&group], flows);
    }
    for ((group, network, reason, outcome), count) in engine.gatekeeper.races() {
        page.count(
            &names::GROUP_RACES,
            &[&group, network, reason, outcome],
            count,
        );
    }
    let changes = engine.changes.lock();
    let changes = changes.unwrap_or_else(std::sync::PoisonError::into_inner);
    for ((group, network, cause), count) in changes.iter() {
        page.count(&names::GROUP_CHANGES, &[group, network, cause], *count);
    }
}

/// Subscriptions that have series of their own.
const MAX_SUBSCRIPTIONS: usize = 64;

fn subscriptions(engine: &Engine, page: &mut Page) {
    let named = by_name(engine.subscriptions.views());
    for (name, views) in named.iter().take(MAX_SUBSCRIPTIONS) {
        let sum = |of: fn(&View) -> Option<u64>| {
            let mut values = views.iter().filter_map(of).peekable();
            values.peek().is_some().then(|| values.sum::<u64>())
        };
        let nodes = views.iter().map(|v| v.nodes as u64).sum();
        page.count(&names::SUB_NODES, &[name], nodes);
        for (n, result) in FetchResult::NAMES.iter().enumerate() {
            let count = views.iter().filter_map(|v| v.counts.get(n)).sum();
            page.count(&names::SUB_FETCHES, &[name, result], count);
        }
        if let Some(at) = views.iter().filter_map(|v| v.succeeded_ms).min() {
            page.count(&names::SUB_SUCCESS, &[name], at / 1000);
        }
        for (kind, bytes) in [
            ("upload", sum(|v| v.user?.upload)),
            ("download", sum(|v| v.user?.download)),
            ("total", sum(|v| v.user?.total)),
        ] {
            if let Some(bytes) = bytes {
                page.count(&names::SUB_QUOTA, &[name, kind], bytes);
            }
        }
        if let Some(at) = views.iter().filter_map(|v| v.user?.expire).min() {
            page.count(&names::SUB_EXPIRE, &[name], at);
        }
    }
}

/// Subscriptions by tag: two of one tag are one series, and those without are told by number.
fn by_name(views: Vec<View>) -> BTreeMap<String, Vec<View>> {
    let mut named: BTreeMap<String, Vec<View>> = BTreeMap::new();
    for (at, view) in views.into_iter().enumerate() {
        let name = match view.tag.as_str() {
            "" => format!("#{}", at + 1),
            tag => tag.to_owned(),
        };
        named.entry(name).or_default().push(view);
    }
    named
}
