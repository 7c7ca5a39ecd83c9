//! One flow on its way through Score groups: each is asked once, and what becomes of the flow is
//! told to all of them.

use std::{net::SocketAddr, sync::Arc};

use honk_policy::{
    group::{Offer, Ranker, Ranks as _},
    id::{Family, Network},
    score::{
        AttemptId, Cand, Ctx, Engine, GroupKey, Mode, NodeKey, Refused, T, Target, Trials, WorkId,
        family_of,
    },
};

use super::{Score, attempt::Attempt, only, switches::Switch};
use crate::flow::NewFlow;

/// Groups on a way are at most so many.
const DEPTH: usize = 8;
/// Times a flow is ranked again because its leaf left the serving pool meanwhile.
const AGAIN: u8 = 2;

/// Whose leaf is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// A new flow.
    Flow,
    /// A flow whose leaf could not be reached.
    Retry(NodeKey),
}

/// A few groups.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    keys: [Option<GroupKey>; DEPTH],
    len: usize,
}

impl Keys {
    fn push(&mut self, key: GroupKey) {
        if let Some(free) = self.keys.get_mut(self.len) {
            *free = Some(key);
            self.len += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = GroupKey> + use<> {
        self.keys.into_iter().flatten()
    }

    fn has(&self, key: GroupKey) -> bool {
        self.keys.contains(&Some(key))
    }
}

/// Asks for a flow. Dropping it takes back what was planned and not begun.
#[derive(Debug)]
pub(in crate::app) struct Ranking<'a> {
    score: &'a Arc<Score>,
    network: Network,
    family: Family,
    target: Target<'a>,
    asks: Asks,
    attempt: Option<AttemptId>,
    /// The engine has no room for it: it is served, and nothing is learned.
    unscored: bool,
    /// The leaf that a group tries.
    trial: Option<NodeKey>,
    /// Groups that were asked.
    asked: Keys,
    /// Groups whose ordinary choice moved, and to which member.
    moved: Vec<(GroupKey, u32)>,
    /// Groups on the way that was found, and its leaf.
    way: Keys,
    leaf: Option<NodeKey>,
    rounds: u8,
}

/// What came of a plan.
#[derive(Debug)]
pub(in crate::app) enum Begun {
    /// No Score group is on the way, or it has no room: go on.
    Nothing,
    /// Go on, and tell.
    Attempt(Box<Attempt>),
    /// The leaf has left the serving pool: ask for another.
    Again,
}

impl<'a> Ranking<'a> {
    /// For a new flow; `host` is what it is called.
    pub(in crate::app) fn new(
        score: &'a Arc<Score>,
        flow: &NewFlow,
        host: Option<&'a str>,
    ) -> Self {
        Self::for_(score, flow.network, flow.target.0, host, Asks::Flow)
    }

    /// For a flow whose leaf could not be reached.
    pub(in crate::app) fn retry(
        score: &'a Arc<Score>,
        flow: &NewFlow,
        host: Option<&'a str>,
        failed: NodeKey,
    ) -> Self {
        Self::for_(
            score,
            flow.network,
            flow.target.0,
            host,
            Asks::Retry(failed),
        )
    }

    fn for_(
        score: &'a Arc<Score>,
        network: Network,
        target: SocketAddr,
        host: Option<&'a str>,
        asks: Asks,
    ) -> Self {
        Self {
            score,
            network,
            family: family_of(target),
            target: match host {
                Some(name) => Target::Name(name, target.port()),
                None => Target::Address(target),
            },
            asks,
            attempt: None,
            unscored: false,
            trial: None,
            asked: Keys::default(),
            moved: Vec::new(),
            way: Keys::default(),
            leaf: None,
            rounds: 0,
        }
    }

    fn ctx(&self, filtered: u32) -> Ctx<'a> {
        Ctx {
            network: self.network,
            family: Some(self.family),
            target: Some(self.target),
            dead_filtered: filtered,
            joins: self.attempt,
        }
    }

