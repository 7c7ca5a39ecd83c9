//! What happens in the daemon, for those who listen: numbered, kept for a while, never waited for.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::sync::broadcast;

use crate::clock;

/// Events that can be asked for again.
pub(crate) const KEPT: usize = 1024;
/// For how long.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// Events that wait for one listener; the oldest go first.
pub(crate) const QUEUE: usize = 256;

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) seq: u64,
    pub(crate) kind: &'static str,
    /// The group it is about.
    pub(crate) group: Option<String>,
    /// `{type, at, generation, data}`
    pub(crate) body: Value,
    at: Instant,
}

/// All events.
#[derive(Debug)]
pub(crate) struct Events {
    /// Tells numbers of this process from those of another one.
    pub(crate) boot: String,
    kept: Mutex<Ring>,
    live: broadcast::Sender<Arc<Event>>,
}

#[derive(Debug, Default)]
struct Ring {
    next: u64,
    events: VecDeque<Arc<Event>>,
}

/// What a listener gets.
#[derive(Debug)]
pub(crate) struct Listener {
    /// What happened since the event it knows; `None` when that is not known any more.
    pub(crate) missed: Option<Vec<Arc<Event>>>,
    pub(crate) live: broadcast::Receiver<Arc<Event>>,
}

impl Default for Events {
    fn default() -> Self {
        let boot = uuid::Uuid::new_v4().simple().to_string();
        Self {
            boot: boot.chars().take(8).collect(),
            kept: Mutex::default(),
            live: broadcast::Sender::new(QUEUE),
        }
    }
}

impl Events {
    /// Something happened.
    pub(crate) fn tell(
        &self,
        kind: &'static str,
        group: Option<String>,
        generation: u64,
        data: Value,
    ) {
        let now = Instant::now();
        let mut kept = self.lock();
        kept.next += 1;
        let body = serde_json::json!({
            "type": kind,
            "at": clock::now(),
            "generation": generation,
            "data": data,
        });
        let event = Arc::new(Event {
            seq: kept.next,
            kind,
            group,
            body,
            at: now,
        });
        while kept.events.len() >= KEPT || kept.events.front().is_some_and(|e| is_old(e, now)) {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::clone(&event));
        // Under the lock, so that a new listener misses nothing and hears nothing twice. Nobody
        // may be listening.
        let _ = self.live.send(event);
    }

    /// Listens from now on, or from the event after `last`.
    pub(crate) fn listen(&self, last: Option<u64>) -> Listener {
        let kept = self.lock();
        let missed = match last {
            None => Some(Vec::new()),
            Some(last) => {
                let first = kept.events.front().map_or(kept.next + 1, |e| e.seq);
                let known = last <= kept.next && last + 1 >= first;
                let later = kept.events.iter().filter(|e| e.seq > last);
                known.then(|| later.cloned().collect())
            }
        };
        let live = self.live.subscribe();
        Listener { missed, live }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_old(event: &Event, now: Instant) -> bool {
    now.saturating_duration_since(event.at) > KEPT_FOR
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn listeners_catch_up_without_gap_or_repeat() {
        let events = Events::default();
        let tell = |n: u64| events.tell("state", None, 1, json!(n));
        (1..=3).for_each(tell);
        let mut listener = events.listen(Some(1));
        tell(4);
        let missed: Vec<u64> = listener.missed.unwrap().iter().map(|e| e.seq).collect();
        assert_eq!(missed, [2, 3]);
        assert_eq!(listener.live.try_recv().unwrap().seq, 4);
        assert!(events.listen(None).missed.unwrap().is_empty());
        assert!(
            events.listen(Some(9)).missed.is_none(),
            "of another process"
        );
    }

    #[test]
    fn old_events_are_forgotten_and_slow_listeners_lose_the_oldest() {
        let events = Events::default();
        let mut listener = events.listen(None);
        for n in 0..=KEPT as u64 {
            events.tell("state", None, 1, json!(n));
        }
        assert_eq!(events.lock().events.len(), KEPT);
        assert!(events.listen(Some(0)).missed.is_none());
        assert_eq!(events.listen(Some(1)).missed.unwrap().len(), KEPT);
        let lost = listener.live.try_recv().unwrap_err();
        let expected = broadcast::error::TryRecvError::Lagged((KEPT + 1 - QUEUE) as u64);
        assert_eq!(lost, expected);
    }
}
