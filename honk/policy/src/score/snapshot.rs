//! What is known of a candidate in a scope, read once for a call (section 6 of the design).
//!
//! Reliability is blended from the widest layer to the most specific; completions are never
//! added over layers that overlap, the largest counts.

use super::{
    cell::{Cell, Layers, PROBE_SLOTS, Scope},
    clock::T,
    consts::{DEGRADED, N_QUAL, PRESSURE, REPORTERS},
    ids::NodeKey,
    rel::{Counts, Reliability},
    wm::{Perf, Wm},
};

/// A candidate of a call, in the order of the view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) node: NodeKey,
    /// Index in the view.
    pub(super) index: usize,
    /// Number of the direct member it came through.
    pub(super) member: u32,
    pub(super) known: Snapshot,
    /// Whether it is fit for an ordinary choice (S-121); set for the whole call.
    pub(super) eligible: bool,
    /// Its value for a first choice (S-133); set for the whole call.
    pub(super) utility: f64,
}

/// What is known of a node in a scope.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    /// Bounds and observed rate.
    pub(super) reliability: Reliability,
    /// Completions `C`: the most of a layer.
    pub(super) completions: f64,
    /// Useful completions `u`: the most of a layer.
    pub(super) useful: f64,
    /// End of the longest current lease.
    pub(super) lease_until: Option<T>,
    /// Enough useful completions, or a lease.
    pub(super) qualified: bool,
    /// Most failures in a row of a layer.
    pub(super) streak: u32,
    /// Those of the group cell alone.
    pub(super) node_streak: u32,
    /// A layer has an unresolved failure.
    pub(super) unresolved: bool,
    /// The exact cell has one.
    pub(super) exact_unresolved: bool,
    /// Came back after a failure by received data (S-114).
    pub(super) recovered: bool,
    /// The latest failure of a layer.
    pub(super) failed_at: Option<T>,
    /// No exploration before.
    pub(super) explore_not_before: Option<T>,
    /// Distinct attempts that received data lately in this very scope.
    pub(super) credits: u8,
    /// Until when it is usable in this very scope, if it is.
    pub(super) usable_until: Option<T>,
    /// Whether it is usable in the family.
    pub(super) family_usable: bool,
    /// A recent moment from which on earlier comparisons are doubtful.
    pub(super) degraded_at: Option<T>,
    /// A current hint of pressure on its carrier: when it was seen.
    pub(super) pressed_at: Option<T>,
    /// When it was last given work, in ticks of the engine.
    pub(super) selected_tick: u64,
    pub(super) setup: Layered,
    pub(super) response: Layered,
    pub(super) up: Layered,
    pub(super) down: Layered,
    pub(super) warm_setup: Option<Perf>,
    /// Configured checks with the identity of each.
    pub(super) probes: [Option<(u64, Perf)>; PROBE_SLOTS],
}

/// One metric, of all targets and of this one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layered {
    pub(super) aggregate: Option<Perf>,
    pub(super) target: Option<Perf>,
}

impl Snapshot {
    /// Reads the layers of a node.
    pub(super) fn read(now: T, scope: &Scope, layers: Layers<'_>) -> Self {
        let mut seen = Self::empty();
        let Some(group) = layers.group else {
            return seen;
        };
        let counts = group.counts(now);
        seen.reliability = Reliability::group(counts);
        seen.add(now, group, counts, group.fence);
        seen.node_streak = group.streak;
        if let Some(family) = layers.family {
            let counts = family.counts(now);
            seen.reliability = seen.reliability.family(counts);
            seen.add(now, family, counts, group.fence);
        }
        if let Some(exact) = layers.exact {
            let counts = exact.counts(now);
            seen.reliability = seen.reliability.exact(counts);
            seen.add(now, exact, counts, group.fence);
            seen.exact_unresolved = exact.streak > 0;
        }
        seen.qualified = seen.useful >= N_QUAL || seen.lease_until.is_some();
        seen.unresolved = seen.streak > 0;
        seen.read_availability(now, scope, layers);
        seen.read_performance(now, layers);
        seen
    }

