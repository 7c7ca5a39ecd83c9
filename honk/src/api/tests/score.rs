//! What is told of Score: enough for a person, nothing about where clients go.

use super::*;
use crate::{app::testkit::serve, flow::CloseReason};

fn world() -> World {
    World::new(&CONFIG.replace("policy: select", "policy: score"))
}

/// Flows to four targets of one network, all answered.
fn answered(world: &World, flows: u8) {
    for n in 0..flows {
        let target = format!("203.0.113.{}:80", n % 4);
        serve(admit(world, Network::Tcp, &target));
    }
}

async fn metrics(world: &World) -> String {
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let bytes = send(world, request).await.into_body().collect().await;
    String::from_utf8(bytes.unwrap().to_bytes().to_vec()).unwrap()
}

fn sample(metrics: &str, series: &str) -> u64 {
    let line = metrics.lines().find_map(|l| l.strip_prefix(series));
    let value = line.unwrap_or_else(|| panic!("no {series} in {metrics}"));
    value.trim().parse().unwrap()
}

// A41, A29
#[tokio::test]
async fn all_faces_tell_the_same() {
    let world = world();
    answered(&world, 40);
    let group = proxy(&world).await;
    let known = &group["scoreVerification"]["tcp"];
    assert_eq!(known["state"], "observedUsable", "{known}");
    assert_eq!(known["selected"], group["selection"]["tcp"]["member_name"]);
    assert_eq!(known["coverage"]["candidates"], 2);
    assert_eq!(known["coverage"]["scope"], "all");
    assert!(known["freshUntil"].is_string(), "{known}");
    let others = known["challengers"].as_object().unwrap().values();
    let others: u64 = others.map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(others + 1, known["coverage"]["evaluated"].as_u64().unwrap());
    let clash = get(&world, "/proxies/proxy").await;
    assert_eq!(
        (&clash["type"], &clash["now"]),
        (&json!("url_test"), &known["selected"])
    );
    assert_eq!(
        clash["scoreVerification"]["tcp"]["challengers"],
        known["challengers"]
    );
    let stats = get(&world, "/stats").await;
    let score = &stats["score"];
    assert_eq!(score["businessStarts"], 40);
    let [told] = &score["groups"].as_array().unwrap()[..] else {
        panic!("{score}")
    };
    assert_eq!(told["name"], "proxy");
    assert_eq!(told["budget"]["tcp"]["businessStarts"], 40);
    assert_eq!(told["budget"]["udp"]["businessStarts"], 0);
    let reasons = honk_policy::score::Reason::ALL.map(|reason| {
        let count = told["tcp"][reason.name()].as_u64().unwrap();
        let labels = format!(
            "{{group=\"proxy\",network=\"tcp\",reason=\"{}\"}}",
            reason.name()
        );
        (format!("honk_score_selections_total{labels}"), count)
    });
    // Each choice has one reason.
    assert_eq!(reasons.iter().map(|(_, n)| n).sum::<u64>(), 40);
    let page = metrics(&world).await;
    for (series, count) in reasons {
        assert_eq!(sample(&page, &series), count, "{series}");
    }
    let state = "{group=\"proxy\",network=\"tcp\",state=\"observedUsable\"}";
    assert_eq!(
        sample(&page, &format!("honk_score_verification_state{state}")),
        1
    );
    let cells = score["cache"]["exactCells"].as_u64().unwrap();
    assert!(cells > 0);
    assert_eq!(
        sample(&page, "honk_score_cache_cells{store=\"exact\"}"),
        cells
    );
    let limit = "honk_score_cache_limit{store=\"comparison\"}";
    assert_eq!(sample(&page, limit), 512);
}

// A41
#[tokio::test]
async fn looking_changes_nothing() {
    let world = world();
    answered(&world, 20);
    let score = |world: &World| world.engine.score.stats();
    let before = score(&world);
    for _ in 0..20 {
        for path in [
            "/stats",
            "/proxies",
            "/group/proxy",
            "/api/v1/groups",
            "/api/v1/status",
        ] {
            get(&world, path).await;
        }
        metrics(&world).await;
    }
    assert_eq!(score(&world), before);
}

