//! Decisions about new flows as a stream of server-sent events, until the client goes.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use honk_policy::id::Network;
use hyper::body::{Bytes, Frame};
use serde::Deserialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{
    Shared,
    connections::{endpoint, number, prefix},
    doc::{self, Process, Rule},
    error::ApiError,
    query::Params,
};
use crate::{
    app::trace::{Decision, Filter, WATCHERS, Watch},
    clock,
};

/// A comment is sent this often, so that both sides notice when the other has gone.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Filters; all must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    network: Option<String>,
    src: Option<String>,
    dst: Option<String>,
    host: Option<String>,
    group: Option<String>,
    rule: Option<String>,
}

pub(super) async fn flows(
    State(shared): State<Shared>,
    Params(wanted): Params<Wanted>,
) -> Result<Response, ApiError> {
    let network = match wanted.network.as_deref() {
        None => None,
        Some("tcp") => Some(Network::Tcp),
        Some("udp") => Some(Network::Udp),
        Some(_) => return Err(ApiError::bad_query("network", "network is tcp or udp")),
    };
    let filter = Filter {
        network,
        src: prefix("src", wanted.src.as_deref())?,
        dst: prefix("dst", wanted.dst.as_deref())?,
        host: wanted.host.map(|h| h.to_ascii_lowercase()),
        outbound: wanted.group,
        rule: number("rule", wanted.rule.as_deref())?,
    };
    let watch = shared
        .engine
        .gatekeeper
        .traces
        .watch(filter)
        .ok_or_else(|| {
            let text = format!("{WATCHERS} already watch; end one of them first");
            ApiError::new(StatusCode::CONFLICT, "busy", text)
        })?;
    let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begun = Some(Bytes::from_static(b": watching\n\n"));
    let mut response = Response::new(Body::new(Stream { begun, watch, beat }));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The body: frames as they come. Dropping it ends the watch.
struct Stream {
    /// Says at once that the watch is on.
    begun: Option<Bytes>,
    watch: Watch,
    beat: Interval,
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if let Some(begun) = self.begun.take() {
            return frame(begun);
        }
        match self.watch.queue.poll_recv(context) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(decision)) => {
                let mut text = String::new();
                match self.watch.take_lost() {
                    0 => {}
                    n => text.push_str(&format!("event: dropped\ndata: {{\"count\":{n}}}\n\n")),
                }
                let json = serde_json::to_string(&document(&decision)).unwrap_or_default();
                text.push_str(&format!("event: flow\ndata: {json}\n\n"));
                return frame(Bytes::from(text));
            }
            Poll::Pending => {}
        }
        match self.beat.poll_tick(context) {
            Poll::Ready(_) => frame(Bytes::from_static(b": here\n\n")),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn document(d: &Decision) -> doc::Decision {
    doc::Decision {
        at: clock::text(d.at_ms),
        stage: d.stage.to_owned(),
        network: d.network.name().to_owned(),
        src: endpoint(d.src),
        dst: endpoint(d.dst),
        host: d.host.as_ref().map(ToString::to_string),
        host_source: d.host_source.to_owned(),
        process: d.process.as_ref().map(|(pid, name)| Process {
            pid: *pid,
            name: name.clone(),
        }),
        own: d.own,
        rule: d.rule.as_ref().map(|(index, line)| Rule {
            index: *index,
            text: line.text.clone(),
            file: line.file.clone(),
            line: line.line,
        }),
        must: d.must,
        ordinal: d.ordinal,
        outbound: d.outbound.as_ref().map(ToString::to_string),
        chain: d.chain.iter().map(ToString::to_string).collect(),
        verdict: d.verdict.to_owned(),
        reason: d.reason.to_owned(),
    }
}
