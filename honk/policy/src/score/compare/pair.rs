//! What can be said about two nodes at this moment, and on which grounds.
//!
//! Grounds in order: the very target; up to eight common targets; the configured probe. The
//! common targets are chosen by their order and by having enough flows, before any value is
//! looked at.

use super::{
    key::{About, Owner, Place},
    ring::{Ring, Shared, When},
    store::{Metric, Store},
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

/// A question about two nodes: where to look, and when.
#[derive(Clone, Copy)]
pub(in crate::score) struct Reading<'a> {
    pub(in crate::score) store: &'a Store,
    pub(in crate::score) now: T,
    pub(in crate::score) scope: &'a Scope,
}

impl Reading<'_> {
    /// What is known about two nodes, the one held so far first. Rates without a response are
    /// the last resort: they show a trade-off, but gain nothing.
    pub(in crate::score) fn pair(&self, nodes: [NodeKey; 2]) -> Option<Pairing> {
        let exact = self.exact(nodes);
        if exact.is_some_and(|pair| pair.response.is_some()) {
            return exact;
        }
        self.common(nodes).or_else(|| self.probe(nodes)).or(exact)
    }

    /// What business says in this very scope: about its target, or about all of them.
    pub(in crate::score) fn own(&self, nodes: [NodeKey; 2]) -> Option<Pairing> {
        match self.scope.target {
            TargetScope::Any => self.common(nodes),
            TargetScope::New => None,
            TargetScope::One(_) => self.exact(nodes),
        }
    }

    /// Distinct flows of the second node in blocks that it shares with the first, in this very
    /// scope.
    pub(in crate::score) fn sharing(&self, nodes: [NodeKey; 2]) -> u8 {
        let Some(when) = self.when() else {
            return 0;
        };
        let flows = |rings: [&[Ring; 3]; 2]| {
            let [a, b] = rings.map(|of| &of[Metric::Response as usize]);
            a.shared(b, when).map_or(0, |shared| shared.reporters[1])
        };
        match self.scope.target {
            TargetScope::One(_) => self.target_rings(nodes).map_or(0, flows),
            TargetScope::New => 0,
            TargetScope::Any => self.matched(nodes).map(flows).max().unwrap_or(0),
        }
    }

    fn exact(&self, nodes: [NodeKey; 2]) -> Option<Pairing> {
        let when = self.when()?;
        let rings = self.target_rings(nodes)?;
        let [response, up, down] =
            [Metric::Response, Metric::Up, Metric::Down].map(|m| metric(rings, m, when));
        let known = [response, up, down].iter().any(Option::is_some);
        known.then_some(Pairing {
            basis: Basis::Target,
            partial: false,
            response,
            up,
            down,
        })
    }

    fn common(&self, nodes: [NodeKey; 2]) -> Option<Pairing> {
        let when = self.when()?;
        let mut merged: Option<Merged> = None;
        let mut partial = false;
        for rings in self.matched(nodes) {
            let response = Metric::Response as usize;
            if !rings.iter().all(|of| of[response].is_live(when)) {
                continue; // nothing to match any more
            }
            let room = merged.as_ref().is_none_or(|m| m.targets < COMMON);
            match metric(rings, Metric::Response, when).filter(|_| room) {
                Some(response) => {
                    let [up, down] = [Metric::Up, Metric::Down].map(|m| metric(rings, m, when));
                    Merged::add(&mut merged, [Some(response), up, down]);
                }
                None => partial = true,
            }
            if partial && !room {
                break;
            }
        }
        merged.map(|m| m.pair(partial))
    }

    fn probe(&self, nodes: [NodeKey; 2]) -> Option<Pairing> {
        let owners = nodes.map(|node| Owner {
            group: self.scope.group,
            place: Place::probes(self.scope.network),
            node,
        });
        let mut matched = self.store.matched(self.now, owners);
        matched.find_map(|(about, rings)| {
            let when = self.store.when(self.now, about.timing()?)?;
            Some(Pairing {
                basis: Basis::Probe,
                partial: false,
                response: Some(metric(rings, Metric::Response, when)?),
                up: None,
                down: None,
            })
        })
    }

    fn when(&self) -> Option<When> {
        self.store.when(self.now, Timing::BUSINESS)
    }

    /// The nodes where their business is: in one family, or in both for a read over all flows.
    fn owners(&self, nodes: [NodeKey; 2]) -> impl Iterator<Item = [Owner; 2]> {
        let families = [Family::V4, Family::V6].into_iter();
        let families = families.filter(|f| self.scope.family.is_none_or(|only| only == *f));
        families.map(move |family| {
            let place = Place::traffic(self.scope.network, family);
            let group = self.scope.group;
            nodes.map(|node| Owner { group, place, node })
        })
    }

    /// Samples about what both have served.
    fn matched(&self, nodes: [NodeKey; 2]) -> impl Iterator<Item = [&[Ring; 3]; 2]> {
        let owners = self.owners(nodes);
        owners.flat_map(|owners| {
            let matched = self.store.matched(self.now, owners);
            matched.map(|(_, rings)| rings)
        })
    }

    fn target_rings(&self, nodes: [NodeKey; 2]) -> Option<[&[Ring; 3]; 2]> {
        let TargetScope::One(target) = self.scope.target else {
            return None;
        };
        self.scope.family?;
        let owners = self.owners(nodes).next()?;
        let [a, b] = owners.map(|o| self.store.rings(o, About::Target(target)));
        a.zip(b).map(|(a, b)| [a, b])
    }
}

/// A metric of two nodes when each side has enough flows.
fn metric(rings: [&[Ring; 3]; 2], metric: Metric, when: When) -> Option<MetricPair> {
    let [a, b] = rings.map(|of| &of[metric as usize]);
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
