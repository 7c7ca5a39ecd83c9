//! TCP clients before the routes: strangers, guesses, floods, scripts of pages.

use std::{net::Ipv4Addr, num::NonZeroU32, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode, header},
};
use governor::Quota;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{Access, Guard, Hosts, Origins, Peer, Token};
use crate::{
    api::{Api, mask::Mask},
    app::testkit::{CONFIG, World},
};

const FULL: &str = "full-token-of-the-test";
const READ: &str = "read-token-of-the-test";
const HERE: &str = "192.0.2.1:9090";
const BOARD: &str = "https://board.example";

fn guard() -> Guard {
    let access = Access::Tokens {
        full: Some(Token::new(FULL)),
        read: Some(Token::new(READ)),
    };
    let origins = Origins::new(&[BOARD.to_owned()], true);
    Guard::new(access, Hosts::default(), origins)
}

fn serving(world: &World, guard: Guard) -> Router {
    let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
    api.tcp(&Arc::new(guard))
}

/// A request that is in order, from the client with that number.
fn request(client: u8, path: &str) -> axum::http::request::Builder {
    Request::builder()
        .uri(path)
        .extension(Peer(Ipv4Addr::new(198, 51, 100, client).into()))
        .header(header::HOST, HERE)
}

fn with_token(client: u8, path: &str, token: &str) -> Request<Body> {
    let request = request(client, path);
    let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    request.body(Body::empty()).unwrap()
}

async fn answer(router: &Router, request: Request<Body>) -> (u16, HeaderMap, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    (parts.status.as_u16(), parts.headers, body)
}

