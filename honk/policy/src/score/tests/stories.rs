//! Stories: what happens to flows over a while.

use super::{
    super::{GroupKey, Mode, NodeKey, Outcome, Pick, Reason, Refused, Trials},
    world::{Flow, WEB, World, cands, name, node},
};
use crate::id::{Family, Network};

const APPLY: Mode = Mode::Apply(Trials::Allowed);
const NO_TRIALS: Mode = Mode::Apply(Trials::Forbidden);

fn served(millis: u64) -> impl Fn(NodeKey) -> (Outcome, u64) {
    move |_| (Outcome::Success, millis)
}

/// Runs flows a third of a second apart; answers take as long as `speed` says of the leaf.
fn run(world: &mut World, flows: usize, speed: impl Fn(NodeKey) -> u64) -> Vec<Pick> {
    let view = cands(&[0, 1, 2]);
    let one = |_| {
        let pick = world.flow(WEB, &view, |leaf| (Outcome::Success, speed(leaf)));
        world.pass(333);
        pick
    };
    (0..flows).map(one).collect()
}

#[test]
fn a_first_choice_takes_the_fastest_by_probe() {
    let mut world = World::new(&[&[0, 1, 2]]);
    for (number, millis) in [(0, 80.0), (1, 40.0), (2, 60.0)] {
        world.probe(1, number, Some(millis));
    }
    let pick = world.rank(WEB, &cands(&[0, 1, 2]), APPLY).unwrap();
    assert_eq!((pick.node, pick.trial), (node(1), false));
    assert_eq!(pick.reason, Some(Reason::PerformanceWinner));
    // Without any evidence, the first declared.
    let mut blank = World::new(&[&[0, 1, 2]]);
    let pick = blank.rank(WEB, &cands(&[2, 0, 1]), APPLY).unwrap();
    assert_eq!(pick.node, node(2));
}

#[test]
fn trials_prove_a_faster_challenger_and_it_is_promoted() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let speed = |leaf| if leaf == node(2) { 20 } else { 90 };
    let picks = run(&mut world, 600, speed);
    assert_eq!(picks[0].node, node(0), "nothing known: the first");
    assert!(picks.iter().any(|p| p.trial && p.node == node(2)));
    let last = picks.iter().rfind(|p| !p.trial).unwrap();
    assert_eq!(last.node, node(2));
    let switched = picks.iter().position(|p| p.switched).unwrap();
    assert_eq!(picks[switched].reason, Some(Reason::PerformanceWinner));
    assert!(!picks[switched].trial, "a move is no trial");
    let stats = world.engine.stats(world.now).groups[0].tcp;
    assert_eq!(stats.budget.business_starts, 600);
    assert_eq!(stats.reasons.choices(), 600);
    assert_eq!(stats.reasons.ordinary_switch, 1);
    let trials = picks.iter().filter(|p| p.trial).count() as u64;
    assert_eq!(
        (stats.budget.trial_success, stats.budget.spent),
        (trials, trials)
    );
}

#[test]
fn a_target_that_breaks_behind_one_leaf_moves_only_that_target() {
    let mut world = World::new(&[&[0, 1, 2]]);
    run(&mut world, 40, |leaf| if leaf == node(0) { 20 } else { 90 });
    let view = cands(&[0, 1, 2]);
    let refusing = |leaf| match leaf == node(0) {
        true => (Outcome::TargetTimeout, 0),
        false => (Outcome::Success, 90),
    };
    let other = Flow {
        target: Some(2),
        ..WEB
    };
    for _ in 0..40 {
        world.flow(WEB, &view, refusing);
        world.pass(1000);
        world.flow(other, &view, served(20));
        world.pass(1000);
    }
    let broken = world.rank(WEB, &view, NO_TRIALS).unwrap();
    assert_ne!(broken.node, node(0));
    let sound = world.rank(other, &view, NO_TRIALS).unwrap();
    assert_eq!(sound.node, node(0));
}

#[test]
fn a_dead_leaf_is_left_at_once_and_comes_back_after_four_answers() {
    let mut world = World::new(&[&[0, 1, 2]]);
    run(&mut world, 40, |leaf| if leaf == node(0) { 20 } else { 90 });
    let view = cands(&[0, 1, 2]);
    let dead = |leaf| match leaf == node(0) {
        true => (Outcome::NodeFailure, 0),
        false => (Outcome::Success, 90),
    };
    let first = world.flow(WEB, &view, dead);
    assert_eq!(first.node, node(0));
    let next = world.rank(WEB, &view, NO_TRIALS).unwrap();
    assert_eq!(next.reason, Some(Reason::FreshFailureBypass));
    let mut lost = 1;
    for _ in 0..200 {
        let pick = world.flow(WEB, &view, dead);
        lost += usize::from(pick.node == node(0));
        world.pass(1000);
    }
    assert!(lost <= 4, "{lost} flows were lost");
    // Three failures in a row: twenty minutes later it is tried again, by trials only until four
    // answers are there.
    world.pass(1_200_000);
    let mut answered = 0;
    for _ in 0..300 {
        let pick = world.flow(WEB, &view, |leaf| {
            (Outcome::Success, if leaf == node(0) { 20 } else { 90 })
        });
        if pick.node == node(0) {
            assert!(pick.trial || answered >= 4, "served after {answered}");
            answered += 1;
        }
        world.pass(1000);
    }
    assert!(answered >= 4, "{answered}");
}

