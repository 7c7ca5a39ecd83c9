//! The serving pool: the few members of a group that flows go to and that are compared.
//!
//! Evidence needs traffic, so a group of a hundred cannot compare a hundred. How many serve
//! follows the demand; who serves is looked at every five minutes; one place rotates through
//! everybody else. A small group is its own pool. The pool never leaves a view without a leaf.

mod located;

use std::cmp::Ordering;

use super::{
    call::Cand,
    clock::T,
    consts::{H_RATE, H_REL, POOL_MAX},
    ids::NodeKey,
};
use located::Located;

/// Up to so many leaves all serve.
const SMALL: usize = 4;
/// Least places of a larger group.
const LEAST: usize = 3;
/// Business within the memory of reliability that pays for one more place: half of what it earns
/// funds four completions.
const PER_PLACE: f64 = 128.0;
/// Seconds between two looks at the ranking.
const REFRESH: u64 = 300;
/// Seconds in the rotating place.
const TURN: u64 = 600;
/// Seconds after which a member that no view holds is taken for excluded. Views differ by the
/// family of the proxy's health: one that lacks a member says little.
const MISSING: u64 = 30;
/// Winners whose probes are kept although they left.
const RECENT: usize = 4;

/// What the ranking is made from: every leaf of a view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) node: NodeKey,
    /// Number of the direct member it came through.
    pub(super) member: u32,
    /// Index in the view.
    pub(super) index: usize,
    pub(super) eligible: bool,
    /// Three failures of the node in a row.
    pub(super) failed: bool,
    pub(super) utility: f64,
    /// Latency of the check that most are measured by.
    pub(super) probe: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    node: NodeKey,
    member: u32,
    /// Index in the last view that held it.
    hint: u32,
    missing_since: Option<T>,
}

/// The places of one group and network.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pool {
    /// Ranked members first; one more is the rotating place.
    places: Vec<Place>,
    rotating: bool,
    capacity: usize,
    /// Most leaves a view had.
    leaves: usize,
    refreshed: Option<T>,
    turned: Option<T>,
    recent: [Option<NodeKey>; RECENT],
}

/// Places for so many leaves under so much demand.
fn capacity(leaves: usize, demand: f64) -> usize {
    if leaves <= SMALL {
        return leaves;
    }
    let root = leaves.isqrt() + usize::from(leaves.isqrt().pow(2) < leaves);
    let most = (root + 1).min(POOL_MAX);
    let projected = demand * (H_REL / H_RATE);
    let paid = 1 + (projected / PER_PLACE) as usize;
    paid.clamp(LEAST, most)
}

/// Who ranks first.
fn rank(a: &Standing, b: &Standing) -> Ordering {
    let probe = |s: &Standing| s.probe.unwrap_or(f64::INFINITY);
    b.eligible
        .cmp(&a.eligible)
        .then_with(|| b.utility.total_cmp(&a.utility))
        .then_with(|| probe(a).total_cmp(&probe(b)))
        .then_with(|| a.node.cmp(&b.node))
}

impl Pool {
    pub(super) fn contains(&self, node: NodeKey) -> bool {
        self.places.iter().any(|p| p.node == node)
    }

