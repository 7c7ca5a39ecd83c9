//! The engine: takes one event at a time and says what to do.
//!
//! Owned by one task. Targets, nodes and groups live in vectors in the order of the
//! configuration, so that the same events always have the same effects.

mod hear;
mod pump;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use super::{
    event::{Effects, ProbeId, Subject},
    history::Sample,
    limits::{MAX_TARGETS, SPREAD},
    node::NodeState,
    schedule::{Chance, Queue},
    setup::{GroupFacts, Selection, Setup},
    target::{Cause, State, Target},
    view::View,
};
use crate::{
    id::{Domain, GroupId, MemberId, NodeId},
    time::Moment,
};

/// Whether a group test was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestStart {
    /// It runs.
    Started,
    /// One runs already and stands for this one, too.
    Absorbed,
    /// There is no such group, or nothing in it can be probed.
    Nothing,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Things probed.
    pub targets: usize,
    /// Things beyond the cap, which are not.
    pub untracked: usize,
    /// Probes under way.
    pub running: usize,
    /// Outcomes of probes that nobody waits for any more.
    pub late: u64,
}

/// Whose state may be another one than in the last published view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Nodes.
    pub nodes: BTreeSet<NodeId>,
    /// Members under the check URL of their group.
    pub members: BTreeSet<(GroupId, MemberId)>,
}

/// A group with its test, its selection and its last use.
#[derive(Debug)]
struct GroupState {
    facts: GroupFacts,
    targets: Vec<usize>,
    selection: Option<Selection>,
    active: Moment,
    test: Option<Test>,
    skips: u64,
}

/// A group test under way.
#[derive(Debug, Default)]
struct Test {
    /// Targets without an outcome.
    pending: BTreeSet<usize>,
    /// Those of them that have not been started.
    waiting: VecDeque<usize>,
}

/// The health engine.
#[derive(Debug)]
pub struct Monitor {
    targets: Vec<Target>,
    index: HashMap<Subject, usize>,
    nodes: HashMap<NodeId, NodeState>,
    groups: Vec<GroupState>,
    disabled: BTreeSet<NodeId>,
    queue: Queue,
    urgent: VecDeque<usize>,
    line: VecDeque<usize>,
    running: BTreeMap<ProbeId, usize>,
    /// Groups whose test is to begin, by index.
    wanted: VecDeque<usize>,
    next_probe: u64,
    chance: Chance,
    /// Until when further changes of the network wait.
    network_quiet: Option<Moment>,
    /// When they will be acted on.
    network_again: Option<Moment>,
    parallel: usize,
    touched: Touched,
    untracked: usize,
    late: u64,
}

impl Monitor {
    /// An engine without configuration. The seed decides about pauses.
    pub fn new(seed: u64) -> Self {
        Self {
            targets: Vec::new(),
            index: HashMap::new(),
            nodes: HashMap::new(),
            groups: Vec::new(),
            disabled: BTreeSet::new(),
            queue: Queue::default(),
            urgent: VecDeque::new(),
            line: VecDeque::new(),
            running: BTreeMap::new(),
            wanted: VecDeque::new(),
            next_probe: 0,
            chance: Chance::new(seed),
            network_quiet: None,
            network_again: None,
            parallel: 1,
            touched: Touched::default(),
            untracked: 0,
            late: 0,
        }
    }

    /// Takes over a configuration. What is known of nodes, and of groups with the same check
    /// URL, stays. Probes under way belong to the configuration before: the caller ends them.
    /// New automatic groups are tested at once.
    pub fn configure(&mut self, setup: Setup, now: Moment, out: &mut Effects) {
        let before = std::mem::replace(self, Self::new(0));
        self.carry(&before);
        self.parallel = setup.parallel.max(1);
        let mut known = before.nodes;
        for facts in &setup.nodes {
            let state = known.remove(&facts.id);
            let mut state = state.unwrap_or_else(|| NodeState::new(now));
            state.groups.clear();
            self.nodes.insert(facts.id, state);
        }
        let families: HashMap<NodeId, _> =
            setup.nodes.iter().map(|n| (n.id, &n.families)).collect();
        for (at, facts) in setup.groups.iter().enumerate() {
            let old = before.groups.iter().find(|g| g.facts.id == facts.id);
            let kept = old.filter(|g| g.facts.check_url == facts.check_url);
            if facts.automatic && kept.is_none() {
                self.wanted.push_back(at);
            }
            let wanted = wanted(facts, |node| families.get(&node).map_or(&[][..], |f| f));
            let mut targets = Vec::new();
            for subject in wanted {
                let old = before.index.get(&subject).map(|&i| &before.targets[i]);
                let old = old.filter(|_| kept.is_some() || matches!(subject, Subject::Node { .. }));
                targets.extend(self.adopt(subject, old, at, facts.interval, now));
            }
            for node in facts.tcp.iter().chain(&facts.udp) {
                self.lead(*node, at);
            }
            for member in &facts.members {
                if let MemberId::Node(node) = member {
                    self.lead(*node, at);
                }
            }
            self.groups.push(GroupState {
                facts: facts.clone(),
                targets,
                selection: old.and_then(|g| g.selection),
                active: old.map_or(now, |g| g.active),
                test: None,
                skips: old.map_or(0, |g| g.skips),
            });
        }
        self.tick(now, out);
    }

