//! The snapshot: groups with their members, slots and worked-out selections.

use std::{
    collections::HashSet,
    rc::Rc,
    sync::{Arc, LazyLock},
};

use honk_common::outbound::{
    self, FAMS, NET_DNS, NET_TCP, NET_UDP, STATE_BLOCK, STATE_DEAD, STATE_DIRECT, USER_FIRST,
};
use honk_grammar::diag::Diagnostic;

use super::{
    activity::Activity,
    assembly::{self, Assembly},
    builtin,
    field::{By, Ranker, Ranks, Unranked},
    health::{AllAlive, Health},
    live::{Live, Resolver, TCP},
    member::Member,
    pick::{Counter, Lead, Outcome, Pick, Refuse, Selected, Source, Way},
    shape::{self, Shape},
    slot::Retired,
    standing::{Standing, UrlMark},
    view::ToleranceSource,
};
use crate::{
    config::{Config, GroupDef, Places, Typed},
    id::{Family, GroupId, MemberId, Network, NodeId, Ordinal, Uuid},
    node::{Node, Protocol},
    score::GroupKey,
};

/// One group of a snapshot.
#[derive(Clone, Debug)]
pub struct Group {
    /// Identity.
    pub id: GroupId,
    /// Name.
    pub name: Arc<str>,
    /// Number in the kernel; `block` for a group that got none.
    pub slot: Ordinal,
    /// As declared.
    pub def: Arc<GroupDef>,
    /// Direct members in order: nodes, then nested groups.
    pub members: Arc<[Member]>,
    /// Raised by every published change of a choice, a pin or an automatic selection.
    pub selection_revision: u64,
    /// Findings about this group.
    pub warnings: Arc<[Diagnostic]>,
    /// Choices of a selector, pins of an automatic group.
    pub(super) choices: [Option<MemberId>; 2],
    /// When they were made, in Unix milliseconds.
    pub(super) chosen_at: [u64; 2],
    /// When the selected member became another one; 0 is not since the start.
    pub(super) since: [u64; 2],
    /// The member that no policy replaces, by network.
    pub(super) fixed: [Option<(u32, Source)>; 2],
    pub(super) default: Option<usize>,
    pub(super) final_: Final,
    pub(super) final_name: Option<Arc<str>>,
    pub(super) final_cyclic: bool,
    /// Nested groups taken out because they lead back here.
    pub(super) cut: Arc<[usize]>,
    /// Leaves that are direct members, in order.
    pub(super) nodes: Arc<[u32]>,
    /// Nested groups, in order.
    pub(super) nested: Arc<[usize]>,
    /// Added to the latency of each direct node; empty when nothing is.
    pub(super) extra: Arc<[f64]>,
    pub(super) tolerance_ms: u16,
    pub(super) tolerance_source: ToleranceSource,
    /// The way that consists of this group.
    pub(super) way: Arc<Way>,
    /// Whose turn it is in a loadbalance group, by network.
    pub(super) counters: [Arc<Counter>; 2],
    pub(super) activity: Arc<Activity>,
}

impl Group {
    pub(super) fn default_member(&self) -> Option<&Member> {
        self.members.get(self.default?)
    }

    /// The first member of that name (G-060), nodes before nested groups (G-065).
    pub fn member_named(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.name() == name)
    }

    /// The choice or pin made at run time, whether or not it is the selection.
    pub fn chosen(&self, network: Network) -> Option<MemberId> {
        self.choices[net(network)]
    }

    /// Its number for Score: that of its slot, which stays with its name.
    pub fn key(&self) -> GroupKey {
        GroupKey(u32::from(self.slot.0))
    }

    /// Whether a policy decides, and a member that is written is a pin.
    pub fn is_automatic(&self) -> bool {
        assembly::is_automatic(self.def.policy)
    }

    /// Use by real traffic: whoever probes the members of a urltest group asks here.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn fixed(&self, network: usize) -> Option<(u32, Source)> {
        self.fixed[network]
    }

    /// Works out anew which members are fixed; eligibility plays no part (G-121).
    pub(super) fn fix(&mut self) {
        let place = |id: MemberId| self.members.iter().position(|m| m.id() == id);
        self.fixed = self.choices.map(|choice| {
            let chosen = choice.and_then(place);
            let (at, source) = match (chosen, self.default) {
                (Some(at), _) if self.is_automatic() => (at, Source::Pin),
                (Some(at), _) => (at, Source::Choice),
                (None, _) if self.is_automatic() || self.members.is_empty() => return None,
                (None, Some(at)) => (at, Source::Default),
                (None, None) => (0, Source::First),
            };
            Some((at as u32, source))
        });
    }

    /// `add_latency` of a member.
    pub(super) fn extra(&self, at: u32) -> f64 {
        self.extra.get(at as usize).copied().unwrap_or(0.0)
    }

    /// What must be gained for urltest to switch, in milliseconds.
    pub(super) fn tolerance(&self) -> f64 {
        f64::from(self.tolerance_ms.max(1))
    }
}

