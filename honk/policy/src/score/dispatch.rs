//! The one order in which optional work is given out, and the walk along it.
//!
//! Who was never tried comes first, then who is nearest to an answer, then who was selected the
//! longest time ago. Reads report the first of the same order.

use std::cmp::Ordering;

use super::{
    budget::{Denied, Ledger, Pocket, Standing},
    clock::T,
    compare::Beside,
    consts::{N_TRAIN, POOL_MAX, REPORTERS, STREAK_OUT},
    flight::Trial,
    ids::{NodeKey, TargetId},
    question::{Facts, Open, Question, open},
    snapshot::{Row, Snapshot},
};

/// A member with an open question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) facts: Facts,
    pub(super) open: Open,
}

/// All of a pool, first to be served first.
#[derive(Debug)]
pub(super) struct Order {
    pending: [Option<Pending>; POOL_MAX],
    len: usize,
}

impl Order {
    /// Of all members but the selection.
    pub(super) fn of(
        now: T,
        members: impl IntoIterator<Item = Facts>,
        selection: NodeKey,
        any_qualified: bool,
    ) -> Self {
        let mut order = Self {
            pending: [None; POOL_MAX],
            len: 0,
        };
        for facts in members {
            if facts.node == selection || order.len == POOL_MAX {
                continue;
            }
            if let Some(open) = open(now, &facts, any_qualified) {
                order.insert(Pending { facts, open });
            }
        }
        order
    }

    fn insert(&mut self, new: Pending) {
        let mut at = self.len;
        while at > 0
            && let Some(before) = self.pending[at - 1]
            && compare(&new, &before).is_lt()
        {
            self.pending[at] = Some(before);
            at -= 1;
        }
        self.pending[at] = Some(new);
        self.len += 1;
    }

    /// Members with an open question, in order.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().flatten()
    }

    /// Those of them that a flow could help now.
    pub(super) fn actionable(&self) -> impl Iterator<Item = &Pending> {
        self.pending().filter(|p| p.open.actionable)
    }
}

fn compare(a: &Pending, b: &Pending) -> Ordering {
    let trained = |p: &Pending| p.facts.completions >= N_TRAIN;
    trained(a)
        .cmp(&trained(b))
        .then_with(|| b.open.progress.total_cmp(&a.open.progress))
        .then_with(|| a.facts.selected.cmp(&b.facts.selected))
        .then_with(|| {
            if a.facts.selected > 0 {
                return Ordering::Equal;
            }
            let probe = |p: &Pending| p.facts.probe.unwrap_or(f64::INFINITY);
            probe(a).total_cmp(&probe(b))
        })
        .then_with(|| a.facts.index.cmp(&b.facts.index))
}

/// Where optional work is looked for.
pub(super) struct Walk<'a> {
    /// The selection beside the others.
    pub(super) beside: Beside<'a>,
    /// Members of the pool in the view.
    pub(super) rows: &'a [Row],
    /// The selection among them.
    pub(super) selection: usize,
}

impl Walk<'_> {
    /// Members with an open question.
    pub(super) fn order(&self) -> Order {
        let any_healthy = self.rows.iter().any(|r| r.known.streak < STREAK_OUT);
        let healthy = |r: &Row| !any_healthy || r.known.streak < STREAK_OUT;
        let any_qualified = self.rows.iter().any(|r| healthy(r) && r.known.qualified);
        let selection = self.rows[self.selection].node;
        let facts = self.rows.iter().enumerate().map(|(at, _)| self.facts(at));
        Order::of(self.beside.reading.now, facts, selection, any_qualified)
    }

    fn facts(&self, at: usize) -> Facts {
        let (row, selection) = (&self.rows[at], &self.rows[self.selection]);
        let known = &row.known;
        let usable = known.usable_until.is_some();
        // Comparing takes longest, and matters only where no earlier question is open.
        let asks = known.streak == 0 && usable && row.eligible;
        let (compared, sharing) = if asks {
            self.compared(row.node, selection.known.degraded_at)
        } else {
            (false, 0)
        };
        Facts {
            node: row.node,
            index: at,
            streak: known.streak,
            eligible: row.eligible,
            qualified: known.qualified,
            completions: known.completions,
            useful: known.useful,
            usable,
            credits: known.credits,
            compared,
            sharing,
            failed_at: known.failed_at,
            not_before: known.explore_not_before,
            selected: known.selected_tick,
            probe: self.probe(row),
        }
    }

    /// Whether the response is compared on whole evidence that is as new as the last sudden
    /// slowness of the selection, and by how many flows of the challenger.
    fn compared(&self, node: NodeKey, degraded: Option<T>) -> (bool, u8) {
        let pair = self.beside.own(node).filter(|pair| !pair.partial);
        let response = pair.and_then(|pair| pair.response);
        if response.is_some_and(|r| degraded.is_none_or(|at| r.last >= at)) {
            return (true, REPORTERS);
        }
        (false, self.beside.sharing(node))
    }

    /// By the first check that the selection is measured by.
    fn probe(&self, row: &Row) -> Option<f64> {
        let selection = &self.rows[self.selection].known.probes;
        let slot = selection.iter().position(Option::is_some)?;
        let ((scope, _), (own, perf)) = (selection[slot]?, row.known.probes[slot]?);
        (scope == own).then_some(perf.value)
    }
}

