//! From one snapshot to the next: what is worked out anew, and what flows must know of it.

use std::{collections::BTreeSet, rc::Rc, sync::Arc};

use super::{
    health::{Health, Without},
    live::{Live, Resolver, TCP, UDP, V4, V6},
    scan::Scans,
    standing::{self, Mark},
    table::{Final, Group, GroupTable, fam, net},
};
use crate::{
    config::Policy,
    health::Touched,
    id::{Family, GroupId, Network, NodeId},
};

/// A new snapshot with what it changes for flows.
#[derive(Clone, Debug)]
pub struct Update {
    /// The table to publish.
    pub table: GroupTable,
    /// Selections that moved.
    pub changes: Vec<Change>,
}

/// A group whose selected member is another one on a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The group.
    pub group: GroupId,
    /// Its name.
    pub name: Arc<str>,
    /// The network.
    pub network: Network,
    /// For targets of which family: IPv4, IPv6.
    pub families: [bool; 2],
    /// Why.
    pub cause: Cause,
    /// The group wants flows that it moves to be closed.
    pub interrupt: bool,
}

impl Change {
    /// Whether flows to targets of the family are meant.
    pub fn concerns(&self, network: Network, target: Family) -> bool {
        self.network == network && self.families[fam(target)]
    }
}

/// Why a selection changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A choice was made or dropped.
    User,
    /// An automatic group was told to keep to a member.
    Pin,
    /// It may choose again.
    Unpin,
    /// The policy found a better member.
    Auto,
    /// The old member may not serve any more.
    Health,
    /// The configuration changed.
    Reload,
}

impl Cause {
    /// Name in API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pin => "pin",
            Self::Unpin => "unpin",
            Self::Auto => "auto",
            Self::Health => "health",
            Self::Reload => "reload",
        }
    }
}

impl GroupTable {
    /// The same groups judged by other health. `touched` names what may differ; only groups that
    /// it can matter to are worked out anew (G-079).
    pub fn judged(&self, health: Arc<dyn Health>, touched: &Touched, at_ms: u64) -> Update {
        let mut table = Self {
            health,
            ..self.clone()
        };
        let mut work = Work::new(&table);
        let leaves = touched.nodes.iter().flat_map(|id| self.shape.places(*id));
        let mut marks: Option<Vec<standing::Standing>> = None;
        for &leaf in leaves {
            let at = leaf as usize;
            let new = standing::of(&self.shape.leaves[at], &*table.health);
            if new == self.marks[at] {
                continue;
            }
            marks.get_or_insert_with(|| self.marks.to_vec())[at] = new;
            work.leaves[at] = true;
            if new[TCP][V4].enabled != self.marks[at][TCP][V4].enabled {
                // Rare, and a last resort far above may depend on it.
                work.dirty.fill(true);
            }
            for group in self.shape.listed(leaf) {
                let matters = work.dirty[group] || self.matters(group, leaf, &new);
                work.dirty[group] = matters;
            }
        }
        if let Some(marks) = marks {
            table.marks = marks.into();
        }
        for &(group, member) in &touched.members {
            let Some(index) = self.index_of(group) else {
                continue;
            };
            let place = self.groups[index]
                .members
                .iter()
                .position(|m| m.id() == member);
            let (Some(at), Some(marks)) = (place, &mut table.urls[index]) else {
                continue;
            };
            let new = standing::under_url(&*table.health, group, member);
            if marks[at] != new {
                let mut list = marks.to_vec();
                list[at] = new;
                *marks = list.into();
                work.dirty[index] = true;
            }
        }
        table.settle(&mut work);
        let changes = table.moved_since(self, at_ms);
        Update { table, changes }
    }

    /// The same table with exactly these nodes switched off, until the health engine says so
    /// itself.
    #[must_use]
    pub fn without(self, off: BTreeSet<NodeId>) -> Self {
        let beneath = self.health.beneath();
        if off.is_empty() && beneath.is_none() {
            return self;
        }
        let mut table = self;
        let health = beneath.unwrap_or_else(|| Arc::clone(&table.health));
        table.health = match off.is_empty() {
            true => health,
            false => Arc::new(Without { off, health }),
        };
        table.judge_all();
        table
    }

    /// The same, and what that changes for flows.
    pub fn switched(&self, off: BTreeSet<NodeId>, at_ms: u64) -> Update {
        let mut table = self.clone().without(off);
        let changes = table.moved_since(self, at_ms);
        Update { table, changes }
    }

