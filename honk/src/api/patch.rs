//! `PATCH` of a group: keys of its source, fenced by a revision.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use honk_grammar::edit::Change;
use honk_policy::{config::Policy, id::GroupId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Shared,
    error::ApiError,
    etag, groups,
    query::{self, Params},
};
use crate::app::{
    edit::{EditFailure, Edited},
    reload::{After, Trigger},
};

/// Wait for the activation when nothing is said.
const WAIT_MS: u64 = 5000;
/// Longest wait.
const MAX_WAIT_MS: u64 = 60_000;

/// Policies that can be set.
const POLICIES: [Policy; 5] = [
    Policy::Selector,
    Policy::UrlTest,
    Policy::LoadBalance,
    Policy::Fallback,
    Policy::Score,
];

/// How to go about it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct How {
    wait_ms: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

/// Spellings of one key.
type Names = &'static [&'static str];

/// One key of the source: its spellings, and the new value, or none to remove it.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    names: Names,
    value: Option<Written>,
}

/// A value as it is to be written.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    Text(String),
    Word(String),
}

pub(super) async fn patch(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Params(how): Params<How>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let wait = how.wait_ms.unwrap_or(WAIT_MS);
    if wait > MAX_WAIT_MS {
        return Err(ApiError::bad_query("wait_ms", "wait_ms is at most 60000"));
    }
    let id = GroupId(query::id(&id, "group")?);
    let wanted = read(&headers, &body)?;
    let engine = Arc::clone(&shared.engine);
    let snapshot = engine.snapshot();
    let view = snapshot.groups.view(id).ok_or_else(groups::unknown)?;
    if !headers.contains_key(header::IF_MATCH) {
        let text =
            "say with If-Match which revision of the group, or of the configuration, you build on";
        let status = StatusCode::PRECONDITION_REQUIRED;
        return Err(ApiError::new(status, "precondition_required", text));
    }
    etag::check(&headers, &[&groups::revision(&view), &snapshot.revision])?;
    fits(&wanted, view.policy)?;
    let Ok(edits) = Arc::clone(&shared.edits).try_lock_owned() else {
        return Err(busy());
    };
    if engine.reloading() {
        return Err(busy());
    }
    let (name, dry_run) = (view.name.clone(), how.dry_run);
    let job = move || {
        let edited = engine.edit_group(&name, &changes(&wanted))?;
        if !dry_run && edited.is_change() {
            edited.write()?;
        }
        Ok(edited)
    };
    let edited = tokio::task::spawn_blocking(job).await;
    let edited = edited
        .map_err(|e| internal(e.to_string()))?
        .map_err(refused)?;
    let (status, activation) = match (how.dry_run, edited.is_change()) {
        (true, _) => (
            "dry_run",
            json!({ "status": "pending", "generation": null, "diagnostics": [] }),
        ),
        (false, false) => {
            let generation = snapshot.generation;
            let none = json!({ "status": "applied", "generation": generation, "diagnostics": [] });
            ("unchanged", none)
        }
        (false, true) => (
            "written",
            activate(&shared, Duration::from_millis(wait)).await?,
        ),
    };
    drop(edits);
    let code = match activation["status"].as_str() {
        Some("applied") => StatusCode::OK,
        _ if how.dry_run => StatusCode::OK,
        _ => StatusCode::ACCEPTED,
    };
    let document = result(&shared, id, &edited, status, &activation);
    Ok((code, Json(document)).into_response())
}

fn result(
    shared: &Shared,
    id: GroupId,
    edited: &Edited,
    status: &str,
    activation: &Value,
) -> Value {
    let snapshot = shared.engine.snapshot();
    let view = snapshot.groups.view(id);
    let group = view.map(|view| groups::shown(shared, &snapshot, &view).1);
    json!({
        "write": {
            "status": status,
            "path": edited.path.display().to_string(),
            "diff": edited.diff(),
        },
        "activation": activation,
        "group": group,
    })
}

/// What was written becomes active, or stays on disk as it is.
async fn activate(shared: &Shared, wait: Duration) -> Result<Value, ApiError> {
    let running = shared
        .engine
        .begin_reload(Trigger::Patch, false, After::Nothing);
    let state = match tokio::time::timeout(wait, running).await {
        Err(_) => {
            return Ok(json!({ "status": "pending", "generation": null, "diagnostics": [] }));
        }
        Ok(Ok(Ok(state))) => state,
        Ok(Ok(Err(_))) => return Err(busy()),
        Ok(Err(_)) => return Err(internal("the reload stopped unexpectedly".to_owned())),
    };
    let applied = state.state == "done";
    Ok(json!({
        "status": if applied { "applied" } else { "rejected" },
        "generation": applied.then_some(state.generation),
        "diagnostics": state.diagnostics,
    }))
}

