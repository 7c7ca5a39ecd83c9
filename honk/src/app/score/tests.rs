//! Score in a daemon without a kernel: every report of a flow and what follows from it.

use std::{sync::Arc, time::Duration};

use honk_policy::{
    group::Scope,
    health::{Outcome, Subject},
    id::{
        Domain, Family, MemberId,
        Network::{self, Tcp, Udp},
    },
    score::NetworkStats,
};

use super::*;
use crate::{
    app::{
        reload::Trigger,
        select::Change,
        testkit::{CONFIG, World, flow, serve},
    },
    flow::{Admission as _, CloseReason, End, Fault, Refusal, Route},
    probe::Groups as _,
    testkit::soon,
};

const TARGET: &str = "203.0.113.1:80";
const OTHER: &str = "203.0.113.2:80";
const MOST: usize = 200;

fn config() -> String {
    CONFIG.replace("policy: select", "policy: score")
}

fn world() -> World {
    World::new(&config())
}

fn admit(world: &World, network: Network, target: &str) -> Route {
    world
        .engine
        .gatekeeper
        .admit(&flow(network, target))
        .unwrap()
}

fn stats(world: &World, network: Network) -> NetworkStats {
    let stats = world.engine.score.stats();
    let [group] = stats.groups[..] else {
        panic!("{stats:?}")
    };
    match network {
        Tcp => group.tcp,
        Udp => group.udp,
    }
}

fn fail(route: Route, fault: Fault) {
    route.guard.entry.started();
    route.guard.entry.ended(End::Failed(fault));
    route.guard.close(CloseReason::DialFailed);
}

/// Carries flows until one that is no trial goes through a leaf, and returns that one.
fn through(world: &World, leaf: &str, target: &str) -> Route {
    for _ in 0..MOST {
        let route = admit(world, Tcp, target);
        if route.leaf.name == leaf {
            return route;
        }
        serve(route);
    }
    panic!("nothing goes through {leaf}")
}

/// Leaves that the next flows take; each is served.
fn leaves(world: &World, target: &str, count: usize) -> Vec<String> {
    let one = |_| {
        let route = admit(world, Tcp, target);
        let name = route.leaf.name.clone();
        serve(route);
        name
    };
    (0..count).map(one).collect()
}

#[test]
fn a_flow_is_counted_once_and_its_answer_shows() {
    let world = world();
    serve(admit(&world, Tcp, TARGET));
    let tcp = stats(&world, Tcp);
    assert_eq!((tcp.budget.business_starts, tcp.reasons.choices()), (1, 1));
    assert_eq!(world.engine.score.stats().business_starts, 1);
    assert_eq!(stats(&world, Udp).budget.business_starts, 0);
    serve(admit(&world, Udp, TARGET));
    assert_eq!(stats(&world, Udp).budget.business_starts, 1);
    leaves(&world, TARGET, 40);
    let snapshot = world.engine.snapshot();
    let report = world
        .engine
        .score
        .verify(&snapshot.groups, world.group("proxy"), Tcp)
        .unwrap();
    assert_eq!(report.state.name(), "observedUsable");
    assert_eq!(report.coverage.candidates, 2);
    assert_eq!(world.engine.score.dropped().attempts, 0);
}

#[test]
fn what_was_not_begun_is_taken_back_and_flows_of_others_do_not_count() {
    let world = World::with_capacity(&config(), 1);
    let held = admit(&world, Tcp, TARGET);
    let refused = world.engine.gatekeeper.admit(&flow(Tcp, OTHER));
    assert_eq!(refused.unwrap_err(), Refusal::Capacity);
    drop(held);
    let direct = admit(&world, Tcp, "10.0.0.1:80");
    assert!(direct.guard.entry.witness.is_none());
    assert_eq!(stats(&world, Tcp).budget.business_starts, 1);
    assert_eq!(world.engine.score.dropped().attempts, 0);
}

#[test]
fn a_node_that_fails_three_times_is_left_for_all_targets() {
    let world = world();
    leaves(&world, TARGET, 30);
    for _ in 0..3 {
        fail(through(&world, "a", TARGET), Fault::Node);
    }
    assert!(leaves(&world, TARGET, 40).iter().all(|leaf| leaf == "b"));
    assert!(leaves(&world, OTHER, 40).iter().all(|leaf| leaf == "b"));
}

