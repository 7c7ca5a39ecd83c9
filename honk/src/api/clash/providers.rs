//! Subscriptions as providers of proxies. Groups are listed as well, as clients expect, and
//! nodes of the file itself as `default`.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use honk_policy::node::Node;
use serde_json::{Map, Value, json};

use super::{
    Shared,
    delay::{self, Asked},
    doc::Documents,
};
use crate::{
    api::{error::ApiError, subscriptions},
    app::{engine::Engine, subscriptions::View},
    clock,
};

/// Longest wait for a fetch.
const FETCH: Duration = Duration::from_secs(60);
/// Name of the provider of nodes that stand in the file.
const OWN: &str = "default";

pub(super) async fn list(State(shared): State<Shared>) -> Json<Value> {
    Json(json!({ "providers": all(&shared) }))
}

pub(super) async fn one(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let found = all(&shared).remove(&name);
    found.map(Json).ok_or_else(unknown)
}

/// Rules come from the configuration alone.
pub(super) async fn of_rules() -> Json<Value> {
    Json(json!({ "providers": {} }))
}

pub(super) async fn no_rules() -> ApiError {
    ApiError::not_found("provider", "no such provider of rules")
}

fn all(shared: &Shared) -> Map<String, Value> {
    let documents = Documents::of(shared);
    let snapshot = shared.engine.snapshot();
    let nodes = snapshot.groups.nodes().iter().map(|node| &**node);
    let mut all = Map::new();
    for view in shared.engine.subscriptions.views() {
        let of_it = nodes.clone().filter(|node| is_from(node, &view.tag));
        let nodes = of_it.map(|node| documents.of_node(node)).collect();
        all.insert(view.tag.clone(), subscription(&view, nodes));
    }
    let own = nodes.filter(|node| node.origin.is_none());
    let own: Vec<Value> = own.map(|node| documents.of_node(node)).collect();
    for (name, url, proxies) in documents.members() {
        if !all.contains_key(&name) && !proxies.is_empty() {
            all.insert(name.clone(), provider(&name, "Compatible", &url, proxies));
        }
    }
    if !own.is_empty() && !all.contains_key(OWN) {
        all.insert(OWN.to_owned(), provider(OWN, "Compatible", "", own));
    }
    all
}

fn is_from(node: &Node, tag: &str) -> bool {
    node.origin.as_ref().is_some_and(|origin| origin.tag == tag)
}

fn provider(name: &str, vehicle: &str, url: &str, proxies: Vec<Value>) -> Value {
    json!({
        "name": name,
        "type": "Proxy",
        "vehicleType": vehicle,
        "updatedAt": "",
        "testUrl": url,
        "expectedStatus": "",
        "proxies": proxies,
    })
}

fn subscription(view: &View, proxies: Vec<Value>) -> Value {
    let vehicle = match view.source {
        "file" => "File",
        _ => "HTTP",
    };
    let mut document = provider(&view.tag, vehicle, "", proxies);
    document["updatedAt"] = view
        .succeeded_ms
        .map_or_else(String::new, clock::text)
        .into();
    if let Some(user) = view.user {
        let mut info = Map::new();
        // What the provider did not say stays out.
        for (name, value) in [
            ("Upload", user.upload),
            ("Download", user.download),
            ("Total", user.total),
            ("Expire", user.expire),
        ] {
            if let Some(value) = value {
                info.insert(name.to_owned(), value.into());
            }
        }
        document["subscriptionInfo"] = info.into();
    }
    document
}

/// Fetches the subscription; 204 when that brought something.
pub(super) async fn refresh(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let view = tagged(&shared.engine, &name).ok_or_else(unknown)?;
    match subscriptions::fetch(&shared.engine, &view, FETCH).await {
        Ok((view, true)) if view.problem.is_none() => Ok(StatusCode::NO_CONTENT),
        Ok(_) => Err(failed(
            "the fetch brought nothing; GET /api/v1/subscriptions tells why",
        )),
        Err(_) => Err(failed("the subscription is switched off, or gone")),
    }
}

fn tagged(engine: &Engine, name: &str) -> Option<View> {
    let views = engine.subscriptions.views();
    views.into_iter().find(|view| view.tag == name)
}

