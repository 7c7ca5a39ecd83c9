//! The store at its bounds, and pairs on all three grounds.

use proptest::{prelude::*, test_runner::RngSeed};

use super::{timing::Timing, *};
use crate::{
    id::{Family, Network},
    score::{
        cell::{Scope, TargetScope},
        clock::T,
        consts::{COMPARISON_BYTES, COMPARISONS},
        ids::{GroupKey, NodeKey, Target, TargetId, key},
        targets::Targets,
    },
};

const GROUP: GroupKey = GroupKey(1);

fn node(n: u128) -> NodeKey {
    key(n)
}

/// Traffic over TCP to IPv4 targets, unless a scope says otherwise.
struct World {
    store: Store,
    targets: Targets,
    a: NodeKey,
    b: NodeKey,
}

fn secs(n: u64) -> T {
    T::from_secs(n)
}

fn sample(metric: Metric, at: u64, value: f64, reporter: u64) -> Sample {
    Sample {
        metric,
        at: secs(at),
        value,
        reporter,
    }
}

impl World {
    fn new() -> Self {
        Self {
            store: Store::new(),
            targets: Targets::new(1),
            a: node(1),
            b: node(2),
        }
    }

    /// The id of a target; the test holds it for good.
    fn target(&mut self, n: usize) -> TargetId {
        self.targets
            .intern(Target::Name(&format!("{n:04}.example"), 443))
    }

    fn key(&mut self, node: NodeKey, target: usize) -> TrafficKey {
        TrafficKey {
            group: GROUP,
            network: Network::Tcp,
            family: Family::V4,
            target: self.target(target),
            node,
        }
    }

    fn take(&mut self, key: TrafficKey, sample: Sample) {
        let now = sample.at;
        self.store
            .record(&mut self.targets, now, CmpKey::Traffic(key), sample);
    }

    /// Responses of four flows.
    fn respond(&mut self, node: NodeKey, target: usize, at: u64, value: f64) {
        let key = self.key(node, target);
        for reporter in 1..=4 {
            self.take(key, sample(Metric::Response, at, value, reporter));
        }
    }

    fn transfer(&mut self, node: NodeKey, target: usize, metric: Metric, value: f64) {
        let key = self.key(node, target);
        for reporter in 1..=4 {
            self.take(key, sample(metric, 1, value, reporter));
        }
    }

