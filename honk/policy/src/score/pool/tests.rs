//! Who serves, and when that changes.

use super::*;
use crate::score::ids::key;

fn standing(n: usize, utility: f64) -> Standing {
    Standing {
        node: key(n as u128),
        member: n as u32,
        index: n,
        eligible: true,
        failed: false,
        utility,
        probe: None,
    }
}

/// As many leaves, the first one best.
fn leaves(count: usize) -> Vec<Standing> {
    (0..count)
        .map(|n| standing(n, 1.0 - n as f64 / 1000.0))
        .collect()
}

fn view(standings: &[Standing]) -> Vec<Cand> {
    let cand = |s: &Standing| Cand {
        node: s.node,
        member: s.member,
    };
    standings.iter().map(cand).collect()
}

fn members(pool: &Pool) -> Vec<NodeKey> {
    pool.members().collect()
}

fn keys<const N: usize>(nodes: [u128; N]) -> Vec<NodeKey> {
    nodes.map(key).to_vec()
}

fn at(secs: u64) -> T {
    T::from_secs(secs)
}

fn sound(_: NodeKey) -> bool {
    false
}

fn due(pool: &Pool, now: T, view: &[Cand], failing: impl Fn(NodeKey) -> bool) -> bool {
    let here = pool.located(view).indices().len();
    let due = pool.due(now, view, here, false, &failing);
    // As the engine asks: adopted, and with a word that nobody is missing or fails.
    let mut adopted = pool.clone();
    adopted.adopt(now, view);
    let here = adopted.located(view).indices().len();
    if here == adopted.len() && !members(&adopted).into_iter().any(&failing) {
        let asked = [true, false].map(|sound| adopted.due(now, view, here, sound, &failing));
        assert_eq!(asked[0], asked[1]);
    }
    due
}

/// A pool of three out of ten under no demand: 0 and 1 ranked, 2 in its turn.
fn three_of_ten() -> (Pool, Vec<Standing>) {
    let mut pool = Pool::default();
    let ten = leaves(10);
    pool.commit(at(0), &ten, 0, 0.0);
    assert_eq!(members(&pool), keys([0, 1, 2]));
    (pool, ten)
}

#[test]
fn places_follow_leaves_and_demand() {
    for n in 0..=4 {
        assert_eq!(capacity(n, 1e9), n);
    }
    assert_eq!(capacity(45, 1e9), 8);
    assert_eq!(capacity(200, 1e9), 16);
    assert_eq!(capacity(1000, 1e9), 25);
    let steady = |per_second: f64| per_second * H_RATE / std::f64::consts::LN_2;
    assert_eq!(capacity(1000, steady(46.0 / 60.0)), 16);
    assert_eq!(capacity(200, steady(0.01)), 3);
}

#[test]
fn a_small_group_is_its_own_pool() {
    let mut pool = Pool::default();
    let four = leaves(4);
    assert!(due(&pool, at(0), &view(&four[..3]), sound));
    pool.commit(at(0), &four[..3], 2, 0.0);
    assert_eq!(members(&pool), keys([2, 0, 1]));
    assert!(!due(&pool, at(1), &view(&four[..3]), sound));
    assert!(
        due(&pool, at(2), &view(&four), sound),
        "the fourth came alive"
    );
    pool.commit(at(2), &four, 2, 0.0);
    assert_eq!(members(&pool), keys([2, 0, 1, 3]));
    assert!(!due(&pool, at(3), &view(&four[..2]), |_| true));
}

#[test]
fn the_first_choice_has_the_first_place() {
    let mut pool = Pool::default();
    pool.commit(at(0), &leaves(10), 7, 0.0);
    assert_eq!(members(&pool), keys([7, 0, 1]));
}

#[test]
fn ranking_is_by_fitness_value_probe_and_identity() {
    let mut of = [
        standing(1, 0.9),
        standing(2, 0.9),
        standing(3, 0.9),
        standing(4, 0.95),
    ];
    of[1].probe = Some(10.0);
    of[3].eligible = false;
    of.sort_unstable_by(rank);
    assert_eq!(of.map(|s| s.node), [2, 1, 3, 4].map(key));
}

