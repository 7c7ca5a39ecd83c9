//! The router as a client sees it, over a daemon without a kernel.

mod banner;
mod switch;

mod measure;
mod score;

use axum::{
    body::Body,
    http::{Method, Request, StatusCode, header},
    response::Response,
};
use honk_policy::id::Network;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{
    app::{
        kernel::Interface,
        testkit::{CONFIG, World, flow, subscribed},
    },
    dns::testkit::teach,
    flow::{Admission as _, Route},
};

async fn send(world: &World, request: Request<Body>) -> Response {
    let router = super::router(world.engine.clone());
    router.oneshot(request).await.unwrap()
}

async fn call(
    world: &World,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let mut request = Request::builder().method(method).uri(path);
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let body = body.map_or_else(Body::empty, |b| Body::from(b.to_string()));
    let response = send(world, request.body(body).unwrap()).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (
        status,
        serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    )
}

async fn get(world: &World, path: &str) -> Value {
    let (status, value) = call(world, Method::GET, path, None).await;
    assert_eq!(status, StatusCode::OK, "{path}: {value}");
    value
}

fn admit(world: &World, network: Network, target: &str) -> Route {
    world
        .engine
        .gatekeeper
        .admit(&flow(network, target))
        .unwrap()
}

async fn proxy(world: &World) -> Value {
    get(world, "/api/v1/groups/by-name/proxy").await
}