// A40
#[tokio::test]
async fn neither_targets_nor_nodes_are_told() {
    let world = world();
    let canary = "canary.example";
    teach(
        &world.engine.dns,
        "192.168.1.2:5353",
        canary,
        &[[203, 0, 113, 77]],
    );
    let route = admit(&world, Network::Tcp, "203.0.113.77:4433");
    let node = route.leaf.id.0.to_string();
    route.guard.entry.started();
    route.guard.close(CloseReason::Reset);
    answered(&world, 10);
    let stats = get(&world, "/stats").await["score"].to_string();
    let page = metrics(&world).await;
    let score = page.lines().filter(|l| l.starts_with("honk_score_"));
    let score: String = score.collect();
    assert!(score.contains("honk_score_selections_total"));
    for secret in [canary, "203.0.113", "4433", "192.0.2.", node.as_str()] {
        assert!(!stats.contains(secret), "{secret}: {stats}");
        assert!(!score.contains(secret), "{secret}: {score}");
    }
    // Targets are nowhere on the page.
    for secret in [canary, "203.0.113"] {
        assert!(!page.contains(secret), "{secret}");
    }
    let group = proxy(&world).await["scoreVerification"].to_string();
    let clash = get(&world, "/proxies/proxy").await["scoreVerification"].to_string();
    for secret in [canary, "203.0.113", node.as_str()] {
        assert!(
            !group.contains(secret) && !clash.contains(secret),
            "{secret}"
        );
    }
}

#[tokio::test]
async fn groups_with_other_policies_have_no_score() {
    let world = World::new(CONFIG);
    answered(&world, 3);
    assert_eq!(proxy(&world).await["scoreVerification"], Value::Null);
    let clash = get(&world, "/proxies/proxy").await;
    assert_eq!(clash.get("scoreVerification"), None);
    let stats = get(&world, "/stats").await;
    assert_eq!(stats["score"]["groups"], json!([]));
    assert_eq!(stats["score"]["businessStarts"], 0);
    let page = metrics(&world).await;
    assert!(!page.contains("honk_score_selections_total{"));
    assert_eq!(sample(&page, "honk_score_cache_cells{store=\"exact\"}"), 0);
}

#[tokio::test]
async fn a_pin_shows_and_the_score_stays() {
    let world = world();
    answered(&world, 10);
    let group = proxy(&world).await;
    let path = format!("/api/v1/groups/{}/selection", group["id"].as_str().unwrap());
    let member = &group["members"][1];
    let body = json!({ "member_id": member["id"], "network": "both" });
    let (status, value) = call(&world, Method::PUT, &path, Some(body)).await;
    assert_eq!(status, StatusCode::OK, "{value}");
    let clash = get(&world, "/proxies/proxy").await;
    assert_eq!(
        (&clash["now"], &clash["fixed"]),
        (&member["name"], &member["name"])
    );
    assert!(clash["scoreVerification"]["tcp"]["state"].is_string());
    let body = json!({ "name": "a" });
    let (status, value) = call(&world, Method::PUT, "/proxies/proxy", Some(body)).await;
    assert_eq!(
        (status, &value["message"]),
        (StatusCode::BAD_REQUEST, &json!("must be a Selector group"))
    );
}

#[tokio::test]
async fn stats_count_what_outbounds_carried() {
    let world = World::new(CONFIG);
    answered(&world, 2);
    let route = admit(&world, Network::Tcp, "203.0.113.1:80");
    route.guard.entry.counters.add_up(5);
    let failed = admit(&world, Network::Tcp, "203.0.113.1:80");
    failed.guard.close(CloseReason::DialFailed);
    let stats = get(&world, "/stats").await;
    let all = stats["outbounds"].as_array().unwrap();
    let proxy = all.iter().find(|o| o["name"] == "proxy").unwrap();
    let expected = json!({
        "name": "proxy", "totalConns": 4, "activeConns": 1, "upload": 205, "download": 2000,
        "errors": 1,
    });
    assert_eq!(*proxy, expected);
    assert_eq!(stats["generation"], 1);
    assert!(stats["uptimeSecs"].is_u64());
    drop(route);
}