#[tokio::test]
async fn a_rebound_name_gets_one_answer_whatever_it_asks() {
    let world = World::new(CONFIG);
    let router = serving(&world, guard());
    let mut bodies = Vec::new();
    for (method, path) in [
        (Method::GET, "/api/v1/status"),
        (Method::GET, "/nothing"),
        (Method::GET, "/healthz"),
        (Method::GET, "/metrics"),
        (Method::PUT, "/proxies/proxy"),
        (Method::OPTIONS, "/api/v1/groups"),
    ] {
        for foreign in [true, false] {
            let mut request = with_token(1, path, FULL);
            *request.method_mut() = method.clone();
            let (name, value) = match foreign {
                true => (header::HOST, "evil.example:9090"),
                false => (header::ORIGIN, "http://evil.example:9090"),
            };
            request.headers_mut().insert(name, value.parse().unwrap());
            let (status, headers, body) = answer(&router, request).await;
            assert_eq!(status, 403, "{method} {path}");
            let cors = headers.keys().find(|k| k.as_str().starts_with("access-"));
            assert_eq!(cors, None, "{method} {path}");
            assert_eq!(body["error"]["code"], "denied");
            bodies.push(body);
        }
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
}

#[tokio::test]
async fn nothing_but_the_health_checks_is_served_without_a_token() {
    let world = World::new(CONFIG);
    let router = serving(&world, guard());
    for path in [
        "/api/v1",
        "/api/v1/groups",
        "/metrics",
        "/nothing",
        "/proxies",
        "/stats",
    ] {
        let bare = request(1, path).body(Body::empty()).unwrap();
        let (status, headers, body) = answer(&router, bare).await;
        assert_eq!(status, 401, "{path}: {body}");
        assert_eq!(headers[header::WWW_AUTHENTICATE], "Bearer");
        let (status, _, _) = answer(&router, with_token(1, path, "wrong")).await;
        assert_eq!(status, 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        let bare = request(2, path).body(Body::empty()).unwrap();
        assert_eq!(answer(&router, bare).await.0, 200, "{path}");
        let (status, _, _) = answer(&router, with_token(2, path, "wrong")).await;
        assert_eq!(status, 401, "{path}: a wrong token is wrong everywhere");
    }
    for path in ["/api/v1", "/metrics", "/api/v1/nodes", "/proxies"] {
        for token in [FULL, READ] {
            assert_eq!(answer(&router, with_token(3, path, token)).await.0, 200);
        }
    }
    let unknown = with_token(3, "/api/v1/nothing", FULL);
    assert_eq!(answer(&router, unknown).await.0, 404);
}

#[tokio::test]
async fn a_reader_changes_nothing() {
    let world = World::new(CONFIG);
    let router = serving(&world, guard());
    for method in [Method::PUT, Method::POST, Method::DELETE, Method::PATCH] {
        let mut request = with_token(1, "/api/v1/suspend", READ);
        *request.method_mut() = method.clone();
        let (status, _, body) = answer(&router, request).await;
        assert_eq!(status, 403, "{method}");
        assert_eq!(body["error"]["code"], "read_only_token");
    }
    assert_eq!(world.engine.gate(), "open");
    let mut request = with_token(1, "/api/v1/suspend", FULL);
    *request.method_mut() = Method::POST;
    assert_eq!(answer(&router, request).await.0, 200);
    assert_eq!(world.engine.gate(), "draining");
}

#[tokio::test]
async fn guessing_ends_after_ten_wrong_tokens() {
    let world = World::new(CONFIG);
    let router = serving(&world, guard());
    for n in 0..10 {
        let (status, _, body) = answer(&router, with_token(1, "/api/v1", "guess")).await;
        assert_eq!(status, 401, "{n}");
        assert!(!body.to_string().contains("guess"), "{body}");
    }
    for token in ["guess", FULL] {
        let (status, headers, body) = answer(&router, with_token(1, "/api/v1", token)).await;
        assert_eq!(status, 429, "{body}");
        assert_eq!(headers[header::RETRY_AFTER], "60");
        assert_eq!(body["error"]["code"], "auth_throttled");
    }
    assert_eq!(answer(&router, with_token(2, "/api/v1", FULL)).await.0, 200);
    let bare = request(1, "/healthz").body(Body::empty()).unwrap();
    assert_eq!(answer(&router, bare).await.0, 200);
}

#[tokio::test]
async fn an_address_asks_no_more_often_than_the_rate() {
    let world = World::new(CONFIG);
    let three = Quota::per_hour(NonZeroU32::new(3).unwrap());
    let router = serving(&world, guard().limited(three));
    for _ in 0..3 {
        assert_eq!(answer(&router, with_token(1, "/api/v1", FULL)).await.0, 200);
    }
    let (status, headers, body) = answer(&router, with_token(1, "/api/v1", FULL)).await;
    assert_eq!(status, 429, "{body}");
    assert_eq!(headers[header::RETRY_AFTER], "1");
    assert_eq!(body["error"]["code"], "rate_limited");
    assert_eq!(answer(&router, with_token(2, "/api/v1", FULL)).await.0, 200);
}

fn preflight(origin: &str, private: bool) -> Request<Body> {
    let request = request(1, "/api/v1/groups")
        .method(Method::OPTIONS)
        .header(header::ORIGIN, origin)
        .header(header::ACCESS_CONTROL_REQUEST_METHOD, "PUT")
        .header(header::ACCESS_CONTROL_REQUEST_HEADERS, "authorization");
    let request = match private {
        true => request.header("access-control-request-private-network", "true"),
        false => request,
    };
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn listed_origins_are_told_what_they_may() {
    let world = World::new(CONFIG);
    let router = serving(&world, guard());
    let (status, headers, _) = answer(&router, preflight(BOARD, true)).await;
    assert_eq!(status, 200, "a preflight has no token");
    assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], BOARD);
    assert_eq!(headers[header::ACCESS_CONTROL_MAX_AGE], "300");
    let methods = headers[header::ACCESS_CONTROL_ALLOW_METHODS].to_str();
    assert_eq!(methods.unwrap(), "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS");
    let names = headers[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str();
    let all = "content-type,authorization,if-match,if-none-match,last-event-id";
    assert_eq!(names.unwrap(), all);
    let private = "access-control-allow-private-network";
    assert!(!headers.contains_key(private));
    assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS));
    assert_eq!(
        answer(&router, preflight("http://evil.example", false))
            .await
            .0,
        403
    );

    // Also a refusal can be read by the page that caused it.
    let mut wrong = with_token(1, "/api/v1", "wrong");
    let origin = header::HeaderValue::from_static(BOARD);
    wrong.headers_mut().insert(header::ORIGIN, origin);
    let (status, headers, _) = answer(&router, wrong).await;
    assert_eq!(status, 401);
    assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], BOARD);
    let exposed = headers[header::ACCESS_CONTROL_EXPOSE_HEADERS].to_str();
    let all = "etag,x-request-id,x-honk-generation,retry-after";
    assert_eq!(exposed.unwrap(), all);

    let router = serving(&world, guard().private_network(true));
    let (_, headers, _) = answer(&router, preflight(BOARD, true)).await;
    assert_eq!(headers[private], "true");
    let (_, headers, _) = answer(&router, preflight(BOARD, false)).await;
    assert!(!headers.contains_key(private));
}

