//! What is known of the past of a node: probes, flows, measurements that people asked for.

use std::sync::Arc;

use honk_policy::{
    health::SampleKind,
    id::{MemberId, NodeId},
};

use crate::app::{
    engine::Engine,
    health::{Prober, Report, check_url},
};

/// Samples that are shown.
const SHOWN: usize = 10;

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Past {
    pub(super) at_ms: u64,
    /// `None` is a failure.
    pub(super) delay_ms: Option<u16>,
    pub(super) url: Arc<str>,
    /// `probe`, `traffic` or `manual`.
    pub(super) kind: &'static str,
}

/// Where they come from, gathered once for any number of nodes.
pub(super) struct Samples<'a> {
    engine: &'a Engine,
    report: Arc<Report>,
    /// What probes ask for.
    url: Arc<str>,
}

impl<'a> Samples<'a> {
    pub(super) fn of(engine: &'a Engine) -> Self {
        let report = engine.prober().map(Prober::report);
        let url = check_url(&engine.snapshot().config);
        Self {
            engine,
            report: report.unwrap_or_default(),
            url: Arc::clone(&url.text),
        }
    }

    /// The last ones, the oldest first.
    pub(super) fn of_node(&self, node: NodeId) -> Vec<Past> {
        let mut past = self.of_member(MemberId::Node(node));
        if let Some(prober) = self.engine.prober()
            && let Some(seen) = self.report.history.get(&node)
        {
            past.extend(seen.iter().map(|sample| {
                Past {
                    at_ms: prober.wall_ms(sample.at),
                    delay_ms: sample
                        .latency
                        .map(|took| u16::try_from(took.as_millis()).unwrap_or(u16::MAX)),
                    url: Arc::clone(&self.url),
                    kind: match sample.kind {
                        SampleKind::Probe => "probe",
                        SampleKind::Traffic => "traffic",
                    },
                }
            }));
        }
        past.sort_by_key(|sample| sample.at_ms);
        past.split_off(past.len().saturating_sub(SHOWN))
    }

    /// Only what people asked for.
    pub(super) fn of_member(&self, member: MemberId) -> Vec<Past> {
        let Some(pings) = self.engine.pings() else {
            return Vec::new();
        };
        let past = |sample: &honk_policy::health::measure::Measured| Past {
            at_ms: sample.at_ms,
            delay_ms: sample.result.as_ref().ok().copied(),
            url: Arc::clone(&sample.url),
            kind: "manual",
        };
        pings
            .runs
            .maps(|maps| maps.samples(member).map(past).collect())
    }
}
