//! What stands before the routes of a TCP listener: rate, `Host`, `Origin`, token, rights.
//!
//! In this order, so that a page of a stranger learns nothing, not even whether its token is
//! right. The unix socket has none of it: there the kernel says who calls.

mod host;
#[cfg(test)]
mod tests;
mod throttle;
mod token;

use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use governor::Quota;
use serde_json::json;
use tower_http::cors::{AllowOrigin, AllowPrivateNetwork, CorsLayer};

pub(crate) use self::{
    host::{Hosts, Origins},
    token::{Access, Token},
};
use self::{
    throttle::{Guesses, Rate, WINDOW},
    token::Caller,
};
use super::{error::ApiError, feed, ui};

/// Requests per second and address, and how many of them may come at once.
const PER_SECOND: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
/// How long browsers keep the answer to a preflight.
const PREFLIGHT: Duration = Duration::from_secs(300);
/// Pause between log lines about guesses.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// Paths for supervisors, which have no token.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Label values of `reason`.
pub(super) const REASONS: [&str; 6] = ["missing", "bad", "throttled", "host", "origin", "rate"];

static REFUSED: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];

/// Why a request goes no further, by its place in [`REASONS`].
#[derive(Clone, Copy)]
enum Reason {
    Missing,
    Bad,
    Throttled,
    Host,
    Origin,
    Rate,
}

fn count(reason: Reason) {
    REFUSED[reason as usize].fetch_add(1, Ordering::Relaxed);
}

/// How many requests were refused, by reason.
pub(super) fn refused() -> impl Iterator<Item = (&'static str, u64)> {
    let counts = REFUSED.iter().map(|count| count.load(Ordering::Relaxed));
    REASONS.into_iter().zip(counts)
}

/// The address a request came from; the listener puts it on every request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// The rules of the TCP listeners.
#[derive(Debug)]
pub(crate) struct Guard {
    access: Access,
    hosts: Hosts,
    origins: Origins,
    private_network: bool,
    rate: Rate,
    guesses: Guesses,
    told: Mutex<Option<Instant>>,
}

impl Guard {
    pub(crate) fn new(access: Access, hosts: Hosts, origins: Origins) -> Self {
        Self {
            access,
            hosts,
            origins,
            private_network: false,
            rate: Rate::new(Quota::per_second(PER_SECOND)),
            guesses: Guesses::default(),
            told: Mutex::default(),
        }
    }

    /// Also answers preflights of pages in a less private network.
    #[must_use]
    pub(crate) fn private_network(self, private_network: bool) -> Self {
        Self {
            private_network,
            ..self
        }
    }

    /// Another rate.
    #[cfg(test)]
    pub(super) fn limited(self, quota: Quota) -> Self {
        Self {
            rate: Rate::new(quota),
            ..self
        }
    }

    /// What tells browsers that a page may read answers; `None` when no page may.
    pub(super) fn cors(self: &Arc<Self>) -> Option<CorsLayer> {
        if self.origins.is_empty() {
            return None;
        }
        let guard = Arc::clone(self);
        let origin = move |origin: &HeaderValue, _: &_| {
            let origin = origin.to_str().ok();
            origin.is_some_and(|origin| guard.origins.allow(origin))
        };
        let cors = CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(origin))
            .allow_methods([
                Method::GET,
                Method::HEAD,
                Method::POST,
                Method::PUT,
                Method::PATCH,
                Method::DELETE,
                Method::OPTIONS,
            ])
            .allow_headers([
                header::CONTENT_TYPE,
                header::AUTHORIZATION,
                header::IF_MATCH,
                header::IF_NONE_MATCH,
                HeaderName::from_static("last-event-id"),
            ])
            .expose_headers([
                header::ETAG,
                HeaderName::from_static("x-request-id"),
                HeaderName::from_static("x-honk-generation"),
                header::RETRY_AFTER,
            ])
            .max_age(PREFLIGHT);
        Some(match self.private_network {
            true => cors.allow_private_network(AllowPrivateNetwork::yes()),
            false => cors,
        })
    }

    /// One line a minute, however many guess.
    fn tell(&self, address: IpAddr) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= LOG_PAUSE) {
            *told = Some(Instant::now());
            tracing::warn!(target: "honk::api", %address, "wrong tokens: the address has to wait");
        }
    }
}

/// Rate, `Host` and `Origin`.
pub(super) async fn gate(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(Peer(address)) = request.extensions().get().copied() else {
        return denied();
    };
    if !guard.rate.permits(address) {
        count(Reason::Rate);
        let text = format!("more than {PER_SECOND} requests per second");
        return later("rate_limited", text, Duration::from_secs(1));
    }
    let (uri, headers) = (request.uri(), request.headers());
    match host::check(&guard.hosts, &guard.origins, uri, headers) {
        Ok(()) => next.run(request).await,
        Err(foreign) => {
            count(match foreign {
                host::Foreign::Host => Reason::Host,
                host::Foreign::Origin => Reason::Origin,
            });
            denied()
        }
    }
}

/// Token and rights. `page`: whether `/` leads browsers to a dashboard.
pub(super) async fn authenticate(
    State((guard, page)): State<(Arc<Guard>, bool)>,
    request: Request,
    next: Next,
) -> Response {
    let Some(Peer(address)) = request.extensions().get().copied() else {
        return denied();
    };
    let path = request.uri().path();
    // Browsers cannot send headers with an upgrade.
    let asked = match feed::is_upgrade(request.method(), request.headers()) {
        true => token::in_query(request.uri().query()),
        false => None,
    };
    let shows = asked.is_some() || request.headers().contains_key(header::AUTHORIZATION);
    let led = page && request.method() == Method::GET && path == "/";
    let open = OPEN.contains(&path) || ui::owns(path) || led && ui::is_browser(request.headers());
    if open && !shows {
        return next.run(request).await;
    }
    // Before the token is looked at: a right one would end the guessing.
    if guard.guesses.exhausted(address, Instant::now()) {
        count(Reason::Throttled);
        let text = "too many wrong tokens from this address";
        return later("auth_throttled", text, WINDOW);
    }
    let caller = match &asked {
        Some(token) => guard.access.shows(token),
        None => guard.access.caller(request.headers()),
    };
    match caller {
        Caller::Full => next.run(request).await,
        Caller::Reader if is_safe(request.method()) => next.run(request).await,
        Caller::Reader => {
            let text = "this token may read and nothing else";
            ApiError::new(StatusCode::FORBIDDEN, "read_only_token", text).into_response()
        }
        Caller::Unknown => {
            count(Reason::Missing);
            unauthorized()
        }
        Caller::Wrong => {
            count(Reason::Bad);
            if guard.guesses.wrong(address, Instant::now()) {
                guard.tell(address);
            }
            unauthorized()
        }
    }
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn unauthorized() -> Response {
    let text = "send `Authorization: Bearer` with the token of the API";
    let error = ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", text);
    let mut response = error.into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    response
}

fn later(code: &'static str, text: impl Into<String>, wait: Duration) -> Response {
    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, text);
    let mut response = error.into_response();
    let wait = HeaderValue::from(wait.as_secs());
    response.headers_mut().insert(header::RETRY_AFTER, wait);
    response
}

/// One answer for every path, so that it tells nothing.
fn denied() -> Response {
    let message = "this host or origin is not served";
    let error = json!({ "code": "denied", "message": message });
    let body = json!({ "error": error, "message": message });
    (StatusCode::FORBIDDEN, Json(body)).into_response()
}
