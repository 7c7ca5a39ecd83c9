//! Measurements of nodes and groups.

use std::time::Duration;

use super::*;

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn measurements_fail_with_their_stage_and_are_kept_by_group() {
    // Port 1 of loopback: nobody listens there.
    let config = CONFIG.replace("192.0.2.1:1080", "127.0.0.1:1").replace(
        "policy: select",
        "policy: select ping_url: 'http://check.test/x' ping_timeout: 9s",
    );
    let world = World::new(&config);
    let group = proxy(&world).await;
    let id = group["id"].as_str().unwrap();
    let node = group["members"][0]["id"].as_str().unwrap();
    let path = format!("/api/v1/nodes/{node}/delay-test");
    let (status, body) = call(&world, Method::POST, &path, None).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");

    world.measure();
    let asked = json!({ "group_id": id });
    let (status, body) = call(&world, Method::POST, &path, Some(asked)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(
        (&body["ok"], &body["delay_ms"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(body["error"]["stage"], "dial");
    assert_eq!(body["url"], "http://check.test/x");
    assert_eq!(body["timeout_ms"], 9000);
    let kept = get(&world, &format!("/api/v1/groups/{id}/measurements")).await;
    let first = &kept["items"][0];
    assert!(
        first["sample"]["error"]
            .as_str()
            .unwrap()
            .starts_with("a → check.test — dial: ")
    );
    assert_eq!(
        (&first["foreign"], &first["pending"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(kept["items"][1]["sample"], Value::Null);

    let test = format!("/api/v1/groups/{id}/test");
    let (status, body) = call(&world, Method::POST, &test, None).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    for (asked, want) in [
        (json!({ "url": "ftp://x/" }), StatusCode::BAD_REQUEST),
        (json!({ "timeout_ms": 99 }), StatusCode::BAD_REQUEST),
        (json!({ "timeout_ms": 30_001 }), StatusCode::BAD_REQUEST),
        (json!({ "family": "v5" }), StatusCode::BAD_REQUEST),
        (json!({ "group_id": node }), StatusCode::NOT_FOUND),
    ] {
        let (status, body) = call(&world, Method::POST, &path, Some(asked)).await;
        assert_eq!(status, want, "{body}");
    }
}

#[tokio::test]
async fn a_run_is_begun_seen_and_called_off() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let world = World::new(&CONFIG.replace("192.0.2.1:1080", &silent));
    world.measure();
    let group = proxy(&world).await;
    let id = group["id"].as_str().unwrap();
    let asked = json!({ "kind": "delay", "scope": { "group_id": id }, "concurrency": 1,
        "timeout_ms": 30_000 });
    let (status, run) = call(&world, Method::POST, "/api/v1/tests", Some(asked.clone())).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{run}");
    assert_eq!(
        (&run["state"], &run["total"]),
        (&json!("running"), &json!(2))
    );
    let run = run["id"].as_str().unwrap();
    let (status, body) = call(&world, Method::POST, "/api/v1/tests", Some(asked.clone())).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(body["error"]["code"], "already_running");
    assert_eq!(body["error"]["details"]["id"], run);
    let path = format!("/api/v1/groups/{id}/measurements");
    assert_eq!(get(&world, &path).await["items"][0]["pending"], true);

    let (status, body) = call(&world, Method::POST, "/api/v1/tests?toggle=1", Some(asked)).await;
    assert_eq!((status, &body["cancelled"]), (StatusCode::OK, &json!(true)));
    let run = get(&world, &format!("/api/v1/tests/{run}")).await;
    assert_eq!(
        (&run["state"], &run["done"]),
        (&json!("cancelled"), &json!(0))
    );
    assert_eq!(get(&world, &path).await["items"][0]["pending"], false);
    assert_eq!(get(&world, "/api/v1/tests").await["total"], 1);
    let (status, _) = call(&world, Method::DELETE, "/api/v1/tests/77", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_run_keeps_to_order_and_family_and_tells_its_progress() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let config = CONFIG.replace("192.0.2.1:1080", &silent);
    let world = World::new(&config.replace("192.0.2.2:1080", "127.0.0.1:1"));
    world.measure();
    let mut events = world.engine.events.listen(None).live;
    let group = proxy(&world).await;
    let member = |at: usize| group["members"][at]["id"].clone();
    let order = json!([member(1)]);
    let path = format!(
        "/api/v1/groups/{}/delay-test",
        group["id"].as_str().unwrap()
    );
    let asked = json!({ "concurrency": 1, "order": order, "timeout_ms": 30_000 });
    let (status, run) = call(&world, Method::POST, &path, Some(asked)).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{run}");
    // The second one is asked first and refuses at once; the first one says nothing.
    let mut told = async |kind: &str| loop {
        let event = tokio::time::timeout(LONG, events.recv())
            .await
            .unwrap()
            .unwrap();
        if event.kind == kind {
            return event.body["data"].clone();
        }
    };
    let progress = told("test.progress").await;
    let counts = (&progress["done"], &progress["total"], &progress["failed"]);
    assert_eq!(counts, (&json!(1), &json!(2), &json!(1)));
    let run = format!("/api/v1/tests/{}", run["id"].as_str().unwrap());
    let seen = get(&world, &run).await;
    assert_eq!(seen["results"][0]["node_id"], member(1), "{seen}");
    let (status, _) = call(&world, Method::DELETE, &run, None).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(told("test.done").await["state"], "cancelled");

    let asked = json!({ "order": [group["id"]] });
    let (status, error) = call(&world, Method::POST, &path, Some(asked)).await;
    assert_eq!(
        (status.as_u16(), &error["error"]["code"]),
        (422, &json!("not_a_member"))
    );
    let path = format!("/api/v1/nodes/{}/delay-test", member(1).as_str().unwrap());
    for (family, stage) in [("v6", "resolve"), ("v4", "dial"), ("any", "dial")] {
        let asked = json!({ "family": family });
        let (_, body) = call(&world, Method::POST, &path, Some(asked)).await;
        assert_eq!(body["error"]["stage"], stage, "{family}: {body}");
    }
}
