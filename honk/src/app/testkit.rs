//! A daemon without a kernel, for tests of this room and of the API.

use std::{
    collections::HashMap,
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use honk_common::{
    flow::{FlowVal, FlowWord},
    key::FlowKey,
    tables::RouteTables,
};
use honk_policy::{
    group::{Change, Health, NodeState},
    health::Touched,
    id::{Domain, Family, GroupId, MemberId, Network, NodeId},
    node::Node,
};
use tokio::{sync::watch, task::JoinSet};

use super::{
    engine::{Engine, Parts},
    kernel::{Interface, Kernel, KernelCounters, KernelError},
    loader::{Files, ModeRule},
    snapshot::Snapshot,
    source::{self, Purpose, Spec},
};
use crate::{
    cli::exit::Exit,
    dns,
    flow::{Admission as _, CancelHook, ClientAddr, CloseReason, NewFlow, OrigDst, Route},
    log,
    probe::{self, Prober},
    state::{choices::Choices, file::tests::scratch},
    subscription::{FetchError, Hub, Store},
};

/// What the fake was asked, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Commit(u16),
    Groups(Vec<(u32, u32)>),
    Gate(u32),
    Flags(u32),
    Watch(bool),
    Interfaces(Vec<String>, Vec<String>),
    Claim(FlowKey),
    Release(FlowKey),
    HandBack(FlowKey, u32),
    HandedBack(FlowKey),
}

type Hook = Box<dyn Fn(&Asked) + Send>;

/// A kernel side that remembers and answers as told.
#[derive(Default)]
pub(crate) struct FakeKernel {
    asked: Mutex<Vec<Asked>>,
    pub(crate) flows: Mutex<HashMap<FlowKey, FlowVal>>,
    pub(crate) local: Mutex<Vec<IpAddr>>,
    pub(crate) refuse_commit: Mutex<bool>,
    pub(crate) refuse_groups: AtomicBool,
    pub(crate) interfaces: Mutex<Vec<Interface>>,
    /// Called at every request, before it is answered.
    pub(crate) hook: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for FakeKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeKernel").finish_non_exhaustive()
    }
}

impl FakeKernel {
    fn note(&self, asked: Asked) {
        if let Some(hook) = &*self.hook.lock().unwrap() {
            hook(&asked);
        }
        self.asked.lock().unwrap().push(asked);
    }

    /// What was asked since the last call.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Plants the kernel's decision for a flow.
    pub(crate) fn decide(&self, flow: &NewFlow, ordinal: u8, rule: u16) {
        self.decide_with(flow, ordinal, rule, 0);
    }

    /// The same with flags of the word.
    pub(crate) fn decide_with(&self, flow: &NewFlow, ordinal: u8, rule: u16, flags: u8) {
        let word = FlowWord {
            ordinal,
            flags,
            dscp: 0,
            state: 0,
            mark: 0,
        };
        let seen = FlowVal {
            last_seen_ns: 0,
            word: word.pack(),
            isn: 0,
            generation: 1,
            rule,
            vlan: 0,
            pid: 0,
            pname: [0; 16],
            mac: [2, 0, 0, 0, 0, 1],
            gw_mac: [0; 6],
            ifindex: 1,
        };
        let key = super::registry::key_of(flow);
        self.flows.lock().unwrap().insert(key, seen);
    }
}

impl Kernel for FakeKernel {
    fn stage(&self, tables: &RouteTables) -> Result<u32, KernelError> {
        self.note(Asked::Commit(tables.meta.rules));
        if *self.refuse_commit.lock().unwrap() {
            return Err(KernelError {
                exit: Exit::Failure,
                message: "no memory".to_owned(),
            });
        }
        Ok(1)
    }

    fn activate(&self, _generation: u32) -> Result<(), KernelError> {
        Ok(())
    }

    fn write_groups(&self, slots: &[(u32, u32)]) -> Result<(), KernelError> {
        self.note(Asked::Groups(slots.to_vec()));
        if self.refuse_groups.load(Ordering::SeqCst) {
            return Err(KernelError {
                exit: Exit::Failure,
                message: "no memory".to_owned(),
            });
        }
        Ok(())
    }

    fn set_gate(&self, gate: u32) -> Result<(), KernelError> {
        self.note(Asked::Gate(gate));
        Ok(())
    }

    fn set_flags(&self, flags: u32) -> Result<(), KernelError> {
        self.note(Asked::Flags(flags));
        Ok(())
    }

    fn watch(&self, on: bool) -> Result<(), KernelError> {
        self.note(Asked::Watch(on));
        Ok(())
    }

    fn lookup(&self, key: &FlowKey) -> Option<FlowVal> {
        self.flows.lock().unwrap().get(key).copied()
    }

    fn claim(&self, key: &FlowKey, _: &FlowVal) {
        self.note(Asked::Claim(*key));
    }

