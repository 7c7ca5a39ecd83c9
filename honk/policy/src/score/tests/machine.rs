//! Any calls in any order: what must hold after each of them.

use proptest::{prelude::*, test_runner::RngSeed};

use super::{
    super::{
        GroupKey, Mode, Obs, Outcome, Pick, Source, Trials,
        cell::{Layer, Scope},
        clock::T,
        ids::NodeKey,
        look::scope_of,
        record::target_scope,
    },
    compared,
    world::{Flow, Held, World, cands, ctx, name, node},
};
use crate::id::{Family, Network};

/// One call, or a few that belong together. Attempts are named by a number modulo how many the
/// world holds.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Rank(Flow, Vec<u8>, Mode),
    /// A flow from start to end.
    Serve(Flow, Vec<u8>, Outcome, u16),
    Look(Flow, Vec<u8>),
    Begin(usize),
    Release(usize),
    Start(usize),
    See(usize, Event),
    Finish(usize, Outcome),
    Probe(u32, u8, Option<u16>),
    Press(u8),
    Activate(Vec<u8>),
    Pass(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Setup,
    Response,
    Tx(u32),
    Rx(u32),
}

/// Leaves of both groups.
const LEAVES: [u8; 7] = [0, 1, 2, 3, 4, 5, 6];

/// A cell at one moment.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    layer: Layer,
    incarnation: u64,
    group: GroupKey,
    node: NodeKey,
    counts: [f64; 4],
    streak: u32,
    step: u8,
    not_before: Option<T>,
    fence: Option<T>,
    lease: Option<T>,
    credits: u8,
}

fn flows() -> impl Strategy<Value = Flow> {
    let network = prop_oneof![4 => Just(Network::Tcp), 1 => Just(Network::Udp)];
    let family = prop_oneof![
        6 => Just(Some(Family::V4)),
        2 => Just(Some(Family::V6)),
        1 => Just(None)
    ];
    let target = prop_oneof![8 => (0..3_u8).prop_map(Some), 1 => Just(None)];
    let group = prop_oneof![5 => Just(1_u32), 1 => Just(2)];
    (group, network, family, target).prop_map(|(group, network, family, target)| Flow {
        group,
        network,
        family,
        target,
    })
}

fn views() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        5 => Just(LEAVES.to_vec()),
        2 => Just(vec![0, 1, 2]),
        3 => proptest::sample::subsequence(LEAVES.to_vec(), 1..7),
    ]
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        12 => Just(Outcome::Success),
        1 => Just(Outcome::Timeout),
        1 => Just(Outcome::Io),
        1 => Just(Outcome::Other),
        1 => Just(Outcome::TargetRefused),
        1 => Just(Outcome::TargetTimeout),
        1 => Just(Outcome::NodeFailure),
        1 => (1..5_u64).prop_map(Outcome::SharedNodeFailure),
        1 => Just(Outcome::Rejected),
        1 => Just(Outcome::Cancelled),
        1 => Just(Outcome::Shutdown),
    ]
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        8 => Just(Mode::Apply(Trials::Allowed)),
        1 => Just(Mode::Apply(Trials::Forbidden)),
        1 => (0..7_u8).prop_map(|n| Mode::Retry { failed: node(n) }),
        1 => Just(Mode::Fixed),
        1 => Just(Mode::Prepare),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Setup),
        Just(Event::Response),
        (0..200_000_u32).prop_map(Event::Tx),
        (0..200_000_u32).prop_map(Event::Rx),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let any = 0..1000_usize;
    let op = prop_oneof![
        4 => (flows(), views(), modes()).prop_map(|(f, v, m)| Op::Rank(f, v, m)),
        12 => (flows(), views(), outcomes(), 1..300_u16)
            .prop_map(|(f, v, o, ms)| Op::Serve(f, v, o, ms)),
        1 => (flows(), views()).prop_map(|(f, v)| Op::Look(f, v)),
        4 => any.clone().prop_map(Op::Begin),
        1 => any.clone().prop_map(Op::Release),
        3 => any.clone().prop_map(Op::Start),
        8 => (any.clone(), events()).prop_map(|(at, event)| Op::See(at, event)),
        3 => (any, outcomes()).prop_map(|(at, o)| Op::Finish(at, o)),
        2 => (1..3_u32, 0..7_u8, proptest::option::weighted(0.8, 1..500_u16))
            .prop_map(|(g, n, ms)| Op::Probe(g, n, ms)),
        1 => (0..7_u8).prop_map(Op::Press),
        1 => proptest::sample::subsequence(LEAVES.to_vec(), 3..=7)
            .prop_map(Op::Activate),
        5 => prop_oneof![8 => 1..4000_u32, 2 => 4000..70_000_u32, 1 => 0..700_000_u32]
            .prop_map(Op::Pass),
    ];
    proptest::collection::vec(op, 1..250)
}

