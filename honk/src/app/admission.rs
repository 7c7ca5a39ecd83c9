//! New flows: what the kernel decided, or the rules again, then the group's selection.
//!
//! Runs on accept paths: one map lookup, array accesses, one small allocation for the record.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Instant,
};

use arc_swap::ArcSwap;
use honk_common::{
    flow::{FLAG_MUST, FlowVal, FlowWord},
    key::{FlowKey, to_bytes},
    outbound,
};
use honk_policy::{
    group::{Refuse, Source, builtin},
    id::{Network, Ordinal},
    node::Protocol,
    routing::rule::{FlowFacts, Verdict},
};

use super::{
    kernel::Kernel,
    last_resort::LastResorts,
    registry::{Registry, has_entry, key_of},
    snapshot::Snapshot,
};
use crate::{
    clock,
    dns::Dns,
    flow::{
        Admission, Cancel, FlowCounters, FlowEntry, FlowGuard, FlowSink, NewFlow, Refusal, Route,
    },
};

const DNS: u16 = 53;

/// Label values of `reason` of refused flows, in the order of [`refusal_index`].
pub(crate) const REFUSALS: [&str; 9] = [
    "blocked",
    "no_member",
    "all_dead",
    "udp_incapable",
    "final_missing",
    "final_cycle",
    "depth",
    "capacity",
    "stopping",
];

fn refusal_index(refusal: Refusal) -> usize {
    match refusal {
        Refusal::Blocked => 0,
        Refusal::NoMember => 1,
        Refusal::AllDead => 2,
        Refusal::UdpIncapable => 3,
        Refusal::FinalMissing => 4,
        Refusal::FinalCycle => 5,
        Refusal::Depth => 6,
        Refusal::Capacity => 7,
        Refusal::Stopping => 8,
    }
}

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
    /// Flows without an eligible selection; rare, so that one lock will do.
    unselected: Mutex<Unselected>,
    pub(crate) last_resorts: LastResorts,
}

/// Flows by group, network and outcome.
pub(crate) type Unselected = BTreeMap<(Arc<str>, &'static str, &'static str), u64>;

/// A verdict with what the kernel knew.
struct Decision {
    verdict: Verdict,
    /// The kernel's entry, if it has one.
    seen: Option<FlowVal>,
}

impl Gatekeeper {
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        registry: Arc<Registry>,
        current: Arc<ArcSwap<Snapshot>>,
        dns: Arc<Dns>,
    ) -> Self {
        Self {
            kernel,
            registry,
            current,
            dns,
            stopping: AtomicBool::new(false),
            counters: AdmissionCounters::default(),
            unselected: Mutex::default(),
            last_resorts: LastResorts::default(),
        }
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

    fn decide(&self, snapshot: &Snapshot, flow: &NewFlow, key: &FlowKey) -> Decision {
        let dns = flow.target.0.port() == DNS;
        let seen = if has_entry(flow) {
            self.kernel.lookup(key)
        } else {
            None
        };
        if let Some(seen) = &seen {
            let word = FlowWord::unpack(seen.word);
            if !dns && word.ordinal != outbound::CONTROL {
                let verdict = Verdict {
                    ordinal: Ordinal(word.ordinal),
                    must: word.flags & FLAG_MUST != 0,
                    mark: word.mark,
                    rule: seen.rule,
                };
                return Decision {
                    verdict,
                    seen: Some(*seen),
                };
            }
        } else if !dns {
            self.counters.handoff_miss.fetch_add(1, Ordering::Relaxed);
        }
        let mut facts = facts(flow, seen.as_ref());
        if snapshot.oracle.has_names() {
            // Answers taught the kernel the same name, unless the address has several.
            let name = self.dns.name_for(flow.client.0.ip(), flow.target.0.ip());
            facts.domain = name.map(|name| name.to_string());
        }
        let mut verdict = snapshot.oracle.eval(&facts);
        if dns && self.kernel.is_local(flow.target.0.ip()) {
            // The client asks the gateway itself: its own resolver answers.
            verdict.ordinal = Ordinal(outbound::DIRECT);
        }
        self.count(&verdict);
        Decision { verdict, seen }
    }

    fn count(&self, verdict: &Verdict) {
        let kind = match (verdict.must, verdict.ordinal.0) {
            (true, _) => 3,
            (false, outbound::DIRECT) => 0,
            (false, outbound::BLOCK) => 1,
            (false, _) => 2,
        };
        self.counters.decisions[kind].fetch_add(1, Ordering::Relaxed);
    }

    fn route(&self, flow: &NewFlow, key: &FlowKey) -> Result<Route, Refusal> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Refusal::Stopping);
        }
        let snapshot = self.current.load();
        let Decision { verdict, seen } = self.decide(&snapshot, flow, key);
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
            path: Arc::clone(selected.path),
            groups: Arc::clone(selected.groups),
            leaf: selected.leaf.id,
            leaf_name: selected.leaf.name.as_str().into(),
            rule: verdict.rule,
            must: verdict.must,
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
        if let Some(seen) = &seen {
            self.kernel.claim(key, seen);
        }
        log(&snapshot, &entry);
        Ok(Route {
            leaf: Arc::clone(selected.leaf),
            mark: verdict.mark,
            guard,
        })
    }
}

impl Admission for Gatekeeper {
    fn admit(&self, flow: &NewFlow) -> Result<Route, Refusal> {
        let key = key_of(flow);
        self.route(flow, &key).inspect_err(|refusal| {
            self.counters.refused[refusal_index(*refusal)].fetch_add(1, Ordering::Relaxed);
            // The entry of a refused flow would keep its packets coming here.
            if has_entry(flow) {
                self.kernel.release(&key);
            }
            tracing::debug!(
                target: "honk::route",
                client = %flow.client.0, target = %flow.target.0, ?refusal, "flow refused",
            );
        })
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
                outbound = &*entry.outbound,
                leaf = &*entry.leaf_name,
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

fn facts(flow: &NewFlow, seen: Option<&FlowVal>) -> FlowFacts {
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

fn refusal(refuse: Refuse) -> Refusal {
    match refuse {
        Refuse::NoMember => Refusal::NoMember,
        Refuse::AllDead => Refusal::AllDead,
        Refuse::UdpIncapable => Refusal::UdpIncapable,
        Refuse::FinalMissing => Refusal::FinalMissing,
        Refuse::FinalCycle => Refusal::FinalCycle,
        Refuse::Depth => Refusal::Depth,
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
