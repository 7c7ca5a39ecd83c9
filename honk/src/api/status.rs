//! Discovery, status, health.

use std::sync::atomic::Ordering;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use honk_policy::{config::OnCrash, id::Network};
use serde_json::json;

use super::{
    Shared, datapath,
    doc::{Banner, Counts, DatapathStatus, Discovery, Memory, Reason, Status, Totals},
    error::ApiError,
    query::{Nothing, Params},
    subscriptions,
};
use crate::{
    app::{
        engine::{Engine, Phase},
        kernel::Interface,
    },
    cli::version,
    clock,
    metrics::process,
};

/// Paths of this version.
const LINKS: [&str; 16] = [
    "/api/v1/status",
    "/api/v1/groups",
    "/api/v1/nodes",
    "/api/v1/subscriptions",
    "/api/v1/connections",
    "/api/v1/reload",
    "/api/v1/config",
    "/api/v1/config/validate",
    "/api/v1/datapath",
    "/api/v1/trace/flows",
    "/stats",
    "/proxies",
    "/group",
    "/metrics",
    "/healthz",
    "/readyz",
];

pub(super) async fn discovery(State(shared): State<Shared>, _: Params<Nothing>) -> Json<Discovery> {
    let engine = &shared.engine;
    let snapshot = engine.snapshot();
    Json(Discovery {
        name: "honk".to_owned(),
        version: version::VERSION.to_owned(),
        git: version::REVISION.to_owned(),
        api: "v1".to_owned(),
        pid: std::process::id(),
        generation: snapshot.generation,
        config_revision: snapshot.revision.to_string(),
        features: ["clash", "metrics"]
            .into_iter()
            .chain(shared.ui.is_some().then_some("external_ui"))
            .map(str::to_owned)
            .collect(),
        links: LINKS.map(str::to_owned).to_vec(),
        started_at: clock::text(engine.started_ms),
        now: clock::now(),
    })
}

pub(super) async fn status(State(shared): State<Shared>, _: Params<Nothing>) -> Json<Status> {
    Json(document(&shared))
}

pub(super) fn document(shared: &Shared) -> Status {
    let engine = &*shared.engine;
    let snapshot = engine.snapshot();
    let interfaces = engine.kernel.interfaces();
    let (state, reasons) = state(engine, &interfaces);
    let (up_bytes, down_bytes) = engine.totals();
    let open = |network| -> usize {
        let stats = engine.registry.stats();
        let open = stats
            .iter()
            .map(|(_, s)| s.of(network).open.load(Ordering::Relaxed));
        usize::try_from(open.sum::<u64>()).unwrap_or(usize::MAX)
    };
    let groups = snapshot.config.groups.iter().filter(|g| !g.implicit);
    Status {
        state: state.to_owned(),
        reasons,
        version: version::VERSION.to_owned(),
        pid: std::process::id(),
        uptime_s: engine.started.elapsed().as_secs(),
        mode: "Rule".to_owned(),
        generation: snapshot.generation,
        config_revision: snapshot.revision.to_string(),
        last_reload: engine.reloads.state(),
        datapath: DatapathStatus {
            backend: "ebpf".to_owned(),
            gate: engine.gate().to_owned(),
            interfaces,
            on_crash: on_crash(snapshot.config.global.on_crash).to_owned(),
        },
        counts: Counts {
            groups: groups.count(),
            nodes: snapshot.groups.nodes().len(),
            connections_tcp: open(Network::Tcp),
            connections_udp: open(Network::Udp),
            rules: snapshot.rules.lines.len(),
        },
        rates: engine.rates(),
        totals: Totals {
            up_bytes,
            down_bytes,
        },
        memory: Memory {
            rss_bytes: process::read().map_or(0, |p| p.resident),
        },
        banner: engine.judge.banner().map(|banner| Banner {
            id: banner.id.to_string(),
            text: banner.text,
            nodes: banner.nodes.iter().map(|n| n.0.to_string()).collect(),
        }),
        warnings: snapshot
            .diagnostics
            .iter()
            .filter(|d| d.severity == "warning")
            .cloned()
            .chain(subscriptions::warnings(engine))
            .chain(datapath::warnings(engine))
            .chain(shared.warnings.iter().cloned())
            .collect(),
    }
}

/// Takes the banner away.
pub(super) async fn acknowledge(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<StatusCode, ApiError> {
    let known = id
        .parse()
        .is_ok_and(|id| shared.engine.judge.acknowledge(id));
    match known {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::not_found(
            "banner",
            "no such banner, or it is gone",
        )),
    }
}

fn on_crash(on_crash: OnCrash) -> &'static str {
    match on_crash {
        OnCrash::Block => "block",
        OnCrash::Direct => "direct",
    }
}

/// State and what keeps it from being `running`. An interface that does not exist yet is
/// awaited, not missed; one that exists and is not hooked lets its traffic pass.
pub(super) fn state(engine: &Engine, interfaces: &[Interface]) -> (&'static str, Vec<Reason>) {
    match engine.phase() {
        Phase::Starting => ("starting", Vec::new()),
        Phase::Stopping => ("stopping", Vec::new()),
        Phase::Suspended => ("suspended", Vec::new()),
        Phase::Running => {
            let broken = interfaces.iter().filter(|i| !i.attached && !i.pending);
            let reasons: Vec<Reason> = broken
                .map(|i| Reason {
                    code: "not_attached".to_owned(),
                    message: format!(
                        "{}: {}",
                        i.name,
                        i.problem.as_deref().unwrap_or("hooks are not attached")
                    ),
                })
                .collect();
            let state = if reasons.is_empty() {
                "running"
            } else {
                "degraded"
            };
            (state, reasons)
        }
    }
}

/// Whether the process answers.
pub(super) async fn health(_: Params<Nothing>) -> Json<serde_json::Value> {
    Json(json!({ "status": "ok" }))
}

/// Whether flows are intercepted.
pub(super) async fn ready(State(shared): State<Shared>, _: Params<Nothing>) -> Response {
    let (state, _) = state(&shared.engine, &shared.engine.kernel.interfaces());
    let (code, word) = match state {
        "running" => (StatusCode::OK, "ok"),
        "degraded" => (StatusCode::OK, "degraded"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
    };
    (code, Json(json!({ "status": word }))).into_response()
}