#[test]
fn udp_and_ipv6_know_nothing_of_tcp_over_ipv4() {
    let mut world = World::new(&[&[0, 1, 2]]);
    run(&mut world, 60, |leaf| if leaf == node(2) { 20 } else { 90 });
    let view = cands(&[0, 1, 2]);
    let udp = Flow {
        network: Network::Udp,
        ..WEB
    };
    assert_eq!(world.peek(udp, &view), Some(node(0)));
    let stats = world.engine.stats(world.now).groups[0];
    assert_eq!(stats.udp.budget.business_starts, 0);
    let v6 = Flow {
        family: Some(Family::V6),
        ..WEB
    };
    // The group cell spans families, so the better leaf is known; the target's own cells are not.
    world.rank(v6, &view, APPLY).unwrap();
    assert_eq!(world.engine.stats(world.now).groups[0].tcp.budget.scopes, 2);
}

#[test]
fn a_retry_takes_another_leaf_and_is_not_counted() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let view = cands(&[0, 1, 2]);
    let first = world.flow(WEB, &view, |_| (Outcome::Timeout, 0));
    let failed = first.node;
    let again = world.rank(WEB, &view, Mode::Retry { failed }).unwrap();
    assert!(again.node != failed && !again.trial && again.reason.is_none());
    assert_eq!(view[again.index].node, again.node);
    world.run(again, served(30));
    let stats = world.engine.stats(world.now);
    let budget = stats.groups[0].tcp.budget;
    assert_eq!((budget.business_starts, budget.recovery), (1, 1));
    assert_eq!(stats.business_starts, 1);
    let alone = cands(&[0]);
    assert!(
        world
            .rank(WEB, &alone, Mode::Retry { failed: node(0) })
            .is_none()
    );
}

/// SI-34.
#[test]
fn nested_groups_share_one_outcome() {
    let mut world = World::new(&[&[0, 1, 2], &[0, 1]]);
    let inner = Flow { group: 2, ..WEB };
    let outer = world.rank(WEB, &cands(&[0, 1, 2]), NO_TRIALS).unwrap();
    let view = cands(&[0, 1]);
    let pick = world
        .rank_joining(inner, &view, NO_TRIALS, outer.attempt)
        .unwrap();
    assert_eq!(pick.attempt, outer.attempt);
    // The same group twice on the way is one attribution.
    let twice = world
        .rank_joining(inner, &view, NO_TRIALS, outer.attempt)
        .unwrap();
    assert_eq!(twice.attempt, outer.attempt);
    world.run(pick, served(30));
    let stats = world.engine.stats(world.now);
    let counted = [0, 1].map(|at| stats.groups[at].tcp.budget.business_starts);
    assert_eq!((counted, stats.business_starts), ([1, 1], 1));
    assert_eq!(
        (stats.cache.aggregate_cells, stats.cache.exact_cells),
        (4, 2)
    );
}

#[test]
fn a_leaf_that_left_the_pool_is_refused_and_refunded() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let view = cands(&[0, 1, 2]);
    world.flow(WEB, &view, served(30));
    world.pass(1000);
    let trial = world.rank(WEB, &view, APPLY).unwrap();
    assert!(trial.trial);
    let ordinary = world.rank(WEB, &view, NO_TRIALS).unwrap();
    world.activate(&[&[0, 1, 2]]);
    let now = world.now;
    let refused = world.engine.begin(now, &trial.attempt.unwrap());
    assert_eq!(refused, Err(Refused::Cancelled));
    let unscored = world.engine.begin(now, &ordinary.attempt.unwrap());
    assert_eq!(unscored, Err(Refused::Unknown));
    let budget = world.engine.stats(now).groups[0].tcp.budget;
    assert_eq!((budget.reserved, budget.refunded, budget.spent), (0, 1, 0));
    assert_eq!(budget.cold_available, 3);
}

