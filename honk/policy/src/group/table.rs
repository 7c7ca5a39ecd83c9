//! The snapshot: groups with their members, slots and worked-out selections.

use std::sync::Arc;

use honk_common::outbound::{
    self, FAMS, NET_DNS, NET_TCP, NET_UDP, STATE_BLOCK, STATE_DEAD, STATE_DIRECT, USER_FIRST,
};
use honk_grammar::diag::Diagnostic;

use super::{
    assembly::{self, Assembly},
    builtin,
    health::{AllAlive, Health},
    member::Member,
    resolve::{Refuse, Resolver, Selected, Source},
    slot::Retired,
};
use crate::{
    config::{Config, GroupDef},
    id::{GroupId, MemberId, Network, Ordinal, Uuid},
    node::{Node, Protocol},
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
    /// Direct members in order.
    pub members: Arc<[Member]>,
    /// Raised by every change of the choices.
    pub selection_revision: u64,
    /// Findings about this group.
    pub warnings: Arc<[Diagnostic]>,
    pub(super) choices: [Option<MemberId>; 2],
    pub(super) default: Option<usize>,
    pub(super) final_: Final,
    pub(super) final_name: Option<Arc<str>>,
    pub(super) final_cyclic: bool,
    /// Nested groups taken out because they lead back here.
    pub(super) cut: Arc<[usize]>,
}

impl Group {
    pub(super) fn choice(&self, network: Network) -> &Option<MemberId> {
        &self.choices[net(network)]
    }

    pub(super) fn default_member(&self) -> Option<&Member> {
        self.members.get(self.default?)
    }

    /// The first member of that name (G-060), nodes before nested groups (G-065).
    pub fn member_named(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.name() == name)
    }

    /// The choice made at run time, whether or not it is the selection.
    pub fn chosen(&self, network: Network) -> Option<MemberId> {
        *self.choice(network)
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

/// An immutable snapshot of all groups.
#[derive(Clone, Debug)]
pub struct GroupTable {
    pub(super) groups: Vec<Arc<Group>>,
    pub(super) health: Arc<dyn Health>,
    pub(super) nodes: Arc<[Arc<Node>]>,
    pub(super) retired: Vec<Retired>,
    /// By slot and network; `None` where no group is.
    picks: Vec<[Option<Result<Selected, Refuse>>; 2]>,
}

impl GroupTable {
    /// The groups of a configuration. Slots, ids and choices of groups that `previous` has by
    /// name are carried over; slots of those that vanished are [`retired`](Self::retired). An
    /// error among the findings means that the table must not be published. Names that nobody
    /// declares are no finding here: the lowering reports them, with their place.
    pub fn build(
        config: &Config,
        previous: Option<&Self>,
        new_id: &mut dyn FnMut() -> Uuid,
    ) -> (Self, Vec<Diagnostic>) {
        Self::of(&config.nodes, &config.groups, previous, new_id)
    }

    pub(super) fn of(
        nodes: &[Node],
        defs: &[GroupDef],
        previous: Option<&Self>,
        new_id: &mut dyn FnMut() -> Uuid,
    ) -> (Self, Vec<Diagnostic>) {
        let nodes = assembly::shared_nodes(nodes, previous);
        let mut findings = Vec::new();
        let (slots, retired) = assembly::slots(defs, previous, &mut findings);
        let ids = defs.iter().map(|def| {
            let old = previous.and_then(|p| p.group_named(&def.name));
            old.map_or_else(|| GroupId(new_id()), |g| g.id)
        });
        let ids: Vec<GroupId> = ids.collect();
        let groups = Assembly::new(defs, &nodes, ids, slots).groups(previous, &mut findings);
        let health = previous.map_or_else(|| Arc::new(AllAlive) as _, |p| Arc::clone(&p.health));
        let mut table = Self {
            groups,
            health,
            nodes,
            retired,
            picks: Vec::new(),
        };
        table.resolve();
        (table, findings)
    }

    /// The same groups judged by other health.
    #[must_use]
    pub fn with_health(&self, health: Arc<dyn Health>) -> Self {
        let mut table = Self {
            health,
            ..self.clone()
        };
        table.resolve();
        table
    }

    /// What the outbound selects; no work, no allocation.
    pub fn select(&self, slot: Ordinal, network: Network) -> Result<&Selected, Refuse> {
        let pick = self.picks.get(usize::from(slot.0));
        match pick.and_then(|by_net| by_net[net(network)].as_ref()) {
            Some(Ok(selected)) => Ok(selected),
            Some(Err(refuse)) => Err(*refuse),
            None => Err(Refuse::NoMember),
        }
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
        let mut slots = Vec::new();
        for group in self.groups.iter().filter(|g| outbound::is_user(g.slot.0)) {
            for (net, network) in [
                (NET_TCP, Network::Tcp),
                (NET_DNS, Network::Udp),
                (NET_UDP, Network::Udp),
            ] {
                let bits = state_bits(self.select(group.slot, network));
                for v6 in [false, true] {
                    slots.push((outbound::group_slot(group.slot.0, net, v6), bits));
                }
            }
        }
        debug_assert_eq!(slots.len() % (3 * FAMS as usize), 0);
        slots
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
        &self.nodes
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

    pub(super) fn resolver(&self, network: Network) -> Resolver<'_> {
        Resolver {
            groups: &self.groups,
            health: &*self.health,
            network,
        }
    }

    pub(super) fn index_of(&self, id: GroupId) -> Option<usize> {
        self.groups.iter().position(|g| g.id == id)
    }

    /// Works out all selections anew.
    pub(super) fn resolve(&mut self) {
        let mut picks = vec![[None, None]; 256];
        for (slot, node) in [
            (outbound::DIRECT, builtin::direct()),
            (outbound::BLOCK, builtin::block()),
        ] {
            let selected = built_in(node);
            picks[usize::from(slot)] = [Some(Ok(selected.clone())), Some(Ok(selected))];
        }
        for network in [Network::Tcp, Network::Udp] {
            let resolver = self.resolver(network);
            for (index, group) in self.groups.iter().enumerate() {
                if outbound::is_user(group.slot.0) {
                    let pick = resolver.select(index);
                    picks[usize::from(group.slot.0)][net(network)] = Some(pick);
                }
            }
        }
        self.picks = picks;
    }
}

/// Index of a network in pairs.
pub(super) fn net(network: Network) -> usize {
    match network {
        Network::Tcp => 0,
        Network::Udp => 1,
    }
}

fn built_in(node: &Arc<Node>) -> Selected {
    Selected {
        leaf: Arc::clone(node),
        path: Arc::new([]),
        ids: Arc::new([node.id.0]),
        member: None,
        source: Source::First,
        final_used: None,
    }
}

/// All picks are a selector's or a `final`, so the kernel may act on the built-ins itself.
fn state_bits(pick: Result<&Selected, Refuse>) -> u32 {
    match pick.map(|p| &p.leaf.protocol) {
        Err(_) => STATE_DEAD,
        Ok(Protocol::Direct) => STATE_DIRECT,
        Ok(Protocol::Block) => STATE_BLOCK,
        Ok(_) => 0,
    }
}
