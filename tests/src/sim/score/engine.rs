//! Score itself as a policy of the simulator.

use std::collections::HashMap;

use honk_policy::id::{Domain, Family, Network, NodeId, Uuid};
use honk_policy::score::{
    AttemptId, Cand, Ctx, Engine, GroupKey, GroupMembers, GroupStats, Membership, Mode, NodeKey,
    Obs, Outcome, ProbeSample, Report, ReporterId, Source, T, Target, Trials,
};

use super::{
    policy::{Choice, Policy, Seen},
    world::Flow,
};

/// The group of the simulation.
const GROUP: GroupKey = GroupKey(1);
/// Nanoseconds between two probes.
const INTERVAL: u64 = 30_000_000_000;

/// The engine and the flows that run through it.
#[derive(Debug)]
pub struct Score {
    engine: Engine,
    members: Vec<usize>,
    generation: u64,
    /// Attempts by flow.
    running: HashMap<u64, ReporterId>,
    planned: HashMap<u64, AttemptId>,
    probes: u64,
    network: Network,
    /// Leaves that cannot carry it.
    incapable: u32,
    view: Vec<Cand>,
}

/// The identity of a node.
pub fn key(node: usize) -> NodeKey {
    NodeId(Uuid::from_u128(node as u128 + 1)).into()
}

fn time(secs: f64) -> T {
    T::from_nanos((secs * 1e9) as u64)
}

/// The address of a target.
fn address(flow: &Flow) -> std::net::SocketAddr {
    let number = flow.target as u16;
    if flow.v6 {
        ([0x2001, 0xdb8, 0, 0, 0, 0, 0, number], 443).into()
    } else {
        ([192, 0, 2, number as u8], 443).into()
    }
}

impl Score {
    /// Over nodes `0..nodes`.
    pub fn new(nodes: usize) -> Self {
        let mut score = Self {
            engine: Engine::new(7),
            members: Vec::new(),
            generation: 0,
            running: HashMap::new(),
            planned: HashMap::new(),
            probes: 0,
            network: Network::Tcp,
            incapable: 0,
            view: Vec::new(),
        };
        score.activate(0.0, (0..nodes).collect());
        score
    }

    /// Activates a configuration with these members.
    pub fn activate(&mut self, at: f64, members: Vec<usize>) {
        self.generation += 1;
        let membership = Membership {
            generation: self.generation,
            groups: vec![GroupMembers {
                group: GROUP,
                leaves: members.iter().map(|n| key(*n)).collect(),
                finals: Vec::new(),
            }],
            dormant: Vec::new(),
        };
        self.members = members;
        self.engine.activate(time(at), &membership);
    }

    /// Further flows are of this network, which so many leaves cannot carry.
    pub fn carry(&mut self, network: Network, incapable: u32) {
        (self.network, self.incapable) = (network, incapable);
    }

    /// Its counters.
    pub fn stats(&self, at: f64) -> GroupStats {
        self.engine.stats(time(at)).groups[0]
    }

    /// What it knows about TCP.
    pub fn report(&self, at: f64, view: &[usize]) -> Option<Report> {
        let view = cands(view);
        self.engine.verify(time(at), GROUP, Network::Tcp, &view)
    }

    fn begin(&mut self, at: f64, flow: &Flow, attempt: AttemptId) {
        let now = time(at);
        if let Ok(work) = self.engine.begin(now, &attempt) {
            let reporter = self.engine.start(now, work, Source::Traffic);
            self.running.insert(flow.number, reporter);
        }
    }

    fn observe(&mut self, at: f64, flow: &Flow, event: Obs) {
        if let Some(&reporter) = self.running.get(&flow.number) {
            self.engine.observe(time(at), reporter, event);
        }
    }

    fn finish(&mut self, at: f64, flow: &Flow, outcome: Outcome) {
        if let Some(reporter) = self.running.remove(&flow.number) {
            self.engine.finish(time(at), reporter, outcome);
        }
    }

    /// A planned flow is given up before its work begins.
    pub fn release(&mut self, at: f64, flow: u64) {
        if let Some(attempt) = self.planned.remove(&flow) {
            self.engine.release(time(at), attempt);
        }
    }

    /// Chooses without beginning: the flow waits until it is released.
    pub fn plan(&mut self, flow: &Flow, view: &[usize]) -> Option<Choice> {
        let (choice, attempt) = self.rank(flow, view, Mode::Apply(Trials::Allowed))?;
        self.planned.extend(attempt.map(|a| (flow.number, a)));
        Some(choice)
    }

    fn rank(
        &mut self,
        flow: &Flow,
        view: &[usize],
        mode: Mode,
    ) -> Option<(Choice, Option<AttemptId>)> {
        let family = if flow.v6 { Family::V6 } else { Family::V4 };
        let ctx = Ctx {
            network: self.network,
            family: Some(family),
            target: Some(Target::Address(address(flow))),
            dead_filtered: self.incapable,
            joins: None,
        };
        self.view.clear();
        self.view.extend(view.iter().map(|&node| cand(node)));
        let pick = self
            .engine
            .rank(time(flow.at), GROUP, &ctx, &self.view, mode)?;
        let choice = Choice {
            node: view[pick.index],
            trial: pick.trial,
        };
        Some((choice, pick.attempt))
    }
}

fn cand(node: usize) -> Cand {
    Cand {
        node: key(node),
        member: node as u32,
    }
}

fn cands(view: &[usize]) -> Vec<Cand> {
    view.iter().map(|&node| cand(node)).collect()
}

impl Policy for Score {
    fn pick(&mut self, flow: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice> {
        let mode = match failed {
            None => Mode::Apply(Trials::Allowed),
            Some(node) => Mode::Retry { failed: key(node) },
        };
        let (choice, attempt) = self.rank(flow, view, mode)?;
        if let Some(attempt) = attempt {
            self.begin(flow.at, flow, attempt);
        }
        Some(choice)
    }

    fn see(&mut self, at: f64, flow: &Flow, _node: usize, seen: Seen) {
        let moment = time(at);
        let sent = Obs::Tx {
            bytes: 500,
            at: moment,
        };
        let received = Obs::Rx {
            bytes: 4000,
            at: moment,
        };
        match seen {
            Seen::Setup => {
                self.observe(at, flow, Obs::Setup);
                self.observe(at, flow, sent);
            }
            Seen::Response(_) => {
                self.observe(at, flow, Obs::FirstResponse);
                self.observe(at, flow, received);
            }
            Seen::Data => self.observe(at, flow, received),
            Seen::End => self.finish(at, flow, Outcome::Success),
            Seen::FailedBefore => self.finish(at, flow, Outcome::Timeout),
            Seen::FailedAfter => self.finish(at, flow, Outcome::Io),
        }
    }

    fn probed(&mut self, at: f64, node: usize, latency: Option<f64>) {
        self.probes += 1;
        let sample = ProbeSample {
            group: GROUP,
            node: key(node),
            domain: Domain::Tcp,
            family: Family::V4,
            scope: 1,
            interval: Some(INTERVAL),
            generation: self.generation,
            // Numbers of probes lie far from those of flows.
            reporter: self.probes | 1 << 63,
            latency,
        };
        self.engine.probe(time(at), sample);
    }

    fn score(&self) -> Option<&Score> {
        Some(self)
    }
}
