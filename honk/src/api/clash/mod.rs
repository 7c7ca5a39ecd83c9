//! The part of the Clash API that dashboards need.
//!
//! Names instead of ids, and one selection for both networks: who needs more uses the native
//! routes. Paths of that API which are not served are 404. Errors are `{"message"}`.

mod configs;
pub(super) mod connections;
mod delay;
mod doc;
mod providers;
#[cfg(test)]
mod recorded;
mod rules;
mod streams;
#[cfg(test)]
mod tests;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{delete, get, patch, post, put},
};
use honk_policy::{
    group::{Group, Scope, builtin},
    node::Node,
};
use serde::Deserialize;
use serde_json::{Value, json};

use self::doc::{Documents, GLOBAL};
use super::{Shared, error::ApiError, ui};
use crate::{
    app::{
        select::{Change, SelectError},
        snapshot::Snapshot,
    },
    cli::version,
};

/// First parts of paths of the Clash API, whether served or not: their errors have its shape.
const ROOTS: [&str; 19] = [
    "",
    "cache",
    "configs",
    "connections",
    "debug",
    "dns",
    "group",
    "logs",
    "memory",
    "profile",
    "providers",
    "proxies",
    "restart",
    "rules",
    "script",
    "storage",
    "traffic",
    "upgrade",
    "version",
];

/// Whether a path belongs to the Clash API.
pub(super) fn owns(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    ROOTS.contains(&first.unwrap_or_default())
}

pub(super) fn routes() -> Router<Shared> {
    let provider = get(providers::one).put(providers::refresh);
    let connections = get(connections::list).delete(connections::close);
    let configs = get(configs::read)
        .patch(configs::change)
        .put(configs::reload);
    Router::new()
        .route("/", get(hello))
        .route("/version", get(version))
        .route("/configs", configs)
        .route("/configs/geo", post(configs::again))
        .route("/proxies", get(list))
        .route("/proxies/{name}", get(one).put(choose).delete(unpin))
        .route("/proxies/{name}/delay", get(delay::one))
        .route("/group", get(groups))
        .route("/group/{name}", get(group))
        .route("/group/{name}/delay", get(delay::members))
        .route("/rules", get(rules::list))
        .route("/rules/disable", patch(not_here))
        .route("/connections", connections)
        .route("/connections/{id}", delete(connections::close_one))
        .route("/traffic", get(streams::traffic))
        .route("/memory", get(streams::memory))
        .route("/logs", get(streams::logs))
        .route("/providers/proxies", get(providers::list))
        .route("/providers/proxies/{name}", provider)
        .route(
            "/providers/proxies/{name}/healthcheck",
            get(providers::check),
        )
        .route("/providers/proxies/{name}/{node}", get(providers::node))
        .route(
            "/providers/proxies/{name}/{node}/healthcheck",
            get(providers::node_check),
        )
        .route("/providers/rules", get(providers::of_rules))
        .route("/providers/rules/{name}", put(providers::no_rules))
        .route(
            "/cache/fakeip/flush",
            post(|| async { StatusCode::NO_CONTENT }),
        )
        .route("/upgrade", post(not_here).get(absent))
        .route("/upgrade/geo", post(configs::again))
        .route("/restart", post(not_here).get(absent))
}

async fn hello(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let page = ui::wants_page(&shared, &headers);
    page.unwrap_or_else(|| Json(json!({ "hello": "honk" })).into_response())
}

/// What is asked for belongs to others.
async fn not_here() -> ApiError {
    let text = "managed by the package manager, the service manager or the configuration";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", text)
}

/// What is switched off is not there, for those who try first.
async fn absent() -> ApiError {
    ApiError::not_found("path", "no such path")
}

/// Dashboards find out by the name what this is.
async fn version() -> Json<Value> {
    let version = format!("honk {}", version::VERSION);
    Json(json!({ "version": version, "premium": true, "meta": true }))
}

async fn list(State(shared): State<Shared>) -> Json<Value> {
    Json(json!({ "proxies": Documents::of(&shared).all() }))
}

async fn one(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let documents = Documents::of(&shared);
    documents.one(&name).map(Json).ok_or_else(unknown)
}

async fn groups(State(shared): State<Shared>) -> Json<Value> {
    Json(json!({ "proxies": Documents::of(&shared).groups() }))
}

async fn group(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let documents = Documents::of(&shared);
    documents.group(&name).map(Json).ok_or_else(unknown)
}

/// What a name means: a group before a node, the first node before its namesakes.
enum Named<'a> {
    Group(&'a Group),
    Node(&'a Node),
}

/// The meaning of a name. Groups that rules made for a node are that node.
fn named<'a>(snapshot: &'a Snapshot, name: &str) -> Option<Named<'a>> {
    let group = snapshot.groups.group_named(name);
    if let Some(group) = group.filter(|g| !g.def.implicit) {
        return Some(Named::Group(group));
    }
    let node = snapshot.groups.nodes().iter().find(|n| n.name == name);
    let node = node
        .map(|n| &**n)
        .or_else(|| builtin::named(name).map(|n| &**n));
    node.map(Named::Node)
}

/// Body of a choice. Dashboards send no type with it.
#[derive(Debug, Deserialize)]
struct Chosen {
    name: String,
}

async fn choose(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let snapshot = shared.engine.snapshot();
    if name == GLOBAL {
        let text = "only the mode Rule is served, in which GLOBAL decides nothing";
        return Err(bad(text));
    }
    let group = match named(&snapshot, &name).ok_or_else(unknown)? {
        Named::Group(group) if !group.is_automatic() => group,
        Named::Group(_) | Named::Node(_) => return Err(bad("must be a Selector group")),
    };
    let Ok(Chosen { name }) = serde_json::from_slice(&body) else {
        return Err(bad("the body is not {\"name\": MEMBER}"));
    };
    let member = group.member_named(&name);
    let member = member
        .ok_or_else(|| bad("no such member of the group"))?
        .id();
    change(&shared, group, Some(member)).await
}

async fn unpin(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let snapshot = shared.engine.snapshot();
    match named(&snapshot, &name).ok_or_else(unknown)? {
        Named::Group(group) if group.is_automatic() => change(&shared, group, None).await,
        Named::Group(_) | Named::Node(_) => Err(bad("must be a group that chooses by itself")),
    }
}

/// Both networks; 204 after the flows that have to go are closed.
async fn change(
    shared: &Shared,
    group: &Group,
    member: Option<honk_policy::id::MemberId>,
) -> Result<StatusCode, ApiError> {
    let change = Change {
        group: group.id,
        scope: Scope::Both,
        member,
        interrupt: None,
    };
    match shared.engine.select(change).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(SelectError::Choose(error)) => Err(bad(error.to_string())),
        Err(SelectError::Kernel(error)) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Err(ApiError::new(
                status,
                "datapath_unhealthy",
                error.to_string(),
            ))
        }
    }
}

fn unknown() -> ApiError {
    ApiError::not_found("proxy", "no such proxy or group")
}

fn bad(text: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "bad_request", text)
}
