//! Invariants of budgets, trials, comparisons and reports, under any calls.

use std::collections::BTreeMap;

use super::{
    machine::{Op, scope},
    world::{World, cands},
};
use crate::{
    id::{Family, Network},
    score::{
        GroupKey, Mode, NextAction, Pick, Question, Reason, Stats, Trials, WaitReason,
        budget::Yield, ids::NodeKey,
    },
};

/// Numbers before a call.
pub(super) struct Before {
    stats: Stats,
    ledgers: BTreeMap<(u32, u8, u8), Funds>,
}

/// Numbers of one budget.
struct Funds {
    earned: u64,
    business: u64,
    spent: u64,
    yields: Yield,
    flying: usize,
}

const NETWORKS: [Network; 2] = [Network::Tcp, Network::Udp];
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Before {
    pub(super) fn of(world: &World) -> Self {
        let mut ledgers = BTreeMap::new();
        for group in &world.engine.groups {
            for (network, family) in NETWORKS.into_iter().flat_map(|n| FAMILIES.map(|f| (n, f))) {
                let Some(ledger) = group.net(network).ledgers()[family as usize] else {
                    continue;
                };
                let flights = ledger.flights().iter();
                let funds = Funds {
                    earned: ledger.earned(),
                    business: ledger.totals().business_starts,
                    spent: ledger.spent(),
                    yields: ledger.yields(world.now),
                    flying: flights.filter(|f| !f.lapsed(world.now)).count(),
                };
                ledgers.insert((group.key.0, network as u8, family as u8), funds);
            }
        }
        Self {
            stats: world.engine.stats(world.now),
            ledgers,
        }
    }
}

/// Everything that must hold after a call.
pub(super) fn check(
    world: &World,
    before: &Before,
    op: &Op,
    pick: Option<&Pick>,
    current: Option<NodeKey>,
) {
    let after = Before::of(world);
    if let Some(pick) = pick {
        held(pick, current);
    }
    budgets(world, before, &after, op);
    counted(before, &after, op, pick);
    reserved(world, before, &after, op, pick);
    stores(&after.stats);
    reports(world);
}

/// SI-01, SI-02, SI-03, SI-04, SI-12, SI-13, SI-14.
fn budgets(world: &World, before: &Before, after: &Before, op: &Op) {
    for group in &world.engine.groups {
        for (network, family) in NETWORKS.into_iter().flat_map(|n| FAMILIES.map(|f| (n, f))) {
            let Some(ledger) = group.net(network).ledgers()[family as usize] else {
                continue;
            };
            let key = (group.key.0, network as u8, family as u8);
            let whole = ledger.earned() / 16;
            let [cold, earned] = ledger.available();
            let spent = ledger.spent();
            assert!(
                spent + ledger.reserved() <= ledger.cold_allowance() + whole,
                "SI-01"
            );
            assert!(earned <= 8 && cold <= ledger.cold_allowance(), "SI-02");
            let unbegun = ledger
                .flights()
                .iter()
                .filter(|f| f.begun.is_none())
                .count();
            assert_eq!(ledger.reserved(), unbegun as u64, "SI-02");
            let totals = ledger.totals();
            assert_eq!(totals.cold + totals.periodic, spent, "SI-13");
            assert_eq!(totals.trial_starts, spent, "SI-13");
            let over = totals.success + totals.failure + totals.cancelled;
            assert!(over <= totals.trial_starts, "SI-13");
            for flight in ledger.flights().iter() {
                let of: Vec<_> = ledger.flights().of(world.now, flight.trial.node).collect();
                assert!(of.len() <= 4, "SI-12");
                let asked = of.iter().filter(|f| {
                    let (a, b) = (f.trial, flight.trial);
                    !f.answered && a.question == b.question && a.target == b.target
                });
                assert!(asked.count() <= 1, "SI-12");
            }
            let (old, new) = (before.ledgers.get(&key), &after.ledgers[&key]);
            let (earned, business, paid) =
                old.map_or((0, 0, 0), |f| (f.earned, f.business, f.spent));
            assert!(new.spent >= paid, "SI-02");
            let begun = new.business - business;
            assert!(begun <= 1, "SI-03");
            assert!(new.earned - earned <= 2 * begun, "SI-04");
            if matches!(
                op,
                Op::Finish(..) | Op::Pass(_) | Op::Probe(..) | Op::Activate(_)
            ) {
                assert_eq!((new.spent, begun), (paid, 0), "SI-04, SI-14");
            }
        }
    }
    let roots = after.stats.business_starts - before.stats.business_starts;
    assert!(roots <= 1, "SI-03");
}