    fn carry(&mut self, before: &Self) {
        self.next_probe = before.next_probe;
        self.chance = before.chance.clone();
        self.disabled = before.disabled.clone();
        self.network_quiet = before.network_quiet;
        self.network_again = before.network_again;
        self.late = before.late;
    }

    /// The index of a target, made or taken over if it is new.
    fn adopt(
        &mut self,
        subject: Subject,
        old: Option<&Target>,
        group: usize,
        interval: Duration,
        now: Moment,
    ) -> Option<usize> {
        if let Some(&at) = self.index.get(&subject) {
            let target = self.targets.get_mut(at)?;
            if !target.groups.contains(&group) {
                target.groups.push(group);
            }
            target.interval = target.interval.min(interval);
            return Some(at);
        }
        if self.targets.len() == MAX_TARGETS {
            self.untracked += 1;
            return None;
        }
        let at = self.targets.len();
        let spread = now + self.chance.part(interval.min(SPREAD));
        let due = old.and_then(|t| t.due).unwrap_or(spread);
        let mut target = Target {
            subject,
            cell: old.map(|t| t.cell.clone()).unwrap_or_default(),
            groups: vec![group],
            interval,
            due: None,
            state: State::Resting,
            next: Cause::Due,
            started: old.and_then(|t| t.started),
            absent: old.is_some_and(|t| t.absent),
        };
        if target.is_probed() {
            target.due = Some(due);
            self.queue.put(due, at);
        }
        self.index.insert(subject, at);
        self.targets.push(target);
        Some(at)
    }

    fn lead(&mut self, node: NodeId, group: usize) {
        if let Some(state) = self.nodes.get_mut(&node)
            && !state.groups.contains(&group)
        {
            state.groups.push(group);
        }
    }

    /// Tells which nodes are switched off: they are not probed and may not be selected.
    pub fn disable(&mut self, nodes: BTreeSet<NodeId>) {
        let differ = nodes.symmetric_difference(&self.disabled);
        self.touched.nodes.extend(differ.copied());
        self.disabled = nodes;
    }

    /// Tells what the groups select; to be called after every change of it.
    pub fn selected(&mut self, selections: &[Selection]) {
        for selection in selections {
            let group = self.groups.iter_mut();
            for group in group.filter(|g| g.facts.id == selection.group) {
                group.selection = Some(*selection);
            }
        }
    }

    /// A group serves a flow.
    pub fn used(&mut self, group: GroupId, now: Moment) {
        let at = self.groups.iter().position(|g| g.facts.id == group);
        if let Some(at) = at {
            self.use_group(at, now);
        }
    }

    /// What readers see from now on, with what may differ from what they saw before.
    pub fn publish(&mut self) -> (View, Touched) {
        (self.view(), std::mem::take(&mut self.touched))
    }

    /// What readers see.
    pub fn view(&self) -> View {
        View::of(&self.targets, &self.nodes, &self.disabled)
    }

    /// Samples of a node, the oldest first.
    pub fn history(&self, node: NodeId) -> Vec<Sample> {
        let node = self.nodes.get(&node);
        node.map_or_else(Vec::new, |n| n.history.iter().copied().collect())
    }

    /// Cycles of a group that traffic made unnecessary.
    pub fn skips(&self) -> impl Iterator<Item = (GroupId, u64)> {
        self.groups.iter().map(|g| (g.facts.id, g.skips))
    }

    /// Numbers for metrics.
    pub fn counts(&self) -> Counts {
        Counts {
            targets: self.targets.len(),
            untracked: self.untracked,
            running: self.running.len(),
            late: self.late,
        }
    }
}

/// What a group reads.
fn wanted<'a>(
    facts: &GroupFacts,
    families: impl Fn(NodeId) -> &'a [crate::id::Family],
) -> Vec<Subject> {
    let mut wanted = Vec::new();
    for &node in &facts.tcp {
        for &family in families(node) {
            let domain = Domain::Tcp;
            wanted.push(Subject::Node {
                node,
                domain,
                family,
            });
        }
    }
    for &node in &facts.udp {
        for &family in families(node) {
            for domain in [Domain::DnsUdp, Domain::DataUdp] {
                wanted.push(Subject::Node {
                    node,
                    domain,
                    family,
                });
            }
        }
    }
    let group = facts.id;
    for &member in &facts.members {
        let own = match member {
            MemberId::Node(node) => families(node),
            // Its leaf changes, and with it the families.
            MemberId::Group(_) => &crate::id::Family::ALL,
        };
        for &family in own {
            wanted.push(Subject::Member {
                group,
                member,
                family,
            });
        }
    }
    wanted
}