#[tokio::test]
async fn every_answer_carries_id_generation_and_is_not_stored() {
    let world = World::new(CONFIG);
    for path in [
        "/api/v1",
        "/api/v1/",
        "/api/v1/status",
        "/healthz",
        "/nothing",
        "/metrics",
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = send(&world, request).await;
        let headers = response.headers();
        assert_eq!(headers["x-honk-generation"], "1", "{path}");
        assert_eq!(headers["x-request-id"].len(), 36, "{path}");
        assert_eq!(headers[header::CACHE_CONTROL], "no-store", "{path}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
    }
}

#[tokio::test]
async fn no_route_takes_a_parameter_that_it_does_not_know() {
    let world = World::new(CONFIG);
    let _route = admit(&world, Network::Tcp, "203.0.113.1:80");
    let id = proxy(&world).await["id"].as_str().unwrap().to_owned();
    let get = |path: &str| (Method::GET, path.to_owned());
    let mut routes = vec![
        get("/api/v1"),
        get("/api/v1/status"),
        get("/api/v1/groups"),
        get(&format!("/api/v1/groups/{id}")),
        get("/api/v1/groups/by-name/proxy"),
        get(&format!("/api/v1/groups/{id}/selection")),
        get("/api/v1/nodes"),
        get(&format!("/api/v1/nodes/{id}")),
        get("/api/v1/subscriptions"),
        get(&format!("/api/v1/subscriptions/{id}")),
        get("/api/v1/connections"),
        get("/api/v1/reload"),
        get("/api/v1/config"),
        get("/api/v1/datapath"),
        get("/api/v1/dns/map"),
        get("/stats"),
        get("/metrics"),
        get("/healthz"),
        get("/readyz"),
    ];
    let others = [
        (Method::PUT, format!("/api/v1/groups/{id}/selection")),
        (Method::DELETE, format!("/api/v1/groups/{id}/selection")),
        (Method::DELETE, "/api/v1/connections".to_owned()),
        (Method::DELETE, format!("/api/v1/connections/{id}")),
        (Method::POST, "/api/v1/reload".to_owned()),
        (Method::POST, format!("/api/v1/subscriptions/{id}/refresh")),
        (Method::POST, "/api/v1/suspend".to_owned()),
        (Method::POST, "/api/v1/resume".to_owned()),
        (Method::POST, "/api/v1/config/validate".to_owned()),
    ];
    routes.extend(others);
    for (method, path) in routes {
        let (status, value) = call(&world, method.clone(), &format!("{path}?grup=x"), None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{method} {path}: {value}");
        assert_eq!(value["error"]["code"], "bad_query", "{method} {path}");
    }
    let queries = [
        (Method::DELETE, "connections?network=tcp&grup=x"),
        (Method::DELETE, "connections?network=tcp&limit=1"),
        (Method::GET, "connections?all=true"),
        (Method::GET, "connections?fields=id,nope"),
        (Method::GET, "groups?fields=nope"),
        (Method::GET, "nodes?fields=nope"),
    ];
    for (method, query) in queries {
        let (status, value) = call(&world, method, &format!("/api/v1/{query}"), None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {value}");
    }
    assert_eq!(world.engine.registry.open(), 1);
    let fields = get_items(&world, "connections?fields=id,rule").await;
    assert_eq!(fields[0].as_object().unwrap().len(), 2);
}

async fn get_items(world: &World, query: &str) -> Value {
    get(world, &format!("/api/v1/{query}")).await["items"].clone()
}

#[tokio::test]
async fn errors_have_one_shape_whoever_made_them() {
    let world = World::new(CONFIG);
    let cases = [
        (Method::GET, "/nothing", None, 404, "not_found"),
        (
            Method::GET,
            "/api/v1/groups/00000000-0000-4000-8000-000000000000",
            None,
            404,
            "not_found",
        ),
        (Method::GET, "/api/v1/groups/x", None, 404, "not_found"),
        (
            Method::POST,
            "/api/v1/status",
            None,
            405,
            "method_not_allowed",
        ),
        (
            Method::GET,
            "/api/v1/groups?limit=0",
            None,
            400,
            "bad_query",
        ),
        (
            Method::GET,
            "/api/v1/reload?wait_ms=x",
            None,
            400,
            "bad_query",
        ),
        (Method::GET, "/api/v1/reload?nope=1", None, 400, "bad_query"),
        (
            Method::POST,
            "/api/v1/reload",
            Some(json!({"nope": 1})),
            400,
            "bad_json",
        ),
        (
            Method::DELETE,
            "/api/v1/connections",
            None,
            400,
            "bad_query",
        ),
    ];
    for (method, path, body, status, code) in cases {
        let (got, value) = call(&world, method, path, body).await;
        assert_eq!(
            (got.as_u16(), &value["error"]["code"]),
            (status, &json!(code)),
            "{path}"
        );
        assert!(value["error"]["message"].is_string(), "{path}");
        assert_eq!(
            value["request_id"].as_str().map(str::len),
            Some(36),
            "{path}"
        );
    }
    let request = Request::post("/api/v1/status").body(Body::empty()).unwrap();
    assert_eq!(
        send(&world, request).await.headers()[header::ALLOW],
        "GET,HEAD"
    );
}

#[tokio::test]
async fn bodies_must_be_json_and_small() {
    let world = World::new(CONFIG);
    let id = proxy(&world).await["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/groups/{id}/selection");
    let request = Request::put(&path).body(Body::from("{}")).unwrap();
    assert_eq!(
        send(&world, request).await.status(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    let request = Request::put(&path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(vec![b' '; 65 * 1024]))
        .unwrap();
    let response = send(&world, request).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn status_tells_state_interfaces_and_counts() {
    let world = World::new(CONFIG);
    let interface = |name: &str, attached, pending| Interface {
        name: name.to_owned(),
        role: "lan".to_owned(),
        attached,
        hooks: vec![],
        problem: None,
        pending,
    };
    *world.kernel.interfaces.lock().unwrap() = vec![interface("lan0", false, true)];
    let _flow = admit(&world, Network::Tcp, "203.0.113.1:80");
    let status = get(&world, "/api/v1/status").await;
    assert_eq!(status["state"], "running", "a missing interface is awaited");
    assert_eq!(status["datapath"]["gate"], "open");
    assert_eq!(status["datapath"]["interfaces"][0]["pending"], true);
    assert_eq!(status["counts"]["groups"], 1);
    assert_eq!(status["counts"]["nodes"], 3);
    assert_eq!(status["counts"]["rules"], 4);
    assert_eq!(status["counts"]["connections_tcp"], 1);
    *world.kernel.interfaces.lock().unwrap() = vec![interface("lan0", false, false)];
    let status = get(&world, "/api/v1/status").await;
    assert_eq!(status["state"], "degraded");
    assert_eq!(status["reasons"][0]["code"], "not_attached");
}

#[tokio::test]
async fn a_selection_moves_new_flows_and_closes_nothing_the_second_time() {
    let world = World::new(CONFIG);
    let group = proxy(&world).await;
    assert_eq!(group["selection"]["tcp"]["leaf_name"], "a");
    assert_eq!(group["selection"]["tcp"]["source"], "first");
    let path = format!("/api/v1/groups/{}/selection", group["id"].as_str().unwrap());
    let body = json!({"member_id": group["members"][1]["id"], "network": "udp"});
    let (status, result) = call(&world, Method::PUT, &path, Some(body.clone())).await;
    assert_eq!(status, StatusCode::OK, "{result}");
    assert_eq!(result["changed"], json!({"tcp": false, "udp": true}));
    assert_eq!(result["selection"]["udp"]["leaf_name"], "b");
    assert_eq!(result["selection"]["tcp"]["leaf_name"], "a");
    let (_, again) = call(&world, Method::PUT, &path, Some(body)).await;
    assert_eq!(again["changed"], json!({"tcp": false, "udp": false}));
    assert_eq!(again["selection_revision"], result["selection_revision"]);
    let route = admit(&world, Network::Udp, "203.0.113.1:9000");
    assert_eq!(route.leaf.name, "b");

    let (_, gone) = call(&world, Method::DELETE, &path, None).await;
    assert_eq!(gone["selection"]["udp"]["leaf_name"], "a");
    let stranger = json!({"member_id": group["id"]});
    let (status, error) = call(&world, Method::PUT, &path, Some(stranger)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(error["error"]["code"], "not_a_member");
}

/// Status, tag and body of a request with one more header.
async fn with_header(
    world: &World,
    method: Method,
    path: &str,
    name: header::HeaderName,
    value: &str,
) -> (u16, String, Vec<u8>) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let request = request.header(name, value).body(Body::empty()).unwrap();
    let response = send(world, request).await;
    let tag = response.headers().get(header::ETAG);
    let tag = tag.map_or("", |v| v.to_str().unwrap()).to_owned();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, tag, body.to_vec())
}

#[tokio::test]
async fn an_answer_that_is_known_already_has_no_body() {
    let world = World::new(CONFIG);
    let id = proxy(&world).await["id"].as_str().unwrap().to_owned();
    for (path, prefix) in [
        (format!("/api/v1/groups/{id}"), "\"g-"),
        ("/api/v1/groups/by-name/proxy".to_owned(), "\"g-"),
        ("/api/v1/config".to_owned(), "\"c-"),
        ("/api/v1/nodes".to_owned(), "\"b-"),
        ("/api/v1/groups?fields=name".to_owned(), "\"b-"),
    ] {
        let ask = async |tag: &str| {
            with_header(&world, Method::GET, &path, header::IF_NONE_MATCH, tag).await
        };
        let (status, tag, body) = ask("\"other\"").await;
        assert_eq!((status, &tag[..3]), (200, prefix), "{path}");
        assert!(!body.is_empty());
        assert_eq!(ask(&tag).await, (304, tag.clone(), vec![]), "{path}");
        assert_eq!(ask(&format!("W/{tag}")).await.0, 200, "{path}: weak");
    }
    let missing = "/api/v1/groups/by-name/nobody";
    let (status, tag, _) =
        with_header(&world, Method::GET, missing, header::IF_NONE_MATCH, "*").await;
    assert_eq!((status, tag.as_str()), (404, ""), "errors have no tag");
}

#[tokio::test]
async fn a_change_that_builds_on_something_else_is_refused() {
    let world = World::new(CONFIG);
    let group = proxy(&world).await;
    let revision = group["revision"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/groups/{}/selection", group["id"].as_str().unwrap());
    let drop_choice =
        async |tag: &str| with_header(&world, Method::DELETE, &path, header::IF_MATCH, tag).await;
    let (status, _, body) = drop_choice("\"g-0000000000000000\"").await;
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status, &error["error"]["code"]),
        (412, &json!("revision_mismatch"))
    );
    assert_eq!(error["error"]["details"]["current"], json!(revision));
    let body = json!({"member_id": group["members"][1]["id"]}).to_string();
    let request = Request::put(&path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::IF_MATCH, "\"g-0000000000000000\"")
        .body(Body::from(body))
        .unwrap();
    let refused = send(&world, request).await.status();
    assert_eq!(refused, StatusCode::PRECONDITION_FAILED);
    assert_eq!(proxy(&world).await["selection"], group["selection"]);
    assert_eq!(drop_choice(&format!("\"{revision}\"")).await.0, 200);

    // A selection is no new revision; a new member is.
    let change = json!({"member_id": group["members"][1]["id"]});
    call(&world, Method::PUT, &path, Some(change)).await;
    assert_eq!(proxy(&world).await["revision"], json!(revision));
    let (status, ..) = with_header(
        &world,
        Method::POST,
        "/api/v1/reload",
        header::IF_MATCH,
        "\"c-0\"",
    )
    .await;
    assert_eq!(status, 412);
    world.edit(&CONFIG.replace("name(a, b)", "name(a, b, c)"));
    call(&world, Method::POST, "/api/v1/reload?wait_ms=30000", None).await;
    assert_ne!(proxy(&world).await["revision"], json!(revision));
    assert_eq!(drop_choice(&format!("\"{revision}\"")).await.0, 412);
}

#[tokio::test]
async fn nodes_show_no_server_and_no_credential() {
    let config = CONFIG.replace(
        "socks5://192.0.2.1:1080",
        "socks5://canary:s3cr3t@192.0.2.1:1080",
    );
    let world = World::new(&config);
    let nodes = get(&world, "/api/v1/nodes").await;
    assert_eq!(nodes["total"], 5, "three configured, two built in");
    let all = [
        nodes,
        get(&world, "/api/v1/groups").await,
        get(&world, "/api/v1/status").await,
        get(&world, "/api/v1/config").await,
    ];
    for document in &all {
        let text = document.to_string();
        for secret in ["canary", "s3cr3t", "192.0.2.1"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    let members = get(&world, "/api/v1/nodes?group=proxy").await;
    assert_eq!(members["total"], 2);
    let id = members["items"][0]["id"].as_str().unwrap();
    let node = get(&world, &format!("/api/v1/nodes/{id}")).await;
    assert_eq!(node["name"], "a");
    assert_eq!(node["groups"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn connections_are_listed_filtered_and_closed() {
    let world = World::new(CONFIG);
    let tcp = admit(&world, Network::Tcp, "203.0.113.1:80");
    let udp = admit(&world, Network::Udp, "[2001:db8::1]:9000");
    let list = get(&world, "/api/v1/connections").await;
    assert_eq!(list["total"], 2);
    let conn = &list["items"][0];
    assert_eq!(conn["chain"], json!(["proxy", "a"]));
    assert_eq!(conn["rule"]["index"], 3);
    assert_eq!(conn["rule"]["text"], "fallback: proxy");
    assert_eq!(conn["dst"], json!({"ip": "203.0.113.1", "port": 80}));
    for (query, total) in [
        ("network=udp", 1),
        ("dst=203.0.113.0%2F24", 1),
        ("src=0.0.0.0%2F0", 1),
        ("group=proxy", 2),
        ("node=b", 0),
        ("rule=3", 2),
        ("min_bytes=1", 0),
    ] {
        let list = get(&world, &format!("/api/v1/connections?{query}")).await;
        assert_eq!(list["total"], total, "{query}");
    }
    let id = conn["id"].as_str().unwrap().to_owned();
    let entry = std::sync::Arc::clone(&tcp.guard.entry);
    let relay = tokio::spawn(async move {
        while entry.cancel.reason().is_none() {
            tokio::task::yield_now().await;
        }
        drop(tcp);
    });
    let path = format!("/api/v1/connections/{id}");
    let (status, closed) = call(&world, Method::DELETE, &path, None).await;
    relay.await.unwrap();
    assert_eq!((status, closed), (StatusCode::OK, json!({"closed": true})));
    let (status, _) = call(&world, Method::DELETE, &path, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let ended = get(&world, "/api/v1/connections?closed=true").await;
    assert_eq!(ended["items"][0]["reason"], "api");
    assert_eq!(ended["items"][0]["state"], "closed");
    drop(udp);
}

#[tokio::test]
async fn reload_over_the_api_reports_the_outcome() {
    let world = World::new(CONFIG);
    let (status, idle) = call(&world, Method::GET, "/api/v1/reload", None).await;
    assert_eq!((status, &idle["state"]), (StatusCode::OK, &json!("idle")));
    let wrong = json!({"if_revision": "c-0000000000000000"});
    let (status, error) = call(&world, Method::POST, "/api/v1/reload", Some(wrong)).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(error["error"]["code"], "revision_mismatch");
    let (status, done) = call(&world, Method::POST, "/api/v1/reload?wait_ms=30000", None).await;
    assert_eq!(
        (status, &done["state"]),
        (StatusCode::OK, &json!("done")),
        "{done}"
    );
    assert_eq!(done["generation"], 2);
    world.edit("nonsense");
    let (_, rejected) = call(&world, Method::POST, "/api/v1/reload?wait_ms=30000", None).await;
    assert_eq!(rejected["state"], "rejected");
    let after = get(&world, "/api/v1/reload?after=1&wait_ms=1000").await;
    assert_eq!(after["sequence"], 2);
}

#[tokio::test]
async fn validation_finds_what_a_reload_would() {
    let world = World::new(CONFIG);
    let text = "global { tproxy_prot: 1 }\nrouting { fallback: nowhere }";
    let request = Request::post("/api/v1/config/validate")
        .header(header::CONTENT_TYPE, "text/plain")
        .body(Body::from(text))
        .unwrap();
    let body = send(&world, request)
        .await
        .into_body()
        .collect()
        .await
        .unwrap();
    let value: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
    assert_eq!(value["ok"], false);
    let codes: Vec<&str> = value["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["code"].as_str().unwrap())
        .collect();
    assert!(
        codes.contains(&"unknown-key") && codes.contains(&"rule-target-unknown"),
        "{codes:?}"
    );
    world.edit(text);
    let (_, reload) = call(&world, Method::POST, "/api/v1/reload?wait_ms=30000", None).await;
    let of = |v: &Value| v["diagnostics"].as_array().unwrap().len();
    assert_eq!(of(&reload), of(&value));
    let (_, file) = call(
        &world,
        Method::POST,
        "/api/v1/config/validate",
        Some(json!({})),
    )
    .await;
    assert_eq!(file["ok"], false);
    let outside = json!({"path": "/etc/passwd"});
    let (status, _) = call(
        &world,
        Method::POST,
        "/api/v1/config/validate",
        Some(outside),
    )
    .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn suspension_stops_interception_until_resumed() {
    let world = World::new(CONFIG);
    let (status, _) = call(&world, Method::POST, "/api/v1/suspend", None).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(get(&world, "/api/v1/status").await["state"], "suspended");
    let (status, _) = call(&world, Method::GET, "/readyz", None).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    call(&world, Method::POST, "/api/v1/resume", None).await;
    let status = get(&world, "/api/v1/status").await;
    assert_eq!(
        (&status["state"], &status["datapath"]["gate"]),
        (&json!("running"), &json!("open"))
    );
}

#[tokio::test]
async fn metrics_count_flows_and_name_the_selection() {
    let world = World::new(CONFIG);
    let route = admit(&world, Network::Tcp, "203.0.113.1:80");
    route.guard.entry.counters.add_up(7);
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = send(&world, request).await;
    let kind = response.headers()[header::CONTENT_TYPE]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    for line in [
        "honk_up_state{state=\"running\"} 1",
        "honk_config_generation 1",
        "honk_connections{network=\"tcp\",outbound=\"proxy\"} 1",
        "honk_transfer_bytes_total{outbound=\"proxy\",network=\"tcp\",direction=\"up\"} 7",
        "honk_connections_opened_total{network=\"udp\",outbound=\"direct\"} 0",
        "honk_route_decisions_total{stage=\"kernel\",kind=\"direct\"} 4",
        "honk_route_decisions_total{stage=\"userspace\",kind=\"group\"} 1",
        "honk_handoff_miss_total 1",
        "honk_groups{policy=\"selector\"} 1",
        "honk_group_members{group=\"c\",network=\"udp\",state=\"udp_incapable\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let selected: Vec<&str> = text
        .lines()
        .filter(|l| l.starts_with("honk_group_selected_info{group=\"proxy\",network=\"tcp\""))
        .collect();
    assert!(
        selected.len() == 1 && selected[0].contains("node=\"a\""),
        "{selected:?}"
    );
    assert!(!text.contains("203.0.113.1"));
}

#[tokio::test]
async fn subscriptions_are_seen_without_their_urls_and_asked_to_refresh() {
    let world = World::new(&subscribed());
    let list = get_items(&world, "subscriptions").await;
    assert_eq!(list.as_array().unwrap().len(), 2);
    let air = &list[0];
    assert_eq!(
        (&air["tag"], &air["state"], &air["nodes"]),
        (&json!("air"), &json!("pending"), &json!(0))
    );
    assert_eq!(list[1]["state"], "disabled");
    assert!(
        air["url"]
            .as_str()
            .unwrap()
            .starts_with("https://air.example/***#")
    );
    let path = |sub: &Value, rest: &str| {
        format!(
            "/api/v1/subscriptions/{}{rest}",
            sub["id"].as_str().unwrap()
        )
    };
    let one = get(&world, &path(air, "")).await;
    assert_eq!(one, *air);
    // Nobody fetches here: the request stands and the answer is that it goes on.
    let (status, value) = call(
        &world,
        Method::POST,
        &path(air, "/refresh?wait_ms=10"),
        None,
    )
    .await;
    assert_eq!(
        (status, &value["attempts"]),
        (StatusCode::ACCEPTED, &json!(0))
    );
    assert!(!value["next_at"].is_null());
    // Somebody fetches in vain while one waits.
    let failing = async { world.fetch_fails() };
    let waiting = path(air, "/refresh?wait_ms=30000");
    let (answer, ()) = tokio::join!(call(&world, Method::POST, &waiting, None), failing);
    assert_eq!(answer.0, StatusCode::OK);
    assert_eq!(answer.1["error"]["code"], "damaged");
    assert_eq!(answer.1["state"], "failed");
    let status = get(&world, "/api/v1/status").await;
    assert!(
        status["warnings"]
            .to_string()
            .contains("subscription-failed")
    );
    for (method, path, code) in [
        (Method::POST, path(&list[1], "/refresh"), 409),
        (
            Method::GET,
            path(&json!({"id": "00000000-0000-4000-8000-000000000000"}), ""),
            404,
        ),
        (Method::GET, "/api/v1/subscriptions/air".to_owned(), 404),
        (Method::GET, "/api/v1/nodes?sub=nobody".to_owned(), 404),
        (Method::POST, path(air, "/refresh?wait_ms=120001"), 400),
    ] {
        let (status, value) = call(&world, method, &path, None).await;
        assert_eq!(status, code, "{path}: {value}");
    }
    assert!(
        get_items(&world, "nodes?sub=air")
            .await
            .as_array()
            .unwrap()
            .is_empty()
    );
    let text = format!("{list} {one} {status}");
    assert!(!text.contains("canary"), "{text}");
}

#[tokio::test]
async fn names_of_addresses_are_told_with_the_rules_they_meet() {
    let rule = "routing { domain(a.test) -> proxy\n";
    let world = World::new(&CONFIG.replace("routing {", rule));
    let dns = &world.engine.dns;
    dns.stage(1, world.engine.snapshot().oracle.clone())
        .unwrap();
    dns.activated();
    let client = "10.0.0.1:4000";
    teach(dns, client, "X.a.test", &[[192, 0, 2, 1], [192, 0, 2, 2]]);
    teach(dns, client, "b.test", &[[192, 0, 2, 1]]);
    let map = get(&world, "/api/v1/dns/map").await;
    assert_eq!(map["total"], 2);
    let shared = &map["items"][0];
    assert_eq!(shared["ip"], "192.0.2.1");
    let names = |item: &Value| -> Vec<String> {
        let names = item["names"].as_array().unwrap().iter();
        names
            .map(|n| n["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(shared), ["b.test", "x.a.test"]);
    assert_eq!(
        (&shared["rules"], &shared["ambiguous"]),
        (&json!([0]), &json!([0]))
    );
    let sole = get(&world, "/api/v1/dns/map?ip=192.0.2.2").await["items"][0].clone();
    assert_eq!(
        (names(&sole), &sole["ambiguous"]),
        (vec!["x.a.test".to_owned()], &json!([]))
    );
    let left = sole["names"][0]["expires_s"].as_u64().unwrap();
    assert!((1..=900).contains(&left), "{left}");
    let first = get(&world, "/api/v1/dns/map?name=X.A.test.&limit=1").await;
    assert_eq!(
        (&first["total"], first["items"].as_array().unwrap().len()),
        (&json!(2), 1)
    );
    assert_eq!(get(&world, "/api/v1/dns/map?name=c.test").await["total"], 0);
    for bad in ["ip=x", "limit=0", "limit=x", "ip=192.0.2.1&name=a.test"] {
        let (status, _) = call(&world, Method::GET, &format!("/api/v1/dns/map?{bad}"), None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}");
    }
}
