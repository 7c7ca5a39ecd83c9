//! Plays one script: a queue of what comes next, the engines, and nothing else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use honk_policy::config::Policy;
use honk_policy::group::{Change, GroupTable, Scope};
use honk_policy::health::{
    Effects, Event, GroupFacts, Monitor, NodeFacts, Outcome, ProbeId, Selection, Setup, Subject,
    Urgency,
};
use honk_policy::id::{Family, MemberId, Network, NodeId, Uuid};
use honk_policy::time::Moment;

use super::history::{Fact, History};
use super::world::{Act, Behaviour, Script, Sim, World};

/// A probe without an answer ends after this.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// A dial without an answer ends after this.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// What is refused is refused after this.
const REFUSAL: Duration = Duration::from_millis(1);
/// Latencies that moved are published this much later, all at once.
const SOON: Duration = Duration::from_millis(200);

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Probed(u64, Option<Duration>),
    Dialed(u64),
    Act(usize),
    Flows,
    Publish,
    Tick,
}

/// A flow whose dial is under way.
struct Dial {
    node: NodeId,
    took: Option<Duration>,
}

pub(super) struct Player<'a> {
    world: &'a World,
    script: &'a Script,
    now: Duration,
    next: BinaryHeap<Reverse<(Duration, u64, Next)>>,
    /// Orders what happens at one moment.
    number: u64,
    monitor: Monitor,
    groups: GroupTable,
    new_id: u128,
    subjects: BTreeMap<ProbeId, Subject>,
    dials: BTreeMap<u64, Dial>,
    chance: u64,
    publishing: bool,
    /// When the next look at the clock is planned.
    tick: Option<Duration>,
    /// Nothing happens before.
    asleep: Duration,
    history: History,
}

impl<'a> Player<'a> {
    pub(super) fn new(world: &'a World, script: &'a Script) -> Self {
        let mut new_id = 1 << 96;
        let (groups, _) = build(world, None, &mut new_id);
        Self {
            world,
            script,
            now: Duration::ZERO,
            next: BinaryHeap::new(),
            number: 0,
            monitor: Monitor::new(script.seed),
            groups,
            new_id,
            subjects: BTreeMap::new(),
            dials: BTreeMap::new(),
            chance: script.seed | 1,
            publishing: false,
            tick: None,
            asleep: Duration::ZERO,
            history: History::default(),
        }
    }

    pub(super) fn play(mut self) -> History {
        for (at, (when, _)) in self.script.acts.iter().enumerate() {
            self.later(*when, Next::Act(at));
        }
        if self.script.flows.is_some() {
            self.later(Duration::ZERO, Next::Flows);
        }
        self.configure();
        while let Some(Reverse((at, _, next))) = self.next.pop() {
            if at.max(self.asleep) > self.script.end {
                break;
            }
            self.now = at.max(self.asleep);
            self.take(next);
        }
        self.history
    }

    fn later(&mut self, at: Duration, next: Next) {
        self.number += 1;
        self.next.push(Reverse((at, self.number, next)));
    }

    fn moment(&self) -> Moment {
        Moment::after_start(self.now)
    }

    fn take(&mut self, next: Next) {
        match next {
            Next::Probed(id, took) => {
                self.subjects.remove(&ProbeId(id));
                let outcome = took.map_or(Outcome::Failure, Outcome::Answer);
                self.tell(Event::Probed {
                    probe: ProbeId(id),
                    outcome,
                });
            }
            Next::Dialed(id) => {
                let Some(Dial { node, took }) = self.dials.remove(&id) else {
                    return;
                };
                let family = Family::V4;
                match took {
                    Some(_) => {
                        self.tell(Event::Dialed { node, family, took });
                        self.tell(Event::FirstByte { node });
                    }
                    None => self.tell(Event::DialFailed { node, family }),
                }
            }
            Next::Act(at) => self.act(at),
            Next::Flows => {
                if let Some(period) = self.script.flows {
                    self.flows();
                    self.later(self.now + period, Next::Flows);
                }
            }
            Next::Publish => {
                self.publishing = false;
                self.publish();
            }
            Next::Tick => {
                self.tick = None;
                let mut effects = Effects::default();
                self.monitor.tick(self.moment(), &mut effects);
                self.follow(effects);
            }
        }
    }

