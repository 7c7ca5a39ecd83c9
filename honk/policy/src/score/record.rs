//! How findings and ends of attempts become evidence: each once, for every Score group the
//! attempt passed through, into cells that still are the ones it was begun under.

use super::{
    cell::{Cell, CellKey, CellRef, Cells, Layer, Scope, TargetScope},
    clock::T,
    compare::{CmpKey, Metric, Sample, Store, TrafficKey},
    ids::NodeKey,
    outcome::{Hard, Marks},
    recovery,
    reporter::Findings,
    targets::Targets,
    wm::Wm,
    work::Reported,
};

/// Where evidence is kept.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) cells: Cells,
    pub(super) store: Store,
    pub(super) targets: Targets,
    /// Counts what happens to cells; a cell is known by the tick it was made in.
    pub(super) tick: u64,
}

/// An attempt as its cells see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) serial: u64,
    pub(super) begun: T,
}

/// What of the findings was taken by the most specific cell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) received: bool,
    pub(super) responded: bool,
}

impl Evidence {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            cells: Cells::new(),
            store: Store::new(),
            targets: Targets::new(seed),
            tick: 0,
        }
    }

    /// The next tick.
    pub(super) fn next_tick(&mut self) -> u64 {
        self.tick = self.tick.saturating_add(1);
        self.tick
    }

    /// The cells of a node in a scope, made where they are missing.
    pub(super) fn open(&mut self, scope: &Scope, node: NodeKey) -> [Option<CellRef>; 3] {
        let group = self.open_one(Layer::Group, scope.group_key(node), None);
        let mut lower =
            |layer, key: Option<CellKey>| key.map(|key| self.open_one(layer, key, Some(group)));
        let family = lower(Layer::Family, scope.family_key(node));
        let exact = lower(Layer::Exact, scope.exact_key(node));
        // Making a family cell may push the group cell out of a full store only when that holds
        // nothing but one entry; the group cell was used last.
        [Some(group), family, exact]
    }

    fn open_one(&mut self, layer: Layer, key: CellKey, under: Option<CellRef>) -> CellRef {
        let parent = under
            .and_then(|at| self.cells.get(at))
            .map(|(_, cell)| cell);
        let tick = self.tick + 1;
        let store = match layer {
            Layer::Group | Layer::Family => &self.cells.aggregate,
            Layer::Exact => &self.cells.exact,
        };
        let found = store.find(&key);
        let current = found.and_then(|slot| {
            let (_, cell) = store.at(slot)?;
            let fits = parent.is_none_or(|p| p.incarnation == cell.parent);
            fits.then_some((slot, cell.incarnation))
        });
        if let Some((slot, incarnation)) = current {
            let store = self.cells.store_mut(layer);
            store.touch(slot);
            return CellRef {
                layer,
                slot,
                incarnation,
            };
        }
        let fresh = Cell::new(tick, parent);
        self.tick = tick;
        if let Some(stale) = found {
            self.remove(layer, stale);
        }
        if let Some(target) = key.target {
            self.targets.retain(target);
        }
        let (slot, evicted) = self.cells.store_mut(layer).insert(key, fresh);
        if let Some((key, _)) = evicted {
            self.gone(&key);
        }
        CellRef {
            layer,
            slot,
            incarnation: tick,
        }
    }

    /// Takes a cell out, with everything that rests on it.
    pub(super) fn remove(&mut self, layer: Layer, slot: u32) {
        if let Some((key, _)) = self.cells.store_mut(layer).remove(slot) {
            self.gone(&key);
        }
    }

    /// Comparisons rest on live cells only.
    fn gone(&mut self, key: &CellKey) {
        match (traffic_key(key), key.family) {
            (Some(traffic), _) => {
                self.store.forget_exact(&mut self.targets, &traffic);
                self.targets.release(traffic.target);
            }
            (None, Some(_)) => {}
            (None, None) => {
                let targets = &mut self.targets;
                self.store
                    .forget_node(targets, key.group, key.network, key.node);
            }
        }
    }

    /// Writes findings of an attempt into its cells of one group.
    pub(super) fn take(
        &mut self,
        now: T,
        attempt: Attempt,
        cells: &mut [Option<Reported>; 3],
        found: &Findings,
    ) -> Taken {
        let mut taken = Taken::default();
        let Some(fence) = self.fence_of(cells) else {
            return taken;
        };
        for reported in cells.iter_mut().flatten() {
            let Some(cell) = self.cells.get_mut(reported.at) else {
                continue;
            };
            cell.inherit(fence);
            if let Some(at) = found.rx {
                let credited = &mut reported.credited;
                taken.received = recovery::received(cell, now, at, fence, credited);
            }
            perform(cell, now, reported.at.layer, found);
        }
        taken.responded = found.response.is_some();
        self.compare(now, attempt, cells, found);
        taken
    }

    /// Setup of a connection made ahead of use.
    pub(super) fn warm(&mut self, now: T, cells: &[Option<Reported>; 3], millis: f64) {
        let group = cells[0].and_then(|reported| self.cells.get_mut(reported.at));
        if let Some(cell) = group {
            cell.warm_setup.record(now, millis);
        }
    }

    /// Writes the end of an attempt into its cells of one group.
    pub(super) fn end(
        &mut self,
        now: T,
        attempt: Attempt,
        cells: &[Option<Reported>; 3],
        (marks, hard): (Marks, Hard),
    ) {
        let Some(fence) = self.fence_of(cells) else {
            return;
        };
        for at in cells.iter().flatten().map(|reported| reported.at) {
            let Some(cell) = self.cells.get_mut(at) else {
                continue;
            };
            cell.inherit(fence);
            cell.mark(now, marks);
            if counts_against(cell, at.layer, hard) {
                recovery::failed(cell, now, attempt.begun);
                self.drop_comparisons(at);
            }
        }
    }

    /// The fence of the group cell; nothing when that cell is gone: what lies under it says
    /// nothing any more.
    fn fence_of(&self, cells: &[Option<Reported>; 3]) -> Option<Option<T>> {
        let (_, group) = self.cells.get(cells[0]?.at)?;
        Some(group.fence)
    }

    fn drop_comparisons(&mut self, at: CellRef) {
        let Some((key, _)) = self.cells.get(at) else {
            return;
        };
        let targets = &mut self.targets;
        match (at.layer, traffic_key(key)) {
            (Layer::Group, _) => {
                self.store
                    .forget_node(targets, key.group, key.network, key.node);
            }
            (Layer::Exact, Some(traffic)) => self.store.forget_exact(targets, &traffic),
            (Layer::Exact | Layer::Family, _) => {}
        }
    }

    fn compare(
        &mut self,
        now: T,
        attempt: Attempt,
        cells: &[Option<Reported>; 3],
        found: &Findings,
    ) {
        let Some((key, cell)) = cells[2].and_then(|reported| self.cells.get(reported.at)) else {
            return;
        };
        let after_fence = cell.fence.is_none_or(|fence| now > fence);
        let Some(traffic) = traffic_key(key).filter(|_| after_fence) else {
            return;
        };
        let metrics = [
            (Metric::Response, found.response),
            (Metric::Up, found.up),
            (Metric::Down, found.down),
        ];
        for (metric, value) in metrics {
            let Some(value) = value else {
                continue;
            };
            let sample = Sample {
                metric,
                at: now,
                value,
                reporter: attempt.serial,
            };
            let key = CmpKey::Traffic(traffic);
            self.store.record(&mut self.targets, now, key, sample);
        }
    }
}

