//! Subscriptions as providers of proxies. Groups are listed as well, as clients expect, and
//! nodes of the file itself as `default`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use honk_policy::{
    group::GroupView,
    id::{MemberId, NodeId},
    node::Node,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Shared,
    delay::{self, Asked},
    doc::Documents,
};
use crate::{
    api::{error::ApiError, subscriptions},
    app::{engine::Engine, pings::What, subscriptions::View},
    clock,
};

/// Longest wait for a fetch.
const FETCH: Duration = Duration::from_secs(60);
/// Name of the provider of nodes that stand in the file.
const OWN: &str = "default";
/// Members that the list tells of all groups together, each of which gets an equal part: many
/// groups may have the same thousands of nodes.
const MEMBERS: usize = 4096;

/// A provider with its members, or with what is shown of them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Provider<M> {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    vehicle_type: &'static str,
    updated_at: String,
    test_url: String,
    expected_status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription_info: Option<Map<String, Value>>,
    /// Whether members are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    proxies: Vec<M>,
}

impl<M> Provider<M> {
    fn new(name: &str, vehicle_type: &'static str, proxies: Vec<M>) -> Self {
        Self {
            name: name.to_owned(),
            kind: "Proxy",
            vehicle_type,
            updated_at: String::new(),
            test_url: String::new(),
            expected_status: "",
            subscription_info: None,
            truncated: false,
            proxies,
        }
    }

    fn with<N>(self, proxies: Vec<N>) -> Provider<N> {
        Provider {
            name: self.name,
            kind: self.kind,
            vehicle_type: self.vehicle_type,
            updated_at: self.updated_at,
            test_url: self.test_url,
            expected_status: self.expected_status,
            subscription_info: self.subscription_info,
            truncated: self.truncated,
            proxies,
        }
    }
}

type Plain = Provider<MemberId>;

/// Documents of members, each made once however many providers have it.
struct Shown(HashMap<MemberId, Value>);

impl Shown {
    fn of<'p>(documents: &Documents<'_>, providers: impl Iterator<Item = &'p Plain>) -> Self {
        let ids = providers.flat_map(|provider| provider.proxies.iter().copied());
        let ids: HashSet<MemberId> = ids.collect();
        Self(documents.members(&ids))
    }

    fn fill(&self, provider: Plain) -> Provider<&Value> {
        let ids = provider.proxies.iter();
        let proxies = ids.filter_map(|id| self.0.get(id)).collect();
        provider.with(proxies)
    }
}

pub(super) async fn list(State(shared): State<Shared>) -> Response {
    let documents = Documents::of(&shared);
    let all = all(&shared, &documents);
    let shown = Shown::of(&documents, all.values());
    let all = all.into_iter();
    let all: BTreeMap<String, _> = all.map(|(name, of)| (name, shown.fill(of))).collect();
    Json(json!({ "providers": all })).into_response()
}

pub(super) async fn one(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let documents = Documents::of(&shared);
    let provider = named(&shared, &documents, &name).ok_or_else(unknown)?;
    let shown = Shown::of(&documents, std::iter::once(&provider));
    Ok(Json(shown.fill(provider)).into_response())
}

/// Rules come from the configuration alone.
pub(super) async fn of_rules() -> Json<Value> {
    Json(json!({ "providers": {} }))
}

pub(super) async fn no_rules() -> ApiError {
    ApiError::not_found("provider", "no such provider of rules")
}

/// All by name: subscriptions hide groups, and those the nodes of the file.
fn all(shared: &Shared, documents: &Documents<'_>) -> BTreeMap<String, Plain> {
    let mut all = BTreeMap::new();
    for view in shared.engine.subscriptions.views() {
        let provider = subscription(shared, &view);
        all.insert(view.tag, provider);
    }
    let groups = documents.groups_with_members();
    let share = (MEMBERS / groups.clone().count().max(1)).max(1);
    for view in groups {
        if !all.contains_key(&view.name) {
            all.insert(view.name.clone(), group(documents, view, share));
        }
    }
    if let Some(own) = own(shared).filter(|_| !all.contains_key(OWN)) {
        all.insert(OWN.to_owned(), own);
    }
    all
}

