//! The kernel side as it is.

use axum::{Json, extract::State};

use honk_common::counter::Stat;
use honk_grammar::diag::{Diagnostic, Severity};

use super::{
    Shared,
    doc::{Datapath, Diag, Feature, KernelTraffic},
    query::{Nothing, Params},
};
use crate::app::{diag, engine::Engine};

/// What readers of the status should know.
pub(super) fn warnings(engine: &Engine) -> Option<Diag> {
    let counters = engine.kernel_counters();
    let count = |stat: Stat| counters.stats.get(stat as usize).map_or(0, |(_, n)| *n);
    let (mended, lost) = (count(Stat::FrameMended), count(Stat::FrameDrop));
    (mended + lost > 0).then(|| {
        let text = format!(
            "{} packets came without their link header, {lost} of them were dropped: \
             another XDP program stands in front of the stack (`honk diag` names it)",
            mended + lost
        );
        let severity = Severity::Warning;
        diag::placeless(&Diagnostic::new(severity, "", "frames-cut", None, text))
    })
}

pub(super) async fn datapath(State(shared): State<Shared>, _: Params<Nothing>) -> Json<Datapath> {
    let engine = &shared.engine;
    let snapshot = engine.snapshot();
    let counters = engine.kernel_counters();
    let name = |slot| {
        snapshot
            .name_of(slot)
            .map_or_else(String::new, ToString::to_string)
    };
    Json(Datapath {
        gate: engine.gate().to_owned(),
        interfaces: engine.kernel.interfaces(),
        features: counters
            .features
            .iter()
            .map(|(name, used)| Feature {
                name: name.clone(),
                used: *used,
            })
            .collect(),
        maps: counters.maps.clone(),
        counters: counters
            .stats
            .iter()
            .map(|(n, v)| ((*n).to_owned(), *v))
            .collect(),
        outbounds: counters
            .outbounds
            .iter()
            .map(|(slot, s)| KernelTraffic {
                slot: *slot,
                outbound: name(*slot),
                tx_packets: s.tx_packets,
                tx_bytes: s.tx_bytes,
                rx_packets: s.rx_packets,
                rx_bytes: s.rx_bytes,
            })
            .collect(),
    })
}
