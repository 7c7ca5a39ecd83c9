//! Nodes.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
};
use honk_policy::{
    group::builtin,
    health::View,
    id::{MemberId, NodeId},
    node::Node as Configured,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Shared,
    doc::{Node, NodeOrigin, Page},
    error::ApiError,
    metrics_health,
    query::{self, Nothing, Paging, Params},
};
use crate::app::{admission::is_builtin, engine::Engine, health::Prober, snapshot::Snapshot};

/// Filters of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Name or id of a group: its direct members only.
    group: Option<String>,
    /// Tag or id of a subscription: its nodes only.
    sub: Option<String>,
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
    let active = active(&shared.engine);
    let view = view(&shared.engine);
    let document = |(_, node): &(u64, &Configured)| document(&snapshot, node, &active, &view);
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
    let view = view(&shared.engine);
    let active = active(&shared.engine);
    Ok(Json(document(&snapshot, node, &active, &view)))
}

/// Configured nodes in order, then the built-ins.
fn all(snapshot: &Snapshot) -> impl Iterator<Item = &Configured> {
    let builtins = [&**builtin::direct(), &**builtin::block()];
    snapshot.groups.nodes().iter().map(|n| &**n).chain(builtins)
}

/// Live flows by node.
fn active(engine: &Engine) -> HashMap<NodeId, usize> {
    let mut active = HashMap::new();
    for flow in engine.registry.list() {
        *active.entry(flow.leaf).or_default() += 1;
    }
    active
}

/// What is known of the health of nodes.
fn view(engine: &Engine) -> Arc<View> {
    let report = engine.prober().map(Prober::report);
    report.map(|r| Arc::clone(&r.view)).unwrap_or_default()
}

/// Where a server is stays out: an address with a port is half a credential.
fn document(
    snapshot: &Snapshot,
    node: &Configured,
    active: &HashMap<NodeId, usize>,
    view: &View,
) -> Node {
    let groups = snapshot.groups.groups().filter(|g| {
        let mut members = g.members.iter();
        members.any(|m| m.id() == MemberId::Node(node.id))
    });
    let namesakes = all(snapshot).filter(|n| n.name == node.name).count();
    let builtin = is_builtin(node.id);
    Node {
        id: node.id.0.to_string(),
        name: node.name.clone(),
        protocol: node.protocol.name().to_owned(),
        network: if node.protocol.udp() {
            "tcp+udp"
        } else {
            "tcp"
        }
        .to_owned(),
        subscription: node.origin.as_ref().map(|origin| NodeOrigin {
            id: origin.subscription.to_string(),
            tag: origin.tag.clone(),
        }),
        groups: groups.map(|g| g.id.0.to_string()).collect(),
        builtin,
        state: if builtin {
            "alive"
        } else {
            metrics_health::state(view, node.id)
        }
        .to_owned(),
        duplicate_name: namesakes > 1,
        active: active.get(&node.id).copied().unwrap_or(0),
    }
}
