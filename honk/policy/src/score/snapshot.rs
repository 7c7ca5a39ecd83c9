//! What is known of a candidate in a scope, read once for a call (section 6 of the design).
//!
//! Reliability is blended from the widest layer to the most specific; completions are never
//! added over layers that overlap, the largest counts.

use super::{
    cell::{Cell, Layers, PROBE_SLOTS, Scope},
    clock::T,
    consts::{DEGRADED, N_QUAL, PRESSURE, REPORTERS},
    decay::Fade,
    ids::NodeKey,
    rel::{Counts, Reliability},
    wm::{Perf, Wm},
};

/// A candidate of a call, in the order of the view.
#[derive(Clone, Copy, Debug, Default)]
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
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snapshot {
    /// Bounds and observed rate.
    pub(super) reliability: Reliability,
    /// Completions `C`: the most of a layer.
    pub(super) completions: f64,
    /// Useful completions `u`: the most of a layer.
    pub(super) useful: f64,
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
    /// What the layers of a node say.
    #[cfg(test)]
    pub(super) fn read(now: T, scope: &Scope, layers: Layers<'_>) -> Self {
        let mut seen = Self::default();
        seen.refresh(now, scope, layers);
        seen
    }

    /// Becomes what the layers of a node say.
    pub(super) fn refresh(&mut self, now: T, scope: &Scope, layers: Layers<'_>) {
        let Layers {
            group,
            family,
            exact,
        } = layers;
        let fence = group.and_then(|cell| cell.fence);
        let mut fade = Fade::new(now);
        let mut sums = Sums::default();
        let mut counts = |cell: &Cell| sums.add(now, cell, fence, &mut fade);
        let reliability = Reliability::of(
            group.map(&mut counts).unwrap_or_default(),
            family.map(&mut counts),
            exact.map(&mut counts),
        );
        let own = match (scope.is_targeted(), scope.family.is_some()) {
            (true, _) => exact,
            (false, true) => family,
            (false, false) => group,
        };
        let effective = |cell: &Cell| cell.fence.max(fence);
        let usable_until = |cell: &Cell| cell.cohort.usable_until(now, effective(cell));
        let back = |cell: Option<&Cell>| cell.is_some_and(|c| recovered(now, c, fence));
        let unresolved = sums.streak > 0;
        let performance = Performance::of(layers);
        let pressed_at = group.and_then(|cell| pressed(now, cell));
        *self = Self {
            reliability,
            completions: sums.completions,
            useful: sums.useful,
            qualified: sums.useful >= N_QUAL || sums.leased,
            streak: sums.streak,
            node_streak: group.map_or(0, |cell| cell.streak),
            unresolved,
            exact_unresolved: exact.is_some_and(|cell| cell.streak > 0),
            recovered: !unresolved
                && if scope.is_targeted() {
                    back(exact)
                } else {
                    back(group) || back(family)
                },
            failed_at: sums.failed_at,
            explore_not_before: sums.explore_not_before,
            credits: own.map_or(0, |cell| cell.cohort.live(now, effective(cell))),
            usable_until: own.and_then(usable_until),
            family_usable: family.is_some_and(|cell| usable_until(cell).is_some()),
            degraded_at: performance.degraded_at(now).max(pressed_at),
            pressed_at,
            selected_tick: sums.selected_tick,
            setup: performance.layered(now, |cell| &cell.setup),
            response: performance.layered(now, |cell| &cell.response),
            up: performance.layered(now, |cell| &cell.up),
            down: performance.layered(now, |cell| &cell.down),
            warm_setup: group.and_then(|cell| cell.warm_setup.read(now)),
            probes: std::array::from_fn(|slot| {
                let slot = &group?.probes[slot];
                Some((slot.scope, slot.mean.read(now)?))
            }),
        };
    }
}

/// What is the most of a layer.
#[derive(Default)]
struct Sums {
    completions: f64,
    useful: f64,
    leased: bool,
    streak: u32,
    failed_at: Option<T>,
    explore_not_before: Option<T>,
    selected_tick: u64,
}

impl Sums {
    fn add(&mut self, now: T, cell: &Cell, fence: Option<T>, fade: &mut Fade) -> Counts {
        let counts = cell.faded(fade);
        self.completions = self.completions.max(counts.completions());
        self.useful = self.useful.max(counts.useful());
        self.streak = self.streak.max(cell.streak);
        self.failed_at = self.failed_at.max(cell.failed_at);
        self.explore_not_before = self.explore_not_before.max(cell.explore_not_before);
        self.selected_tick = self.selected_tick.max(cell.selected_tick);
        self.leased |= is_leased(now, cell, fence);
        counts
    }
}

/// The layers whose performance counts: no fence of the node lies after it.
#[derive(Clone, Copy)]
struct Performance<'a>(Layers<'a>);

impl<'a> Performance<'a> {
    fn of(layers: Layers<'a>) -> Self {
        let fence = layers.group.and_then(|cell| cell.fence);
        let current = |cell: &&Cell| cell.fence >= fence;
        Self(Layers {
            group: layers.group,
            family: layers.family.filter(current),
            exact: layers.exact.filter(current),
        })
    }

    #[inline]
    fn layered(self, now: T, of: impl Fn(&Cell) -> &Wm) -> Layered {
        let read = |cell: &Cell| of(cell).read(now);
        let Layers {
            group,
            family,
            exact,
        } = self.0;
        Layered {
            aggregate: family.and_then(read).or_else(|| group.and_then(read)),
            target: exact.and_then(read),
        }
    }

