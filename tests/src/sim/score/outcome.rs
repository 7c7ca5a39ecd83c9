//! What came of the flows of a run, and the figures of it.

use super::{policy::Choice, world::Flow};

/// What came of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// When it arrived, seconds.
    pub at: f64,
    /// Where it went.
    pub target: usize,
    /// Whether that was an IPv6 target.
    pub v6: bool,
    /// What was chosen first; nothing if no node was allowed.
    pub first: Option<Choice>,
    /// Whether that attempt failed.
    pub failed_first: bool,
    /// The node of the last attempt that came to something.
    pub last: Option<usize>,
    /// Milliseconds from its arrival to its response; nothing for a failed one.
    pub millis: Option<f64>,
    /// Milliseconds the running attempt takes to its response.
    pub(super) response: f64,
}

impl Served {
    pub(super) fn new(flow: &Flow) -> Self {
        Self {
            at: flow.at,
            target: flow.target,
            v6: flow.v6,
            first: None,
            failed_first: false,
            last: None,
            millis: None,
            response: 0.0,
        }
    }

    /// Whether the ordinary choice was this node.
    pub fn ordinary(&self, node: usize) -> bool {
        self.first.is_some_and(|c| c.node == node && !c.trial)
    }

    /// Whether its first attempt went to this node.
    pub fn went_to(&self, node: usize) -> bool {
        self.first.is_some_and(|c| c.node == node)
    }

    /// Whether it was a trial.
    pub fn trial(&self) -> bool {
        self.first.is_some_and(|c| c.trial)
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Every flow, in order of arrival.
    pub served: Vec<Served>,
    /// How long it lasted.
    pub seconds: f64,
}

/// The figures of a run; means over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Share of flows whose first attempt failed.
    pub first_failed: f64,
    /// Share of flows that failed for their client.
    pub failed: f64,
    /// Median response of served flows, milliseconds.
    pub p50: f64,
    /// 95th part of a hundred.
    pub p95: f64,
    /// Mean.
    pub mean: f64,
    /// Trials by flow.
    pub trials: f64,
}

impl Outcome {
    /// Flows that a node was chosen for.
    pub fn chosen(&self) -> impl Iterator<Item = &Served> {
        self.served.iter().filter(|s| s.first.is_some())
    }

    /// Flows of a time.
    pub fn between(&self, from: f64, to: f64) -> impl Iterator<Item = &Served> {
        self.chosen().filter(move |s| s.at >= from && s.at < to)
    }

    /// Its figures.
    pub fn figures(&self) -> Figures {
        let count = self.chosen().count().max(1) as f64;
        let share =
            |is: &dyn Fn(&Served) -> bool| self.chosen().filter(|s| is(s)).count() as f64 / count;
        let mut millis: Vec<f64> = self.chosen().filter_map(|s| s.millis).collect();
        millis.sort_by(f64::total_cmp);
        let part = |p: f64| {
            let at = (millis.len() as f64 * p) as usize;
            millis.get(at).copied().unwrap_or_default()
        };
        Figures {
            first_failed: share(&|s| s.failed_first),
            failed: share(&|s| s.millis.is_none()),
            p50: part(0.5),
            p95: part(0.95),
            mean: millis.iter().sum::<f64>() / millis.len().max(1) as f64,
            trials: share(&Served::trial),
        }
    }
}

impl Figures {
    /// Means of several runs.
    pub fn mean_of(all: &[Self]) -> Self {
        let mean = |f: fn(&Self) -> f64| all.iter().map(f).sum::<f64>() / all.len().max(1) as f64;
        Self {
            first_failed: mean(|f| f.first_failed),
            failed: mean(|f| f.failed),
            p50: mean(|f| f.p50),
            p95: mean(|f| f.p95),
            mean: mean(|f| f.mean),
            trials: mean(|f| f.trials),
        }
    }
}

/// Share of those that are so.
pub fn share<'a>(flows: impl Iterator<Item = &'a Served>, is: impl Fn(&Served) -> bool) -> f64 {
    let (mut all, mut those) = (0_u32, 0_u32);
    for flow in flows {
        all += 1;
        those += u32::from(is(flow));
    }
    f64::from(those) / f64::from(all.max(1))
}