#[test]
fn a_target_that_refuses_a_node_says_nothing_about_others() {
    let world = world();
    let others = leaves(&world, OTHER, 20);
    assert!(others.iter().filter(|leaf| *leaf == "a").count() > 10);
    let mut refused = 0;
    for _ in 0..MOST {
        let route = admit(&world, Tcp, TARGET);
        match route.leaf.name.as_str() {
            "a" => {
                fail(route, Fault::Refused);
                refused += 1;
            }
            _ => serve(route),
        }
    }
    assert!((1..MOST / 4).contains(&refused), "{refused}");
    let mine = leaves(&world, TARGET, 40);
    assert!(mine.iter().all(|leaf| leaf == "b"), "{mine:?}");
    let others = leaves(&world, OTHER, 40);
    assert!(
        others.iter().filter(|leaf| *leaf == "a").count() > 10,
        "{others:?}"
    );
}

#[test]
fn what_is_nobodys_fault_leaves_no_mark() {
    let world = world();
    let ends: [fn(Route); 5] = [
        |route| fail(route, Fault::Own),
        |route| route.guard.close(CloseReason::Api),
        |route| route.guard.close(CloseReason::Shutdown),
        |route| {
            route.guard.entry.reached();
            route.guard.close(CloseReason::Reset);
        },
        drop,
    ];
    for _ in 0..6 {
        for end in ends {
            end(admit(&world, Tcp, TARGET));
        }
    }
    let tcp = stats(&world, Tcp);
    assert_eq!(tcp.reasons.fail_streak_excluded, 0);
    assert_eq!((tcp.budget.trial_failure, tcp.budget.in_flight), (0, 0));
    assert_eq!(world.engine.score.dropped().attempts, 0);
}

#[test]
fn one_event_that_ends_many_flows_is_one_failure() {
    let world = world();
    leaves(&world, TARGET, 30);
    let routes: Vec<Route> = (0..50).map(|_| admit(&world, Tcp, TARGET)).collect();
    let (mine, rest): (Vec<_>, Vec<_>) = routes.into_iter().partition(|r| r.leaf.name == "a");
    rest.into_iter().for_each(serve);
    // Flows are spread by ordinary choice and trials; where `a` has none, `b` is lost instead.
    let mine = match mine.is_empty() {
        true => vec![through(&world, "a", TARGET)],
        false => mine,
    };
    let event = crate::flow::event();
    for route in mine {
        route.guard.entry.reached();
        route.guard.entry.ended(End::CarrierLost(event));
        route.guard.close(CloseReason::Reset);
    }
    leaves(&world, OTHER, 3);
    assert_eq!(stats(&world, Tcp).reasons.fail_streak_excluded, 0);
}

#[test]
fn a_failed_dial_goes_to_another_leaf_once_and_both_report() {
    let world = world();
    let gate = &world.engine.gatekeeper;
    let route = admit(&world, Tcp, TARGET);
    let entry = Arc::clone(&route.guard.entry);
    entry.started();
    entry.ended(End::Failed(Fault::Node));
    let rivals = gate.rivals(&entry).unwrap();
    let [rival] = &rivals.leaves[..] else {
        panic!("{rivals:?}")
    };
    assert_ne!(rival.leaf.id, route.leaf.id);
    assert!(gate.eligible(&entry, rival));
    entry.started();
    entry.served_by(rival);
    entry.reached();
    entry.counters.add_up(5);
    entry.counters.add_down(5);
    route.guard.close(CloseReason::Eof);
    let tcp = stats(&world, Tcp);
    assert_eq!(
        (tcp.budget.business_starts, tcp.budget.recovery),
        (1, 1),
        "{tcp:?}"
    );
    assert_eq!(tcp.reasons.choices(), 1);
    assert_eq!(world.engine.score.dropped().attempts, 0);
}

#[test]
fn without_another_leaf_there_is_no_retry() {
    let world = World::new(&config().replace("name(a, b)", "name(a)"));
    let route = admit(&world, Tcp, TARGET);
    let entry = Arc::clone(&route.guard.entry);
    entry.started();
    entry.ended(End::Failed(Fault::Node));
    assert_eq!(world.engine.gatekeeper.rivals(&entry), None);
    drop(route);
    assert_eq!(world.engine.score.dropped().attempts, 0);
}

async fn reload(world: &World, config: &str) {
    world.edit(config);
    let state = world.engine.reload(Trigger::Api, false).await.unwrap();
    assert_eq!(state.state, "done", "{}", state.message);
}

