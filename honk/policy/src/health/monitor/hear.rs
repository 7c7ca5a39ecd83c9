//! What events do.

use std::time::Duration;

use super::Monitor;
use crate::{
    health::{
        cell::{self, Weight},
        event::{Effects, Event, Outcome, ProbeId, Shift, Subject, Transition, Urgency},
        history::{Kind, Sample},
        limits::{ABSENT, DOUBTED_DEATH, GRACE, LINK_QUIET, SECOND, traffic_death},
        strikes::Verdict,
        target::{Cause, State},
    },
    id::{Domain, Family, MemberId, NodeId},
    time::Moment,
};

impl Monitor {
    /// Takes one event.
    pub fn handle(&mut self, event: Event, now: Moment, out: &mut Effects) {
        match event {
            Event::Probed { probe, outcome } => self.probed(probe, outcome, now, out),
            Event::Dialed { node, family, took } => {
                self.touch(node, now);
                self.traffic(node, Domain::Tcp, family, true, now, out);
                let Some(state) = self.nodes.get_mut(&node) else {
                    return;
                };
                if took.is_some() {
                    let (at, latency, kind) = (now, took, Kind::Traffic);
                    state.history.push(Sample { at, latency, kind });
                }
                let verdict = state.strikes.succeeded(took, now);
                self.judged(node, verdict, now, out);
            }
            Event::DialFailed { node, family } => {
                self.touch(node, now);
                self.traffic(node, Domain::Tcp, family, false, now, out);
                let Some(state) = self.nodes.get_mut(&node) else {
                    return;
                };
                let (at, latency, kind) = (now, None, Kind::Traffic);
                state.history.push(Sample { at, latency, kind });
                let verdict = state.strikes.failed(now);
                self.judged(node, verdict, now, out);
                self.recheck(node, now);
            }
            Event::FirstByte { node } => {
                self.touch(node, now);
                if let Some(state) = self.nodes.get_mut(&node) {
                    state.proof = Some(now);
                }
            }
            Event::Answered {
                node,
                family,
                domain,
            } => {
                self.touch(node, now);
                self.traffic(node, domain, family, true, now, out);
            }
            Event::Unanswered {
                node,
                family,
                domain,
            } => {
                self.touch(node, now);
                self.traffic(node, domain, family, false, now, out);
                self.recheck(node, now);
            }
            Event::NetworkChanged => self.network(now),
        }
        self.tick(now, out);
    }

    fn probed(&mut self, id: ProbeId, outcome: Outcome, now: Moment, out: &mut Effects) {
        let Some(at) = self.running.remove(&id) else {
            self.late += 1;
            return;
        };
        let cause = match self.targets[at].state {
            State::Running(cause) => cause,
            State::Resting | State::Waiting(_) => Cause::Due,
        };
        let weight = self.weight(at, cause, now);
        let selected = self.is_selected(at);
        let target = &mut self.targets[at];
        target.absent = outcome == Outcome::Absent;
        let shift = match outcome {
            Outcome::Answer(latency) => target.cell.probe_ok(latency, now),
            Outcome::Failure => target.cell.probe_failed(weight, now),
            Outcome::Absent | Outcome::Neutral => cell::Shift::None,
        };
        let pause = match outcome {
            Outcome::Absent => ABSENT,
            Outcome::Answer(_) | Outcome::Failure => target.cell.pause(target.interval, selected),
            Outcome::Neutral => target.interval,
        };
        let confirm = outcome == Outcome::Failure && selected && target.cell.alive();
        target.next = if confirm { Cause::Forced } else { Cause::Due };
        let subject = target.subject;
        let due = now
            + if confirm {
                pause
            } else {
                self.chance.about(pause)
            };
        self.rest(at, due);
        if let Subject::Node { node, domain, .. } = subject {
            self.sample(node, domain, outcome, now, out);
        }
        if outcome != Outcome::Neutral {
            self.touched(subject);
            out.publish(Urgency::Soon);
        }
        self.shifted(at, shift, selected, out);
        for group in self.targets[at].groups.clone() {
            let group = &mut self.groups[group];
            if let Some(test) = &mut group.test
                && test.pending.remove(&at)
                && test.pending.is_empty()
            {
                group.test = None;
                out.tested.push(group.facts.id);
            }
        }
    }