/// Performs an operation. Tells what was picked.
fn perform(world: &mut World, op: &Op) -> Option<Pick> {
    match op {
        Op::Rank(flow, view, mode) => {
            let pick = world.rank(*flow, &cands(view), *mode)?;
            world.held.extend(pick.attempt.map(Held::Planned));
            Some(pick)
        }
        Op::Serve(flow, view, outcome, millis) => {
            let response = u64::from(*millis);
            Some(world.flow(*flow, &cands(view), |_| (*outcome, response)))
        }
        Op::Look(flow, view) => {
            world.peek(*flow, &cands(view));
            let key = GroupKey(flow.group);
            world
                .engine
                .verify(world.now, key, flow.network, &cands(view));
            world.engine.stats(world.now);
            None
        }
        Op::Probe(group, number, millis) => {
            world.probe(*group, *number, millis.map(f64::from));
            None
        }
        Op::Press(number) => {
            world.press(*number);
            None
        }
        Op::Activate(leaves) => {
            world.activate(&[leaves, &[0, 1, 2]]);
            None
        }
        Op::Pass(millis) => {
            world.pass(u64::from(*millis));
            None
        }
        Op::Begin(at) | Op::Release(at) | Op::Start(at) | Op::See(at, _) | Op::Finish(at, _) => {
            if !world.held.is_empty() {
                on_held(world, *at % world.held.len(), op);
            }
            None
        }
    }
}

fn on_held(world: &mut World, at: usize, op: &Op) {
    let now = world.now;
    let engine = &mut world.engine;
    match (world.held[at], op) {
        (Held::Planned(attempt), Op::Begin(_)) => match engine.begin(now, &attempt) {
            Ok(work) => world.held[at] = Held::Begun(work),
            Err(_) => drop(world.held.swap_remove(at)),
        },
        (Held::Planned(attempt), Op::Release(_)) => {
            engine.release(now, attempt);
            world.held.swap_remove(at);
        }
        (Held::Begun(work), Op::Release(_)) => {
            engine.release(now, work.attempt());
            world.held.swap_remove(at);
        }
        (Held::Begun(work), Op::Start(_)) => {
            world.held[at] = Held::Started(engine.start(now, work, Source::Traffic));
        }
        (Held::Started(reporter), Op::See(_, event)) => {
            let event = match *event {
                Event::Setup => Obs::Setup,
                Event::Response => Obs::FirstResponse,
                Event::Tx(bytes) => Obs::Tx {
                    bytes: u64::from(bytes),
                    at: now,
                },
                Event::Rx(bytes) => Obs::Rx {
                    bytes: u64::from(bytes),
                    at: now,
                },
            };
            engine.observe(now, reporter, event);
        }
        (Held::Started(reporter), Op::Finish(_, outcome)) => {
            engine.finish(now, reporter, *outcome);
            // The second end must be nothing.
            engine.finish(now, reporter, Outcome::NodeFailure);
            world.held.swap_remove(at);
        }
        _ => {}
    }
}

