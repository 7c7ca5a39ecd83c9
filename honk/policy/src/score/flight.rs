//! Trials under way: whom they ask what, and whether they were answered.

use super::{
    budget::LAPSE, budget::Pocket, clock::T, ids::NodeKey, ids::TargetId, question::Question,
};

/// Most unfinished trials of one member in one scope.
const PER_MEMBER: usize = 4;
/// Most flights of a scope: a pool of members with as many as each may have.
const MOST: usize = 25 * PER_MEMBER;

/// A trial: which member it asks what, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    /// Number of the attempt, given once.
    pub(super) attempt: u64,
    pub(super) node: NodeKey,
    pub(super) question: Question,
    pub(super) target: TargetId,
}

/// What a running trial published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Received data that was credited.
    Received,
    /// A first response.
    Responded,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) trial: Trial,
    pub(super) pocket: Pocket,
    /// When it was reserved, later when it was begun.
    pub(super) since: T,
    pub(super) begun: Option<T>,
    pub(super) answered: bool,
}

impl Flight {
    /// Whether it is too old to be tracked.
    pub(super) fn lapsed(&self, now: T) -> bool {
        now.is_after(self.since, LAPSE)
    }
}

/// All of one scope, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Vec<Flight>);

impl Flights {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.0.iter()
    }

    /// Of one member, those that still count.
    pub(super) fn of(&self, now: T, node: NodeKey) -> impl Iterator<Item = &Flight> {
        self.0
            .iter()
            .filter(move |f| f.trial.node == node && !f.lapsed(now))
    }

    /// Whether a trial of the member waits for an answer to this question. Of a target; what
    /// qualifies, qualifies for all of them.
    pub(super) fn is_unanswered(
        &self,
        now: T,
        node: NodeKey,
        question: Question,
        target: Option<TargetId>,
    ) -> bool {
        self.of(now, node).any(|f| {
            let here = question == Question::Qualification
                || target.is_none_or(|target| f.trial.target == target);
            !f.answered && f.trial.question == question && here
        })
    }

    /// Whether a member has as many as it may.
    pub(super) fn is_full(&self, now: T, node: NodeKey) -> bool {
        self.of(now, node).count() >= PER_MEMBER
    }

    /// Whether one more trial is too many for its member.
    pub(super) fn is_busy(&self, now: T, trial: &Trial, below: f64) -> bool {
        let unfinished = self.of(now, trial.node).count();
        let caught_up = trial.question != Question::Recovery && unfinished as f64 >= below;
        self.is_full(now, trial.node)
            || self.0.len() >= MOST
            || caught_up
            || self.is_unanswered(now, trial.node, trial.question, Some(trial.target))
    }

    pub(super) fn push(&mut self, flight: Flight) {
        self.0.push(flight);
    }

    pub(super) fn find(&mut self, attempt: u64) -> Option<&mut Flight> {
        self.0.iter_mut().find(|f| f.trial.attempt == attempt)
    }

    pub(super) fn take(&mut self, attempt: u64, fits: impl Fn(&Flight) -> bool) -> Option<Flight> {
        self.take_first(|f| f.trial.attempt == attempt && fits(f))
    }

    pub(super) fn take_lapsed(&mut self, now: T) -> Option<Flight> {
        self.take_first(|f| f.lapsed(now))
    }

    pub(super) fn take_first(&mut self, fits: impl Fn(&Flight) -> bool) -> Option<Flight> {
        let at = self.0.iter().position(fits)?;
        Some(self.0.remove(at))
    }
}