/// Whether a selection is seen to work: for its target, or in its family while the target has
/// shown no failure. Otherwise rare targets would never let trials pause.
pub(super) fn standing(selection: &Snapshot) -> Standing {
    let family = selection.family_usable && !selection.exact_unresolved;
    if selection.usable_until.is_some() || family {
        Standing::Usable
    } else {
        Standing::Unproven
    }
}

/// Reserves a trial of a flow to `target`, if one is wanted and paid.
pub(super) fn reserve(
    walk: &Walk<'_>,
    ledger: &mut Ledger,
    attempt: u64,
    target: TargetId,
) -> Option<Chosen> {
    let selection = &walk.rows[walk.selection].known;
    let flow = Flow {
        attempt,
        target,
        completions: selection.completions,
        standing: standing(selection),
    };
    self::walk(walk.beside.reading.now, &walk.order(), ledger, &flow)
}

/// The flow that could become a trial.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Number of its attempt.
    attempt: u64,
    target: TargetId,
    /// Effective completions of the selection: challengers stay below.
    completions: f64,
    standing: Standing,
}

/// A reserved trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) node: NodeKey,
    pub(super) index: usize,
    pub(super) question: Question,
    pub(super) pocket: Pocket,
}

/// Reserves a trial for the first member that may have one. One that is busy is passed over; a
/// budget that is exhausted ends the walk.
fn walk(now: T, order: &Order, ledger: &mut Ledger, flow: &Flow) -> Option<Chosen> {
    for Pending { facts, open } in order.actionable() {
        let trial = Trial {
            attempt: flow.attempt,
            node: facts.node,
            question: open.question,
            target: flow.target,
        };
        let below = flow.completions - facts.completions;
        match ledger.reserve(now, trial, below, flow.standing) {
            Ok(pocket) => {
                return Some(Chosen {
                    node: facts.node,
                    index: facts.index,
                    question: open.question,
                    pocket,
                });
            }
            Err(Denied::InFlight) => {}
            Err(Denied::Budget) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::question::tests::settled;
    use super::*;
    use crate::{
        id::{Family, Network},
        score::{
            cell::{Layers, Scope, TargetScope},
            ids::{GroupKey, key},
            wm::Perf,
        },
    };

    const NOW: T = T::from_secs(1000);

    /// A member whose response is not compared yet.
    fn unsure(n: u128) -> Facts {
        Facts {
            compared: false,
            sharing: 0,
            ..settled(n)
        }
    }

    fn nodes(members: &[Facts]) -> Vec<NodeKey> {
        let order = Order::of(NOW, members.iter().copied(), key(0), true);
        order.pending().map(|p| p.facts.node).collect()
    }

    fn flow(attempt: u64) -> Flow {
        Flow {
            attempt,
            target: TargetId(1),
            completions: 100.0,
            standing: Standing::Usable,
        }
    }

    #[test]
    fn untried_then_nearest_then_longest_waiting() {
        let near = Facts {
            sharing: 3,
            selected: 99,
            ..unsure(1)
        };
        let waited = Facts {
            selected: 5,
            ..unsure(2)
        };
        let recent = Facts {
            selected: 9,
            ..unsure(3)
        };
        let untried = Facts {
            completions: 0.4,
            ..unsure(4)
        };
        assert_eq!(
            nodes(&[recent, waited, near, untried]),
            [4, 1, 2, 3].map(key)
        );
    }

    #[test]
    fn who_was_never_selected_goes_by_probe_then_by_declaration() {
        let of = |n: u128, probe: Option<f64>| Facts {
            selected: 0,
            probe,
            ..unsure(n)
        };
        let members = [
            of(1, None),
            of(2, Some(90.0)),
            of(3, Some(30.0)),
            of(4, None),
        ];
        assert_eq!(nodes(&members), [3, 2, 1, 4].map(key));
        let by_declaration = [2, 1].map(|n| Facts {
            probe: Some(f64::from(n as u32)),
            ..unsure(n)
        });
        assert_eq!(
            nodes(&by_declaration),
            [1, 2].map(key),
            "selected before: no probe"
        );
    }

    #[test]
    fn probes_count_where_the_selection_is_measured_alike() {
        let store = crate::score::compare::Store::new();
        let reading = crate::score::compare::Reading {
            store: &store,
            now: NOW,
            scope: &Scope::TEST,
        };
        let row = |n: u128, scope: u64| {
            let mut row = Row {
                node: key(n),
                index: n as usize,
                ..Row::default()
            };
            let perf = Perf {
                value: 30.0,
                confidence: 1.0,
            };
            row.known.probes[0] = Some((scope, perf));
            row
        };
        let walk = Walk {
            beside: reading.beside(key(0)),
            rows: &[row(0, 7), row(1, 7), row(2, 8)],
            selection: 0,
        };
        let probes: Vec<_> = walk.order().pending().map(|p| p.facts.probe).collect();
        assert_eq!(probes, [Some(30.0), None]);
    }

    #[test]
    fn the_selection_and_the_settled_ask_nothing() {
        assert_eq!(nodes(&[unsure(0), settled(1)]), []);
    }

    #[test]
    fn the_walk_passes_the_busy_and_ends_with_the_credit() {
        let mut ledger = Ledger::new(2);
        let order = Order::of(NOW, [unsure(1), unsure(2), unsure(3)], key(0), true);
        let first = walk(NOW, &order, &mut ledger, &flow(1)).unwrap();
        assert_eq!((first.node, first.pocket), (key(1), Pocket::Cold));
        let second = walk(NOW, &order, &mut ledger, &flow(2)).unwrap();
        assert_eq!(second.node, key(2), "1 has an unanswered trial");
        assert_eq!(walk(NOW, &order, &mut ledger, &flow(3)), None);
        let totals = ledger.totals();
        assert_eq!((totals.in_flight_blocked, totals.budget_blocked), (3, 1));
    }

    #[test]
    fn a_challenger_stays_below_the_completions_of_the_selection() {
        let mut ledger = Ledger::new(4);
        let order = Order::of(NOW, [unsure(1)], key(0), true);
        let level = Flow {
            completions: 8.0,
            ..flow(1)
        };
        assert_eq!(walk(NOW, &order, &mut ledger, &level), None);
        let above = Flow {
            completions: 8.5,
            ..level
        };
        assert!(walk(NOW, &order, &mut ledger, &above).is_some());
        let recovering = Facts {
            streak: 1,
            ..unsure(2)
        };
        let order = Order::of(NOW, [recovering], key(0), true);
        let behind = Flow {
            completions: 0.0,
            ..flow(2)
        };
        assert!(walk(NOW, &order, &mut ledger, &behind).is_some());
    }

    #[test]
    fn a_target_without_failures_stands_as_its_family() {
        let scope = Scope {
            group: GroupKey(1),
            network: Network::Tcp,
            family: Some(Family::V4),
            target: TargetScope::One(TargetId(1)),
        };
        let nothing = Snapshot::read(NOW, &scope, Layers::default());
        assert_eq!(standing(&nothing), Standing::Unproven);
        let usable = Snapshot {
            usable_until: Some(NOW),
            exact_unresolved: true,
            ..nothing
        };
        assert_eq!(standing(&usable), Standing::Usable);
        let by_family = Snapshot {
            family_usable: true,
            ..nothing
        };
        assert_eq!(standing(&by_family), Standing::Usable);
        let failing = Snapshot {
            exact_unresolved: true,
            ..by_family
        };
        assert_eq!(standing(&failing), Standing::Unproven);
    }
}
