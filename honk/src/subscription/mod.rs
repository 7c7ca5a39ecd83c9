//! Subscriptions: which nodes each one has now, when it is fetched next, what happened last.
//!
//! [`Hub`] holds that for the running configuration. It decides nothing about groups: `app`
//! takes a [`Plan`] or a [`Good`] body into use as an activation and then tells the hub. What
//! failed changes nothing but the report: the nodes of the last good body stay.

mod address;
mod body;
mod error;
mod good;
mod http;
mod schedule;
mod store;
mod target;
mod view;
mod work;

#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use honk_grammar::LoadError;
use honk_policy::{
    config::{Source, Subscription},
    id::{NodeId, Uuid},
    node::Node,
    subscription::Changes,
};
use tokio::{sync::watch, time::Instant};

use self::http::Validators;
pub(crate) use self::{
    error::{FetchError, FetchResult},
    good::{Good, Via, shown},
    http::{Net, Progress},
    store::{Store, Stored},
    view::View,
    work::{Fetched, Job, perform},
};

/// Fetches at the same time.
pub(crate) const PARALLEL: usize = 4;
/// A reload does not ask again for what was asked for within this time.
const RECENT: Duration = Duration::from_secs(10);

/// Namespace of subscription identities.
const NAMESPACE: Uuid = Uuid::from_u128(0x6a2f_1b44_9d0e_4c8b_8f11_5b1d_c0a7_33e2);

/// Reads the file of a `file://` subscription.
pub(crate) type Reader<'a> = &'a dyn Fn(&Subscription) -> Result<Vec<u8>, LoadError>;

/// One declared subscription with what is known about it.
#[derive(Debug)]
struct Entry {
    id: Uuid,
    decl: Subscription,
    good: Option<Arc<Good>>,
    /// Nodes that the configuration or an earlier subscription has already.
    shadowed: usize,
    /// What the last attempt failed with.
    problem: Option<Problem>,
    /// Failures in a row.
    failures: u32,
    /// Attempts that have ended.
    attempts: u64,
    attempted: Option<(Instant, u64)>,
    /// When it is fetched next, with the same moment in Unix milliseconds.
    due: Option<(Instant, u64)>,
    /// The fetch under way.
    busy: Option<Arc<Progress>>,
    changes: Option<(u64, Arc<Changes>)>,
    counts: [u64; FetchResult::NAMES.len()],
}

/// Why the last attempt brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// The subscriptions of a configuration that may become the running one.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    entries: Vec<Planned>,
}

#[derive(Debug)]
struct Planned {
    id: Uuid,
    decl: Subscription,
    good: Option<Arc<Good>>,
    problem: Option<Problem>,
    /// Whether a file was read for this plan.
    read: bool,
}

impl Plan {
    /// Takes the declarations over, with the nodes that `hub` has for them, and reads files anew.
    pub(crate) fn new(decls: &[Subscription], hub: Option<&Hub>, reader: Reader<'_>) -> Self {
        let mut entries: Vec<Planned> = Vec::new();
        for decl in decls {
            let nth = entries.iter().filter(|e| e.decl.url == decl.url).count();
            let id = identity(decl, nth);
            let known = hub.and_then(|hub| hub.good(id, decl));
            let mut planned = Planned {
                id,
                decl: decl.clone(),
                good: known,
                problem: None,
                read: false,
            };
            if decl.enabled && decl.source == Source::File {
                planned.read = true;
                match work::read_file(decl, id, reader) {
                    Ok(good) => planned.good = Some(Arc::new(good)),
                    Err(error) => planned.problem = Some(Problem::of(&error)),
                }
            }
            entries.push(planned);
        }
        let mut plan = Self { entries };
        if let Some(hub) = hub {
            hub.fill(&mut plan);
        }
        plan
    }

    /// Nodes of all subscriptions in order.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let used = self.entries.iter().filter(|e| e.decl.enabled);
        used.filter_map(|e| e.good.as_ref())
            .flat_map(|good| good.nodes.iter().cloned())
            .collect()
    }

    /// Files that could not be used: tag and reason.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (&str, &Problem)> {
        let with = |e: &'_ Planned| e.problem.is_some();
        let problems = self.entries.iter().filter(move |e| with(e));
        problems.filter_map(|e| Some((e.decl.tag.as_str(), e.problem.as_ref()?)))
    }

    /// Whether an enabled one has no nodes yet.
    pub(crate) fn waits(&self) -> bool {
        let mut enabled = self.entries.iter().filter(|e| e.decl.enabled);
        enabled.any(|e| e.good.is_none() && e.decl.source != Source::File)
    }
}

impl Problem {
    fn of(error: &FetchError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
        }
    }
}

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

impl Entry {
    fn new(id: Uuid, decl: &Subscription) -> Self {
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
    fn take(&mut self, planned: Planned, now: Instant) {
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

    fn interval(&self) -> Option<Duration> {
        if self.decl.source == Source::File {
            return None;
        }
        let wished = self.good.as_ref().and_then(|g| g.info.interval_hours);
        schedule::interval(self.decl.update_interval, wished)
    }

    fn succeeded(&mut self, good: Good) {
        self.good = Some(Arc::new(good));
        self.problem = None;
        self.failures = 0;
        self.ended(FetchResult::Ok);
        self.due = schedule::after_success(self.interval(), chance()).map(later);
    }

    fn ended(&mut self, result: FetchResult) {
        self.busy = None;
        self.attempts += 1;
        self.attempted = Some((Instant::now(), crate::clock::now_ms()));
        self.counts[result as usize] += 1;
    }
}

/// Counts the nodes that each subscription shares with what comes before it.
fn shadows(entries: &mut [Entry], statics: &[Node]) {
    let mut seen: HashSet<NodeId> = statics.iter().map(|n| n.id).collect();
    for entry in entries.iter_mut() {
        let nodes = entry.good.as_ref().map_or(&[][..], |g| &g.nodes);
        entry.shadowed = nodes.iter().filter(|n| !seen.insert(n.id)).count();
    }
}

/// A moment from now on both clocks.
fn later(pause: Duration) -> (Instant, u64) {
    let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    (
        Instant::now() + pause,
        crate::clock::now_ms().saturating_add(millis),
    )
}

fn chance() -> u32 {
    let [a, b, c, d, ..] = *Uuid::new_v4().as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The same URL keeps its identity over reloads, whatever else is written about it.
fn identity(decl: &Subscription, nth: usize) -> Uuid {
    let text = format!("{}\0{nth}", decl.url.reveal());
    Uuid::new_v5(&NAMESPACE, text.as_bytes())
}
