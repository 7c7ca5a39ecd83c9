//! Groups over hours of virtual time: who serves while nodes die, slow down, flap and return.

use honk_policy::config::{FilterLine, Policy};
use honk_tests::sim::{Act, Behaviour, Fact, Script, World, run};

use Behaviour::{Blackhole, Lossy, Refuses, Up};

#[test]
fn urltest_finds_the_fastest_and_leaves_a_killed_node_within_seconds() {
    let world = World::default()
        .node("near", &[(0, Up(40)), (600, Refuses)])
        .node("far", &[(0, Up(180))])
        .node("mid", &[(0, Up(90))])
        .group("g", Policy::UrlTest);
    let history = run(&world, &Script::lasting(1200).flows_each(500));
    let settled = history.flows("g", 30..600);
    assert!(
        settled
            .iter()
            .all(|(leaf, ok)| *leaf == Some("near") && *ok)
    );
    let after: Vec<_> = history
        .switches("g")
        .into_iter()
        .filter(|s| s.0 >= 600.0)
        .collect();
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(after[0].0 < 605.0 && after[0].2 == "mid", "{after:?}");
    assert_eq!(history.failed("g", 606..1200), 0);
}

#[test]
fn a_blackholed_node_is_left_without_traffic_too() {
    let world = World::default()
        .node("near", &[(0, Up(40)), (600, Blackhole)])
        .node("far", &[(0, Up(180))])
        .group_with("g", Policy::UrlTest, |g| g.idle_timeout_s = Some(0));
    let history = run(&world, &Script::lasting(900));
    let switches = history.switches("g");
    let last = switches.last().expect("a switch");
    assert!(last.2 == "far" && last.0 > 600.0, "{switches:?}");
    // A check each 30 s, then two confirmations, each 5 s long.
    assert!(last.0 < 660.0, "{switches:?}");
}

#[test]
fn a_node_that_slows_down_is_left_when_its_average_says_so() {
    let world = World::default()
        .node("near", &[(0, Up(40)), (600, Up(400)), (1200, Up(40))])
        .node("far", &[(0, Up(180))])
        .group_with("g", Policy::UrlTest, |g| g.idle_timeout_s = Some(0));
    // Without flows, which would prove the selected node and save the checks.
    let history = run(&world, &Script::lasting(1800));
    let switches = history.switches("g");
    let switches: Vec<_> = switches.into_iter().filter(|s| s.0 > 60.0).collect();
    let leaves: Vec<_> = switches.iter().map(|s| s.2).collect();
    assert_eq!(leaves, ["far", "near"], "{switches:?}");
    assert!(switches.iter().all(|s| s.1 == "auto"));
}

#[test]
fn nodes_of_equal_speed_do_not_take_turns() {
    let world = World::default()
        .node(
            "one",
            &[(0, Up(100)), (300, Up(130)), (600, Up(95)), (900, Up(120))],
        )
        .node(
            "two",
            &[(0, Up(110)), (300, Up(100)), (600, Up(125)), (900, Up(90))],
        )
        .group("g", Policy::UrlTest);
    let history = run(&world, &Script::lasting(3600).flows_each(5000));
    let late = history
        .switches("g")
        .into_iter()
        .filter(|s| s.0 > 60.0)
        .count();
    assert_eq!(late, 0, "{:?}", history.switches("g"));
}

#[test]
fn a_flapping_node_does_not_make_the_group_flap() {
    let mut schedule = vec![(0, Up(40))];
    for n in 0..60 {
        schedule.push((300 + n * 20, Refuses));
        schedule.push((310 + n * 20, Up(40)));
    }
    let world = World::default()
        .node("flaps", &schedule)
        .node("steady", &[(0, Up(80))])
        .group("g", Policy::UrlTest);
    let history = run(&world, &Script::lasting(1800).flows_each(500));
    assert!(
        history.most_in_10_s("g") <= 1,
        "{:?}",
        history.switches("g")
    );
    let total = history.flows("g", 300..1500).len();
    let failed = history.failed("g", 300..1500);
    assert!(failed * 10 < total, "{failed} of {total} flows failed");
}

#[test]
fn a_lossy_node_gives_way_to_a_slower_one_that_answers() {
    let world = World::default()
        .node("lossy", &[(0, Up(40)), (300, Lossy(40, 60))])
        .node("steady", &[(0, Up(150))])
        .group("g", Policy::UrlTest);
    for seed in 1..6 {
        let history = run(&world, &Script::lasting(1500).flows_each(500).seed(seed));
        let late = history.flows("g", 600..1500);
        let steady = late
            .iter()
            .filter(|(leaf, _)| *leaf == Some("steady"))
            .count();
        assert!(
            steady * 2 > late.len(),
            "seed {seed}: {steady} of {}",
            late.len()
        );
    }
}

