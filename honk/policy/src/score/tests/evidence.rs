//! What single reports leave in the cells.

use super::{
    super::{
        AttemptId, GroupKey, Mode, Obs, Outcome, ProbeSample, Question, ReporterId, Source, Trials,
        cell::{Layers, Scope, TargetScope},
    },
    world::{Flow, WEB, World, cands, name, node},
};
use crate::id::{Domain, Family, Network};

pub(super) fn target(world: &World, number: u8) -> TargetScope {
    let text = name(number);
    let target = super::super::Target::Name(&text, 443);
    let id = world.engine.evidence.targets.find(target);
    id.map_or(TargetScope::New, TargetScope::One)
}

/// Cells of a leaf for a target over TCP and IPv4.
pub(super) fn layers(world: &World, leaf: u8, number: u8) -> Layers<'_> {
    let scope = Scope {
        group: GroupKey(1),
        network: Network::Tcp,
        family: Some(Family::V4),
        target: target(world, number),
    };
    world.engine.evidence.cells.layers(&scope, node(leaf))
}

pub(super) fn planned(world: &mut World, flow: Flow, leaf: u8, mode: Mode) -> AttemptId {
    let pick = world.rank(flow, &cands(&[leaf]), mode).unwrap();
    pick.attempt.unwrap()
}

/// An attempt on the wire.
pub(super) fn started(world: &mut World, flow: Flow, leaf: u8) -> ReporterId {
    let attempt = planned(world, flow, leaf, Mode::Fixed);
    let work = world.engine.begin(world.now, &attempt).unwrap();
    world.engine.start(world.now, work, Source::Traffic)
}

pub(super) fn serve(world: &mut World, flow: Flow, leaf: u8, millis: u64) {
    let pick = world.rank(flow, &cands(&[leaf]), Mode::Fixed).unwrap();
    world.run(pick, |_| (Outcome::Success, millis));
}

#[test]
fn a_flow_is_counted_in_every_layer_once() {
    let mut world = World::new(&[&[0, 1]]);
    serve(&mut world, WEB, 0, 30);
    let now = world.now;
    let Layers {
        group,
        family,
        exact,
    } = layers(&world, 0, 1);
    for cell in [group, family, exact] {
        let cell = cell.unwrap();
        let counts = cell.counts(now);
        assert_eq!((counts.ok, counts.bad, counts.set_up), (1.0, 0.0, 1.0));
        assert_eq!(cell.setup.read(now).unwrap().value, 10.0);
        assert_eq!(cell.response.read(now).unwrap().value, 40.0);
        assert_eq!(cell.cohort.credits, 1);
    }
    assert!(layers(&world, 1, 1).group.is_none());
}

#[test]
fn one_event_of_a_carrier_is_one_failure_however_many_flows_it_ends() {
    let mut world = World::new(&[&[0, 1]]);
    let flows: Vec<ReporterId> = (0..5).map(|_| started(&mut world, WEB, 0)).collect();
    for reporter in flows {
        let shared = Outcome::SharedNodeFailure(9);
        world.engine.finish(world.now, reporter, shared);
    }
    let Layers {
        group,
        family,
        exact,
    } = layers(&world, 0, 1);
    for cell in [group, family, exact] {
        let cell = cell.unwrap();
        assert_eq!((cell.streak, cell.counts(world.now).bad), (1, 5.0));
    }
    let next = started(&mut world, WEB, 0);
    let event = Outcome::SharedNodeFailure(10);
    world.engine.finish(world.now, next, event);
    assert_eq!(layers(&world, 0, 1).group.unwrap().streak, 2);
}

