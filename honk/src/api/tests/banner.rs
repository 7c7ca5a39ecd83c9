//! What is told once, until somebody acknowledges it.

use super::*;

// H-123
#[tokio::test]
async fn the_banner_stays_until_it_is_acknowledged() {
    let world = World::new(&CONFIG.replacen("node {", "node { bad: 'socks5://0.0.0.0:9'\n", 1));
    let trigger = crate::app::reload::Trigger::Api;
    world.engine.reload(trigger, false).await.unwrap();
    let banner = get(&world, "/api/v1/status").await["banner"].clone();
    assert_eq!(banner["text"], "1 node disabled: bad");
    let node = get(
        &world,
        &format!("/api/v1/nodes/{}", banner["nodes"][0].as_str().unwrap()),
    )
    .await;
    assert_eq!(
        (&node["state"], &node["disabled"]["by"]),
        (&json!("disabled"), &json!("auto"))
    );
    let ack = format!("/api/v1/banners/{}/ack", banner["id"].as_str().unwrap());
    let (status, _) = call(&world, Method::POST, &ack, None).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(get(&world, "/api/v1/status").await["banner"], Value::Null);
    let (status, _) = call(&world, Method::POST, &ack, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}
