//! Load: caps, sleep of the machine, changes of the network.

use super::*;
use crate::health::limits::{MAX_PROBES, MAX_TARGETS};

fn many(n: u128) -> World {
    let nodes: Vec<u128> = (0..n).collect();
    let selector = GroupFacts {
        automatic: false,
        ..automatic(1, &nodes)
    };
    World::new(setup(vec![selector]))
}

/// Most probes that began within a second.
fn burst(world: &World) -> usize {
    let times = world.started.iter().map(|(at, _)| *at);
    let within = |at: Moment| {
        let inside = |(other, _): &&(Moment, Probe)| *other >= at && other.since(at) < SECOND;
        world.started.iter().filter(inside).count()
    };
    times.map(within).max().unwrap_or(0)
}

#[test]
fn two_thousand_nodes_are_spread_over_their_period() {
    let mut world = many(2000);
    world.run(MINUTE * 3);
    assert!(world.peak <= MAX_PROBES, "{} at a time", world.peak);
    world.started.clear();
    world.run(INTERVAL);
    let probes = world.started.len();
    assert!((1800..2300).contains(&probes), "{probes} per period");
    let burst = burst(&world);
    assert!(burst < 140, "{burst} in one second, 67 on average");
}

#[test]
fn dead_nodes_by_the_thousand_never_exceed_the_cap() {
    let mut world = many(1000);
    for n in 0..1000 {
        world.does.insert(node(n), Does::Silence);
    }
    world.run(MINUTE * 10);
    assert_eq!(world.peak, MAX_PROBES, "silence fills every place");
    assert!((0..1000).all(|n| !world.alive(n)));
}

#[test]
fn a_machine_that_slept_does_not_probe_everything_at_once() {
    let mut world = many(500);
    world.run(MINUTE * 3);
    world.started.clear();
    world.running.clear();
    // The clock jumps; what was under way is reported as failed long ago.
    world.now += MINUTE * 60;
    world.run(Duration::ZERO);
    assert!(world.started.len() < 10, "{} at once", world.started.len());
    world.run(SECOND * 35);
    let probes = world.started.len();
    assert!(probes <= 700, "{probes}: more than a round");
    assert!(burst(&world) < 60);
}

#[test]
fn what_is_selected_is_asked_first_after_a_sleep_and_a_change_of_the_network() {
    let nodes: Vec<u128> = (0..100).collect();
    let mut facts = automatic(1, &nodes);
    facts.interval = MINUTE * 15;
    let mut world = World::new(setup(vec![facts]));
    world.run(MINUTE * 20);
    world.select(1, 40, None);
    world.started.clear();
    world.hear(Event::NetworkChanged);
    world.run(SECOND * 5);
    assert_eq!((world.started.len(), world.probes(40)), (1, 1));
    world.started.clear();
    world.now += MINUTE * 60;
    world.run(Duration::ZERO);
    assert_eq!((world.started.len(), world.probes(40)), (1, 1));
}

#[test]
fn a_change_of_the_network_revives_the_dead_with_one_success() {
    let mut world = many(50);
    for n in 0..50 {
        world.does.insert(node(n), Does::Refuse);
    }
    world.run(MINUTE * 30);
    assert!((0..50).all(|n| !world.alive(n)));
    for n in 0..50 {
        world.does.insert(node(n), Does::Answer(20));
    }
    world.started.clear();
    world.hear(Event::NetworkChanged);
    world.run(SECOND * 3);
    assert!((0..50).all(|n| world.alive(n)));
    assert_eq!(world.started.len(), 50);
}

#[test]
fn changes_in_quick_succession_are_looked_at_twice() {
    let mut world = many(50);
    for n in 0..50 {
        world.does.insert(node(n), Does::Refuse);
    }
    world.run(MINUTE * 30);
    world.started.clear();
    for _ in 0..10 {
        world.hear(Event::NetworkChanged);
    }
    // What comes back after the first look is found by the second.
    world.run(SECOND * 2 - SECOND / 10);
    for n in 0..50 {
        world.does.insert(node(n), Does::Answer(20));
    }
    world.run(SECOND * 3);
    assert!((0..50).all(|n| world.alive(n)));
    let probes = world.started.len();
    assert!((75..=125).contains(&probes), "{probes}");
}

#[test]
fn probes_nobody_waits_for_are_counted_and_ignored() {
    let mut world = many(1);
    let probe = ProbeId(12345);
    let outcome = Outcome::Failure;
    world.hear(Event::Probed { probe, outcome });
    assert_eq!(world.monitor.counts().late, 1);
}

#[test]
fn there_is_a_cap_on_what_is_probed() {
    let extra = 5;
    let world = many((MAX_TARGETS + extra) as u128);
    let counts = world.monitor.counts();
    assert_eq!((counts.targets, counts.untracked), (MAX_TARGETS, extra));
}
