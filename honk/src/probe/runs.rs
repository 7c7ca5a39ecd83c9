//! Measurements that people ask for: one node at once, or the members of a group in a run that
//! shows progress and can be called off.
//!
//! Everything about a run is fixed when it begins: what, in which order, with which URL, into
//! which map. Calling it off closes its sockets; what comes in late is dropped. Results are for
//! people: whoever reads them decides nothing by them here.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use honk_policy::{
    health::measure::{Map, Measured, Measurements, RunId},
    id::{MemberId, NodeId},
    node::Node,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::measure::{self, Failure, Request};
use crate::{clock, outbound::Dialer};

/// Runs at a time.
pub(crate) const MAX_RUNS: usize = 4;
/// Ended runs that can still be looked at.
const KEPT: usize = 16;
/// Longest wait for the tasks of a run that was called off.
const END_WAIT: Duration = Duration::from_secs(1);

/// A member of a run.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: MemberId,
    /// What is dialed; `None` for what is not: `block`, nodes that are switched off, groups that
    /// lead nowhere.
    pub(crate) leaf: Option<Arc<Node>>,
}

/// A run to begin.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) map: Map,
    pub(crate) members: Vec<Member>,
    pub(crate) request: Request,
    pub(crate) concurrency: usize,
    /// What was measured before and need not be again.
    pub(crate) shared: Option<Arc<Shared>>,
}

/// Results of several runs that belong together, by what was asked of which node.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<HashMap<Asked, Result<Duration, Failure>>>);

type Asked = (NodeId, Arc<str>, Duration);

impl Shared {
    fn known(&self, leaf: &Node, request: &Request) -> Option<Result<Duration, Failure>> {
        self.lock().get(&asked(leaf, request)).cloned()
    }

    fn learn(&self, leaf: &Node, request: &Request, result: Result<Duration, Failure>) {
        self.lock().insert(asked(leaf, request), result);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Asked, Result<Duration, Failure>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn asked(leaf: &Node, request: &Request) -> Asked {
    (leaf.id, Arc::clone(&request.url.text), request.timeout)
}

/// Calls its run off when dropped, unless it was told that the run is over.
#[derive(Debug)]
pub(crate) struct Guard {
    runs: Arc<Runs>,
    run: Option<RunId>,
}

impl Guard {
    /// The run is over.
    pub(crate) fn done(mut self) {
        self.run = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(run) = self.run {
            self.runs.call_off(run);
        }
    }
}

/// Why no run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Busy {
    #[error("a run of this group goes on already")]
    Same(RunId),
    /// With the one that began last.
    #[error("{MAX_RUNS} runs go on already; wait, or call one off")]
    Full(RunId),
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Done,
    Cancelled,
}

impl State {
    /// Name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A run as seen from outside.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) map: Map,
    pub(crate) state: State,
    pub(crate) started_ms: u64,
    pub(crate) finished_ms: Option<u64>,
    pub(crate) total: usize,
    pub(crate) results: Vec<(MemberId, Result<u16, Arc<str>>)>,
    pub(crate) request: Request,
}

/// A run with the means to end it.
#[derive(Debug)]
struct Entry {
    run: Run,
    stop: watch::Sender<bool>,
    /// True once its tasks have ended.
    ended: watch::Receiver<bool>,
}

/// All runs and their maps.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    state: Mutex<Registry>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct Registry {
    maps: Measurements,
    entries: BTreeMap<RunId, Entry>,
    /// Ended ones, the oldest first.
    old: VecDeque<RunId>,
    next: u64,
    closed: bool,
}