#[test]
fn growth_waits_for_a_refresh_and_shrinking_for_two() {
    let (mut pool, ten) = three_of_ten();
    let demand = |places: f64| (places - 0.5) * PER_PLACE * H_RATE / H_REL;
    assert!(!due(&pool, at(299), &view(&ten), sound));
    assert!(due(&pool, at(300), &view(&ten), sound));
    pool.commit(at(299), &ten, 0, demand(5.0));
    assert_eq!(pool.capacity(), 3);
    pool.commit(at(300), &ten, 0, demand(5.0));
    assert_eq!((pool.capacity(), members(&pool).len()), (5, 5));
    pool.commit(at(600), &ten, 0, demand(4.0));
    assert_eq!(pool.capacity(), 5);
    pool.commit(at(900), &ten, 0, demand(3.0));
    assert_eq!((pool.capacity(), members(&pool).len()), (3, 3));
    pool.commit(at(1200), &ten[..3], 0, 0.0);
    assert_eq!(pool.capacity(), 3, "a filtered view shrinks nothing");
}

#[test]
fn a_ranked_member_stays_until_it_is_two_behind() {
    let (mut pool, mut ten) = three_of_ten();
    ten[1].utility = ten[2].utility - 0.0001;
    pool.commit(at(300), &ten, 0, 0.0);
    assert_eq!(members(&pool)[..2], keys([0, 1]), "third of two");
    ten[1].utility = ten[3].utility - 0.0001;
    pool.commit(at(600), &ten, 0, 0.0);
    assert_eq!(members(&pool)[..2], keys([0, 2]), "fourth of two");
}

#[test]
fn one_place_rotates_through_everybody_else() {
    let (mut pool, ten) = three_of_ten();
    let mut seen = Vec::new();
    for turn in 0..9 {
        seen.push(members(&pool)[2]);
        assert!(due(&pool, at(600 * (turn + 1)), &view(&ten), sound));
        pool.commit(at(600 * (turn + 1)), &ten, 0, 0.0);
    }
    assert_eq!(seen, keys([2, 3, 4, 5, 6, 7, 8, 9, 2]));
}

#[test]
fn who_serves_from_the_rotating_place_is_ranked() {
    let (mut pool, ten) = three_of_ten();
    pool.served(at(500), key(2));
    assert_eq!(members(&pool), keys([0, 2, 1]));
    assert!(!due(&pool, at(299), &view(&ten), sound));
    pool.commit(at(1000), &ten, 0, 0.0);
    assert_eq!(members(&pool)[2], key(1), "has a time of its own");
    pool.commit(at(1100), &ten, 0, 0.0);
    assert_eq!(members(&pool)[2], key(3));
}

#[test]
fn who_fails_is_replaced_at_once_if_somebody_can() {
    let (mut pool, mut ten) = three_of_ten();
    ten[0].failed = true;
    let failing = |node: NodeKey| node == key(0);
    assert!(due(&pool, at(10), &view(&ten), failing));
    assert!(!due(&pool, at(10), &view(&ten), |_| true), "nobody can");
    pool.commit(at(10), &ten, 1, 0.0);
    assert_eq!(members(&pool), keys([3, 1, 2]));
    let mut all = leaves(10);
    for s in &mut all {
        s.failed = true;
    }
    pool.commit(at(20), &all, 1, 0.0);
    assert_eq!(members(&pool), keys([3, 1, 2]));
}

#[test]
fn who_stays_away_from_views_is_replaced() {
    let (mut pool, ten) = three_of_ten();
    let rest = &ten[1..];
    pool.adopt(at(10), &view(rest));
    assert!(!due(&pool, at(39), &view(rest), sound));
    assert!(due(&pool, at(40), &view(rest), sound));
    pool.adopt(at(41), &view(&ten));
    assert!(!due(&pool, at(80), &view(rest), sound), "was back");
    pool.adopt(at(80), &view(rest));
    pool.commit(at(110), rest, 0, 0.0);
    assert_eq!(members(&pool), keys([3, 1, 2]));
}

