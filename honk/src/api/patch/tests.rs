//! Changes of groups through the API, in the file of a daemon without a kernel.

use axum::{
    body::Body,
    http::{Request, header},
};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::app::testkit::{CONFIG, World};

const FILE: &str = "
global { lan_interface: lan0 }
node { a: 'socks5://user:canary@192.0.2.1:1080' }
group {
    # chosen by hand
    proxy {
        policy: select   # for now
        filter: name(a)
        interrupt_connections: true
    }
}
routing { fallback: proxy }
";

async fn patch(world: &World, query: &str, tag: Option<&str>, body: &Value) -> (u16, Value) {
    let router = crate::api::router(world.engine.clone());
    let id = world.group("proxy");
    let request = Request::patch(format!("/api/v1/groups/{}{query}", id.0))
        .header(header::CONTENT_TYPE, "application/merge-patch+json");
    let request = match tag {
        Some(tag) => request.header(header::IF_MATCH, format!("\"{tag}\"")),
        None => request,
    };
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (
        status,
        serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    )
}

/// With the revision of the configuration.
async fn change(world: &World, query: &str, body: Value) -> (u16, Value) {
    let revision = world.engine.snapshot().revision.to_string();
    patch(world, query, Some(&revision), &body).await
}

fn file(world: &World) -> String {
    std::fs::read_to_string(&world.engine.spec.entry).unwrap()
}

#[tokio::test]
async fn a_change_is_written_in_place_and_becomes_active() {
    let world = World::new(FILE);
    let body = json!({ "final": "direct", "interrupt_connections": null });
    let (status, result) = change(&world, "", body).await;
    assert_eq!(status, 200, "{result}");
    assert_eq!(result["write"]["status"], "written");
    assert_eq!(result["activation"]["status"], "applied");
    assert_eq!(result["activation"]["generation"], 2);
    assert_eq!(result["group"]["final"]["name"], "direct");
    assert_eq!(result["group"]["interrupt_connections"], false);
    let text = file(&world);
    let expected = FILE
        .replace("        interrupt_connections: true\n", "")
        .replace("name(a)\n", "name(a)\n        final: 'direct'\n");
    assert_eq!(text, expected, "every other byte stays");
    let diff = result["write"]["diff"].as_str().unwrap();
    assert!(diff.contains("+        final: 'direct'"), "{diff}");
    assert!(
        diff.contains("-        interrupt_connections: true"),
        "{diff}"
    );
    assert_eq!(world.engine.snapshot().generation, 2);

    // Its own revision is as good a fence as that of the configuration.
    let revision = result["group"]["revision"].as_str().unwrap().to_owned();
    let body = json!({ "policy": "urltest", "tolerance_ms": 80, "idle_timeout_s": 60 });
    let (status, result) = patch(&world, "", Some(&revision), &body).await;
    assert_eq!(status, 200, "{result}");
    assert_eq!(result["group"]["policy"], "urltest");
    assert_eq!(result["group"]["tolerance_ms"], 80);
    assert_eq!(result["group"]["idle_timeout_s"], 60);
    assert!(
        file(&world).contains("policy: urltest   # for now"),
        "{}",
        file(&world)
    );
    let (status, error) = patch(&world, "", Some(&revision), &body).await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (412, &json!("revision_mismatch"))
    );
}

#[tokio::test]
async fn the_same_again_writes_nothing() {
    let world = World::new(FILE);
    let body = json!({ "interrupt_connections": true });
    let (status, result) = change(&world, "", body).await;
    assert_eq!(status, 200, "{result}");
    assert_eq!(result["write"]["status"], "unchanged");
    assert_eq!(result["activation"]["generation"], 1);
    assert_eq!(file(&world), FILE);
}

