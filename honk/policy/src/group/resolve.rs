//! What a group selects for a network: choice, else `default`, else the first member, and
//! from there to one leaf.
//!
//! Health and capability never move a selection to a sibling (G-122, G-124): only an explicit
//! `final`, or for TCP the very same leaf as last resort, may continue.

use std::{collections::HashSet, sync::Arc};

use super::{
    builtin,
    graph::MAX_DEPTH,
    health::Health,
    member::Member,
    table::{Final, Group},
};
use crate::{
    id::{Domain, Family, MemberId, Network, NodeId, Uuid},
    node::Node,
};

/// The outcome of a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The node to dial; `direct` and `block` included.
    pub leaf: Arc<Node>,
    /// Group names from the outermost to the innermost; empty for the built-in slots.
    pub path: Arc<[Arc<str>]>,
    /// Ids of the groups of `path`, then the leaf's.
    pub ids: Arc<[Uuid]>,
    /// The member it came through; `None` when `final` or a built-in slot serves.
    pub member: Option<MemberId>,
    /// Why this one.
    pub source: Source,
    /// Name of the outermost group's `final`, when it serves.
    pub final_used: Option<Arc<str>>,
}

/// What decided a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A choice made at run time.
    Choice,
    /// `default:`.
    Default,
    /// The first member.
    First,
    /// The only leaf, though its health speaks against it.
    LastResort,
    /// `final:`.
    Final,
}

impl Source {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Choice => "choice",
            Self::Default => "default",
            Self::First => "first",
            Self::LastResort => "last_resort",
            Self::Final => "final",
        }
    }
}

/// Why a group selects nothing: the flow is dropped, never sent direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refuse {
    /// No member, or no group in the slot.
    #[error("the group has no member")]
    NoMember,
    /// The selected leaf is dead.
    #[error("the selected node is dead")]
    AllDead,
    /// The selected leaf carries no UDP.
    #[error("the selected node carries no UDP")]
    UdpIncapable,
    /// `final` names nothing that exists.
    #[error("the group's final does not exist")]
    FinalMissing,
    /// `final` leads back to the group.
    #[error("the group's final leads back to it")]
    FinalCycle,
    /// More than eight groups on the way.
    #[error("groups nest deeper than {MAX_DEPTH}")]
    Depth,
}

impl Refuse {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoMember => "no_member",
            Self::AllDead => "all_dead",
            Self::UdpIncapable => "udp_incapable",
            Self::FinalMissing => "final_missing",
            Self::FinalCycle => "final_cycle",
            Self::Depth => "depth",
        }
    }
}

/// Resolves groups of one snapshot for one network.
pub(super) struct Resolver<'a> {
    pub(super) groups: &'a [Arc<Group>],
    pub(super) health: &'a dyn Health,
    pub(super) network: Network,
}

/// A leaf with the groups on the way to it, outermost first.
struct Pick {
    leaf: Arc<Node>,
    path: Vec<usize>,
    source: Source,
}

