//! The configuration: what is active, and whether another one would be.

use std::path::PathBuf;

use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
};
use serde::Deserialize;

use super::{
    Shared,
    doc::{ConfigInfo, Validation},
    error::ApiError,
    etag::Tagged,
    query::{self, Nothing, Params},
};
use crate::{
    app::source::{self, Purpose, Spec},
    clock,
};

pub(super) async fn info(State(shared): State<Shared>, _: Params<Nothing>) -> Tagged<ConfigInfo> {
    let snapshot = shared.engine.snapshot();
    let info = ConfigInfo {
        config_revision: snapshot.revision.to_string(),
        generation: snapshot.generation,
        accepted_at: clock::text(snapshot.accepted_ms),
        entry: shared.engine.spec.entry.display().to_string(),
    };
    Tagged(snapshot.revision.to_string(), info)
}

/// JSON body of a validation: a file instead of a text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    path: Option<PathBuf>,
}

pub(super) async fn validate(
    State(shared): State<Shared>,
    _: Params<Nothing>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Validation>, ApiError> {
    let spec = shared.engine.spec.clone();
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let text = kind.is_some_and(|k| k.starts_with("text/plain"));
    let job: Box<dyn FnOnce() -> source::Outcome + Send> = if text {
        let body = body.to_vec();
        Box::new(move || source::load_text(&spec, "<body>", &body, Purpose::Check))
    } else {
        let wanted: Wanted = query::json(&headers, &body)?;
        let spec = inside(spec, wanted.path)?;
        Box::new(move || source::load(&spec, Purpose::Check, None))
    };
    // Reading files and compiling block.
    let outcome = tokio::task::spawn_blocking(job).await.map_err(|e| {
        let text = format!("the validation stopped unexpectedly: {e}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
    })?;
    Ok(Json(Validation {
        ok: outcome.is_sound(),
        diagnostics: outcome.findings.documents(),
    }))
}

/// Only the entry file or a file of its directory: the API is no way to read others.
fn inside(spec: Spec, path: Option<PathBuf>) -> Result<Spec, ApiError> {
    let Some(path) = path else { return Ok(spec) };
    let denied = || {
        let text = "only the active entry file and files below its directory can be validated";
        ApiError::new(StatusCode::FORBIDDEN, "denied", text)
    };
    let entry = spec.entry.canonicalize().map_err(|_| denied())?;
    let root = entry.parent().ok_or_else(denied)?;
    let wanted = root.join(path).canonicalize().map_err(|_| denied())?;
    if !wanted.starts_with(root) {
        return Err(denied());
    }
    Ok(Spec {
        entry: wanted,
        ..spec
    })
}
