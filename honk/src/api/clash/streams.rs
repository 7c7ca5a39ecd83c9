//! `/traffic`, `/memory`, `/logs`: once a second, or as it happens.

use std::time::Duration;

use axum::{
    extract::{Query, State, ws::Utf8Bytes},
    response::Response,
};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Shared, bad};
use crate::{
    api::{
        error::ApiError,
        feed::{Documents, Wire, every},
    },
    log::tail::{self, Line},
    metrics::process,
};

const SECOND: Duration = Duration::from_secs(1);

pub(super) async fn traffic(
    State(shared): State<Shared>,
    wire: Wire,
) -> Result<Response, ApiError> {
    let place = wire.place(&shared)?;
    let engine = shared.engine;
    let documents = every(SECOND, move || {
        let rates = engine.rates();
        let (up, down) = engine.totals();
        json!({ "up": rates.up_bps, "down": rates.down_bps, "upTotal": up, "downTotal": down })
    });
    Ok(wire.carry(place, documents))
}

pub(super) async fn memory(State(shared): State<Shared>, wire: Wire) -> Result<Response, ApiError> {
    let place = wire.place(&shared)?;
    let documents = every(SECOND, || json!({ "inuse": resident(), "oslimit": 0 }));
    Ok(wire.carry(place, documents))
}

/// Bytes of memory the daemon holds.
pub(super) fn resident() -> u64 {
    process::read().map_or(0, |process| process.resident)
}

/// Which lines, and in which shape.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    level: Option<String>,
    format: Option<String>,
}

/// Names of levels, each with the last one of [`LEVELS`](crate::log::LEVELS) that it shows.
const SHOWN: [(&str, Option<usize>); 9] = [
    ("silent", None),
    ("panic", Some(0)),
    ("fatal", Some(0)),
    ("error", Some(0)),
    ("warning", Some(1)),
    ("warn", Some(1)),
    ("info", Some(2)),
    ("debug", Some(3)),
    ("trace", Some(4)),
];

pub(super) async fn logs(
    State(shared): State<Shared>,
    Query(asked): Query<Asked>,
    wire: Wire,
) -> Result<Response, ApiError> {
    let level = asked.level.filter(|level| !level.is_empty());
    let level = level.map_or_else(|| "info".to_owned(), |level| level.to_ascii_lowercase());
    let shown = SHOWN.iter().find(|(name, _)| *name == level);
    let (_, shown) = *shown.ok_or_else(|| bad("level: one of the levels of the log, or silent"))?;
    let structured = match asked.format.as_deref() {
        None | Some("") => false,
        Some("structured") => true,
        Some(_) => return Err(bad("format: structured, or nothing")),
    };
    let place = wire.place(&shared)?;
    let documents: Documents = match shown {
        Some(shown) => lines(tail::watch(), shown, structured),
        None => Box::pin(stream::pending()),
    };
    Ok(wire.carry(place, documents))
}

fn lines(watched: Receiver<std::sync::Arc<Line>>, shown: usize, structured: bool) -> Documents {
    let documents = stream::unfold(watched, move |mut watched| async move {
        loop {
            let document = match watched.recv().await {
                Ok(line) if line.level <= shown => document(&line, structured),
                Ok(_) => continue,
                Err(RecvError::Lagged(count)) => {
                    let text = format!("{count} lines came too fast and are left out");
                    document(&told(text), structured)
                }
                Err(RecvError::Closed) => return None,
            };
            return Some((Utf8Bytes::from(document.to_string()), watched));
        }
    });
    Box::pin(documents)
}

/// A line of the stream itself.
fn told(message: String) -> Line {
    Line {
        level: 1,
        at: crate::clock::now(),
        target: "honk::api",
        message,
        fields: Vec::new(),
    }
}

/// The word that dashboards know for a level.
fn word(level: usize) -> &'static str {
    ["error", "warning", "info", "debug"]
        .get(level)
        .copied()
        .unwrap_or("trace")
}

fn document(line: &Line, structured: bool) -> Value {
    let level = word(line.level);
    if !structured {
        return json!({ "type": level, "payload": line.text() });
    }
    let field = |(key, value): &(String, Value)| {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        json!({ "key": key, "value": value })
    };
    json!({
        "time": line.at,
        "level": level,
        "message": line.message,
        "fields": line.fields.iter().map(field).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::feed::tests::{LONG, Served, message},
        app::testkit::{CONFIG, World},
    };

    fn line(level: usize, message: &str) -> Line {
        Line {
            level,
            fields: vec![("count".to_owned(), 3.into())],
            ..told(message.to_owned())
        }
    }

    #[tokio::test]
    async fn traffic_and_memory_come_at_once_and_again() {
        let world = World::new(CONFIG);
        let served = Served::world(&world);
        for (path, fields) in [
            ("/traffic", &["up", "down", "upTotal", "downTotal"][..]),
            ("/memory", &["inuse", "oslimit"]),
        ] {
            let (head, mut stream) = served.socket(path, "").await;
            assert!(head.starts_with("HTTP/1.1 101"), "{head}");
            for _ in 0..2 {
                let document = message(&mut stream).await;
                for field in fields {
                    assert!(document[field].is_u64(), "{document}");
                }
            }
        }
    }

    #[tokio::test]
    async fn logs_show_what_is_asked_for_and_no_more() {
        let world = World::new(CONFIG);
        let served = Served::world(&world);
        let (_, mut plain) = served.socket("/logs?level=warning", "").await;
        let (_, mut structured) = served
            .socket("/logs?level=trace&format=structured", "")
            .await;
        // Whoever has the head of the answer may not be watching yet.
        let (tell, mut told) = tokio::sync::watch::channel(false);
        let telling = async {
            loop {
                tail::tell(line(2, "calm"));
                tail::tell(line(1, "alarm"));
                let pause = tokio::time::sleep(Duration::from_millis(50));
                tokio::select! {
                    () = pause => {}
                    _ = told.wait_for(|told| *told) => break,
                }
            }
        };
        let reading = async {
            let document = loop {
                let document = message(&mut plain).await;
                // Other tests may log meanwhile.
                let text = document["payload"].as_str().unwrap();
                if text.starts_with("honk::api ") && text.ends_with("count=3") {
                    break document;
                }
            };
            assert_eq!(document["type"], "warning");
            assert_eq!(document["payload"], "honk::api alarm count=3");
            loop {
                let document = message(&mut structured).await;
                if document["message"] == "calm" {
                    assert_eq!(document["level"], "info");
                    assert!(document["time"].is_string());
                    assert_eq!(
                        document["fields"],
                        json!([{ "key": "count", "value": "3" }])
                    );
                    break;
                }
            }
            tell.send_replace(true);
        };
        let both = async { tokio::join!(telling, reading) };
        tokio::time::timeout(LONG, both).await.unwrap();
        for path in ["/logs?level=loud", "/logs?format=poem"] {
            let (head, _) = served.socket(path, "").await;
            assert!(head.starts_with("HTTP/1.1 400"), "{path}: {head}");
        }
    }
}