#[tokio::test]
async fn a_reload_keeps_what_is_known_of_nodes_that_stay() {
    let world = world();
    leaves(&world, TARGET, 30);
    for _ in 0..3 {
        fail(through(&world, "a", TARGET), Fault::Node);
    }
    let before = stats(&world, Tcp);
    reload(&world, &config().replace("name(a, b)", "name(a, b, c)")).await;
    let after = stats(&world, Tcp);
    assert_eq!(before.budget.business_starts, after.budget.business_starts);
    let next = leaves(&world, TARGET, 30);
    assert!(next.iter().all(|leaf| leaf != "a"), "{next:?}");
    // A name that was gone starts anew.
    reload(&world, &CONFIG.replace("proxy", "other")).await;
    assert_eq!(world.engine.score.stats().groups, []);
    reload(&world, &config()).await;
    assert_eq!(stats(&world, Tcp).budget.business_starts, 0);
    // The late end of a flow of the generation before changes nothing.
    let old = admit(&world, Tcp, TARGET);
    reload(&world, &CONFIG.replace("proxy", "other")).await;
    serve(old);
    assert_eq!(world.engine.score.dropped().attempts, 0);
}

#[test]
fn reads_change_nothing() {
    let world = world();
    leaves(&world, TARGET, 20);
    let score = &world.engine.score;
    let before = score.stats();
    let snapshot = world.engine.snapshot();
    for _ in 0..100 {
        let views = snapshot.groups.views();
        let proxy = views.iter().find(|view| view.name == "proxy").unwrap();
        assert!(proxy.tcp.member.is_some() && proxy.udp.leaf.is_some());
        score.verify(&snapshot.groups, world.group("proxy"), Udp);
    }
    let now = score.stats();
    assert_eq!(before.groups[0].tcp.reasons, now.groups[0].tcp.reasons);
    assert_eq!(before.groups[0].udp.reasons, now.groups[0].udp.reasons);
    assert_eq!(before.business_starts, now.business_starts);
    assert_eq!(before.cache, now.cache);
    let plain = World::new(CONFIG);
    let groups = &plain.engine.snapshot().groups;
    let verified = plain.engine.score.verify(groups, plain.group("proxy"), Tcp);
    assert_eq!(verified, None);
}

#[tokio::test]
async fn a_pinned_group_learns_without_choosing() {
    let world = world();
    let snapshot = world.engine.snapshot();
    let group = snapshot.groups.group_named("proxy").unwrap();
    let change = Change {
        group: group.id,
        scope: Scope::Tcp,
        member: group.member_named("b").map(|member| member.id()),
        interrupt: None,
    };
    world.engine.select(change).await.unwrap();
    assert_eq!(leaves(&world, TARGET, 5), ["b"; 5]);
    let tcp = stats(&world, Tcp);
    assert_eq!((tcp.budget.business_starts, tcp.reasons.choices()), (5, 0));
    let groups = &world.engine.snapshot().groups;
    let report = world.engine.score.verify(groups, group.id, Tcp).unwrap();
    assert_eq!(report.selected.map(|s| s.member), Some(1));
    // A choice by hand is kept, whatever fails.
    let route = admit(&world, Tcp, TARGET);
    let entry = Arc::clone(&route.guard.entry);
    fail(route, Fault::Node);
    assert_eq!(world.engine.gatekeeper.rivals(&entry), None);
}

#[test]
fn all_score_groups_on_a_way_learn_from_one_flow() {
    let nested = "proxy { policy: score filter: group(inner) filter: name(c)
                          interrupt_connections: true }
                  inner { policy: score filter: name(a, b) } ";
    let config = config();
    let start = config.find("proxy {").unwrap();
    let end = config[start..].find('}').unwrap() + start + 1;
    let config = format!("{}{nested}{}", &config[..start], &config[end..]);
    let world = World::new(&config);
    let names = leaves(&world, TARGET, 60);
    for leaf in ["a", "c"] {
        assert!(names.iter().any(|name| name == leaf), "{leaf}: {names:?}");
    }
    let stats = world.engine.score.stats();
    assert_eq!((stats.groups.len(), stats.business_starts), (2, 60));
    let snapshot = world.engine.snapshot();
    let key = |name: &str| snapshot.groups.group_named(name).unwrap().key();
    let of = |name: &str| stats.groups.iter().find(|g| g.group == key(name)).unwrap();
    let inner = names.iter().filter(|name| *name != "c").count() as u64;
    assert_eq!(of("proxy").tcp.budget.business_starts, 60);
    assert_eq!(of("inner").tcp.budget.business_starts, inner);
    assert_eq!(world.engine.score.dropped().attempts, 0);
}