    fn release(&self, key: &FlowKey, _: bool) {
        self.note(Asked::Release(*key));
    }

    fn hand_back(&self, key: &FlowKey, mark: u32) -> bool {
        self.note(Asked::HandBack(*key, mark));
        true
    }

    fn handed_back(&self, key: &FlowKey) {
        self.note(Asked::HandedBack(*key));
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        self.local.lock().unwrap().contains(&ip)
    }

    fn set_interfaces(&self, lan: Vec<String>, wan: Vec<String>) -> Result<(), KernelError> {
        self.note(Asked::Interfaces(lan, wan));
        Ok(())
    }

    fn interfaces(&self) -> Vec<Interface> {
        self.interfaces.lock().unwrap().clone()
    }

    fn counters(&self) -> KernelCounters {
        KernelCounters {
            stats: vec![("direct_new", 4), ("proxy_new", 2)],
            ..KernelCounters::default()
        }
    }

    fn stop(&self) -> Result<(), KernelError> {
        Ok(())
    }
}

/// A daemon over a configuration file of its own; the file goes with it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    pub(crate) kernel: Arc<FakeKernel>,
    dir: PathBuf,
}

/// The usual configuration with a subscription that is never fetched.
pub(crate) fn subscribed() -> String {
    let url = "https://u:canary@air.example/canary?token=canary";
    format!("{CONFIG} subscription {{ air: '{url}' off: 'http://192.0.2.8/' [enabled: false] }}")
}

/// Two nodes in a selector, one node by itself, a direct and a blocked prefix.
pub(crate) const CONFIG: &str = "
global { lan_interface: lan0 }
node { a: 'socks5://192.0.2.1:1080'
       b: 'socks5://192.0.2.2:1080'
       c: 'http://192.0.2.3:8080' }
group { proxy { policy: select
                filter: name(a, b)
                interrupt_connections: true } }
routing { dip(10.0.0.0/8) -> direct
          dip(198.51.100.0/24) -> block
          l4proto(tcp) && dport(8443) -> c
          fallback: proxy }
";

impl World {
    /// The group of that name, which must be there.
    pub(crate) fn group(&self, name: &str) -> GroupId {
        self.engine.snapshot().groups.group_named(name).unwrap().id
    }

    /// Lets people measure, without probing by itself. Must be called inside a tokio runtime.
    pub(crate) fn measure(&self) {
        let dialer = crate::outbound::Dialer::new(crate::outbound::Settings {
            own_mark: 0,
            bootstrap: Vec::new(),
            max_concurrent_dials: 4,
            connect_timeout: std::time::Duration::from_secs(3),
        });
        let runs = Arc::default();
        self.engine.measure_with(super::pings::Pings {
            dialer,
            runs,
            overrides: Arc::default(),
        });
    }

    /// Probes nodes as the daemon does, and lets people measure, until the value is dropped.
    pub(crate) fn probe(&self) -> Probing {
        self.measure();
        let (prober, orders) = Prober::new();
        self.engine.watch(prober);
        let (stop, stopped) = watch::channel(false);
        let dialer = self.engine.pings().map(|pings| Arc::clone(&pings.dialer));
        let dialer = dialer.expect("people can measure");
        let mut task = JoinSet::new();
        task.spawn(probe::run(
            orders,
            Arc::clone(&self.engine),
            dialer,
            7,
            stopped,
        ));
        Probing {
            _stop: stop,
            _task: task,
        }
    }

    pub(crate) fn new(config: &str) -> Self {
        Self::with_capacity(config, 100)
    }

    /// With features that `honk run` refuses.
    pub(crate) fn checked(config: &str) -> Self {
        Self::made(config, 100, Purpose::Check)
    }

    pub(crate) fn with_capacity(config: &str, capacity: usize) -> Self {
        Self::made(config, capacity, Purpose::Run)
    }

    fn made(config: &str, capacity: usize, purpose: Purpose) -> Self {
        let dir = scratch("world");
        let spec = Spec {
            entry: dir.join("config.dae"),
            files: Files::new(ModeRule::Deny, &|_| None),
            geodata: Default::default(),
        };
        write(&spec.entry, config);
        let outcome = source::load(&spec, purpose, None);
        let mut candidate = outcome
            .candidate
            .expect("the configuration of the test is valid");
        let hub = Hub::new(Some(Store::new(&dir, true)), &dir);
        hub.adopt(
            std::mem::take(&mut candidate.subscriptions),
            &candidate.config.nodes,
        );
        let kernel = Arc::new(FakeKernel::default());
        let engine = Engine::new(Parts {
            kernel: kernel.clone(),
            dns: dns::testkit::dns(),
            first: Snapshot::new(candidate, &outcome.findings, 1),
            spec,
            log: log::Handle::inert(),
            capacity,
            progress: dir.join("reload.json"),
            choices: dir.join("state/choices.json"),
            late: Choices::new(),
            subscriptions: Arc::new(hub),
            judge: super::verdicts::Judge::load(dir.join("state/verdicts.json"), false),
        });
        engine.gatekeeper.committed(1, 1);
        engine.open().unwrap();
        kernel.take();
        Self {
            engine: Arc::new(engine),
            kernel,
            dir,
        }
    }

