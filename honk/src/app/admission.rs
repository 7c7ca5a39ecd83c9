//! New flows: what the kernel decided, or the rules again, then the group's selection.
//!
//! Runs on accept paths: one map lookup, array accesses, one small allocation for the record.
//! Flows whose first bytes have a say come back from [`sniffing`](super::sniffing).

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Instant,
};

use arc_swap::ArcSwap;
use honk_common::{
    flow::{FLAG_AMBIGUOUS, FLAG_MUST, FLAG_PRELIM, FLAG_WAN, FlowVal, FlowWord},
    key::{FlowKey, to_bytes},
    outbound,
};
use honk_policy::{
    group::{Rival, Rivals, Source, builtin},
    id::{Network, Ordinal},
    node::Protocol,
    routing::rule::{FlowFacts, Verdict},
};

use tokio::{runtime::Handle, sync::Notify};

use super::{
    kernel::Kernel,
    last_resort::LastResorts,
    refusal::{REFUSALS, refusal, refusal_index},
    registry::{Registry, has_entry, key_of},
    score::{self, Attempt, Begun, Ranking, Score},
    snapshot::Snapshot,
    sniffing::{Doubt, SniffCounters, Sniffer, Waiting},
    trace::Traces,
};
use crate::{
    clock,
    dns::Dns,
    flow::{
        Admission, Answer, Back, Cancel, FlowCounters, FlowEntry, FlowGuard, FlowSink, HostSource,
        Names, NewFlow, RACERS, Refusal, Route, Way, Why, Witness,
    },
};

pub(super) const DNS: u16 = 53;

/// Label values of `kind` of decisions taken in userspace.
pub(crate) const KINDS: [&str; 4] = ["direct", "block", "group", "must"];

/// Counters of the accept path.
#[derive(Debug, Default)]
pub(crate) struct AdmissionCounters {
    /// Verdicts of the rules evaluated here, by [`KINDS`].
    pub(crate) decisions: [AtomicU64; KINDS.len()],
    /// By [`REFUSALS`].
    pub(crate) refused: [AtomicU64; REFUSALS.len()],
    /// Flows that came without a kernel entry.
    pub(crate) handoff_miss: AtomicU64,
}

/// The accept path's view of the daemon.
#[derive(Debug)]
pub(crate) struct Gatekeeper {
    kernel: Arc<dyn Kernel>,
    registry: Arc<Registry>,
    current: Arc<ArcSwap<Snapshot>>,
    dns: Arc<Dns>,
    stopping: AtomicBool,
    pub(crate) counters: AdmissionCounters,
    pub(super) sniffer: Sniffer,
    pub(crate) traces: Arc<Traces>,
    /// Generation of the kernel above, the one of the snapshot with the same rules below.
    committed: AtomicU64,
    me: Weak<Self>,
    /// Flows without an eligible selection; rare, so that one lock will do.
    unselected: Mutex<Unselected>,
    pub(crate) last_resorts: LastResorts,
    /// A group is in use that was not when somebody last looked.
    woken: Notify,
    /// Flows that tried several leaves; rare, too.
    races: Mutex<Races>,
    score: Arc<Score>,
}

/// Flows by group, network and outcome.
pub(crate) type Unselected = BTreeMap<(Arc<str>, &'static str, &'static str), u64>;

/// Flows that tried several leaves, by group, network, reason and outcome.
pub(crate) type Races = BTreeMap<(Arc<str>, &'static str, &'static str, &'static str), u64>;

/// The name of a flow.
pub(super) type Host = (Arc<str>, HostSource);

/// All that a flow is decided by.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) verdict: Verdict,
    /// What the flow is called.
    pub(super) host: Option<Host>,
    /// What a proxy is asked for instead of the address.
    pub(super) target: Option<Arc<str>>,
}

