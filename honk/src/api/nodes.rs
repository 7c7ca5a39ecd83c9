//! Nodes.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
};
use honk_policy::{
    group::builtin,
    health::View,
    id::{MemberId, NodeId},
    node::Node as Configured,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Shared,
    doc::{Disabled, Health, Node, NodeOrigin, Page, PathHealth, Sample, whole_ms},
    error::ApiError,
    metrics_health,
    query::{self, Nothing, Paging, Params},
    samples::Samples,
};
use crate::{
    app::{
        admission::is_builtin, engine::Engine, health::Prober, snapshot::Snapshot,
        switch::SwitchError, verdicts::Unswitched,
    },
    clock,
};

/// Longest reason of a switch.
const REASON: usize = 200;

/// What a node can be.
const STATES: [&str; 4] = ["alive", "dead", "unknown", "disabled"];

/// Filters of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Name or id of a group: its direct members only.
    group: Option<String>,
    /// Tag or id of a subscription: its nodes only.
    sub: Option<String>,
    /// Nodes in this state only.
    state: Option<String>,
    /// Nodes switched off by `auto` or `user` only.
    by: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
    fields: Option<String>,
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Params(filter): Params<Filter>,
) -> Result<Json<Page<Value>>, ApiError> {
    let snapshot = shared.engine.snapshot();
    let mut nodes: Vec<(u64, &Configured)> = (0..).zip(all(&snapshot)).collect();
    if let Some(name) = &filter.group {
        let id = uuid::Uuid::try_parse(name).ok();
        let mut groups = snapshot.groups.groups();
        let group = groups
            .find(|g| *g.name == **name || Some(g.id.0) == id)
            .ok_or_else(|| ApiError::not_found("group", "no such group"))?;
        nodes.retain(|(_, n)| group.members.iter().any(|m| m.id() == MemberId::Node(n.id)));
    }
    if let Some(name) = &filter.sub {
        let mut views = shared.engine.subscriptions.views().into_iter();
        views
            .find(|s| s.tag == *name || s.id.to_string() == *name)
            .ok_or_else(|| ApiError::not_found("subscription", "no such subscription"))?;
        let of = |n: &Configured| {
            let origin = n.origin.as_ref();
            origin.is_some_and(|o| o.tag == *name || o.subscription.to_string() == *name)
        };
        nodes.retain(|(_, n)| of(n));
    }
    let facts = Facts::of(&shared.engine, &snapshot);
    if let Some(state) = &filter.state {
        if !STATES.contains(&state.as_str()) {
            let text = format!("`state` is one of {}", STATES.join(", "));
            return Err(ApiError::bad_query("state", text));
        }
        nodes.retain(|(_, n)| facts.state(n) == state);
    }
    if let Some(by) = &filter.by {
        if !["auto", "user"].contains(&by.as_str()) {
            return Err(ApiError::bad_query("by", "`by` is auto or user"));
        }
        nodes.retain(|(_, n)| {
            facts
                .engine
                .judge
                .why_off(n)
                .is_some_and(|off| off.by == by)
        });
    }
    let document = |(_, node): &(u64, &Configured)| facts.document(node);
    let paging = Paging {
        limit: filter.limit,
        cursor: filter.cursor,
        fields: filter.fields,
    };
    query::page(&nodes, &paging, |(n, _)| *n, document).map(Json)
}

pub(super) async fn one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Node>, ApiError> {
    let id = NodeId(query::id(&id, "node")?);
    let snapshot = shared.engine.snapshot();
    let node = all(&snapshot).find(|n| n.id == id);
    let node = node.ok_or_else(|| ApiError::not_found("node", "no such node"))?;
    Ok(Json(Facts::of(&shared.engine, &snapshot).document(node)))
}

/// Body of a switch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    enabled: bool,
    reason: Option<String>,
}

