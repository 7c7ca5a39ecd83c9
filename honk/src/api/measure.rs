//! Measurements: one node, the members of a group, group tests.

use std::time::Duration;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use honk_policy::{
    config::CheckUrl,
    health::{
        TestStart,
        measure::{Map, Measured, RunId},
    },
    id::{Family, GroupId, MemberId, NodeId},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Shared,
    error::ApiError,
    query::{self, Nothing, Params},
};
use crate::{
    app::pings::{Busy, Failure, PingError, Request, Run, What, Wish},
    clock,
};

/// Bounds of `timeout_ms`.
pub(super) const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=30_000;
/// Bounds of `concurrency`.
const CONCURRENCY: std::ops::RangeInclusive<usize> = 1..=64;

/// Tests a group that chooses by itself, which then chooses anew.
pub(super) async fn test_group(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Response, ApiError> {
    let id = GroupId(query::id(&id, "group")?);
    let state = match shared.engine.test_group(id).await.map_err(refused)? {
        Some(TestStart::Started) => "started",
        Some(TestStart::Absorbed) => "absorbed",
        Some(TestStart::Nothing) => {
            let text = "the group has no member that can be probed";
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                "group_test_failed",
                text,
            ));
        }
        None => {
            let text = "a selector keeps its member whatever a test finds; measure it instead";
            return Err(ApiError::new(StatusCode::CONFLICT, "not_automatic", text));
        }
    };
    Ok((StatusCode::ACCEPTED, Json(json!({ "test": state }))).into_response())
}

/// Body of a measurement of one node.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Ping {
    group_id: Option<String>,
    url: Option<String>,
    timeout_ms: Option<u64>,
    family: Option<String>,
}

pub(super) async fn ping(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let node = NodeId(query::id(&id, "node")?);
    let asked: Ping = query::json_or_default(&headers, &body)?;
    let group = asked.group_id.as_deref();
    let group = group.map(|id| query::id(id, "group").map(GroupId));
    let wish = Settings {
        url: asked.url,
        timeout_ms: asked.timeout_ms,
        family: asked.family,
        ..Settings::default()
    };
    let wish = wish.wish()?;
    let measured = shared
        .engine
        .ping_node(node, group.transpose()?, wish)
        .await;
    let (request, result) = measured.map_err(refused)?;
    Ok(Json(delay(node, &request, &result)))
}

fn delay(node: NodeId, request: &Request, result: &Result<Duration, Failure>) -> Value {
    let ms = result.as_ref().ok().map(Duration::as_millis);
    json!({
        "node_id": node.0.to_string(),
        "ok": result.is_ok(),
        "delay_ms": ms.and_then(|ms| u16::try_from(ms).ok()),
        "url": &*request.url.text,
        "timeout_ms": millis(request.timeout),
        "error": result.as_ref().err().map(|failure| json!({
            "stage": failure.stage.name(),
            "reason": &failure.reason,
        })),
    })
}

/// Body of a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    kind: String,
    scope: Scope,
    url: Option<String>,
    timeout_ms: Option<u64>,
    family: Option<String>,
    concurrency: Option<usize>,
    order: Option<Vec<String>>,
}

/// What a run measures: one of these.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Scope {
    group_id: Option<String>,
    node_ids: Option<Vec<String>>,
    all: Option<bool>,
}

impl Scope {
    fn read(&self) -> Result<What, ApiError> {
        match (&self.group_id, &self.node_ids, self.all) {
            (Some(id), None, None) => Ok(What::Group(GroupId(query::id(id, "group")?))),
            (None, Some(ids), None) => {
                let ids = ids.iter().map(|id| query::id(id, "node").map(NodeId));
                Ok(What::Nodes(ids.collect::<Result<_, _>>()?))
            }
            (None, None, Some(true)) => Ok(What::All),
            _ => {
                let text = "`scope` has one of `group_id`, `node_ids` and `all: true`";
                let error = ApiError::new(StatusCode::BAD_REQUEST, "bad_request", text);
                Err(error.details(json!({ "field": "scope" })))
            }
        }
    }
}

/// How a run is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HowToBegin {
    /// `1`: call off the run of this scope, if one goes on.
    toggle: Option<String>,
}