impl Gatekeeper {
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        registry: Arc<Registry>,
        current: Arc<ArcSwap<Snapshot>>,
        dns: Arc<Dns>,
        score: Arc<Score>,
    ) -> Arc<Self> {
        let traces = Traces::new(Arc::clone(&kernel), Arc::clone(&current), Arc::clone(&dns));
        Arc::new_cyclic(|me| Self {
            traces,
            kernel,
            registry,
            current,
            dns,
            stopping: AtomicBool::new(false),
            counters: AdmissionCounters::default(),
            sniffer: Sniffer::default(),
            committed: AtomicU64::new(0),
            me: Weak::clone(me),
            unselected: Mutex::default(),
            last_resorts: LastResorts::default(),
            woken: Notify::new(),
            races: Mutex::default(),
            score,
        })
    }

    /// Connects what is known about names; once. The runtime runs the lookups.
    pub(crate) fn know(&self, names: Arc<dyn Names>, runtime: Handle) {
        self.sniffer.know(names, runtime);
    }

    /// The kernel now judges by the rules of a snapshot.
    pub(crate) fn committed(&self, kernel: u32, snapshot: u64) {
        let pair = u64::from(kernel) << 32 | snapshot & u64::from(u32::MAX);
        self.committed.store(pair, Ordering::Relaxed);
    }

    pub(crate) fn sniffing(&self) -> &SniffCounters {
        &self.sniffer.counters
    }

    /// Places that are known for flows without a name, and how often half of them was displaced.
    pub(crate) fn silent_places(&self) -> (usize, u64) {
        self.sniffer.places()
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Flows that found no eligible selection, so far.
    pub(crate) fn unselected(&self) -> Unselected {
        self.lock_unselected().clone()
    }

    /// Forgets the counters of groups that are gone.
    pub(super) fn retain(&self, names: &[Arc<str>]) {
        self.lock_unselected()
            .retain(|(group, ..), _| names.contains(group));
        self.last_resorts.retain(names);
        self.lock_races()
            .retain(|(group, ..), _| names.contains(group));
    }

    /// Completes when a group has come into use.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Flows that tried several leaves, so far.
    pub(crate) fn races(&self) -> Races {
        self.lock_races().clone()
    }

    fn lock_races(&self) -> std::sync::MutexGuard<'_, Races> {
        self.races.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_unselected(&self) -> std::sync::MutexGuard<'_, Unselected> {
        self.unselected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn count_unselected(&self, group: &Arc<str>, network: Network, outcome: &'static str) {
        let key = (Arc::clone(group), network.name(), outcome);
        *self.lock_unselected().entry(key).or_default() += 1;
    }

    /// From now on every new flow is refused.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// What the kernel decided, else what the rules say; and what a name could still change.
    pub(super) fn verdict(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        seen: Option<&FlowVal>,
    ) -> (Verdict, Doubt) {
        let evaluated = || {
            let mut facts = facts(flow, seen);
            if snapshot.oracle.has_names() {
                // Answers taught the kernel the same name, unless the address has several.
                let name = self.dns.name_for(flow.client.0.ip(), flow.target.0.ip());
                facts.domain = name.map(|name| name.to_string());
            }
            snapshot.oracle.eval(&facts)
        };
        let Some(seen) = seen.filter(|_| flow.target.0.port() != DNS) else {
            return (evaluated(), Doubt::None);
        };
        let word = FlowWord::unpack(seen.word);
        if word.ordinal != outbound::CONTROL {
            let verdict = Verdict {
                ordinal: Ordinal(word.ordinal),
                must: word.flags & FLAG_MUST != 0,
                mark: word.mark,
                rule: seen.rule,
            };
            return (verdict, Doubt::None);
        }
        if word.flags & FLAG_PRELIM == 0 {
            return (evaluated(), Doubt::None);
        }
        if word.flags & FLAG_AMBIGUOUS == 0 {
            return (evaluated(), Doubt::Provisional);
        }
        // The line the kernel found counts, because it knew names; its number means something
        // only in the rules it was found in.
        let pair = u64::from(seen.generation) << 32 | snapshot.generation & u64::from(u32::MAX);
        let line = snapshot.rules.lines.get(usize::from(seen.rule));
        let line = line.filter(|_| self.committed.load(Ordering::Relaxed) == pair);
        let verdict = line.map_or_else(evaluated, |line| Verdict {
            ordinal: line.action.ordinal,
            must: line.action.must,
            mark: line.action.mark,
            rule: seen.rule,
        });
        (verdict, Doubt::Ambiguous)
    }

    pub(super) fn count(&self, verdict: &Verdict) {
        let kind = match (verdict.must, verdict.ordinal.0) {
            (true, _) => 3,
            (false, outbound::DIRECT) => 0,
            (false, outbound::BLOCK) => 1,
            (false, _) => 2,
        };
        self.counters.decisions[kind].fetch_add(1, Ordering::Relaxed);
    }

    fn answer(&self, flow: &NewFlow, key: &FlowKey) -> Result<Answer, Refusal> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Refusal::Stopping);
        }
        let snapshot = self.current.load();
        let dns = flow.target.0.port() == DNS;
        let seen = if has_entry(flow) {
            self.kernel.lookup(key)
        } else {
            None
        };
        let (mut verdict, doubt) = self.verdict(&snapshot, flow, seen.as_ref());
        match &seen {
            None if !dns => {
                self.counters.handoff_miss.fetch_add(1, Ordering::Relaxed);
                self.count(&verdict);
            }
            Some(seen) if !dns && FlowWord::unpack(seen.word).ordinal != outbound::CONTROL => {}
            _ if doubt == Doubt::None => {
                if dns && self.kernel.is_local(flow.target.0.ip()) {
                    // The client asks the gateway itself: its own resolver answers.
                    verdict.ordinal = Ordinal(outbound::DIRECT);
                }
                self.count(&verdict);
            }
            // Counted once it is beyond doubt.
            _ => {}
        }
        let patience = self
            .sniffer
            .patience(&snapshot, flow, seen.as_ref(), &verdict, doubt);
        let sniffed = patience.and_then(|patience| Some((patience, self.me.upgrade()?)));
        if let Some((patience, gate)) = sniffed {
            if let Some(seen) = &seen {
                self.kernel.claim(key, seen);
            }
            return Ok(Answer::Sniff(Box::new(Waiting {
                gate,
                flow: *flow,
                key: *key,
                seen,
                patience,
                mode: snapshot.config.global.dial_mode,
                host: None,
                check: None,
                settled: false,
            })));
        }
        let mut host = None;
        if doubt == Doubt::Ambiguous {
            (verdict, host) = self
                .sniffer
                .unnamed(&snapshot, flow, seen.as_ref(), verdict);
        }
        if doubt != Doubt::None {
            self.count(&verdict);
        }
        let settled = Settled {
            verdict,
            host,
            target: None,
        };
        let mut route = self.route(&snapshot, flow, settled)?;
        if let Some(seen) = &seen {
            self.kernel.claim(key, seen);
        }
        route.back = back(&snapshot, &verdict, seen.as_ref(), &route);
        Ok(Answer::Go(route))
    }

    /// Lets a flow go its way that has been claimed before.
    pub(super) fn settle(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        key: &FlowKey,
        seen: Option<&FlowVal>,
        settled: Settled,
    ) -> Result<Route, Refusal> {
        let verdict = settled.verdict;
        let route = if self.stopping.load(Ordering::Relaxed) {
            Err(Refusal::Stopping)
        } else {
            self.route(snapshot, flow, settled)
        };
        let mut route = route.inspect_err(|refusal| self.refused(flow, key, *refusal))?;
        route.back = back(snapshot, &verdict, seen, &route);
        Ok(route)
    }

    /// Selects a leaf and lists the flow; those who watch are told.
    fn route(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        settled: Settled,
    ) -> Result<Route, Refusal> {
        if !self.traces.watched() {
            return self.leave(snapshot, flow, settled).map(|(route, _)| route);
        }
        let (verdict, host) = (settled.verdict, settled.host.clone());
        match self.leave(snapshot, flow, settled) {
            Ok((route, source)) => {
                let direct = route.leaf.protocol == Protocol::Direct;
                let entry = &route.guard.entry;
                self.traces
                    .admitted(snapshot, entry, &verdict, source, direct);
                Ok(route)
            }
            Err(refusal) => {
                self.traces.refused(snapshot, flow, &verdict, host, refusal);
                Err(refusal)
            }
        }
    }

    fn leave(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        settled: Settled,
    ) -> Result<(Route, Source), Refusal> {
        let verdict = settled.verdict;
        let host = settled.host.as_ref().map(|(name, _)| &**name);
        let mut ranking = Ranking::new(&self.score, flow, host);
        let select = |ranking: &mut Ranking<'_>| {
            snapshot.serve(verdict.ordinal, flow.network, flow.family(), ranking)
        };
        let (outbound, selected) = select(&mut ranking).ok_or(Refusal::NoMember)?;
        let mut selected = selected.map_err(|refuse| {
            self.count_unselected(outbound, flow.network, refuse.name());
            refusal(refuse)
        })?;
        if selected.woke {
            self.woken.notify_one();
        }
        match selected.source {
            Source::Final => self.count_unselected(outbound, flow.network, "final"),
            Source::LastResort => self.last_resorts.note(outbound, Instant::now()),
            _ => {}
        }
        if selected.leaf.protocol == Protocol::Block {
            return Err(Refusal::Blocked);
        }
        let id = self.registry.reserve().ok_or(Refusal::Capacity)?;
        let witness = loop {
            match ranking.begin() {
                Begun::Attempt(attempt) => break Some(attempt as Box<dyn Witness>),
                Begun::Nothing => break None,
                Begun::Again => {
                    if let Some((_, Ok(other))) = select(&mut ranking) {
                        selected = other;
                    }
                }
            }
        };
        drop(ranking);
        let entry = Arc::new(FlowEntry {
            id,
            flow: *flow,
            outbound: Arc::clone(outbound),
            selected: Way {
                path: Arc::clone(selected.path),
                groups: Arc::clone(selected.groups),
                leaf: selected.leaf.id,
                leaf_name: selected.leaf.name.as_str().into(),
            },
            moved: OnceLock::new(),
            rule: verdict.rule,
            must: verdict.must,
            host: settled.host,
            generation: snapshot.generation,
            started_ms: clock::now_ms(),
            counters: FlowCounters::default(),
            carrier: AtomicU8::new(0),
            witness: witness.filter(|_| !selected.cold),
            cancel: Cancel::default(),
        });
        self.registry.insert(&entry);
        // From here on the guard gives everything back.
        let sink: Arc<dyn FlowSink> = self.registry.clone();
        let guard = FlowGuard::new(Arc::clone(&entry), sink);
        log(snapshot, &entry);
        let proxied = selected.leaf.protocol != Protocol::Direct;
        let cold = selected.cold.then(|| snapshot.cold(&guard.entry)).flatten();
        let route = Route {
            leaf: Arc::clone(selected.leaf),
            mark: verdict.mark,
            name: settled.target.filter(|_| proxied),
            cold,
            back: None,
            guard,
        };
        Ok((route, selected.source))
    }

    /// The one other leaf for a flow whose Score group chose one that was not reached (S-330).
    fn again(&self, snapshot: &Snapshot, entry: &FlowEntry, attempt: &Attempt) -> Option<Rivals> {
        let flow = &entry.flow;
        let host = entry.host.as_ref().map(|(name, _)| &**name);
        let mut ranking = Ranking::retry(&self.score, flow, host, attempt.leaf());
        let ids = &entry.selected.groups;
        let groups = &snapshot.groups;
        let rival = groups.again(ids, flow.network, flow.family(), &mut ranking)?;
        match ranking.begin() {
            Begun::Attempt(next) => attempt.follow(&next),
            Begun::Nothing | Begun::Again => attempt.go_to(rival.leaf.id.into()),
        }
        Some(Rivals {
            group: Arc::clone(&entry.outbound),
            leaves: vec![rival],
        })
    }

    fn refused(&self, flow: &NewFlow, key: &FlowKey, refusal: Refusal) {
        self.counters.refused[refusal_index(refusal)].fetch_add(1, Ordering::Relaxed);
        self.give_up(flow, key);
        tracing::debug!(
            target: "honk::route",
            client = %flow.client.0, target = %flow.target.0, ?refusal, "flow refused",
        );
    }

    /// The entry of a flow that is not carried would keep its packets coming here.
    pub(super) fn give_up(&self, flow: &NewFlow, key: &FlowKey) {
        if has_entry(flow) {
            self.kernel.release(key, false);
        }
    }
}