    fn empty() -> Self {
        Self {
            reliability: Reliability::group(Counts::default()),
            completions: 0.0,
            useful: 0.0,
            lease_until: None,
            qualified: false,
            streak: 0,
            node_streak: 0,
            unresolved: false,
            exact_unresolved: false,
            recovered: false,
            failed_at: None,
            explore_not_before: None,
            credits: 0,
            usable_until: None,
            family_usable: false,
            degraded_at: None,
            pressed_at: None,
            selected_tick: 0,
            setup: Layered::default(),
            response: Layered::default(),
            up: Layered::default(),
            down: Layered::default(),
            warm_setup: None,
            probes: [None; PROBE_SLOTS],
        }
    }

    fn add(&mut self, now: T, cell: &Cell, counts: Counts, fence: Option<T>) {
        self.completions = self.completions.max(counts.completions());
        self.useful = self.useful.max(counts.useful());
        self.streak = self.streak.max(cell.streak);
        self.failed_at = self.failed_at.max(cell.failed_at);
        self.explore_not_before = self.explore_not_before.max(cell.explore_not_before);
        self.selected_tick = self.selected_tick.max(cell.selected_tick);
        if let Some(until) = lease(now, cell, fence) {
            self.lease_until = self.lease_until.max(Some(until));
        }
    }

    fn read_availability(&mut self, now: T, scope: &Scope, layers: Layers<'_>) {
        let Layers {
            group,
            family,
            exact,
        } = layers;
        let fence = group.and_then(|g| g.fence);
        let own = match (scope.is_targeted(), scope.family.is_some()) {
            (true, _) => exact,
            (false, true) => family,
            (false, false) => group,
        };
        let effective = |cell: &Cell| cell.fence.max(fence);
        if let Some(cell) = own {
            self.credits = cell.cohort.live(now, effective(cell));
            self.usable_until = cell.cohort.usable_until(now, effective(cell));
        }
        self.family_usable =
            family.is_some_and(|cell| cell.cohort.usable_until(now, effective(cell)).is_some());
        let back = |cell: Option<&Cell>| cell.is_some_and(|c| recovered(now, c, fence));
        self.recovered = !self.unresolved
            && if scope.is_targeted() {
                back(exact)
            } else {
                back(group) || back(family)
            };
    }

    fn read_performance(&mut self, now: T, layers: Layers<'_>) {
        let Some(group) = layers.group else {
            return;
        };
        let current = |cell: &&Cell| cell.fence >= group.fence;
        let family = layers.family.filter(current);
        let exact = layers.exact.filter(current);
        let layered = |of: fn(&Cell) -> &Wm| Layered {
            aggregate: family
                .and_then(|cell| of(cell).read(now))
                .or_else(|| of(group).read(now)),
            target: exact.and_then(|cell| of(cell).read(now)),
        };
        self.setup = layered(|cell| &cell.setup);
        self.response = layered(|cell| &cell.response);
        self.up = layered(|cell| &cell.up);
        self.down = layered(|cell| &cell.down);
        self.warm_setup = group.warm_setup.read(now);
        for (seen, slot) in self.probes.iter_mut().zip(&group.probes) {
            *seen = slot.mean.read(now).map(|perf| (slot.scope, perf));
        }
        let fresh = |at: &T, secs| !now.is_after(*at, secs);
        let hints = group.pressure.iter().filter_map(|hint| hint.at);
        self.pressed_at = hints.filter(|at| fresh(at, PRESSURE)).max();
        let slower = exact.and_then(|cell| cell.degraded_at);
        self.degraded_at = slower.filter(|at| fresh(at, DEGRADED)).max(self.pressed_at);
    }
}

/// End of a lease that counts now.
fn lease(now: T, cell: &Cell, fence: Option<T>) -> Option<T> {
    cell.lease_until
        .filter(|until| *until > now && cell.fence >= fence)
}

fn recovered(now: T, cell: &Cell, fence: Option<T>) -> bool {
    cell.failed_at.is_some()
        && cell.streak == 0
        && cell.cohort.credits >= REPORTERS
        && lease(now, cell, fence).is_some()
}
