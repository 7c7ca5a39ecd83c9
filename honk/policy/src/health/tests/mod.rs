//! A world of nodes that answer, fail or stay silent, on a clock that jumps from event to event.

mod groups;
mod nodes;
mod storms;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    Condition, Effects, Event, GroupFacts, Monitor, NodeFacts, Outcome, Probe, ProbeId, Selection,
    Setup, Shift, Subject, Transition, View,
};
use crate::{
    id::{Domain, Family, GroupId, MemberId, NodeId, Uuid},
    time::Moment,
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const INTERVAL: Duration = Duration::from_secs(30);
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(n))
}

pub(super) fn group(n: u128) -> GroupId {
    GroupId(Uuid::from_u128(1000 + n))
}

/// An automatic group over the TCP state of some nodes.
pub(super) fn automatic(n: u128, nodes: &[u128]) -> GroupFacts {
    GroupFacts {
        id: group(n),
        tcp: nodes.iter().map(|n| node(*n)).collect(),
        udp: Vec::new(),
        members: Vec::new(),
        check_url: None,
        automatic: true,
        interval: INTERVAL,
        idle: None,
        passive: true,
    }
}

pub(super) fn setup(groups: Vec<GroupFacts>) -> Setup {
    let mut nodes = BTreeSet::new();
    for group in &groups {
        nodes.extend(group.tcp.iter().chain(&group.udp).copied());
        for member in &group.members {
            if let MemberId::Node(node) = member {
                nodes.insert(*node);
            }
        }
    }
    let facts = |id| NodeFacts {
        id,
        families: vec![Family::V4],
    };
    Setup {
        nodes: nodes.into_iter().map(facts).collect(),
        groups,
        parallel: 10,
    }
}

/// What a node does with a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Answers after so many milliseconds.
    Answer(u64),
    /// Refuses at once.
    Refuse,
    /// Nothing, until the deadline.
    Silence,
}

pub(super) struct World {
    pub(super) monitor: Monitor,
    pub(super) now: Moment,
    pub(super) does: HashMap<NodeId, Does>,
    /// Probes under way with their end.
    running: BTreeMap<(Moment, ProbeId), Probe>,
    /// Begin of every probe.
    pub(super) started: Vec<(Moment, Probe)>,
    pub(super) transitions: Vec<(Moment, Transition)>,
    pub(super) tested: Vec<(Moment, GroupId)>,
    pub(super) peak: usize,
}

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        Self::seeded(7, setup)
    }

    pub(super) fn seeded(seed: u64, setup: Setup) -> Self {
        let mut world = Self {
            monitor: Monitor::new(seed),
            now: Moment::START,
            does: HashMap::new(),
            running: BTreeMap::new(),
            started: Vec::new(),
            transitions: Vec::new(),
            tested: Vec::new(),
            peak: 0,
        };
        world.configure(setup);
        world
    }

    pub(super) fn configure(&mut self, setup: Setup) {
        self.running.clear();
        let mut out = Effects::default();
        self.monitor.configure(setup, self.now, &mut out);
        self.act(out);
    }

    /// A world without anybody new in it.
    pub(super) fn settled(setup: Setup) -> Self {
        let mut world = Self::new(setup);
        world.run(MINUTE * 2);
        world.started.clear();
        world
    }

    fn act(&mut self, out: Effects) {
        for probe in out.start {
            let does = match probe.subject {
                Subject::Node { node, .. } => self.does.get(&node),
                Subject::Member {
                    member: MemberId::Node(node),
                    ..
                } => self.does.get(&node),
                Subject::Member { .. } => None,
            };
            let end = match does.copied().unwrap_or(Does::Answer(50)) {
                Does::Answer(ms) => Duration::from_millis(ms),
                Does::Refuse => Duration::from_millis(1),
                Does::Silence => TIMEOUT,
            };
            self.running.insert((self.now + end, probe.id), probe);
            self.started.push((self.now, probe));
        }
        self.peak = self.peak.max(self.running.len());
        let now = self.now;
        self.transitions
            .extend(out.transitions.into_iter().map(|t| (now, t)));
        self.tested.extend(out.tested.into_iter().map(|g| (now, g)));
    }

    pub(super) fn hear(&mut self, event: Event) {
        let mut out = Effects::default();
        self.monitor.handle(event, self.now, &mut out);
        self.act(out);
    }

    pub(super) fn test(&mut self, n: u128) -> super::TestStart {
        let mut out = Effects::default();
        let start = self.monitor.test_group(group(n), self.now, &mut out);
        self.act(out);
        start
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let outcome = self
                .running
                .first_key_value()
                .map(|(&(at, id), &p)| (at, id, p));
            let due = self.monitor.next_deadline();
            let next = match (outcome, due) {
                (Some((at, ..)), Some(due)) => at.min(due),
                (Some((at, ..)), None) => at,
                (None, Some(due)) => due,
                (None, None) => break,
            };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            if let Some((at, id, probe)) = outcome
                && at <= self.now
            {
                self.running.remove(&(at, id));
                let outcome = self.outcome(&probe);
                self.hear(Event::Probed { probe: id, outcome });
            } else {
                let mut out = Effects::default();
                self.monitor.tick(self.now, &mut out);
                self.act(out);
            }
        }
        self.now = end;
    }

    fn outcome(&self, probe: &Probe) -> Outcome {
        let node = match probe.subject {
            Subject::Node { node, .. } => node,
            Subject::Member {
                member: MemberId::Node(node),
                ..
            } => node,
            Subject::Member { .. } => return Outcome::Answer(Duration::from_millis(50)),
        };
        match self.does.get(&node).copied().unwrap_or(Does::Answer(50)) {
            Does::Answer(ms) => Outcome::Answer(Duration::from_millis(ms)),
            Does::Refuse | Does::Silence => Outcome::Failure,
        }
    }

    pub(super) fn select(&mut self, n: u128, tcp: u128, udp: Option<u128>) {
        self.monitor.selected(&[Selection {
            group: group(n),
            tcp: Some(node(tcp)),
            udp: udp.map(node),
            unseen: false,
        }]);
    }

    pub(super) fn flow(&mut self, n: u128) {
        self.dialed(n, 20);
        self.hear(Event::FirstByte { node: node(n) });
    }

    pub(super) fn dialed(&mut self, n: u128, ms: u64) {
        self.hear(Event::Dialed {
            node: node(n),
            family: Family::V4,
            took: Some(Duration::from_millis(ms)),
        });
    }

    pub(super) fn dial_failed(&mut self, n: u128) {
        self.hear(Event::DialFailed {
            node: node(n),
            family: Family::V4,
        });
    }

    pub(super) fn view(&self) -> View {
        self.monitor.view()
    }

    pub(super) fn state(&self, n: u128) -> Option<Condition> {
        self.view().node(node(n), Domain::Tcp, Family::V4)
    }

    pub(super) fn alive(&self, n: u128) -> bool {
        self.state(n).is_none_or(|s| s.alive)
    }

    /// Probes of a node that began.
    pub(super) fn probes(&self, n: u128) -> usize {
        let of = |(_, probe): &&(Moment, Probe)| match probe.subject {
            Subject::Node { node: own, .. } => own == node(n),
            Subject::Member { member, .. } => member == MemberId::Node(node(n)),
        };
        self.started.iter().filter(of).count()
    }
}

