//! A configuration becomes active: what it keeps, what it ends (section 16 of the design).

use super::{
    Engine,
    call::{GroupMembers, Membership},
    cell::{Layer, PROBE_SLOTS, Pressure, ProbeSlot},
    clock::T,
    group::Group,
    ids::{GroupKey, NodeKey},
};

impl Engine {
    /// Takes over the groups of a configuration. Evidence of leaves that stay is kept, that of
    /// others goes; baselines of checks, availability, pools, reservations and outcomes of trials
    /// start again; currency and counters stay with the group's name. One that is not newer than
    /// the last is ignored.
    pub fn activate(&mut self, now: T, membership: &Membership) {
        if self.activated.is_some() && membership.generation <= self.generation {
            return;
        }
        self.generation = membership.generation;
        self.activated = Some(now);
        self.take_groups(membership);
        self.sweep_cells(now, Layer::Group);
        self.sweep_cells(now, Layer::Exact);
        let evidence = &mut self.evidence;
        let groups = &self.groups;
        let keep = |group: GroupKey, node: NodeKey| belongs(groups, group, node);
        evidence.store.clear_probes(&mut evidence.targets);
        evidence.store.retain(&mut evidence.targets, keep);
        self.history.retain(&mut evidence.targets, keep);
    }

    fn take_groups(&mut self, membership: &Membership) {
        let named = |key: GroupKey| {
            membership.dormant.contains(&key) || membership.groups.iter().any(|g| g.group == key)
        };
        self.groups.retain(|group| named(group.key));
        for group in &mut self.groups {
            group.scored = false;
        }
        for GroupMembers {
            group,
            leaves,
            finals,
        } in &membership.groups
        {
            let at = match self.groups.binary_search_by_key(group, |held| held.key) {
                Ok(at) => at,
                Err(_) if self.groups.len() >= super::consts::GROUPS => {
                    self.dropped.groups = self.dropped.groups.saturating_add(1);
                    continue;
                }
                Err(at) => {
                    self.groups.insert(at, Group::new(*group));
                    at
                }
            };
            self.groups[at].scored = true;
            self.groups[at].join(leaves, finals);
        }
        for group in self.groups.iter_mut().filter(|group| !group.scored) {
            group.join(&[], &[]);
        }
    }

    /// Ends cells of who is gone; in the others, what a reload invalidates.
    fn sweep_cells(&mut self, now: T, layer: Layer) {
        for slot in 0..self.evidence.cells.store_mut(layer).width() {
            let store = self.evidence.cells.store_mut(layer);
            let Some((key, _)) = store.at(slot) else {
                continue;
            };
            if !belongs(&self.groups, key.group, key.node) {
                self.evidence.remove(layer, slot);
            } else if let Some(cell) = store.at_mut(slot) {
                cell.probes = [ProbeSlot::default(); PROBE_SLOTS];
                cell.pressure = [Pressure::default(); 2];
                cell.cohort.restart(now);
                cell.lease_until = None;
            }
        }
    }
}

fn belongs(groups: &[Group], group: GroupKey, node: NodeKey) -> bool {
    let at = groups.binary_search_by_key(&group, |held| held.key);
    at.is_ok_and(|at| groups[at].scored && groups[at].has(node))
}
