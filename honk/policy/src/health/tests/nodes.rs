//! Death, recovery and what real traffic does.

use super::*;

#[test]
fn a_silent_node_dies_after_three_probes_and_comes_back_after_two() {
    let mut world = World::settled(setup(vec![automatic(1, &[1, 2])]));
    world.does.insert(node(1), Does::Silence);
    world.run(MINUTE);
    assert!(!world.alive(1) && world.alive(2));
    assert!(world.probes(1) >= 3);
    world.does.insert(node(1), Does::Answer(30));
    world.run(MINUTE);
    assert!(world.alive(1));
    let shifts: Vec<_> = world.transitions.iter().map(|(_, t)| t.shift).collect();
    assert_eq!(shifts, [Shift::Died, Shift::Revived]);
}

#[test]
fn a_dead_node_is_never_given_up_and_rarely_asked() {
    let mut world = World::settled(setup(vec![automatic(1, &[1])]));
    world.does.insert(node(1), Does::Refuse);
    world.run(MINUTE * 20);
    world.started.clear();
    world.run(MINUTE * 60);
    let probes = world.probes(1);
    assert!((10..=15).contains(&probes), "{probes} in an hour");
}

#[test]
fn a_new_node_is_not_judged_in_its_first_minute() {
    // A selector is not tested at start, so nothing is asked for.
    let selector = GroupFacts {
        automatic: false,
        interval: SECOND * 5,
        ..automatic(1, &[1])
    };
    let mut world = World::new(setup(vec![selector]));
    world.does.insert(node(1), Does::Refuse);
    world.run(SECOND * 59);
    assert!(world.probes(1) > 5);
    assert_eq!(world.state(1), None, "unknown is alive");
    world.run(SECOND * 30);
    assert!(!world.alive(1));
}

#[test]
fn the_selected_node_is_confirmed_dead_at_once_even_when_new() {
    let mut world = World::new(setup(vec![automatic(1, &[1, 2])]));
    world.select(1, 1, None);
    world.does.insert(node(1), Does::Refuse);
    world.run(SECOND * 5);
    assert!(!world.alive(1), "the first test asks for a judgement");
}

#[test]
fn ten_failed_flows_kill_and_working_ones_do_not_let_a_check_kill() {
    let mut world = World::settled(setup(vec![automatic(1, &[1, 2])]));
    for n in 1..=10 {
        assert!(world.alive(1), "after {} failures", n - 1);
        world.dial_failed(1);
    }
    assert!(!world.alive(1));
    // The check of 2 fails while flows work.
    world.does.insert(node(2), Does::Refuse);
    for _ in 0..300 {
        world.run(SECOND);
        world.dialed(2, 20);
    }
    assert!(world.alive(2));
}

#[test]
fn two_failed_flows_strike_and_the_node_is_looked_at_within_a_second() {
    let mut world = World::settled(setup(vec![automatic(1, &[1, 2])]));
    world.select(1, 1, None);
    world.run(SECOND * 2);
    world.started.clear();
    world.dial_failed(1);
    assert_eq!(world.state(1).unwrap().strikes, 0);
    world.dial_failed(1);
    assert_eq!(world.state(1).unwrap().strikes, 1);
    world.run(SECOND * 2);
    assert!(world.probes(1) >= 1 && world.probes(2) >= 1);
    assert_eq!(
        world.state(1).unwrap().strikes,
        1,
        "probes make nothing good"
    );
    world.dialed(1, 20);
    world.dialed(1, 20);
    assert_eq!(world.state(1).unwrap().strikes, 0);
}

#[test]
fn failing_flows_by_the_thousand_cause_one_probe_a_second() {
    let mut world = World::settled(setup(vec![automatic(1, &[1])]));
    for _ in 0..100 {
        world.run(SECOND / 10);
        world.dialed(1, 20);
        world.dial_failed(1);
    }
    assert!(world.probes(1) <= 11, "{}", world.probes(1));
}

#[test]
fn with_a_dead_udp_check_few_failing_tunnels_are_enough() {
    let udp = GroupFacts {
        udp: vec![node(1)],
        ..automatic(1, &[1])
    };
    let mut world = World::settled(setup(vec![udp]));
    let unanswered = |domain| Event::Unanswered {
        node: node(1),
        family: Family::V4,
        domain,
    };
    let data = |world: &World| world.view().node(node(1), Domain::DataUdp, Family::V4);
    for _ in 0..4 {
        world.hear(unanswered(Domain::DataUdp));
    }
    assert!(data(&world).unwrap().alive, "the check still answers");
    for _ in 0..3 {
        world.hear(unanswered(Domain::DnsUdp));
    }
    assert!(data(&world).unwrap().alive, "a check alone proves nothing");
    world.hear(unanswered(Domain::DataUdp));
    assert!(!data(&world).unwrap().alive);
}