/// Where `final:` leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Final {
    None,
    /// A node, built-ins included.
    Node(Arc<Node>),
    Group(usize),
    Missing,
}

impl Final {
    pub(super) fn group(&self) -> Option<usize> {
        match self {
            Self::Group(index) => Some(*index),
            Self::None | Self::Node(_) | Self::Missing => None,
        }
    }
}

/// An immutable snapshot of all groups. Cloning it copies pointers.
#[derive(Clone, Debug)]
pub struct GroupTable {
    pub(super) groups: Vec<Arc<Group>>,
    pub(super) shape: Arc<Shape>,
    pub(super) health: Arc<dyn Health>,
    /// Who ranks the leaves of Score groups for those who only look.
    pub(super) ranks: Arc<dyn Ranks>,
    pub(super) marks: Arc<[Standing]>,
    pub(super) urls: Vec<Option<Arc<[UrlMark]>>>,
    pub(super) live: Vec<Arc<Live>>,
    pub(super) retired: Vec<Retired>,
}

/// Ways of the slots that belong to no group.
static NO_WAY: LazyLock<Way> = LazyLock::new(Way::none);

/// Tolerance where nobody says anything, in milliseconds.
const TOLERANCE: u16 = 50;

impl GroupTable {
    /// The groups of a configuration. Slots, ids, choices, pins and what policies remember of
    /// groups that `previous` has by name are carried over; slots of those that vanished are
    /// [`retired`](Self::retired). An error among the findings means that the table must not be
    /// published. Names that nobody declares are no finding here: the lowering reports them,
    /// with their place.
    pub fn build(
        config: &Config,
        previous: Option<&Self>,
        new_id: &mut dyn FnMut() -> Uuid,
    ) -> (Self, Vec<Diagnostic>) {
        Self::build_with(config, Vec::new(), previous, new_id)
    }

    /// The same with nodes of subscriptions after the static ones. A node that is there already
    /// is not taken twice.
    pub fn build_with(
        config: &Config,
        fetched: Vec<Node>,
        previous: Option<&Self>,
        new_id: &mut dyn FnMut() -> Uuid,
    ) -> (Self, Vec<Diagnostic>) {
        let mut seen: HashSet<NodeId> = config.nodes.iter().map(|n| n.id).collect();
        let mut nodes = config.nodes.clone();
        nodes.extend(fetched.into_iter().filter(|node| seen.insert(node.id)));
        let tolerance = match config.settings.get("global.check_tolerance") {
            Some(Typed::Millis(ms)) => {
                let ms = u16::try_from(*ms).unwrap_or(u16::MAX);
                (ms, ToleranceSource::Global)
            }
            _ => (TOLERANCE, ToleranceSource::Default),
        };
        Self::of(
            &nodes,
            (&config.groups, &config.places),
            tolerance,
            previous,
            new_id,
        )
    }

    pub(super) fn of(
        nodes: &[Node],
        (defs, places): (&[GroupDef], &Places),
        tolerance: (u16, ToleranceSource),
        previous: Option<&Self>,
        new_id: &mut dyn FnMut() -> Uuid,
    ) -> (Self, Vec<Diagnostic>) {
        let nodes = assembly::shared_nodes(nodes, previous);
        let mut findings = Vec::new();
        let (slots, retired) = assembly::slots(defs, places, previous, &mut findings);
        let ids = defs.iter().map(|def| {
            let old = previous.and_then(|p| p.group_named(&def.name));
            old.map_or_else(|| GroupId(new_id()), |g| g.id)
        });
        let ids: Vec<GroupId> = ids.collect();
        let assembly = Assembly::new((defs, places), &nodes, ids, slots, tolerance);
        let groups = assembly.groups(previous, &mut findings);
        let health = previous.map_or_else(|| Arc::new(AllAlive) as _, |p| Arc::clone(&p.health));
        let ranks = previous.map_or_else(|| Arc::new(Unranked) as _, |p| Arc::clone(&p.ranks));
        let shape = Shape::new(shape::leaves(&nodes), &groups);
        let mut table = Self {
            live: groups
                .iter()
                .map(|g| Arc::new(remembered(g, previous)))
                .collect(),
            groups,
            shape: Arc::new(shape),
            health,
            ranks,
            marks: Arc::new([]),
            urls: Vec::new(),
            retired,
        };
        table.judge_all();
        (table, findings)
    }