#[test]
fn a_failure_of_the_node_voids_what_was_measured_for_other_targets() {
    let mut world = World::new(&[&[0, 1]]);
    let other = Flow {
        target: Some(2),
        ..WEB
    };
    for _ in 0..4 {
        serve(&mut world, WEB, 0, 30);
        serve(&mut world, other, 0, 30);
    }
    let reporter = started(&mut world, WEB, 0);
    world
        .engine
        .finish(world.now, reporter, Outcome::NodeFailure);
    let scope = |target| Scope {
        group: GroupKey(1),
        network: Network::Tcp,
        family: Some(Family::V4),
        target,
    };
    let read = |world: &World| {
        let scope = scope(target(world, 2));
        let layers = world.engine.evidence.cells.layers(&scope, node(0));
        super::super::snapshot::Snapshot::read(world.now, &scope, layers)
    };
    let known = read(&world);
    assert!(known.response.target.is_none() && known.usable_until.is_none());
    assert!(known.useful > 7.0, "reliability stays");
    assert_eq!(layers(&world, 0, 2).exact.unwrap().streak, 0);
    // New measurements count again.
    world.pass(1000);
    serve(&mut world, other, 0, 30);
    let known = read(&world);
    assert!(known.response.target.is_some());
    assert_eq!(known.credits, 1);
}

#[test]
fn sudden_slowness_of_a_settled_target_is_noted_on_it_alone() {
    let mut world = World::new(&[&[0, 1]]);
    for _ in 0..4 {
        serve(&mut world, WEB, 0, 90);
    }
    serve(&mut world, WEB, 0, 140);
    assert_eq!(layers(&world, 0, 1).exact.unwrap().degraded_at, None);
    serve(&mut world, WEB, 0, 400);
    let Layers { family, exact, .. } = layers(&world, 0, 1);
    assert_eq!(exact.unwrap().degraded_at, Some(world.now));
    assert_eq!(family.unwrap().degraded_at, None);
    // Three samples are no settled mean.
    let other = Flow {
        target: Some(2),
        ..WEB
    };
    for millis in [10, 10, 10, 900] {
        serve(&mut world, other, 0, millis);
    }
    assert_eq!(layers(&world, 0, 2).exact.unwrap().degraded_at, None);
}

#[test]
fn half_more_than_the_mean_is_no_sudden_slowness_yet() {
    for (millis, degraded) in [(140, false), (141, true)] {
        let mut world = World::new(&[&[0, 1]]);
        for _ in 0..4 {
            serve(&mut world, WEB, 0, 90);
        }
        serve(&mut world, WEB, 0, millis);
        let exact = layers(&world, 0, 1).exact.unwrap();
        assert_eq!(exact.degraded_at.is_some(), degraded);
    }
}

#[test]
fn transfer_is_measured_in_both_directions_apart() {
    let mut world = World::new(&[&[0, 1]]);
    let reporter = started(&mut world, WEB, 0);
    let start = world.now;
    let mut see = |now, event| world.engine.observe(now, reporter, event);
    see(start, Obs::Setup);
    see(start, Obs::FirstResponse);
    let at = start.plus_secs(1);
    see(at, Obs::Rx { bytes: 50_000, at });
    let at = start.plus_secs(2);
    see(at, Obs::Tx { bytes: 200_000, at });
    let cell = layers(&world, 0, 1).exact.unwrap();
    assert_eq!(cell.up.read(at).unwrap().value, 100_000.0);
    assert_eq!(cell.down.read(at), None);
}

#[test]
fn warming_up_measures_setup_and_is_no_business() {
    let mut world = World::new(&[&[0, 1]]);
    let attempt = planned(&mut world, WEB, 0, Mode::Prepare);
    let work = world.engine.begin(world.now, &attempt).unwrap();
    let reporter = world.engine.start(world.now, work, Source::Warmup);
    world.pass(25);
    world.engine.observe(world.now, reporter, Obs::Setup);
    world
        .engine
        .finish(world.now, reporter, Outcome::NodeFailure);
    let group = layers(&world, 0, 1).group.unwrap();
    assert_eq!(group.warm_setup.read(world.now).unwrap().value, 25.0);
    assert_eq!((group.setup.read(world.now), group.streak), (None, 0));
    assert_eq!(group.counts(world.now).completions(), 0.0);
    assert_eq!(group.selected_tick, 0);
    let stats = world.engine.stats(world.now);
    assert_eq!(stats.business_starts, 0);
    assert_eq!(stats.groups[0].tcp.budget.business_starts, 0);
}

