//! Evidence cells: what is known of a node in one scope, and the two bounded stores of them.
//!
//! The group cell of a node spans families, the family cells lie under it, and the exact cells
//! (one target each) under those. A cell that lost its group cell says nothing any more.

use super::{
    clock::T,
    cohort::Cohort,
    consts::CELLS,
    decay::Fade,
    ids::{GroupKey, NodeKey, TargetId, mix},
    lru::{Key, Lru},
    outcome::Marks,
    rel::Counts,
    wm::Wm,
};
use crate::id::{Domain, Family, Network};

/// Of which scope, about which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellKey {
    pub(super) node: NodeKey,
    pub(super) group: GroupKey,
    pub(super) target: Option<TargetId>,
    pub(super) network: Network,
    pub(super) family: Option<Family>,
}

/// A scope of evidence: what a flow has in common with others of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) group: GroupKey,
    pub(super) network: Network,
    pub(super) family: Option<Family>,
    pub(super) target: TargetScope,
}

#[cfg(test)]
impl Scope {
    /// TCP flows of one group, whatever their target.
    pub(super) const TEST: Self = Self {
        group: GroupKey(1),
        network: Network::Tcp,
        family: None,
        target: TargetScope::Any,
    };
}

/// Whether a scope is about one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetScope {
    /// It is about all of them.
    Any,
    /// About one that nothing is kept of yet.
    New,
    /// About this one.
    One(TargetId),
}

/// A cell as its writers know it: gone when another one is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellRef {
    pub(super) layer: Layer,
    pub(super) slot: u32,
    pub(super) incarnation: u64,
}

/// How wide a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Group,
    Family,
    Exact,
}

/// What is known of a node in a scope.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// When it was made, in ticks of the engine.
    pub(super) incarnation: u64,
    /// The group cell it was made under; its own incarnation for a group cell.
    pub(super) parent: u64,
    counts: Counts,
    updated_at: Option<T>,
    pub(super) setup: Wm,
    pub(super) response: Wm,
    pub(super) up: Wm,
    pub(super) down: Wm,
    /// Setup of connections made ahead of use; group cells only.
    pub(super) warm_setup: Wm,
    /// Configured checks by [`slot_of`]; group cells only.
    pub(super) probes: [ProbeSlot; PROBE_SLOTS],
    pub(super) cohort: Cohort,
    /// What lies before it proves nothing about now.
    pub(super) fence: Option<T>,
    pub(super) failed_at: Option<T>,
    pub(super) lease_until: Option<T>,
    pub(super) degraded_at: Option<T>,
    pub(super) explore_not_before: Option<T>,
    /// Hints about the connection to the server, by family; group cells only.
    pub(super) pressure: [Pressure; 2],
    /// When a trial last answered such a hint; group cells only.
    pub(super) validated_at: Option<T>,
    /// The last shared event that was counted.
    pub(super) last_event: u64,
    /// When the node was last given work, in ticks of the engine.
    pub(super) selected_tick: u64,
    pub(super) streak: u32,
    pub(super) backoff_step: u8,
}

/// Results of one configured check.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProbeSlot {
    pub(super) mean: Wm,
    /// Identity of the check; another one starts afresh.
    pub(super) scope: u64,
}

/// The last hint about a carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pressure {
    pub(super) at: Option<T>,
    pub(super) rtt: bool,
    pub(super) loss: bool,
}

/// Domains times families of probes.
pub(super) const PROBE_SLOTS: usize = 6;

/// The largest a cell may be (S-309).
const _: () = assert!(size_of::<Cell>() <= 640);

/// Where results of a check are kept.
pub(super) fn slot_of(domain: Domain, family: Family) -> usize {
    domain as usize * 2 + family as usize
}

impl Key for CellKey {
    fn bits(&self) -> u64 {
        let target = self.target.map_or(0, |t| u64::from(t.0) + 1);
        let family = self.family.map_or(0, |f| f as u64 + 1);
        let scope = target << 32 | family << 8 | self.network as u64;
        mix(scope, self.node.bits() ^ u64::from(self.group.0))
    }
}

impl Scope {
    /// Key of the group cell of a node.
    pub(super) fn group_key(&self, node: NodeKey) -> CellKey {
        CellKey {
            node,
            group: self.group,
            target: None,
            network: self.network,
            family: None,
        }
    }

    /// Key of its family cell, in a scope with a family.
    pub(super) fn family_key(&self, node: NodeKey) -> Option<CellKey> {
        Some(CellKey {
            family: Some(self.family?),
            ..self.group_key(node)
        })
    }

    /// Key of its exact cell, in a scope with a known target.
    pub(super) fn exact_key(&self, node: NodeKey) -> Option<CellKey> {
        let TargetScope::One(target) = self.target else {
            return None;
        };
        Some(CellKey {
            target: Some(target),
            ..self.family_key(node)?
        })
    }

