//! What fences, places in the pool, reloads and forgotten nodes do to evidence that is under way.

use super::{
    super::{
        GroupKey, Membership, Mode, Obs, Outcome, Question, Source, Trials, WaitReason,
        cell::{Layer, Layers, Scope},
    },
    evidence::{layers, planned, serve, started, target},
    world::{Flow, WEB, World, cands, node},
};
use crate::id::{Family, Network};

const APPLY: Mode = Mode::Apply(Trials::Allowed);

fn compared(world: &World) -> u64 {
    world.engine.stats(world.now).cache.comparison.cells
}

#[test]
fn an_end_takes_over_the_fence_of_the_node_before_it_sets_its_own() {
    let mut world = World::new(&[&[0, 1]]);
    let other = Flow {
        target: Some(2),
        ..WEB
    };
    serve(&mut world, other, 0, 30);
    let [failing, refused] = [WEB, other].map(|flow| started(&mut world, flow, 0));
    world
        .engine
        .finish(world.now, failing, Outcome::NodeFailure);
    world.pass(1000);
    world
        .engine
        .finish(world.now, refused, Outcome::TargetRefused);
    let exact = layers(&world, 0, 2).exact.unwrap();
    assert_eq!(exact.fence, Some(world.now));
    assert_eq!(
        exact.response.read(world.now),
        None,
        "from before the failure"
    );
}

#[test]
fn a_comparison_begins_after_the_failure() {
    let mut world = World::new(&[&[0, 1]]);
    let flows = [0; 3].map(|_| started(&mut world, WEB, 0));
    let compared = |world: &World| world.engine.stats(world.now).cache.comparison.cells;
    let respond = |world: &mut World, flow| {
        world.engine.observe(world.now, flow, Obs::FirstResponse);
        compared(world)
    };
    world
        .engine
        .finish(world.now, flows[0], Outcome::NodeFailure);
    assert_eq!(respond(&mut world, flows[1]), 0, "at its very moment");
    world.now = world.now.plus_nanos(1);
    assert_eq!(respond(&mut world, flows[2]), 1);
}

#[test]
fn a_leaf_that_is_not_of_the_group_leaves_nothing() {
    let mut world = World::new(&[&[0, 1]]);
    serve(&mut world, WEB, 7, 30);
    let cache = world.engine.stats(world.now).cache;
    assert_eq!((cache.aggregate_cells, cache.exact_cells), (0, 0));
}

#[test]
fn work_is_judged_by_when_it_began_not_by_when_it_was_planned() {
    let mut world = World::new(&[&[0, 1]]);
    let planned = planned(&mut world, WEB, 0, Mode::Fixed);
    world.pass(1000);
    let first = started(&mut world, WEB, 0);
    world.engine.finish(world.now, first, Outcome::NodeFailure);
    world.pass(1000);
    let work = world.engine.begin(world.now, &planned).unwrap();
    let second = world.engine.start(world.now, work, Source::Traffic);
    world.engine.finish(world.now, second, Outcome::NodeFailure);
    assert_eq!(layers(&world, 0, 1).group.unwrap().backoff_step, 2);
}

#[test]
fn cells_of_a_node_that_was_forgotten_start_again() {
    let mut world = World::new(&[&[0, 1]]);
    serve(&mut world, WEB, 0, 30);
    let before = layers(&world, 0, 1).exact.unwrap().incarnation;
    let scope = Scope {
        group: GroupKey(1),
        network: Network::Tcp,
        family: Some(Family::V4),
        target: target(&world, 1),
    };
    let evidence = &mut world.engine.evidence;
    let group = evidence.cells.aggregate.find(&scope.group_key(node(0)));
    evidence.remove(Layer::Group, group.unwrap());
    assert!(layers(&world, 0, 1).exact.is_none());
    serve(&mut world, WEB, 0, 30);
    let Layers { family, exact, .. } = layers(&world, 0, 1);
    assert!(exact.unwrap().incarnation > before);
    for cell in [family, exact] {
        assert_eq!(cell.unwrap().counts(world.now).ok, 1.0);
    }
}

#[test]
fn probes_are_compared_of_members_and_of_who_served_lately() {
    let leaves = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let mut world = World::new(&[&leaves]);
    let view = cands(&leaves);
    world.flow(WEB, &view, |_| (Outcome::Success, 30));
    let pool = |world: &World, n| {
        world.engine.groups[0]
            .net(Network::Tcp)
            .pool
            .contains(node(n))
    };
    assert!(pool(&world, 0) && !pool(&world, 9));
    for _ in 0..3 {
        let reporter = started(&mut world, WEB, 0);
        world
            .engine
            .finish(world.now, reporter, Outcome::NodeFailure);
    }
    world.rank(WEB, &view, APPLY).unwrap();
    assert!(!pool(&world, 0), "it fails, and others do not");
    let before = compared(&world);
    world.probe(1, 9, Some(40.0));
    assert_eq!(compared(&world), before, "neither serves nor did");
    world.probe(1, 0, Some(40.0));
    assert_eq!(compared(&world), before + 1);
}

