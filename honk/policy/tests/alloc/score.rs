//! Ranking, observing and ending flows of a Score group allocate nothing (S-401).

use std::hint::black_box;

use honk_policy::{
    id::{Family, Network, NodeId, Uuid},
    score::{
        Cand, Ctx, Engine, GroupKey, GroupMembers, Membership, Mode, NodeKey, Obs, Outcome, Source,
        T, Target, Trials,
    },
};

use crate::allocations;

const GROUP: GroupKey = GroupKey(2);

fn leaf(number: u128) -> NodeKey {
    NodeId(Uuid::from_u128(number + 1)).into()
}

struct Flows {
    engine: Engine,
    view: Vec<Cand>,
    now: T,
    count: u64,
    trials: u64,
}

impl Flows {
    fn new(leaves: u128) -> Self {
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
        Self {
            engine,
            view: (0..leaves).map(cand).collect(),
            now: T::from_secs(1),
            count: 0,
            trials: 0,
        }
    }

    /// A flow to one of sixteen targets; every fiftieth fails.
    fn one(&mut self) {
        const HOSTS: [&str; 4] = ["a.example", "B.example", "c.example", "d.example"];
        self.count += 1;
        let ctx = Ctx {
            network: Network::Tcp,
            family: Some(Family::V4),
            target: Some(Target::Name(
                HOSTS[self.count as usize % 4],
                (self.count / 4 % 4) as u16,
            )),
            dead_filtered: 0,
            joins: None,
        };
        let engine = &mut self.engine;
        let mode = Mode::Apply(Trials::Allowed);
        let Some(pick) = black_box(engine.rank(self.now, GROUP, &ctx, &self.view, mode)) else {
            return;
        };
        self.trials += u64::from(pick.trial);
        let work = pick.attempt.and_then(|a| engine.begin(self.now, &a).ok());
        let Some(work) = work else {
            return;
        };
        let reporter = engine.start(self.now, work, Source::Traffic);
        let outcome = if self.count.is_multiple_of(50) {
            Outcome::TargetTimeout
        } else {
            let mut at = self.now.plus_nanos(20_000_000);
            engine.observe(at, reporter, Obs::Setup);
            engine.observe(at, reporter, Obs::Tx { bytes: 400, at });
            at = at.plus_nanos(30_000_000);
            engine.observe(at, reporter, Obs::FirstResponse);
            engine.observe(at, reporter, Obs::Rx { bytes: 100_000, at });
            Outcome::Success
        };
        engine.finish(self.now.plus_nanos(60_000_000), reporter, outcome);
        self.now = self.now.plus_nanos(100_000_000);
    }
}

#[test]
fn a_warm_flow_allocates_nothing() {
    for leaves in [3, 10, 100] {
        let mut flows = Flows::new(leaves);
        // Long enough for every member of the pool to have been asked about every target.
        for _ in 0..2400 {
            flows.one();
        }
        let before = flows.trials;
        // Less than five minutes, so that the pool is not ranked anew.
        let used = allocations(|| {
            for _ in 0..500 {
                flows.one();
            }
        });
        assert_eq!(used, 0, "{leaves} leaves");
        assert!(flows.trials > before, "trials are among them");
    }
}