    /// Works out everything from the health at hand.
    pub(super) fn judge_all(&mut self) {
        let health = &*self.health;
        let leaves = self.shape.leaves.iter();
        self.marks = leaves.map(|node| standing::of(node, health)).collect();
        let url = |group: &Arc<Group>| {
            (group.is_automatic() && group.def.check_url.is_some()).then(|| {
                let members = group.members.iter();
                let marks = members.map(|m| standing::under_url(health, group.id, m.id()));
                marks.collect()
            })
        };
        self.urls = self.groups.iter().map(url).collect();
        let mut work = Work::new(self);
        work.dirty.fill(true);
        self.settle(&mut work);
    }

    /// Works out one group anew and whatever builds on it.
    pub(super) fn settle_from(&mut self, index: usize) {
        let mut work = Work::new(self);
        work.dirty[index] = true;
        self.settle(&mut work);
    }

    fn settle(&mut self, work: &mut Work) {
        let shape = Arc::clone(&self.shape);
        let same = self.is_same_over_families();
        let scans = Scans::new(&shape.lists);
        let mut any = false;
        for &index in &shape.order {
            if work.dirty[index] {
                any = true;
                let spread = self.settle_one(index, same, &work.leaves, &scans);
                for &parent in shape.parents[index].iter().filter(|_| spread) {
                    work.dirty[parent] = true;
                }
            }
        }
        // Where ways lead back or are too long, nothing tells which selections depend on which.
        // What they kept so far stands until all of them are worked out.
        let irregular = (0..self.groups.len()).filter(|&g| shape.heights[g].is_none());
        if any || work.dirty.contains(&true) {
            let walks = Rc::default();
            let settled = |index| {
                let resolver = Resolver {
                    scans: Some(&scans),
                    walks: Rc::clone(&walks),
                    ..self.resolver()
                };
                (index, resolver.settle(index, same))
            };
            let settled: Vec<(usize, Live)> = irregular.map(settled).collect();
            for (index, new) in settled {
                if *self.live[index] != new {
                    self.live[index] = Arc::new(new);
                }
            }
        }
    }

    /// Whether groups that build on this one have work, too.
    fn settle_one(&mut self, index: usize, same: bool, leaves: &[bool], scans: &Scans) -> bool {
        let resolver = Resolver {
            scans: Some(scans),
            ..self.resolver()
        };
        let new = resolver.settle(index, same);
        let old = &self.live[index];
        if **old != new {
            let spread = old.subs != new.subs || leads_to(&new, leaves);
            self.live[index] = Arc::new(new);
            return spread;
        }
        leads_to(old, leaves)
    }

    /// No leaf is judged differently by the family its server is reached over.
    fn is_same_over_families(&self) -> bool {
        let equal = |by_family: &[Mark; 2]| by_family[V4] == by_family[V6];
        let mut urls = self.urls.iter().flatten().flat_map(|marks| marks.iter());
        self.marks.iter().flatten().all(equal) && urls.all(|m| m.is_none_or(|m| m[V4] == m[V6]))
    }