/// Whether the kernel could carry on with a claimed flow. Not what the gateway itself sends: that
/// is on its way out already, and connection tracking would not see a datagram sent behind it.
fn back(
    snapshot: &Snapshot,
    verdict: &Verdict,
    seen: Option<&FlowVal>,
    route: &Route,
) -> Option<Back> {
    let word = FlowWord::unpack(seen?.word);
    let fit = snapshot.config.global.nfqueue_enable
        && route.guard.entry.flow.network == Network::Udp
        && verdict.ordinal.0 == outbound::DIRECT
        && route.leaf.protocol == Protocol::Direct
        && word.ordinal == outbound::CONTROL
        && word.flags & FLAG_WAN == 0;
    fit.then_some(Back { dscp: word.dscp })
}

impl Admission for Gatekeeper {
    fn ask(&self, flow: &NewFlow) -> Result<Answer, Refusal> {
        let key = key_of(flow);
        self.answer(flow, &key)
            .inspect_err(|refusal| self.refused(flow, &key, *refusal))
    }

    fn rivals(&self, entry: &FlowEntry) -> Option<Rivals> {
        let snapshot = self.current.load();
        let again = score::of(entry).and_then(|attempt| self.again(&snapshot, entry, attempt));
        again.or_else(|| snapshot.rivals(entry, Some(entry.selected.leaf), RACERS))
    }