#[test]
fn the_same_events_have_the_same_effects() {
    let run = |seed| {
        let nodes: Vec<u128> = (0..40).collect();
        let mut world = World::seeded(seed, setup(vec![automatic(1, &nodes)]));
        world.does.insert(node(3), Does::Silence);
        world.does.insert(node(4), Does::Refuse);
        world.run(MINUTE * 10);
        world.hear(Event::NetworkChanged);
        world.run(MINUTE * 10);
        (world.started, world.transitions)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0, "the seed decides about pauses");
}

#[test]
fn a_check_url_of_a_group_judges_its_members_for_that_group_only() {
    let url = GroupFacts {
        tcp: Vec::new(),
        members: vec![MemberId::Node(node(1)), MemberId::Node(node(2))],
        check_url: Some(Arc::from("http://check.test/")),
        ..automatic(1, &[])
    };
    let mut world = World::settled(setup(vec![url, automatic(2, &[1, 2])]));
    let member = |world: &World, n| {
        let view = world.view();
        view.member(group(1), MemberId::Node(node(n)), Family::V4)
    };
    assert!(member(&world, 1).unwrap().alive);
    // Only the probe of the URL fails: the node's own state stays.
    let mut failed = 0;
    while failed < 3 {
        world.run(SECOND);
        let url = |p: &Probe| matches!(p.subject, Subject::Member { member, .. } if member == MemberId::Node(node(1)));
        let ends: Vec<_> = world
            .running
            .iter()
            .filter(|(_, p)| url(p))
            .map(|(k, _)| *k)
            .collect();
        for key in ends {
            world.running.remove(&key);
            let (probe, outcome) = (key.1, Outcome::Failure);
            world.hear(Event::Probed { probe, outcome });
            failed += 1;
        }
        if failed == 0 {
            world.does.insert(node(1), Does::Silence);
        }
    }
    assert!(!member(&world, 1).unwrap().alive);
    assert!(member(&world, 2).unwrap().alive);
    assert!(world.alive(1), "the group without the URL still has it");
}