#[test]
fn who_stays_away_leaves_at_the_next_look_though_nobody_follows() {
    let (mut pool, ten) = three_of_ten();
    let left = &ten[..2];
    pool.adopt(at(100), &view(left));
    pool.served(at(100), key(2));
    assert_eq!(members(&pool), keys([0, 2, 1]));
    let mut early = pool.clone();
    early.commit(at(300), left, 0, 0.0);
    assert_eq!(members(&early), keys([0, 1]));
    // One that has just gone missing stays.
    pool.adopt(at(280), &view(&ten));
    pool.adopt(at(290), &view(left));
    pool.commit(at(300), left, 0, 0.0);
    assert!(pool.contains(key(2)));
}

#[test]
fn the_turn_passes_over_who_fails() {
    let (mut pool, mut ten) = three_of_ten();
    ten[3].failed = true;
    pool.commit(at(600), &ten, 0, 0.0);
    assert_eq!(members(&pool), keys([0, 1, 4]));
}

#[test]
fn a_view_without_any_member_makes_a_new_pool() {
    let (mut pool, ten) = three_of_ten();
    let others = &ten[5..7];
    assert!(due(&pool, at(1), &view(others), sound));
    pool.commit(at(1), others, 0, 0.0);
    assert_eq!(members(&pool), keys([5, 6]));
    assert_eq!(pool.capacity(), 3);
    assert!(due(&pool, at(2), &view(&ten), sound), "one place is free");
}

#[test]
fn a_thin_first_view_grows_to_the_least_at_once() {
    let all = leaves(10);
    let mut pool = Pool::default();
    pool.commit(at(0), &all[..1], 0, 0.0);
    assert_eq!(pool.capacity(), 1);
    assert!(due(&pool, at(1), &view(&all), sound));
    pool.commit(at(1), &all, 0, 0.0);
    assert_eq!((pool.capacity(), members(&pool).len()), (3, 3));
    assert!(!due(&pool, at(2), &view(&all), sound));
    // Nobody of the pool in the view: another one, of the same size.
    pool.commit(at(3), &all[5..], 0, 0.0);
    assert_eq!((pool.capacity(), members(&pool).len()), (3, 3));
}

#[test]
fn a_nested_group_keeps_its_place_with_another_leaf() {
    let (mut pool, mut ten) = three_of_ten();
    ten[1].node = key(50);
    pool.adopt(at(1), &view(&ten));
    assert_eq!(members(&pool), keys([0, 50, 2]));
    ten[1].node = key(2);
    let distinct: Vec<_> = ten.iter().copied().filter(|s| s.index != 2).collect();
    pool.adopt(at(2), &view(&distinct));
    assert_eq!(members(&pool), keys([0, 50, 2]), "no leaf has two places");
}

#[test]
fn members_are_found_wherever_the_view_holds_them() {
    let (pool, ten) = three_of_ten();
    let mut view = view(&ten);
    assert_eq!(pool.located(&view).indices(), [0, 1, 2]);
    view.reverse();
    assert_eq!(pool.located(&view).indices(), [7, 8, 9]);
    view.pop();
    assert_eq!(pool.located(&view).indices(), [7, 8]);
}

#[test]
fn probes_are_kept_of_members_and_recent_winners() {
    let mut pool = Pool::default();
    assert!(pool.keeps_probe(key(9)), "nothing is decided yet");
    let ten = leaves(10);
    pool.commit(at(0), &ten, 0, 0.0);
    assert!(pool.keeps_probe(key(2)) && !pool.keeps_probe(key(9)));
    for n in [9, 8, 7, 9, 6] {
        pool.served(at(1), key(n));
    }
    let kept = [9, 8, 7, 6].map(|n| pool.keeps_probe(key(n)));
    assert_eq!(kept, [true; 4]);
    pool.served(at(1), key(5));
    assert!(!pool.keeps_probe(key(8)) && pool.keeps_probe(key(9)));
    let pool = Pool::default();
    assert!(pool.keeps_probe(key(8)));
}

#[test]
fn a_projection_changes_nothing() {
    let pool = Pool::default();
    let projected = pool.project(at(5), &leaves(10), 3, 0.0);
    assert_eq!(members(&projected), keys([3, 0, 1]));
    assert_eq!(pool, Pool::default());
}
