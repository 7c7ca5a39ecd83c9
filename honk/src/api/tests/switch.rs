//! Nodes are switched off and on.

use super::*;

#[tokio::test]
async fn a_node_is_switched_off_with_a_word_and_on_again() {
    let world = World::new(CONFIG);
    let nodes = get(&world, "/api/v1/nodes").await;
    let id = |at: usize| nodes["items"][at]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/nodes/{}", id(0));
    let patch = async |path: &str, body: Value| call(&world, Method::PATCH, path, Some(body)).await;
    let off = json!({ "enabled": false, "reason": "too slow" });
    let (status, node) = patch(&path, off).await;
    assert_eq!(status, StatusCode::OK, "{node}");
    assert_eq!(node["state"], "disabled");
    let disabled = &node["disabled"];
    assert_eq!(
        (&disabled["by"], &disabled["reason"]),
        (&json!("user"), &json!("too slow"))
    );
    assert!(disabled["at"].is_string() && disabled["body_hash"].is_null());
    // Everybody sees it, and nobody is sent there.
    let group = proxy(&world).await;
    assert_eq!(group["members"][0]["eligible"]["tcp"]["reason"], "disabled");
    assert_eq!(get(&world, "/proxies/a").await["alive"], false);
    for (query, total) in [("state=disabled", 1), ("by=user", 1), ("by=auto", 0)] {
        let list = get(&world, &format!("/api/v1/nodes?{query}")).await;
        assert_eq!(list["total"], total, "{query}");
    }
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let page = send(&world, request)
        .await
        .into_body()
        .collect()
        .await
        .unwrap();
    let page = String::from_utf8(page.to_bytes().to_vec()).unwrap();
    let line = page.lines().find(|l| l.starts_with("honk_node_disabled{"));
    assert!(line.unwrap().contains("by=\"user\""), "{line:?}");
    let (_, node) = patch(&path, json!({ "enabled": true })).await;
    assert_eq!(
        (&node["disabled"], &node["state"]),
        (&Value::Null, &json!("unknown"))
    );
    let group = proxy(&world).await;
    assert_eq!(group["members"][0]["eligible"]["tcp"]["ok"], true);

    let builtin = format!("/api/v1/nodes/{}", id(3));
    let long = "x".repeat(201);
    for (path, body, status) in [
        (&path, json!({ "reason": "x" }), 400),
        (&path, json!({ "enabled": "no" }), 400),
        (&path, json!({ "enabled": false, "detour": "x" }), 400),
        (&path, json!({ "enabled": false, "reason": long }), 422),
        (&path, json!({ "enabled": false, "reason": "a\nb" }), 422),
        (&builtin, json!({ "enabled": false }), 422),
        (
            &"/api/v1/nodes/x".to_owned(),
            json!({ "enabled": false }),
            404,
        ),
        (
            &format!("/api/v1/nodes/{}", uuid::Uuid::nil()),
            json!({ "enabled": false }),
            404,
        ),
    ] {
        let (got, answer) = patch(path, body).await;
        assert_eq!(got, status, "{path}: {answer}");
    }
    let (status, error) = call(&world, Method::GET, "/api/v1/nodes?by=me", None).await;
    assert_eq!(
        (status.as_u16(), &error["error"]["code"]),
        (400, &json!("bad_query"))
    );
}
