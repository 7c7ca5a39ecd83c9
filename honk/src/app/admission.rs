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
    flow::{FLAG_AMBIGUOUS, FLAG_MUST, FLAG_PRELIM, FlowVal, FlowWord},
    key::{FlowKey, to_bytes},
    outbound,
};
use honk_policy::{
    group::{Rival, Rivals, Source, builtin},
    id::{Network, Ordinal},
    node::Protocol,
    routing::rule::{FlowFacts, Verdict},
};

use tokio::runtime::Handle;

use super::{
    kernel::Kernel,
    last_resort::LastResorts,
    refusal::{REFUSALS, refusal, refusal_index},
    registry::{Registry, has_entry, key_of},
    snapshot::Snapshot,
    sniffing::{Doubt, SniffCounters, Sniffer, Waiting},
};
use crate::{
    clock,
    dns::Dns,
    flow::{
        Admission, Answer, Cancel, FlowCounters, FlowEntry, FlowGuard, FlowSink, HostSource, Names,
        NewFlow, RACERS, Refusal, Route, Way, Why,
    },
};

const DNS: u16 = 53;

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
    /// Generation of the kernel above, the one of the snapshot with the same rules below.
    committed: AtomicU64,
    me: Weak<Self>,
    /// Flows without an eligible selection; rare, so that one lock will do.
    unselected: Mutex<Unselected>,
    pub(crate) last_resorts: LastResorts,
    /// Flows that tried several leaves; rare, too.
    races: Mutex<Races>,
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
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
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
            races: Mutex::default(),
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
        let route = self.route(&snapshot, flow, settled)?;
        if let Some(seen) = &seen {
            self.kernel.claim(key, seen);
        }
        Ok(Answer::Go(route))
    }

    /// Lets a flow go its way that has been claimed before.
    pub(super) fn settle(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        key: &FlowKey,
        settled: Settled,
    ) -> Result<Route, Refusal> {
        let route = if self.stopping.load(Ordering::Relaxed) {
            Err(Refusal::Stopping)
        } else {
            self.route(snapshot, flow, settled)
        };
        route.inspect_err(|refusal| self.refused(flow, key, *refusal))
    }

    /// Selects a leaf and lists the flow.
    fn route(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        settled: Settled,
    ) -> Result<Route, Refusal> {
        let verdict = settled.verdict;
        let (outbound, selected) = snapshot
            .apply(verdict.ordinal, flow.network, flow.family())
            .ok_or(Refusal::NoMember)?;
        let selected = selected.map_err(|refuse| {
            self.count_unselected(outbound, flow.network, refuse.name());
            refusal(refuse)
        })?;
        match selected.source {
            Source::Final => self.count_unselected(outbound, flow.network, "final"),
            Source::LastResort => self.last_resorts.note(outbound, Instant::now()),
            _ => {}
        }
        if selected.leaf.protocol == Protocol::Block {
            return Err(Refusal::Blocked);
        }
        let id = self.registry.reserve().ok_or(Refusal::Capacity)?;
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
            cancel: Cancel::default(),
        });
        self.registry.insert(&entry);
        // From here on the guard gives everything back.
        let sink: Arc<dyn FlowSink> = self.registry.clone();
        let guard = FlowGuard::new(Arc::clone(&entry), sink);
        log(snapshot, &entry);
        let proxied = selected.leaf.protocol != Protocol::Direct;
        let cold = selected.cold.then(|| snapshot.cold(&guard.entry)).flatten();
        Ok(Route {
            leaf: Arc::clone(selected.leaf),
            mark: verdict.mark,
            name: settled.target.filter(|_| proxied),
            cold,
            guard,
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
            self.kernel.release(key);
        }
    }
}

impl Admission for Gatekeeper {
    fn ask(&self, flow: &NewFlow) -> Result<Answer, Refusal> {
        let key = key_of(flow);
        self.answer(flow, &key)
            .inspect_err(|refusal| self.refused(flow, &key, *refusal))
    }

    fn rivals(&self, entry: &FlowEntry) -> Option<Rivals> {
        let snapshot = self.current.load();
        snapshot.rivals(entry, Some(entry.selected.leaf), RACERS)
    }

    fn eligible(&self, entry: &FlowEntry, rival: &Rival) -> bool {
        let snapshot = self.current.load();
        let able = snapshot.rivals(entry, None, usize::MAX);
        able.is_some_and(|able| able.leaves.iter().any(|l| l.leaf.id == rival.leaf.id))
    }