    /// What the outbound selects for targets of a family; changes nothing, allocates nothing.
    pub fn select(
        &self,
        slot: Ordinal,
        network: Network,
        target: Family,
    ) -> Result<Selected<'_>, Refuse> {
        self.read(slot, network, target, &mut By::Look(&*self.ranks))
    }

    /// The same for a flow that will be served: turns advance, and groups on the way are in
    /// use. No lock, no allocation.
    pub fn apply(
        &self,
        slot: Ordinal,
        network: Network,
        target: Family,
    ) -> Result<Selected<'_>, Refuse> {
        self.serve(slot, network, target, &mut Unranked)
    }

    /// The same with somebody who ranks the leaves of Score groups for this flow, and is asked
    /// only where the flow meets one.
    pub fn serve(
        &self,
        slot: Ordinal,
        network: Network,
        target: Family,
        ranker: &mut dyn Ranker,
    ) -> Result<Selected<'_>, Refuse> {
        let by = &mut By::Serve(ranker, &*self.ranks);
        self.read(slot, network, target, by)
    }

    fn read(
        &self,
        slot: Ordinal,
        network: Network,
        target: Family,
        by: &mut By<'_>,
    ) -> Result<Selected<'_>, Refuse> {
        match self.shape.in_slot(slot.0) {
            Some(index) => self.selected(index, net(network), fam(target), by),
            None => match slot.0 {
                outbound::DIRECT => Ok(built_in(builtin::direct())),
                outbound::BLOCK => Ok(built_in(builtin::block())),
                _ => Err(Refuse::NoMember),
            },
        }
    }

    pub(super) fn selected(
        &self,
        index: usize,
        network: usize,
        target: usize,
        by: &mut By<'_>,
    ) -> Result<Selected<'_>, Refuse> {
        let pick = self.live[index].tops[network][target].as_ref();
        let pick = pick.map_err(|refuse| *refuse)?;
        let nodes = &*self.shape.leaves;
        let (leaf, way) = pick.lead.follow(nodes, by).ok_or(Refuse::AllDead)?;
        let leaf = &nodes[leaf as usize];
        let mut woke = false;
        if let By::Serve(ranker, _) = by {
            woke = way.touch();
            if !way.scores.is_empty() {
                let network = [Network::Tcp, Network::Udp][network];
                ranker.found(&way.scores, leaf.id.into(), network);
            }
        }
        let served_by_final = pick.source == Source::Final;
        Ok(Selected {
            leaf,
            path: &way.path,
            groups: &way.ids,
            member: (!served_by_final).then(|| match way.ids.get(1) {
                Some(nested) => MemberId::Group(*nested),
                None => MemberId::Node(leaf.id),
            }),
            source: pick.source,
            final_used: match &self.groups[index].final_name {
                Some(name) if served_by_final => Some(name),
                _ => None,
            },
            cold: pick.cold,
            woke,
        })
    }

    /// Kernel slot of a configuration ordinal; what is no user outbound stays.
    pub fn slot_of(&self, ordinal: Ordinal) -> Ordinal {
        if !outbound::is_user(ordinal.0) {
            return ordinal;
        }
        let group = self.groups.get(usize::from(ordinal.0 - USER_FIRST));
        group.map_or(Ordinal(outbound::BLOCK), |g| g.slot)
    }

    /// Every `GROUP_STATE` element of the groups: index and bits.
    pub fn slots(&self) -> Vec<(u32, u32)> {
        let mut slots = Vec::with_capacity(self.groups.len() * 6);
        for (group, live) in self.groups.iter().zip(&self.live) {
            if !outbound::is_user(group.slot.0) {
                continue;
            }
            for (number, network) in [
                (NET_TCP, Network::Tcp),
                (NET_DNS, Network::Udp),
                (NET_UDP, Network::Udp),
            ] {
                for target in Family::ALL {
                    let bits = self.state_bits(&live.tops[net(network)][fam(target)]);
                    let v6 = target == Family::V6;
                    slots.push((outbound::group_slot(group.slot.0, number, v6), bits));
                }
            }
        }
        debug_assert_eq!(slots.len() % (3 * FAMS as usize), 0);
        slots
    }

    /// The kernel acts on a built-in itself only where no flow has a say in the selection.
    fn state_bits(&self, pick: &Outcome) -> u32 {
        let Ok(pick) = pick else { return STATE_DEAD };
        let Some(leaf) = settled_leaf(pick) else {
            return 0;
        };
        match self.shape.leaves[leaf as usize].protocol {
            Protocol::Direct => STATE_DIRECT,
            Protocol::Block => STATE_BLOCK,
            Protocol::Socks5(_) | Protocol::Http(_) | Protocol::Proxy(_) => 0,
        }
    }

    /// Whether the kernel serves flows of the group without asking, so that its use cannot be
    /// seen: it counts as used (G-136).
    pub fn kernel_serves(&self, group: GroupId) -> bool {
        let live = self.index_of(group).map(|index| &self.live[index]);
        let mut tops = live.into_iter().flat_map(|l| l.tops.iter().flatten());
        tops.any(|pick| matches!(self.state_bits(pick), STATE_DIRECT | STATE_BLOCK))
    }

    /// Groups in configuration order, implicit ones included.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &Group> {
        self.groups.iter().map(|g| &**g)
    }

    /// The group with that identity.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups().find(|g| g.id == id)
    }

    /// The group of that name.
    pub fn group_named(&self, name: &str) -> Option<&Group> {
        self.groups().find(|g| *g.name == *name)
    }

    /// The group in that slot.
    pub fn group_in(&self, slot: Ordinal) -> Option<&Group> {
        self.groups().find(|g| g.slot == slot)
    }

    /// Configured nodes in order, without the built-ins.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.shape.leaves[..self.shape.leaves.len() - 2]
    }

    /// Slots that no group may get yet.
    pub fn retired(&self) -> &[Retired] {
        &self.retired
    }

    /// The same table after the caller has seen that no flow entry carries the slot any more.
    #[must_use]
    pub fn free(&self, slot: Ordinal) -> Self {
        let mut table = self.clone();
        table.retired.retain(|r| r.slot != slot);
        table
    }

    pub(super) fn resolver(&self) -> Resolver<'_> {
        Resolver {
            groups: &self.groups,
            shape: &self.shape,
            marks: &self.marks,
            urls: &self.urls,
            live: &self.live,
            scans: None,
            walks: Rc::default(),
        }
    }

    pub(super) fn index_of(&self, id: GroupId) -> Option<usize> {
        self.groups.iter().position(|g| g.id == id)
    }

    /// The member whose change moves flows: fixed, or what the policy keeps. `None` for members
    /// in turn.
    pub(super) fn kept_member(&self, index: usize, network: usize, family: usize) -> Option<u32> {
        let fixed = self.groups[index].fixed(network).map(|(at, _)| at);
        fixed.or(self.live[index].kept[network][family])
    }

    /// The same as an identity.
    pub fn member_of(&self, group: GroupId, network: Network, target: Family) -> Option<MemberId> {
        let index = self.index_of(group)?;
        let at = self.kept_member(index, net(network), fam(target))?;
        Some(self.groups[index].members.get(at as usize)?.id())
    }
}