fn cells(world: &World) -> Vec<Seen> {
    let stores = &world.engine.evidence.cells;
    let all = stores.aggregate.occupied().chain(stores.exact.occupied());
    let mut seen: Vec<Seen> = all
        .map(|(_, key, cell)| {
            let counts = cell.counts(world.now);
            let layer = match (key.target, key.family) {
                (Some(_), _) => Layer::Exact,
                (None, Some(_)) => Layer::Family,
                (None, None) => Layer::Group,
            };
            Seen {
                layer,
                incarnation: cell.incarnation,
                group: key.group,
                node: key.node,
                counts: [counts.ok, counts.bad, counts.set_up, counts.not_set_up],
                streak: cell.streak,
                step: cell.backoff_step,
                not_before: cell.explore_not_before,
                fence: cell.fence,
                lease: cell.lease_until,
                credits: cell.cohort.credits,
            }
        })
        .collect();
    seen.sort_by_key(|cell| cell.incarnation);
    seen
}

/// Cells that were there before and still are.
fn pairs<'a>(before: &'a [Seen], after: &'a [Seen]) -> impl Iterator<Item = (&'a Seen, &'a Seen)> {
    after.iter().filter_map(|new| {
        let at = before.binary_search_by_key(&new.incarnation, |old| old.incarnation);
        Some((&before[at.ok()?], new))
    })
}

fn state(world: &World) -> String {
    format!("{:?}", world.engine)
}

fn credit(world: &World) -> Vec<[u64; 3]> {
    let stats = world.engine.stats(world.now);
    let nets = stats.groups.iter().flat_map(|group| [group.tcp, group.udp]);
    nets.map(|net| {
        let budget = net.budget;
        [
            budget.cold_available + budget.reserved,
            budget.earned_available,
            budget.spent,
        ]
    })
    .collect()
}

fn choices(world: &World) -> u64 {
    let stats = world.engine.stats(world.now);
    let nets = stats.groups.iter().flat_map(|group| [group.tcp, group.udp]);
    nets.map(|net| net.reasons.choices()).sum()
}

/// An operation with everything that must hold after it.
fn step(world: &mut World, op: &Op) {
    let before = cells(world);
    let (funds, chosen) = (credit(world), choices(world));
    let untouched = matches!(op, Op::Look(..)).then(|| state(world));
    let current = history(world, op);
    let numbers = compared::Before::of(world);
    let pick = perform(world, op);
    compared::check(world, &numbers, op, pick.as_ref(), current);
    let after = cells(world);
    if let Some(untouched) = untouched {
        assert_eq!(state(world), untouched, "SI-05: a read changed something");
    }
    sound(world, &after);
    if let (Some(pick), Op::Rank(flow, view, _) | Op::Serve(flow, view, ..)) = (&pick, op) {
        assert!(view.iter().any(|n| node(*n) == pick.node), "SI-06");
        picked(world, op, flow, view, pick, current);
    }
    let counted = choices(world) - chosen;
    assert!(counted <= 1, "SI-08: one reason for a choice");
    if let Some(pick) = pick {
        assert_eq!(counted == 1, pick.reason.is_some(), "SI-08");
    }
    changed(op, &before, &after);
    match op {
        Op::Pass(_) => faded(&before, &after),
        Op::Activate(leaves) => {
            for (now, before) in credit(world).iter().zip(&funds) {
                assert!(
                    now[0] <= before[0] && now[1] <= before[1] + 1,
                    "SI-33: {now:?} {before:?}"
                );
                assert_eq!(now[2], before[2], "SI-33");
            }
            let gone = |cell: &&Seen| {
                cell.group == GroupKey(1) && !leaves.iter().any(|n| node(*n) == cell.node)
            };
            assert!(
                after.iter().find(gone).is_none(),
                "SI-33: who left is forgotten"
            );
        }
        _ => {}
    }
}

/// SI-15 and SI-32: numbers are sound, tables within their bounds.
fn sound(world: &World, after: &[Seen]) {
    for cell in after {
        assert!(
            cell.counts.iter().all(|c| c.is_finite() && *c >= 0.0),
            "SI-15"
        );
        assert!(cell.credits <= 4, "SI-15");
    }
    let stores = &world.engine.evidence.cells;
    for (_, _, cell) in stores.aggregate.occupied().chain(stores.exact.occupied()) {
        for mean in [&cell.setup, &cell.response, &cell.up, &cell.down] {
            assert!((0.0..=4.0).contains(&mean.weight()), "SI-15");
        }
        let (lower, upper) = cell.counts(world.now).bounds();
        assert!(
            (0.0..=1.0).contains(&lower) && lower <= upper && upper <= 1.0,
            "SI-15"
        );
    }
    for group in &world.engine.groups {
        for network in [Network::Tcp, Network::Udp] {
            let pool = &group.net(network).pool;
            assert!(
                pool.members().count() <= pool.capacity() && pool.capacity() <= 25,
                "SI-07"
            );
        }
    }
}

