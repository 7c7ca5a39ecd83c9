//! Score groups as whoever ranks for them sees them: what each is to learn about, what it offers
//! now, and where a flow may go again.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use super::{
    field::{By, Field, Ranker, Ranks},
    live::V4,
    pick::{Lead, Source},
    rivals::{Rival, dialable},
    table::{Final, GroupTable, fam, net},
};
use crate::{
    config::Policy,
    id::{Family, GroupId, MemberId, Network},
    score::{Cand, GroupMembers, Membership, NodeKey},
};

impl GroupTable {
    /// The same groups with somebody who ranks the leaves of Score groups.
    #[must_use]
    pub fn ranked_by(self, ranks: Arc<dyn Ranks>) -> Self {
        Self { ranks, ..self }
    }

    /// The Score groups of a generation, and what each is to learn about.
    pub fn scores(&self, generation: u64) -> Membership {
        let mut membership = Membership {
            generation,
            ..Membership::default()
        };
        for (index, group) in self.groups.iter().enumerate() {
            if group.def.policy == Policy::Score {
                let (leaves, finals) = self.learned_about(index);
                membership.groups.push(GroupMembers {
                    group: group.key(),
                    leaves,
                    finals,
                });
            } else {
                membership.dormant.push(group.key());
            }
        }
        membership
    }

    /// Distinct leaves over members, and those that only a `final` on some way leads to.
    fn learned_about(&self, index: usize) -> (Vec<NodeKey>, Vec<NodeKey>) {
        let mut known = HashSet::new();
        let mut seen = vec![false; self.groups.len()];
        let mut open = VecDeque::from([index]);
        let mut reached = Vec::new();
        let mut gather = |open: &mut VecDeque<usize>, reached: &mut Vec<usize>| {
            let mut found = Vec::new();
            while let Some(index) = open.pop_front() {
                if std::mem::replace(&mut seen[index], true) {
                    continue;
                }
                reached.push(index);
                let group = &self.groups[index];
                let nodes = group
                    .nodes
                    .iter()
                    .map(|&leaf| &self.shape.leaves[leaf as usize]);
                let fresh = nodes.filter(|node| dialable(node) && known.insert(node.id));
                found.extend(fresh.map(|node| NodeKey::from(node.id)));
                open.extend(&*group.nested);
            }
            found
        };
        let leaves = gather(&mut open, &mut reached);
        let mut finals = Vec::new();
        let mut lasts = HashSet::new();
        let mut at = 0;
        while let Some(&index) = reached.get(at) {
            at += 1;
            match &self.groups[index].final_ {
                Final::Node(node) if dialable(node) && lasts.insert(node.id) => {
                    finals.push(node.id.into());
                }
                Final::Group(last) => {
                    open.push_back(*last);
                    finals.extend(gather(&mut open, &mut reached));
                }
                Final::Node(_) | Final::None | Final::Missing => {}
            }
        }
        (leaves, finals)
    }

    /// What a Score group has to choose among for flows to IPv4 targets now, for a look at it; the
    /// one leaf where something else has decided.
    pub fn offered(&self, group: GroupId, network: Network) -> Option<Vec<Cand>> {
        let index = self.index_of(group)?;
        let group = &self.groups[index];
        let pick = self.live[index].tops[net(network)][V4].as_ref().ok()?;
        if group.def.policy != Policy::Score || pick.source == Source::Final {
            return None;
        }
        let nodes = &*self.shape.leaves;
        if let Lead::Score(field) = &pick.lead {
            return Some(field.view(nodes, &*self.ranks));
        }
        let (leaf, way) = pick.lead.follow(nodes, &mut By::Look(&*self.ranks))?;
        let node = nodes[leaf as usize].id;
        let member = match way.ids.get(1) {
            Some(nested) => MemberId::Group(*nested),
            None => MemberId::Node(node),
        };
        let at = group.members.iter().position(|m| m.id() == member)?;
        Some(vec![Cand {
            node: node.into(),
            member: at as u32,
        }])
    }

    /// Another leaf for a flow that came through `groups` and whose own one failed: of the same
    /// Score group, over the same ways (S-332). `None` where no Score group decided.
    pub fn again(
        &self,
        groups: &[GroupId],
        network: Network,
        target: Family,
        ranker: &mut dyn Ranker,
    ) -> Option<Rival> {
        let index = self.index_of(*groups.first()?)?;
        let pick = self.live[index].tops[net(network)][fam(target)].as_ref();
        let field = along(&pick.ok()?.lead, groups)?;
        let nodes = &*self.shape.leaves;
        let by = &mut By::Serve(ranker, &*self.ranks);
        let (leaf, way) = field.choose(nodes, by)?;
        let leaf = &nodes[leaf as usize];
        if let By::Serve(ranker, _) = by {
            ranker.found(&way.scores, leaf.id.into(), network);
        }
        dialable(leaf).then(|| Rival {
            leaf: Arc::clone(leaf),
            path: Arc::clone(&way.path),
            groups: Arc::clone(&way.ids),
        })
    }
}

/// The first Score group on a way that was taken, if it had a say.
fn along<'a>(lead: &'a Lead, ids: &[GroupId]) -> Option<&'a Field> {
    match lead {
        Lead::Leaf(..) => None,
        Lead::Score(field) => ids.starts_with(&field.way.ids).then_some(&**field),
        Lead::Turn(turn) => turn.nested.iter().find_map(|lead| along(lead, ids)),
    }
}