/// Switches a node on or off; 200 when everything follows.
pub(super) async fn switch(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    query: Params<Nothing>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Node>, ApiError> {
    let node = NodeId(query::id(&id, "node")?);
    let Switch { enabled, reason } = query::merge_patch(&headers, &body)?;
    let invalid = |field: &str, text: &str| {
        let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", text);
        error.details(json!({ "field": field }))
    };
    if is_builtin(node) {
        return Err(invalid("enabled", "`direct` and `block` are always there"));
    }
    let reason = reason.unwrap_or_default();
    if reason.chars().count() > REASON || reason.chars().any(char::is_control) {
        return Err(invalid(
            "reason",
            "`reason` is one line of at most 200 characters",
        ));
    }
    let off = (!enabled).then_some(reason);
    match shared.engine.switch_node(node, off).await {
        Ok(()) => one(State(shared), Path(id), query).await,
        Err(error) => {
            let text = error.to_string();
            let (status, code) = match error {
                SwitchError::NoNode => return Err(ApiError::not_found("node", text)),
                SwitchError::Unswitched(Unswitched::Full) => (StatusCode::CONFLICT, "full"),
                SwitchError::Unswitched(Unswitched::Broken(_)) => {
                    (StatusCode::CONFLICT, "node_rejected")
                }
                SwitchError::Kernel(_) => (StatusCode::SERVICE_UNAVAILABLE, "datapath_unhealthy"),
                SwitchError::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            };
            Err(ApiError::new(status, code, text))
        }
    }
}

/// Configured nodes in order, then the built-ins.
fn all(snapshot: &Snapshot) -> impl Iterator<Item = &Configured> {
    let builtins = [&**builtin::direct(), &**builtin::block()];
    snapshot.groups.nodes().iter().map(|n| &**n).chain(builtins)
}

/// What is told about nodes besides themselves, gathered once: subscriptions bring thousands.
struct Facts<'a> {
    /// Live flows.
    active: HashMap<NodeId, usize>,
    /// Nodes of that name.
    names: HashMap<&'a str, usize>,
    /// Groups that have it as a direct member.
    groups: HashMap<NodeId, Vec<String>>,
    health: Arc<View>,
    engine: &'a Engine,
    samples: Samples<'a>,
}

impl<'a> Facts<'a> {
    fn of(engine: &'a Engine, snapshot: &'a Snapshot) -> Self {
        let report = engine.prober().map(Prober::report);
        let mut facts = Self {
            active: HashMap::new(),
            names: HashMap::new(),
            groups: HashMap::new(),
            engine,
            health: report.map(|r| Arc::clone(&r.view)).unwrap_or_default(),
            samples: Samples::of(engine),
        };
        for flow in engine.registry.list() {
            *facts.active.entry(flow.way().leaf).or_default() += 1;
        }
        for node in all(snapshot) {
            *facts.names.entry(&node.name).or_default() += 1;
        }
        for group in snapshot.groups.groups() {
            let id = group.id.0.to_string();
            for member in group.members.iter() {
                if let MemberId::Node(node) = member.id() {
                    facts.groups.entry(node).or_default().push(id.clone());
                }
            }
        }
        facts
    }

    fn state(&self, node: &Configured) -> &'static str {
        match is_builtin(node.id) {
            true => "alive",
            false if self.engine.judge.why_off(node).is_some() => "disabled",
            false => metrics_health::state(&self.health, node.id),
        }
    }

    fn path(&self, node: NodeId, path: usize) -> PathHealth {
        let (_, family, domains) = metrics_health::PATHS[path];
        let known = metrics_health::on_path(&self.health, node, family, domains);
        PathHealth {
            state: match &known {
                None => "unknown",
                Some(known) if known.alive => "alive",
                Some(_) => "dead",
            }
            .to_owned(),
            avg_ms: whole_ms(known.and_then(|k| k.latency_ms)),
            fail_streak: known.map_or(0, |k| k.strikes),
        }
    }

    fn history(&self, node: NodeId) -> Vec<Sample> {
        let past = self.samples.of_node(node).into_iter();
        past.map(|sample| Sample {
            at: clock::text(sample.at_ms),
            delay_ms: sample.delay_ms,
            url: sample.url.to_string(),
            kind: sample.kind.to_owned(),
        })
        .collect()
    }

    /// Where a server is stays out: an address with a port is half a credential.
    fn document(&self, node: &Configured) -> Node {
        let namesakes = self.names.get(node.name.as_str());
        let builtin = is_builtin(node.id);
        let network = match node.protocol.udp() {
            true => "tcp+udp",
            false => "tcp",
        };
        let disabled = self.engine.judge.why_off(node).map(|off| Disabled {
            by: off.by.to_owned(),
            reason: off.reason,
            at: clock::text(off.at_ms),
            body_hash: off.body.map(|body| body.to_string()),
        });
        Node {
            id: node.id.0.to_string(),
            name: node.name.clone(),
            protocol: node.protocol.name().to_owned(),
            network: network.to_owned(),
            subscription: node.origin.as_ref().map(|origin| NodeOrigin {
                id: origin.subscription.to_string(),
                tag: origin.tag.clone(),
            }),
            groups: self.groups.get(&node.id).cloned().unwrap_or_default(),
            builtin,
            state: self.state(node).to_owned(),
            disabled,
            duplicate_name: namesakes.is_some_and(|n| *n > 1),
            active: self.active.get(&node.id).copied().unwrap_or(0),
            health: Health {
                tcp_v4: self.path(node.id, 0),
                tcp_v6: self.path(node.id, 1),
                udp_v4: self.path(node.id, 2),
                udp_v6: self.path(node.id, 3),
            },
            history: self.history(node.id),
        }
    }
}