/// What the scope of an operation chose last.
fn history(world: &World, op: &Op) -> Option<NodeKey> {
    let (Op::Rank(flow, ..) | Op::Serve(flow, ..)) = op else {
        return None;
    };
    world.engine.history.current(&scope(world, flow)?)
}

pub(super) fn scope(world: &World, flow: &Flow) -> Option<Scope> {
    let text = flow.target.map(name);
    let (family, target) = scope_of(&ctx(*flow, text.as_deref(), None));
    let id = match target {
        None => None,
        Some(target) => Some(world.engine.evidence.targets.find(target)?),
    };
    Some(Scope {
        group: GroupKey(flow.group),
        network: flow.network,
        family,
        target: target_scope(id),
    })
}

fn picked(world: &World, op: &Op, flow: &Flow, view: &[u8], pick: &Pick, current: Option<NodeKey>) {
    let mode = match op {
        Op::Rank(_, _, mode) => *mode,
        _ => Mode::Apply(Trials::Allowed),
    };
    let key = GroupKey(flow.group);
    let at = world.engine.find(key).expect("the group is there");
    match mode {
        Mode::Apply(_) => {}
        Mode::Retry { failed } => {
            assert!(pick.node != failed, "SI-35");
            assert!(!pick.trial && pick.reason.is_none(), "SI-35");
        }
        Mode::Fixed | Mode::Prepare => {
            assert!(!pick.trial && pick.reason.is_none());
            return;
        }
    }
    let pool = &world.engine.groups[at].net(flow.network).pool;
    assert!(pool.contains(pick.node), "SI-07");
    if let (true, Op::Rank(..)) = (pick.trial, op) {
        assert!(view.len() > 1 && !pick.switched);
        // A trial changes no evidence: the ordinary choice is still the one it was made beside.
        let ordinary = world.peek(*flow, &cands(view)).expect("there is a view");
        assert!(ordinary != pick.node, "SI-10");
        assert!(current.is_none_or(|held| held == ordinary), "SI-41");
        let kept = scope(world, flow).and_then(|s| world.engine.history.current(&s));
        assert_eq!(kept, current, "SI-09");
    }
}

/// What may change of hard state and reliability, by operation.
fn changed(op: &Op, before: &[Seen], after: &[Seen]) {
    for (old, new) in pairs(before, after) {
        if new.streak < old.streak {
            assert!(new.streak == 0 && new.credits >= 4, "SI-21");
            assert!(
                matches!(op, Op::See(..) | Op::Finish(..) | Op::Serve(..)),
                "SI-21"
            );
        }
        let hard = |c: &Seen| (c.streak, c.step, c.not_before, c.fence);
        match op {
            Op::Probe(..) | Op::Press(_) | Op::Look(..) | Op::Rank(..) => {
                assert_eq!(old, new, "SI-22");
            }
            Op::Finish(_, outcome) => match outcome {
                Outcome::Rejected | Outcome::Cancelled | Outcome::Shutdown => {
                    assert_eq!(old.counts, new.counts, "SI-18");
                    assert!(new.streak <= old.streak && new.step <= old.step, "SI-18");
                }
                Outcome::TargetRefused | Outcome::TargetTimeout if new.layer != Layer::Exact => {
                    assert!(new.streak <= old.streak && new.step <= old.step, "SI-19");
                    // A family cell takes over the fence of its group cell when it is written.
                    let taken_over =
                        |c: &Seen| (c.group, c.node, c.fence) == (new.group, new.node, new.fence);
                    let lazily = new.layer == Layer::Family && before.iter().any(taken_over);
                    assert!(new.fence == old.fence || lazily, "SI-19");
                }
                Outcome::SharedNodeFailure(_) => assert!(new.streak <= old.streak + 1, "SI-20"),
                _ => {}
            },
            Op::Activate(_) => {
                assert_eq!(hard(old), hard(new), "SI-33");
                assert!(new.lease.is_none() && new.credits == 0, "SI-33");
            }
            _ => {}
        }
    }
}

