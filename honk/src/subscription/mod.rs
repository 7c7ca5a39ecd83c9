//! Subscriptions: which nodes each one has now, when it is fetched next, what happened last.
//!
//! [`Hub`] holds that for the running configuration. It decides nothing about groups: `app`
//! takes a [`Plan`] or a [`Good`] body into use as an activation and then tells the hub. What
//! failed changes nothing but the report: the nodes of the last good body stay.

mod body;
mod entry;
mod error;
mod good;
mod http;
mod net;
mod plan;
mod schedule;
mod store;
mod target;
mod view;
mod work;

#[cfg(test)]
pub(crate) mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use honk_policy::{
    config::{Source, Subscription},
    id::Uuid,
    node::Node,
    subscription::Changes,
};
use tokio::{sync::watch, time::Instant};

use self::{
    entry::{Entry, chance, later, shadows},
    error::Problem,
    http::Validators,
    plan::Planned,
};
pub(crate) use self::{
    error::{FetchError, FetchResult},
    good::{Good, Via, shown},
    http::Progress,
    net::Net,
    plan::{Plan, Reader},
    store::{Store, Stored},
    view::View,
    work::{Fetched, Job, perform},
};

/// Fetches at the same time.
pub(crate) const PARALLEL: usize = 4;
/// A reload does not ask again for what was asked for within this time.
const RECENT: Duration = Duration::from_secs(10);

/// All subscriptions of the running configuration.
#[derive(Debug)]
pub(crate) struct Hub {
    store: Option<Store>,
    /// Directory of the entry file, for seeds.
    config_dir: PathBuf,
    entries: Mutex<Vec<Entry>>,
    /// Raised by every change; wakes the fetcher and those who wait.
    changed: watch::Sender<u64>,
}

