//! Every table is full at some point: what gives way, and that it is counted.

use super::{
    super::{
        Cand, Ctx, Engine, GroupKey, GroupMembers, Membership, Mode, NodeKey, Outcome, T, Target,
        Trials,
        cell::{Cell, CellKey},
        consts::{CELLS, COMPARISON_BYTES, COMPARISONS, HISTORY, HOST_MAX, WORKS},
        lru::Lru,
    },
    world::{Flow, WEB, World, cands},
};
use crate::id::{Network, NodeId, Uuid};

const APPLY: Mode = Mode::Apply(Trials::Allowed);

#[test]
fn exact_cells_and_targets_are_bounded() {
    let mut world = World::new(&[&[0, 1]]);
    let more = 300;
    for target in 0..(CELLS + more) as u32 {
        let at = format!("192.0.2.1:{}", target % 60_000 + 1)
            .parse()
            .unwrap();
        let ctx = Ctx {
            target: Some(Target::Address(at)),
            ..super::world::ctx(WEB, None, None)
        };
        let key = GroupKey(1);
        let pick = world
            .engine
            .rank(world.now, key, &ctx, &cands(&[0]), Mode::Fixed);
        world.run(pick.unwrap(), |_| (Outcome::Success, 5));
    }
    let cache = world.engine.stats(world.now).cache;
    assert_eq!(cache.exact_cells, CELLS as u64);
    assert_eq!(cache.exact_evictions, more as u64);
    assert!(cache.comparison.cells <= 512 && cache.comparison.logical_bytes <= 1_048_576);
    assert_eq!(world.engine.dropped().targets, CELLS as u64);
}

#[test]
fn aggregate_cells_are_bounded_and_orphans_say_nothing() {
    // 250 groups with 20 leaves: 5000 group cells would be needed.
    let leaves: Vec<u8> = (0..20).collect();
    let groups: Vec<&[u8]> = (0..250).map(|_| leaves.as_slice()).collect();
    let mut world = World::new(&groups);
    for group in 1..=250 {
        for leaf in 0..20 {
            world.probe(group, leaf, Some(f64::from(leaf) + 1.0));
        }
    }
    let cache = world.engine.stats(world.now).cache;
    assert_eq!(cache.aggregate_cells, CELLS as u64);
    assert_eq!(cache.aggregate_evictions, 5000 - CELLS as u64);
    let flow = Flow { group: 1, ..WEB };
    assert!(world.rank(flow, &cands(&leaves), APPLY).is_some());
}

#[test]
fn groups_beyond_the_most_there_can_be_are_counted() {
    let leaves: &[u8] = &[0, 1];
    let world = World::new(&vec![leaves; 252]);
    assert_eq!(world.engine.dropped().groups, 2);
    assert_eq!(world.engine.stats(world.now).groups.len(), 250);
}

#[test]
fn flows_beyond_the_known_attempts_are_served_unscored() {
    let mut world = World::new(&[&[0, 1, 2]]);
    let view = cands(&[0, 1, 2]);
    let mut kept = Vec::new();
    loop {
        let pick = world.rank(WEB, &view, APPLY).unwrap();
        let Some(attempt) = pick.attempt else {
            assert!(!pick.trial, "an unscored flow is no trial");
            break;
        };
        kept.push(attempt);
    }
    assert!(kept.len() > WORKS - 10 && kept.len() <= WORKS);
    assert_eq!(world.engine.dropped().unscored, 1);
    // Begun work keeps its place; what was never begun makes room after a minute.
    let now = world.now;
    world.engine.begin(now, &kept[0]).unwrap();
    world.pass(60_000);
    assert!(world.rank(WEB, &view, APPLY).unwrap().attempt.is_some());
    let budget = world.engine.stats(world.now).groups[0].tcp.budget;
    assert_eq!((budget.spent, budget.reserved), (0, 0));
}

#[test]
fn a_pool_of_a_thousand_under_any_demand_has_25_places() {
    let mut engine = Engine::new(7);
    let leaves: Vec<NodeKey> = (0..1000)
        .map(|n| NodeId(Uuid::from_u128(n)).into())
        .collect();
    let group = GroupMembers {
        group: GroupKey(1),
        leaves: leaves.clone(),
        finals: Vec::new(),
    };
    let membership = Membership {
        generation: 1,
        groups: vec![group],
        dormant: Vec::new(),
    };
    engine.activate(T::START, &membership);
    let cand = |(member, node): (u32, NodeKey)| Cand { node, member };
    let view: Vec<Cand> = (0..).zip(leaves).map(cand).collect();
    let ctx = super::world::ctx(WEB, None, None);
    let mut largest = 0;
    for second in 1..=700 {
        let now = T::from_secs(second);
        for _ in 0..3 {
            let pick = engine.rank(now, GroupKey(1), &ctx, &view, APPLY).unwrap();
            let work = engine.begin(now, &pick.attempt.unwrap()).unwrap();
            engine.release(now, work.attempt());
        }
        largest = largest.max(engine.groups[0].net(Network::Tcp).pool.len());
    }
    assert_eq!(largest, 25);
}

