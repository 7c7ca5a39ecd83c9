//! `honk ping-settings`: what measurements ask for, and for how long.

use hyper::Method;
use serde_json::{Value, json};

use super::{
    Session,
    args::PingSettings,
    exit::{Exit, Failure},
    group,
    output::clean,
};

/// Runs one of the subcommands.
pub(crate) async fn run(session: &Session, command: &PingSettings) -> Result<Exit, Failure> {
    let (method, group, body, schema) = match command {
        PingSettings::Get { group } => (Method::GET, group, None, "ping-settings.get/1"),
        PingSettings::Set {
            group,
            url,
            deadline,
        } => {
            let ms = deadline.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
            let body = json!({ "url": url, "timeout_ms": ms });
            (Method::PUT, group, Some(body), "ping-settings.set/1")
        }
        PingSettings::Reset { group } => (Method::DELETE, group, None, "ping-settings.reset/1"),
    };
    let path = match group {
        None => "/api/v1/ping-settings".to_owned(),
        Some(name) => {
            let group = group::find(session, name).await?;
            format!("/api/v1/groups/{}/ping-settings", group.id)
        }
    };
    let settings: Value = session.client.call(method, &path, body).await?;
    let out = &session.out;
    if out.json {
        out.document(schema, &settings, &[] as &[String])?;
    } else {
        out.text(&shown(&settings))?;
    }
    Ok(Exit::Success)
}

fn shown(settings: &Value) -> String {
    let (holds, source) = (&settings["effective"], &settings["source"]);
    let word = |value: &Value| clean(value.as_str().unwrap_or_default());
    format!(
        "url: {} ({})\ndeadline: {} ms ({})",
        word(&holds["url"]),
        word(&source["url"]),
        holds["timeout_ms"],
        word(&source["timeout_ms"]),
    )
}