/// The changes of a body, in the order of the table.
fn read(headers: &HeaderMap, body: &[u8]) -> Result<Vec<Key>, ApiError> {
    let fields: Map<String, Value> = query::merge_patch(headers, body)?;
    fields
        .iter()
        .map(|(name, value)| key(name, value))
        .collect()
}

fn key(field: &str, value: &Value) -> Result<Key, ApiError> {
    let (names, read): (Names, fn(&Value) -> Option<Written>) = match field {
        "policy" => (&["policy"], policy),
        "default" => (&["default"], text),
        "final" => (&["final"], text),
        "check_url" => (&["check_url", "tcp_check_url"], text),
        "tolerance_ms" => (&["tolerance", "check_tolerance"], |v| {
            number(v, "ms", 65_535)
        }),
        "idle_timeout_s" => (&["idle_timeout"], |v| number(v, "s", u64::from(u32::MAX))),
        "interrupt_connections" => (&["interrupt_connections"], |v| {
            v.as_bool().map(|on| Written::Word(on.to_string()))
        }),
        _ => {
            let text = "this field cannot be changed here";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let error = ApiError::new(status, "unsupported_field", text);
            return Err(error.details(json!({ "field": field })));
        }
    };
    if value.is_null() {
        return Ok(Key { names, value: None });
    }
    let Some(written) = read(value) else {
        let error = ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad_request",
            "the value does not fit the field",
        );
        return Err(error.details(json!({ "field": field })));
    };
    let value = Some(written);
    Ok(Key { names, value })
}

fn policy(value: &Value) -> Option<Written> {
    let name = value.as_str()?;
    let known = POLICIES.iter().any(|policy| policy.name() == name);
    known.then(|| Written::Word(name.to_owned()))
}

fn text(value: &Value) -> Option<Written> {
    Some(Written::Text(value.as_str()?.to_owned()))
}

fn number(value: &Value, unit: &str, most: u64) -> Option<Written> {
    let number = value.as_u64().filter(|n| *n <= most)?;
    Some(Written::Word(format!("{number}{unit}")))
}

/// A tolerance means something to urltest groups only.
fn fits(wanted: &[Key], policy: Policy) -> Result<(), ApiError> {
    let of = |name: &str| wanted.iter().find(|key| key.names.contains(&name));
    let sets = of("tolerance").is_some_and(|key| key.value.is_some());
    let urltest = match of("policy").map(|key| &key.value) {
        Some(Some(Written::Word(name))) => name == Policy::UrlTest.name(),
        Some(_) => false,
        None => policy == Policy::UrlTest,
    };
    if !sets || urltest {
        return Ok(());
    }
    let text = "only urltest groups have a tolerance";
    let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", text);
    Err(error.details(json!({ "field": "tolerance_ms" })))
}

/// The first spelling is set; the others go, or they would still count.
fn changes(wanted: &[Key]) -> Vec<(&'static str, Change<'_>)> {
    let mut changes = Vec::new();
    for key in wanted {
        for (at, name) in key.names.iter().enumerate() {
            let change = match &key.value {
                Some(Written::Text(text)) if at == 0 => Change::Text(text),
                Some(Written::Word(word)) if at == 0 => Change::Word(word),
                _ => Change::Remove,
            };
            changes.push((*name, change));
        }
    }
    changes
}

fn refused(failure: EditFailure) -> ApiError {
    let text = failure.to_string();
    match failure {
        EditFailure::SourceChanged => ApiError::new(StatusCode::CONFLICT, "source_changed", text),
        EditFailure::NoSource(_) | EditFailure::Readonly { .. } => {
            ApiError::new(StatusCode::CONFLICT, "source_readonly", text)
        }
        EditFailure::Edit(_) => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", text),
        EditFailure::Invalid(diagnostics) => {
            let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", text);
            error.details(json!({ "diagnostics": diagnostics }))
        }
    }
}

fn busy() -> ApiError {
    let text = "a reload or another change is under way";
    ApiError::new(StatusCode::CONFLICT, "reload_in_progress", text)
}

fn internal(text: String) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
}

#[cfg(test)]
mod tests;
