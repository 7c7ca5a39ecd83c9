//! The stream of events.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    extract::{State, ws::Utf8Bytes},
    http::{HeaderMap, StatusCode},
    response::{
        IntoResponse as _, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};

use super::{Shared, error::ApiError, feed::Wire, groups, query::Params, status};
use crate::app::events::Event;

/// Streams at a time.
const STREAMS: usize = 32;
/// Streams of one address.
const PER_ADDRESS: usize = 8;
/// Pause after which a silent stream says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Events that went past listeners that were too slow.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many events listeners lost.
pub(super) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Places for streams, by address; the unix socket has one of its own.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<Option<IpAddr>, usize>>);

impl Streams {
    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.lock().values().sum()
    }

    pub(super) fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
        let mut open = self.lock();
        let all: usize = open.values().sum();
        let own = open.get(&address).copied().unwrap_or(0);
        // Whoever uses the socket may do everything anyway.
        if all >= STREAMS || (address.is_some() && own >= PER_ADDRESS) {
            return None;
        }
        open.insert(address, own + 1);
        Some(Place(Arc::clone(self), address))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Option<IpAddr>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, given back on drop.
#[derive(Debug)]
pub(super) struct Place(Arc<Streams>, Option<IpAddr>);

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.0.lock();
        if let Some(count) = open.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.1);
            }
        }
    }
}

/// Why a stream is refused.
pub(super) fn too_many() -> ApiError {
    let text = "too many streams are open";
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", text)
}

/// What is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Types of events; without it all.
    types: Option<String>,
    /// Ids of groups: of events about groups only those.
    groups: Option<String>,
    /// Begin with status and groups.
    #[serde(default)]
    snapshot: bool,
    /// Of a WebSocket; the guard has looked at it.
    #[serde(rename = "token")]
    _token: Option<IgnoredAny>,
}

/// What passes.
#[derive(Debug)]
struct Filter {
    types: Option<Vec<String>>,
    groups: Option<Vec<String>>,
}

impl Filter {
    fn passes(&self, event: &Event) -> bool {
        let kind = self.types.as_ref();
        let group = self.groups.as_ref().zip(event.group.as_ref());
        kind.is_none_or(|types| types.iter().any(|t| t == event.kind))
            && group.is_none_or(|(groups, group)| groups.contains(group))
    }
}

/// One message of a stream.
#[derive(Debug)]
struct Frame {
    kind: &'static str,
    /// `None` for what belongs to this stream alone.
    id: Option<String>,
    body: Value,
}

impl Frame {
    fn numbered(boot: &str, event: &Event) -> Self {
        Self {
            kind: event.kind,
            id: Some(format!("{boot}-{}", event.seq)),
            body: event.body.clone(),
        }
    }

    fn plain(kind: &'static str, shared: &Shared, data: Value) -> Self {
        let body = json!({
            "type": kind,
            "at": crate::clock::now(),
            "generation": shared.engine.snapshot().generation,
            "data": data,
        });
        let id = None;
        Self { kind, id, body }
    }

    fn sse(self) -> sse::Event {
        let event = sse::Event::default().event(self.kind);
        let event = match self.id {
            Some(id) => event.id(id),
            None => event,
        };
        event.data(self.body.to_string())
    }

    /// For a WebSocket, which has no place of its own for the id.
    fn text(mut self) -> Utf8Bytes {
        if let Some(id) = self.id {
            self.body["id"] = id.into();
        }
        self.body.to_string().into()
    }
}

/// A stream under way.
struct Stream {
    boot: String,
    /// To be sent before anything live.
    first: VecDeque<Frame>,
    live: broadcast::Receiver<Arc<Event>>,
    filter: Filter,
}

pub(super) async fn stream(
    State(shared): State<Shared>,
    wire: Wire,
    Params(wanted): Params<Wanted>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let place = wire.place(&shared)?;
    let events = &shared.engine.events;
    let last = headers.get("last-event-id").map(|id| {
        let number = id
            .to_str()
            .ok()
            .and_then(|id| id.strip_prefix(&*events.boot));
        let number = number.and_then(|n| n.strip_prefix('-')?.parse::<u64>().ok());
        // Of another process: nothing of it is known here.
        number.unwrap_or(u64::MAX)
    });
    let listener = events.listen(last);
    let list = |text: Option<String>| text.map(|t| t.split(',').map(str::to_owned).collect());
    let filter = Filter {
        types: list(wanted.types),
        groups: list(wanted.groups),
    };
    let mut first = VecDeque::new();
    if wanted.snapshot {
        let data = json!({ "status": status::document(&shared), "groups": groups::all(&shared) });
        first.push_back(Frame::plain("snapshot", &shared, data));
    }
    match listener.missed {
        None => first.push_back(Frame::plain("resync", &shared, Value::Null)),
        Some(missed) => {
            let missed = missed.iter().filter(|event| filter.passes(event));
            first.extend(missed.map(|event| Frame::numbered(&events.boot, event)));
        }
    }
    let stream = Stream {
        boot: events.boot.clone(),
        first,
        live: listener.live,
        filter,
    };
    let frames = stream::unfold(stream, |mut stream| async move {
        let frame = stream.next().await?;
        Some((frame, stream))
    });
    if wire.is_socket() {
        return Ok(wire.carry(place, Box::pin(frames.map(Frame::text))));
    }
    let frames = frames.map(move |frame| {
        // Held until the stream is dropped.
        let _ = &place;
        Ok::<_, Infallible>(frame.sse())
    });
    let alive = KeepAlive::new().interval(HEARTBEAT);
    Ok(Sse::new(frames).keep_alive(alive).into_response())
}