#[test]
fn datagrams_are_judged_apart_from_streams() {
    let udp = GroupFacts {
        udp: vec![node(1)],
        ..automatic(1, &[1])
    };
    let mut world = World::settled(setup(vec![udp]));
    let state = |world: &World, domain| world.view().node(node(1), domain, Family::V4);
    assert!(state(&world, Domain::DnsUdp).unwrap().alive);
    assert_eq!(state(&world, Domain::DataUdp), None, "nothing was sent yet");
    for (domain, death) in [(Domain::DataUdp, 50), (Domain::DnsUdp, 3)] {
        for n in 1..=death {
            world.hear(Event::Unanswered {
                node: node(1),
                family: Family::V4,
                domain,
            });
            let alive = state(&world, domain).unwrap().alive;
            assert_eq!(alive, n < death, "{domain:?} after {n}");
        }
    }
    assert!(world.alive(1));
}

#[test]
fn a_family_without_address_says_what_the_other_says() {
    let mut facts = setup(vec![automatic(1, &[1])]);
    facts.nodes[0].families = vec![Family::V4, Family::V6];
    let mut world = World::new(facts);
    let v6 = |p: &Probe| p.subject.family() == Family::V6;
    let probe = world.started.iter().find(|(_, p)| v6(p)).unwrap().1.id;
    world.running.retain(|_, p| !v6(p));
    world.hear(Event::Probed {
        probe,
        outcome: Outcome::Absent,
    });
    world.does.insert(node(1), Does::Refuse);
    world.select(1, 1, None);
    world.run(MINUTE * 3);
    let state = world.view().node(node(1), Domain::Tcp, Family::V6);
    assert!(!state.unwrap().alive);
    assert_eq!(world.view().exact(node(1), Domain::Tcp, Family::V6), None);
    let v6 = world.started.iter().filter(|(_, p)| v6(p)).count();
    assert_eq!(v6, 1, "asked again after ten minutes only");
}

#[test]
fn each_family_speaks_for_itself_once_it_was_seen() {
    let mut facts = setup(vec![automatic(1, &[1])]);
    facts.nodes[0].families = vec![Family::V4, Family::V6];
    let mut world = World::settled(facts);
    for _ in 0..10 {
        world.dial_failed(1);
    }
    let alive = |family| world.view().node(node(1), Domain::Tcp, family).unwrap();
    assert!(!alive(Family::V4).alive && alive(Family::V6).alive);
}

#[test]
fn a_new_node_may_be_struck_before_it_is_judged() {
    let mut world = World::new(setup(vec![automatic(1, &[1])]));
    world.dial_failed(1);
    world.dial_failed(1);
    assert_eq!(
        world.state(1).map(|s| (s.alive, s.strikes)),
        Some((true, 1))
    );
}

#[test]
fn what_is_no_failure_of_the_node_never_counts_as_one() {
    for outcome in [Outcome::Absent, Outcome::Neutral] {
        let mut world = World::new(setup(vec![automatic(1, &[1])]));
        world.select(1, 1, None);
        for _ in 0..12 {
            let ends: Vec<_> = world.running.keys().map(|(_, id)| *id).collect();
            world.running.clear();
            for probe in ends {
                world.hear(Event::Probed { probe, outcome });
            }
            let seen = world.started.len();
            while world.started.len() == seen {
                world.run(SECOND * 5);
            }
        }
        assert_eq!(world.transitions, [], "{outcome:?}");
        assert!(world.alive(1), "{outcome:?}");
    }
}

#[test]
fn the_average_halves_and_history_is_bounded() {
    let mut world = World::new(setup(vec![automatic(1, &[1])]));
    world.does.insert(node(1), Does::Answer(100));
    world.run(MINUTE * 10);
    let latency = world.state(1).unwrap().latency_ms.unwrap();
    assert!((99.0..=101.0).contains(&latency), "{latency}");
    assert_eq!(
        world.monitor.history(node(1)).len(),
        super::super::limits::HISTORY
    );
}

#[test]
fn a_node_that_is_switched_off_is_not_probed() {
    let mut world = World::settled(setup(vec![automatic(1, &[1, 2])]));
    world.monitor.disable([node(1)].into());
    world.run(MINUTE * 5);
    assert!(world.probes(1) <= 1, "one may have been due already");
    assert!(world.probes(2) > 5);
    assert!(world.view().is_disabled(node(1)) && !world.view().is_disabled(node(2)));
}

#[test]
fn publishing_names_those_that_may_differ() {
    let mut world = World::settled(setup(vec![automatic(1, &[1, 2])]));
    world.monitor.publish();
    let (_, touched) = world.monitor.publish();
    assert_eq!(touched, super::super::Touched::default());
    world.dial_failed(1);
    world.dial_failed(1);
    world.monitor.disable([node(2)].into());
    let (view, touched) = world.monitor.publish();
    assert_eq!(touched.nodes, [node(1), node(2)].into());
    assert!(view.is_disabled(node(2)));
}