    fn read<R>(&self, now: u64, target: TargetScope, ask: impl Fn(&Reading<'_>) -> R) -> R {
        let scope = Scope {
            group: GROUP,
            network: Network::Tcp,
            family: Some(Family::V4),
            target,
        };
        ask(&Reading {
            store: &self.store,
            now: secs(now),
            scope: &scope,
        })
    }

    /// What is known about both for a target.
    fn exact(&mut self, now: u64, target: usize) -> Option<Pairing> {
        let target = TargetScope::One(self.target(target));
        let nodes = [self.a, self.b];
        self.read(now, target, |r| r.beside(nodes[0]).pair(nodes[1]))
    }

    /// What is known about both for all targets.
    fn common(&self, now: u64) -> Option<Pairing> {
        self.read(now, TargetScope::Any, |r| r.beside(self.a).pair(self.b))
    }
}

fn values(pair: &Pairing) -> (f64, f64) {
    let response = pair.response.expect("compared");
    (response.incumbent, response.challenger)
}

#[test]
fn the_very_target_comes_first() {
    let mut world = World::new();
    for (node, value) in [(world.a, 100.0), (world.b, 50.0)] {
        world.respond(node, 1, 1, value);
        world.respond(node, 2, 1, 30.0);
    }
    let pair = world.exact(2, 1).unwrap();
    assert_eq!((pair.basis, values(&pair)), (Basis::Target, (100.0, 50.0)));
    let response = pair.response.unwrap();
    assert_eq!((response.reporters, response.expires), (4, secs(61)));
    assert_eq!(pair.expires(), Some(secs(61)));
    (world.a, world.b) = (world.b, world.a);
    assert_eq!(values(&world.exact(2, 1).unwrap()), (50.0, 100.0));
}

#[test]
fn three_flows_are_not_enough() {
    let mut world = World::new();
    world.respond(world.a, 1, 1, 100.0);
    let key = world.key(world.b, 1);
    for reporter in [1, 2, 3, 3] {
        world.take(key, sample(Metric::Response, 1, 50.0, reporter));
    }
    assert_eq!(world.exact(1, 1), None);
    let nodes = [world.a, world.b];
    for scope in [TargetScope::One(key.target), TargetScope::Any] {
        assert_eq!(
            world.read(1, scope, |r| r.beside(nodes[0]).sharing(nodes[1])),
            3
        );
        assert_eq!(
            world.read(61, scope, |r| r.beside(nodes[0]).sharing(nodes[1])),
            0
        );
    }
    assert_eq!(
        world.read(1, TargetScope::New, |r| r
            .beside(nodes[0])
            .sharing(nodes[1])),
        0
    );
}

#[test]
fn common_targets_weigh_equal() {
    let mut world = World::new();
    for n in 1..=3 {
        world.respond(world.a, n, 1, 100.0 * n as f64);
        world.respond(world.b, n, 1, 10.0 * n as f64);
    }
    world.respond(world.b, 9, 1, 1.0);
    let pair = world.exact(1, 9).unwrap();
    assert_eq!((pair.basis, pair.partial), (Basis::CommonTargets, false));
    assert_eq!(values(&pair), (200.0, 20.0));
    let own = TargetScope::One(world.target(9));
    let nodes = [world.a, world.b];
    assert_eq!(
        world.read(1, own, |r| r.beside(nodes[0]).own(nodes[1])),
        None,
        "not about the target"
    );
    assert!(
        world
            .read(1, TargetScope::Any, |r| r.beside(nodes[0]).own(nodes[1]))
            .is_some()
    );
}

/// SI-29.
#[test]
fn eight_common_targets_in_canonical_order_whatever_their_values() {
    let choose = |fast: usize| {
        let mut world = World::new();
        for n in (1..=10).rev() {
            world.respond(world.a, n, 1, n as f64);
            world.respond(world.b, n, 1, if n == fast { 0.0 } else { 36.0 });
        }
        world.common(1).unwrap()
    };
    let slow = choose(0);
    assert!(slow.partial, "two targets are left out");
    assert_eq!(values(&slow), (4.5, 36.0), "targets 1 to 8");
    assert_eq!(choose(10).response, slow.response);
    assert_eq!(values(&choose(8)), (4.5, 31.5));
}

#[test]
fn common_targets_are_found_among_many_that_are_not_common() {
    // Long runs go through the index, short ones from end to end.
    for apart in [3, 30] {
        let mut world = World::new();
        for n in (0..apart).rev() {
            world.respond(world.a, 2 * n, 1, 500.0);
            world.respond(world.b, 2 * n + 1, 1, 900.0);
        }
        for n in [1000, 500, 1001] {
            world.respond(world.a, n, 1, 10.0);
            world.respond(world.b, n, 1, 20.0);
        }
        let pair = world.common(1).unwrap();
        assert_eq!((values(&pair), pair.partial), ((10.0, 20.0), false));
    }
}

#[test]
fn a_matched_target_without_enough_flows_leaves_the_comparison_partial() {
    let mut world = World::new();
    for node in [world.a, world.b] {
        world.respond(node, 2, 1, 50.0);
        let key = world.key(node, 1);
        world.take(key, sample(Metric::Response, 1, 50.0, 7));
    }
    let pair = world.common(1).unwrap();
    assert!(pair.partial && pair.response.is_some());
    assert_eq!(world.common(61), None);
}

#[test]
fn a_direction_is_known_only_when_every_common_target_knows_it() {
    let mut world = World::new();
    for node in [world.a, world.b] {
        for n in [1, 2] {
            world.respond(node, n, 1, 50.0);
            world.transfer(node, n, Metric::Down, 4e6);
        }
        world.transfer(node, 1, Metric::Up, 1e6);
    }
    let pair = world.common(1).unwrap();
    assert_eq!(pair.down.map(|m| m.incumbent), Some(4e6));
    assert_eq!(pair.up, None);
    assert_eq!(
        world.exact(1, 1).unwrap().up.map(|m| m.challenger),
        Some(1e6)
    );
}

#[test]
fn a_probe_speaks_only_when_business_is_silent() {
    let mut world = World::new();
    let probe = |node: NodeKey, scope: u64| ProbeKey {
        group: GROUP,
        network: Network::Tcp,
        node,
        slot: 0,
        scope,
        interval: Some(30_000_000_000),
    };
    for (node, value) in [(world.a, 80.0), (world.b, 20.0)] {
        for n in 0..4 {
            let key = CmpKey::Probe(probe(node, 7));
            let one = sample(Metric::Response, n * 30, value, n + 1);
            world.store.record(&mut world.targets, one.at, key, one);
        }
    }
    let pair = world.exact(100, 1).unwrap();
    assert_eq!((pair.basis, values(&pair)), (Basis::Probe, (80.0, 20.0)));
    assert_eq!(
        pair.expires(),
        Some(secs(150)),
        "a minute after the last probe"
    );
    for node in [world.a, world.b] {
        world.respond(node, 2, 100, 50.0);
    }
    assert_eq!(world.exact(100, 1).unwrap().basis, Basis::CommonTargets);
    world
        .store
        .forget_probe(&mut world.targets, GROUP, Network::Tcp, world.a, 0);
    assert_eq!(world.store.stats().cells, 3);
    world.store.clear_probes(&mut world.targets);
    assert_eq!(world.store.stats().cells, 2);
}

#[test]
fn probes_of_different_cadence_or_identity_are_not_compared() {
    let mut world = World::new();
    for (node, scope, interval) in [(1, 7, 30), (2, 8, 30), (3, 7, 60)] {
        for reporter in 1..=4 {
            let key = CmpKey::Probe(ProbeKey {
                group: GROUP,
                network: Network::Tcp,
                node: self::node(node),
                slot: 0,
                scope,
                interval: Some(interval * 1_000_000_000),
            });
            let one = sample(Metric::Response, 1, 10.0, reporter);
            world.store.record(&mut world.targets, one.at, key, one);
        }
    }
    assert_eq!(world.common(1), None);
    world.b = node(3);
    assert_eq!(world.common(1), None);
    world.b = world.a;
    assert!(world.common(1).is_some());
}

#[test]
fn networks_families_and_groups_never_mix() {
    let mut world = World::new();
    world.respond(world.a, 1, 1, 50.0);
    let key = world.key(world.b, 1);
    for other in [
        TrafficKey {
            network: Network::Udp,
            ..key
        },
        TrafficKey {
            family: Family::V6,
            ..key
        },
        TrafficKey {
            group: GroupKey(2),
            ..key
        },
    ] {
        for reporter in 1..=4 {
            world.take(other, sample(Metric::Response, 1, 50.0, reporter));
        }
    }
    assert_eq!(world.exact(1, 1), None);
}

#[test]
fn a_read_over_all_flows_looks_at_both_families() {
    let mut world = World::new();
    for node in [world.a, world.b] {
        let key = world.key(node, 1);
        let key = TrafficKey {
            family: Family::V6,
            ..key
        };
        for reporter in 1..=4 {
            world.take(key, sample(Metric::Response, 1, 50.0, reporter));
        }
    }
    assert_eq!(world.common(1), None, "the other family");
    let scope = Scope {
        group: GROUP,
        network: Network::Tcp,
        family: None,
        target: TargetScope::Any,
    };
    let reading = Reading {
        store: &world.store,
        now: secs(1),
        scope: &scope,
    };
    assert!(reading.beside(world.a).own(world.b).is_some());
}

#[test]
fn unsound_samples_are_refused_and_counted() {
    let mut world = World::new();
    world.respond(world.a, 1, 10, 50.0);
    let good = sample(Metric::Response, 10, 1.0, 5);
    let key = world.key(world.a, 1);
    let refused = [
        Sample {
            reporter: 0,
            ..good
        },
        Sample {
            value: f64::NAN,
            ..good
        },
        Sample {
            value: f64::INFINITY,
            ..good
        },
        Sample {
            value: -1.0,
            ..good
        },
        Sample {
            at: secs(11),
            ..good
        },
        Sample {
            at: secs(9),
            ..good
        },
    ];
    for bad in refused {
        let key = CmpKey::Traffic(key);
        world.store.record(&mut world.targets, secs(10), key, bad);
    }
    let stats = world.store.stats();
    assert_eq!((stats.rejected, stats.cells), (6, 1));
    let late = CmpKey::Traffic(key);
    world.store.record(&mut world.targets, secs(70), late, good);
    assert_eq!(world.store.stats().rejected, 7, "its block is over");
    assert_eq!(Timing::probe(Some(0)), None);
}

#[test]
fn a_full_store_drops_what_ended_then_what_lay_longest() {
    let mut world = World::new();
    let full = COMPARISONS as u64;
    let fill = |world: &mut World, from: usize, at: u64| {
        for n in from..from + COMPARISONS {
            let key = world.key(world.a, n);
            world.take(key, sample(Metric::Response, at, 1.0, 1));
            world.targets.release(key.target);
        }
        let stats = world.store.stats();
        assert_eq!(stats.cells, full);
        assert!(stats.logical_bytes <= stats.logical_capacity);
        assert!(stats.logical_capacity <= COMPARISON_BYTES as u64);
        assert_eq!(
            world.targets.len(),
            COMPARISONS,
            "nobody else holds a target"
        );
        stats
    };
    let first = fill(&mut world, 0, 0);
    assert_eq!((first.evictions, first.expired), (0, 0));
    let second = fill(&mut world, 1000, 1);
    assert_eq!((second.evictions, second.expired), (full, 0));
    let third = fill(&mut world, 2000, 100);
    assert_eq!((third.evictions, third.expired), (full, full));
    let key = world.key(world.a, 2000);
    world.targets.release(key.target);
    world.store.forget_exact(&mut world.targets, &key);
    assert_eq!(world.store.stats().cells, full - 1);
    let (store, targets) = (&mut world.store, &mut world.targets);
    store.forget_node(targets, GROUP, Network::Udp, world.a);
    assert_eq!(store.stats().cells, full - 1);
    store.forget_node(targets, GROUP, Network::Tcp, world.a);
    assert_eq!((store.stats().cells, targets.len()), (0, 0));
    fill(&mut world, 0, 200);
    world
        .store
        .retain(&mut world.targets, |group, _| group != GROUP);
    assert_eq!((world.store.stats().cells, world.targets.len()), (0, 0));
}

#[test]
fn what_was_touched_last_stays() {
    let mut world = World::new();
    let keys: Vec<TrafficKey> = (0..=COMPARISONS).map(|n| world.key(world.a, n)).collect();
    for key in &keys[..COMPARISONS] {
        world.take(*key, sample(Metric::Response, 1, 1.0, 1));
    }
    world.take(keys[0], sample(Metric::Response, 2, 1.0, 2));
    world.take(keys[COMPARISONS], sample(Metric::Response, 2, 1.0, 1));
    let known = |n: usize| {
        let nodes = [world.a; 2];
        world.read(2, TargetScope::One(keys[n].target), |r| {
            r.beside(nodes[0]).sharing(nodes[1])
        }) > 0
    };
    assert!(known(0) && !known(1) && known(2) && known(COMPARISONS));
}

#[test]
fn a_merged_pair_is_as_weak_as_its_weakest_target() {
    let mut world = World::new();
    for node in [world.a, world.b] {
        world.respond(node, 2, 1, 50.0);
    }
    for node in [world.a, world.b] {
        world.respond(node, 1, 20, 50.0);
    }
    let pair = world.common(21).unwrap().response.unwrap();
    assert_eq!((pair.last, pair.expires), (secs(1), secs(61)));
    for node in [world.a, world.b] {
        let key = world.key(node, 1);
        for reporter in 5..=8 {
            world.take(key, sample(Metric::Response, 40, 50.0, reporter));
        }
    }
    let alone = world.exact(41, 1).unwrap().response.unwrap();
    assert_eq!(alone.reporters, 8);
    let pair = world.common(41).unwrap().response.unwrap();
    assert_eq!((pair.reporters, pair.last), (4, secs(1)));
}

#[test]
fn a_late_sample_shortens_nothing() {
    let mut world = World::new();
    for node in [world.a, world.b] {
        world.respond(node, 2, 1, 50.0);
        world.respond(node, 1, 40, 50.0);
        let key = CmpKey::Traffic(world.key(node, 1));
        let late = sample(Metric::Response, 2, 50.0, 9);
        world.store.record(&mut world.targets, secs(41), key, late);
    }
    assert_eq!(values(&world.common(70).unwrap()), (50.0, 50.0));
    world.store.check();
}

#[test]
fn a_new_cell_has_nothing_of_the_one_before_in_its_place() {
    let mut world = World::new();
    world.respond(world.b, 3, 1, 50.0);
    world.respond(world.a, 1, 1, 50.0);
    let old = world.key(world.a, 1);
    world.store.forget_exact(&mut world.targets, &old);
    let key = world.key(world.a, 3);
    world.take(key, sample(Metric::Response, 1, 50.0, 9));
    assert_eq!(world.exact(1, 3), None);
    world.store.check();
}

#[test]
fn cells_stay_findable_while_others_come_and_go() {
    let mut world = World::new();
    let mut kept: Vec<(u128, usize)> = Vec::new();
    for n in 0..200_usize {
        let one = (n as u128 * 7 % 13, n * 31 % 97);
        world.respond(node(one.0), one.1, 1, n as f64);
        kept.push(one);
        if n % 3 == 0 {
            let gone = kept[n % kept.len()];
            let key = world.key(node(gone.0), gone.1);
            world.store.forget_exact(&mut world.targets, &key);
            kept.retain(|k| *k != gone);
        }
        world.store.check();
    }
    kept.sort_unstable();
    kept.dedup();
    assert_eq!(world.store.stats().cells, kept.len() as u64);
    for (n, target) in kept {
        (world.a, world.b) = (node(n), node(n));
        assert_eq!(world.exact(1, target).unwrap().basis, Basis::Target);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Samples that only one side has in their block change nothing (SI-28), and at the moment
    /// it names a pair is gone, whoever reports (SI-30).
    #[test]
    fn a_pair_rests_on_what_both_share_and_ends_when_it_says(
        shared in proptest::collection::vec((0..4_u64, 0.0..500.0, 0.0..500.0), 4..20),
        alone in proptest::collection::vec((4..7_u64, 0.0..500.0), 0..10),
    ) {
        let mut world = World::new();
        let keys = [world.a, world.b].map(|node| world.key(node, 1));
        world.take(keys[0], sample(Metric::Response, 0, 1.0, 99));
        for (n, (block, a, b)) in shared.iter().enumerate() {
            for (key, value) in keys.iter().zip([*a, *b]) {
                let at = block * 15 + 5;
                let one = sample(Metric::Response, at, value, n as u64 + 1);
                world.store.record(&mut world.targets, secs(60), CmpKey::Traffic(*key), one);
            }
        }
        let scope = TargetScope::One(keys[0].target);
        let nodes = [world.a, world.b];
        let read = |world: &World, now| world.read(now, scope, |r| r.beside(nodes[0]).pair(nodes[1]));
        let metric = |pair: Option<Pairing>| pair.and_then(|p| p.response);
        let now = 59;
        let before = metric(read(&world, now));
        for (n, (block, value)) in alone.iter().enumerate() {
            // Blocks that the other side has not reached; the first blocks stay in their places.
            if *block < 4 {
                continue;
            }
            let one = sample(Metric::Up, block * 15, *value, n as u64 + 200);
            world.store.record(&mut world.targets, secs(200), CmpKey::Traffic(keys[0]), one);
        }
        prop_assert_eq!(metric(read(&world, now)), before);
        if let Some(pair) = before {
            let end = pair.expires.nanos().div_ceil(1_000_000_000);
            let after = metric(read(&world, end));
            prop_assert!(after.is_none_or(|p| p.expires > pair.expires));
        }
    }

    /// SI-31.
    #[test]
    fn relations_are_symmetric(a in 0.0..1000.0_f64, b in 0.0..1000.0_f64) {
        let mirrored = match relation(b, a) {
            Relation::SelectedFaster => Relation::ChallengerFaster,
            Relation::Equivalent => Relation::Equivalent,
            Relation::ChallengerFaster => Relation::SelectedFaster,
        };
        prop_assert_eq!(relation(a, b), mirrored);
    }
}
