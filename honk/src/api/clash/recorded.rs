//! What dashboards were seen to ask for, and what they read of the answers: nothing of it may
//! fail in a way they do not expect, over TCP, with the token where each of them puts it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use honk_policy::id::Network;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::{
    api::{
        Api,
        feed::tests::{Served, message},
        guard::{Access, Guard, Hosts, Origins, Peer, Token},
        mask::Mask,
    },
    app::testkit::{CONFIG, World, relayed},
};

const TOKEN: &str = "a+token&with=signs%of-24";
const IN_QUERY: &str = "a%2Btoken%26with%3Dsigns%25of-24";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    of: String,
    calls: Vec<Call>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    get: Option<String>,
    put: Option<String>,
    post: Option<String>,
    patch: Option<String>,
    delete: Option<String>,
    /// A stream; without `has` only its beginning is looked at.
    socket: Option<String>,
    body: Option<String>,
    status: Option<u16>,
    /// Pointers into the answer, with what is there.
    #[serde(default)]
    has: BTreeMap<String, String>,
}

impl Call {
    fn request(&self) -> Option<(Method, &str)> {
        [
            (Method::GET, &self.get),
            (Method::PUT, &self.put),
            (Method::POST, &self.post),
            (Method::PATCH, &self.patch),
            (Method::DELETE, &self.delete),
        ]
        .into_iter()
        .find_map(|(method, path)| Some((method, path.as_deref()?)))
    }

    fn check(&self, of: &str, answer: &Value) {
        for (pointer, kind) in &self.has {
            let found = answer.pointer(pointer);
            let found = found.unwrap_or_else(|| panic!("{of}: {self:?}: no {pointer}: {answer}"));
            assert_eq!(kind_of(found), kind, "{of}: {self:?}: {pointer}: {found}");
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[tokio::test]
async fn every_recorded_call_is_answered_as_its_client_expects() {
    let recordings: Vec<Recording> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let auto = "group { auto { policy: urltest filter: name(a, b) }";
    let world = World::new(&CONFIG.replace("group {", auto));
    let access = Access::Tokens {
        full: Some(Token::new(TOKEN)),
        read: None,
    };
    let guard = Guard::new(access, Hosts::default(), Origins::default());
    let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
    let router = api.tcp(&Arc::new(guard));
    let served = Served::new(router.clone());
    for Recording { of, calls } in recordings {
        // What one client closes is no loss to the next.
        let _relay = relayed(&world, Network::Tcp, "203.0.113.1:443");
        for call in calls {
            if let Some(path) = &call.socket {
                let joint = if path.contains('?') { '&' } else { '?' };
                let path = format!("{path}{joint}token={IN_QUERY}");
                let origin = format!("Origin: http://{}\r\n", served.address);
                let (head, mut stream) = served.socket(&path, &origin).await;
                assert!(head.starts_with("HTTP/1.1 101"), "{of}: {call:?}: {head}");
                if !call.has.is_empty() {
                    call.check(&of, &message(&mut stream).await);
                }
                continue;
            }
            let (method, path) = call.request().unwrap();
            let request = Request::builder()
                .method(method)
                .uri(path)
                .extension(Peer("127.0.0.1".parse().unwrap()))
                .header(header::HOST, served.address.to_string())
                .header(header::AUTHORIZATION, format!("Bearer {TOKEN}"))
                .body(Body::from(call.body.clone().unwrap_or_default()))
                .unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(
                Some(answer.status().as_u16()),
                call.status,
                "{of}: {call:?}"
            );
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            call.check(&of, &serde_json::from_slice(&bytes).unwrap_or(Value::Null));
        }
    }
}

#[tokio::test]
async fn a_token_in_the_query_counts_for_an_upgrade_alone_and_must_be_right() {
    let world = World::new(CONFIG);
    let access = Access::Tokens {
        full: Some(Token::new(TOKEN)),
        read: Some(Token::new("read-token-of-the-test")),
    };
    let guard = Guard::new(access, Hosts::default(), Origins::default());
    let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
    let router = api.tcp(&Arc::new(guard));
    let served = Served::new(router.clone());
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let origin = "Origin: http://evil.example\r\n";
    for (path, more, status) in [
        (format!("/memory?token={IN_QUERY}"), "", 101),
        ("/memory?token=read-token-of-the-test".to_owned(), "", 101),
        ("/memory".to_owned(), &*bearer, 101),
        (format!("/memory?token={TOKEN}"), "", 401),
        ("/memory?token=wrong".to_owned(), &bearer, 401),
        ("/memory?token=".to_owned(), &bearer, 401),
        ("/memory".to_owned(), "", 401),
        (format!("/memory?token={IN_QUERY}"), origin, 403),
        (
            format!("/api/v1/events?types=state&token={IN_QUERY}"),
            "",
            101,
        ),
    ] {
        let (head, _) = served.socket(&path, more).await;
        let expected = format!("HTTP/1.1 {status}");
        assert!(head.starts_with(&expected), "{path} {more}: {head}");
    }
    let request = Request::get(format!("/version?token={IN_QUERY}"))
        .extension(Peer("192.0.2.7".parse().unwrap()))
        .header(header::HOST, "127.0.0.1");
    let request = request.body(Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 401, "only an upgrade may show it there");
}