#[tokio::test]
async fn without_listed_origins_there_is_no_word_about_them() {
    let world = World::new(CONFIG);
    let access = Access::Anonymous;
    let router = serving(
        &world,
        Guard::new(access, Hosts::default(), Origins::default()),
    );
    assert_eq!(answer(&router, preflight(BOARD, false)).await.0, 403);
    let mut own = request(1, "/api/v1").body(Body::empty()).unwrap();
    let origin = format!("http://{HERE}").parse().unwrap();
    own.headers_mut().insert(header::ORIGIN, origin);
    let (status, headers, _) = answer(&router, own).await;
    assert_eq!(status, 200);
    assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
    assert!(!headers.contains_key(header::VARY));
}

#[tokio::test]
async fn a_request_without_an_address_is_nobody_s() {
    let world = World::new(CONFIG);
    let router = serving(&world, guard());
    let mut request = with_token(1, "/api/v1", FULL);
    request.extensions_mut().clear();
    let response = router.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn tokens_do_not_come_back_in_icons() {
    let icon = format!("interrupt_connections: true icon: 'https://x.example/?t={FULL}'");
    let world = World::new(&CONFIG.replace("interrupt_connections: true", &icon));
    let api = Api::new(world.engine.clone(), Mask::new([FULL]), Vec::new());
    let router = api.tcp(&Arc::new(guard()));
    for path in ["/api/v1/groups/by-name/proxy", "/api/v1/groups"] {
        let (status, _, body) = answer(&router, with_token(1, path, FULL)).await;
        assert_eq!(status, 200, "{body}");
        let text = body.to_string();
        assert!(text.contains("https://x.example/?t=***"), "{text}");
        assert!(!text.contains(FULL), "{text}");
    }
}

#[tokio::test]
async fn a_listener_of_metrics_serves_nothing_else() {
    let world = World::new(CONFIG);
    let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
    let guard = Guard::new(Access::Anonymous, Hosts::default(), Origins::default());
    let router = api.metrics(&Arc::new(guard));
    for (path, status) in [
        ("/metrics", 200),
        ("/healthz", 200),
        ("/api/v1", 404),
        ("/proxies", 404),
    ] {
        let bare = request(1, path).body(Body::empty()).unwrap();
        assert_eq!(answer(&router, bare).await.0, status, "{path}");
    }
    let foreign = Request::builder()
        .uri("/metrics")
        .extension(Peer(Ipv4Addr::LOCALHOST.into()))
        .header(header::HOST, "evil.example");
    let foreign = foreign.body(Body::empty()).unwrap();
    assert_eq!(answer(&router, foreign).await.0, 403);
    let reasons: Vec<&str> = super::refused().map(|(reason, _)| reason).collect();
    assert_eq!(json!(reasons), json!(super::REASONS));
}
