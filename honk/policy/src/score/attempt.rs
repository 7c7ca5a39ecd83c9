//! An attempt from its beginning to its end: it pays, reports, and is settled exactly once.
//!
//! Calls about an attempt that is over, or never was, do nothing: handles may be cloned and
//! dropped in any order.

use super::{
    Engine,
    call::{Obs, Refused, Source},
    cell::Scope,
    clock::T,
    consts::TRACKED,
    flight,
    ids::{AttemptId, Handle, ReporterId, WorkId},
    outcome::{Outcome, settled, verdict},
    record::{Attempt, target_scope},
    reporter::{Findings, Reporter},
    work::{Kind, Reported, Stage, Work},
};

impl Engine {
    /// Work on a leaf begins, before anything is waited for. A trial is paid now; the flow is
    /// counted now.
    pub fn begin(&mut self, now: T, attempt: &AttemptId) -> Result<WorkId, Refused> {
        let handle = attempt.0;
        let planned = |work: &&Work| matches!(work.stage, Stage::Planned);
        let work = self
            .works
            .get(handle)
            .filter(planned)
            .ok_or(Refused::Unknown)?;
        let trial = self.works.chain(work.last).any(|(_, held)| held.trial);
        let refused = if now.is_after(work.since, TRACKED) {
            Some(Refused::Unknown)
        } else if work.generation != self.generation {
            Some(if trial {
                Refused::Cancelled
            } else {
                Refused::Unknown
            })
        } else if self.left_pool(work) {
            Some(Refused::Cancelled)
        } else {
            None
        };
        if let Some(refused) = refused {
            self.release(now, *attempt);
            return Err(refused);
        }
        self.open(now, handle);
        Ok(WorkId(handle))
    }

    /// An attempt is given up: a reservation goes back; begun work that never was started ends
    /// without a mark. Nothing for one that was started: [`finish`](Self::finish) ends that.
    pub fn release(&mut self, now: T, attempt: AttemptId) {
        let handle = attempt.0;
        let Some(work) = self.works.get(handle) else {
            return;
        };
        match work.stage {
            Stage::Planned => {
                self.refund(handle);
                self.remove(handle);
            }
            Stage::Begun => {
                self.settle(now, handle, super::outcome::Settled::Neutral);
                self.remove(handle);
            }
            Stage::Started(..) => {}
        }
    }

    /// The first physical attempt is admitted, or a session is used again. Later calls name the
    /// same reporter.
    pub fn start(&mut self, now: T, work: WorkId, source: Source) -> ReporterId {
        if let Some(work) = self.works.get_mut(work.0)
            && let Stage::Begun = work.stage
        {
            let targeted = work.target.is_some() && work.family.is_some();
            work.stage = Stage::Started(Reporter::new(now, targeted), source);
        }
        ReporterId(work.0)
    }

    /// Something was seen of a started attempt.
    pub fn observe(&mut self, now: T, reporter: ReporterId, event: Obs) {
        let Some(work) = self.works.get_mut(reporter.0) else {
            return;
        };
        if let Stage::Started(seen, source) = &mut work.stage {
            let (found, source) = (seen.see(now, event), *source);
            self.publish(now, reporter.0, source, &found);
        }
    }

    /// The end of a started attempt; the first one counts.
    pub fn finish(&mut self, now: T, reporter: ReporterId, outcome: Outcome) {
        let handle = reporter.0;
        let Some(work) = self.works.get_mut(handle) else {
            return;
        };
        let Stage::Started(seen, source) = &mut work.stage else {
            return;
        };
        let (found, source) = (seen.end(now), *source);
        let seen = seen.seen();
        self.publish(now, handle, source, &found);
        if let (Source::Traffic, Some(verdict)) = (source, verdict(outcome, seen)) {
            self.each_group(handle, |engine, attempt, held| {
                engine.evidence.end(now, attempt, &held.cells, verdict);
            });
        }
        self.settle(now, handle, settled(outcome, seen));
        self.remove(handle);
    }

    /// Whether a leaf chosen by some group has left that group's pool since.
    fn left_pool(&self, work: &Work) -> bool {
        self.works.chain(work.last).any(|(_, held)| {
            let in_pool = |at: usize| {
                let pool = &self.groups[at].net(work.network).pool;
                pool.contains(held.picked)
            };
            held.pooled && !self.find(held.group).is_some_and(in_pool)
        })
    }

