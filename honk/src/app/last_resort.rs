//! Flows that groups sent to their only node though it is dead: counted, and told now and then.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Shortest time between two warnings about one group.
const QUIET: Duration = Duration::from_secs(60);

/// By group; rare, so that one lock will do.
#[derive(Debug, Default)]
pub(crate) struct LastResorts(Mutex<BTreeMap<Arc<str>, Served>>);

#[derive(Clone, Copy, Debug, Default)]
struct Served {
    flows: u64,
    warned: Option<Instant>,
}

impl LastResorts {
    /// Notes a flow.
    pub(super) fn note(&self, group: &Arc<str>, now: Instant) {
        if self.is_due(group, now) {
            tracing::warn!(
                target: "honk::group",
                group = &**group,
                "the only node of the group is dead and dialed all the same",
            );
        }
    }

    fn is_due(&self, group: &Arc<str>, now: Instant) -> bool {
        let mut all = self.lock();
        let served = all.entry(Arc::clone(group)).or_default();
        served.flows += 1;
        let quiet = |at: Instant| now.saturating_duration_since(at) < QUIET;
        let due = !served.warned.is_some_and(quiet);
        if due {
            served.warned = Some(now);
        }
        due
    }

    /// Forgets groups that are gone.
    pub(super) fn retain(&self, names: &[Arc<str>]) {
        self.lock().retain(|group, _| names.contains(group));
    }

    /// Flows by group.
    pub(crate) fn counts(&self) -> Vec<(Arc<str>, u64)> {
        let all = self.lock();
        let counts = all.iter().map(|(group, s)| (Arc::clone(group), s.flows));
        counts.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Served>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // G-100
    #[test]
    fn one_warning_a_minute_and_group_and_every_flow_counted() {
        let served = LastResorts::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(served.is_due(&a, at(0)));
        assert!(!served.is_due(&a, at(59)));
        assert!(served.is_due(&b, at(59)), "another group");
        assert!(served.is_due(&a, at(60)));
        assert_eq!(served.counts(), [(Arc::clone(&a), 3), (b, 1)]);
        served.retain(&[Arc::clone(&a)]);
        assert_eq!(served.counts(), [(a, 3)]);
    }
}