#[test]
fn fallback_stays_where_it_is_when_the_first_member_returns() {
    let world = World::default()
        .node("first", &[(0, Up(300)), (300, Refuses), (600, Up(300))])
        .node("second", &[(0, Up(40)), (1200, Refuses)])
        .group("g", Policy::Fallback);
    let history = run(&world, &Script::lasting(1800).flows_each(500));
    let switches = history.switches("g");
    let moves: Vec<_> = switches.iter().map(|s| (s.1, s.2)).collect();
    assert_eq!(
        moves,
        [("health", "second"), ("health", "first")],
        "{switches:?}"
    );
    assert!(
        switches[0].0 > 300.0 && switches[0].0 < 330.0,
        "{switches:?}"
    );
    assert!(
        switches[1].0 > 1200.0 && switches[1].0 < 1230.0,
        "{switches:?}"
    );
}

#[test]
fn loadbalance_spreads_evenly_and_skips_the_dead() {
    let world = World::default()
        .node("a", &[(0, Up(40))])
        .node("b", &[(0, Up(90)), (300, Refuses), (900, Up(90))])
        .node("c", &[(0, Up(400))])
        .group("g", Policy::LoadBalance);
    let history = run(&world, &Script::lasting(1500).flows_each(500));
    let count = |seconds: std::ops::Range<u64>, node| {
        let flows = history.flows("g", seconds);
        flows.iter().filter(|(leaf, _)| *leaf == Some(node)).count()
    };
    let even = ["a", "b", "c"].map(|node| count(60..300, node));
    assert_eq!(even, [160, 160, 160]);
    assert_eq!(count(400..880, "b"), 0);
    assert_eq!(count(400..880, "a"), count(400..880, "c"));
    assert!(count(1200..1500, "b") == 200, "{}", count(1200..1500, "b"));
    assert!(history.switches("g").is_empty(), "turns are no switches");
}

#[test]
fn a_selector_does_not_leave_its_choice_and_its_final_takes_over_meanwhile() {
    let world = World::default()
        .node("chosen", &[(0, Up(40)), (300, Refuses), (900, Up(40))])
        .node("other", &[(0, Up(10))])
        .group_with("bare", Policy::Selector, |g| {
            g.default = Some("chosen".to_owned())
        })
        .group_with("safe", Policy::Selector, |g| {
            g.default = Some("chosen".to_owned());
            g.final_ = Some("direct".to_owned());
        });
    let history = run(&world, &Script::lasting(1500).flows_each(1000));
    assert!(
        history
            .flows("bare", 360..890)
            .iter()
            .all(|(leaf, _)| leaf.is_none())
    );
    assert!(
        history
            .flows("safe", 360..890)
            .iter()
            .all(|(leaf, _)| *leaf == Some("direct"))
    );
    for group in ["bare", "safe"] {
        let back = history.flows(group, 1300..1500);
        assert!(
            back.iter().all(|(leaf, ok)| *leaf == Some("chosen") && *ok),
            "{group}"
        );
        assert!(history.switches(group).is_empty(), "{group}");
    }
}

#[test]
fn a_pin_holds_through_faster_members_and_ends_with_a_reload() {
    let world = World::default()
        .node("near", &[(0, Up(40))])
        .node("far", &[(0, Up(300))])
        .group("g", Policy::UrlTest);
    let script = Script::lasting(1200)
        .flows_each(1000)
        .at(300, Act::Choose("g", "far"))
        .at(600, Act::Reload);
    let history = run(&world, &script);
    assert!(
        history
            .flows("g", 301..600)
            .iter()
            .all(|(leaf, _)| *leaf == Some("far"))
    );
    assert!(
        history
            .flows("g", 601..1200)
            .iter()
            .all(|(leaf, _)| *leaf == Some("near"))
    );
    let causes: Vec<_> = history.switches("g").iter().map(|s| (s.1, s.2)).collect();
    assert_eq!(causes, [("pin", "far"), ("reload", "near")]);
}

#[test]
fn a_nested_urltest_moves_inside_while_its_parent_stays() {
    let world = World::default()
        .node("a", &[(0, Up(40)), (600, Refuses)])
        .node("b", &[(0, Up(90))])
        .group_with("outer", Policy::Fallback, |g| {
            g.filters = Some(vec![FilterLine::Groups(vec!["inner".to_owned()])]);
            g.interrupt_connections = true;
        })
        .group("inner", Policy::UrlTest);
    let history = run(&world, &Script::lasting(900).flows_each(500));
    assert!(history.switches("outer").is_empty());
    let inner = history.switches("inner");
    assert_eq!(inner.last().map(|s| s.2), Some("b"));
    let last = history.flows("outer", 630..900);
    assert!(last.iter().all(|(leaf, ok)| *leaf == Some("b") && *ok));
}

#[test]
fn an_unused_urltest_group_falls_asleep_and_the_next_flow_wakes_it() {
    let world = World::default()
        .node("a", &[(0, Up(40))])
        .node("b", &[(0, Up(90))])
        .group("g", Policy::UrlTest);
    let asleep = run(&world, &Script::lasting(6 * 3600));
    let used = run(&world, &Script::lasting(6 * 3600).flows_each(60_000));
    assert!(
        asleep.probes() * 3 < used.probes(),
        "{} {}",
        asleep.probes(),
        used.probes()
    );
}