/// Measures the members of a group, or all nodes of a subscription, in the background.
pub(super) async fn check(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let snapshot = shared.engine.snapshot();
    let nodes = snapshot.groups.nodes().iter();
    let nodes = match tagged(&shared.engine, &name) {
        Some(_) => nodes
            .filter(|node| is_from(node, &name))
            .map(|n| n.id)
            .collect(),
        None if name == OWN => nodes
            .filter(|node| node.origin.is_none())
            .map(|n| n.id)
            .collect(),
        None => Vec::new(),
    };
    delay::begin(&shared, &snapshot, &name, nodes)?;
    Ok(StatusCode::NO_CONTENT)
}

/// A node of exactly this provider.
fn member(shared: &Shared, provider: &str, name: &str) -> Result<Node, ApiError> {
    let snapshot = shared.engine.snapshot();
    let of_it = |node: &&std::sync::Arc<Node>| {
        let own = node.origin.is_none() && provider == OWN;
        node.name == name && (own || is_from(node, provider))
    };
    let found = snapshot.groups.nodes().iter().find(of_it);
    let inside = || {
        let group = snapshot.groups.group_named(provider)?;
        let member = group.member_named(name)?.id();
        let mut nodes = snapshot.groups.nodes().iter();
        nodes.find(|node| honk_policy::id::MemberId::Node(node.id) == member)
    };
    let found = found.or_else(inside);
    found.map(|node| Node::clone(node)).ok_or_else(unknown)
}

pub(super) async fn node(
    State(shared): State<Shared>,
    Path((provider, name)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let node = member(&shared, &provider, &name)?;
    Ok(Json(Documents::of(&shared).of_node(&node)))
}

pub(super) async fn node_check(
    State(shared): State<Shared>,
    Path((provider, name)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, ApiError> {
    let node = member(&shared, &provider, &name)?.id;
    delay::of_node(&shared, node, asked.wish()?).await
}

fn unknown() -> ApiError {
    ApiError::not_found("provider", "no such provider, or it has no such node")
}

fn failed(text: &str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "fetch_failed", text)
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::super::tests::{call, get};
    use super::*;
    use crate::app::testkit::{World, subscribed};

    #[tokio::test]
    async fn subscriptions_are_providers_and_show_no_address() {
        let world = World::new(&subscribed());
        let providers = get(&world, "/providers/proxies").await["providers"].clone();
        let names: Vec<&String> = providers.as_object().unwrap().keys().collect();
        assert_eq!(names, ["air", "default", "off", "proxy"]);
        assert_eq!(providers["air"]["vehicleType"], "HTTP");
        assert_eq!(providers["air"]["proxies"], json!([]));
        assert_eq!(providers["air"].get("subscriptionInfo"), None);
        assert_eq!(providers["proxy"]["vehicleType"], "Compatible");
        assert!(
            providers["proxy"]["testUrl"]
                .as_str()
                .unwrap()
                .starts_with("http")
        );
        let members = providers["proxy"]["proxies"].as_array().unwrap();
        let members: Vec<&Value> = members.iter().map(|member| &member["name"]).collect();
        assert_eq!(members, ["a", "b"]);
        assert_eq!(
            providers["default"]["proxies"].as_array().map(Vec::len),
            Some(3)
        );
        let text = providers.to_string();
        assert!(
            !text.contains("canary") && !text.contains("192.0.2."),
            "{text}"
        );
        assert_eq!(
            get(&world, "/providers/proxies/air").await,
            providers["air"]
        );
        assert_eq!(
            get(&world, "/providers/proxies/default/c").await["type"],
            "Http"
        );
        assert_eq!(get(&world, "/providers/proxies/proxy/a").await["name"], "a");
        assert_eq!(
            get(&world, "/providers/rules").await,
            json!({ "providers": {} })
        );
        for (method, path, status) in [
            (Method::GET, "/providers/proxies/nope", 404),
            (Method::GET, "/providers/proxies/air/a", 404),
            (Method::GET, "/providers/proxies/proxy/c", 404),
            (Method::PUT, "/providers/proxies/nope", 404),
            (Method::PUT, "/providers/proxies/off", 503),
            (Method::PUT, "/providers/rules/nope", 404),
            (Method::GET, "/providers/proxies/nope/healthcheck", 404),
        ] {
            let (got, body) = call(&world, method, path, "").await;
            assert_eq!(got, status, "{path}: {body}");
            assert!(body["message"].is_string(), "{body}");
        }
    }

    #[tokio::test]
    async fn a_fetch_is_answered_when_it_has_ended() {
        let world = World::new(&subscribed());
        let asked = call(&world, Method::PUT, "/providers/proxies/air", "");
        let failing = async { world.fetch_fails() };
        let ((status, body), ()) = tokio::join!(asked, failing);
        assert_eq!(status, 503, "{body}");
    }
}
