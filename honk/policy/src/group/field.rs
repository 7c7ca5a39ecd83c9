//! What a Score group offers a flow: the leaves that may serve it, prepared when something they
//! depend on changes, and the way to the one that whoever ranks them picks.
//!
//! Leaves that are direct members, and nested groups that lead to one leaf, stand in a list that
//! is only borrowed. Nested groups whose leaf differs from flow to flow (balanced ones, other
//! Score groups) are asked when the list is.

use std::{fmt, sync::Arc};

use super::{
    live::{MAX_WAYS, Resolver, UDP},
    pick::{Landing, Lead, Outcome, Pick, Refuse, Source, Way},
    rivals::dialable,
    scan::Ranked,
};
use crate::{
    id::Network,
    node::Node,
    score::{Cand, GroupKey, NodeKey},
};

/// What is to be ranked.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The group.
    pub group: GroupKey,
    /// Transport of the flow.
    pub network: Network,
    /// Distinct leaves that may serve, in order; at least one.
    pub view: &'a [Cand],
    /// Leaves that health or missing UDP keeps out.
    pub filtered: u32,
}

/// Ranks without any effect, for whoever only looks.
pub trait Ranks: fmt::Debug + Send + Sync {
    /// Place in the view of the leaf that would serve; `None` where nothing is known of the group.
    fn peek(&self, offer: &Offer<'_>) -> Option<usize>;
}

/// Ranks for one flow that will be served. Nested groups are asked after the one that leads to
/// them.
pub trait Ranker {
    /// Place in the view of the leaf that serves; `None` when none may.
    fn rank(&mut self, offer: &Offer<'_>) -> Option<usize>;
    /// The leaf is found. Those of the groups on the way that were not asked have not decided
    /// about it, but learn from it all the same.
    fn found(&mut self, groups: &[GroupKey], leaf: NodeKey, network: Network);
}

/// Where nobody ranks: the first of each view.
#[derive(Debug)]
pub struct Unranked;

impl Ranks for Unranked {
    fn peek(&self, _: &Offer<'_>) -> Option<usize> {
        None
    }
}

impl Ranker for Unranked {
    fn rank(&mut self, _: &Offer<'_>) -> Option<usize> {
        Some(0)
    }

    fn found(&mut self, _: &[GroupKey], _: NodeKey, _: Network) {}
}

/// Who ranks while a selection is followed.
pub(super) enum By<'a> {
    /// Nothing moves.
    Look(&'a dyn Ranks),
    /// Real traffic: turns advance.
    Serve(&'a mut dyn Ranker, &'a dyn Ranks),
}

impl<'a> By<'a> {
    pub(super) fn serves(&self) -> bool {
        matches!(self, Self::Serve(..))
    }

    fn ranks(&self) -> &'a dyn Ranks {
        match self {
            Self::Look(ranks) | Self::Serve(_, ranks) => *ranks,
        }
    }

    fn rank(&mut self, offer: &Offer<'_>) -> Option<usize> {
        match self {
            Self::Look(ranks) => Some(ranks.peek(offer).unwrap_or(0)),
            Self::Serve(ranker, _) => ranker.rank(offer),
        }
    }
}

/// Members of a Score group that may serve, at least one.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) key: GroupKey,
    pub(super) network: Network,
    /// Direct leaves in order, then those of nested groups that lead to one leaf.
    pub(super) cands: Arc<[Cand]>,
    /// Where the direct ones are among the table's leaves.
    pub(super) leaves: Arc<[u32]>,
    pub(super) way: Arc<Way>,
    /// Leaf and way of the candidates behind the direct ones.
    pub(super) nested: Box<[(u32, Arc<Way>)]>,
    /// Members whose leaf differs from flow to flow, by their number.
    pub(super) moving: Box<[(u32, Lead)]>,
    pub(super) filtered: u32,
}

impl Field {
    pub(super) fn below(&self, parent: &Way) -> Self {
        let nested = self.nested.iter();
        let moving = self.moving.iter();
        Self {
            key: self.key,
            network: self.network,
            cands: Arc::clone(&self.cands),
            leaves: Arc::clone(&self.leaves),
            way: Arc::new(self.way.below(parent)),
            nested: nested
                .map(|(leaf, way)| (*leaf, Arc::new(way.below(parent))))
                .collect(),
            moving: moving.map(|(at, lead)| (*at, lead.below(parent))).collect(),
            filtered: self.filtered,
        }
    }

    pub(super) fn ways(&self) -> usize {
        let moving = self.moving.iter().map(|(_, lead)| lead.ways());
        1 + self.nested.len() + moving.sum::<usize>()
    }

    /// The leaf that stands for the group where nobody ranks.
    pub(super) fn first(&self) -> u32 {
        let listed = self.listed(0).map(|(leaf, _)| leaf);
        listed.unwrap_or_else(|| self.moving[0].1.first())
    }

    /// Leaf and way of a candidate that is no moving member.
    fn listed(&self, at: usize) -> Option<(u32, &Arc<Way>)> {
        match self.leaves.get(at) {
            Some(leaf) => Some((*leaf, &self.way)),
            None => {
                let (leaf, way) = self.nested.get(at - self.leaves.len())?;
                Some((*leaf, way))
            }
        }
    }

