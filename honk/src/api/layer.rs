//! What every answer carries: request id, generation, headers, one error shape, a deadline.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use serde_json::json;

use super::{
    Shared, clash,
    error::{ApiError, ErrorBody},
    etag,
};

/// Longest time of a request; those that wait on purpose ask for it (`wait_ms`).
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest `wait_ms`.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(120);

/// Label values of `surface`.
pub(super) const SURFACES: [&str; 3] = ["native", "metrics", "clash"];
/// Label values of `method`; the last stands for all others.
pub(super) const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "other"];
/// Label values of `code_class`.
pub(super) const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

type Counts = [[AtomicU64; CLASSES.len()]; METHODS.len()];

static REQUESTS: [Counts; SURFACES.len()] =
    [const { [const { [const { AtomicU64::new(0) }; CLASSES.len()] }; METHODS.len()] }; 3];

/// Requests that were answered, with the positions of their labels.
pub(super) fn answered() -> impl Iterator<Item = (usize, usize, usize, u64)> {
    let all = REQUESTS.iter().enumerate();
    all.flat_map(|(s, methods)| {
        methods.iter().enumerate().flat_map(move |(m, classes)| {
            let counts = classes.iter().enumerate();
            counts.map(move |(c, count)| (s, m, c, count.load(Ordering::Relaxed)))
        })
    })
}

/// Whose words a request is answered in, by its place in [`SURFACES`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Surface {
    Native,
    Metrics,
    Clash,
}

impl Surface {
    fn of(path: &str) -> Self {
        match path {
            "/metrics" => Self::Metrics,
            path if clash::owns(path) => Self::Clash,
            _ => Self::Native,
        }
    }
}

/// Whether the answer takes as long as other people's servers.
fn waits(request: &Request) -> bool {
    let query = request.uri().query();
    let path = request.uri().path();
    query.is_some_and(|q| q.contains("wait_ms="))
        || (path.starts_with("/group/") || path.starts_with("/proxies/"))
            && path.ends_with("/delay")
        || path.starts_with("/providers/proxies/") && path.ends_with("/healthcheck")
        || match *request.method() {
            Method::PUT => path == "/configs" || path.starts_with("/providers/proxies/"),
            Method::POST => ["/configs/geo", "/upgrade/geo"].contains(&path),
            _ => false,
        }
}

/// The outermost layer.
pub(super) async fn envelope(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let id = uuid::Uuid::new_v4().to_string();
    let surface = Surface::of(request.uri().path());
    let method = METHODS.iter().position(|m| *m == request.method().as_str());
    let native = request.uri().path().starts_with("/api/v1");
    let asked = (native && request.method() == Method::GET).then(|| request.headers().clone());
    let deadline = match waits(&request) {
        true => DEADLINE + MAX_WAIT,
        false => DEADLINE,
    };
    let response = match tokio::time::timeout(deadline, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            "the request took too long and was given up",
        )
        .into_response(),
    };
    let mut response = shaped(response, &id, surface);
    if let Some(asked) = asked {
        response = etag::conditional(response, &asked).await;
    }
    let class = usize::from(response.status().as_u16() / 100).clamp(2, 5) - 2;
    let method = method.unwrap_or(METHODS.len() - 1);
    REQUESTS[surface as usize][method][class].fetch_add(1, Ordering::Relaxed);
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
    // Files of a dashboard say themselves how long they are good.
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
}

/// Errors of the framework get the shape of ours, and all of them the request id.
fn shaped(response: Response, id: &str, surface: Surface) -> Response {
    if let Some(ErrorBody { error }) = response.extensions().get::<ErrorBody>().cloned() {
        let body = match surface {
            Surface::Clash => json!({ "message": error["message"] }),
            Surface::Native | Surface::Metrics => json!({ "error": error, "request_id": id }),
        };
        let body = Json(body).into_response();
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
    let mut shaped: Response<Body> = shaped(error.into_response(), id, surface);
    if let Some(allow) = allow {
        shaped.headers_mut().insert(header::ALLOW, allow);
    }
    shaped
}

fn is_plain(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    value.is_some_and(|v| v.as_bytes().starts_with(b"text/plain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_for_others_have_more_time() {
        let waits = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path);
            waits(&request.body(Body::empty()).unwrap())
        };
        for (method, path) in [
            ("GET", "/api/v1/reload?after=1&wait_ms=1000"),
            ("GET", "/group/g/delay?timeout=5000"),
            ("GET", "/proxies/a/delay"),
            ("GET", "/providers/proxies/p/a/healthcheck"),
            ("PUT", "/providers/proxies/p"),
            ("PUT", "/configs?force=true"),
            ("POST", "/configs/geo"),
            ("POST", "/upgrade/geo"),
        ] {
            assert!(waits(method, path), "{method} {path}");
        }
        for (method, path) in [
            ("GET", "/configs"),
            ("PATCH", "/configs"),
            ("POST", "/upgrade"),
            ("GET", "/providers/proxies/p"),
            ("POST", "/api/v1/reload"),
        ] {
            assert!(!waits(method, path), "{method} {path}");
        }
    }
}