/// The one that [`all`] has under that name.
fn named(shared: &Shared, documents: &Documents<'_>, name: &str) -> Option<Plain> {
    if let Some(view) = tagged(&shared.engine, name) {
        return Some(subscription(shared, &view));
    }
    let mut groups = documents.groups_with_members();
    match groups.find(|view| view.name == name) {
        Some(view) => Some(group(documents, view, MEMBERS)),
        None => own(shared).filter(|_| name == OWN),
    }
}

fn is_from(node: &Node, tag: &str) -> bool {
    node.origin.as_ref().is_some_and(|origin| origin.tag == tag)
}

/// Nodes of the configuration that belong to a provider.
fn nodes_of(shared: &Shared, belongs: impl Fn(&Node) -> bool) -> Vec<NodeId> {
    let snapshot = shared.engine.snapshot();
    let nodes = snapshot.groups.nodes().iter();
    nodes.filter(|n| belongs(n)).map(|n| n.id).collect()
}

fn own_nodes(shared: &Shared) -> Vec<NodeId> {
    nodes_of(shared, |node| node.origin.is_none())
}

fn own(shared: &Shared) -> Option<Plain> {
    let nodes = own_nodes(shared).into_iter().map(MemberId::Node);
    let nodes: Vec<MemberId> = nodes.collect();
    (!nodes.is_empty()).then(|| Provider::new(OWN, "Compatible", nodes))
}

fn group(documents: &Documents<'_>, view: &GroupView, most: usize) -> Plain {
    let members = view.members.iter().map(|member| member.id);
    let members = members.take(most).collect();
    Provider {
        test_url: documents.url(view),
        truncated: view.members.len() > most,
        ..Provider::new(&view.name, "Compatible", members)
    }
}

fn subscription(shared: &Shared, view: &View) -> Plain {
    let vehicle = match view.source {
        "file" => "File",
        _ => "HTTP",
    };
    let nodes = nodes_of(shared, |node| is_from(node, &view.tag)).into_iter();
    let mut provider = Provider::new(&view.tag, vehicle, nodes.map(MemberId::Node).collect());
    provider.updated_at = view.succeeded_ms.map_or_else(String::new, clock::text);
    provider.subscription_info = view.user.map(|user| {
        let known = [
            ("Upload", user.upload),
            ("Download", user.download),
            ("Total", user.total),
            ("Expire", user.expire),
        ];
        // What the provider did not say stays out.
        let known = known.into_iter();
        known
            .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
            .collect()
    });
    provider
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
    let group = snapshot.groups.group_named(&name);
    let what = match group.filter(|group| !group.def.implicit) {
        _ if tagged(&shared.engine, &name).is_some() => {
            What::Nodes(nodes_of(&shared, |node| is_from(node, &name)))
        }
        Some(group) => What::Group(group.id),
        None if name == OWN => What::Nodes(own_nodes(&shared)),
        None => return Err(unknown()),
    };
    if what != What::Nodes(Vec::new()) {
        delay::begin(&shared, &what)?;
    }
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
        nodes.find(|node| MemberId::Node(node.id) == member)
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
    async fn the_list_tells_a_part_of_large_groups() {
        const ALL: usize = MEMBERS + 1;
        let nodes: String = (0..ALL)
            .map(|n| format!("n{n}: 'socks5://192.0.2.1:{}'\n", 1024 + n))
            .collect();
        let world = World::new(&format!(
            "global {{ lan_interface: lan0 }} node {{ {nodes} }}
             group {{ one {{ policy: select filter: name(regex: '^n') }}
                      two {{ policy: fallback filter: name(regex: '^n') }}
                      few {{ policy: select filter: name(n7) }} }}
             routing {{ fallback: one }}"
        ));
        let providers = get(&world, "/providers/proxies").await["providers"].clone();
        let count = |provider: &Value| provider["proxies"].as_array().map(Vec::len);
        for name in ["one", "two"] {
            let listed = &providers[name];
            assert_eq!(count(listed), Some(MEMBERS / 3));
            assert_eq!(listed["truncated"], true);
            let whole = get(&world, &format!("/providers/proxies/{name}")).await;
            assert_eq!(count(&whole), Some(MEMBERS));
            assert_eq!(whole["truncated"], true);
            assert_eq!(whole["proxies"][0], listed["proxies"][0]);
        }
        // Each node is there once.
        assert_eq!(count(&providers["default"]), Some(ALL));
        assert_eq!(count(&providers["few"]), Some(1));
        assert_eq!(providers["few"].get("truncated"), None);
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
