//! One declared subscription with what is known about it: how attempts and reloads change it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use honk_policy::{
    config::{Source, Subscription},
    id::{NodeId, Uuid},
    node::Node,
    subscription::Changes,
};
use tokio::time::Instant;

use super::{
    error::{FetchResult, Problem},
    good::Good,
    http::Progress,
    plan::Planned,
    schedule,
};

/// One declared subscription with what is known about it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: Uuid,
    pub(super) decl: Subscription,
    pub(super) good: Option<Arc<Good>>,
    /// Nodes that the configuration or an earlier subscription has already.
    pub(super) shadowed: usize,
    /// What the last attempt failed with.
    pub(super) problem: Option<Problem>,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Attempts that have ended.
    pub(super) attempts: u64,
    pub(super) attempted: Option<(Instant, u64)>,
    /// When it is fetched next, with the same moment in Unix milliseconds.
    pub(super) due: Option<(Instant, u64)>,
    /// The fetch under way.
    pub(super) busy: Option<Arc<Progress>>,
    pub(super) changes: Option<(u64, Arc<Changes>)>,
    pub(super) counts: [u64; FetchResult::NAMES.len()],
}

impl Entry {
    pub(super) fn new(id: Uuid, decl: &Subscription) -> Self {
        Self {
            id,
            decl: decl.clone(),
            good: None,
            shadowed: 0,
            problem: None,
            failures: 0,
            attempts: 0,
            attempted: None,
            due: None,
            busy: None,
            changes: None,
            counts: [0; FetchResult::NAMES.len()],
        }
    }

    /// Becomes what was planned.
    pub(super) fn take(&mut self, planned: Planned, now: Instant) {
        let first = self.attempts == 0 && self.due.is_none() && self.busy.is_none();
        let other = self.decl.update_interval != planned.decl.update_interval
            || self.decl.user_agent != planned.decl.user_agent
            || self.decl.enabled != planned.decl.enabled
            || self.decl.format != planned.decl.format
            || self.decl.allow_private != planned.decl.allow_private;
        self.decl = planned.decl;
        if planned.read {
            self.counts[match planned.problem {
                None => FetchResult::Ok,
                Some(_) => FetchResult::Parse,
            } as usize] += 1;
            self.attempts += 1;
            self.attempted = Some((now, crate::clock::now_ms()));
            self.problem = planned.problem;
        }
        let had = self.good.is_some();
        self.good = planned.good.filter(|_| self.decl.enabled);
        if !had {
            self.changes = None;
        }
        let by_hand = self.interval().is_none() && self.good.is_some();
        let web = self.decl.source != Source::File;
        if !web || !self.decl.enabled {
            self.due = None;
        } else if (first && !by_hand) || other {
            self.due = Some(later(Duration::ZERO));
        }
    }

    pub(super) fn interval(&self) -> Option<Duration> {
        if self.decl.source == Source::File {
            return None;
        }
        let wished = self.good.as_ref().and_then(|g| g.info.interval_hours);
        schedule::interval(self.decl.update_interval, wished)
    }

    pub(super) fn succeeded(&mut self, good: Good) {
        self.good = Some(Arc::new(good));
        self.problem = None;
        self.failures = 0;
        self.ended(FetchResult::Ok);
        self.due = schedule::after_success(self.interval(), chance()).map(later);
    }

    pub(super) fn ended(&mut self, result: FetchResult) {
        self.busy = None;
        self.attempts += 1;
        self.attempted = Some((Instant::now(), crate::clock::now_ms()));
        self.counts[result as usize] += 1;
    }
}

/// Counts the nodes that each subscription shares with what comes before it.
pub(super) fn shadows(entries: &mut [Entry], statics: &[Node]) {
    let mut seen: HashSet<NodeId> = statics.iter().map(|n| n.id).collect();
    for entry in entries.iter_mut() {
        let nodes = entry.good.as_ref().map_or(&[][..], |g| &g.nodes);
        entry.shadowed = nodes.iter().filter(|n| !seen.insert(n.id)).count();
    }
}

/// A moment from now on both clocks.
pub(super) fn later(pause: Duration) -> (Instant, u64) {
    let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    (
        Instant::now() + pause,
        crate::clock::now_ms().saturating_add(millis),
    )
}

pub(super) fn chance() -> u32 {
    let [a, b, c, d, ..] = *Uuid::new_v4().as_bytes();
    u32::from_be_bytes([a, b, c, d])
}
