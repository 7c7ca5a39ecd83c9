//! A driver around an engine: groups, leaves and targets by small numbers, and attempts kept in a
//! list so that operations can name them.

use super::super::{
    AttemptId, Cand, Ctx, Engine, GroupKey, GroupMembers, Membership, Mode, NodeKey, Obs, Outcome,
    Pick, PressureHint, ProbeSample, ReporterId, Source, T, Target, Trials, WorkId,
};
use crate::id::{Domain, Family, Network, NodeId, Uuid};

/// Bits that every node's number carries, to look for in what is printed.
const MARK: u128 = 0xdead_c0de_0000_0000_0000_0000_0000_0000;

pub(super) fn node(number: u8) -> NodeKey {
    NodeId(Uuid::from_u128(MARK | u128::from(number))).into()
}

pub(super) fn name(target: u8) -> String {
    format!("canary{target}.example")
}

pub(super) fn cands(numbers: &[u8]) -> Vec<Cand> {
    let cand = |number: &u8| Cand {
        node: node(*number),
        member: u32::from(*number),
    };
    numbers.iter().map(cand).collect()
}

/// How far an attempt of the list has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Planned(AttemptId),
    Begun(WorkId),
    Started(ReporterId),
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) now: T,
    pub(super) held: Vec<Held>,
    pub(super) generation: u64,
    probes: u64,
}

/// What a flow is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) group: u32,
    pub(super) network: Network,
    pub(super) family: Option<Family>,
    pub(super) target: Option<u8>,
}

pub(super) const WEB: Flow = Flow {
    group: 1,
    network: Network::Tcp,
    family: Some(Family::V4),
    target: Some(1),
};

impl World {
    /// Groups with these leaves, numbered from 1.
    pub(super) fn new(groups: &[&[u8]]) -> Self {
        Self::at(T::from_secs(1000), groups)
    }

    pub(super) fn at(now: T, groups: &[&[u8]]) -> Self {
        let mut world = Self {
            engine: Engine::new(7),
            now,
            held: Vec::new(),
            generation: 0,
            probes: 0,
        };
        world.activate(groups);
        world
    }

    pub(super) fn activate(&mut self, groups: &[&[u8]]) {
        self.generation += 1;
        let groups = (1..).zip(groups).map(|(key, leaves)| GroupMembers {
            group: GroupKey(key),
            leaves: leaves.iter().map(|n| node(*n)).collect(),
            finals: Vec::new(),
        });
        let membership = Membership {
            generation: self.generation,
            groups: groups.collect(),
            dormant: Vec::new(),
        };
        self.engine.activate(self.now, &membership);
    }

    pub(super) fn pass(&mut self, millis: u64) {
        self.now = self.now.plus_nanos(millis * 1_000_000);
    }

    pub(super) fn rank(&mut self, flow: Flow, view: &[Cand], mode: Mode) -> Option<Pick> {
        self.rank_joining(flow, view, mode, None)
    }

    pub(super) fn rank_joining(
        &mut self,
        flow: Flow,
        view: &[Cand],
        mode: Mode,
        joins: Option<AttemptId>,
    ) -> Option<Pick> {
        let name = flow.target.map(name);
        let ctx = ctx(flow, name.as_deref(), joins);
        let key = GroupKey(flow.group);
        self.engine.rank(self.now, key, &ctx, view, mode)
    }

    pub(super) fn peek(&self, flow: Flow, view: &[Cand]) -> Option<NodeKey> {
        let name = flow.target.map(name);
        let ctx = ctx(flow, name.as_deref(), None);
        let key = GroupKey(flow.group);
        Some(self.engine.peek(self.now, key, &ctx, view)?.node)
    }

    pub(super) fn probe(&mut self, group: u32, number: u8, millis: Option<f64>) {
        self.probes += 1;
        let sample = ProbeSample {
            group: GroupKey(group),
            node: node(number),
            domain: Domain::Tcp,
            family: Family::V4,
            scope: 77,
            interval: Some(30_000_000_000),
            generation: self.generation,
            reporter: 1_000_000 + self.probes,
            latency: millis,
        };
        self.engine.probe(self.now, sample);
    }

    /// Longer round trips to a leaf's server, seen now.
    pub(super) fn hint(&self, number: u8) -> PressureHint {
        PressureHint {
            node: node(number),
            network: Network::Tcp,
            carrier: Family::V4,
            at: self.now,
            rtt: true,
            loss: false,
        }
    }

    pub(super) fn press(&mut self, number: u8) {
        self.engine.pressure(self.now, self.hint(number));
    }

    /// A flow from rank to its end: setup after 10 ms, an answer after `response` more, then
    /// `outcome`. Tells what was picked.
    pub(super) fn flow(
        &mut self,
        flow: Flow,
        view: &[Cand],
        outcome: impl FnOnce(NodeKey) -> (Outcome, u64),
    ) -> Pick {
        let pick = self
            .rank(flow, view, Mode::Apply(Trials::Allowed))
            .expect("a view that is not empty has an answer");
        self.run(pick, outcome);
        pick
    }

    /// As [`flow`](Self::flow), for a pick that is there.
    pub(super) fn run(&mut self, pick: Pick, outcome: impl FnOnce(NodeKey) -> (Outcome, u64)) {
        let attempt = pick.attempt.expect("there is room");
        let work = self.engine.begin(self.now, &attempt).expect("not refused");
        let reporter = self.engine.start(self.now, work, Source::Traffic);
        let (outcome, response) = outcome(pick.node);
        if outcome == Outcome::Success {
            self.serve(reporter, response);
        }
        self.engine.finish(self.now, reporter, outcome);
    }

    fn serve(&mut self, reporter: ReporterId, response: u64) {
        self.pass(10);
        let mut see = |now, event| self.engine.observe(now, reporter, event);
        see(self.now, Obs::Setup);
        let at = self.now;
        see(at, Obs::Tx { bytes: 500, at });
        let at = at.plus_nanos(response * 1_000_000);
        see(at, Obs::FirstResponse);
        see(at, Obs::Rx { bytes: 900, at });
        self.now = at;
    }
}

pub(super) fn ctx<'a>(flow: Flow, name: Option<&'a str>, joins: Option<AttemptId>) -> Ctx<'a> {
    Ctx {
        network: flow.network,
        family: flow.family,
        target: name.map(|name| Target::Name(name, 443)),
        dead_filtered: 0,
        joins,
    }
}