    /// When the target became slow all of a sudden, if that counts now.
    fn degraded_at(self, now: T) -> Option<T> {
        let slower = self.0.exact.and_then(|cell| cell.degraded_at);
        slower.filter(|at| !now.is_after(*at, DEGRADED))
    }
}

/// The newest hint of pressure on a carrier that counts now.
fn pressed(now: T, cell: &Cell) -> Option<T> {
    let hints = cell.pressure.iter().filter_map(|hint| hint.at);
    hints.filter(|at| !now.is_after(*at, PRESSURE)).max()
}

/// Whether a cell has a lease that counts now.
fn is_leased(now: T, cell: &Cell, fence: Option<T>) -> bool {
    cell.lease_until > Some(now) && cell.fence >= fence
}

fn recovered(now: T, cell: &Cell, fence: Option<T>) -> bool {
    cell.failed_at.is_some()
        && cell.streak == 0
        && cell.cohort.credits >= REPORTERS
        && is_leased(now, cell, fence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::{Family, Network},
        score::{
            cell::TargetScope,
            ids::{GroupKey, TargetId},
        },
    };

    const NOW: T = T::from_secs(1000);

    fn scope(family: Option<Family>, target: TargetScope) -> Scope {
        Scope {
            group: GroupKey(1),
            network: Network::Tcp,
            family,
            target,
        }
    }

    fn one_target() -> Scope {
        scope(Some(Family::V4), TargetScope::One(TargetId(1)))
    }

    fn read(scope: &Scope, [group, family, exact]: [&Cell; 3]) -> Snapshot {
        let layers = Layers {
            group: Some(group),
            family: Some(family),
            exact: Some(exact),
        };
        Snapshot::read(NOW, scope, layers)
    }

    fn blank() -> Cell {
        Cell::new(1, None)
    }

    /// Four attempts received data just now.
    fn usable() -> Cell {
        let mut cell = blank();
        for _ in 0..4 {
            cell.cohort.take(NOW, NOW, None, &mut None);
        }
        cell
    }

    fn recovered() -> Cell {
        let mut cell = usable();
        cell.failed_at = Some(T::from_secs(900));
        cell.lease_until = Some(T::from_secs(1060));
        cell
    }

    #[test]
    fn a_target_is_usable_by_its_own_flows_alone() {
        let all = [&usable(), &usable(), &blank()];
        let seen = read(&one_target(), all);
        assert_eq!((seen.credits, seen.usable_until), (0, None));
        assert!(seen.family_usable);
        let family = read(&scope(Some(Family::V4), TargetScope::Any), all);
        assert_eq!((family.credits, family.usable_until.is_some()), (4, true));
        let group = scope(None, TargetScope::Any);
        assert_eq!(read(&group, [&blank(), &usable(), &usable()]).credits, 0);
    }

    #[test]
    fn a_recovery_counts_in_its_scope_while_no_layer_is_unresolved() {
        let is = |scope: &Scope, cells: [&Cell; 3]| read(scope, cells).recovered;
        let all = scope(Some(Family::V4), TargetScope::Any);
        let cases = [
            ([recovered(), blank(), blank()], [false, true]),
            ([blank(), recovered(), blank()], [false, true]),
            ([blank(), blank(), recovered()], [true, false]),
        ];
        for (cells, want) in cases {
            let [group, family, exact] = &cells;
            let found = [one_target(), all].map(|scope| is(&scope, [group, family, exact]));
            assert_eq!(found, want);
        }
        let mut failing = blank();
        failing.streak = 1;
        assert!(!is(&one_target(), [&failing, &blank(), &recovered()]));
        let mut expired = recovered();
        expired.lease_until = Some(NOW);
        assert!(!is(&one_target(), [&blank(), &blank(), &expired]));
    }

    #[test]
    fn a_fence_of_the_node_voids_what_its_targets_had() {
        let mut exact = recovered();
        exact.response.record(NOW, 20.0);
        exact.degraded_at = Some(T::from_secs(990));
        let mut fenced = blank();
        fenced.fence = Some(NOW);
        let before = read(&one_target(), [&blank(), &blank(), &exact]);
        assert!(before.qualified && before.recovered && before.usable_until.is_some());
        assert!(before.response.target.is_some() && before.degraded_at.is_some());
        let after = read(&one_target(), [&fenced, &blank(), &exact]);
        assert!(!after.qualified && !after.recovered && after.usable_until.is_none());
        assert!(after.response.target.is_none() && after.degraded_at.is_none());
    }

    #[test]
    fn a_sudden_slowness_counts_two_minutes_and_a_hint_one() {
        let slow = |secs| {
            let mut exact = blank();
            exact.degraded_at = Some(T::from_secs(secs));
            read(&one_target(), [&blank(), &blank(), &exact]).degraded_at
        };
        assert_eq!((slow(880), slow(881)), (None, Some(T::from_secs(881))));
        let pressed = |secs| {
            let mut group = blank();
            group.pressure[1].at = Some(T::from_secs(secs));
            let seen = read(&one_target(), [&group, &blank(), &blank()]);
            assert_eq!(seen.degraded_at, seen.pressed_at);
            seen.pressed_at
        };
        assert_eq!(
            (pressed(940), pressed(941)),
            (None, Some(T::from_secs(941)))
        );
    }
}