    /// Failures of a new node count only when somebody asked.
    fn weight(&self, at: usize, cause: Cause, now: Moment) -> Weight {
        let node = match self.targets[at].subject {
            Subject::Node { node, .. } => node,
            Subject::Member { member, .. } => match member {
                MemberId::Node(node) => node,
                MemberId::Group(_) => return Weight::Full,
            },
        };
        let new = self.is_new(node, now);
        if new && cause == Cause::Due {
            Weight::Grace
        } else {
            Weight::Full
        }
    }

    fn is_new(&self, node: NodeId, now: Moment) -> bool {
        let node = self.nodes.get(&node);
        node.is_some_and(|node| now.since(node.registered) < GRACE)
    }

    fn sample(
        &mut self,
        node: NodeId,
        domain: Domain,
        outcome: Outcome,
        now: Moment,
        out: &mut Effects,
    ) {
        let latency = match outcome {
            Outcome::Answer(latency) => Some(latency),
            Outcome::Failure => None,
            Outcome::Absent | Outcome::Neutral => return,
        };
        let (Some(state), Domain::Tcp) = (self.nodes.get_mut(&node), domain) else {
            return;
        };
        let (at, kind) = (now, Kind::Probe);
        state.history.push(Sample { at, latency, kind });
        if latency.is_some() {
            let verdict = state.strikes.probed(now);
            self.judged(node, verdict, now, out);
        }
    }

    /// Evidence of real traffic about one domain.
    fn traffic(
        &mut self,
        node: NodeId,
        domain: Domain,
        family: Family,
        worked: bool,
        now: Moment,
        out: &mut Effects,
    ) {
        let subject = Subject::Node {
            node,
            domain,
            family,
        };
        let Some(&at) = self.index.get(&subject) else {
            return;
        };
        let weight = match self.is_new(node, now) {
            true => Weight::Grace,
            false => Weight::Full,
        };
        let selected = self.is_selected(at);
        let death = match domain {
            Domain::DataUdp if self.is_dead(node, Domain::DnsUdp, family) => DOUBTED_DEATH,
            _ => traffic_death(domain),
        };
        let cell = &mut self.targets[at].cell;
        let shift = if worked {
            cell.traffic_ok(now)
        } else {
            cell.traffic_failed(death, weight, now)
        };
        if shift == cell::Shift::Died {
            let pause = cell.pause(Duration::ZERO, false);
            self.hurry(at, now + pause, Cause::Due);
        }
        self.shifted(at, shift, selected, out);
    }

    /// Whether one domain of a node is known to be dead.
    fn is_dead(&self, node: NodeId, domain: Domain, family: Family) -> bool {
        let subject = Subject::Node {
            node,
            domain,
            family,
        };
        let at = self.index.get(&subject);
        at.is_some_and(|&at| !self.targets[at].cell.alive())
    }

    fn judged(&mut self, node: NodeId, verdict: Verdict, now: Moment, out: &mut Effects) {
        match verdict {
            Verdict::Nothing => {}
            Verdict::Cleared => self.restruck(node, out),
            Verdict::Struck => {
                self.restruck(node, out);
                self.recheck(node, now);
                // Others may have changed, too, since traffic made probes unnecessary.
                let groups = self.selecting(node);
                self.wake(&groups, now);
            }
        }
    }

    /// The strikes of a node are others.
    fn restruck(&mut self, node: NodeId, out: &mut Effects) {
        out.publish(Urgency::Now);
        self.touched.nodes.insert(node);
        let groups = self.nodes.get(&node).map_or(&[][..], |n| &n.groups);
        for group in groups {
            let facts = &self.groups[*group].facts;
            let member = MemberId::Node(node);
            if facts.members.contains(&member) {
                self.touched.members.insert((facts.id, member));
            }
        }
    }

    fn touched(&mut self, subject: Subject) {
        match subject {
            Subject::Node { node, .. } => {
                self.touched.nodes.insert(node);
            }
            Subject::Member { group, member, .. } => {
                self.touched.members.insert((group, member));
            }
        }
    }

