//! A Score group that has served flows for a while: what is measured and what must not allocate
//! start from the same one. Shared with the benchmark.

use honk_policy::{
    id::{Family, Network, NodeId, Uuid},
    score::{
        AttemptId, Cand, Ctx, Engine, GroupKey, GroupMembers, Membership, Mode, NodeKey, Obs,
        Outcome, Pick, Source, T, Target, Trials,
    },
};

/// The group.
pub(super) const GROUP: GroupKey = GroupKey(2);

const HOSTS: [&str; 8] = [
    "one.example",
    "Two.example",
    "three.example",
    "four.example",
    "five.example",
    "six.example",
    "seven.example",
    "eight.example",
];

/// The engine with its one group.
pub(super) struct Warm {
    pub(super) engine: Engine,
    pub(super) view: Vec<Cand>,
    pub(super) now: T,
    /// Trials among the flows served so far.
    pub(super) trials: u64,
    flows: usize,
}

fn leaf(number: u128) -> NodeKey {
    NodeId(Uuid::from_u128(number + 1)).into()
}

/// The flow of a number: TCP over IPv4 to one of eight names.
pub(super) fn flow(number: usize) -> Ctx<'static> {
    Ctx {
        network: Network::Tcp,
        family: Some(Family::V4),
        target: Some(Target::Name(HOSTS[number % HOSTS.len()], 443)),
        dead_filtered: 0,
        joins: None,
    }
}

/// What is seen of a flow that works.
pub(super) fn events(at: T) -> [Obs; 4] {
    let tx = Obs::Tx { bytes: 400, at };
    let rx = Obs::Rx { bytes: 100_000, at };
    [Obs::Setup, tx, Obs::FirstResponse, rx]
}

impl Warm {
    /// A group of so many leaves that has served so many flows, twenty a second.
    pub(super) fn new(leaves: u128, flows: usize) -> Self {
        let mut engine = Engine::new(1);
        let members = GroupMembers {
            group: GROUP,
            leaves: (0..leaves).map(leaf).collect(),
            finals: Vec::new(),
        };
        let membership = Membership {
            generation: 1,
            groups: vec![members],
            dormant: Vec::new(),
        };
        engine.activate(T::START, &membership);
        let cand = |n| Cand {
            node: leaf(n),
            member: n as u32,
        };
        let mut warm = Self {
            engine,
            view: (0..leaves).map(cand).collect(),
            now: T::from_secs(1),
            trials: 0,
            flows: 0,
        };
        for _ in 0..flows {
            warm.serve(Outcome::Success);
        }
        warm
    }

    /// The choice for the next flow.
    pub(super) fn ask(&mut self, trials: Trials) -> Option<Pick> {
        self.flows += 1;
        let ctx = flow(self.flows);
        let mode = Mode::Apply(trials);
        self.engine.rank(self.now, GROUP, &ctx, &self.view, mode)
    }

    /// The next flow, to its end.
    pub(super) fn serve(&mut self, outcome: Outcome) {
        if let Some(pick) = self.ask(Trials::Allowed) {
            self.trials += u64::from(pick.trial);
            if let Some(attempt) = pick.attempt {
                self.run(attempt, outcome);
            }
        }
        self.now = self.now.plus_nanos(50_000_000);
    }

    fn run(&mut self, attempt: AttemptId, outcome: Outcome) {
        let (engine, now) = (&mut self.engine, self.now);
        let Ok(work) = engine.begin(now, &attempt) else {
            return;
        };
        let reporter = engine.start(now, work, Source::Traffic);
        if outcome == Outcome::Success {
            for event in events(now) {
                engine.observe(now, reporter, event);
            }
        }
        engine.finish(now, reporter, outcome);
    }
}