/// SI-08: each reason counts once, and only with a choice.
fn counted(before: &Before, after: &Before, op: &Op, pick: Option<&Pick>) {
    let sums = |stats: &Stats| {
        let nets = stats.groups.iter().flat_map(|g| [g.tcp, g.udp]);
        nets.fold([0_u64; 9], |mut sums, net| {
            for (sum, new) in sums.iter_mut().zip(net.reasons.reasons) {
                *sum += new;
            }
            sums
        })
    };
    let (old, new) = (sums(&before.stats), sums(&after.stats));
    for reason in Reason::ALL {
        let grown = new[reason as usize] - old[reason as usize];
        let expected = pick.is_some_and(|p| p.reason == Some(reason));
        // Counters of a group that was configured anew start again; then nothing was picked.
        assert!(
            grown == u64::from(expected) || matches!(op, Op::Activate(_)),
            "SI-08"
        );
    }
    if let Some(pick) = pick {
        let paid = matches!(
            pick.reason,
            Some(Reason::ColdExplore | Reason::PeriodicExplore)
        );
        assert_eq!(paid, pick.trial, "SI-08");
    }
}

/// SI-26 and SI-27: who is held stays, and who is sound is left only for better evidence.
fn held(pick: &Pick, current: Option<NodeKey>) {
    use Reason::{
        DirectionalTradeoffHeld, FreshFailureBypass, IncumbentHeld, IncumbentIneligible,
        InsufficientEvidenceHeld, PerformanceWinner, ReliabilityWinner,
    };
    match pick.reason {
        Some(IncumbentHeld | InsufficientEvidenceHeld | DirectionalTradeoffHeld) => {
            assert_eq!(Some(pick.node), current, "SI-26");
            assert!(!pick.switched, "SI-26");
        }
        Some(IncumbentIneligible | FreshFailureBypass) => assert!(current.is_some(), "SI-27"),
        Some(PerformanceWinner | ReliabilityWinner) | None => {}
        Some(Reason::ColdExplore | Reason::PeriodicExplore) => assert!(!pick.switched, "SI-09"),
    }
}

/// SI-10, SI-11 and SI-36: where a trial may go.
fn reserved(world: &World, before: &Before, after: &Before, op: &Op, pick: Option<&Pick>) {
    let (Some(pick), Op::Rank(flow, view, Mode::Apply(Trials::Allowed))) = (pick, op) else {
        return;
    };
    if !pick.trial {
        return;
    }
    let at = world.engine.find(GroupKey(flow.group)).expect("there");
    let row = |node: NodeKey| {
        let scope = scope(world, flow).expect("its target is known");
        let mut rows = Vec::new();
        let engine = &world.engine;
        engine.look(world.now, at, &scope, &cands(view), &mut rows);
        rows.into_iter()
            .find(|row| row.node == node)
            .expect("in the pool")
    };
    let ordinary = world.peek(*flow, &cands(view)).expect("there is a view");
    let (member, selection) = (row(pick.node), row(ordinary));
    let waits = member
        .known
        .explore_not_before
        .is_some_and(|until| until > world.now);
    assert!(!waits && pick.node != ordinary, "SI-10");
    let family = flow.family.expect("a trial has a family");
    let key = (flow.group, flow.network as u8, family as u8);
    let ledger = world.engine.groups[at].net(flow.network).ledgers()[family as usize];
    let flights = ledger.expect("paid by it").flights();
    let last = flights.iter().last().expect("just reserved").trial;
    assert_eq!(last.node, pick.node);
    if last.question != Question::Recovery {
        // The one just reserved is not counted.
        let unfinished = flights.of(world.now, pick.node).count() - 1;
        let total = member.known.completions + unfinished as f64;
        assert!(total < selection.known.completions, "SI-11");
    }
    let usable = selection.known.usable_until.is_some();
    if let (true, Some(old)) = (usable, before.ledgers.get(&key)) {
        assert_ne!(old.yields, Yield::Paused, "SI-36");
        if old.yields == Yield::Single {
            assert_eq!(after.ledgers[&key].flying, 1, "SI-36");
        }
    }
}

/// SI-32.
fn stores(stats: &Stats) {
    let cache = stats.cache;
    assert!(
        cache.exact_cells <= 4096 && cache.aggregate_cells <= 4096,
        "SI-32"
    );
    assert!(cache.comparison.cells <= 512, "SI-32");
    assert!(cache.comparison.logical_bytes <= 1 << 20, "SI-32");
}

/// SI-40 and SI-42: what a report may say.
fn reports(world: &World) {
    let view = cands(&[0, 1, 2, 3, 4, 5, 6]);
    for group in &world.engine.groups {
        for network in NETWORKS {
            let report = world.engine.verify(world.now, group.key, network, &view);
            let report = report.expect("a group with score");
            let (c, k) = (report.coverage, report.challengers);
            let compared = k.selected_faster + k.equivalent + k.challenger_faster + k.unknown;
            assert_eq!(compared, c.evaluated.saturating_sub(1), "SI-40");
            assert_eq!(c.evaluated + c.unevaluated, c.candidates, "SI-40");
            assert!(c.pending <= c.evaluated, "SI-40");
            let none = [
                report.question == Question::None,
                report.next_action == NextAction::None,
                report.wait_reason == WaitReason::None,
            ];
            assert_eq!(none, [c.pending == 0; 3], "SI-40");
        }
    }
}