    /// The leaf of this moment and the way to it.
    pub(super) fn choose(&self, nodes: &[Arc<Node>], by: &mut By<'_>) -> Option<(u32, &Arc<Way>)> {
        let offer = |view| Offer {
            group: self.key,
            network: self.network,
            view,
            filtered: self.filtered,
        };
        if self.moving.is_empty() {
            let at = by.rank(&offer(&self.cands))?;
            return self.listed(at).or_else(|| self.listed(0));
        }
        let (view, landings) = self.spread(nodes, by);
        let at = by.rank(&offer(&view))?;
        let landing = at.checked_sub(self.cands.len());
        match landing.and_then(|at| landings.into_iter().nth(at)) {
            Some(Landing::Leaf(leaf, way)) => Some((leaf, way)),
            Some(Landing::Field(field)) => field.choose(nodes, by),
            None => self.listed(at).or_else(|| self.listed(0)),
        }
    }

    /// All candidates for a look.
    pub(super) fn view(&self, nodes: &[Arc<Node>], ranks: &dyn Ranks) -> Vec<Cand> {
        self.spread(nodes, &By::Look(ranks)).0
    }

    /// All candidates, moving members asked, and where those lead.
    fn spread(&self, nodes: &[Arc<Node>], by: &By<'_>) -> (Vec<Cand>, Vec<Landing<'_>>) {
        let mut view = self.cands.to_vec();
        let mut landings = Vec::with_capacity(self.moving.len());
        for (member, lead) in &self.moving {
            let landing = lead.step(by.serves());
            let leaf = match &landing {
                Landing::Leaf(leaf, _) => {
                    Some(*leaf).filter(|leaf| dialable(&nodes[*leaf as usize]))
                }
                Landing::Field(field) => {
                    let seen = field.choose(nodes, &mut By::Look(by.ranks()));
                    seen.map(|(leaf, _)| leaf)
                }
            };
            let Some(leaf) = leaf else { continue };
            let node = NodeKey::from(nodes[leaf as usize].id);
            if view.iter().all(|cand| cand.node != node) {
                let member = *member;
                view.push(Cand { node, member });
                landings.push(landing);
            }
        }
        (view, landings)
    }
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(a: &Arc<[T]>, b: &Arc<[T]>) -> bool {
            Arc::ptr_eq(a, b) || a == b
        }
        self.key == other.key
            && self.filtered == other.filtered
            && same(&self.leaves, &other.leaves)
            && same(&self.cands, &other.cands)
            && self.way == other.way
            && self.nested == other.nested
            && self.moving == other.moving
    }
}

impl Resolver<'_> {
    /// What a Score group offers.
    pub(super) fn field(
        &self,
        index: usize,
        network: usize,
        family: usize,
        above: &mut Vec<usize>,
    ) -> Outcome {
        let group = &*self.groups[index];
        let count = group.nodes.len() as u32;
        let Ranked {
            mut cands,
            leaves,
            mut filtered,
        } = match self.offered(index, network, family) {
            Some(ranked) => ranked,
            None => Ranked::of(&group.nodes, self.nodes(), |at, _| {
                self.candidate(index, at, network, family, above)
                    .map(|_| ())
            }),
        };
        let mut via_final = leaves.is_empty();
        let (mut nested, mut moving) = (Vec::new(), Vec::new());
        let mut listed = Vec::new();
        for at in count..group.members.len() as u32 {
            if let Err(refuse) = self.candidate(index, at, network, family, above) {
                filtered += u32::from(matches!(refuse, Refuse::AllDead | Refuse::UdpIncapable));
                continue;
            }
            let pick = self.lead(index, at, Source::Auto, network, family, above)?;
            via_final &= pick.via_final;
            match pick.lead {
                Lead::Leaf(leaf, way) => {
                    let node = &self.nodes()[leaf as usize];
                    let cand = Cand {
                        node: node.id.into(),
                        member: at,
                    };
                    let known = cands.iter().chain(&listed).any(|c| c.node == cand.node);
                    if dialable(node) && !known {
                        listed.push(cand);
                        nested.push((leaf, way));
                    }
                }
                lead => moving.push((at, lead)),
            }
        }
        if leaves.is_empty() && nested.is_empty() && moving.is_empty() {
            // Nothing to compare, but `block` may be meant.
            let able = (0..group.members.len() as u32)
                .find(|at| self.candidate(index, *at, network, family, above).is_ok());
            return match able {
                Some(at) => self.lead(index, at, Source::Auto, network, family, above),
                None => Err(self.obstacle(index, network, family, above)),
            };
        }
        if !listed.is_empty() {
            cands = cands.iter().copied().chain(listed).collect();
        }
        let field = Field {
            key: group.key(),
            network: if network == UDP {
                Network::Udp
            } else {
                Network::Tcp
            },
            cands,
            leaves,
            way: Arc::clone(&group.way),
            nested: nested.into(),
            moving: moving.into(),
            filtered,
        };
        if field.ways() > MAX_WAYS {
            return Err(Refuse::Depth);
        }
        Ok(Pick {
            lead: Lead::Score(Arc::new(field)),
            source: Source::Auto,
            via_final,
            settled: false,
            cold: false,
        })
    }
}