impl Resolver<'_> {
    /// What the group at `index` selects.
    pub(super) fn select(&self, index: usize) -> Result<Selected, Refuse> {
        let pick = self.resolve(index, &mut Vec::new());
        let pick = pick.or_else(|refuse| self.last_resort(index).ok_or(refuse))?;
        let group = &self.groups[index];
        let final_used = match pick.source {
            Source::Final => group.final_name.clone(),
            _ => None,
        };
        let member = match pick.source {
            Source::Final => None,
            _ => self.member(group).map(|(m, _)| m.id()),
        };
        let groups = pick.path.iter().map(|&i| &self.groups[i]);
        let ids = groups
            .clone()
            .map(|g| g.id.0)
            .chain([pick.leaf.id.0])
            .collect();
        Ok(Selected {
            path: groups.map(|g| Arc::clone(&g.name)).collect(),
            ids,
            member,
            source: pick.source,
            final_used,
            leaf: pick.leaf,
        })
    }

    /// The leaf a direct member stands for, or why it stands for none.
    pub(super) fn leaf(&self, group: usize, member: &Member) -> Result<Arc<Node>, Refuse> {
        self.follow(member, &mut vec![group]).map(|pick| pick.leaf)
    }

    /// The member selected by choice, default or order; eligibility plays no part (G-121).
    pub(super) fn member<'g>(&self, group: &'g Group) -> Option<(&'g Member, Source)> {
        let by_id = |id: &MemberId| group.members.iter().find(|m| m.id() == *id);
        let choice = group.choice(self.network).as_ref().and_then(by_id);
        let choice = choice.map(|m| (m, Source::Choice));
        let default = || group.default_member().map(|m| (m, Source::Default));
        let first = || group.members.first().map(|m| (m, Source::First));
        choice.or_else(default).or_else(first)
    }

    /// `above`: the groups on the way here. Member and final edges share its bound (G-093).
    fn resolve(&self, index: usize, above: &mut Vec<usize>) -> Result<Pick, Refuse> {
        if above.contains(&index) {
            return Err(Refuse::FinalCycle);
        }
        if above.len() == MAX_DEPTH {
            return Err(Refuse::Depth);
        }
        above.push(index);
        let group = &self.groups[index];
        let pick = match self.member(group) {
            Some((member, source)) => self.follow(member, above).map(|p| Pick { source, ..p }),
            None => Err(Refuse::NoMember),
        };
        let pick = pick.or_else(|refuse| self.final_(group, refuse, above));
        above.pop();
        pick
    }

    fn follow(&self, member: &Member, above: &mut Vec<usize>) -> Result<Pick, Refuse> {
        match member {
            Member::Node(node) => self.node(node, above),
            Member::Group { index, .. } => self.resolve(*index, above),
        }
    }

    fn node(&self, node: &Arc<Node>, above: &[usize]) -> Result<Pick, Refuse> {
        self.eligible(node)?;
        Ok(Pick {
            leaf: Arc::clone(node),
            path: above.to_vec(),
            source: Source::First,
        })
    }

    fn eligible(&self, node: &Node) -> Result<(), Refuse> {
        if builtin::is_builtin(node) {
            return Ok(());
        }
        if self.network == Network::Udp && !node.protocol.udp() {
            return Err(Refuse::UdpIncapable);
        }
        match self.alive(node.id) {
            true => Ok(()),
            false => Err(Refuse::AllDead),
        }
    }

    /// Alive over some family: UDP is carried by either of its domains, and by TCP's word for a
    /// node whose UDP was never observed (G-106).
    fn alive(&self, node: NodeId) -> bool {
        let alive = |domain, family| self.health.state(node, domain, family).map(|s| s.alive);
        let over = |family| match self.network {
            Network::Tcp => alive(Domain::Tcp, family).unwrap_or(true),
            Network::Udp => {
                let [dns, data] = [Domain::DnsUdp, Domain::DataUdp].map(|d| alive(d, family));
                match (dns, data) {
                    (None, None) => alive(Domain::Tcp, family).unwrap_or(true),
                    (dns, data) => dns == Some(true) || data == Some(true),
                }
            }
        };
        !self.health.disabled(node) && Family::ALL.into_iter().any(over)
    }

    fn final_(
        &self,
        group: &Group,
        refuse: Refuse,
        above: &mut Vec<usize>,
    ) -> Result<Pick, Refuse> {
        let pick = match &group.final_ {
            Final::None => return Err(refuse),
            Final::Missing => return Err(Refuse::FinalMissing),
            Final::Node(node) => self.node(node, above),
            Final::Group(index) => self.resolve(*index, above),
        };
        match pick {
            Ok(pick) => Ok(Pick {
                source: Source::Final,
                ..pick
            }),
            Err(cycle @ (Refuse::FinalMissing | Refuse::FinalCycle | Refuse::Depth)) => Err(cycle),
            // The first obstacle says more than that the fallback has one, too.
            Err(_) => Err(refuse),
        }
    }

    /// The same leaf in spite of its TCP health, when the group leads to nothing else
    /// (G-096). Choices are followed; a `final` on the way would have been the answer.
    fn last_resort(&self, index: usize) -> Option<Pick> {
        if self.network != Network::Tcp || self.leaves(index).len() != 1 {
            return None;
        }
        let mut path = Vec::new();
        let mut index = index;
        loop {
            let group = &self.groups[index];
            if path.len() == MAX_DEPTH || group.final_ != Final::None {
                return None;
            }
            path.push(index);
            match self.member(group)?.0 {
                Member::Group { index: nested, .. } => index = *nested,
                Member::Node(leaf) => {
                    return Some(Pick {
                        leaf: Arc::clone(leaf),
                        path,
                        source: Source::LastResort,
                    });
                }
            }
        }
    }

    /// Distinct nodes below a group, over members only.
    pub(super) fn leaves(&self, index: usize) -> Vec<&Arc<Node>> {
        let mut leaves: Vec<&Arc<Node>> = Vec::new();
        let mut known = HashSet::new();
        let mut seen = vec![false; self.groups.len()];
        let mut open = vec![index];
        while let Some(group) = open.pop() {
            if std::mem::replace(&mut seen[group], true) {
                continue;
            }
            for member in &*self.groups[group].members {
                match member {
                    Member::Group { index, .. } => open.push(*index),
                    Member::Node(node) if known.insert(node.id) => leaves.push(node),
                    Member::Node(_) => {}
                }
            }
        }
        leaves
    }
}
