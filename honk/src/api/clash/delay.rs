//! Measurements in the words of Clash: one number, or one for each member.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use honk_policy::{
    config::CheckUrl,
    id::{GroupId, MemberId, NodeId},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{super::Shared, Named, bad, named, unknown};
use crate::{
    api::{error::ApiError, measure::TIMEOUT_MS},
    app::pings::{Busy, PingError, Run, Stage, Statuses, What, Wish, request},
};

/// Measurements of one request at a time.
const CONCURRENCY: usize = 10;

/// What a dashboard may say; what it leaves empty is as configured.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    url: Option<String>,
    timeout: Option<String>,
    expected: Option<String>,
}

impl Asked {
    pub(super) fn wish(&self) -> Result<Wish, ApiError> {
        let expected = self.expected.as_deref().filter(|e| !e.is_empty());
        let expected = match expected.map(Statuses::parse) {
            None => Statuses::default(),
            Some(Some(expected)) => expected,
            Some(None) => return Err(bad("expected: statuses such as 200/204/400-500")),
        };
        let url = self.url.as_deref().filter(|url| !url.is_empty());
        let url = match url.map(CheckUrl::parse) {
            None => None,
            Some(Ok(url)) => Some(url),
            Some(Err(error)) => return Err(bad(format!("url: {error}"))),
        };
        let timeout = self.timeout.as_deref().filter(|t| !t.is_empty());
        let timeout = match timeout.map(str::parse::<u64>) {
            None => None,
            Some(Ok(ms)) if TIMEOUT_MS.contains(&ms) => Some(Duration::from_millis(ms)),
            Some(_) => return Err(bad("timeout: milliseconds from 100 to 30000")),
        };
        Ok(Wish {
            url,
            timeout,
            expected,
            ..Wish::default()
        })
    }
}

/// One node; of a group all members, and the number of the current one.
pub(super) async fn one(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, ApiError> {
    let wish = asked.wish()?;
    let snapshot = shared.engine.snapshot();
    let node = match named(&snapshot, &name).ok_or_else(unknown)? {
        Named::Group(group) => return current(&shared, group.id, wish).await,
        Named::Node(node) => node.id,
    };
    of_node(&shared, node, wish).await
}

pub(super) async fn of_node(
    shared: &Shared,
    node: NodeId,
    wish: Wish,
) -> Result<Json<Value>, ApiError> {
    let measured = shared.engine.ping_node(node, None, wish).await;
    let (_, result) = measured.map_err(refused)?;
    match result {
        Ok(took) => Ok(Json(json!({ "delay": shown(took.as_millis()) }))),
        Err(failure) if failure.stage == Stage::Timeout => Err(timed_out()),
        Err(failure) => Err(failed(failure.to_string())),
    }
}

async fn current(shared: &Shared, group: GroupId, wish: Wish) -> Result<Json<Value>, ApiError> {
    let run = run(shared, group, wish).await?;
    // A group that chooses by itself may have another member by now.
    let view = shared.engine.snapshot().groups.view(group);
    let member = view.and_then(|view| view.tcp.member).map(|(id, _)| id);
    let result = run.results.iter().find(|(id, _)| Some(*id) == member);
    match result {
        Some((_, Ok(ms))) => Ok(Json(json!({ "delay": shown(u128::from(*ms)) }))),
        Some((_, Err(reason))) => Err(failed(&**reason)),
        None => Err(failed("the group has no member that was measured")),
    }
}

/// All members that answer, by name; of two of one name the first that is measured.
pub(super) async fn members(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Result<Json<Map<String, Value>>, ApiError> {
    let wish = asked.wish()?;
    let snapshot = shared.engine.snapshot();
    let Some(Named::Group(group)) = named(&snapshot, &name) else {
        return Err(unknown());
    };
    let run = run(&shared, group.id, wish).await?;
    let mut delays = Map::new();
    for member in &*group.members {
        let measured = |(id, result): &(MemberId, Result<u16, _>)| {
            (*id == member.id()).then_some(*result.as_ref().ok()?)
        };
        if let Some(ms) = run.results.iter().find_map(measured) {
            let ms = shown(u128::from(ms));
            delays.entry(member.name()).or_insert(json!(ms));
        }
    }
    Ok(Json(delays))
}

/// Measures the members to the end; joins a run of the group that goes on already and asks for
/// the same.
async fn run(shared: &Shared, group: GroupId, wish: Wish) -> Result<Run, ApiError> {
    let wish = Wish {
        concurrency: Some(CONCURRENCY),
        ..wish
    };
    let pings = shared.engine.pings().ok_or(PingError::NotRunning);
    let pings = pings.map_err(refused)?;
    let id = match shared.engine.ping(&What::Group(group), wish.clone()) {
        Ok(id) => id,
        Err(PingError::Busy(Busy::Same(id))) => {
            let snapshot = shared.engine.snapshot();
            let holds = pings
                .overrides
                .effective(&snapshot, snapshot.groups.group(group));
            let asked = request(holds, &wish);
            let other = pings.runs.run(id).filter(|run| run.request != asked);
            if other.is_some() {
                let text = "the group is being measured otherwise; ask again when that has ended";
                return Err(failed(text));
            }
            id
        }
        Err(error) => return Err(refused(error)),
    };
    let run = pings.runs.ended(id).await;
    run.ok_or_else(|| failed("the measurement was called off"))
}

/// Begins to measure, as configured. While a run of the same group goes on, its results are as
/// good; one of nodes may be of others.
pub(super) fn begin(shared: &Shared, what: &What) -> Result<(), ApiError> {
    match (shared.engine.ping(what, Wish::default()), what) {
        (Ok(_), _) | (Err(PingError::Busy(Busy::Same(_))), What::Group(_)) => Ok(()),
        (Err(PingError::Busy(Busy::Same(_))), _) => Err(failed(
            "other nodes are being measured; ask again when that has ended",
        )),
        (Err(error), _) => Err(refused(error)),
    }
}

/// 0 means a failure.
fn shown(ms: u128) -> u16 {
    u16::try_from(ms).unwrap_or(u16::MAX).max(1)
}

fn refused(error: PingError) -> ApiError {
    match error {
        PingError::NoGroup | PingError::NoNode => unknown(),
        error => failed(error.to_string()),
    }
}

fn failed(text: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "delay_failed", text)
}

fn timed_out() -> ApiError {
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "Timeout")
}
