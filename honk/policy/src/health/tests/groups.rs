//! Periods, idleness, passive checks, group tests and reloads.

use super::super::TestStart;
use super::*;

#[test]
fn flows_through_the_selected_member_replace_probes() {
    let mut group = automatic(1, &[1, 2]);
    group.interval = SECOND * 10;
    let mut world = World::settled(setup(vec![group]));
    world.select(1, 1, Some(1));
    let flows = |world: &mut World| {
        for _ in 0..12 {
            world.flow(1);
            world.run(SECOND * 5);
        }
    };
    flows(&mut world);
    world.started.clear();
    flows(&mut world);
    assert_eq!(world.started, [], "a minute without probes");
    assert!(world.monitor.skips().all(|(_, skips)| skips > 0));
    world.run(SECOND * 30);
    assert!(world.probes(1) >= 1 && world.probes(2) >= 1);
}

/// A minute in which the selected member keeps bringing answers.
fn proofs(world: &mut World) {
    for _ in 0..12 {
        world.hear(Event::FirstByte { node: node(1) });
        world.run(SECOND * 5);
    }
}

#[test]
fn a_strike_or_another_udp_member_needs_probes_again() {
    for (udp, struck) in [(None, false), (None, true), (Some(2), false)] {
        let mut world = World::settled(setup(vec![automatic(1, &[1, 2])]));
        world.select(1, 1, udp);
        if struck {
            world.dial_failed(1);
            world.dial_failed(1);
        }
        // The strike itself makes everybody look once.
        proofs(&mut world);
        world.started.clear();
        proofs(&mut world);
        let probed = world.probes(2) >= 1;
        assert_eq!(probed, struck || udp.is_some(), "{udp:?} {struck}");
    }
}

#[test]
fn a_dead_member_is_asked_whatever_flows_prove() {
    let mut world = World::settled(setup(vec![automatic(1, &[1, 2])]));
    world.select(1, 1, None);
    world.does.insert(node(2), Does::Refuse);
    world.run(MINUTE * 2);
    assert!(!world.alive(2));
    world.does.insert(node(2), Does::Answer(30));
    for _ in 0..6 {
        proofs(&mut world);
    }
    assert!(world.alive(2));
}

#[test]
fn a_node_of_two_groups_is_asked_at_the_shorter_period() {
    let mut often = automatic(2, &[1]);
    often.interval = SECOND * 5;
    let mut world = World::settled(setup(vec![automatic(1, &[1, 2]), often]));
    world.run(MINUTE);
    let probes = [world.probes(1), world.probes(2)];
    assert!(probes[0] >= 10 && probes[1] <= 3, "{probes:?}");
}

#[test]
fn passive_check_can_be_switched_off() {
    let mut group = automatic(1, &[1]);
    group.passive = false;
    let mut world = World::settled(setup(vec![group]));
    world.select(1, 1, None);
    for _ in 0..60 {
        world.flow(1);
        world.run(SECOND);
    }
    assert!(world.probes(1) >= 1);
}

#[test]
fn a_group_falls_asleep_and_the_next_flow_wakes_it_at_once() {
    let mut group = automatic(1, &[1, 2]);
    group.idle = Some(MINUTE * 5);
    group.passive = false;
    let mut world = World::settled(setup(vec![group]));
    world.select(1, 1, None);
    world.run(MINUTE * 5);
    world.started.clear();
    world.run(MINUTE * 60);
    assert_eq!(world.started, []);
    world.flow(1);
    world.run(SECOND * 2);
    assert_eq!((world.probes(1), world.probes(2)), (1, 1));
}

#[test]
fn a_flow_of_another_group_wakes_nobody() {
    let mut group = automatic(1, &[1, 2]);
    group.idle = Some(MINUTE);
    let mut world = World::settled(setup(vec![group]));
    world.select(1, 1, None);
    world.run(MINUTE * 2);
    world.started.clear();
    world.flow(2);
    world.run(MINUTE * 5);
    assert_eq!(world.started, []);
}

#[test]
fn a_group_that_the_kernel_serves_never_sleeps() {
    let mut facts = automatic(1, &[1]);
    facts.idle = Some(MINUTE);
    let mut world = World::settled(setup(vec![facts]));
    world.monitor.selected(&[Selection {
        group: group(1),
        tcp: None,
        udp: None,
        unseen: true,
    }]);
    world.run(MINUTE * 10);
    assert!(world.probes(1) > 5);
}

#[test]
fn a_test_asks_everybody_once_and_absorbs_others() {
    let nodes: Vec<u128> = (0..30).collect();
    let mut facts = automatic(1, &nodes);
    facts.interval = MINUTE * 15;
    let mut world = World::new(setup(vec![facts]));
    assert_eq!(
        world.started.len(),
        10,
        "the first test runs, ten at a time"
    );
    assert_eq!(world.test(1), TestStart::Absorbed);
    world.run(SECOND * 10);
    assert_eq!(world.started.len(), 30);
    assert_eq!(world.tested.len(), 1);
    assert_eq!(world.test(1), TestStart::Started);
    assert_eq!(world.test(2), TestStart::Nothing);
    world.run(SECOND * 10);
    assert_eq!((world.started.len(), world.tested.len()), (60, 2));
    assert_eq!(world.peak, 10);
}

#[test]
fn the_death_of_the_selected_member_tests_the_others_long_before_their_time() {
    let mut facts = automatic(1, &[1, 2, 3]);
    facts.interval = MINUTE * 15;
    facts.passive = false;
    let mut world = World::new(setup(vec![facts]));
    world.run(MINUTE * 2);
    world.select(1, 1, None);
    world.started.clear();
    world.does.insert(node(1), Does::Refuse);
    world.dial_failed(1);
    world.run(SECOND * 5);
    assert!(!world.alive(1));
    assert!(world.probes(2) >= 1 && world.probes(3) >= 1);
}

#[test]
fn a_reload_keeps_what_is_known_and_ends_tests() {
    let mut world = World::settled(setup(vec![automatic(1, &[1, 2])]));
    world.does.insert(node(1), Does::Refuse);
    world.run(MINUTE);
    world.dial_failed(2);
    world.dial_failed(2);
    world.test(1);
    world.started.clear();
    world.tested.clear();
    world.configure(setup(vec![automatic(1, &[2, 1, 5])]));
    assert!(!world.alive(1));
    assert_eq!(world.state(2).unwrap().strikes, 1);
    world.run(SECOND * 3);
    assert_eq!(world.tested, [], "none survives");
    world.run(MINUTE);
    assert!(world.probes(5) >= 1 && world.probes(1) >= 1);
    world.configure(setup(vec![automatic(1, &[2])]));
    assert_eq!(world.state(1), None);
}

#[test]
fn another_check_url_starts_afresh_and_is_tested() {
    let with = |url: &str| {
        setup(vec![GroupFacts {
            tcp: Vec::new(),
            members: vec![MemberId::Node(node(1))],
            check_url: Some(url.into()),
            ..automatic(1, &[])
        }])
    };
    let mut world = World::settled(with("http://a.test/"));
    let known = |world: &World| {
        let view = world.view();
        view.member(group(1), MemberId::Node(node(1)), Family::V4)
            .is_some()
    };
    assert!(known(&world));
    world.configure(with("http://a.test/"));
    assert!(known(&world));
    world.configure(with("http://b.test/"));
    assert!(!known(&world));
    world.run(SECOND);
    assert!(known(&world));
}