#[test]
fn a_reload_ends_checks_hints_places_and_reservations() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let view = cands(&[0, 1, 2]);
    world.flow(WEB, &view, |_| (Outcome::Success, 30));
    world.pass(1000);
    let before = compared(&world);
    world.probe(1, 0, Some(40.0));
    assert_eq!(compared(&world), before + 1);
    world.press(0);
    assert!(world.rank(WEB, &view, APPLY).unwrap().trial);
    let net = |world: &World| {
        let net = world.engine.groups[0].net(Network::Tcp);
        let reserved = world.engine.stats(world.now).groups[0].tcp.budget.reserved;
        (net.pool.len(), reserved)
    };
    assert_eq!(net(&world), (3, 1));
    let hint = |world: &World| layers(world, 0, 1).group.unwrap().pressure;
    assert!(hint(&world)[0].at.is_some());
    // The same configuration again is nothing.
    world.generation -= 1;
    world.activate(&[&[0, 1, 2]]);
    assert_eq!(net(&world), (3, 1));
    world.activate(&[&[0, 1, 2]]);
    assert_eq!(net(&world), (0, 0));
    assert_eq!(compared(&world), before);
    assert!(hint(&world)[0].at.is_none());
}

/// S-304.
#[test]
fn counters_outlive_another_policy_and_end_with_the_name() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let view = cands(&[0, 1, 2]);
    for _ in 0..5 {
        world.flow(WEB, &view, |_| (Outcome::Success, 30));
        world.pass(1000);
    }
    let tcp = |world: &World| world.engine.stats(world.now).groups[0].tcp;
    let before = tcp(&world);
    assert!(before.reasons.choices() == 5 && before.budget.spent > 0);
    // Configured with another policy for a while: not shown, and not forgotten.
    world.generation += 1;
    let membership = Membership {
        generation: world.generation,
        groups: Vec::new(),
        dormant: vec![GroupKey(1)],
    };
    world.engine.activate(world.now, &membership);
    assert!(world.engine.stats(world.now).groups.is_empty());
    assert!(world.rank(WEB, &view, APPLY).is_none());
    world.activate(&[&[0, 1, 2]]);
    let kept = tcp(&world);
    assert_eq!(kept.reasons, before.reasons);
    assert_eq!(kept.budget.spent, before.budget.spent);
    assert_eq!(kept.budget.business_starts, before.budget.business_starts);
    world.activate(&[]);
    world.activate(&[&[0, 1, 2]]);
    assert_eq!(tcp(&world), Default::default());
}

#[test]
fn outcomes_of_trials_are_forgotten_by_a_reload() {
    let mut world = World::new(&[&[0, 1]]);
    let view = cands(&[0, 1]);
    let budget = |world: &World| world.engine.stats(world.now).groups[0].tcp.budget;
    let paused = (0..200).any(|number| {
        // Its failures stay with the target.
        let flow = Flow {
            target: Some(number % 4),
            ..WEB
        };
        world.flow(flow, &view, |leaf| match leaf == node(0) {
            true => (Outcome::Success, 30),
            false => (Outcome::TargetTimeout, 0),
        });
        world.pass(100);
        budget(&world).paused_scopes == 1
    });
    assert!(paused, "two trials in a row come to nothing");
    world.activate(&[&[0, 1]]);
    assert_eq!(budget(&world).paused_scopes, 0);
}

#[test]
fn two_idle_hours_leave_a_sixteenth_of_the_record_and_no_speed() {
    let mut world = World::new(&[&[0, 1]]);
    for _ in 0..8 {
        serve(&mut world, WEB, 0, 90);
        serve(&mut world, WEB, 1, 20);
    }
    let fresh = Flow {
        target: Some(2),
        ..WEB
    };
    let view = cands(&[0, 1]);
    for (leaf, millis) in [(0, 40.0), (1, 80.0)] {
        world.probe(1, leaf, Some(millis));
    }
    assert_eq!(world.peek(fresh, &view), Some(node(1)), "by business");
    let record = |world: &World| layers(world, 1, 1).group.unwrap().counts(world.now).ok;
    let before = record(&world);
    world.pass(7_200_000);
    for (leaf, millis) in [(0, 40.0), (1, 80.0)] {
        world.probe(1, leaf, Some(millis));
    }
    assert!((record(&world) - before / 16.0).abs() < 1e-9);
    let Layers {
        group,
        family,
        exact,
    } = layers(&world, 1, 1);
    for cell in [group, family, exact] {
        assert_eq!(cell.unwrap().response.read(world.now), None);
    }
    assert_eq!(world.peek(fresh, &view), Some(node(0)), "by probe");
}

#[test]
fn an_old_hint_is_none() {
    let mut world = World::new(&[&[0, 1]]);
    serve(&mut world, WEB, 0, 30);
    for (age, taken) in [(60, 0), (59, 1)] {
        let mut hint = world.hint(0);
        hint.at = world.now;
        world.pass(age * 1000);
        world.engine.pressure(world.now, hint);
        let reasons = world.engine.stats(world.now).groups[0].tcp.reasons;
        assert_eq!(reasons.carrier_pressure, taken);
    }
}