    /// Replaces the configuration file.
    pub(crate) fn edit(&self, config: &str) {
        write(&self.engine.spec.entry, config);
    }

    /// The content of `reload.json`.
    pub(crate) fn progress(&self) -> String {
        fs::read_to_string(self.dir.join("reload.json")).unwrap_or_default()
    }

    /// Where choices are stored.
    pub(crate) fn choices(&self) -> PathBuf {
        self.dir.join("state/choices.json")
    }

    /// The subscription that is due is fetched in vain.
    pub(crate) fn fetch_fails(&self) {
        let hub = &self.engine.subscriptions;
        let job = hub
            .take_due(tokio::time::Instant::now())
            .expect("one is due");
        hub.failed(job.id, &FetchError::Damaged);
    }

    /// What the next process would know of nodes that are off.
    pub(crate) fn judge_again(&self) -> super::verdicts::Judge {
        super::verdicts::Judge::load(self.dir.join("state/verdicts.json"), false)
    }

    /// A hub over the same copies of subscriptions, as the next process would have.
    pub(crate) fn hub_again(&self) -> Hub {
        Hub::new(Some(Store::new(&self.dir, true)), &self.dir)
    }

    /// Lets exactly these nodes be dead, and tells what moved.
    pub(crate) async fn kill(&self, names: &[&str]) -> Vec<Change> {
        let snapshot = self.engine.snapshot();
        let nodes = snapshot.groups.nodes();
        let named = |n: &&Arc<Node>| names.contains(&n.name.as_str());
        let dead = nodes.iter().filter(named).map(|n| n.id).collect();
        let touched = Touched {
            nodes: nodes.iter().map(|n| n.id).collect(),
            ..Touched::default()
        };
        let changed = self.engine.health_changed(Arc::new(Dead(dead)), &touched);
        changed.await.expect("the kernel was told")
    }

    /// Kernel slot of a group.
    pub(crate) fn slot(&self, group: &str) -> u8 {
        self.engine
            .snapshot()
            .groups
            .group_named(group)
            .unwrap()
            .slot
            .0
    }
}

/// These nodes are dead.
#[derive(Debug)]
struct Dead(Vec<NodeId>);

impl Health for Dead {
    fn state(&self, node: NodeId, _: Domain, _: Family) -> Option<NodeState> {
        Some(NodeState {
            alive: !self.0.contains(&node),
            latency_ms: None,
            strikes: 0,
        })
    }

    fn url_state(&self, _: GroupId, _: MemberId, _: Family) -> Option<NodeState> {
        None
    }

    fn disabled(&self, _: NodeId) -> bool {
        false
    }
}

/// The task that probes.
#[derive(Debug)]
pub(crate) struct Probing {
    _stop: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn write(path: &std::path::Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A flow from a LAN client.
pub(crate) fn flow(network: Network, target: &str) -> NewFlow {
    let client: SocketAddr = if target.starts_with('[') {
        "[fd66::2]:40000".parse().unwrap()
    } else {
        "192.168.1.2:40000".parse().unwrap()
    };
    NewFlow {
        network,
        client: ClientAddr(client),
        target: OrigDst(target.parse().unwrap()),
    }
}

/// Ends its flow as soon as it is asked to, like a relay.
pub(crate) struct Relay(Mutex<Option<Route>>);

impl Relay {
    pub(crate) fn is_alive(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

impl CancelHook for Relay {
    fn cancelled(&self, _: u64, _: CloseReason) {
        drop(self.0.lock().unwrap().take());
    }
}

/// Admits a flow and carries it.
pub(crate) fn relayed(world: &World, network: Network, target: &str) -> Arc<Relay> {
    let gatekeeper = &world.engine.gatekeeper;
    let route = gatekeeper.admit(&flow(network, target)).unwrap();
    let entry = Arc::clone(&route.guard.entry);
    let relay = Arc::new(Relay(Mutex::new(Some(route))));
    entry.cancel.register(relay.clone(), 0);
    relay
}

/// Brings a flow to its far side and an answer back.
pub(crate) fn serve(route: Route) {
    let entry = Arc::clone(&route.guard.entry);
    entry.started();
    entry.reached();
    entry.counters.add_up(100);
    entry.progressed();
    entry.counters.add_down(1000);
    entry.progressed();
    route.guard.close(CloseReason::Eof);
}