pub(super) async fn begin(
    State(shared): State<Shared>,
    Params(how): Params<HowToBegin>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let asked: Begin = query::json(&headers, &body)?;
    if asked.kind != "delay" {
        let text = "only `delay` is served";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(
            ApiError::new(status, "unsupported_field", text).details(json!({ "field": "kind" }))
        );
    }
    let toggle = match how.toggle.as_deref() {
        None | Some("0") => false,
        Some("1") => true,
        Some(_) => return Err(ApiError::bad_query("toggle", "`toggle` is 0 or 1")),
    };
    let what = asked.scope.read()?;
    let wish = Settings {
        url: asked.url,
        timeout_ms: asked.timeout_ms,
        family: asked.family,
        concurrency: asked.concurrency,
        order: asked.order,
    };
    let wish = wish.wish()?;
    started(&shared, &what, wish, toggle).await
}

/// Body of a measurement of a group's members; all of it may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    url: Option<String>,
    timeout_ms: Option<u64>,
    /// `v4`, `v6` or `any`.
    family: Option<String>,
    concurrency: Option<usize>,
    /// Ids of members, in the order in which they come first.
    order: Option<Vec<String>>,
}

/// The same as a run over the group.
pub(super) async fn members(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let what = What::Group(GroupId(query::id(&id, "group")?));
    let asked: Settings = query::json_or_default(&headers, &body)?;
    started(&shared, &what, asked.wish()?, false).await
}

async fn started(
    shared: &Shared,
    what: &What,
    wish: Wish,
    toggle: bool,
) -> Result<Response, ApiError> {
    let runs = shared.engine.pings().map(|p| &p.runs);
    match (shared.engine.ping(what, wish), runs) {
        (Ok(id), Some(runs)) => {
            let run = runs.run(id).ok_or_else(no_run)?;
            Ok((StatusCode::ACCEPTED, Json(document(&run))).into_response())
        }
        (Err(PingError::Busy(Busy::Same(id))), Some(runs)) if toggle => {
            runs.cancel(id).await;
            let body = json!({ "cancelled": true, "id": text(id) });
            Ok(Json(body).into_response())
        }
        (Err(error), _) => Err(refused(error)),
        (Ok(_), None) => Err(refused(PingError::NotRunning)),
    }
}

pub(super) async fn list(
    State(shared): State<Shared>,
    _: Params<Nothing>,
) -> Result<Json<Value>, ApiError> {
    let runs = shared.engine.pings().map(|p| p.runs.list());
    let runs = runs.unwrap_or_default();
    let items: Vec<Value> = runs.iter().map(document).collect();
    Ok(Json(json!({ "items": items, "total": items.len() })))
}

pub(super) async fn one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Value>, ApiError> {
    let id = run_id(&id)?;
    let run = shared.engine.pings().and_then(|p| p.runs.run(id));
    run.map(|run| Json(document(&run))).ok_or_else(no_run)
}

