//! Flows that userspace carries, and the ones it carried last.

use std::{net::IpAddr, sync::Arc, sync::atomic::Ordering, time::Duration};

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Shared,
    doc::{CloseResult, Conn, Endpoint, Page, Rule},
    error::ApiError,
    query::{self, Nothing, Paging, Params},
};
use crate::{
    app::{
        engine::Engine,
        registry::{Closed, REASONS, reason_index},
        snapshot::Snapshot,
        trace::{is_named, within},
    },
    clock,
    flow::{CARRIERS, CloseReason, FlowEntry},
};

/// Longest wait for flows to end.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Filters of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    network: Option<String>,
    src: Option<String>,
    dst: Option<String>,
    host: Option<String>,
    group: Option<String>,
    node: Option<String>,
    rule: Option<String>,
    min_bytes: Option<String>,
    older_s: Option<String>,
    closed: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
    fields: Option<String>,
}

/// Filters of close. What only a list understands is refused: a `limit` that is not kept
/// would close more than was meant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    network: Option<String>,
    src: Option<String>,
    dst: Option<String>,
    host: Option<String>,
    group: Option<String>,
    node: Option<String>,
    rule: Option<String>,
    min_bytes: Option<String>,
    older_s: Option<String>,
    all: Option<String>,
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Params(listed): Params<Listed>,
) -> Result<Json<Page<Value>>, ApiError> {
    let engine = &shared.engine;
    let paging = Paging {
        limit: listed.limit,
        cursor: listed.cursor,
        fields: listed.fields,
    };
    let filter = Filter {
        network: listed.network,
        src: listed.src,
        dst: listed.dst,
        host: listed.host,
        group: listed.group,
        node: listed.node,
        rule: listed.rule,
        min_bytes: listed.min_bytes,
        older_s: listed.older_s,
        all: None,
    };
    let wanted = Wanted::new(&filter)?;
    let snapshot = engine.snapshot();
    let boot = boot(engine);
    if flag("closed", listed.closed.as_deref())? {
        let mut ended = engine.registry.ended();
        ended.retain(|c| wanted.takes(&c.entry));
        let ended: Vec<(u64, Closed)> = (0..).zip(ended).collect();
        let document = |(_, closed): &(u64, Closed)| {
            let mut conn = document(&snapshot, boot, &closed.entry);
            conn.state = "closed".to_owned();
            conn.closed_at = Some(clock::text(closed.at_ms));
            conn.reason = Some(REASONS[reason_index(closed.reason)].to_owned());
            conn
        };
        return query::page(&ended, &paging, |(n, _)| *n, document).map(Json);
    }
    let mut flows = engine.registry.list();
    flows.retain(|f| wanted.takes(f));
    let document = |flow: &Arc<FlowEntry>| document(&snapshot, boot, flow);
    query::page(&flows, &paging, |f| f.id, document).map(Json)
}

pub(super) async fn close(
    State(shared): State<Shared>,
    Params(filter): Params<Filter>,
) -> Result<Json<CloseResult>, ApiError> {
    let wanted = Wanted::new(&filter)?;
    if wanted.is_everything() && !flag("all", filter.all.as_deref())? {
        return Err(ApiError::bad_query(
            "all",
            "name a filter, or all=true to close every connection",
        ));
    }
    let registry = &shared.engine.registry;
    let mut flows = registry.list();
    flows.retain(|f| wanted.takes(f));
    let done = registry.close(&flows, CloseReason::Api, CLOSE_WAIT).await;
    Ok(Json(CloseResult {
        matched: done.matched,
        closed: done.closed,
        pending: done.pending,
    }))
}

pub(super) async fn close_one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Value>, ApiError> {
    let id = query::id(&id, "connection")?;
    let registry = &shared.engine.registry;
    let flow = find(&shared.engine, id)
        .ok_or_else(|| ApiError::not_found("connection", "no such connection"))?;
    let done = registry.close(&[flow], CloseReason::Api, CLOSE_WAIT).await;
    if done.pending > 0 {
        let text = "the connection is still closing";
        return Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", text));
    }
    Ok(Json(json!({ "closed": true })))
}

/// The live flow of an id.
pub(super) fn find(engine: &Engine, id: Uuid) -> Option<Arc<FlowEntry>> {
    let (boot_of_id, number) = id.as_u64_pair();
    let flow = engine.registry.find(number);
    flow.filter(|_| boot_of_id == boot(engine))
}

/// First half of connection ids: another process has another one, so an id kept over a
/// restart finds nothing instead of somebody else's flow.
pub(super) fn boot(engine: &Engine) -> u64 {
    // Nothing secret: it only has to differ. The version and variant bits stay legal.
    (engine.started_ms << 16 & !0xf000) | 0x4000 | (u64::from(std::process::id()) & 0xfff)
}

fn document(snapshot: &Snapshot, boot: u64, flow: &FlowEntry) -> Conn {
    let line = snapshot.rules.lines.get(usize::from(flow.rule));
    let line = line.filter(|_| flow.generation == snapshot.generation);
    let carrier = usize::from(flow.carrier.load(Ordering::Relaxed));
    let carrier = CARRIERS.get(carrier).copied().unwrap_or("opening");
    let way = flow.way();
    let groups = way.path.iter().map(ToString::to_string);
    Conn {
        id: Uuid::from_u64_pair(boot, flow.id).to_string(),
        network: flow.flow.network.name().to_owned(),
        state: if carrier == "opening" {
            "opening"
        } else {
            "open"
        }
        .to_owned(),
        src: endpoint(flow.flow.client.0),
        dst: endpoint(flow.flow.target.0),
        host: flow.host.as_ref().map(|(name, _)| name.to_string()),
        host_source: flow
            .host
            .as_ref()
            .map_or("none", |(_, s)| s.name())
            .to_owned(),
        rule: Rule {
            index: flow.rule,
            text: line.map_or_else(String::new, |l| l.text.clone()),
            file: line.map_or_else(String::new, |l| l.file.clone()),
            line: line.map_or(0, |l| l.line),
        },
        must: flow.must,
        outbound: flow.outbound.to_string(),
        chain: groups.chain([way.leaf_name.to_string()]).collect(),
        node_id: way.leaf.0.to_string(),
        up_bytes: flow.counters.up.load(Ordering::Relaxed),
        down_bytes: flow.counters.down.load(Ordering::Relaxed),
        started_at: clock::text(flow.started_ms),
        generation: flow.generation,
        carrier: carrier.to_owned(),
        closed_at: None,
        reason: None,
    }
}

