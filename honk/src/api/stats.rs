//! `GET /stats`: counters of the engine as one document.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use axum::{Json, extract::State};
use honk_policy::id::Network;

use super::{
    Shared,
    doc::{OutboundStats, Stats},
    query::{Nothing, Params},
    score,
};
use crate::app::{
    engine::Engine,
    registry::{NetStats, REASONS},
};

/// Ends of flows that count as errors.
const ERRORS: [&str; 3] = ["reset", "timeout", "dial_failed"];

pub(super) async fn stats(State(shared): State<Shared>, _: Params<Nothing>) -> Json<Stats> {
    let engine = &shared.engine;
    let snapshot = engine.snapshot();
    let stats = engine.score.stats();
    Json(Stats {
        generation: snapshot.generation,
        uptime_secs: engine.started.elapsed().as_secs(),
        outbounds: outbounds(engine),
        score: score::counters(&stats, |key| score::name_of(&snapshot, key)),
    })
}

fn outbounds(engine: &Engine) -> Vec<OutboundStats> {
    let live = live(engine);
    let mut all: BTreeMap<Arc<str>, OutboundStats> = BTreeMap::new();
    for (name, stats) in engine.registry.stats() {
        let sum = all.entry(Arc::clone(&name)).or_default();
        sum.name = name.to_string();
        for network in [Network::Tcp, Network::Udp] {
            let key = (Arc::clone(&name), network.name());
            let live = live.get(&key).copied().unwrap_or_default();
            add(sum, stats.of(network), live);
        }
    }
    all.into_values().collect()
}

fn add(sum: &mut OutboundStats, net: &NetStats, (up, down): (u64, u64)) {
    sum.total_conns += net.opened.load(Ordering::Relaxed);
    sum.active_conns += net.open.load(Ordering::Relaxed);
    sum.upload += up + net.up.load(Ordering::Relaxed);
    sum.download += down + net.down.load(Ordering::Relaxed);
    let ends = REASONS.iter().zip(&net.closed);
    let errors = ends.filter(|(reason, _)| ERRORS.contains(reason));
    sum.errors += errors
        .map(|(_, count)| count.load(Ordering::Relaxed))
        .sum::<u64>();
}

/// Bytes up and down of flows that are open, by outbound and network.
pub(super) fn live(engine: &Engine) -> BTreeMap<(Arc<str>, &'static str), (u64, u64)> {
    let mut live: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for flow in engine.registry.list() {
        let key = (Arc::clone(&flow.outbound), flow.flow.network.name());
        let sum = live.entry(key).or_default();
        sum.0 += flow.counters.up.load(Ordering::Relaxed);
        sum.1 += flow.counters.down.load(Ordering::Relaxed);
    }
    live
}
