//! Reports on a group: what they say at each stage, and that they say it of the right member.

use super::world::{Flow, WEB, World, cands, node};
use crate::{
    id::{Family, Network},
    score::{
        Challengers, GroupKey, Mode, NextAction, Outcome, Question, Report, Source, State, Trials,
        WaitReason,
    },
};

fn report(world: &World, view: &[u8]) -> Report {
    let group = GroupKey(1);
    let report = world
        .engine
        .verify(world.now, group, Network::Tcp, &cands(view));
    report.expect("a group with score")
}

/// What is unsure, what it waits for, and why.
fn open(world: &World, view: &[u8]) -> (Question, NextAction, WaitReason) {
    let report = report(world, view);
    (report.question, report.next_action, report.wait_reason)
}

/// A flow that goes to this leaf whatever the engine would choose.
fn through(world: &mut World, leaf: u8, response: u64) {
    let pick = world
        .rank(WEB, &cands(&[leaf]), Mode::Fixed)
        .expect("a leaf");
    world.run(pick, |_| (Outcome::Success, response));
}

/// Flows of a family until its cold allowance is spent on trials that come to nothing.
fn exhaust(world: &mut World, family: Family) {
    let flow = Flow {
        family: Some(family),
        ..WEB
    };
    let spent = |world: &World| world.engine.stats(world.now).groups[0].tcp.budget.spent;
    let before = spent(world);
    for _ in 0..12 {
        let pick = world.rank(flow, &cands(&[0, 1]), Mode::Apply(Trials::Allowed));
        let pick = pick.expect("a leaf");
        if !pick.trial {
            world.run(pick, |_| (Outcome::Success, 20));
            continue;
        }
        world.run(pick, |_| (Outcome::Cancelled, 0));
        if spent(world) == before + 2 {
            return;
        }
    }
    panic!("the allowance is not spent");
}

#[test]
fn nothing_is_selected_where_nothing_is() {
    let world = World::new(&[&[0, 1]]);
    assert_eq!(report(&world, &[]), Report::default());
}

#[test]
fn a_new_group_waits_for_flows() {
    let world = World::new(&[&[0, 1, 2]]);
    let report = report(&world, &[0, 1, 2]);
    assert_eq!(report.selected.map(|s| s.node), Some(node(0)));
    assert_eq!(
        (report.state, report.fresh_until),
        (State::Provisional, None)
    );
    assert_eq!(report.challengers.unknown, 2);
    assert_eq!((report.coverage.evaluated, report.coverage.pending), (3, 2));
    let waits = (
        Question::Availability,
        NextAction::NextBusinessFlow,
        WaitReason::ComparableTraffic,
    );
    assert_eq!(open(&world, &[0, 1, 2]), waits);
}

#[test]
fn a_trial_under_way_shows_whatever_the_budget() {
    let mut world = World::new(&[&[0, 1]]);
    exhaust(&mut world, Family::V6);
    let pick = world.rank(WEB, &cands(&[0, 1]), Mode::Apply(Trials::Allowed));
    let pick = pick.expect("a leaf");
    assert!(pick.trial);
    assert_eq!(open(&world, &[0, 1]).2, WaitReason::InFlight);
    let attempt = pick.attempt.expect("there is room");
    let work = world
        .engine
        .begin(world.now, &attempt)
        .expect("not refused");
    let reporter = world.engine.start(world.now, work, Source::Traffic);
    assert_eq!(open(&world, &[0, 1]).2, WaitReason::InFlight);
    world.engine.finish(world.now, reporter, Outcome::Cancelled);
    assert_eq!(open(&world, &[0, 1]).2, WaitReason::ComparableTraffic);
}

#[test]
fn spent_credit_shows_when_no_family_has_any() {
    let mut world = World::new(&[&[0, 1]]);
    exhaust(&mut world, Family::V4);
    assert_eq!(
        open(&world, &[0, 1]).2,
        WaitReason::ComparableTraffic,
        "IPv6 has a whole allowance"
    );
    exhaust(&mut world, Family::V6);
    let waits = (
        Question::Availability,
        NextAction::NextBusinessFlow,
        WaitReason::Budget,
    );
    assert_eq!(open(&world, &[0, 1]), waits);
}

#[test]
fn who_failed_is_waited_for() {
    let mut world = World::new(&[&[0, 1]]);
    for _ in 0..4 {
        through(&mut world, 0, 20);
    }
    let pick = world.rank(WEB, &cands(&[1]), Mode::Fixed).expect("a leaf");
    world.run(pick, |_| (Outcome::NodeFailure, 0));
    assert_eq!(
        open(&world, &[0, 1]).0,
        Question::None,
        "just failed and out"
    );
    world.pass(130_000);
    let waits = (Question::Recovery, NextAction::Backoff, WaitReason::Backoff);
    assert_eq!(open(&world, &[0, 1]), waits);
    world.pass(180_000);
    assert_eq!(open(&world, &[0, 1]).1, NextAction::NextBusinessFlow);
}

#[test]
fn relations_are_counted_and_end() {
    let mut world = World::new(&[&[0, 1, 2, 3]]);
    for _ in 0..4 {
        for (leaf, response) in [(0, 100), (1, 60), (2, 105), (3, 160)] {
            through(&mut world, leaf, response);
        }
    }
    let seen = report(&world, &[0, 1, 2, 3]);
    let selected = seen.selected.expect("a selection").node;
    assert_eq!(selected, node(1), "the fastest of equally reliable ones");
    let slower = Challengers {
        selected_faster: 3,
        ..Challengers::default()
    };
    assert_eq!(seen.challengers, slower);
    assert_eq!(seen.state, State::ObservedUsable);
    let until = seen.fresh_until.expect("it ends");
    world.now = until;
    let later = report(&world, &[0, 1, 2, 3]);
    assert!(later.challengers.unknown > 0 || later.state == State::Provisional);
}