    /// Whether it is about one target.
    pub(super) fn is_targeted(&self) -> bool {
        self.target != TargetScope::Any
    }
}

impl Cell {
    /// A cell nothing is known in. `parent` is absent for a group cell.
    pub(super) fn new(incarnation: u64, parent: Option<&Self>) -> Self {
        Self {
            incarnation,
            parent: parent.map_or(incarnation, |p| p.incarnation),
            counts: Counts::default(),
            updated_at: None,
            setup: Wm::default(),
            response: Wm::default(),
            up: Wm::default(),
            down: Wm::default(),
            warm_setup: Wm::default(),
            probes: [ProbeSlot::default(); PROBE_SLOTS],
            cohort: Cohort::default(),
            fence: parent.and_then(|p| p.fence),
            failed_at: None,
            lease_until: None,
            degraded_at: None,
            explore_not_before: None,
            pressure: [Pressure::default(); 2],
            validated_at: None,
            last_event: 0,
            selected_tick: 0,
            streak: 0,
            backoff_step: 0,
        }
    }

    /// Reliability counters as of now.
    pub(super) fn counts(&self, now: T) -> Counts {
        self.faded(&mut Fade::new(now))
    }

    /// As [`counts`](Self::counts), one of several cells.
    pub(super) fn faded(&self, fade: &mut Fade) -> Counts {
        let Some(at) = self.updated_at else {
            return Counts::default();
        };
        let left = fade.since(at);
        Counts {
            ok: self.counts.ok * left,
            bad: self.counts.bad * left,
            set_up: self.counts.set_up * left,
            not_set_up: self.counts.not_set_up * left,
        }
    }

    /// Counts an end.
    pub(super) fn mark(&mut self, now: T, marks: Marks) {
        let mut counts = self.counts(now);
        counts.ok += marks.ok;
        counts.bad += marks.bad;
        counts.set_up += marks.set_up;
        counts.not_set_up += marks.not_set_up;
        self.counts = counts;
        self.updated_at = Some(self.updated_at.map_or(now, |at| at.max(now)));
    }

    /// Takes over a newer fence of the group cell: what was measured before it no longer counts.
    /// Reliability and unresolved failures stay.
    pub(super) fn inherit(&mut self, fence: Option<T>) {
        let Some(fence) = fence.filter(|f| self.fence.is_none_or(|own| *f > own)) else {
            return;
        };
        self.fence = Some(fence);
        self.cohort.restart(fence);
        self.lease_until = None;
        for mean in [
            &mut self.setup,
            &mut self.response,
            &mut self.up,
            &mut self.down,
        ] {
            *mean = Wm::default();
        }
    }
}

/// Both stores.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) aggregate: Lru<CellKey, Cell>,
    pub(super) exact: Lru<CellKey, Cell>,
}

/// The cells of a node that apply to a scope.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layers<'a> {
    pub(super) group: Option<&'a Cell>,
    pub(super) family: Option<&'a Cell>,
    pub(super) exact: Option<&'a Cell>,
}

impl Cells {
    pub(super) fn new() -> Self {
        Self {
            aggregate: Lru::new(CELLS),
            exact: Lru::new(CELLS),
        }
    }

    /// What applies to a node in a scope; cells of an earlier group cell do not.
    pub(super) fn layers(&self, scope: &Scope, node: NodeKey) -> Layers<'_> {
        let Some(group) = self.aggregate.get(&scope.group_key(node)) else {
            return Layers::default();
        };
        let current = |cell: &&Cell| cell.parent == group.incarnation;
        let family = scope
            .family_key(node)
            .and_then(|key| self.aggregate.get(&key));
        let exact = scope.exact_key(node).and_then(|key| self.exact.get(&key));
        Layers {
            group: Some(group),
            family: family.filter(current),
            exact: exact.filter(current),
        }
    }

    /// The cell a writer was given, if it is still that one.
    pub(super) fn get(&self, at: CellRef) -> Option<(&CellKey, &Cell)> {
        let store = match at.layer {
            Layer::Group | Layer::Family => &self.aggregate,
            Layer::Exact => &self.exact,
        };
        store
            .at(at.slot)
            .filter(|(_, cell)| cell.incarnation == at.incarnation)
    }

    /// As [`get`](Self::get), to be changed; it becomes the most recently used one.
    pub(super) fn get_mut(&mut self, at: CellRef) -> Option<&mut Cell> {
        self.get(at)?;
        let store = self.store_mut(at.layer);
        store.touch(at.slot);
        store.at_mut(at.slot)
    }

    /// Where cells of a layer are.
    pub(super) fn store_mut(&mut self, layer: Layer) -> &mut Lru<CellKey, Cell> {
        match layer {
            Layer::Group | Layer::Family => &mut self.aggregate,
            Layer::Exact => &mut self.exact,
        }
    }
}