#[tokio::test]
async fn a_dry_run_shows_the_difference_and_no_credential() {
    let one_line = CONFIG
        .replace("socks5://", "socks5://u:canary@")
        .replace('\n', " ");
    let world = World::new(&one_line);
    let (status, result) = change(&world, "?dry_run=true", json!({ "final": "direct" })).await;
    assert_eq!(status, 200, "{result}");
    assert_eq!(result["write"]["status"], "dry_run");
    let diff = result["write"]["diff"].as_str().unwrap();
    assert!(diff.contains("final: 'direct'"), "{diff}");
    assert!(
        !diff.contains("canary") && !diff.contains("192.0.2.1"),
        "{diff}"
    );
    assert_eq!(file(&world), one_line);
    assert_eq!(world.engine.snapshot().generation, 1);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let world = World::new(FILE);
    let (status, error) = patch(&world, "", None, &json!({ "final": "direct" })).await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (428, &json!("precondition_required"))
    );
    let stale = patch(
        &world,
        "",
        Some("g-0000000000000000"),
        &json!({ "final": "direct" }),
    )
    .await;
    assert_eq!(stale.0, 412);
    for (body, status, code, field) in [
        (json!({ "icon": "x" }), 422, "unsupported_field", "icon"),
        (json!({ "name": "x" }), 422, "unsupported_field", "name"),
        (
            json!({ "filters": [] }),
            422,
            "unsupported_field",
            "filters",
        ),
        (json!({ "policy": "fastest" }), 400, "bad_request", "policy"),
        (json!({ "policy": 1 }), 400, "bad_request", "policy"),
        (
            json!({ "tolerance_ms": 65536 }),
            400,
            "bad_request",
            "tolerance_ms",
        ),
        (
            json!({ "idle_timeout_s": -1 }),
            400,
            "bad_request",
            "idle_timeout_s",
        ),
        (
            json!({ "interrupt_connections": "on" }),
            400,
            "bad_request",
            "interrupt_connections",
        ),
        (json!({ "tolerance_ms": 5 }), 422, "invalid", "tolerance_ms"),
    ] {
        let (got, error) = change(&world, "", body.clone()).await;
        let error = &error["error"];
        assert_eq!((got, &error["code"]), (status, &json!(code)), "{body}");
        assert_eq!(error["details"]["field"], field, "{body}");
    }
    // Valid as a value, and not as a configuration.
    let (status, error) = change(&world, "", json!({ "check_url": "nonsense" })).await;
    assert_eq!((status, &error["error"]["code"]), (422, &json!("invalid")));
    let found = &error["error"]["details"]["diagnostics"];
    assert!(
        found.as_array().is_some_and(|list| !list.is_empty()),
        "{error}"
    );
    let (status, _) = change(&world, "", json!({ "final": "both ' and \"" })).await;
    assert_eq!(status, 422);
    let (status, _) = change(&world, "", json!([1])).await;
    assert_eq!(status, 400);
    assert_eq!(file(&world), FILE);
    assert_eq!(world.engine.snapshot().generation, 1);
}

#[tokio::test]
async fn an_edit_by_hand_comes_first() {
    let world = World::new(FILE);
    let edited = FILE.replace("# for now", "# for ever");
    world.edit(&edited);
    let (status, error) = change(&world, "", json!({ "final": "direct" })).await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (409, &json!("source_changed"))
    );
    assert_eq!(file(&world), edited);
}

#[tokio::test]
async fn a_written_change_that_is_not_activated_stays_written() {
    let world = World::new(FILE);
    *world.kernel.refuse_commit.lock().unwrap() = true;
    let (status, result) = change(&world, "", json!({ "final": "direct" })).await;
    assert_eq!(status, 202, "{result}");
    assert_eq!(result["write"]["status"], "written");
    assert_eq!(result["activation"]["status"], "rejected");
    assert_eq!(
        result["group"]["final"],
        Value::Null,
        "the old generation serves"
    );
    assert!(file(&world).contains("final: 'direct'"));
}

#[tokio::test]
async fn mode_and_owner_of_the_file_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new(FILE);
    let path = &world.engine.spec.entry;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let (status, result) = change(&world, "", json!({ "final": "direct" })).await;
    assert_eq!(status, 200, "{result}");
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    let dir = path.parent().unwrap();
    let left = std::fs::read_dir(dir).unwrap().flatten();
    assert!(
        left.into_iter()
            .all(|e| !e.file_name().to_string_lossy().contains(".tmp"))
    );
}
