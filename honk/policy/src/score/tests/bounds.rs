//! Every table is full at some point: what gives way, and that it is counted.

use super::{
    super::{
        Mode, Outcome, Target, Trials,
        cell::{Cell, CellKey},
        consts::{CELLS, COMPARISON_BYTES, HISTORY, HOST_MAX, WORKS},
        lru::Lru,
    },
    world::{Flow, WEB, World, cands},
};

const APPLY: Mode = Mode::Apply(Trials::Allowed);

#[test]
fn exact_cells_and_targets_are_bounded() {
    let mut world = World::new(&[&[0, 1]]);
    let more = 300;
    for target in 0..(CELLS + more) as u32 {
        let at = format!("192.0.2.1:{}", target % 60_000 + 1)
            .parse()
            .unwrap();
        let ctx = super::super::Ctx {
            target: Some(Target::Address(at)),
            ..super::world::ctx(WEB, None, None)
        };
        let key = super::super::GroupKey(1);
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