#[tokio::test]
async fn an_ordinary_move_closes_flows_to_the_same_target_through_another_member() {
    let world = world();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let task = tokio::spawn(switches::run(Arc::clone(&world.engine), stopped));
    leaves(&world, TARGET, 30);
    let held = through(&world, "a", TARGET);
    let elsewhere = through(&world, "a", OTHER);
    // Trials apart, `a` has to have been the choice for a move away from it.
    for _ in 0..MOST {
        if stats(&world, Tcp).reasons.ordinary_switch > 0 {
            break;
        }
        let route = admit(&world, Tcp, TARGET);
        match route.leaf.name.as_str() {
            "a" => fail(route, Fault::Node),
            _ => serve(route),
        }
    }
    assert!(stats(&world, Tcp).reasons.ordinary_switch > 0);
    soon("the flow is closed", async || {
        held.guard.entry.cancel.reason().is_some()
    })
    .await;
    assert_eq!(elsewhere.guard.entry.cancel.reason(), None);
    stop.send_replace(true);
    task.await.unwrap();
}

#[test]
fn moves_nobody_follows_are_counted_and_forgotten() {
    let world = world();
    let snapshot = world.engine.snapshot();
    let key = snapshot.groups.group_named("proxy").unwrap().key();
    let switch = |group| switches::Switch {
        group,
        network: Tcp,
        family: Family::V4,
        target: score::Target::Name("x.example", 1).into(),
        member: 0,
    };
    let score = &world.engine.score;
    for _ in 0..switches::WAITING + 3 {
        score.moved(switch(key));
    }
    score.moved(switch(GroupKey(250)));
    assert_eq!(score.lost_moves(), 3);
    assert!(!format!("{:?}", switch(key)).contains("x.example"));
}

// A check shows as a comparison of nodes, and only under the generation it was begun in.
#[tokio::test]
async fn checks_are_a_baseline_of_their_own_generation() {
    let world = world();
    let node = |name: &str| {
        let snapshot = world.engine.snapshot();
        let mut nodes = snapshot.groups.nodes().iter();
        nodes.find(|n| n.name == name).unwrap().id
    };
    let checked = |name: &str, generation: u64, outcome: Outcome| {
        let subject = Subject::Node {
            node: node(name),
            domain: Domain::Tcp,
            family: Family::V6,
        };
        world.engine.probed(generation, subject, outcome);
    };
    let answer = |ms| Outcome::Answer(Duration::from_millis(ms));
    let score = &world.engine.score;
    let cells = || score.stats().cache.aggregate_cells;
    checked("c", 1, answer(1));
    checked("a", 1, Outcome::Neutral);
    assert_eq!((cells(), score.dropped().stale_probes), (0, 0));
    checked("a", 1, answer(90));
    checked("b", 1, answer(20));
    assert_eq!(cells(), 2);
    // Who answers checks faster serves first where nothing else is known.
    assert_eq!(admit(&world, Tcp, TARGET).leaf.name, "b");
    reload(&world, &config()).await;
    checked("a", 1, answer(1));
    assert_eq!(score.dropped().stale_probes, 1);
    checked("a", 2, answer(20));
    checked("b", 2, Outcome::Failure);
    assert_eq!(score.dropped().stale_probes, 1);
}

#[tokio::test]
async fn a_group_with_an_address_of_its_own_hears_only_of_that() {
    let url = "policy: score check_url: 'http://192.0.2.9/' ";
    let world = World::new(&CONFIG.replace("policy: select", url));
    let snapshot = world.engine.snapshot();
    let group = snapshot.groups.group_named("proxy").unwrap();
    let MemberId::Node(node) = group.members[0].id() else {
        panic!("a node");
    };
    let answer = || Outcome::Answer(Duration::from_millis(5));
    let (domain, family) = (Domain::Tcp, Family::V4);
    let subject = Subject::Node {
        node,
        domain,
        family,
    };
    world.engine.probed(1, subject, answer());
    let cells = || world.engine.score.stats().cache.aggregate_cells;
    assert_eq!(cells(), 0);
    let subject = Subject::Member {
        group: group.id,
        member: MemberId::Node(node),
        family,
    };
    world.engine.probed(1, subject, answer());
    assert_eq!(cells(), 1);
}