/// What a comparison of business is kept under; only exact cells have one.
fn traffic_key(key: &CellKey) -> Option<TrafficKey> {
    Some(TrafficKey {
        group: key.group,
        network: key.network,
        family: key.family?,
        target: key.target?,
        node: key.node,
    })
}

fn counts_against(cell: &mut Cell, layer: Layer, hard: Hard) -> bool {
    match hard {
        Hard::No => false,
        Hard::Exact => layer == Layer::Exact,
        Hard::All => true,
        Hard::Shared(event) => {
            let new = event > cell.last_event;
            cell.last_event = cell.last_event.max(event);
            new
        }
    }
}

/// Performance of a cell. On an exact cell, a sample far above a settled mean also makes older
/// comparisons doubtful (S-116).
fn perform(cell: &mut Cell, now: T, layer: Layer, found: &Findings) {
    let slow = |mean: &Wm, sample: f64| {
        layer == Layer::Exact
            && mean
                .read(now)
                .is_some_and(|p| p.confidence >= 1.0 && sample > 1.5 * p.value.max(1.0))
    };
    let mut degraded = false;
    if let Some(millis) = found.setup {
        degraded |= slow(&cell.setup, millis);
        cell.setup.record(now, millis);
    }
    if let Some(millis) = found.response {
        degraded |= slow(&cell.response, millis);
        cell.response.record(now, millis);
    }
    if degraded {
        cell.degraded_at = Some(now);
    }
    if let Some(rate) = found.up {
        cell.up.record(now, rate);
    }
    if let Some(rate) = found.down {
        cell.down.record(now, rate);
    }
}

/// Scope of a target that is kept, or of all.
pub(super) fn target_scope(target: Option<super::ids::TargetId>) -> TargetScope {
    target.map_or(TargetScope::Any, TargetScope::One)
}
