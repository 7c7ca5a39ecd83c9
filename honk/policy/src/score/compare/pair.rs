//! What can be said about two nodes at this moment, and on which grounds.
//!
//! Grounds in order: the very target; up to eight common targets; the configured probe. The
//! common targets are chosen by their order and by having enough flows, before any value is
//! looked at.

use super::{
    key::{About, Place, SideKey},
    ring::{Shared, When},
    sides::Side,
    store::{Metric, Store, read::Samples},
    timing::Timing,
};
use crate::id::Family;
use crate::score::{
    cell::{Scope, TargetScope},
    clock::T,
    consts::REPORTERS,
    ids::NodeKey,
};

/// Most common targets in one comparison.
const COMMON: usize = 8;

/// What a pair rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::score) enum Basis {
    /// The very target.
    Target,
    /// Targets that both served.
    CommonTargets,
    /// The configured probe.
    Probe,
}

/// One metric of two nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::score) struct MetricPair {
    /// The node held so far, or the selection.
    pub(in crate::score) incumbent: f64,
    /// The other one.
    pub(in crate::score) challenger: f64,
    /// Distinct flows of the weaker side.
    pub(in crate::score) reporters: u8,
    /// The weaker side's latest sample.
    pub(in crate::score) last: T,
    /// From then on nothing is known.
    pub(in crate::score) expires: T,
}

/// Everything comparable about two nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::score) struct Pairing {
    pub(in crate::score) basis: Basis,
    /// A matched target was left out: its response is still an open question.
    pub(in crate::score) partial: bool,
    pub(in crate::score) response: Option<MetricPair>,
    pub(in crate::score) up: Option<MetricPair>,
    pub(in crate::score) down: Option<MetricPair>,
}

impl Pairing {
    /// When the first of its metrics ends.
    #[cfg(test)]
    pub(in crate::score) fn expires(&self) -> Option<T> {
        let metrics = [self.response, self.up, self.down];
        metrics.into_iter().flatten().map(|m| m.expires).min()
    }
}

/// Where to look, and when.
#[derive(Clone, Copy)]
pub(in crate::score) struct Reading<'a> {
    pub(in crate::score) store: &'a Store,
    pub(in crate::score) now: T,
    pub(in crate::score) scope: &'a Scope,
}

impl<'a> Reading<'a> {
    /// Questions about a node and others beside it: the one held so far, or the selection. It is
    /// looked up once for all of them.
    pub(in crate::score) fn beside(self, node: NodeKey) -> Beside<'a> {
        let held = self.store.side(self.key(node));
        let exact = held.and_then(|(number, side)| self.exact(number, side));
        Beside {
            reading: self,
            held,
            exact,
        }
    }

    fn key(&self, node: NodeKey) -> SideKey {
        SideKey {
            group: self.scope.group,
            network: self.scope.network,
            node,
        }
    }

    /// What a side has about the target of the scope, if that can be a side of a pair.
    fn exact(&self, number: u32, side: &Side) -> Option<Samples<'a>> {
        let (TargetScope::One(target), Some(family)) = (self.scope.target, self.scope.family)
        else {
            return None;
        };
        let place = Place::from(family);
        let found = || self.store.samples(number, place, About::Target(target));
        side.run(place).may_pair(self.now).then(found).flatten()
    }

    fn when(&self) -> Option<When> {
        self.store.when(self.now, Timing::BUSINESS)
    }

    /// Where the business of the scope is: in one family, or in both for a read over all flows.
    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let only = self.scope.family;
        let families = [Family::V4, Family::V6].into_iter();
        let families = families.filter(move |f| only.is_none_or(|only| only == *f));
        families.map(Place::from)
    }
}

/// A node that others are compared with.
#[derive(Clone, Copy)]
pub(in crate::score) struct Beside<'a> {
    pub(in crate::score) reading: Reading<'a>,
    held: Option<(u32, &'a Side)>,
    exact: Option<Samples<'a>>,
}

/// Both nodes.
#[derive(Clone, Copy)]
struct Two<'a> {
    held: (u32, &'a Side),
    other: (u32, &'a Side),
}

impl Two<'_> {
    fn may_pair(&self, place: Place, now: T) -> bool {
        let may_pair = |side: &Side| side.run(place).may_pair(now);
        may_pair(self.held.1) && may_pair(self.other.1)
    }
}

impl<'a> Beside<'a> {
    /// What is known about both nodes. Rates without a response are the last resort: they show a
    /// trade-off, but gain nothing.
    pub(in crate::score) fn pair(&self, other: NodeKey) -> Option<Pairing> {
        let two = self.with(other)?;
        let exact = self.exact(two);
        if exact.is_some_and(|pair| pair.response.is_some()) {
            return exact;
        }
        self.common(two).or_else(|| self.probe(two)).or(exact)
    }

    /// What business says in this very scope: about its target, or about all of them.
    pub(in crate::score) fn own(&self, other: NodeKey) -> Option<Pairing> {
        match self.reading.scope.target {
            TargetScope::Any => self.common(self.with(other)?),
            TargetScope::New => None,
            TargetScope::One(_) => self.exact(self.with(other)?),
        }
    }