fn probe(world: &World, domain: Domain, scope: u64, latency: Option<f64>) -> ProbeSample {
    ProbeSample {
        group: GroupKey(1),
        node: node(0),
        domain,
        family: Family::V4,
        scope,
        interval: Some(30_000_000_000),
        generation: world.generation,
        reporter: 1 << 40,
        latency,
    }
}

#[test]
fn a_failed_check_ends_only_what_the_same_check_said() {
    let mut world = World::new(&[&[0, 1]]);
    let held = |world: &World, slot: usize| {
        let cell = layers(world, 0, 1).group.unwrap();
        cell.probes[slot].mean.read(world.now).map(|p| p.value)
    };
    let take = |world: &mut World, scope, latency| {
        let sample = probe(world, Domain::Tcp, scope, latency);
        world.engine.probe(world.now, sample);
    };
    take(&mut world, 7, Some(40.0));
    take(&mut world, 8, None);
    assert_eq!(held(&world, 0), Some(40.0), "another check");
    take(&mut world, 7, Some(60.0));
    assert_eq!(held(&world, 0), Some(50.0));
    take(&mut world, 8, Some(90.0));
    assert_eq!(held(&world, 0), Some(90.0), "a new check starts afresh");
    take(&mut world, 8, None);
    assert_eq!(held(&world, 0), None);
    let counts = layers(&world, 0, 1).group.unwrap().counts(world.now);
    assert_eq!(counts.completions(), 0.0);
}

#[test]
fn checks_of_yesterday_and_nonsense_are_counted_and_dropped() {
    let mut world = World::new(&[&[0, 1]]);
    let mut old = probe(&world, Domain::Tcp, 7, Some(40.0));
    old.generation = 0;
    world.engine.probe(world.now, old);
    let mut foreign = probe(&world, Domain::Tcp, 7, Some(40.0));
    foreign.node = node(5);
    world.engine.probe(world.now, foreign);
    for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
        let sample = probe(&world, Domain::Tcp, 7, Some(nonsense));
        world.engine.probe(world.now, sample);
    }
    let dropped = world.engine.dropped();
    assert_eq!((dropped.stale_probes, dropped.unsound), (2, 3));
    assert_eq!(world.engine.stats(world.now).cache.aggregate_cells, 0);
}

#[test]
fn checks_of_datagrams_speak_for_udp() {
    let mut world = World::new(&[&[0, 1]]);
    for domain in [Domain::DnsUdp, Domain::DataUdp] {
        let sample = probe(&world, domain, 7, Some(40.0));
        world.engine.probe(world.now, sample);
    }
    assert!(layers(&world, 0, 1).group.is_none());
    assert_eq!(world.engine.stats(world.now).cache.aggregate_cells, 1);
}

#[test]
fn a_node_failure_ends_its_checks_and_a_reload_ends_all() {
    let mut world = World::new(&[&[0, 1]]);
    let checked = |world: &World, leaf: u8| {
        let cell = layers(world, leaf, 1).group.unwrap();
        cell.probes[0].mean.read(world.now).is_some()
    };
    for leaf in [0, 1] {
        world.probe(1, leaf, Some(40.0));
    }
    let reporter = started(&mut world, WEB, 0);
    world
        .engine
        .finish(world.now, reporter, Outcome::NodeFailure);
    assert_eq!([0, 1].map(|leaf| checked(&world, leaf)), [false, true]);
    world.activate(&[&[0, 1]]);
    assert!(!checked(&world, 1));
}