/// What the policy of a group remembered, with members found again by identity (G-185).
fn remembered(group: &Group, previous: Option<&GroupTable>) -> Live {
    let mut live = Live::default();
    let old = previous.and_then(|p| Some((p, p.index_of(group.id)?)));
    let Some((previous, index)) = old else {
        return live;
    };
    let before = &previous.groups[index];
    if before.def.policy != group.def.policy {
        return live;
    }
    let again = |at: u32| {
        let id = before.members.get(at as usize)?.id();
        let place = group.members.iter().position(|m| m.id() == id)?;
        Some(place as u32)
    };
    let kept = &previous.live[index].kept;
    live.kept = kept.map(|by_family| by_family.map(|at| at.and_then(again)));
    live
}

/// The leaf of a selection in which no flow has a say.
fn settled_leaf(pick: &Pick) -> Option<u32> {
    match &pick.lead {
        // What a Score group is to learn from must be seen.
        Lead::Leaf(leaf, way) if pick.settled && way.scores.is_empty() => Some(*leaf),
        Lead::Leaf(..) | Lead::Turn(_) | Lead::Score(_) => None,
    }
}

/// Index of a network in pairs.
pub(super) fn net(network: Network) -> usize {
    match network {
        Network::Tcp => TCP,
        Network::Udp => super::live::UDP,
    }
}

/// Index of a family in pairs.
pub(super) fn fam(family: Family) -> usize {
    match family {
        Family::V4 => super::live::V4,
        Family::V6 => super::live::V6,
    }
}

fn built_in(node: &'static Arc<Node>) -> Selected<'static> {
    Selected {
        leaf: node,
        path: &NO_WAY.path,
        groups: &NO_WAY.ids,
        member: None,
        source: Source::First,
        final_used: None,
        cold: false,
        woke: false,
    }
}