    /// Whether a leaf's new marks can change what the group selects or how others rank it.
    fn matters(&self, index: usize, leaf: u32, new: &standing::Standing) -> bool {
        let group = &*self.groups[index];
        let old = &self.marks[leaf as usize];
        let node = self.shape.leaves[leaf as usize].id;
        if matches!(&group.final_, Final::Node(n) if n.id == node) {
            return true;
        }
        let Ok(at) = group.nodes.binary_search(&leaf) else {
            return true;
        };
        let at = at as u32;
        let listed = !self.shape.parents[index].is_empty();
        let live = &self.live[index];
        for network in [TCP, UDP] {
            let fixed = group.fixed(network).map(|(at, _)| at);
            if fixed.is_some_and(|fixed| fixed != at) {
                continue;
            }
            for family in [V4, V6] {
                let (old, new) = (&old[network][family], &new[network][family]);
                if old == new {
                    continue;
                }
                // A parent ranks the group by the leaf that stands for it.
                let stands = matches!(&live.subs[network][family], Ok(p) if p.lead.first() == leaf);
                if old.eligible() != new.eligible() || (listed && stands) {
                    return true;
                }
                let ranks = fixed.is_none() && group.def.policy == Policy::UrlTest;
                if ranks && self.outruns(index, at, network, family, old, new) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether urltest has to look again after the numbers of an eligible member changed.
    fn outruns(
        &self,
        index: usize,
        at: u32,
        network: usize,
        family: usize,
        old: &Mark,
        new: &Mark,
    ) -> bool {
        let group = &*self.groups[index];
        let Some(kept) = self.live[index].kept[network][family].filter(|kept| *kept != at) else {
            return true;
        };
        if old.struck != new.struck || old.measured() != new.measured() {
            return true;
        }
        match self.resolver().ranked(index, kept, network, family) {
            Some((held, false)) => {
                (new.latency + group.extra(at)).max(0.0) + group.tolerance() < held
            }
            _ => true,
        }
    }

    /// Automatic selections that are other ones than in `before`, noted in the groups.
    pub(super) fn moved_since(&mut self, before: &Self, at_ms: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for index in 0..self.groups.len() {
            if Arc::ptr_eq(&self.live[index], &before.live[index]) {
                continue;
            }
            let found = self.moves(index, before);
            if found.is_empty() {
                continue;
            }
            let mut group = (*self.groups[index]).clone();
            group.selection_revision += 1;
            for change in &found {
                group.since[net(change.network)] = at_ms;
            }
            self.groups[index] = Arc::new(group);
            changes.extend(found);
        }
        changes
    }

    fn moves(&self, index: usize, before: &Self) -> Vec<Change> {
        let group = &self.groups[index];
        let mut found = Vec::new();
        for network in [Network::Tcp, Network::Udp] {
            let at = net(network);
            if group.fixed(at).is_some() {
                continue;
            }
            let kept = |table: &Self, family: usize| table.live[index].kept[at][family];
            // The first selection is no change (G-137).
            let moved = |family: usize| {
                kept(before, family).is_some() && kept(before, family) != kept(self, family)
            };
            let families = [moved(V4), moved(V6)];
            let Some(family) = [V4, V6].into_iter().find(|f| families[*f]) else {
                continue;
            };
            let old = kept(before, family).unwrap_or_default();
            let cause = match self.resolver().ranked(index, old, at, family) {
                Some(_) => Cause::Auto,
                None => Cause::Health,
            };
            found.push(group.change(network, families, cause));
        }
        found
    }

    /// Groups of both tables whose selected member is another one in `newer` (G-186).
    pub fn changes(&self, newer: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (old, group) in self.groups.iter().enumerate() {
            let Some(new) = newer.index_of(group.id) else {
                continue;
            };
            changes.extend(newer.changed(new, (self, old), Cause::Reload));
        }
        changes
    }

    /// Networks on which the group selects another member than an older table's did.
    pub(super) fn changed(&self, index: usize, old: (&Self, usize), cause: Cause) -> Vec<Change> {
        let group = &self.groups[index];
        let member = |(table, index): (&Self, usize), network: usize, family: usize| {
            let at = table.kept_member(index, network, family)?;
            Some(table.groups[index].members.get(at as usize)?.id())
        };
        let mut changes = Vec::new();
        for network in [Network::Tcp, Network::Udp] {
            let at = net(network);
            let differs = |family: usize| {
                let (was, is) = (member(old, at, family), member((self, index), at, family));
                // The first selection of a policy is no change.
                let first = was.is_none() && cause == Cause::Reload && group.is_automatic();
                was != is && !first
            };
            let families = [differs(V4), differs(V6)];
            if families.contains(&true) {
                changes.push(group.change(network, families, cause));
            }
        }
        changes
    }
}

impl Group {
    fn change(&self, network: Network, families: [bool; 2], cause: Cause) -> Change {
        Change {
            group: self.id,
            name: Arc::clone(&self.name),
            network,
            families,
            cause,
            interrupt: self.def.interrupt_connections,
        }
    }
}

/// What is to be worked out anew.
struct Work {
    /// Groups.
    dirty: Vec<bool>,
    /// Leaves whose numbers changed.
    leaves: Vec<bool>,
}

impl Work {
    fn new(table: &GroupTable) -> Self {
        Self {
            dirty: vec![false; table.groups.len()],
            leaves: vec![false; table.shape.leaves.len()],
        }
    }
}

fn leads_to(live: &Live, leaves: &[bool]) -> bool {
    let picks = live.subs.iter().flatten().flatten();
    let mut firsts = picks.map(|pick| pick.lead.first());
    firsts.any(|leaf| leaves[leaf as usize])
}