#[test]
fn comparisons_of_the_longest_names_stay_within_their_bytes() {
    let leaves: Vec<u8> = (0..32).collect();
    let mut world = World::new(&[&leaves]);
    let group = GroupKey(1);
    for target in 0..COMPARISONS + 100 {
        let host = format!("{target:0>width$}", width = HOST_MAX);
        let ctx = Ctx {
            target: Some(Target::Name(&host, 443)),
            ..super::world::ctx(WEB, None, None)
        };
        let view = cands(&[(target % 32) as u8]);
        let pick = world
            .engine
            .rank(world.now, group, &ctx, &view, Mode::Fixed);
        world.run(pick.unwrap(), |_| (Outcome::Success, 5));
    }
    let comparison = world.engine.stats(world.now).cache.comparison;
    let names = (COMPARISONS * HOST_MAX) as u64;
    assert_eq!((comparison.cells, comparison.evictions), (512, 100));
    assert!(comparison.logical_bytes > names, "names are counted");
    assert!(comparison.logical_bytes <= comparison.logical_capacity);
    assert!(comparison.logical_capacity <= COMPARISON_BYTES as u64);
    // The host that is one byte longer has no cell of its own.
    let host = "a".repeat(HOST_MAX + 1);
    let ctx = Ctx {
        target: Some(Target::Name(&host, 443)),
        ..super::world::ctx(WEB, None, None)
    };
    let before = world.engine.stats(world.now).cache.exact_cells;
    let pick = world
        .engine
        .rank(world.now, group, &ctx, &cands(&[0]), Mode::Fixed);
    world.run(pick.unwrap(), |_| (Outcome::Success, 5));
    assert_eq!(world.engine.stats(world.now).cache.exact_cells, before);
}

#[test]
fn nested_flows_beyond_the_known_groups_of_attempts_are_served_unscored() {
    let leaves: &[u8] = &[0, 1];
    let mut world = World::new(&[leaves; 3]);
    let view = cands(leaves);
    let mut kept = 0;
    while let Some(attempt) = world.rank(WEB, &view, Mode::Fixed).unwrap().attempt {
        kept += 1;
        for group in [2, 3] {
            let flow = Flow { group, ..WEB };
            let joined = world
                .rank_joining(flow, &view, Mode::Fixed, Some(attempt))
                .unwrap();
            assert_eq!(joined.attempt, Some(attempt));
        }
    }
    // Three for each, out of twice as many as there may be attempts.
    assert!(kept > WORKS * 2 / 3 - 10 && kept <= WORKS * 2 / 3);
    assert_eq!(world.engine.dropped().unscored, 1);
}

#[test]
fn an_evicted_cell_takes_no_late_report() {
    let mut world = World::new(&[&[0, 1]]);
    let pick = world.rank(WEB, &cands(&[0, 1]), APPLY).unwrap();
    let now = world.now;
    let attempt = pick.attempt.unwrap();
    let work = world.engine.begin(now, &attempt).unwrap();
    let reporter = world.engine.start(now, work, super::super::Source::Traffic);
    world.activate(&[&[1]]);
    world.activate(&[&[0, 1]]);
    let before = format!("{:?}", world.engine.evidence.cells);
    world.engine.finish(now, reporter, Outcome::NodeFailure);
    assert_eq!(format!("{:?}", world.engine.evidence.cells), before);
    assert_eq!(world.engine.dropped().attempts, 0);
    assert_eq!(world.engine.stats(now).cache.aggregate_cells, 0);
}

/// S-309: 12 MiB with full tables of cells and names as long as they can be. Attempts come on top.
#[test]
fn full_tables_stay_within_their_memory() {
    let cells = 2 * CELLS * Lru::<CellKey, Cell>::slot_size();
    let names = 2 * CELLS * (HOST_MAX + 64);
    // An entry of history is far smaller than a cell.
    let history = HISTORY * 128;
    let comparisons = COMPARISON_BYTES;
    let all = cells + names + history + comparisons;
    assert!(all <= 12 << 20, "{all} bytes");
}