impl Hub {
    pub(crate) fn new(store: Option<Store>, config_dir: &Path) -> Self {
        Self {
            store,
            config_dir: config_dir.to_owned(),
            entries: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touched(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// For those who wait for a change.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The body in use under that identity. One that would be asked for or read differently by
    /// now serves until it is there anew.
    fn good(&self, id: Uuid, decl: &Subscription) -> Option<Arc<Good>> {
        let entries = self.lock();
        let entry = entries.iter().find(|e| e.id == id)?;
        let good = entry.good.as_ref()?;
        let same = entry.decl.format == decl.format && entry.decl.user_agent == decl.user_agent;
        if same && entry.decl.tag == decl.tag {
            return Some(Arc::clone(good));
        }
        let mut good = good.tagged(decl, id);
        if !same {
            good.validators = Validators::default();
        }
        Some(Arc::new(good))
    }

    /// Gives entries without nodes those of their stored copy. Reads files.
    pub(crate) fn fill(&self, plan: &mut Plan) {
        let missing = |e: &&mut Planned| e.decl.enabled && e.good.is_none();
        for planned in plan.entries.iter_mut().filter(missing) {
            let (decl, id) = (&planned.decl, planned.id);
            let Some((stored, via)) = self.stored(decl) else {
                continue;
            };
            match Good::read(decl, id, &stored, via) {
                Ok(good) => planned.good = Some(Arc::new(good)),
                Err(error) => tracing::warn!(
                    target: "honk::subscription",
                    tag = decl.tag,
                    %error,
                    "the stored copy is not usable"
                ),
            }
        }
    }

    fn stored(&self, decl: &Subscription) -> Option<(Stored, Via)> {
        let store = self.store.as_ref().filter(|store| store.keeps(decl))?;
        match store.load(decl) {
            Ok(Some(stored)) => return Some((stored, Via::Store)),
            Ok(None) => {}
            Err(error) => tracing::warn!(
                target: "honk::subscription",
                tag = decl.tag,
                %error,
                "the stored copy cannot be read"
            ),
        }
        work::seed(&self.config_dir, decl).map(|stored| (stored, Via::Seed))
    }

    /// The plan is the running configuration from now on. `statics` are the nodes of the
    /// configuration itself.
    pub(crate) fn adopt(&self, plan: Plan, statics: &[Node]) {
        let now = Instant::now();
        let mut entries = self.lock();
        let mut old: Vec<Entry> = std::mem::take(&mut *entries);
        for planned in plan.entries {
            let known = old.iter().position(|e| e.id == planned.id);
            let mut entry = match known.map(|at| old.swap_remove(at)) {
                Some(entry) => entry,
                None => Entry::new(planned.id, &planned.decl),
            };
            entry.take(planned, now);
            entries.push(entry);
        }
        shadows(&mut entries, statics);
        let decls: Vec<Subscription> = entries.iter().map(|e| e.decl.clone()).collect();
        drop(entries);
        if let Some(store) = &self.store
            && let Err(error) = store.prune(&decls)
        {
            tracing::warn!(target: "honk::subscription", %error, "old copies stay");
        }
        self.touched();
    }

    /// Whether an enabled one has no nodes yet.
    pub(crate) fn waits(&self) -> bool {
        self.waits_besides(Uuid::nil())
    }

    /// Whether another enabled one has no nodes yet.
    pub(crate) fn waits_besides(&self, id: Uuid) -> bool {
        let entries = self.lock();
        let mut others = entries.iter().filter(|e| e.decl.enabled && e.id != id);
        others.any(|e| e.good.is_none() && e.decl.source != Source::File)
    }

    /// Nodes of all subscriptions in order, with another body for one of them. `None` when that
    /// one is not used any more.
    pub(crate) fn nodes_with(&self, id: Uuid, good: &Good) -> Option<Vec<Node>> {
        let entries = self.lock();
        let mut found = false;
        let mut nodes = Vec::new();
        for entry in entries.iter().filter(|e| e.decl.enabled) {
            if entry.id == id {
                found = true;
                nodes.extend(good.nodes.iter().cloned());
            } else if let Some(good) = &entry.good {
                nodes.extend(good.nodes.iter().cloned());
            }
        }
        found.then_some(nodes)
    }

    /// The body is in use from now on. Returns what it changed.
    pub(crate) fn accept(&self, id: Uuid, good: Good, statics: &[Node]) -> Option<Arc<Changes>> {
        let mut entries = self.lock();
        let entry = entries.iter_mut().find(|e| e.id == id)?;
        let before = entry.good.as_ref().map_or(&[][..], |g| &g.nodes);
        let changes = Arc::new(Changes::of(before, &good.nodes));
        if !changes.is_empty() {
            entry.changes = Some((good.fetched_ms, Arc::clone(&changes)));
        }
        entry.succeeded(good);
        shadows(&mut entries, statics);
        drop(entries);
        self.touched();
        Some(changes)
    }

    /// The fetch failed: tells whether that is news.
    pub(crate) fn failed(&self, id: Uuid, error: &FetchError) -> bool {
        let mut entries = self.lock();
        let Some(entry) = entries.iter_mut().find(|e| e.id == id) else {
            return false;
        };
        let problem = Problem::of(error);
        let news = entry.problem.as_ref().map(|p| p.code) != Some(problem.code);
        entry.problem = Some(problem);
        entry.failures = entry.failures.saturating_add(1);
        entry.ended(error.result());
        let (interval, has) = (entry.interval(), entry.good.is_some());
        let pause = schedule::after_failure(interval, entry.failures, has, chance());
        entry.due = pause
            .filter(|_| entry.decl.source != Source::File)
            .map(later);
        drop(entries);
        self.touched();
        news
    }

    /// A fetch that was begun came to nothing and counts as none.
    pub(crate) fn dropped(&self, id: Uuid) {
        let mut entries = self.lock();
        if let Some(entry) = entries.iter_mut().find(|e| e.id == id) {
            entry.busy = None;
            entry.attempts += 1;
        }
        drop(entries);
        self.touched();
    }

    /// The next fetch that is due, marked as begun.
    pub(crate) fn take_due(&self, now: Instant) -> Option<Job> {
        let mut entries = self.lock();
        let due = |e: &&mut Entry| {
            let reached = e.due.is_some_and(|(at, _)| at <= now);
            e.decl.enabled && e.busy.is_none() && reached
        };
        let entry = entries.iter_mut().find(due)?;
        let progress = Arc::new(Progress::default());
        entry.busy = Some(Arc::clone(&progress));
        entry.due = None;
        let job = Job {
            id: entry.id,
            decl: entry.decl.clone(),
            had: entry.good.clone(),
            store: self.store.clone(),
            progress,
        };
        drop(entries);
        self.touched();
        Some(job)
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let entries = self.lock();
        let waiting = entries
            .iter()
            .filter(|e| e.decl.enabled && e.busy.is_none());
        waiting.filter_map(|e| Some(e.due?.0)).min()
    }

    /// Asks for a fetch now. Returns the number of attempts after which its outcome is known.
    pub(crate) fn request(&self, id: Uuid) -> Option<u64> {
        let mut entries = self.lock();
        let entry = entries.iter_mut().find(|e| e.id == id && e.decl.enabled)?;
        if entry.busy.is_none() {
            entry.due = Some(later(Duration::ZERO));
        }
        let after = entry.attempts + 1;
        drop(entries);
        self.touched();
        Some(after)
    }

    /// Asks for all that may change by themselves, as a reload does.
    pub(crate) fn request_all(&self) {
        let now = Instant::now();
        let mut entries = self.lock();
        for entry in entries.iter_mut().filter(|e| e.decl.source != Source::File) {
            let recent = |(at, _): (Instant, u64)| now.saturating_duration_since(at) < RECENT;
            if entry.busy.is_none() && !entry.attempted.is_some_and(recent) {
                entry.due = Some(later(Duration::ZERO));
            }
        }
        drop(entries);
        self.touched();
    }

    /// Waits until every enabled subscription has nodes or has failed once, at most this long.
    pub(crate) async fn first(&self, limit: Duration) {
        let mut watch = self.watch();
        let settled = |_: &u64| {
            let entries = self.lock();
            let mut enabled = entries.iter().filter(|e| e.decl.enabled);
            enabled.all(|e| e.good.is_some() || e.attempts > 0)
        };
        // Running out of time is an answer: they come later.
        let _ = tokio::time::timeout(limit, watch.wait_for(settled)).await;
    }
}