pub(super) fn endpoint(address: std::net::SocketAddr) -> Endpoint {
    Endpoint {
        ip: address.ip().to_string(),
        port: address.port(),
    }
}

fn flag(name: &'static str, text: Option<&str>) -> Result<bool, ApiError> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(ApiError::bad_query(
            name,
            format!("{name} is true or false"),
        )),
    }
}

/// A filter that has been understood.
#[derive(Debug, Default)]
struct Wanted {
    network: Option<String>,
    src: Option<(IpAddr, u8)>,
    dst: Option<(IpAddr, u8)>,
    host: Option<String>,
    group: Option<String>,
    node: Option<String>,
    rule: Option<u64>,
    min_bytes: Option<u64>,
    older_s: Option<u64>,
}

impl Wanted {
    fn new(filter: &Filter) -> Result<Self, ApiError> {
        let network = filter.network.clone();
        if network.as_deref().is_some_and(|n| n != "tcp" && n != "udp") {
            return Err(ApiError::bad_query("network", "network is tcp or udp"));
        }
        Ok(Self {
            network,
            src: prefix("src", filter.src.as_deref())?,
            dst: prefix("dst", filter.dst.as_deref())?,
            host: filter.host.as_deref().map(str::to_ascii_lowercase),
            group: filter.group.clone(),
            node: filter.node.clone(),
            rule: number("rule", filter.rule.as_deref())?,
            min_bytes: number("min_bytes", filter.min_bytes.as_deref())?,
            older_s: number("older_s", filter.older_s.as_deref())?,
        })
    }

    fn is_everything(&self) -> bool {
        matches!(
            self,
            Self {
                network: None,
                src: None,
                dst: None,
                host: None,
                group: None,
                node: None,
                rule: None,
                min_bytes: None,
                older_s: None,
            }
        )
    }

    fn takes(&self, flow: &FlowEntry) -> bool {
        let bytes = || {
            let up = flow.counters.up.load(Ordering::Relaxed);
            up.saturating_add(flow.counters.down.load(Ordering::Relaxed))
        };
        let age = || clock::now_ms().saturating_sub(flow.started_ms) / 1000;
        let network = |n: &String| n == flow.flow.network.name();
        let group = |g: &String| *g == *flow.outbound || flow.way().path.iter().any(|p| **p == **g);
        let host = |h: &String| {
            flow.host
                .as_ref()
                .is_some_and(|(name, _)| is_named(name, h))
        };
        let node = |n: &String| *n == *flow.way().leaf_name || *n == flow.way().leaf.0.to_string();
        self.network.as_ref().is_none_or(network)
            && self.src.is_none_or(|p| within(p, flow.flow.client.0.ip()))
            && self.dst.is_none_or(|p| within(p, flow.flow.target.0.ip()))
            && self.host.as_ref().is_none_or(host)
            && self.group.as_ref().is_none_or(group)
            && self.node.as_ref().is_none_or(node)
            && self.rule.is_none_or(|r| r == u64::from(flow.rule))
            && self.min_bytes.is_none_or(|min| bytes() >= min)
            && self.older_s.is_none_or(|min| age() >= min)
    }
}

pub(super) fn number(name: &'static str, text: Option<&str>) -> Result<Option<u64>, ApiError> {
    let bad = |_| ApiError::bad_query(name, format!("{name} is a number"));
    text.map(|t| t.parse().map_err(bad)).transpose()
}

pub(super) fn prefix(
    name: &'static str,
    text: Option<&str>,
) -> Result<Option<(IpAddr, u8)>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let bad = || ApiError::bad_query(name, format!("{name} is an address or a prefix"));
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        "" if !text.contains('/') => widest,
        digits => digits
            .parse()
            .ok()
            .filter(|l| *l <= widest)
            .ok_or_else(bad)?,
    };
    Ok(Some((address, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_with_a_dot_means_names_below_it_too() {
        for (name, wanted, is) in [
            ("a.test", "a.test", true),
            ("x.a.test", "a.test", false),
            ("x.a.test", ".a.test", true),
            ("a.test", ".a.test", true),
            ("xa.test", ".a.test", false),
        ] {
            assert_eq!(is_named(name, wanted), is, "{name} {wanted}");
        }
    }

    #[test]
    fn prefixes_hold_their_own_family_only() {
        let holds = |p: &str, a: &str| {
            let prefix = prefix("src", Some(p)).unwrap().unwrap();
            within(prefix, a.parse().unwrap())
        };
        assert!(holds("10.0.0.0/8", "10.255.0.1"));
        assert!(!holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("0.0.0.0/0", "203.0.113.1"));
        assert!(!holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("::/0", "2001:db8::1"));
        assert!(holds("2001:db8::1", "2001:db8::1"));
        for bad in ["10.0.0.0/33", "10.0.0.0/", "x", "::/129"] {
            assert!(prefix("src", Some(bad)).is_err(), "{bad}");
        }
    }
}