    /// Places that are taken.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    #[cfg(test)]
    pub(super) fn members(&self) -> impl Iterator<Item = NodeKey> {
        self.places.iter().map(|p| p.node)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    fn initialised(&self) -> bool {
        self.refreshed.is_some()
    }

    /// Whether probes of a node are worth comparing.
    pub(super) fn keeps_probe(&self, node: NodeKey) -> bool {
        !self.initialised() || self.contains(node) || self.recent.contains(&Some(node))
    }

    /// Indices in the view of the members it holds, in the order of the view. Looks at the whole
    /// view only for members that are not where they were.
    pub(super) fn located(&self, view: &[Cand]) -> Located {
        let mut found = Located::default();
        let mut lost: [Option<NodeKey>; POOL_MAX] = [None; POOL_MAX];
        let mut missing = 0;
        for place in &self.places {
            let hint = place.hint as usize;
            if view.get(hint).is_some_and(|c| c.node == place.node) {
                found.push(hint);
            } else {
                lost[missing] = Some(place.node);
                missing += 1;
            }
        }
        if missing > 0 {
            for (index, cand) in view.iter().enumerate() {
                if lost[..missing].contains(&Some(cand.node)) {
                    found.push(index);
                }
            }
        }
        found.sorted()
    }

    /// Notes who is in the view. A nested group that answers with another leaf keeps its place.
    pub(super) fn adopt(&mut self, now: T, view: &[Cand]) {
        for at in 0..self.places.len() {
            let place = self.places[at];
            if view
                .get(place.hint as usize)
                .is_some_and(|c| c.node == place.node)
            {
                self.places[at].missing_since = None;
                continue;
            }
            let here = view.iter().position(|c| c.node == place.node);
            let heir = || {
                let heir = |c: &Cand| c.member == place.member && !self.contains(c.node);
                view.iter().position(heir)
            };
            match here.or_else(heir) {
                Some(index) => {
                    self.places[at] = Place {
                        node: view[index].node,
                        member: view[index].member,
                        hint: index as u32,
                        missing_since: None,
                    };
                }
                None => {
                    self.places[at].missing_since.get_or_insert(now);
                }
            }
        }
    }

    fn is_missing(place: &Place, now: T) -> bool {
        place
            .missing_since
            .is_some_and(|since| now.is_after(since, MISSING))
    }

    /// Whether the ranking must be looked at now. `here`: members that the view holds; `sound`:
    /// all are, and none of them fails.
    pub(super) fn due(
        &self,
        now: T,
        view: &[Cand],
        here: usize,
        sound: bool,
        failing: impl Fn(NodeKey) -> bool,
    ) -> bool {
        let over = |since: Option<T>, secs| since.is_none_or(|at| now.is_after(at, secs));
        if over(self.refreshed, REFRESH) || self.rotating && over(self.turned, TURN) {
            return true;
        }
        if here == 0 && !view.is_empty() {
            return true;
        }
        let small = self.leaves.max(view.len()) <= SMALL;
        let room = if small {
            SMALL
        } else {
            self.capacity.max(LEAST)
        };
        if self.places.len() < room {
            return view.iter().any(|c| !self.contains(c.node));
        }
        let bad = |p: &Place| Self::is_missing(p, now) || failing(p.node);
        !sound
            && self.places.iter().any(bad)
            && view
                .iter()
                .any(|c| !self.contains(c.node) && !failing(c.node))
    }

    /// Looks at the ranking. `first` is the ordinary first choice, an index in `standings`.
    pub(super) fn commit(&mut self, now: T, standings: &[Standing], first: usize, demand: f64) {
        self.leaves = self.leaves.max(standings.len());
        let wanted = capacity(self.leaves, demand);
        let mut ranking = standings.to_vec();
        ranking.sort_unstable_by(rank);
        let nobody = !standings.iter().any(|s| self.contains(s.node));
        if !self.initialised() || nobody {
            self.capacity = match self.initialised() {
                true => self.capacity.max(self.least()),
                false => wanted,
            };
            self.bootstrap(now, &ranking, standings.get(first));
        } else if self.refreshed.is_some_and(|at| now.is_after(at, REFRESH)) {
            if wanted > self.capacity || wanted + 2 <= self.capacity {
                self.capacity = wanted;
            }
            self.refresh(now, &ranking);
        } else {
            self.capacity = self.capacity.max(self.least());
            self.fill(&ranking);
        }
        self.replace(now, &ranking);
        self.rotate(now, standings);
    }

    /// The first choice, then who ranks best.
    fn bootstrap(&mut self, now: T, ranking: &[Standing], first: Option<&Standing>) {
        self.places.clear();
        self.places.extend(first.map(place));
        self.refreshed = Some(now);
        self.settle(now, ranking, None);
    }

    /// Members keep their place until they rank two behind the last one.
    fn refresh(&mut self, now: T, ranking: &[Standing]) {
        self.refreshed = Some(now);
        let keep = self.ranked_places() + 1;
        let turning = self.rotating.then(|| self.places.pop()).flatten();
        self.places
            .retain(|p| match ranking.iter().position(|s| s.node == p.node) {
                Some(at) => at < keep,
                None => !Self::is_missing(p, now),
            });
        let at = |p: &Place| ranking.iter().position(|s| s.node == p.node);
        self.places.sort_by_key(|p| at(p).unwrap_or(usize::MAX));
        self.places.truncate(self.ranked_places());
        self.settle(now, ranking, turning);
    }

    /// Places that there are whatever the demand. A first view that health had thinned out must
    /// not leave the group without challengers until the next refresh.
    fn least(&self) -> usize {
        if self.leaves <= SMALL {
            self.leaves
        } else {
            LEAST
        }
    }

    /// Places that are ranked when all are taken.
    fn ranked_places(&self) -> usize {
        self.capacity - usize::from(self.leaves > self.capacity)
    }

    /// Fills the ranked places, and the rotating one if more leaves than places exist. Its
    /// occupant stays for its time, unless it is ranked by now.
    fn settle(&mut self, now: T, ranking: &[Standing], turning: Option<Place>) {
        let ranked = self.ranked_places();
        for standing in ranking {
            if self.places.len() >= ranked {
                break;
            }
            if !self.contains(standing.node) {
                self.places.push(place(standing));
            }
        }
        self.rotating = false;
        if self.leaves <= self.capacity {
            return;
        }
        let stays = turning.filter(|p| !self.contains(p.node));
        let next = || self.next_turn(turning.map(|p| p.node), ranking);
        if let Some(occupant) = stays.or_else(|| next().map(|s| place(&s))) {
            if stays.is_none() {
                self.turned = Some(now);
            }
            self.places.push(occupant);
            self.rotating = true;
        }
    }

    fn fill(&mut self, ranking: &[Standing]) {
        for standing in ranking {
            if self.places.len() < self.capacity && !self.contains(standing.node) {
                self.places.push(place(standing));
            }
        }
    }

    /// Members that fail or are gone leave at once, if somebody sound can take over.
    fn replace(&mut self, now: T, ranking: &[Standing]) {
        for at in 0..self.places.len() {
            let old = self.places[at];
            let fails = ranking.iter().any(|s| s.node == old.node && s.failed);
            if !fails && !Self::is_missing(&old, now) {
                continue;
            }
            let sound = ranking.iter().find(|s| !s.failed && !self.contains(s.node));
            if let Some(sound) = sound {
                self.places[at] = place(sound);
                if self.rotating && at + 1 == self.places.len() {
                    self.turned = Some(now);
                }
            }
        }
    }

    /// Gives the rotating place to the next one when its time is over.
    fn rotate(&mut self, now: T, standings: &[Standing]) {
        let over = self.turned.is_none_or(|at| now.is_after(at, TURN));
        let Some(last) = self.places.last().filter(|_| self.rotating && over) else {
            return;
        };
        if let Some(next) = self.next_turn(Some(last.node), standings) {
            let last = self.places.len() - 1;
            self.places[last] = place(&next);
        }
        self.turned = Some(now);
    }

    /// The outsider whose turn it is: the next by identity that does not fail.
    fn next_turn(&self, after: Option<NodeKey>, standings: &[Standing]) -> Option<Standing> {
        let outside = || standings.iter().filter(|s| !self.contains(s.node));
        let sound = outside().any(|s| !s.failed);
        let fits = || outside().filter(|s| !sound || !s.failed);
        fits()
            .filter(|s| after.is_none_or(|after| s.node > after))
            .min_by_key(|s| s.node)
            .or_else(|| fits().min_by_key(|s| s.node))
            .copied()
    }

    /// An ordinary choice was committed. The rotating member earns a ranked place by it.
    pub(super) fn served(&mut self, now: T, node: NodeKey) {
        let len = self.places.len();
        if self.rotating && len >= 2 && self.places[len - 1].node == node {
            self.places.swap(len - 1, len - 2);
            self.turned = Some(now);
        }
        if self.recent[0] != Some(node) {
            let old = self.recent.iter().position(|r| *r == Some(node));
            self.recent[..=old.unwrap_or(RECENT - 1)].rotate_right(1);
            self.recent[0] = Some(node);
        }
    }

    /// What a first commit would make, for reads before there was one.
    pub(super) fn project(
        &self,
        now: T,
        standings: &[Standing],
        first: usize,
        demand: f64,
    ) -> Self {
        let mut projected = self.clone();
        projected.commit(now, standings, first, demand);
        projected
    }
}

fn place(standing: &Standing) -> Place {
    Place {
        node: standing.node,
        member: standing.member,
        hint: standing.index as u32,
        missing_since: None,
    }
}

#[cfg(test)]
mod tests;