    /// Marks work as begun: counts and charges it, and opens the cells it reports to.
    fn open(&mut self, now: T, handle: Handle) {
        let Some(work) = self.works.get_mut(handle) else {
            return;
        };
        work.stage = Stage::Begun;
        work.since = now;
        let (kind, network, family) = (work.kind, work.network, work.family);
        let (target, node, serial, mut at) = (work.target, work.node, work.serial, work.last);
        if kind == Kind::Original {
            self.business_starts = self.business_starts.saturating_add(1);
        }
        let tick = self.evidence.next_tick();
        while let Some(slot) = at {
            let Some(held) = self.works.attributions.get(slot).copied() else {
                break;
            };
            at = held.next;
            let Some(index) = self.find(held.group) else {
                continue;
            };
            let group = &mut self.groups[index];
            let leaves = group.leaves;
            let net = group.net_mut(network);
            let family_of_target = family.filter(|_| target.is_some());
            match kind {
                Kind::Original => {
                    net.demand.count(now);
                    let rate = net.demand.rate(now);
                    if let Some(family) = family_of_target {
                        net.open(family, leaves).earn(now, rate);
                    }
                }
                Kind::Continuation => {
                    if let Some(family) = family_of_target {
                        net.open(family, leaves).recover();
                    }
                }
                Kind::Preparation => {}
            }
            if let Some(family) = family.filter(|_| held.trial)
                && let Some(ledger) = net.ledger_mut(family)
            {
                ledger.begin(now, serial);
            }
            if !group.has(node) {
                continue;
            }
            let scope = Scope {
                group: held.group,
                network,
                family,
                target: target_scope(target.filter(|_| family.is_some())),
            };
            let cells = self.evidence.open(&scope, node);
            for cell in cells.iter().flatten() {
                if let Some(cell) = self.evidence.cells.get_mut(*cell)
                    && kind != Kind::Preparation
                {
                    cell.selected_tick = tick;
                }
            }
            if let Some(held) = self.works.attributions.get_mut(slot) {
                held.cells = cells.map(|cell| cell.map(|at| Reported { at, credited: None }));
            }
        }
    }

    /// Writes findings into the cells of every group.
    fn publish(&mut self, now: T, handle: Handle, source: Source, found: &Findings) {
        if *found == Findings::default() {
            return;
        }
        if source == Source::Warmup {
            if let Some(millis) = found.setup {
                self.each_group(handle, |engine, _, held| {
                    engine.evidence.warm(now, &held.cells, millis);
                });
            }
            return;
        }
        self.each_group(handle, |engine, attempt, held| {
            let taken = engine.evidence.take(now, attempt, &mut held.cells, found);
            if held.trial
                && let Some(ledger) = engine.ledger(handle, held.group)
            {
                if taken.received {
                    ledger.answer(attempt.serial, flight::Evidence::Received);
                }
                if taken.responded {
                    ledger.answer(attempt.serial, flight::Evidence::Responded);
                }
                if let Some(millis) = found.setup {
                    ledger.set_up(millis);
                }
            }
        });
    }

    /// Ends a trial's entry in the budget it was paid from.
    fn settle(&mut self, now: T, handle: Handle, settled: super::outcome::Settled) {
        let begun = self.works.get(handle).map(|work| work.since);
        let elapsed = begun.map_or(0.0, |begun| now.millis_since(begun));
        self.each_group(handle, |engine, attempt, held| {
            if held.trial
                && let Some(ledger) = engine.ledger(handle, held.group)
            {
                ledger.settle(now, attempt.serial, settled, elapsed);
            }
        });
    }

    fn refund(&mut self, handle: Handle) {
        self.each_group(handle, |engine, attempt, held| {
            if held.trial
                && let Some(ledger) = engine.ledger(handle, held.group)
            {
                ledger.release(attempt.serial);
            }
        });
    }

    fn remove(&mut self, handle: Handle) {
        if let Some(target) = self.works.remove(handle).and_then(|work| work.target) {
            self.evidence.targets.release(target);
        }
    }

    /// The budget an attempt is in, for one of its groups.
    fn ledger(
        &mut self,
        handle: Handle,
        group: super::ids::GroupKey,
    ) -> Option<&mut super::budget::Ledger> {
        let work = self.works.get(handle)?;
        let (network, family) = (work.network, work.family?);
        let at = self.groups.binary_search_by_key(&group, |g| g.key).ok()?;
        self.groups[at].net_mut(network).ledger_mut(family)
    }

    /// Calls `visit` for every group of an attempt and keeps what it changes.
    fn each_group(
        &mut self,
        handle: Handle,
        mut visit: impl FnMut(&mut Self, Attempt, &mut super::work::Attribution),
    ) {
        let Some(work) = self.works.get(handle) else {
            return;
        };
        let attempt = Attempt {
            serial: work.serial,
            begun: work.since,
        };
        let mut at = work.last;
        while let Some(slot) = at {
            let Some(mut held) = self.works.attributions.get(slot).copied() else {
                return;
            };
            at = held.next;
            visit(self, attempt, &mut held);
            if let Some(kept) = self.works.attributions.get_mut(slot) {
                *kept = held;
            }
        }
    }
}
