//! `/configs`: what dashboards show as settings, and the few that they can change.

use std::path::Path;

use axum::{Json, body::Bytes, extract::State, http::StatusCode};
use honk_policy::config::DialMode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Shared, bad};
use crate::{
    api::{error::ApiError, reload::awaited},
    app::reload::After,
    log,
};

/// The modes that are served.
const MODES: [&str; 1] = ["Rule"];

pub(super) async fn read(State(shared): State<Shared>) -> Json<Value> {
    let snapshot = shared.engine.snapshot();
    let global = &snapshot.config.global;
    let level = shared.engine.log.level();
    let interface = global.wan_interface.first();
    Json(json!({
        "port": 0,
        "socks-port": 0,
        "redir-port": 0,
        "tproxy-port": global.tproxy_port,
        "mixed-port": 0,
        "allow-lan": true,
        "bind-address": "*",
        "mode": MODES[0],
        "mode-list": MODES,
        "modes": MODES,
        "log-level": match level.as_str() { "warn" => "warning", other => other },
        "ipv6": true,
        "sniffing": global.dial_mode != DialMode::Ip,
        "interface-name": interface.map_or("", String::as_str),
        "tun": { "enable": false },
        "unified-delay": true,
    }))
}

/// Body of a change. Dashboards send more than this; the rest decides nothing here.
#[derive(Debug, Deserialize)]
struct Changed {
    mode: Option<String>,
    #[serde(rename = "log-level")]
    level: Option<String>,
}

pub(super) async fn change(
    State(shared): State<Shared>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let Ok(Changed { mode, level }) = serde_json::from_slice(&body) else {
        return Err(bad("the body is not an object of settings"));
    };
    if let Some(mode) = mode
        && !MODES.iter().any(|known| known.eq_ignore_ascii_case(&mode))
    {
        return Err(bad("only the mode Rule is served"));
    }
    if let Some(level) = level {
        let level = level.to_ascii_lowercase();
        let level = match level.as_str() {
            "warning" => "warn",
            // Nothing is less than an error.
            "silent" => "error",
            level => level,
        };
        if !log::LEVELS.contains(&level) {
            return Err(bad(
                "log-level: error, warning, info, debug, trace or silent",
            ));
        }
        if !shared.engine.log.apply(level) {
            return Err(bad(
                "the log filter was given at the start and stays as it is",
            ));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Body of a reload. No other file is ever read, and no configuration is taken from outside.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Given {
    path: String,
    payload: String,
}

pub(super) async fn reload(
    State(shared): State<Shared>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let given = match body.is_empty() {
        true => Given::default(),
        false => serde_json::from_slice(&body)
            .map_err(|_| bad("the body is not {\"path\": \"\", \"payload\": \"\"}"))?,
    };
    let own = given.path.is_empty() || Path::new(&given.path) == shared.engine.spec.entry;
    if !own || !given.payload.is_empty() {
        let text = "only the daemon's own file is loaded";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "denied", text));
    }
    again(State(shared)).await
}

/// Reads all files again, those with geodata too.
pub(super) async fn again(State(shared): State<Shared>) -> Result<StatusCode, ApiError> {
    let state = awaited(&shared.engine, false, After::Nothing).await?;
    match state.state.as_str() {
        "done" => Ok(StatusCode::NO_CONTENT),
        _ => Err(bad(state.message)),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::super::tests::{call, get};
    use super::*;
    use crate::{
        app::{
            reload::Trigger,
            testkit::{CONFIG, World},
        },
        testkit::soon,
    };

    #[tokio::test]
    async fn settings_are_shown_and_only_what_is_served_can_be_set() {
        let world = World::new(CONFIG);
        let configs = get(&world, "/configs").await;
        assert_eq!(configs["mode"], "Rule");
        assert_eq!(
            (&configs["modes"], &configs["mode-list"]),
            (&json!(["Rule"]), &json!(["Rule"]))
        );
        assert_eq!(configs["log-level"], "info");
        assert!(configs["tproxy-port"].as_u64().unwrap() > 0);
        assert_eq!(configs["tun"]["enable"], false);
        let patch = async |body: &str| call(&world, Method::PATCH, "/configs", body).await;
        assert_eq!(patch(r#"{"mode":"rule","ipv6":true}"#).await.0, 204);
        for (body, word) in [
            (r#"{"mode":"Global"}"#, "Rule"),
            (r#"{"log-level":"loud"}"#, "log-level"),
            // The log of a test has no filter that could be changed.
            (r#"{"log-level":"debug"}"#, "start"),
            ("[]", "object"),
        ] {
            let (status, error) = patch(body).await;
            assert_eq!(status, 400, "{body}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(word), "{message}");
        }
    }

    #[tokio::test]
    async fn a_reload_takes_the_own_file_and_nothing_else() {
        let world = World::new(CONFIG);
        let put = async |body: &str| call(&world, Method::PUT, "/configs?force=true", body).await;
        for body in [r#"{"path":"/etc/shadow"}"#, r#"{"payload":"mode: rule"}"#] {
            assert_eq!(put(body).await.0, 403, "{body}");
        }
        assert_eq!(put("x").await.0, 400);
        assert_eq!(world.engine.snapshot().generation, 1);
        assert_eq!(put("").await, (204, Value::Null));
        let own = json!({ "path": world.engine.spec.entry, "payload": "" });
        assert_eq!(put(&own.to_string()).await.0, 204);
        assert_eq!(call(&world, Method::POST, "/configs/geo", "").await.0, 204);
        assert_eq!(world.engine.snapshot().generation, 4);
        world.edit("global { nonsense }");
        let (status, error) = put("{}").await;
        assert_eq!(status, 400);
        assert!(error["message"].is_string(), "{error}");
        assert_eq!(world.engine.snapshot().generation, 4);
    }

    #[tokio::test]
    async fn while_a_reload_runs_another_is_refused() {
        let world = World::new(CONFIG);
        let engine = &world.engine;
        // It may have ended before it is met.
        soon("a reload is met", async || {
            let running = engine.begin_reload(Trigger::Signal, false, After::Nothing);
            tokio::task::yield_now().await;
            let (status, error) = call(&world, Method::PUT, "/configs", "").await;
            running.await.unwrap().unwrap();
            assert!([204, 409].contains(&status), "{status}: {error}");
            status == 409
        })
        .await;
    }
}