    fn eligible(&self, entry: &FlowEntry, rival: &Rival) -> bool {
        // A retry was decided a moment ago, and nobody else is there.
        if score::of(entry).is_some_and(|attempt| attempt.leaf() == rival.leaf.id.into()) {
            return true;
        }
        let snapshot = self.current.load();
        let able = snapshot.rivals(entry, None, usize::MAX);
        able.is_some_and(|able| able.leaves.iter().any(|l| l.leaf.id == rival.leaf.id))
    }

    fn raced(&self, group: &Arc<str>, network: Network, why: Why, won: bool) {
        let outcome = if won { "won" } else { "lost" };
        let key = (Arc::clone(group), network.name(), why.name(), outcome);
        *self.lock_races().entry(key).or_default() += 1;
    }

    fn hand_back(&self, flow: &NewFlow, mark: u32) -> bool {
        self.kernel.hand_back(&key_of(flow), mark)
    }

    fn handed_back(&self, flow: &NewFlow) {
        self.kernel.handed_back(&key_of(flow));
    }
}

fn log(snapshot: &Snapshot, entry: &FlowEntry) {
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: "honk::route",
                flow = entry.id,
                network = entry.flow.network.name(),
                client = %entry.flow.client.0,
                target = %entry.flow.target.0,
                host = entry.host.as_ref().map(|(name, _)| &**name),
                outbound = &*entry.outbound,
                leaf = &*entry.way().leaf_name,
                rule = entry.rule,
                "flow",
            )
        };
    }
    if snapshot.config.global.log_flows {
        line!(info);
    } else {
        line!(debug);
    }
}

pub(super) fn facts(flow: &NewFlow, seen: Option<&FlowVal>) -> FlowFacts {
    FlowFacts {
        src: to_bytes(flow.client.0.ip()),
        dst: to_bytes(flow.target.0.ip()),
        sport: flow.client.0.port(),
        dport: flow.target.0.port(),
        tcp: flow.network == Network::Tcp,
        mac: seen.map_or([0; 6], |s| s.mac),
        dscp: seen.map_or(0, |s| FlowWord::unpack(s.word).dscp),
        pname: seen.map_or([0; 16], |s| s.pname),
        domain: None,
    }
}

/// Whether a leaf is one of the built-ins, whose flows need no server.
pub(crate) fn is_builtin(id: honk_policy::id::NodeId) -> bool {
    id == builtin::DIRECT || id == builtin::BLOCK
}

#[cfg(test)]
mod tests;
