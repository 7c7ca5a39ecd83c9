//! Clash as dashboards speak it.

use std::time::Duration;

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use honk_policy::config::CheckUrl;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tower::ServiceExt as _;

use crate::app::{
    pings::{What, Wish},
    testkit::{CONFIG, World, subscribed},
};

/// A selector with a nested group and a twin, an automatic group, a node that a rule names.
fn config() -> String {
    CONFIG
        .replace("node { a:", "node { a: 'socks5://192.0.2.9:1080'\n a:")
        .replace(
            "group {",
            "group { auto { policy: fallback filter: name(b, a) icon: 'https://x.example/i' }
                     empty { filter: name(nothing) }
                     outer { policy: select filter: name(c) filter: group(auto) }",
        )
}

pub(super) async fn call(world: &World, method: Method, path: &str, body: &str) -> (u16, Value) {
    let router = crate::api::router(world.engine.clone());
    // Dashboards send no content type.
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (
        status,
        serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    )
}

pub(super) async fn get(world: &World, path: &str) -> Value {
    let (status, value) = call(world, Method::GET, path, "").await;
    assert_eq!(status, 200, "{path}: {value}");
    value
}

#[tokio::test]
async fn dashboards_learn_what_this_is() {
    let world = World::new(CONFIG);
    let version = get(&world, "/version").await;
    let text = version["version"].as_str().unwrap();
    assert!(text.starts_with("honk "), "{text}");
    assert_eq!(
        (&version["premium"], &version["meta"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(get(&world, "/").await, json!({ "hello": "honk" }));
}

#[tokio::test]
async fn groups_and_nodes_have_the_fields_that_dashboards_read() {
    let world = World::new(&config());
    let proxies = get(&world, "/proxies").await["proxies"].clone();
    let names: Vec<&String> = proxies.as_object().unwrap().keys().collect();
    let mut sorted = names.clone();
    sorted.sort();
    let all = [
        "GLOBAL", "a", "auto", "b", "block", "c", "direct", "empty", "outer", "proxy",
    ];
    assert_eq!(sorted, all);
    let order = json!([
        "auto", "empty", "outer", "proxy", "a", "b", "c", "direct", "block"
    ]);
    assert_eq!(
        proxies["GLOBAL"]["all"], order,
        "the order of the configuration"
    );
    assert_eq!(proxies["GLOBAL"]["now"], "auto");
    for (name, kind, members, now) in [
        ("proxy", "Selector", json!(["a", "b"]), "a"),
        ("outer", "Selector", json!(["c", "auto"]), "c"),
        ("auto", "Fallback", json!(["b", "a"]), "b"),
        ("empty", "Selector", json!([]), ""),
    ] {
        let group = &proxies[name];
        assert_eq!(group["type"], kind, "{group}");
        if name != "auto" {
            assert_eq!(group["all"], members, "{group}");
            assert_eq!(group["now"], now, "{group}");
        }
        assert_eq!(group["fixed"], "");
        assert_eq!(group["hidden"], false);
        assert!(group["testUrl"].as_str().unwrap().starts_with("http"));
        assert!(group["history"].is_array() && group["extra"].is_object());
        assert_eq!(group, &get(&world, &format!("/proxies/{name}")).await);
        assert_eq!(group, &get(&world, &format!("/group/{name}")).await);
    }
    assert_eq!(proxies["auto"]["icon"], "https://x.example/i");
    for (name, kind, udp) in [
        ("a", "Socks5", true),
        ("c", "Http", false),
        ("direct", "Direct", true),
        ("block", "Reject", true),
    ] {
        let node = &proxies[name];
        assert_eq!((&node["type"], &node["udp"]), (&json!(kind), &json!(udp)));
        assert_eq!(node["alive"], true, "nobody found it dead");
        for flag in ["xudp", "uot", "tfo", "mptcp", "smux"] {
            assert_eq!(node[flag], false);
        }
        assert_eq!(node["id"].as_str().map(str::len), Some(36));
    }
    let text = proxies.to_string();
    assert!(
        !text.contains("192.0.2.") && !text.contains("1080"),
        "{text}"
    );
    let groups = get(&world, "/group").await["proxies"].clone();
    assert_eq!(groups.as_array().map(Vec::len), Some(4));
    assert_eq!(call(&world, Method::GET, "/group/a", "").await.0, 404);
}

#[tokio::test]
async fn a_choice_moves_both_networks_and_only_selectors_take_one() {
    let world = World::new(&config());
    let choose = async |group: &str, body: &str| {
        let path = format!("/proxies/{group}");
        call(&world, Method::PUT, &path, body).await
    };
    assert_eq!(choose("proxy", r#"{"name":"b"}"#).await, (204, Value::Null));
    let native = get(&world, "/api/v1/groups/by-name/proxy").await;
    for network in ["tcp", "udp"] {
        assert_eq!(native["selection"][network]["leaf_name"], "b");
    }
    assert_eq!(get(&world, "/proxies/proxy").await["now"], "b");
    // A nested group is a member by its name.
    assert_eq!(choose("outer", r#"{"name":"auto"}"#).await.0, 204);
    assert_eq!(get(&world, "/proxies/outer").await["now"], "auto");
    for (group, body, status, word) in [
        ("auto", r#"{"name":"a"}"#, 400, "must be a Selector group"),
        ("a", r#"{"name":"a"}"#, 400, "must be a Selector group"),
        ("GLOBAL", r#"{"name":"a"}"#, 400, "Rule"),
        ("proxy", r#"{"name":"c"}"#, 400, "no such member"),
        ("proxy", r#"{"nam":"c"}"#, 400, "body"),
        ("proxy", "x", 400, "body"),
        ("nope", r#"{"name":"a"}"#, 404, "no such proxy"),
    ] {
        let (got, error) = choose(group, body).await;
        assert_eq!(got, status, "{group} {body}: {error}");
        let error = error.as_object().unwrap();
        assert_eq!(error.len(), 1, "{error:?}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(get(&world, "/proxies/proxy").await["now"], "b");
}

#[tokio::test]
async fn networks_that_differ_and_pins_are_shown_and_pins_can_be_dropped() {
    let world = World::new(&config());
    let select = async |name: &str, at: usize, network: &str| {
        let group = get(&world, &format!("/api/v1/groups/by-name/{name}")).await;
        let member = &group["members"][at];
        let body = json!({ "member_id": member["id"], "network": network });
        let path = format!("/api/v1/groups/{}/selection", group["id"].as_str().unwrap());
        let request = Request::put(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_string())).unwrap();
        let router = crate::api::router(world.engine.clone());
        let answer = router.oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        member["name"].clone()
    };
    let udp = select("outer", 1, "udp").await;
    let outer = get(&world, "/proxies/outer").await;
    assert_eq!((&outer["now"], &outer["nowUdp"]), (&json!("c"), &udp));
    assert_eq!(get(&world, "/proxies/proxy").await.get("nowUdp"), None);

    let first = get(&world, "/proxies/auto").await["now"].clone();
    let pinned = select("auto", 1, "both").await;
    let auto = get(&world, "/proxies/auto").await;
    assert_eq!((&auto["now"], &auto["fixed"]), (&pinned, &pinned));
    assert_eq!(
        call(&world, Method::DELETE, "/proxies/auto", "").await.0,
        204
    );
    let auto = get(&world, "/proxies/auto").await;
    assert_eq!((&auto["now"], &auto["fixed"]), (&first, &json!("")));
    assert_eq!(
        call(&world, Method::DELETE, "/proxies/proxy", "").await.0,
        400
    );
    assert_eq!(
        call(&world, Method::DELETE, "/proxies/nope", "").await.0,
        404
    );
}

#[tokio::test]
async fn paths_that_are_not_served_say_so_in_the_same_shape() {
    let world = World::new(CONFIG);
    for (method, path, expected) in [
        (Method::GET, "/dns/query", 404),
        (Method::GET, "/storage/x", 404),
        (Method::GET, "/profile/tracing", 404),
        (Method::GET, "/proxies/nope", 404),
        (Method::GET, "/restart", 404),
        (Method::POST, "/restart", 501),
        (Method::GET, "/upgrade", 404),
        (Method::POST, "/upgrade", 501),
        (Method::PATCH, "/rules/disable", 501),
        (Method::GET, "/cache/fakeip/flush", 405),
    ] {
        let (status, body) = call(&world, method, path, "").await;
        assert_eq!(status, expected, "{path}");
        assert!(
            body["message"].is_string() && body.get("error").is_none(),
            "{body}"
        );
    }
    let (status, body) = call(&world, Method::POST, "/proxies", "").await;
    assert_eq!(status, 405);
    assert!(body["message"].is_string(), "{body}");
}

/// A proxy that answers every request itself, with the port it listens on.
async fn answering() -> u16 {
    let (listener, port) = silent().await;
    answer(listener);
    port
}

/// A proxy that answers nothing yet.
async fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn answer(listener: TcpListener) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                for answer in ["200 Connected", "204 No Content"] {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => return,
                        }
                    }
                    let answer = format!("HTTP/1.1 {answer}\r\n\r\n");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[tokio::test]
async fn delays_are_numbers_and_failures_are_errors() {
    let good = answering().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bad = closed.local_addr().unwrap().port();
    drop(closed);
    let world = World::new(&format!(
        "global {{ lan_interface: lan0 }}
         node {{ good: 'http://127.0.0.1:{good}' bad: 'http://127.0.0.1:{bad}' }}
         group {{ proxy {{ policy: select filter: name(good, bad) }}
                  broken {{ policy: select filter: name(bad) }} }}
         routing {{ fallback: proxy }}"
    ));
    world.measure();
    let asked = "delay?timeout=20000&url=http%3A%2F%2F192.0.2.77%2F";
    let delay = get(&world, &format!("/proxies/good/{asked}")).await;
    assert!(delay["delay"].as_u64().unwrap() > 0, "{delay}");
    let (status, error) = call(&world, Method::GET, &format!("/proxies/bad/{asked}"), "").await;
    assert_eq!(status, 503, "{error}");
    assert!(error["message"].is_string());

    let delays = get(&world, &format!("/group/proxy/{asked}")).await;
    let delays = delays.as_object().unwrap();
    assert_eq!(
        delays.keys().collect::<Vec<_>>(),
        ["good"],
        "failures are left out"
    );
    let current = get(&world, &format!("/proxies/proxy/{asked}")).await;
    assert!(current["delay"].as_u64().unwrap() > 0, "{current}");
    let (status, _) = call(&world, Method::GET, &format!("/proxies/broken/{asked}"), "").await;
    assert_eq!(status, 503);

    for (expected, status) in [("204", 200), ("200/300-399", 503)] {
        let path = format!("/proxies/good/{asked}&expected={expected}");
        let (got, body) = call(&world, Method::GET, &path, "").await;
        assert_eq!(got, status, "{expected}: {body}");
    }
    let path = format!("/group/proxy/{asked}&expected=200");
    assert_eq!(
        get(&world, &path).await,
        json!({}),
        "no member answers with that"
    );
    get(&world, &format!("/proxies/good/{asked}")).await;

    // What was measured is the history.
    let node = get(&world, "/proxies/good").await;
    let last = node["history"].as_array().unwrap().last().unwrap().clone();
    assert!(
        last["delay"].as_u64().unwrap() > 0 && last["time"].is_string(),
        "{node}"
    );
    assert_eq!(node["extra"]["http://192.0.2.77/"]["alive"], true, "{node}");
    let node = get(&world, "/proxies/bad").await;
    assert_eq!(node["history"][0]["delay"], 0, "{node}");
    assert_eq!(
        get(&world, "/proxies/proxy").await["now"],
        "good",
        "nothing moved"
    );

    for (path, status) in [
        ("/proxies/good/delay?timeout=5", 400),
        ("/proxies/good/delay?timeout=x", 400),
        ("/proxies/good/delay?url=nonsense", 400),
        ("/proxies/good/delay?expected=2xx", 400),
        ("/proxies/nope/delay", 404),
        ("/proxies/block/delay", 503),
        ("/group/nope/delay", 404),
        ("/group/good/delay", 404),
    ] {
        let (got, body) = call(&world, Method::GET, path, "").await;
        assert_eq!(got, status, "{path}: {body}");
        assert!(body["message"].is_string(), "{path}: {body}");
    }
}

#[tokio::test]
async fn a_run_is_joined_by_those_who_ask_for_the_same() {
    let (listener, port) = silent().await;
    let world = World::new(&format!(
        "global {{ lan_interface: lan0 }}
         node {{ slow: 'http://127.0.0.1:{port}' }}
         group {{ proxy {{ policy: select filter: name(slow) }} }}
         routing {{ fallback: proxy }}"
    ));
    world.measure();
    let wish = Wish {
        url: Some(CheckUrl::parse("http://192.0.2.77/").unwrap()),
        timeout: Some(Duration::from_secs(30)),
        ..Wish::default()
    };
    let what = What::Group(world.group("proxy"));
    let run = world.engine.ping(&what, wish).unwrap();
    let asked = "/group/proxy/delay?url=http%3A%2F%2F192.0.2.77%2F";
    for other in [
        "/group/proxy/delay?timeout=30000",
        &format!("{asked}&timeout=20000"),
        &format!("{asked}&timeout=30000&expected=204"),
        "/proxies/proxy/delay",
    ] {
        let (status, error) = call(&world, Method::GET, other, "").await;
        assert_eq!(status, 503, "{other}: {error}");
    }
    // The group is being measured: that will do.
    let check = "/providers/proxies/proxy/healthcheck";
    assert_eq!(call(&world, Method::GET, check, "").await.0, 204);
    let same = format!("{asked}&timeout=30000");
    let (delays, ()) = tokio::join!(get(&world, &same), async { answer(listener) });
    assert!(delays["slow"].as_u64().unwrap() > 0, "{delays}");
    let runs = world.engine.pings().unwrap().runs.list();
    assert_eq!(runs.iter().map(|r| r.id).collect::<Vec<_>>(), [run]);
}

#[tokio::test]
async fn a_provider_is_not_measured_by_a_run_of_other_nodes() {
    let (_listener, port) = silent().await;
    let text = subscribed().replace(
        "node {",
        &format!("node {{ slow: 'http://127.0.0.1:{port}'\n"),
    );
    let world = World::new(&text);
    world.measure();
    let snapshot = world.engine.snapshot();
    let slow = snapshot.groups.nodes().iter().find(|n| n.name == "slow");
    let what = What::Nodes(vec![slow.unwrap().id]);
    let run = world.engine.ping(&what, Wish::default()).unwrap();
    let check = async |name: &str| {
        let path = format!("/providers/proxies/{name}/healthcheck");
        call(&world, Method::GET, &path, "").await
    };
    let (status, error) = check("default").await;
    assert_eq!(status, 503, "{error}");
    assert!(error["message"].is_string());
    // There is no node yet to be measured.
    assert_eq!(check("air").await.0, 204);
    let runs = &world.engine.pings().unwrap().runs;
    assert_eq!(runs.list().len(), 1);
    runs.cancel(run).await;
    assert_eq!(check("default").await.0, 204);
    let all = runs.list();
    let last = all.iter().max_by_key(|run| run.id).unwrap();
    assert_eq!((all.len(), last.total), (2, 4));
}