#[test]
fn pressure_is_counted_once_an_episode_and_asks_for_a_comparison() {
    let mut world = World::new(&[&[0, 1]]);
    let view = cands(&[0, 1]);
    // Both are usable, qualified and compared: nothing is open.
    for _ in 0..10 {
        for leaf in [0, 1] {
            serve(&mut world, WEB, leaf, 30);
        }
        world.pass(100);
    }
    let question = |world: &World| {
        let report = world
            .engine
            .verify(world.now, GroupKey(1), Network::Tcp, &view);
        report.unwrap().question
    };
    assert_eq!(question(&world), Question::None);
    let before = world.peek(WEB, &view);
    world.pass(100);
    world.press(0);
    world.press(0);
    let reasons = |world: &World| world.engine.stats(world.now).groups[0].tcp.reasons;
    assert_eq!(reasons(&world).carrier_pressure, 1, "one episode");
    assert_eq!(reasons(&world).carrier_rtt_pressure, 1);
    assert_eq!(reasons(&world).carrier_loss_pressure, 0);
    assert_eq!(question(&world), Question::Response);
    assert_eq!(world.peek(WEB, &view), before);
    assert_eq!(layers(&world, 0, 1).group.unwrap().streak, 0);
    world.pass(60_000);
    let scope = Scope {
        group: GroupKey(1),
        network: Network::Tcp,
        family: None,
        target: TargetScope::Any,
    };
    let cells = world.engine.evidence.cells.layers(&scope, node(0));
    let known = super::super::snapshot::Snapshot::read(world.now, &scope, cells);
    assert_eq!(known.pressed_at, None, "it has expired");
}

#[test]
fn pressure_from_before_a_reload_is_nothing() {
    let mut world = World::new(&[&[0, 1]]);
    serve(&mut world, WEB, 0, 30);
    let seen = world.now;
    world.pass(1000);
    world.activate(&[&[0, 1]]);
    let hint = super::super::PressureHint {
        node: node(0),
        network: Network::Tcp,
        carrier: Family::V4,
        at: seen,
        rtt: true,
        loss: true,
    };
    world.engine.pressure(world.now, hint);
    let reasons = world.engine.stats(world.now).groups[0].tcp.reasons;
    assert_eq!(reasons.carrier_pressure, 0);
}

#[test]
fn work_given_up_before_its_start_leaves_no_mark() {
    let mut world = World::new(&[&[0, 1]]);
    let attempt = planned(&mut world, WEB, 0, Mode::Apply(Trials::Allowed));
    let work = world.engine.begin(world.now, &attempt).unwrap();
    world.engine.release(world.now, work.attempt());
    assert_eq!(world.engine.dropped().attempts, 0);
    let counts = layers(&world, 0, 1).group.unwrap().counts(world.now);
    assert_eq!(counts.completions(), 0.0);
    // Its handles are worth nothing now.
    let reporter = world.engine.start(world.now, work, Source::Traffic);
    world
        .engine
        .finish(world.now, reporter, Outcome::NodeFailure);
    assert!(world.engine.begin(world.now, &attempt).is_err());
    assert_eq!(layers(&world, 0, 1).group.unwrap().streak, 0);
}

#[test]
fn a_flow_without_a_target_speaks_for_its_family_and_one_without_either_for_the_group() {
    let mut world = World::new(&[&[0, 1]]);
    let family = Flow {
        target: None,
        ..WEB
    };
    serve(&mut world, family, 0, 30);
    let cache = world.engine.stats(world.now).cache;
    assert_eq!((cache.aggregate_cells, cache.exact_cells), (2, 0));
    let bare = Flow {
        family: None,
        ..family
    };
    serve(&mut world, bare, 1, 30);
    // A name without a family is no target.
    let named = Flow {
        family: None,
        ..WEB
    };
    serve(&mut world, named, 1, 30);
    let cache = world.engine.stats(world.now).cache;
    assert_eq!((cache.aggregate_cells, cache.exact_cells), (3, 0));
}
