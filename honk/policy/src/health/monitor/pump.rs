//! What is probed when: due times, group tests, and the cap on probes under way.

use super::{Monitor, Test, TestStart};
use crate::{
    health::{
        event::{Effects, Probe, ProbeId, Subject},
        limits::{ASLEEP, MAX_PROBES, SPREAD, TAKEN_UP},
        target::{Cause, State},
    },
    id::{Domain, GroupId, MemberId},
    time::Moment,
};

impl Monitor {
    /// Starts what is due. To be called at [`next_deadline`](Self::next_deadline), and may be
    /// at any time.
    pub fn tick(&mut self, now: Moment, out: &mut Effects) {
        let slept = self.queue.next().is_some_and(|due| now.since(due) > ASLEEP);
        if slept {
            self.spread(now);
        }
        if self.network_again.is_some_and(|at| at <= now) {
            self.recheck_network(now);
        }
        self.begin_tests(now);
        while let Some(at) = self.queue.pop(now) {
            self.targets[at].due = None;
            let cause = self.targets[at].next;
            if cause == Cause::Forced {
                self.targets[at].state = State::Waiting(cause);
                self.urgent.push_back(at);
            } else if self.wanted_now(at, now) {
                self.targets[at].state = State::Waiting(cause);
                self.line.push_back(at);
            } else {
                let pause = self.chance.about(self.targets[at].interval);
                self.rest(at, now + pause);
            }
        }
        self.fill(now, out);
    }

