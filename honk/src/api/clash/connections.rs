//! Carried flows as dashboards list them, and their end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use axum::{
    Json,
    extract::{Path, Query, State, ws::Utf8Bytes},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Shared, bad, rules, streams::resident};
use crate::{
    api::{
        connections::{CLOSE_WAIT, boot, find},
        error::ApiError,
        feed::Wire,
    },
    app::{engine::Engine, snapshot::Snapshot},
    clock,
    flow::{CloseReason, FlowEntry, HostSource},
};

/// Flows of one frame.
const SHOWN: usize = 4096;
/// Pauses between frames, in milliseconds; one that lies between two becomes the longer one.
const PAUSES: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// The last frame of each pause: streams of one pause tick together and share it.
#[derive(Debug, Default)]
pub(in super::super) struct Frames {
    last: Mutex<HashMap<u64, (u64, Utf8Bytes)>>,
    #[cfg(test)]
    built: std::sync::atomic::AtomicU64,
}

impl Frames {
    fn at(&self, pause: u64, tick: u64, build: impl FnOnce() -> Value) -> Utf8Bytes {
        // Held while it is built: the others would build the same.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, frame)) = last.get(&pause)
            && *of == tick
        {
            return frame.clone();
        }
        #[cfg(test)]
        self.built.fetch_add(1, Ordering::Relaxed);
        let frame = Utf8Bytes::from(build().to_string());
        last.insert(pause, (tick, frame.clone()));
        frame
    }

    /// Nobody watches: nothing is kept.
    fn forget(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = HashMap::new();
    }
}

/// Forgets the frames when the last stream ends.
struct Watching(Shared);

impl Watching {
    fn new(shared: Shared) -> Self {
        shared.watching.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.0.watching.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.frames.forget();
        }
    }
}

/// How often.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    interval: Option<String>,
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Query(asked): Query<Asked>,
    wire: Wire,
) -> Result<Response, ApiError> {
    if !wire.is_socket() {
        return Ok(Json(frame(&shared.engine)).into_response());
    }
    let asked = asked.interval.filter(|text| !text.is_empty());
    let asked = asked.map_or(Ok(1000), |text| text.parse::<u64>());
    let asked = asked.map_err(|_| bad("interval: milliseconds"))?;
    let known = PAUSES.into_iter().find(|pause| *pause >= asked);
    let pause = known.unwrap_or(PAUSES[PAUSES.len() - 1]);
    let place = wire.place(&shared)?;
    let begin = (Watching::new(shared), true);
    let documents = stream::unfold(begin, move |(watching, first)| async move {
        let shared = &watching.0;
        if first {
            let document = Utf8Bytes::from(frame(&shared.engine).to_string());
            return Some((document, (watching, false)));
        }
        let begun = shared.engine.started;
        let passed = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let tick = passed / pause + 1;
        let at = begun + Duration::from_millis(tick.saturating_mul(pause));
        tokio::time::sleep_until(at.into()).await;
        let document = shared.frames.at(pause, tick, || frame(&shared.engine));
        Some((document, (watching, false)))
    });
    Ok(wire.carry(place, Box::pin(documents)))
}

pub(super) async fn close(State(shared): State<Shared>) -> StatusCode {
    let registry = &shared.engine.registry;
    let flows = registry.list();
    registry.close(&flows, CloseReason::Api, CLOSE_WAIT).await;
    StatusCode::NO_CONTENT
}

/// What is gone already is closed.
pub(super) async fn close_one(State(shared): State<Shared>, Path(id): Path<String>) -> StatusCode {
    let id = Uuid::try_parse(&id).ok();
    if let Some(flow) = id.and_then(|id| find(&shared.engine, id)) {
        let registry = &shared.engine.registry;
        registry.close(&[flow], CloseReason::Api, CLOSE_WAIT).await;
    }
    StatusCode::NO_CONTENT
}

