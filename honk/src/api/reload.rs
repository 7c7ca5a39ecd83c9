//! Reloads: asked for, awaited, reported.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use tokio::sync::watch;

use super::{
    Shared,
    doc::ReloadState,
    error::ApiError,
    etag,
    layer::MAX_WAIT,
    query::{self, Nothing, Params},
};
use crate::{
    app::{
        engine::Engine,
        kernel::KernelError,
        reload::{After, Trigger},
    },
    flow::CloseReason,
};

/// How long to wait for the end.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    wait_ms: Option<u64>,
    /// `GET`: wait for the end of a reload that began after this sequence number.
    after: Option<u64>,
}

impl Wait {
    fn limit(&self) -> Result<Duration, ApiError> {
        let wait = Duration::from_millis(self.wait_ms.unwrap_or(0));
        if wait > MAX_WAIT {
            return Err(ApiError::bad_query("wait_ms", "wait_ms is at most 120000"));
        }
        Ok(wait)
    }
}

pub(super) async fn state(
    State(shared): State<Shared>,
    Params(wait): Params<Wait>,
) -> Result<Json<ReloadState>, ApiError> {
    let limit = wait.limit()?;
    let mut states = shared.engine.reloads.watch();
    let after = wait.after.unwrap_or(0);
    let state = settled(&mut states, after, limit).await;
    Ok(Json(shared.engine.reloads.aged(state)))
}

/// The first settled state with a larger sequence number, or the present one when time is up.
async fn settled(
    states: &mut watch::Receiver<ReloadState>,
    after: u64,
    limit: Duration,
) -> ReloadState {
    let settled = |s: &ReloadState| s.state != "running" && s.sequence > after;
    let ended = async { states.wait_for(settled).await.is_ok() };
    // Running out of time is an answer: the state as it is.
    let _ = tokio::time::timeout(limit, ended).await;
    states.borrow().clone()
}

/// Body of a request for a reload.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    abort: bool,
    /// Fetch subscriptions as well, once the configuration is active.
    subscriptions: bool,
    if_revision: Option<String>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            abort: false,
            subscriptions: true,
            if_revision: None,
        }
    }
}

pub(super) async fn begin(
    State(shared): State<Shared>,
    Params(wait): Params<Wait>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let limit = wait.limit()?;
    let wanted: Wanted = query::json_or_default(&headers, &body)?;
    let engine = &shared.engine;
    let current = engine.snapshot();
    etag::check(&headers, &[&current.revision])?;
    if let Some(revision) = &wanted.if_revision
        && **revision != *current.revision
    {
        return Err(etag::mismatch(&current.revision));
    }
    let after = match wanted.subscriptions {
        true => After::Refresh,
        false => After::Nothing,
    };
    let ended = awaited(engine, wanted.abort, after);
    match tokio::time::timeout(limit, ended).await {
        Ok(state) => Ok(Json(state?).into_response()),
        Err(_) => {
            let state = shared.engine.reloads.state();
            Ok((StatusCode::ACCEPTED, Json(state)).into_response())
        }
    }
}

/// Begins a reload, unless one runs, and waits for its end. It goes on when nobody waits.
pub(super) async fn awaited(
    engine: &Arc<Engine>,
    abort: bool,
    after: After,
) -> Result<ReloadState, ApiError> {
    if engine.reloading() {
        return Err(busy());
    }
    let running = engine.begin_reload(Trigger::Api, abort, after).await;
    let outcome = running.map_err(|_| broken())?;
    outcome.map_err(|_| busy())
}

fn broken() -> ApiError {
    let text = "the reload stopped unexpectedly; see the log";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
}

fn busy() -> ApiError {
    let text = "a reload is running; wait for it with GET /api/v1/reload?wait_ms=";
    ApiError::new(StatusCode::CONFLICT, "reload_in_progress", text)
}

/// Query of a suspension.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HowToSuspend {
    /// Close the flows that are carried.
    #[serde(default)]
    abort: bool,
}

pub(super) async fn suspend(
    State(shared): State<Shared>,
    Params(how): Params<HowToSuspend>,
) -> Result<Json<serde_json::Value>, ApiError> {
    let engine = &shared.engine;
    engine.suspend().map_err(|e| unhealthy(&e))?;
    if how.abort {
        engine
            .registry
            .cancel(&engine.registry.list(), CloseReason::Api);
    }
    Ok(Json(serde_json::json!({ "state": "suspended" })))
}

pub(super) async fn resume(
    State(shared): State<Shared>,
    _: Params<Nothing>,
) -> Result<Json<serde_json::Value>, ApiError> {
    shared.engine.open().map_err(|e| unhealthy(&e))?;
    Ok(Json(serde_json::json!({ "state": "running" })))
}

fn unhealthy(e: &KernelError) -> ApiError {
    let code = "datapath_unhealthy";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, e.to_string())
}
