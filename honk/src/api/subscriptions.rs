//! Subscriptions: seen, and asked to refresh.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Shared,
    doc::{Diag, Entries, FetchProgress, NodeChanges, Page, Reason, Subscription, UserInfo},
    error::ApiError,
    layer::MAX_WAIT,
    query::{self, Nothing, Paging, Params},
};
use crate::{
    app::{diag, engine::Engine, subscriptions::View},
    clock,
};

pub(super) async fn list(
    State(shared): State<Shared>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<Value>>, ApiError> {
    let views = shared.engine.subscriptions.views();
    let views: Vec<(u64, View)> = (0..).zip(views).collect();
    query::page(&views, &paging, |(n, _)| *n, |(_, view)| document(view)).map(Json)
}

pub(super) async fn one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Subscription>, ApiError> {
    found(&shared.engine, &id).map(|view| Json(document(&view)))
}

fn found(engine: &Engine, id: &str) -> Result<View, ApiError> {
    let id = query::id(id, "subscription")?;
    let mut views = engine.subscriptions.views().into_iter();
    views
        .find(|view| view.id == id)
        .ok_or_else(|| ApiError::not_found("subscription", "no such subscription"))
}

/// How long to wait for the end.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    wait_ms: Option<u64>,
}

/// 200 when the fetch has ended, whatever became of it; 202 while it goes on.
pub(super) async fn refresh(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Params(wait): Params<Wait>,
) -> Result<Response, ApiError> {
    let limit = Duration::from_millis(wait.wait_ms.unwrap_or(0));
    if limit > MAX_WAIT {
        return Err(ApiError::bad_query("wait_ms", "wait_ms is at most 120000"));
    }
    let view = found(&shared.engine, &id)?;
    let (view, ended) = fetch(&shared.engine, &view, limit).await?;
    let code = match ended {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    Ok((code, Json(document(&view))).into_response())
}

/// Has a subscription fetched and waits for the end: what it is like then, and whether the fetch
/// has ended.
pub(super) async fn fetch(
    engine: &Engine,
    view: &View,
    limit: Duration,
) -> Result<(View, bool), ApiError> {
    let hub = &engine.subscriptions;
    let mut changes = hub.watch();
    let Some(after) = hub.request(view.id) else {
        let text = "the subscription is switched off; set `enabled: true` and reload";
        return Err(ApiError::new(StatusCode::CONFLICT, "disabled", text));
    };
    let current = || hub.views().into_iter().find(|v| v.id == view.id);
    let ended = |_: &u64| current().is_none_or(|v| v.attempts >= after);
    // Running out of time is an answer: the state as it is.
    let _ = tokio::time::timeout(limit, changes.wait_for(ended)).await;
    let view = current()
        .ok_or_else(|| ApiError::not_found("subscription", "a reload removed the subscription"))?;
    let ended = view.attempts >= after;
    Ok((view, ended))
}

fn document(view: &View) -> Subscription {
    let entries = view.entries;
    Subscription {
        id: view.id.to_string(),
        tag: view.tag.clone(),
        url: view.url.clone(),
        source: view.source.to_owned(),
        enabled: view.enabled,
        allow_private: view.allow_private,
        state: view.state.to_owned(),
        update_interval_s: view.interval_s,
        nodes: view.nodes,
        shadowed_nodes: view.shadowed,
        format: view.format.map(str::to_owned),
        nodes_from: view.via.map(str::to_owned),
        entries: Entries {
            total: entries.entries,
            malformed: entries.malformed,
            unsupported: entries.unsupported,
            duplicate: entries.duplicate,
            detour: entries.detour,
            cut: entries.cut,
        },
        unbuilt: view
            .unbuilt
            .iter()
            .map(|(what, n)| ((*what).to_owned(), *n))
            .collect(),
        title: view.title.clone(),
        user_info: view.user.map(|user| UserInfo {
            upload_bytes: user.upload,
            download_bytes: user.download,
            total_bytes: user.total,
            expire: user.expire,
        }),
        error: view.problem.as_ref().map(|problem| Reason {
            code: problem.code.to_owned(),
            message: problem.message.clone(),
        }),
        failures: view.failures,
        attempts: view.attempts,
        last_attempt_at: view.attempted_ms.map(clock::text),
        last_success_at: view.succeeded_ms.map(clock::text),
        next_at: view.next_ms.map(clock::text),
        progress: view.progress.map(|(phase, bytes)| FetchProgress {
            phase: phase.to_owned(),
            bytes,
        }),
        last_change: view.changes.as_ref().map(|(at, changes)| NodeChanges {
            at: clock::text(*at),
            added: changes.added.clone(),
            removed: changes.removed.clone(),
            changed: changes.changed.clone(),
            kept: changes.kept,
        }),
        findings: view.findings.iter().map(diag::placeless).collect(),
    }
}

/// What readers of the status should know.
pub(super) fn warnings(engine: &Engine) -> Vec<Diag> {
    let views = engine.subscriptions.views();
    let told = views.iter().flat_map(|view| {
        let problem = view.problem.as_ref().map(|p| failed(view, &p.message));
        problem
            .into_iter()
            .chain(view.findings.iter().map(diag::placeless))
    });
    told.collect()
}

fn failed(view: &View, message: &str) -> Diag {
    Diag {
        code: "subscription-failed".to_owned(),
        severity: "warning".to_owned(),
        message: format!("{}: {message}", view.url),
        file: None,
        line: None,
        column: None,
        end_line: None,
        end_column: None,
        section: Some("subscription".to_owned()),
        subject: Some(view.tag.clone()),
        help: None,
        related: Vec::new(),
    }
}