    fn tell(&mut self, event: Event) {
        let mut effects = Effects::default();
        self.monitor.handle(event, self.moment(), &mut effects);
        self.follow(effects);
    }

    fn follow(&mut self, effects: Effects) {
        for probe in effects.start {
            self.history.probes.push(self.now);
            self.subjects.insert(probe.id, probe.subject);
            let running = self.subjects.len();
            self.history.most_probes = self.history.most_probes.max(running);
            let node = self.node_of(probe.subject);
            let (took, ends) = match node.map(|node| self.answers(node)) {
                Some(Ok(took)) => (Some(took), took.min(PROBE_TIMEOUT)),
                Some(Err(after)) => (None, after.unwrap_or(PROBE_TIMEOUT)),
                None => (None, REFUSAL),
            };
            self.later(self.now + ends, Next::Probed(probe.id.0, took));
        }
        match effects.urgency {
            Urgency::Now => self.publish(),
            Urgency::Soon if !self.publishing => {
                self.publishing = true;
                self.later(self.now + SOON, Next::Publish);
            }
            Urgency::Soon | Urgency::None => {}
        }
        if let Some(due) = self.monitor.next_deadline() {
            let at = self.now + due.since(self.moment());
            if self.tick.is_none_or(|tick| at < tick) {
                self.tick = Some(at);
                self.later(at, Next::Tick);
            }
        }
    }

    /// The node behind what is probed: of a nested group, its leaf.
    fn node_of(&self, subject: Subject) -> Option<NodeId> {
        match subject {
            Subject::Node { node, .. } => Some(node),
            Subject::Member { member, .. } => match member {
                MemberId::Node(node) => Some(node),
                MemberId::Group(group) => self.groups.leads(group)?.tcp,
            },
        }
    }

    /// When the node answers, or after which time nothing is to be expected any more.
    fn answers(&mut self, node: NodeId) -> Result<Duration, Option<Duration>> {
        match self.world.behaviour(node, self.now) {
            Behaviour::Up(ms) => Ok(Duration::from_millis(ms)),
            Behaviour::Lossy(ms, lost) => {
                if self.roll() % 100 < lost {
                    Err(None)
                } else {
                    Ok(Duration::from_millis(ms))
                }
            }
            Behaviour::Refuses => Err(Some(REFUSAL)),
            Behaviour::Blackhole => Err(None),
        }
    }