    /// Work on the leaf that was found begins.
    pub(in crate::app) fn begin(&mut self) -> Begun {
        let (Some(attempt), Some(leaf)) = (self.attempt.take(), self.leaf) else {
            return Begun::Nothing;
        };
        let now = self.score.now();
        let mut begun = self.score.lock().begin(now, &attempt);
        if begun == Err(Refused::Cancelled) {
            if self.rounds < AGAIN && self.asks == Asks::Flow {
                self.rounds += 1;
                (self.trial, self.asked) = (None, Keys::default());
                return Begun::Again;
            }
            begun = self.insist(now).ok_or(Refused::Unknown);
        }
        match begun {
            Ok(work) => {
                self.tell_moves();
                let trial = self.trial.is_some();
                let attempt = Attempt::new(Arc::clone(self.score), work, leaf, trial);
                Begun::Attempt(Box::new(attempt))
            }
            Err(_) => Begun::Nothing,
        }
    }

    /// The leaf stays, whatever the pool says: the flow must not go round in circles.
    fn insist(&mut self, now: T) -> Option<WorkId> {
        let view = only(self.leaf?);
        let mut engine = self.score.lock();
        for group in self.way.iter() {
            self.join(&mut engine, now, group, &view);
        }
        engine.begin(now, &self.attempt.take()?).ok()
    }

    /// A group that has not decided becomes part of the attempt.
    fn join(&mut self, engine: &mut Engine, now: T, group: GroupKey, view: &[Cand]) {
        let ctx = self.ctx(0);
        if let Some(pick) = engine.rank(now, group, &ctx, view, Mode::Fixed) {
            self.attempt = pick.attempt.or(self.attempt);
        }
    }

    fn tell_moves(&self) {
        for &(group, member) in &self.moved {
            self.score.moved(Switch {
                group,
                network: self.network,
                family: self.family,
                target: self.target.into(),
                member,
            });
        }
    }
}

impl Ranker for Ranking<'_> {
    fn rank(&mut self, offer: &Offer<'_>) -> Option<usize> {
        let (score, now) = (self.score, self.score.now());
        if self.unscored {
            return Some(score.peek(offer).unwrap_or(0));
        }
        let mut view = offer.view;
        let mut start = 0;
        let mode = match self.asks {
            Asks::Retry(failed) => Mode::Retry { failed },
            Asks::Flow => match self.trial {
                Some(leaf) => {
                    let at = view.iter().position(|cand| cand.node == leaf);
                    start = at.unwrap_or(0);
                    view = &view[start..=start];
                    Mode::Apply(Trials::Forbidden)
                }
                None => Mode::Apply(Trials::Allowed),
            },
        };
        let ctx = self.ctx(offer.filtered);
        let Some(pick) = score.lock().rank(now, offer.group, &ctx, view, mode) else {
            // A group that the engine does not know yet; in a retry nobody is left.
            let first = (self.asks == Asks::Flow).then_some(start);
            return first;
        };
        self.asked.push(offer.group);
        self.unscored = pick.attempt.is_none();
        if pick.attempt.is_some() {
            self.attempt = pick.attempt;
        }
        if pick.trial {
            self.trial = Some(pick.node);
        }
        if pick.switched {
            let member = view[pick.index].member;
            self.moved.push((offer.group, member));
        }
        Some(start + pick.index)
    }

    fn found(&mut self, groups: &[GroupKey], leaf: NodeKey, _: Network) {
        self.leaf = Some(leaf);
        self.way = Keys::default();
        groups.iter().for_each(|group| self.way.push(*group));
        let undecided = |group: &GroupKey| !self.asked.has(*group);
        if self.unscored || !self.way.iter().any(|group| undecided(&group)) {
            return;
        }
        let (score, now) = (self.score, self.score.now());
        let mut engine = score.lock();
        for group in self.way.iter() {
            if !self.asked.has(group) {
                self.join(&mut engine, now, group, &only(leaf));
            }
        }
    }
}

impl Drop for Ranking<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt {
            let now = self.score.now();
            self.score.lock().release(now, attempt);
        }
    }
}