#[test]
fn many_nodes_are_checked_within_the_cap_and_after_a_network_change_too() {
    let mut world = World::default();
    for n in 0..300 {
        world = world.node(&format!("n{n}"), &[(0, Up(30 + n % 170))]);
    }
    let world = world.group("g", Policy::UrlTest);
    let script = Script::lasting(120)
        .flows_each(1000)
        .at(90, Act::NetworkChanged);
    let history = run(&world, &script);
    assert!(history.most_probes() <= 64, "{}", history.most_probes());
    assert!(history.probes() >= 600, "{}", history.probes());
    assert!(
        history.most_in_10_s("g") <= 3,
        "{:?}",
        history.switches("g")
    );
    assert_eq!(history.failed("g", 0..120), 0);
}

#[test]
fn the_whole_world_dies_and_returns_and_so_does_the_group() {
    let schedule = [(0, Up(40)), (300, Blackhole), (1200, Up(40))];
    let world = World::default()
        .node("a", &schedule)
        .node("b", &schedule)
        .group_with("g", Policy::UrlTest, |g| g.interrupt_connections = true)
        .group("spread", Policy::LoadBalance);
    let history = run(&world, &Script::lasting(2400).flows_each(1000));
    for group in ["g", "spread"] {
        let dead = history.flows(group, 420..1190);
        assert!(
            dead.iter().all(|(leaf, _)| leaf.is_none()),
            "{group} fails closed"
        );
        assert_eq!(history.failed(group, 1800..2400), 0, "{group}");
    }
    let closed = |fact: &Fact| matches!(fact, Fact::Closed { .. });
    let switches = history.switches("g").len();
    assert_eq!(history.facts().filter(|(_, f)| closed(f)).count(), switches);
}

/// Three hundred nodes of different speed; the fastest is the first.
fn three_hundred(world: World) -> World {
    (0..300).fold(world, |world, n| {
        world.node(&format!("n{n}"), &[(0, Up(60 + n % 170))])
    })
}

#[test]
fn a_process_that_stood_still_looks_around_without_a_storm() {
    let world = three_hundred(World::default().node("near", &[(0, Up(20)), (900, Refuses)]));
    let world = world.group_with("g", Policy::UrlTest, |g| g.idle_timeout_s = Some(0));
    // Once with flows, which find out at once, and once without.
    for flows in [true, false] {
        let script = Script::lasting(4_800).at(600, Act::Sleep(3_600));
        let script = if flows {
            script.flows_each(500)
        } else {
            script
        };
        let history = run(&world, &script);
        assert!(history.most_probes() <= 64, "{}", history.most_probes());
        // What is selected and its confirmations, then the test of all that a death causes.
        let first = history.probes_in(4_200..4_201);
        assert!(first <= 330, "{first} in the first second");
        let round = history.probes_in(4_200..4_230);
        assert!((300..=1_000).contains(&round), "{round} in half a minute");
        let late: Vec<_> = history
            .switches("g")
            .into_iter()
            .filter(|s| s.0 > 600.0)
            .collect();
        assert!(late.len() <= 2 && !late.is_empty(), "{late:?}");
        assert!(late[0].0 < 4_206.0 && late[0].2 != "near", "{late:?}");
        assert_eq!(history.failed("g", 4_206..4_800), 0);
    }
}

#[test]
fn sleep_alone_moves_nobody_and_kills_nobody() {
    let world = three_hundred(World::default().node("near", &[(0, Up(20))]));
    let world = world
        .group("g", Policy::UrlTest)
        .group("back", Policy::Fallback);
    let mut script = Script::lasting(4_000).flows_each(1_000);
    for n in 0..3 {
        script = script.at(600 + n * 1_000, Act::Sleep(500));
    }
    let history = run(&world, &script);
    for group in ["g", "back"] {
        let late = history.switches(group).into_iter().filter(|s| s.0 > 60.0);
        assert_eq!(late.count(), 0, "{:?}", history.switches(group));
        assert_eq!(history.failed(group, 0..4_000), 0);
    }
    for n in 0..3 {
        let woke = 1_100 + n * 1_000;
        let first = history.probes_in(woke..woke + 1);
        assert!(first <= 64, "{first} in the first second");
    }
}

#[test]
fn a_network_that_comes_back_after_a_sleep_is_found_in_seconds() {
    // Everything is unreachable when the machine wakes up, until its link is up again.
    let schedule = [(0, Up(40)), (500, Blackhole), (4_230, Up(40))];
    let world = World::default()
        .node("a", &schedule)
        .node("b", &schedule)
        .group("g", Policy::UrlTest);
    let script = Script::lasting(4_500)
        .flows_each(500)
        .at(600, Act::Sleep(3_600))
        .at(4_231, Act::NetworkChanged)
        .at(4_232, Act::NetworkChanged);
    let history = run(&world, &script);
    assert_eq!(history.failed("g", 4_240..4_500), 0);
    let late = history.switches("g").into_iter().filter(|s| s.0 > 4_200.0);
    assert!(late.count() <= 1, "{:?}", history.switches("g"));
}