    /// When something is due next. While all places are taken, an outcome is what is awaited.
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.wanted.is_empty() {
            return Some(Moment::START);
        }
        let next = self.queue.next().into_iter();
        next.chain(self.network_again).min()
    }

    /// Tests all members of a group now and reports the end as an effect.
    pub fn test_group(&mut self, group: GroupId, now: Moment, out: &mut Effects) -> TestStart {
        let Some(at) = self.groups.iter().position(|g| g.facts.id == group) else {
            return TestStart::Nothing;
        };
        let start = self.begin_test(at, now);
        self.fill(now, out);
        start
    }

    /// Lets a group be tested as soon as its turn comes.
    pub(super) fn want_test(&mut self, group: usize) {
        if !self.wanted.contains(&group) {
            self.wanted.push_back(group);
        }
    }

    /// Begins tests that are wanted, some at a time.
    fn begin_tests(&mut self, now: Moment) {
        let mut taken = 0;
        while taken < TAKEN_UP
            && let Some(group) = self.wanted.pop_front()
        {
            taken += self.groups[group].targets.len();
            self.begin_test(group, now);
        }
    }

    fn begin_test(&mut self, at: usize, now: Moment) -> TestStart {
        if self.groups[at].test.is_some() {
            return TestStart::Absorbed;
        }
        let mut test = Test::default();
        for target in self.groups[at].targets.clone() {
            if !self.probeable(target) || self.targets[target].absent {
                continue;
            }
            test.pending.insert(target);
            match self.targets[target].state {
                State::Resting => {
                    self.unrest(target);
                    self.targets[target].state = State::Waiting(Cause::Forced);
                    test.waiting.push_back(target);
                }
                State::Waiting(_) => self.targets[target].state = State::Waiting(Cause::Forced),
                State::Running(_) => self.targets[target].state = State::Running(Cause::Forced),
            }
        }
        if test.pending.is_empty() {
            return TestStart::Nothing;
        }
        self.groups[at].test = Some(test);
        self.groups[at].active = now;
        TestStart::Started
    }

    /// Starts as many of those in line as there is room for.
    pub(super) fn fill(&mut self, now: Moment, out: &mut Effects) {
        while self.running.len() < MAX_PROBES {
            let next = self.urgent.pop_front();
            let next = next.or_else(|| self.next_of_tests());
            let Some(at) = next.or_else(|| self.line.pop_front()) else {
                return;
            };
            let State::Waiting(cause) = self.targets[at].state else {
                continue;
            };
            let id = ProbeId(self.next_probe);
            self.next_probe += 1;
            let target = &mut self.targets[at];
            target.state = State::Running(cause);
            target.next = Cause::Due;
            target.started = Some(now);
            self.running.insert(id, at);
            let subject = target.subject;
            out.start.push(Probe { id, subject });
        }
    }

    fn next_of_tests(&mut self) -> Option<usize> {
        let parallel = self.parallel;
        let tests = self.groups.iter_mut().filter_map(|g| g.test.as_mut());
        let mut free = tests.filter(|t| t.pending.len() - t.waiting.len() < parallel);
        free.find_map(|test| test.waiting.pop_front())
    }

    /// Puts a target back into the queue.
    pub(super) fn rest(&mut self, at: usize, due: Moment) {
        let target = &mut self.targets[at];
        target.state = State::Resting;
        target.due = Some(due);
        self.queue.put(due, at);
    }

    /// Takes a target out of the queue.
    fn unrest(&mut self, at: usize) {
        if let Some(due) = self.targets[at].due.take() {
            self.queue.take_out(due, at);
        }
    }

    /// Makes a resting target due at `due`, for a reason that counts.
    pub(super) fn hurry(&mut self, at: usize, due: Moment, cause: Cause) {
        if self.targets[at].state != State::Resting || !self.probeable(at) {
            return;
        }
        self.targets[at].next = cause;
        if self.targets[at].due.is_none_or(|old| due < old) {
            self.unrest(at);
            self.rest(at, due);
        }
    }

    /// Nothing was probed for a while: whatever became due meanwhile must not go off at once.
    /// What is in use goes first.
    fn spread(&mut self, now: Moment) {
        for at in self.queue.overdue(now) {
            if !self.is_selected(at) {
                let part = SPREAD.min(self.targets[at].interval);
                self.unrest(at);
                let due = now + self.chance.part(part);
                self.rest(at, due);
            }
        }
    }

    fn probeable(&self, at: usize) -> bool {
        let target = &self.targets[at];
        let node = match target.subject {
            Subject::Node { node, .. } => Some(node),
            Subject::Member { member, .. } => match member {
                MemberId::Node(node) => Some(node),
                MemberId::Group(_) => None,
            },
        };
        target.is_probed() && !node.is_some_and(|node| self.disabled.contains(&node))
    }

    /// Whether some group needs a periodic probe now.
    fn wanted_now(&mut self, at: usize, now: Moment) -> bool {
        if !self.probeable(at) {
            return false;
        }
        let dead = !self.targets[at].cell.alive();
        let mut skipped = Vec::new();
        for &group in &self.targets[at].groups {
            if !self.awake(group, now) {
                continue;
            }
            if dead || !self.proven(group, now) {
                return true;
            }
            skipped.push(group);
        }
        for group in skipped {
            self.groups[group].skips += 1;
        }
        false
    }

    /// Whether a group is in use.
    pub(super) fn awake(&self, group: usize, now: Moment) -> bool {
        let group = &self.groups[group];
        let unseen = group.selection.is_some_and(|s| s.unseen);
        let idle = group.facts.idle;
        unseen || idle.is_none_or(|idle| now.since(group.active) < idle)
    }

    /// Whether flows prove lately that what the group selects works.
    fn proven(&self, group: usize, now: Moment) -> bool {
        let group = &self.groups[group];
        let (true, Some(selection)) = (group.facts.passive, group.selection) else {
            return false;
        };
        let Some(leaf) = selection.tcp else {
            return false;
        };
        let same = selection.udp.is_none_or(|udp| udp == leaf);
        let node = self.nodes.get(&leaf);
        same && node.is_some_and(|node| {
            let fresh = |at| now.since(at) < group.facts.interval;
            node.strikes.count() == 0 && node.proof.is_some_and(fresh)
        })
    }

    /// Whether some automatic group selects it.
    pub(super) fn is_selected(&self, at: usize) -> bool {
        let target = &self.targets[at];
        target.groups.iter().any(|&group| {
            let group = &self.groups[group];
            let Some(selection) = group.selection.filter(|_| group.facts.automatic) else {
                return false;
            };
            let (leaf, tcp) = match target.subject {
                Subject::Node { node, domain, .. } => (node, domain == Domain::Tcp),
                Subject::Member { member, .. } => match member {
                    MemberId::Node(node) => (node, true),
                    MemberId::Group(_) => return false,
                },
            };
            let selected = if tcp { selection.tcp } else { selection.udp };
            selected == Some(leaf)
        })
    }
}