    /// Distinct flows of the other node in blocks that it shares with this one, in this very
    /// scope.
    pub(in crate::score) fn sharing(&self, other: NodeKey) -> u8 {
        let (Some(two), Some(when)) = (self.with(other), self.reading.when()) else {
            return 0;
        };
        let flows = |samples: [Samples<'_>; 2]| {
            let [a, b] = samples.map(|of| of.ring(Metric::Response));
            a.shared(b, when).map_or(0, |shared| shared.reporters[1])
        };
        match (self.reading.scope.target, self.reading.scope.family) {
            (TargetScope::One(target), Some(family)) => {
                let numbers = [two.held.0, two.other.0];
                let [a, b] = numbers.map(|number| {
                    let store = self.reading.store;
                    store.samples(number, family.into(), About::Target(target))
                });
                a.zip(b).map_or(0, |(a, b)| flows([a, b]))
            }
            (TargetScope::One(_), None) | (TargetScope::New, _) => 0,
            (TargetScope::Any, _) => {
                let Reading { store, now, .. } = self.reading;
                let both = |place| {
                    let cells = store.live(now, place, two.other.1);
                    cells.filter_map(move |b| Some([store.same(now, place, two.held.0, b)?, b]))
                };
                let matched = self.reading.places().flat_map(both);
                matched.map(flows).max().unwrap_or(0)
            }
        }
    }

    fn with(&self, other: NodeKey) -> Option<Two<'a>> {
        let reading = &self.reading;
        Some(Two {
            held: self.held?,
            other: reading.store.side(reading.key(other))?,
        })
    }

    fn exact(&self, two: Two<'a>) -> Option<Pairing> {
        let when = self.reading.when()?;
        let (number, side) = two.other;
        let samples = [self.exact?, self.reading.exact(number, side)?];
        let [response, up, down] =
            [Metric::Response, Metric::Up, Metric::Down].map(|m| metric(samples, m, when));
        let known = [response, up, down].iter().any(Option::is_some);
        known.then_some(Pairing {
            basis: Basis::Target,
            partial: false,
            response,
            up,
            down,
        })
    }

    fn common(&self, two: Two<'a>) -> Option<Pairing> {
        let when = self.reading.when()?;
        let Reading { store, now, .. } = self.reading;
        let may_pair = |place| {
            let other = two.other.1;
            two.may_pair(place, now) && store.has_response(now, place, other)
        };
        if !self.reading.places().any(may_pair) {
            return None;
        }
        let mut merged: Option<Merged> = None;
        let mut partial = false;
        let cells = self.reading.places().flat_map(|place| {
            let cells = store.live(now, place, two.other.1);
            cells.map(move |cell| (place, cell))
        });
        for (place, b) in cells {
            // One that is known to leave the comparison partial is enough.
            if partial && !b.may_pair(Metric::Response) {
                continue;
            }
            let Some(a) = store.same(now, place, two.held.0, b) else {
                continue;
            };
            let room = merged.as_ref().is_none_or(|m| m.targets < COMMON);
            let samples = [a, b];
            match metric(samples, Metric::Response, when).filter(|_| room) {
                Some(response) => {
                    let [up, down] = [Metric::Up, Metric::Down].map(|m| metric(samples, m, when));
                    Merged::add(&mut merged, [Some(response), up, down]);
                }
                None => {
                    partial |= samples
                        .iter()
                        .all(|of| of.ring(Metric::Response).is_live(when))
                }
            }
            if partial && !room {
                break;
            }
        }
        merged.map(|m| m.pair(partial))
    }

    fn probe(&self, two: Two<'a>) -> Option<Pairing> {
        let Reading { store, now, .. } = self.reading;
        if !two.may_pair(Place::Probes, now) {
            return None;
        }
        store.live(now, Place::Probes, two.other.1).find_map(|b| {
            let samples = [store.same(now, Place::Probes, two.held.0, b)?, b];
            let when = store.when(now, b.about().timing()?)?;
            Some(Pairing {
                basis: Basis::Probe,
                partial: false,
                response: Some(metric(samples, Metric::Response, when)?),
                up: None,
                down: None,
            })
        })
    }
}

/// A metric of two nodes when each side has enough flows.
fn metric(samples: [Samples<'_>; 2], metric: Metric, when: When) -> Option<MetricPair> {
    if !samples.iter().all(|of| of.may_pair(metric)) {
        return None;
    }
    let [a, b] = samples.map(|of| of.ring(metric));
    let Shared {
        values: [incumbent, challenger],
        reporters: [ours, theirs],
        last,
        expires,
    } = a.shared(b, when)?;
    let reporters = ours.min(theirs);
    (reporters >= REPORTERS).then_some(MetricPair {
        incumbent,
        challenger,
        reporters,
        last,
        expires,
    })
}

/// Metrics of several targets, added up.
struct Merged {
    targets: usize,
    /// Response, up, down; one that a target lacks is unknown for all.
    metrics: [Option<MetricPair>; 3],
}

impl Merged {
    fn add(merged: &mut Option<Self>, metrics: [Option<MetricPair>; 3]) {
        let Some(sums) = merged else {
            *merged = Some(Self {
                targets: 1,
                metrics,
            });
            return;
        };
        sums.targets += 1;
        for (sum, new) in sums.metrics.iter_mut().zip(metrics) {
            *sum = sum.zip(new).map(|(a, b)| MetricPair {
                incumbent: a.incumbent + b.incumbent,
                challenger: a.challenger + b.challenger,
                reporters: a.reporters.min(b.reporters),
                last: a.last.min(b.last),
                expires: a.expires.min(b.expires),
            });
        }
    }

    fn pair(self, partial: bool) -> Pairing {
        let targets = self.targets as f64;
        let [response, up, down] = self.metrics.map(|sum| {
            sum.map(|m| MetricPair {
                incumbent: m.incumbent / targets,
                challenger: m.challenger / targets,
                ..m
            })
        });
        Pairing {
            basis: Basis::CommonTargets,
            partial,
            response,
            up,
            down,
        }
    }
}
