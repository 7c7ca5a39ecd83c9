//! What groups select right now: the pipeline of a selection, run when something changed.
//!
//! A group is evaluated per network in two passes, one for each family its nodes' servers may be
//! reached over. Flows to IPv4 targets use the first pass alone; flows to IPv6 targets the
//! second, then the first, and only then a `final` (G-081).
//!
//! Health and capability never move a selector to a sibling (G-122, G-124): only an explicit
//! `final`, or for TCP the very same leaf as last resort, may continue.

use std::{collections::HashSet, rc::Rc, sync::Arc};

use super::{
    fallback,
    graph::MAX_DEPTH,
    pick::{Lead, Outcome, Pick, Refuse, Source, Turn},
    scan::{Found, Ranked, Scans},
    shape::Shape,
    standing::{Standing, UrlMark},
    table::{Final, Group},
    urltest::{self, Runner},
    walks::Walks,
};
use crate::{config::Policy, id::NodeId, node::Node};

/// Ways down that a balancing group may have; sensible ones have a few hundred.
pub(super) const MAX_WAYS: usize = 1024;

pub(super) const TCP: usize = 0;
pub(super) const UDP: usize = 1;
pub(super) const V4: usize = 0;
pub(super) const V6: usize = 1;

/// By network and family.
pub(super) type Grid<T> = [[T; 2]; 2];

/// The selections of one group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live {
    /// What the accept path reads, by network and target family.
    pub(super) tops: Grid<Outcome>,
    /// What the group contributes to others, by network and health family.
    pub(super) subs: Grid<Outcome>,
    /// Members that urltest holds and fallback has pinned, by network and health family.
    pub(super) kept: Grid<Option<u32>>,
}

impl Default for Live {
    fn default() -> Self {
        let nothing = || std::array::from_fn(|_| std::array::from_fn(|_| Err(Refuse::NoMember)));
        Self {
            tops: nothing(),
            subs: nothing(),
            kept: [[None; 2]; 2],
        }
    }
}

/// All that a selection depends on.
#[derive(Clone)]
pub(super) struct Resolver<'a> {
    pub(super) groups: &'a [Arc<Group>],
    pub(super) shape: &'a Shape,
    /// By leaf.
    pub(super) marks: &'a [Standing],
    /// By group and member, for groups with a `check_url`.
    pub(super) urls: &'a [Option<Arc<[UrlMark]>>],
    /// Selections so far; those of groups further down are up to date.
    pub(super) live: &'a [Arc<Live>],
    /// What lists of nodes have to offer, for groups that judge nodes like everybody.
    pub(super) scans: Option<&'a Scans>,
    /// What irregular groups contribute, as far as found out.
    pub(super) walks: Rc<Walks>,
}

/// A member that may serve.
pub(super) struct Candidate {
    latency: f64,
    struck: bool,
}

