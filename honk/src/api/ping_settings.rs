//! Settings of measurements that are changed at run time.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
};
use honk_policy::{config::CheckUrl, id::GroupId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Shared,
    error::ApiError,
    measure::{TIMEOUT_MS, refused},
    query::{self, Nothing, Params},
};
use crate::app::{
    overrides::{Overrides, Pair},
    pings::PingError,
};

/// Body: what is left out or `null` is not set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    url: Option<String>,
    timeout_ms: Option<u64>,
}

pub(super) async fn read(
    State(shared): State<Shared>,
    _: Params<Nothing>,
) -> Result<Json<Value>, ApiError> {
    shown(&shared, None).map(Json)
}

pub(super) async fn read_group(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Value>, ApiError> {
    shown(&shared, Some(GroupId(query::id(&id, "group")?))).map(Json)
}

pub(super) async fn write(
    State(shared): State<Shared>,
    _: Params<Nothing>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    set(&shared, None, wanted(&headers, &body)?).await
}

pub(super) async fn write_group(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let group = GroupId(query::id(&id, "group")?);
    set(&shared, Some(group), wanted(&headers, &body)?).await
}

pub(super) async fn reset(
    State(shared): State<Shared>,
    _: Params<Nothing>,
) -> Result<Json<Value>, ApiError> {
    set(&shared, None, Pair::default()).await
}

pub(super) async fn reset_group(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Value>, ApiError> {
    let group = GroupId(query::id(&id, "group")?);
    set(&shared, Some(group), Pair::default()).await
}

fn wanted(headers: &HeaderMap, body: &[u8]) -> Result<Pair, ApiError> {
    let Wanted { url, timeout_ms } = query::json(headers, body)?;
    let bad = |field: &'static str, text: String| {
        let error = ApiError::new(StatusCode::BAD_REQUEST, "bad_request", text);
        Err(error.details(json!({ "field": field })))
    };
    let url = url.filter(|url| !url.is_empty());
    if let Some(Err(error)) = url.as_deref().map(CheckUrl::parse) {
        return bad("url", error.to_string());
    }
    let timeout_ms = timeout_ms.filter(|ms| *ms > 0);
    if timeout_ms.is_some_and(|ms| !TIMEOUT_MS.contains(&ms)) {
        return bad("timeout_ms", "`timeout_ms` is 100 to 30000".to_owned());
    }
    Ok(Pair { url, timeout_ms })
}

fn overrides(shared: &Shared) -> Result<Arc<Overrides>, ApiError> {
    let pings = shared.engine.pings();
    let pings = pings.ok_or_else(|| refused(PingError::NotRunning))?;
    Ok(Arc::clone(&pings.overrides))
}

async fn set(shared: &Shared, group: Option<GroupId>, pair: Pair) -> Result<Json<Value>, ApiError> {
    let overrides = overrides(shared)?;
    let snapshot = shared.engine.snapshot();
    let name = match group {
        None => None,
        Some(id) => {
            let group = snapshot.groups.group(id);
            Some(
                group
                    .ok_or_else(|| refused(PingError::NoGroup))?
                    .name
                    .to_string(),
            )
        }
    };
    let job = move || {
        let known = |name: &str| snapshot.groups.group_named(name).is_some();
        overrides.set(name.as_deref(), pair, &known)
    };
    let kept = tokio::task::spawn_blocking(job).await;
    if let Err(error) = kept.unwrap_or_else(|e| Err(std::io::Error::other(e))) {
        tracing::warn!(target: "honk::health", %error, "settings of measurements are not kept");
        let text = format!("the settings hold until the daemon ends, but are not kept: {error}");
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_kept",
            text,
        ));
    }
    shown(shared, group).map(Json)
}

/// What is set, what holds, and who says so.
fn shown(shared: &Shared, group: Option<GroupId>) -> Result<Value, ApiError> {
    let overrides = overrides(shared)?;
    let snapshot = shared.engine.snapshot();
    let group = match group {
        None => None,
        Some(id) => {
            let group = snapshot.groups.group(id);
            Some(group.ok_or_else(|| refused(PingError::NoGroup))?)
        }
    };
    let set = overrides.of(group.map(|g| &*g.name));
    let holds = overrides.effective(&snapshot, group);
    let ms = |t: Duration| u64::try_from(t.as_millis()).unwrap_or(u64::MAX);
    Ok(json!({
        "group_id": group.map(|g| g.id.0.to_string()),
        "override": { "url": set.url, "timeout_ms": set.timeout_ms },
        "effective": { "url": &*holds.url.0.text, "timeout_ms": ms(holds.timeout.0) },
        "source": { "url": holds.url.1.name(), "timeout_ms": holds.timeout.1.name() },
    }))
}