impl Stream {
    async fn next(&mut self) -> Option<Frame> {
        if let Some(frame) = self.first.pop_front() {
            return Some(frame);
        }
        loop {
            match self.live.recv().await {
                Ok(event) if self.filter.passes(&event) => {
                    return Some(Frame::numbered(&self.boot, &event));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => {
                    DROPPED.fetch_add(count, Ordering::Relaxed);
                    return Some(Frame {
                        kind: "dropped",
                        id: None,
                        body: json!({ "type": "dropped", "count": count }),
                    });
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        api::{Api, mask::Mask},
        app::testkit::{CONFIG, World},
    };

    const LONG: Duration = Duration::from_secs(30);

    /// The next frame with data: type, id and document.
    async fn frame(body: &mut Body) -> (String, String, Value) {
        let frame = tokio::time::timeout(LONG, body.frame()).await.unwrap();
        let bytes = frame.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let field = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let data = serde_json::from_str(&field("data:")).unwrap();
        (field("event:"), field("id:"), data)
    }

    async fn open(router: &axum::Router, query: &str, last: Option<&str>) -> Response {
        let request = Request::get(format!("/api/v1/events{query}"));
        let request = match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        };
        let request = request.body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap()
    }

    #[tokio::test]
    async fn a_choice_is_told_and_can_be_asked_for_again() {
        let world = World::new(CONFIG);
        let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
        let router = api.socket();
        let response = open(&router, "?snapshot=true", None).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut body = response.into_body();
        let (kind, _, data) = frame(&mut body).await;
        assert_eq!(kind, "snapshot");
        assert_eq!(data["data"]["status"]["state"], "running");
        assert_eq!(data["data"]["groups"][0]["name"], "proxy");

        let group = world.group("proxy");
        let other = format!("?groups={}", uuid::Uuid::nil());
        let mut others = open(&router, &other, None).await.into_body();
        let request = Request::put("/proxies/proxy").body(Body::from(r#"{"name":"b"}"#));
        let answer = router.clone().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), 204);
        let mut ids = Vec::new();
        for network in ["tcp", "udp"] {
            let (kind, id, event) = frame(&mut body).await;
            assert_eq!(kind, "selection");
            let data = &event["data"];
            assert_eq!(data["group_id"], group.0.to_string());
            assert_eq!((&data["from"], &data["to"]), (&json!("a"), &json!("b")));
            assert_eq!(
                (&data["network"], &data["cause"]),
                (&json!(network), &json!("user"))
            );
            ids.push(id);
        }
        world.engine.suspend().unwrap();
        let (kind, _, event) = frame(&mut body).await;
        assert_eq!(
            (kind.as_str(), &event["data"]["state"]),
            ("state", &json!("suspended"))
        );
        let (kind, ..) = frame(&mut others).await;
        assert_eq!(kind, "state", "the other group's choice is no news here");

        let mut again = open(&router, "?types=selection", Some(&ids[0]))
            .await
            .into_body();
        assert_eq!(frame(&mut again).await.1, ids[1]);
        let mut lost = open(&router, "", Some("other-1")).await.into_body();
        assert_eq!(frame(&mut lost).await.0, "resync");
    }

    #[tokio::test]
    async fn there_is_a_cap_on_streams() {
        let world = World::new(CONFIG);
        let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
        let router = api.socket();
        let mut open_ones = Vec::new();
        for _ in 0..STREAMS {
            let response = open(&router, "", None).await;
            assert_eq!(response.status(), 200);
            open_ones.push(response);
        }
        assert_eq!(open(&router, "", None).await.status(), 429);
        open_ones.pop();
        assert_eq!(open(&router, "", None).await.status(), 200);
        let streams: Arc<Streams> = Arc::default();
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let places: Vec<Place> = (0..PER_ADDRESS)
            .filter_map(|_| streams.take(address))
            .collect();
        assert_eq!(places.len(), PER_ADDRESS);
        assert!(streams.take(address).is_none() && streams.take(None).is_some());
        drop(places);
        assert_eq!(streams.open(), 0);
    }

    #[tokio::test]
    async fn reloads_are_told_from_beginning_to_end() {
        let world = World::new(CONFIG);
        let api = Api::new(world.engine.clone(), Mask::default(), Vec::new());
        let router = api.socket();
        let mut body = open(&router, "", None).await.into_body();
        let request = Request::post("/api/v1/reload?wait_ms=30000").body(Body::empty());
        let answer = router.clone().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(frame(&mut body).await.0, "reload.started");
        let (kind, _, event) = frame(&mut body).await;
        assert_eq!(kind, "reload.finished");
        assert_eq!(event["data"]["state"], "done");
        assert_eq!(event["generation"], 2);
    }
}