/// SI-16: without records, everything only fades.
fn faded(before: &[Seen], after: &[Seen]) {
    assert_eq!(before.len(), after.len());
    for (old, new) in pairs(before, after) {
        for (old, new) in old.counts.iter().zip(new.counts) {
            assert!(new <= *old, "SI-16");
        }
    }
}

fn start(at: T) -> World {
    World::at(at, &[&LEAVES, &[0, 1, 2]])
}

fn is_tcp(op: &Op) -> bool {
    match op {
        Op::Rank(flow, ..) | Op::Serve(flow, ..) => flow.network == Network::Tcp,
        Op::Probe(..) | Op::Press(_) => true,
        _ => false,
    }
}

/// Only what concerns whole flows, so that leaving some out does not rename the others.
fn is_whole(op: &Op) -> bool {
    matches!(
        op,
        Op::Serve(..) | Op::Probe(..) | Op::Press(_) | Op::Pass(_) | Op::Activate(_) | Op::Look(..)
    )
}

proptest! {
    // The same cases each time: what fails, fails for whoever changed it.
    #![proptest_config(ProptestConfig {
        cases: 48,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn invariants_hold_after_any_call(ops in ops()) {
        let mut world = start(T::from_secs(1000));
        for op in &ops {
            step(&mut world, op);
        }
    }

    /// SI-17, and that the same calls give the same answers.
    #[test]
    fn only_differences_of_time_matter(ops in ops(), shift in 0..1_000_000_000_000_u64) {
        let mut early = start(T::from_secs(5));
        let mut late = start(T::from_secs(5).plus_nanos(shift));
        for op in &ops {
            let picks = [&mut early, &mut late].map(|world| perform(world, op));
            prop_assert_eq!(picks[0], picks[1]);
        }
        prop_assert_eq!(early.engine.stats(early.now), late.engine.stats(late.now));
    }

    /// SI-23. Blocks of comparison begin with the first sample there is, so both worlds see one of
    /// a group of its own first.
    #[test]
    fn udp_is_chosen_by_udp_alone(ops in ops()) {
        let mut both = start(T::from_secs(5));
        let mut alone = start(T::from_secs(5));
        let first = Flow { group: 2, network: Network::Udp, ..super::world::WEB };
        for world in [&mut both, &mut alone] {
            world.flow(first, &cands(&[0, 1, 2]), |_| (Outcome::Success, 5));
        }
        for op in ops.iter().filter(|op| is_whole(op)) {
            let pick = perform(&mut both, op);
            if is_tcp(op) {
                // The time it took passes in the other world too.
                alone.now = both.now;
                continue;
            }
            let same = perform(&mut alone, op);
            let answer = |p: Option<Pick>| p.map(|p| (p.node, p.trial, p.reason, p.switched));
            prop_assert_eq!(answer(pick), answer(same));
        }
    }

    /// SI-24: a group of its own, with its own traffic, changes nothing for others.
    #[test]
    fn an_unrelated_group_changes_no_choice(ops in ops()) {
        let mut with = start(T::from_secs(5));
        let mut without = start(T::from_secs(5));
        for world in [&mut with, &mut without] {
            world.flow(super::world::WEB, &cands(&[0, 1, 2]), |_| (Outcome::Success, 5));
        }
        for op in ops.iter().filter(|op| is_whole(op)) {
            let pick = perform(&mut with, op);
            let other = match op {
                Op::Serve(flow, ..) => flow.group == 2,
                Op::Probe(group, ..) => *group == 2,
                _ => false,
            };
            if other {
                without.now = with.now;
                continue;
            }
            let same = perform(&mut without, op);
            let answer = |p: Option<Pick>| p.map(|p| (p.node, p.trial, p.reason, p.switched));
            prop_assert_eq!(answer(pick), answer(same));
        }
    }
}