    /// xorshift64: enough for losses.
    fn roll(&mut self) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance
    }

    fn flows(&mut self) {
        let slots: Vec<_> = self
            .groups
            .groups()
            .map(|g| (g.id, g.slot, g.name.to_string()))
            .collect();
        for (id, slot, group) in slots {
            let picked = self.groups.apply(slot, Network::Tcp, Family::V4);
            let leaf = picked.ok().map(|s| s.leaf.id);
            self.monitor.used(id, self.moment());
            let Some(node) = leaf else {
                let fact = Fact::Flow {
                    group,
                    leaf: None,
                    ok: false,
                };
                self.history.facts.push((self.now, fact));
                continue;
            };
            let name = self.world.name(node).to_owned();
            let (took, ends) = match (name.as_str(), self.answers(node)) {
                ("direct", _) => (Some(REFUSAL), REFUSAL),
                (_, Ok(took)) if took < DIAL_TIMEOUT => (Some(took), took),
                (_, Ok(_)) => (None, DIAL_TIMEOUT),
                (_, Err(after)) => (None, after.unwrap_or(DIAL_TIMEOUT)),
            };
            let ok = took.is_some();
            let fact = Fact::Flow {
                group,
                leaf: Some(name.clone()),
                ok,
            };
            self.history.facts.push((self.now, fact));
            if name != "direct" {
                self.number += 1;
                let number = self.number;
                self.dials.insert(number, Dial { node, took });
                self.later(self.now + ends, Next::Dialed(number));
            }
        }
    }

    fn publish(&mut self) {
        let (view, touched) = self.monitor.publish();
        let millis = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        let update = self.groups.judged(Arc::new(view), &touched, millis);
        self.groups = update.table;
        self.note(&update.changes);
    }

    fn note(&mut self, changes: &[Change]) {
        for change in changes
            .iter()
            .filter(|c| c.concerns(Network::Tcp, Family::V4))
        {
            let group = change.name.to_string();
            let leaf = self.groups.leads(change.group).and_then(|l| l.tcp);
            let leaf = leaf.map_or("-", |leaf| self.world.name(leaf)).to_owned();
            let cause = change.cause.name();
            if change.interrupt {
                let closed = Fact::Closed {
                    group: group.clone(),
                };
                self.history.facts.push((self.now, closed));
            }
            self.history
                .facts
                .push((self.now, Fact::Switched { group, cause, leaf }));
        }
        self.tell_selections();
    }

    fn tell_selections(&mut self) {
        let selection = |group: honk_policy::id::GroupId| {
            let leads = self.groups.leads(group).unwrap_or_default();
            Selection {
                group,
                tcp: leads.tcp,
                udp: leads.udp,
                unseen: leads.unseen,
            }
        };
        let selections: Vec<_> = self.groups.groups().map(|g| selection(g.id)).collect();
        self.monitor.selected(&selections);
    }

    fn act(&mut self, at: usize) {
        let named = |table: &GroupTable, name: &str| table.group_named(name).map(|g| g.id);
        match self.script.acts[at].1.clone() {
            Act::Choose(group, member) => {
                let Some(found) = self.groups.group_named(group) else {
                    return;
                };
                let Some(member) = found.member_named(member).map(|m| m.id()) else {
                    return;
                };
                let chosen = self.groups.choose(found.id, Scope::Both, member, 0);
                if let Ok(choice) = chosen {
                    self.groups = choice.table;
                    self.note(&choice.changes);
                }
            }
            Act::Unchoose(group) => {
                let Some(id) = named(&self.groups, group) else {
                    return;
                };
                if let Ok(choice) = self.groups.unchoose(id, Scope::Both, 0) {
                    self.groups = choice.table;
                    self.note(&choice.changes);
                }
            }
            Act::Reload => {
                let before = self.groups.clone();
                let (table, _) = build(self.world, Some(&before), &mut self.new_id);
                self.groups = table.unpinned();
                let changes = before.changes(&self.groups);
                self.note(&changes);
                self.configure();
            }
            Act::NetworkChanged => self.tell(Event::NetworkChanged),
            Act::Sleep(seconds) => self.asleep = self.now + Sim::s(seconds),
        }
    }

    /// Tells the health engine what there is to probe.
    fn configure(&mut self) {
        let nodes = self.groups.nodes().iter().map(|node| NodeFacts {
            id: node.id,
            families: vec![Family::V4],
        });
        let groups = self.groups.groups().map(|group| {
            let reach = self.groups.reach(group.id).unwrap_or_default();
            let url = group.def.check_url.as_deref();
            let members = group
                .members
                .iter()
                .map(|m| m.id())
                .filter(|_| url.is_some());
            let timing = group.def.timing(self.script.check);
            GroupFacts {
                id: group.id,
                tcp: reach.tcp.into_iter().collect(),
                udp: reach.udp.into_iter().collect(),
                members: members.collect(),
                check_url: url.map(Into::into),
                automatic: group.def.policy != Policy::Selector,
                interval: timing.interval,
                idle: timing.idle,
                passive: true,
            }
        });
        let setup = Setup {
            nodes: nodes.collect(),
            groups: groups.collect(),
            parallel: 10,
        };
        self.subjects.clear();
        let mut effects = Effects::default();
        self.monitor.configure(setup, self.moment(), &mut effects);
        self.tell_selections();
        self.follow(effects);
    }
}

fn build(
    world: &World,
    previous: Option<&GroupTable>,
    new_id: &mut u128,
) -> (GroupTable, Vec<String>) {
    let (table, findings) = GroupTable::build(&world.config(), previous, &mut || {
        *new_id += 1;
        Uuid::from_u128(*new_id)
    });
    (table, findings.into_iter().map(|f| f.message).collect())
}