fn frame(engine: &Engine) -> Value {
    let snapshot = engine.snapshot();
    let boot = boot(engine);
    let (up, down) = engine.totals();
    let flows = engine.registry.list();
    // The newest, as they are listed by age.
    let hidden = flows.len().saturating_sub(SHOWN);
    let shown = flows.iter().skip(hidden);
    let shown: Vec<Value> = shown.map(|flow| document(&snapshot, boot, flow)).collect();
    let mut frame = json!({
        "downloadTotal": down,
        "uploadTotal": up,
        "memory": resident(),
        "connections": shown,
    });
    if hidden > 0 {
        frame["truncated"] = true.into();
    }
    frame
}

fn document(snapshot: &Snapshot, boot: u64, flow: &Arc<FlowEntry>) -> Value {
    let way = flow.way();
    let groups = way.path.iter().rev().map(|name| &**name);
    let chains: Vec<&str> = [&*way.leaf_name].into_iter().chain(groups).collect();
    let line = snapshot.rules.lines.get(usize::from(flow.rule));
    let line = line.filter(|_| flow.generation == snapshot.generation);
    let (rule, payload) = line.map_or(("", String::new()), rules::words);
    let host = flow.host.as_ref();
    let sniffed = host.filter(|(_, source)| *source != HostSource::Dns);
    let (client, target) = (flow.flow.client.0, flow.flow.target.0);
    // Where a node's server is stays out.
    let direct = *way.leaf_name == *"direct";
    let remote = direct.then(|| target.ip().to_canonical().to_string());
    json!({
        "id": Uuid::from_u64_pair(boot, flow.id).to_string(),
        "upload": flow.counters.up.load(Ordering::Relaxed),
        "download": flow.counters.down.load(Ordering::Relaxed),
        "start": clock::text(flow.started_ms),
        "chains": chains,
        "providerChains": [],
        "rule": rule,
        "rulePayload": payload,
        "metadata": {
            "network": flow.flow.network.name(),
            "type": "TProxy",
            "sourceIP": client.ip().to_canonical().to_string(),
            "sourcePort": client.port().to_string(),
            "destinationIP": target.ip().to_canonical().to_string(),
            "destinationPort": target.port().to_string(),
            "sourceGeoIP": [],
            "destinationGeoIP": [],
            "sourceIPASN": "",
            "destinationIPASN": "",
            "inboundIP": "",
            "inboundPort": "0",
            "inboundName": "",
            "inboundUser": "",
            "host": host.map_or("", |(name, _)| name),
            "sniffHost": sniffed.map_or("", |(name, _)| name),
            "dnsMode": "normal",
            "uid": 0,
            "process": "",
            "processPath": "",
            "specialProxy": "",
            "specialRules": "",
            "remoteDestination": remote.unwrap_or_default(),
            "dscp": 0,
            "sourceMAC": "",
        },
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Method;
    use honk_policy::id::Network;

    use super::super::tests::{call, get};
    use super::*;
    use crate::{
        api::{
            Api,
            feed::tests::{Served, message},
            mask::Mask,
        },
        app::testkit::{CONFIG, World, flow, relayed},
        flow::Admission as _,
        testkit::soon,
    };

    #[tokio::test]
    async fn flows_have_every_field_that_dashboards_read() {
        let world = World::new(CONFIG);
        let route = world
            .engine
            .gatekeeper
            .admit(&flow(Network::Tcp, "203.0.113.1:443"))
            .unwrap();
        route.guard.entry.counters.add_down(5);
        let frame = get(&world, "/connections").await;
        assert_eq!(frame["downloadTotal"], 5);
        assert!(frame["memory"].as_u64().unwrap() > 0);
        assert!(frame.get("truncated").is_none());
        let conn = &frame["connections"][0];
        assert_eq!(conn["chains"], json!(["a", "proxy"]), "{conn}");
        assert_eq!((&conn["download"], &conn["upload"]), (&json!(5), &json!(0)));
        assert_eq!(conn["rule"], "match");
        let metadata = conn["metadata"].as_object().unwrap();
        for text in [
            "network",
            "type",
            "sourceIP",
            "sourcePort",
            "destinationIP",
            "destinationPort",
            "host",
            "sniffHost",
            "process",
            "processPath",
            "inboundName",
            "inboundPort",
            "dnsMode",
            "remoteDestination",
            "sourceMAC",
            "specialProxy",
        ] {
            assert!(metadata[text].is_string(), "{text}: {conn}");
        }
        assert_eq!(metadata["destinationPort"], "443");
        assert_eq!(metadata["remoteDestination"], "");
    }

    #[tokio::test]
    async fn what_is_closed_really_ends() {
        let world = World::new(CONFIG);
        let _relays = ["203.0.113.1:443", "203.0.113.2:443"]
            .map(|target| relayed(&world, Network::Tcp, target));
        let ids = async || {
            let frame = get(&world, "/connections").await;
            let list = frame["connections"].as_array().unwrap().clone();
            let ids = list.iter().map(|c| c["id"].as_str().unwrap().to_owned());
            ids.collect::<Vec<String>>()
        };
        let first = ids().await;
        assert_eq!(first.len(), 2);
        let delete = async |path: String| call(&world, Method::DELETE, &path, "").await.0;
        assert_eq!(delete(format!("/connections/{}", first[0])).await, 204);
        assert_eq!(ids().await, first[1..]);
        for unknown in [&*first[0], "nonsense"] {
            assert_eq!(delete(format!("/connections/{unknown}")).await, 204);
        }
        assert_eq!(ids().await.len(), 1);
        assert_eq!(delete("/connections".to_owned()).await, 204);
        assert!(ids().await.is_empty());
    }

    #[tokio::test]
    async fn streams_of_one_pause_share_their_frames() {
        let world = World::new(CONFIG);
        let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
        let served = Served::new(api.socket());
        let _relay = relayed(&world, Network::Tcp, "203.0.113.1:443");
        let mut streams = Vec::new();
        for interval in [150, 200, 200] {
            let path = format!("/connections?interval={interval}");
            let (head, stream) = served.socket(&path, "").await;
            assert!(head.starts_with("HTTP/1.1 101"), "{head}");
            streams.push(stream);
        }
        let shared = &api.0.frames;
        let mut came = 0;
        soon("more frames come than are built", async || {
            for stream in &mut streams {
                let frame = message(stream).await;
                assert_eq!(frame["connections"].as_array().unwrap().len(), 1);
                came += 1;
            }
            // The first one of each is its own.
            came > 3 + shared.built.load(Ordering::Relaxed)
        })
        .await;
        let last = api
            .0
            .frames
            .last
            .lock()
            .unwrap()
            .keys()
            .copied()
            .collect::<Vec<u64>>();
        assert_eq!(last, [200]);
        drop(streams);
        soon("frames are forgotten", async || {
            api.0.frames.last.lock().unwrap().is_empty()
        })
        .await;
        let frames = Frames::default();
        let one = frames.at(200, 1, || json!(1));
        assert_eq!(frames.at(200, 1, || json!(2)), one);
        assert_ne!(frames.at(200, 2, || json!(2)), one);
        assert_ne!(frames.at(500, 2, || json!(3)), one);
        assert_eq!(frames.built.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_frame_has_a_cap() {
        let world = World::with_capacity(CONFIG, SHOWN + 10);
        let mut routes = Vec::new();
        for n in 0..=SHOWN {
            let mut flow = flow(Network::Tcp, "203.0.113.1:443");
            flow.client.0.set_port(u16::try_from(1024 + n).unwrap());
            routes.push(world.engine.gatekeeper.admit(&flow).unwrap());
        }
        let frame = frame(&world.engine);
        let shown = frame["connections"].as_array().unwrap();
        assert_eq!((shown.len(), &frame["truncated"]), (SHOWN, &json!(true)));
        assert_eq!(
            shown[SHOWN - 1]["metadata"]["sourcePort"],
            (1024 + SHOWN).to_string()
        );
    }
}