#[test]
fn a_leaf_that_lost_its_place_before_its_work_began_is_refused() {
    let leaves = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let mut world = World::new(&[&leaves]);
    let view = cands(&leaves);
    let first = world.rank(WEB, &view, NO_TRIALS).unwrap();
    assert_eq!(first.node, node(0));
    let pinned = world.rank(WEB, &cands(&[0]), Mode::Fixed).unwrap();
    for _ in 0..3 {
        let pick = world.rank(WEB, &cands(&[0]), Mode::Fixed).unwrap();
        world.run(pick, |_| (Outcome::NodeFailure, 0));
    }
    // The next choice replaces who fails.
    let next = world.rank(WEB, &view, NO_TRIALS).unwrap();
    assert_ne!(next.node, node(0));
    let now = world.now;
    let refused = world.engine.begin(now, &first.attempt.unwrap());
    assert_eq!(refused, Err(Refused::Cancelled));
    let stats = world.engine.stats(now);
    assert_eq!(stats.groups[0].tcp.budget.business_starts, 3);
    // A leaf that was decided elsewhere needs no place.
    assert!(world.engine.begin(now, &pinned.attempt.unwrap()).is_ok());
    assert!(world.engine.begin(now, &next.attempt.unwrap()).is_ok());
    assert_eq!(world.engine.dropped().attempts, 2);
}

#[test]
fn an_attempt_that_waited_a_minute_goes_on_without_a_score() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let pick = world.rank(WEB, &cands(&[0, 1, 2]), APPLY).unwrap();
    world.pass(60_000);
    let now = world.now;
    let late = world.engine.begin(now, &pick.attempt.unwrap());
    assert_eq!(late, Err(Refused::Unknown));
    assert_eq!(world.engine.dropped().attempts, 0);
}

#[test]
fn pinned_traffic_is_evidence_without_a_choice() {
    let mut world = World::new(&[&[0, 1, 2]]);
    for _ in 0..5 {
        let pick = world.rank(WEB, &cands(&[2]), Mode::Fixed).unwrap();
        assert_eq!((pick.node, pick.reason), (node(2), None));
        world.run(pick, served(30));
    }
    let stats = world.engine.stats(world.now).groups[0].tcp;
    assert_eq!(
        (stats.budget.business_starts, stats.reasons.choices()),
        (5, 0)
    );
    let best = world.peek(WEB, &cands(&[0, 1, 2]));
    assert_eq!(best, Some(node(2)), "what was learned counts");
}

#[test]
fn a_reload_keeps_evidence_of_who_stays_and_forgets_who_left() {
    let mut world = World::new(&[&[0, 1, 2]]);
    run(
        &mut world,
        600,
        |leaf| if leaf == node(2) { 20 } else { 90 },
    );
    let before = world.engine.stats(world.now);
    world.activate(&[&[0, 2, 3]]);
    let after = world.engine.stats(world.now);
    assert_eq!(after.groups[0].tcp.reasons, before.groups[0].tcp.reasons);
    let [old, new] = [before, after].map(|s| s.groups[0].tcp.budget);
    assert_eq!(new.spent, old.spent);
    assert_eq!(new.cold_available, old.cold_available);
    assert_eq!(world.peek(WEB, &cands(&[0, 2, 3])), Some(node(2)));
    // The winner goes: the next choice is a first one, not a switch.
    world.activate(&[&[0, 3]]);
    let pick = world.rank(WEB, &cands(&[0, 3]), APPLY).unwrap();
    assert!(!pick.switched);
    world.activate(&[]);
    assert!(world.rank(WEB, &cands(&[0, 3]), APPLY).is_none());
    let cache = world.engine.stats(world.now).cache;
    assert_eq!((cache.exact_cells, cache.aggregate_cells), (0, 0));
    assert_eq!(cache.comparison.cells, 0);
}

#[test]
fn an_empty_view_and_a_foreign_group_have_no_answer() {
    let mut world = World::new(&[&[0, 1]]);
    assert!(world.rank(WEB, &[], APPLY).is_none());
    let foreign = Flow { group: 9, ..WEB };
    assert!(world.rank(foreign, &cands(&[0]), APPLY).is_none());
    assert_eq!(
        world.engine.stats(world.now).groups[0]
            .tcp
            .reasons
            .choices(),
        0
    );
    let report = world
        .engine
        .verify(world.now, GroupKey(1), Network::Tcp, &[]);
    assert_eq!(report.unwrap().selected, None);
}

/// SI-39.
#[test]
fn nothing_printed_names_a_target_or_a_node() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let picks = run(&mut world, 30, |leaf| if leaf == node(2) { 20 } else { 90 });
    let view = cands(&[0, 1, 2]);
    let text = name(1);
    let report = world
        .engine
        .verify(world.now, GroupKey(1), Network::Tcp, &view);
    let ctx = super::world::ctx(WEB, Some(&text), None);
    let printed = format!(
        "{:?} {picks:?} {report:?} {view:?} {ctx:?} {:?} {:#?}",
        world.engine,
        world.engine.stats(world.now),
        world.engine
    );
    assert!(!printed.contains("canary"));
    // The mark of every node's number, in both bases.
    for marked in [
        "deadc0de",
        "DEADC0DE",
        &0xdead_c0de_0000_0000_u64.to_string(),
    ] {
        assert!(!printed.contains(marked), "{marked}");
    }
}