impl Resolver<'_> {
    /// The selections of a group. `same` says that no node is judged differently by family.
    pub(super) fn settle(&self, index: usize, same: bool) -> Live {
        self.walks.begin();
        let before = &self.live[index];
        let nested = &self.groups[index].nested;
        let mut kept = before.kept;
        let mut raw: Grid<Outcome> = Live::default().subs;
        for network in [TCP, UDP] {
            for family in [V4, V6] {
                // What a group has kept from the past may differ, its own or that of one below.
                let as_v4 = |child: &usize| {
                    let subs = &self.live[*child].subs[network];
                    subs[V4] == subs[V6]
                };
                if family == V6
                    && same
                    && before.kept[network][V4] == before.kept[network][V6]
                    && nested.iter().all(as_v4)
                {
                    raw[network][V6] = raw[network][V4].clone();
                    kept[network][V6] = kept[network][V4];
                    continue;
                }
                let found = self.pick(index, network, family, &mut vec![index]);
                if let Ok((Some(at), _)) = &found {
                    kept[network][family] = Some(*at);
                }
                raw[network][family] = found.map(|(_, pick)| pick);
            }
        }
        let group = &*self.groups[index];
        let above = &mut vec![index];
        let mut subs = Live::default().subs;
        let mut tops = Live::default().tops;
        for network in [TCP, UDP] {
            for family in [V4, V6] {
                let own = raw[network][family].clone();
                subs[network][family] =
                    own.or_else(|refuse| self.final_(group, refuse, network, family, above));
            }
            let last = self.last_resort(index, network);
            let otherwise = |refuse| last.clone().ok_or(refuse);
            let [v4, v6] = &raw[network];
            tops[network][V4] = subs[network][V4].clone().or_else(otherwise);
            let ordinary = |pick: &&Outcome| matches!(pick, Ok(p) if !p.via_final);
            let of_two = [v6, v4].into_iter().find(ordinary);
            let of_two = of_two.or_else(|| [v6, v4].into_iter().find(|p| p.is_ok()));
            tops[network][V6] = match of_two {
                Some(pick) => pick.clone(),
                None => {
                    let first = subs[network][V6].clone();
                    first
                        .or_else(|_| subs[network][V4].clone())
                        .or_else(otherwise)
                }
            };
        }
        Live { tops, subs, kept }
    }

    /// Steps 1 to 4: a member by choice or policy, and where it leads. The place of the member
    /// is told where the policy is to keep it.
    fn pick(
        &self,
        index: usize,
        network: usize,
        family: usize,
        above: &mut Vec<usize>,
    ) -> Result<(Option<u32>, Pick), Refuse> {
        let group = &*self.groups[index];
        if let Some((at, source)) = group.fixed(network) {
            self.candidate(index, at, network, family, above)?;
            let pick = self.lead(index, at, source, network, family, above)?;
            return Ok((None, pick));
        }
        let count = group.members.len() as u32;
        let mut cold = false;
        let at = match group.def.policy {
            // Without a member there is nothing fixed.
            Policy::Selector => None,
            Policy::Score => {
                let field = self.field(index, network, family, above);
                return field.map(|pick| (None, pick));
            }
            Policy::UrlTest => {
                let fastest = self.fastest(index, network, family, above);
                cold = fastest.is_some_and(|(_, measured)| !measured);
                fastest.map(|(at, _)| at)
            }
            Policy::Fallback => {
                let pinned = self.live[index].kept[network][family];
                let eligible = |at| self.candidate(index, at, network, family, above).is_ok();
                fallback::first(pinned, count, eligible)
            }
            Policy::LoadBalance => {
                let turn = self.turn(index, network, family, above);
                return turn.map(|pick| (None, pick));
            }
        };
        let Some(at) = at else {
            return Err(self.obstacle(index, network, family, above));
        };
        let mut pick = self.lead(index, at, Source::Auto, network, family, above)?;
        pick.settled &= group.def.policy == Policy::Fallback;
        pick.cold = cold;
        Ok((Some(at), pick))
    }

    /// The place of the fastest member, and whether there was anything to tell it by.
    fn fastest(
        &self,
        index: usize,
        network: usize,
        family: usize,
        above: &mut Vec<usize>,
    ) -> Option<(u32, bool)> {
        let group = &*self.groups[index];
        let mut measured = false;
        let incumbent = self.live[index].kept[network][family];
        let scan = self.scan(index, network, family);
        measured |= scan.as_ref().is_some_and(|found| found.measured);
        let best = {
            let mut runner = |at: u32| {
                let candidate = self.candidate(index, at, network, family, above).ok()?;
                measured |= candidate.latency.is_finite();
                Some(Runner {
                    at,
                    latency: candidate.latency,
                    struck: candidate.struck,
                })
            };
            let count = group.members.len() as u32;
            match scan {
                // The incumbent once more, and behind all: of equals it is not the first.
                Some(found) => {
                    let nested = (group.nodes.len() as u32..count).chain(incumbent);
                    let others = nested.filter_map(&mut runner);
                    let runners = found.best.into_iter().chain(others);
                    urltest::fastest(runners, incumbent, group.tolerance())?
                }
                None => {
                    let runners = (0..count).filter_map(&mut runner);
                    urltest::fastest(runners, incumbent, group.tolerance())?
                }
            }
        };
        if network == UDP && !measured {
            // No evidence of its own: what serves TCP (G-131).
            if let Ok((Some(at), pick)) = self.pick(index, TCP, family, above)
                && self.candidate(index, at, UDP, family, above).is_ok()
            {
                return Some((at, !pick.cold));
            }
        }
        Some((best.at, measured))
    }

    fn turn(&self, index: usize, network: usize, family: usize, above: &mut Vec<usize>) -> Outcome {
        let group = &*self.groups[index];
        let count = group.nodes.len();
        let mut eligible = |at: &u32| {
            let candidate = self.candidate(index, *at, network, family, above);
            candidate.is_ok()
        };
        let scan = self.scan(index, network, family);
        let nodes: Arc<[u32]> = match scan {
            Some(found) => found.able,
            None => {
                let able = (0..count as u32).filter(&mut eligible);
                able.map(|at| group.nodes[at as usize]).collect()
            }
        };
        let able: Vec<u32> = (count as u32..group.members.len() as u32)
            .filter(&mut eligible)
            .collect();
        let mut nested = Vec::new();
        let mut via_final = nodes.is_empty();
        for at in able {
            let pick = self.lead(index, at, Source::Auto, network, family, above)?;
            via_final &= pick.via_final;
            nested.push(pick.lead);
        }
        if nodes.is_empty() && nested.is_empty() {
            return Err(self.obstacle(index, network, family, above));
        }
        // Every way down is kept ready, and balancing groups in balancing groups multiply them.
        if nested.iter().map(Lead::ways).sum::<usize>() > MAX_WAYS {
            return Err(Refuse::Depth);
        }
        Ok(Pick {
            lead: Lead::Turn(Arc::new(Turn {
                counter: Arc::clone(&group.counters[network]),
                nodes,
                way: Arc::clone(&group.way),
                nested: nested.into(),
            })),
            source: Source::Auto,
            via_final,
            settled: false,
            cold: false,
        })
    }

    /// Why no member may serve.
    pub(super) fn obstacle(
        &self,
        index: usize,
        network: usize,
        family: usize,
        above: &mut Vec<usize>,
    ) -> Refuse {
        let group = &*self.groups[index];
        let scan = self.scan(index, network, family);
        let (from, first) = match &scan {
            Some(found) => (group.nodes.len() as u32, found.obstacle),
            None => (0, Refuse::NoMember),
        };
        let refused = (from..group.members.len() as u32)
            .filter_map(|at| self.candidate(index, at, network, family, above).err());
        refused.fold(first, Refuse::worse)
    }

    /// What the direct nodes of a group have to offer, if nothing of the group's own changes how
    /// they are judged.
    fn scan(&self, index: usize, network: usize, family: usize) -> Option<Found> {
        if !self.judges_like_everybody(index, network) {
            return None;
        }
        let list = self.shape.list_of[index];
        let scans = self.scans?;
        Some(scans.of(list, network, family, self.marks).clone())
    }

    /// The same for whoever ranks them.
    pub(super) fn offered(&self, index: usize, network: usize, family: usize) -> Option<Ranked> {
        if !self.judges_like_everybody(index, network) {
            return None;
        }
        let list = self.shape.list_of[index];
        let ranked = self
            .scans?
            .ranked(list, network, family, (self.marks, self.nodes()));
        Some(ranked.clone())
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.shape.leaves
    }

    /// What is known of a member, or why it may not serve (step 3).
    pub(super) fn candidate(
        &self,
        index: usize,
        at: u32,
        network: usize,
        family: usize,
        above: &mut Vec<usize>,
    ) -> Result<Candidate, Refuse> {
        let group = &*self.groups[index];
        let mark = match group.nodes.get(at as usize) {
            Some(leaf) => {
                let mark = self.under_url(index, at, network, family, *leaf);
                mark.eligible()?;
                mark
            }
            None => {
                let child = group.nested[at as usize - group.nodes.len()];
                let leaf = self.sub(child, network, family, above, |sub| {
                    sub.as_ref().map(|pick| pick.lead.first()).map_err(|e| *e)
                })?;
                let mark = self.under_url(index, at, network, family, leaf);
                // The child has judged its leaf; here only the own `check_url` speaks.
                if self.has_url_mark(index, at, network) && !mark.alive {
                    return Err(Refuse::AllDead);
                }
                mark
            }
        };
        Ok(Candidate {
            latency: (mark.latency + group.extra(at)).max(0.0),
            struck: mark.struck,
        })
    }

    /// Where an eligible member leads.
    pub(super) fn lead(
        &self,
        index: usize,
        at: u32,
        source: Source,
        network: usize,
        family: usize,
        above: &mut Vec<usize>,
    ) -> Outcome {
        let group = &*self.groups[index];
        if let Some(leaf) = group.nodes.get(at as usize) {
            return Ok(own_leaf(group, *leaf, source));
        }
        let child = group.nested[at as usize - group.nodes.len()];
        self.sub(child, network, family, above, |sub| {
            sub.as_ref().map_err(|e| *e).map(|pick| Pick {
                lead: pick.lead.below(&group.way),
                source,
                cold: false,
                ..pick.clone()
            })
        })
    }

    /// What a nested group contributes; its own `final` included (G-083), a last resort not.
    /// Member and final edges share one bound (G-093).
    fn sub<T>(
        &self,
        index: usize,
        network: usize,
        family: usize,
        above: &mut Vec<usize>,
        read: impl FnOnce(&Outcome) -> T,
    ) -> T {
        if self.shape.is_regular(index, above.len()) {
            return read(&self.live[index].subs[network][family]);
        }
        if above.contains(&index) {
            return read(&Err(Refuse::FinalCycle));
        }
        if above.len() == MAX_DEPTH {
            return read(&Err(Refuse::Depth));
        }
        if self.shape.leads_back[index] {
            if !self.walks.step() {
                return read(&Err(Refuse::Depth));
            }
            return read(&self.walk(index, network, family, above));
        }
        // No way leads back, so that of the groups above only their number counts.
        let spot = (index, above.len(), network, family);
        let found = self.walks.known(&spot).unwrap_or_else(|| {
            let found = Rc::new(self.walk(index, network, family, above));
            self.walks.learn(spot, Rc::clone(&found));
            found
        });
        read(&found)
    }

    /// What a nested group contributes, worked out.
    fn walk(&self, index: usize, network: usize, family: usize, above: &mut Vec<usize>) -> Outcome {
        above.push(index);
        let pick = self
            .pick(index, network, family, above)
            .map(|(_, pick)| pick);
        let group = &self.groups[index];
        let pick = pick.or_else(|refuse| self.final_(group, refuse, network, family, above));
        above.pop();
        pick
    }

    fn final_(
        &self,
        group: &Group,
        refuse: Refuse,
        network: usize,
        family: usize,
        above: &mut Vec<usize>,
    ) -> Outcome {
        let pick = match &group.final_ {
            Final::None => return Err(refuse),
            Final::Missing => return Err(Refuse::FinalMissing),
            Final::Node(node) => match self.shape.places(node.id).first() {
                Some(&leaf) => {
                    let mark = &self.marks[leaf as usize][network][family];
                    mark.eligible()
                        .map(|()| own_leaf(group, leaf, Source::Final))
                }
                None => Err(Refuse::FinalMissing),
            },
            Final::Group(index) => self.sub(*index, network, family, above, |sub| {
                sub.as_ref().map_err(|e| *e).map(|pick| Pick {
                    lead: pick.lead.below(&group.way),
                    ..pick.clone()
                })
            }),
        };
        match pick {
            Ok(pick) => Ok(Pick {
                source: Source::Final,
                via_final: true,
                cold: false,
                ..pick
            }),
            Err(cycle @ (Refuse::FinalMissing | Refuse::FinalCycle | Refuse::Depth)) => Err(cycle),
            // The first obstacle says more than that the fallback has one, too.
            Err(_) => Err(refuse),
        }
    }

    /// The same leaf in spite of its TCP health, when the group leads to nothing else
    /// (G-096). Choices are followed; a `final` on the way would have been the answer.
    fn last_resort(&self, index: usize, network: usize) -> Option<Pick> {
        if network != TCP || self.shape.leaf_counts[index] != 1 {
            return None;
        }
        let lead = self.only_leaf(index, 0, &mut HashSet::new())?;
        // Switched off is not the same as dead.
        let enabled = self.marks[lead.first() as usize][TCP][V4].enabled;
        enabled.then_some(Pick {
            lead,
            source: Source::LastResort,
            via_final: false,
            settled: true,
            cold: false,
        })
    }

    /// `vain`: groups that were asked at a depth without success.
    fn only_leaf(
        &self,
        index: usize,
        depth: usize,
        vain: &mut HashSet<(usize, usize)>,
    ) -> Option<Lead> {
        let group = &*self.groups[index];
        if depth == MAX_DEPTH || group.final_ != Final::None || vain.contains(&(index, depth)) {
            return None;
        }
        let mut follow = |at: u32| match group.nodes.get(at as usize) {
            Some(&leaf) => Some(Lead::Leaf(leaf, Arc::clone(&group.way))),
            None => {
                let child = group.nested[at as usize - group.nodes.len()];
                let lead = self.only_leaf(child, depth + 1, vain)?;
                Some(lead.below(&group.way))
            }
        };
        let found = match group.fixed(TCP) {
            Some((at, _)) => follow(at),
            None => (0..group.members.len() as u32).find_map(follow),
        };
        if found.is_none() {
            vain.insert((index, depth));
        }
        found
    }

    /// Latency and strikes of a member as the policy sees them; `None` where it may not serve.
    pub(super) fn ranked(
        &self,
        index: usize,
        at: u32,
        network: usize,
        family: usize,
    ) -> Option<(f64, bool)> {
        let candidate = self.candidate(index, at, network, family, &mut vec![index]);
        candidate.ok().map(|c| (c.latency, c.struck))
    }

    /// The leaf a direct member stands for, or why it stands for none.
    pub(super) fn leaf(
        &self,
        index: usize,
        at: u32,
        network: usize,
        family: usize,
    ) -> Result<u32, Refuse> {
        let lead = self.leads(index, at, network, family)?;
        Ok(lead.first())
    }

    /// Where a direct member leads, if it may serve.
    pub(super) fn leads(
        &self,
        index: usize,
        at: u32,
        network: usize,
        family: usize,
    ) -> Result<Lead, Refuse> {
        let above = &mut vec![index];
        self.candidate(index, at, network, family, above)?;
        let pick = self.lead(index, at, Source::First, network, family, above)?;
        Ok(pick.lead)
    }

    /// Whether the node behind a leaf is switched off.
    pub(super) fn is_enabled(&self, node: NodeId) -> bool {
        let leaf = self.shape.places(node).first();
        leaf.is_none_or(|leaf| self.marks[*leaf as usize][TCP][V4].enabled)
    }
}

fn own_leaf(group: &Group, leaf: u32, source: Source) -> Pick {
    Pick {
        lead: Lead::Leaf(leaf, Arc::clone(&group.way)),
        source,
        via_final: false,
        settled: true,
        cold: false,
    }
}