#[test]
fn a_hint_is_validated_once_by_a_trial_that_was_earned() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let view = cands(&[0, 1, 2]);
    let stats = |world: &World| world.engine.stats(world.now).groups[0].tcp;
    world.flow(WEB, &view, |_| (Outcome::Success, 30));
    let mut pressed = false;
    let mut since = 0;
    for _ in 0..400 {
        let before = stats(&world).budget;
        if before.cold == 0 {
            world.press(0);
        } else if before.cold_available == 0 && !pressed {
            assert_eq!(
                stats(&world).reasons.carrier_validation,
                0,
                "by the allowance"
            );
            world.press(0);
            (pressed, since) = (true, before.periodic);
        }
        world.flow(WEB, &view, |leaf| {
            (Outcome::Success, if leaf == node(0) { 30 } else { 90 })
        });
        world.pass(100);
        if pressed && stats(&world).budget.periodic == since + 2 {
            break;
        }
    }
    assert_eq!(stats(&world).budget.periodic, since + 2, "two were earned");
    assert_eq!(stats(&world).reasons.carrier_validation, 1);
}

#[test]
fn a_flow_is_a_trial_of_one_group_only() {
    let mut world = World::new(&[&[0, 1, 2], &[0, 1, 2]]);
    let view = cands(&[0, 1, 2]);
    let inner = Flow { group: 2, ..WEB };
    for flow in [WEB, inner] {
        world.flow(flow, &view, |_| (Outcome::Success, 30));
        world.pass(1000);
    }
    let outer = world.rank(WEB, &view, APPLY).unwrap();
    assert!(outer.trial);
    let joined = world
        .rank_joining(inner, &view, APPLY, outer.attempt)
        .unwrap();
    assert!(!joined.trial);
    assert!(
        world.rank(inner, &view, APPLY).unwrap().trial,
        "it wanted one"
    );
}

#[test]
fn the_ninth_group_on_the_way_has_no_part_in_a_flow() {
    let leaves: &[u8] = &[0, 1];
    let mut world = World::new(&[leaves; 9]);
    let view = cands(leaves);
    let mut pick = world.rank(WEB, &view, APPLY).unwrap();
    for group in 2..=9 {
        let flow = Flow { group, ..WEB };
        pick = world
            .rank_joining(flow, &view, APPLY, pick.attempt)
            .unwrap();
    }
    world.run(pick, |_| (Outcome::Success, 30));
    let stats = world.engine.stats(world.now);
    let starts = stats.groups.iter().map(|g| g.tcp.budget.business_starts);
    assert_eq!(starts.collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn a_member_with_four_unfinished_trials_is_in_flight() {
    let mut world = World::new(&[&[0, 1]]);
    let view = cands(&[0, 1]);
    let mut trials = 0;
    for _ in 0..200 {
        let pick = world.rank(WEB, &view, APPLY).unwrap();
        if !pick.trial {
            world.run(pick, |_| (Outcome::Success, 20));
            continue;
        }
        // Answered, and not over.
        trials += 1;
        let now = world.now;
        let work = world.engine.begin(now, &pick.attempt.unwrap()).unwrap();
        let reporter = world.engine.start(now, work, Source::Traffic);
        for event in [
            Obs::Setup,
            Obs::Tx { bytes: 9, at: now },
            Obs::Rx { bytes: 9, at: now },
        ] {
            world.engine.observe(now, reporter, event);
        }
    }
    assert_eq!(trials, 4);
    let report = world
        .engine
        .verify(world.now, GroupKey(1), Network::Tcp, &view);
    let report = report.unwrap();
    assert_eq!(report.question, Question::Qualification);
    assert_eq!(report.wait_reason, WaitReason::InFlight);
}

#[test]
fn a_comparison_that_leaves_targets_out_stays_a_question() {
    let other = Flow {
        target: Some(2),
        ..WEB
    };
    let question = |thin: bool| {
        let mut world = World::new(&[&[0, 1]]);
        for leaf in [0, 1].repeat(6) {
            serve(&mut world, WEB, leaf, 30);
        }
        if thin {
            serve(&mut world, other, 0, 30);
            serve(&mut world, other, 1, 30);
        }
        let view = cands(&[0, 1]);
        let report = world
            .engine
            .verify(world.now, GroupKey(1), Network::Tcp, &view);
        report.unwrap().question
    };
    assert_eq!(question(false), Question::None);
    assert_eq!(question(true), Question::Response);
}

#[test]
fn a_report_is_fresh_while_its_selection_is_seen_to_work() {
    let mut world = World::new(&[&[0, 1]]);
    for _ in 0..4 {
        serve(&mut world, WEB, 0, 30);
    }
    let view = cands(&[0, 1]);
    let report = world
        .engine
        .verify(world.now, GroupKey(1), Network::Tcp, &view);
    assert_eq!(report.unwrap().fresh_until, Some(world.now.plus_secs(60)));
}