    fn raced(&self, group: &Arc<str>, network: Network, why: Why, won: bool) {
        let outcome = if won { "won" } else { "lost" };
        let key = (Arc::clone(group), network.name(), why.name(), outcome);
        *self.lock_races().entry(key).or_default() += 1;
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
mod tests {
    use honk_policy::id::Network::{Tcp, Udp};

    use super::*;
    use crate::app::testkit::{Asked, CONFIG, World, flow};

    fn admit(world: &World, flow: &NewFlow) -> Result<Route, Refusal> {
        world.engine.gatekeeper.admit(flow)
    }

    fn outbound(route: &Route) -> &str {
        &route.guard.entry.outbound
    }

    fn misses(world: &World) -> u64 {
        world
            .engine
            .gatekeeper
            .counters
            .handoff_miss
            .load(Ordering::Relaxed)
    }

    #[test]
    fn the_kernels_decision_stands_and_its_entry_is_claimed_until_the_end() {
        let world = World::new(CONFIG);
        // The rules would say `direct`: what the kernel decided is not decided again.
        let flow = flow(Tcp, "10.1.1.1:443");
        world.kernel.decide(&flow, world.slot("proxy"), 3);
        let route = admit(&world, &flow).unwrap();
        assert_eq!(
            (
                route.leaf.name.as_str(),
                outbound(&route),
                route.guard.entry.rule
            ),
            ("a", "proxy", 3)
        );
        let key = key_of(&flow);
        assert_eq!(world.kernel.take(), [Asked::Claim(key)]);
        assert_eq!(world.engine.registry.open(), 1);
        drop(route);
        assert_eq!(world.kernel.take(), [Asked::Release(key)]);
        assert_eq!(world.engine.registry.open(), 0);
        assert_eq!(misses(&world), 0);
    }

    #[test]
    fn a_flow_without_entry_goes_through_the_rules_and_is_counted() {
        let world = World::new(CONFIG);
        let route = admit(&world, &flow(Tcp, "203.0.113.1:8443")).unwrap();
        assert_eq!((route.leaf.name.as_str(), outbound(&route)), ("c", "c"));
        assert_eq!(misses(&world), 1);
    }

    #[test]
    fn control_means_that_userspace_evaluates_the_rules() {
        let world = World::new(CONFIG);
        let flow = flow(Udp, "10.1.1.1:9000");
        world.kernel.decide(&flow, outbound::CONTROL, 0);
        let route = admit(&world, &flow).unwrap();
        assert_eq!((outbound(&route), route.guard.entry.rule), ("direct", 0));
        assert_eq!(misses(&world), 0);
    }

    #[test]
    fn dns_follows_its_rules_and_the_gateways_own_resolver_is_asked_directly() {
        let world = World::new(CONFIG);
        let route = admit(&world, &flow(Udp, "203.0.113.53:53")).unwrap();
        assert_eq!(outbound(&route), "proxy");
        drop(route);
        assert_eq!(
            world.kernel.take(),
            [],
            "UDP to port 53 has no kernel entry"
        );
        *world.kernel.local.lock().unwrap() = vec!["203.0.113.53".parse().unwrap()];
        let route = admit(&world, &flow(Udp, "203.0.113.53:53")).unwrap();
        assert_eq!((outbound(&route), &*route.leaf.name), ("direct", "direct"));
        assert_eq!(misses(&world), 0);
    }

    #[test]
    fn refused_flows_leave_no_entry_and_no_record() {
        let world = World::with_capacity(CONFIG, 1);
        let blocked = flow(Tcp, "198.51.100.7:80");
        assert_eq!(admit(&world, &blocked).unwrap_err(), Refusal::Blocked);
        assert_eq!(world.kernel.take(), [Asked::Release(key_of(&blocked))]);

        let proxied = flow(Tcp, "203.0.113.1:80");
        let held = admit(&world, &proxied).unwrap();
        assert_eq!(admit(&world, &proxied).unwrap_err(), Refusal::Capacity);
        drop(held);
        drop(admit(&world, &proxied).unwrap());

        world.engine.begin_stop().unwrap();
        assert_eq!(admit(&world, &proxied).unwrap_err(), Refusal::Stopping);
        assert_eq!(world.engine.registry.open(), 0);
        let refused = &world.engine.gatekeeper.counters.refused;
        let refused: Vec<u64> = refused.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        assert_eq!(refused, [1, 0, 0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_leaf_without_udp_refuses_udp() {
        let config = CONFIG.replace("filter: name(a, b)", "filter: name(c)");
        let world = World::new(&config);
        let udp = flow(Udp, "203.0.113.1:443");
        assert_eq!(admit(&world, &udp).unwrap_err(), Refusal::UdpIncapable);
        assert!(admit(&world, &flow(Tcp, "203.0.113.1:443")).is_ok());
        let counted = world.engine.gatekeeper.unselected();
        assert_eq!(
            counted,
            [(("proxy".into(), "udp", "udp_incapable"), 1)].into()
        );
    }

    #[test]
    fn flows_that_final_serves_are_counted_as_such() {
        let config = CONFIG.replace("filter: name(a, b)", "filter: name(c)\n final: direct");
        let world = World::new(&config);
        let route = admit(&world, &flow(Udp, "203.0.113.1:443")).unwrap();
        assert_eq!(
            (route.leaf.name.as_str(), outbound(&route)),
            ("direct", "proxy")
        );
        let counted = world.engine.gatekeeper.unselected();
        assert_eq!(counted, [(("proxy".into(), "udp", "final"), 1)].into());
    }
}