    fn shifted(&mut self, at: usize, shift: cell::Shift, selected: bool, out: &mut Effects) {
        let shift = match shift {
            cell::Shift::None => return,
            cell::Shift::Died => Shift::Died,
            cell::Shift::Revived => Shift::Revived,
        };
        let subject = self.targets[at].subject;
        self.touched(subject);
        out.transitions.push(Transition { subject, shift });
        out.publish(Urgency::Now);
        if shift == Shift::Died && selected {
            // The others were last looked at a whole period ago, maybe.
            for group in self.targets[at].groups.clone() {
                if self.groups[group].facts.automatic {
                    self.want_test(group);
                }
            }
        }
    }

    /// Probes a node soon, because flows failed through it.
    fn recheck(&mut self, node: NodeId, now: Moment) {
        for at in self.targets_of(node) {
            let target = &self.targets[at];
            if target.cell.alive() {
                // Flows may fail by the thousand.
                let free = target.started.map_or(now, |started| started + SECOND);
                self.hurry(at, free.max(now), Cause::Forced);
            }
        }
    }

    /// All that is probed through a node, by itself or as a member.
    fn targets_of(&self, node: NodeId) -> Vec<usize> {
        let domains = Domain::ALL.into_iter();
        let own = domains.flat_map(|domain| {
            Family::ALL.map(|family| Subject::Node {
                node,
                domain,
                family,
            })
        });
        let groups = self.nodes.get(&node).map_or(&[][..], |n| &n.groups);
        let judged = groups.iter().map(|group| &self.groups[*group].facts);
        let judged = judged.filter(|facts| !facts.members.is_empty());
        let members = judged.flat_map(|facts| {
            Family::ALL.map(|family| Subject::Member {
                group: facts.id,
                member: MemberId::Node(node),
                family,
            })
        });
        let subjects = own.chain(members);
        subjects
            .filter_map(|s| self.index.get(&s).copied())
            .collect()
    }

    /// A flow uses the node: the groups that lead to it are in use.
    fn touch(&mut self, node: NodeId, now: Moment) {
        for group in self.selecting(node) {
            self.use_group(group, now);
        }
    }

    pub(super) fn use_group(&mut self, group: usize, now: Moment) {
        let slept = !self.awake(group, now);
        self.groups[group].active = now;
        if slept {
            self.wake(&[group], now);
        }
    }

    /// Groups whose flows may go through a node now.
    fn selecting(&self, node: NodeId) -> Vec<usize> {
        let Some(state) = self.nodes.get(&node) else {
            return Vec::new();
        };
        let selects = |group: &&usize| {
            let selection = self.groups[**group].selection;
            selection.is_none_or(|s| {
                let spread = s.tcp.is_none() && s.udp.is_none();
                spread || s.tcp == Some(node) || s.udp == Some(node)
            })
        };
        state.groups.iter().filter(selects).copied().collect()
    }

    /// Probes all of these groups soon, each target once.
    fn wake(&mut self, groups: &[usize], now: Moment) {
        let mut meant = vec![false; self.targets.len()];
        for group in groups {
            for at in &self.groups[*group].targets {
                meant[*at] = true;
            }
        }
        let meant = meant.iter().enumerate().filter(|(_, meant)| **meant);
        for at in meant.map(|(at, _)| at).collect::<Vec<_>>() {
            let due = now + self.chance.part(SECOND);
            self.hurry(at, due, Cause::Due);
        }
    }

    /// A first change is acted on at once; those that follow closely make one more look.
    fn network(&mut self, now: Moment) {
        match self.network_quiet {
            Some(until) if now < until => self.network_again = Some(until),
            _ => self.recheck_network(now),
        }
    }

    pub(super) fn recheck_network(&mut self, now: Moment) {
        self.network_quiet = Some(now + LINK_QUIET);
        self.network_again = None;
        for at in 0..self.targets.len() {
            self.targets[at].absent = false;
            self.targets[at].cell.network_changed();
            if !self.targets[at].cell.alive() || self.is_selected(at) {
                let due = now + self.chance.part(LINK_QUIET);
                self.hurry(at, due, Cause::Due);
            }
        }
    }
}