#[cfg(test)]
mod tests {
    use axum::{
        body::Body,
        http::{Method, Request, header},
    };
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::app::testkit::{CONFIG, World};

    async fn call(world: &World, method: Method, path: &str, body: Value) -> (u16, Value) {
        let router = crate::api::router(world.engine.clone());
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    #[tokio::test]
    async fn the_nearest_level_holds_for_url_and_deadline_apart() {
        let config = CONFIG.replace("lan0 }", "lan0 ping_timeout: 3s }").replace(
            "policy: select",
            "policy: select ping_url: 'http://group.test/'",
        );
        let world = World::new(&config);
        world.measure();
        let id = world.group("proxy");
        let of_group = format!("/groups/{}/ping-settings", id.0);
        let all = "/ping-settings";
        let holds = async |path: &str| {
            let (status, value) = call(&world, Method::GET, path, json!({})).await;
            assert_eq!(status, 200, "{value}");
            let of = |part: &str| {
                [
                    value[part]["url"].clone(),
                    value[part]["timeout_ms"].clone(),
                ]
            };
            [of("effective"), of("source")].concat()
        };
        let google = "https://www.gstatic.com/generate_204";
        assert_eq!(
            holds(all).await,
            [
                json!(google),
                json!(3000),
                json!("default"),
                json!("global")
            ]
        );
        let group = "http://group.test/";
        let start = [json!(group), json!(3000), json!("group"), json!("global")];
        assert_eq!(holds(&of_group).await, start);

        let body = json!({ "url": "http://all.test/", "timeout_ms": 700 });
        assert_eq!(call(&world, Method::PUT, all, body).await.0, 200);
        let over = [
            json!("http://all.test/"),
            json!(700),
            json!("override"),
            json!("override"),
        ];
        assert_eq!(holds(all).await, over);
        let mixed = [json!(group), json!(700), json!("group"), json!("override")];
        assert_eq!(holds(&of_group).await, mixed);

        let body = json!({ "url": "http://own.test/", "timeout_ms": null });
        let (status, value) = call(&world, Method::PUT, &of_group, body).await;
        assert_eq!(
            (status, &value["override"]["url"]),
            (200, &json!("http://own.test/"))
        );
        let own = [
            json!("http://own.test/"),
            json!(700),
            json!("group_override"),
            json!("override"),
        ];
        assert_eq!(holds(&of_group).await, own);
        // The next measurement uses it, and one without a group does not.
        let node = world.engine.snapshot().groups.nodes()[0].id;
        let path = format!("/nodes/{}/delay-test", node.0);
        for (body, url) in [
            (
                json!({ "group_id": id.0.to_string(), "timeout_ms": 100 }),
                "http://own.test/",
            ),
            (json!({ "timeout_ms": 100 }), "http://all.test/"),
        ] {
            let (_, measured) = call(&world, Method::POST, &path, body).await;
            assert_eq!(measured["url"], url);
        }

        assert_eq!(
            call(&world, Method::DELETE, &of_group, json!({})).await.0,
            200
        );
        assert_eq!(call(&world, Method::DELETE, all, json!({})).await.0, 200);
        assert_eq!(holds(&of_group).await, start);
    }

    #[tokio::test]
    async fn what_is_no_setting_is_refused() {
        let world = World::new(CONFIG);
        world.measure();
        for body in [
            json!({ "url": "nonsense" }),
            json!({ "timeout_ms": 99 }),
            json!({ "timeout_ms": 30_001 }),
            json!({ "nope": 1 }),
        ] {
            let (status, error) = call(&world, Method::PUT, "/ping-settings", body.clone()).await;
            assert_eq!(status, 400, "{body}: {error}");
        }
        let unknown = "/groups/00000000-0000-4000-8000-000000000000/ping-settings";
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            assert_eq!(call(&world, method, unknown, json!({})).await.0, 404);
        }
    }
}