/// 204 after the last connection is closed.
pub(super) async fn cancel(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<StatusCode, ApiError> {
    let id = run_id(&id)?;
    let pings = shared.engine.pings().ok_or_else(no_run)?;
    let found = pings.runs.cancel(id).await;
    found.map(|_| StatusCode::NO_CONTENT).ok_or_else(no_run)
}

/// What the members of a group last measured, here or elsewhere.
pub(super) async fn measurements(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Value>, ApiError> {
    let id = GroupId(query::id(&id, "group")?);
    let snapshot = shared.engine.snapshot();
    let group = snapshot.groups.group(id);
    let group = group.ok_or_else(|| refused(PingError::NoGroup))?;
    let map = Map::Group(id);
    let members: Vec<MemberId> = group.members.iter().map(|m| m.id()).collect();
    let Some(pings) = shared.engine.pings() else {
        return Err(refused(PingError::NotRunning));
    };
    let items = pings.runs.maps(|maps| {
        let item = |member: &MemberId| {
            let shown = maps.shown(map, *member);
            let from = shown.as_ref().and_then(|s| s.foreign);
            json!({
                "member_id": member.uuid().to_string(),
                "pending": maps.is_pending(map, *member),
                "sample": shown.as_ref().map(|s| sample(s.sample)),
                "foreign": from.is_some(),
                "from_group": match from {
                    Some(Map::Group(id)) => Some(id.0.to_string()),
                    Some(Map::Scratch) | None => None,
                },
            })
        };
        members.iter().map(item).collect::<Vec<Value>>()
    });
    Ok(Json(
        json!({ "group_id": id.0.to_string(), "items": items }),
    ))
}

fn sample(measured: &Measured) -> Value {
    json!({
        "delay_ms": measured.result.as_ref().ok(),
        "error": measured.result.as_ref().err().map(|e| e.to_string()),
        "at": clock::text(measured.at_ms),
        "url": &*measured.url,
        "timeout_ms": measured.timeout_ms,
    })
}

fn document(run: &Run) -> Value {
    let failed = run.results.iter().filter(|(_, r)| r.is_err()).count();
    let result = |(member, result): &(MemberId, Result<u16, std::sync::Arc<str>>)| {
        json!({
            "node_id": member.uuid().to_string(),
            "ok": result.is_ok(),
            "delay_ms": result.as_ref().ok(),
            "error": result.as_ref().err().map(|e| e.to_string()),
        })
    };
    json!({
        "id": text(run.id),
        "kind": "delay",
        "state": run.state.name(),
        "group_id": match run.map {
            Map::Group(id) => Some(id.0.to_string()),
            Map::Scratch => None,
        },
        "started_at": clock::text(run.started_ms),
        "finished_at": run.finished_ms.map(clock::text),
        "total": run.total,
        "done": run.results.len(),
        "ok": run.results.len() - failed,
        "failed": failed,
        "results": run.results.iter().map(result).collect::<Vec<Value>>(),
        "url": &*run.request.url.text,
        "timeout_ms": millis(run.request.timeout),
    })
}

impl Settings {
    fn wish(&self) -> Result<Wish, ApiError> {
        let bad = |field: &'static str, text: &str| {
            let error = ApiError::new(StatusCode::BAD_REQUEST, "bad_request", text);
            error.details(json!({ "field": field }))
        };
        let url = match self.url.as_deref().map(CheckUrl::parse) {
            None => None,
            Some(Ok(url)) => Some(url),
            Some(Err(error)) => return Err(bad("url", &error.to_string())),
        };
        if self.timeout_ms.is_some_and(|ms| !TIMEOUT_MS.contains(&ms)) {
            return Err(bad("timeout_ms", "`timeout_ms` is 100 to 30000"));
        }
        if self.concurrency.is_some_and(|n| !CONCURRENCY.contains(&n)) {
            return Err(bad("concurrency", "`concurrency` is 1 to 64"));
        }
        let family = match self.family.as_deref() {
            None | Some("any") => None,
            Some("v4") => Some(Family::V4),
            Some("v6") => Some(Family::V6),
            Some(_) => return Err(bad("family", "`family` is v4, v6 or any")),
        };
        let order = self.order.iter().flatten();
        let order = order.map(|id| query::id(id, "member"));
        Ok(Wish {
            url,
            timeout: self.timeout_ms.map(Duration::from_millis),
            family,
            order: order.collect::<Result<_, _>>()?,
            concurrency: self.concurrency,
            ..Wish::default()
        })
    }
}

pub(super) fn refused(error: PingError) -> ApiError {
    let text = error.to_string();
    match error {
        PingError::NotRunning => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "starting", text),
        PingError::NoGroup => ApiError::not_found("group", text),
        PingError::NoNode => ApiError::not_found("node", text),
        PingError::NotMeasured => {
            let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "not_a_member", text);
            error.details(json!({ "field": "order" }))
        }
        PingError::NoExit => ApiError::new(StatusCode::CONFLICT, "no_exit", text),
        PingError::Busy(Busy::Same(id) | Busy::Full(id)) => {
            let error = ApiError::new(StatusCode::CONFLICT, "already_running", text);
            error.details(json!({ "id": self::text(id) }))
        }
    }
}

fn text(id: RunId) -> String {
    id.0.to_string()
}

fn run_id(text: &str) -> Result<RunId, ApiError> {
    text.parse().map(RunId).map_err(|_| no_run())
}

fn no_run() -> ApiError {
    ApiError::not_found("test", "no such test; ended ones are kept for a while")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
