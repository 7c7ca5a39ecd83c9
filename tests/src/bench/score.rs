//! Score in numbers: ranking in groups of different size, reporting an attempt, and many threads
//! behind the one lock that the daemon puts around the engine.

use std::hint::black_box;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use honk_policy::score::{AttemptId, Engine, Mode, Obs, Outcome, Pick, Source, Trials};
use warm::{GROUP, Warm, events, flow};

#[path = "../../../honk/policy/tests/alloc/warm.rs"]
mod warm;

type Figure = (&'static str, f64, &'static str, f64);

/// Seven minutes at twenty flows a second.
const FLOWS: usize = 8400;
const BATCH: usize = 64;
const BATCHES: usize = 401;
const THREADS: usize = 8;

/// Name, value, unit and target of each figure; smaller is better.
pub(super) fn figures() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, leaves, target) in [
        ("policy.score_rank_10", 10, 800.0),
        ("policy.score_rank_100", 100, 2500.0),
        ("policy.score_rank_1000", 1000, 6000.0),
    ] {
        let mut warm = Warm::new(leaves, FLOWS);
        figures.push((name, rank(&mut warm, Trials::Forbidden), "ns", target));
        if leaves == 100 {
            let with_trials = rank(&mut warm, Trials::Allowed);
            figures.push(("policy.score_trial_100", with_trials, "ns", 3250.0));
            figures.push(("policy.score_peek_100", peek(&warm), "ns", 2500.0));
            let [observe, finish] = report(&mut warm);
            figures.push(("policy.score_observe", observe, "ns", 600.0));
            figures.push(("policy.score_finish", finish, "ns", 600.0));
        }
    }
    let [flow, hold] = contended();
    figures.push(("policy.score_flow_8_threads", flow, "us", 20.0));
    figures.push(("policy.score_hold_p99", hold, "us", 20.0));
    figures
}

/// Median of batches, nanoseconds for one ranking.
fn rank(warm: &mut Warm, trials: Trials) -> f64 {
    let batch = |_| {
        let start = Instant::now();
        let picks: [Option<Pick>; BATCH] = std::array::from_fn(|_| black_box(warm.ask(trials)));
        let took = start.elapsed();
        for attempt in picks.iter().flatten().filter_map(|pick| pick.attempt) {
            warm.engine.release(warm.now, attempt);
        }
        took
    };
    median((0..BATCHES).map(batch).collect())
}

fn peek(warm: &Warm) -> f64 {
    let batch = |_| {
        let start = Instant::now();
        for number in 0..BATCH {
            let ctx = flow(number);
            black_box(warm.engine.peek(warm.now, GROUP, &ctx, &warm.view));
        }
        start.elapsed()
    };
    median((0..BATCHES).map(batch).collect())
}

/// Nanoseconds for received data that is published, and for an end.
fn report(warm: &mut Warm) -> [f64; 2] {
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..BATCHES {
        let attempts = (0..BATCH).filter_map(|_| warm.ask(Trials::Forbidden)?.attempt);
        let attempts: Vec<AttemptId> = attempts.collect();
        // A microsecond from call to call, so that decay is worked out every time.
        let mut now = warm.now;
        let mut next = || {
            now = now.plus_nanos(1000);
            now
        };
        let engine = &mut warm.engine;
        let mut reporters = Vec::new();
        for attempt in attempts {
            let at = next();
            if let Ok(work) = engine.begin(at, &attempt) {
                let reporter = engine.start(at, work, Source::Traffic);
                engine.observe(at, reporter, Obs::Setup);
                engine.observe(at, reporter, Obs::Tx { bytes: 9, at });
                reporters.push(reporter);
            }
        }
        assert_eq!(reporters.len(), BATCH, "nothing is refused");
        let start = Instant::now();
        for reporter in &reporters {
            let at = next();
            engine.observe(at, *reporter, Obs::Rx { bytes: 900, at });
        }
        took[0].push(start.elapsed());
        let start = Instant::now();
        for reporter in &reporters {
            engine.finish(next(), *reporter, Outcome::Success);
        }
        took[1].push(start.elapsed());
        warm.now = warm.now.plus_nanos(50_000_000);
    }
    took.map(median)
}

/// Eight threads run flows against one engine as fast as they can. Microseconds of wall time for
/// one flow of all, and how long the slowest of a hundred holds of the lock lasts.
fn contended() -> [f64; 2] {
    const EACH: usize = 4000;
    let warm = Warm::new(100, FLOWS);
    let (now, view) = (warm.now, warm.view);
    let engine = Mutex::new(warm.engine);
    let gate = Barrier::new(THREADS);
    let holds = Mutex::new(Vec::new());
    let held = |work: &mut dyn FnMut(&mut Engine), mine: &mut Vec<Duration>| {
        let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        work(&mut engine);
        mine.push(start.elapsed());
    };
    let one_thread = |number: usize| {
        let mut mine = Vec::with_capacity(EACH * 8);
        gate.wait();
        let start = Instant::now();
        for count in 0..EACH {
            let ctx = flow(count + number);
            let mut attempt = None;
            let mode = Mode::Apply(Trials::Allowed);
            held(
                &mut |engine| attempt = engine.rank(now, GROUP, &ctx, &view, mode),
                &mut mine,
            );
            let Some(attempt) = attempt.and_then(|pick| pick.attempt) else {
                continue;
            };
            let mut reporter = None;
            held(
                &mut |engine| {
                    let work = engine.begin(now, &attempt).ok();
                    reporter = work.map(|work| engine.start(now, work, Source::Traffic));
                },
                &mut mine,
            );
            let Some(reporter) = reporter else {
                continue;
            };
            for event in events(now) {
                held(
                    &mut |engine| engine.observe(now, reporter, event),
                    &mut mine,
                );
            }
            held(
                &mut |engine| engine.finish(now, reporter, Outcome::Success),
                &mut mine,
            );
        }
        let took = start.elapsed();
        let mut all = holds.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(mine);
        took
    };
    let slowest = std::thread::scope(|scope| {
        let one_thread = &one_thread;
        let threads = (0..THREADS).map(|number| scope.spawn(move || one_thread(number)));
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().filter_map(|thread| thread.join().ok());
        joined.max().unwrap_or_default()
    });
    let mut holds = holds.into_inner().unwrap_or_else(PoisonError::into_inner);
    holds.sort_unstable();
    let p99 = holds
        .get(holds.len() * 99 / 100)
        .copied()
        .unwrap_or_default();
    let flows = (EACH * THREADS) as f64;
    [slowest.as_secs_f64() * 1e6 / flows, p99.as_secs_f64() * 1e6]
}

/// Nanoseconds for one of a batch, in the median batch.
fn median(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e9 / BATCH as f64
}