impl Runs {
    /// Begins a run. `follow` is called with each failed member, and with `None` when the run has
    /// ended by itself. Must be called inside a tokio runtime.
    pub(crate) fn begin(
        self: &Arc<Self>,
        order: Order,
        dialer: Arc<Dialer>,
        follow: impl Fn(Option<&Arc<Node>>) + Send + Sync + 'static,
    ) -> Result<RunId, Busy> {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let id = {
            let mut state = self.lock();
            let running = |e: &&Entry| e.run.state == State::Running;
            let mut others = state.entries.values().filter(running);
            if let Some(same) = others.find(|e| e.run.map == order.map) {
                return Err(Busy::Same(same.run.id));
            }
            let count = state.entries.values().filter(running).count();
            if count >= MAX_RUNS || state.closed {
                return Err(Busy::Full(RunId(state.next)));
            }
            state.next += 1;
            let id = RunId(state.next);
            let ready = order.members.iter().filter(|m| m.leaf.is_some());
            let members: Vec<MemberId> = ready.map(|m| m.id).collect();
            state.maps.begin(id, order.map, &members);
            let run = Run {
                id,
                map: order.map,
                state: State::Running,
                started_ms: clock::now_ms(),
                finished_ms: None,
                total: members.len(),
                results: Vec::with_capacity(members.len()),
                request: order.request.clone(),
            };
            state.entries.insert(id, Entry { run, stop, ended });
            id
        };
        let runs = Arc::clone(self);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let state = runs.carry_out(id, order, dialer, &follow, stopped).await;
            runs.finish(id, state);
            end.send_replace(true);
            if state == State::Done {
                follow(None);
            }
        });
        Ok(id)
    }

    async fn carry_out(
        self: &Arc<Self>,
        id: RunId,
        order: Order,
        dialer: Arc<Dialer>,
        follow: &(impl Fn(Option<&Arc<Node>>) + Send + Sync),
        mut stopped: watch::Receiver<bool>,
    ) -> State {
        let mut ready = order.members.into_iter().filter(|m| m.leaf.is_some());
        let mut probes = JoinSet::new();
        loop {
            while probes.len() < order.concurrency.max(1) {
                let Some(Member {
                    id,
                    leaf: Some(leaf),
                }) = ready.next()
                else {
                    break;
                };
                let (dialer, request) = (Arc::clone(&dialer), order.request.clone());
                let shared = order.shared.clone();
                probes.spawn(async move {
                    let known = shared.as_ref().and_then(|s| s.known(&leaf, &request));
                    if let Some(result) = known {
                        return (id, leaf, result);
                    }
                    let result = measure::url_test(&dialer, &leaf, request.family, &request).await;
                    if let Some(shared) = shared {
                        shared.learn(&leaf, &request, result.clone());
                    }
                    (id, leaf, result)
                });
            }
            let stop = async { stopped.wait_for(|stop| *stop).await.map(|_| ()) };
            let ended = tokio::select! {
                _ = stop => None,
                ended = probes.join_next() => Some(ended),
            };
            match ended {
                None => {
                    // Dropping the probes closes their sockets.
                    probes.shutdown().await;
                    return State::Cancelled;
                }
                Some(None) => return State::Done,
                Some(Some(Err(error))) => {
                    tracing::error!(target: "honk::health", %error, "a measurement broke");
                }
                Some(Some(Ok((member, leaf, result)))) => {
                    let failed = result.is_err();
                    let kept = self.record(id, order.map, member, &leaf, &order.request, result);
                    if kept && failed {
                        follow(Some(&leaf));
                    }
                }
            }
        }
    }

    fn record(
        &self,
        id: RunId,
        map: Map,
        member: MemberId,
        leaf: &Node,
        request: &Request,
        result: Result<Duration, Failure>,
    ) -> bool {
        let sample = sample(leaf, request, result);
        let mut state = self.lock();
        let result = sample.result.clone();
        let kept = state.maps.record(id, map, member, sample);
        if let Some(entry) = state.entries.get_mut(&id).filter(|_| kept) {
            entry.run.results.push((member, result));
        }
        kept
    }

    fn finish(&self, id: RunId, end: State) {
        let mut state = self.lock();
        state.maps.retire(id);
        if let Some(entry) = state.entries.get_mut(&id) {
            entry.run.finished_ms = Some(clock::now_ms());
            if entry.run.state == State::Running {
                entry.run.state = end;
            }
        }
        state.old.push_back(id);
        while state.old.len() > KEPT {
            if let Some(oldest) = state.old.pop_front() {
                state.entries.remove(&oldest);
            }
        }
    }

    /// Calls a run off and waits for its end; `None` when there is no such run. What it was
    /// waiting for disappears at once.
    pub(crate) async fn cancel(&self, id: RunId) -> Option<Run> {
        let mut ended = {
            let mut state = self.lock();
            state.maps.retire(id);
            let entry = state.entries.get_mut(&id)?;
            if entry.run.state == State::Running {
                entry.run.state = State::Cancelled;
            }
            entry.stop.send_replace(true);
            entry.ended.clone()
        };
        // A task that does not end in time has lost its place all the same.
        let _ = timeout(END_WAIT, ended.wait_for(|ended| *ended)).await;
        self.run(id)
    }

    /// Waits until a run has ended by itself; `None` when there is none, or it was called off.
    pub(crate) async fn ended(&self, id: RunId) -> Option<Run> {
        let run = self.outcome(id).await;
        run.filter(|run| run.state == State::Done)
    }

    /// The same however it ended.
    pub(crate) async fn outcome(&self, id: RunId) -> Option<Run> {
        let mut ended = self.lock().entries.get(&id)?.ended.clone();
        // A task that is gone without a word has ended as well.
        let _ = ended.wait_for(|ended| *ended).await;
        self.run(id)
    }

    /// Calls a run off when the guard is dropped.
    pub(crate) fn guard(self: &Arc<Self>, run: RunId) -> Guard {
        Guard {
            runs: Arc::clone(self),
            run: Some(run),
        }
    }

    /// Calls a run off without waiting for its end.
    fn call_off(&self, id: RunId) {
        let mut state = self.lock();
        state.maps.retire(id);
        if let Some(entry) = state.entries.get_mut(&id) {
            if entry.run.state == State::Running {
                entry.run.state = State::Cancelled;
            }
            entry.stop.send_replace(true);
        }
    }

    /// Calls off the runs for which `wanted` holds no more.
    pub(crate) fn keep(&self, wanted: impl Fn(Map) -> bool) {
        let mut state = self.lock();
        let mut gone = Vec::new();
        for entry in state.entries.values_mut() {
            if entry.run.state == State::Running && !wanted(entry.run.map) {
                entry.run.state = State::Cancelled;
                entry.stop.send_replace(true);
                gone.push(entry.run.id);
            }
        }
        for id in gone {
            state.maps.retire(id);
        }
    }

    /// Ends everything; no run begins any more.
    pub(crate) async fn stop(&self) {
        self.lock().closed = true;
        self.keep(|_| false);
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        tasks.shutdown().await;
    }

    /// Measures one node now.
    pub(crate) async fn ping(
        &self,
        dialer: &Arc<Dialer>,
        map: Map,
        member: MemberId,
        leaf: &Arc<Node>,
        request: &Request,
    ) -> Result<Duration, Failure> {
        let result = measure::url_test(dialer, leaf, request.family, request).await;
        let sample = sample(leaf, request, result.clone());
        self.lock().maps.store(map, member, sample);
        result
    }

    /// All runs that can be looked at, the oldest first.
    pub(crate) fn list(&self) -> Vec<Run> {
        self.lock()
            .entries
            .values()
            .map(|e| e.run.clone())
            .collect()
    }

    /// One of them.
    pub(crate) fn run(&self, id: RunId) -> Option<Run> {
        self.lock().entries.get(&id).map(|e| e.run.clone())
    }

    /// Looks at the maps.
    pub(crate) fn maps<T>(&self, look: impl FnOnce(&mut Measurements) -> T) -> T {
        look(&mut self.lock().maps)
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sample(leaf: &Node, request: &Request, result: Result<Duration, Failure>) -> Measured {
    let url = &request.url;
    let result = match result {
        Ok(took) => Ok(u16::try_from(took.as_millis()).unwrap_or(u16::MAX)),
        Err(failure) => Err(format!("{} → {} — {failure}", leaf.name, url.host).into()),
    };
    Measured {
        result,
        at_ms: clock::now_ms(),
        url: Arc::clone(&url.text),
        timeout_ms: u32::try_from(request.timeout.as_millis()).unwrap_or(u32::MAX),
    }
}
