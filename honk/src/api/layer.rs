//! What every answer carries: request id, generation, headers, one error shape, a deadline.

use std::time::Duration;

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use serde_json::json;

use super::{
    Shared,
    error::{ApiError, ErrorBody},
};

/// Longest time of a request; those that wait on purpose ask for it (`wait_ms`).
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest `wait_ms`.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(120);

/// The outermost layer.
pub(super) async fn envelope(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let id = uuid::Uuid::new_v4().to_string();
    let waits = request
        .uri()
        .query()
        .is_some_and(|q| q.contains("wait_ms="));
    let deadline = if waits { DEADLINE + MAX_WAIT } else { DEADLINE };
    let response = match tokio::time::timeout(deadline, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            "the request took too long and was given up",
        )
        .into_response(),
    };
    let mut response = shaped(response, &id);
    let headers = response.headers_mut();
    fixed(headers);
    let generation = shared.engine.snapshot().generation;
    headers.insert("x-honk-generation", HeaderValue::from(generation));
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", value);
    }
    response
}

fn fixed(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
}

/// Errors of the framework get the shape of ours, and all of them the request id.
fn shaped(response: Response, id: &str) -> Response {
    if let Some(ErrorBody { error }) = response.extensions().get::<ErrorBody>().cloned() {
        let body = Json(json!({ "error": error, "request_id": id })).into_response();
        let (mut parts, _) = response.into_parts();
        let (_, body) = body.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(parts, body);
    }
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let allow = response.headers().get(header::ALLOW).cloned();
    let error = match status {
        StatusCode::METHOD_NOT_ALLOWED => ApiError::new(
            status,
            "method_not_allowed",
            "this path takes other methods",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(
            status,
            "body_too_large",
            "the body is larger than this path takes",
        ),
        // Bodies that are no error document come from health checks and metrics.
        _ if response.headers().contains_key(header::CONTENT_TYPE)
            && !is_plain(response.headers()) =>
        {
            return response;
        }
        _ => ApiError::new(status, "bad_request", "the request is malformed"),
    };
    let mut shaped: Response<Body> = shaped(error.into_response(), id);
    if let Some(allow) = allow {
        shaped.headers_mut().insert(header::ALLOW, allow);
    }
    shaped
}

fn is_plain(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    value.is_some_and(|v| v.as_bytes().starts_with(b"text/plain"))
}
