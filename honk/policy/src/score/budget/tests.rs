//! The ledger against the numbers of the design.

use super::*;
use crate::score::{
    flight::Evidence,
    ids::{TargetId, key},
    question::Question,
};

fn at(secs: u64) -> T {
    T::from_secs(secs)
}

fn trial(attempt: u64) -> Trial {
    Trial {
        attempt,
        node: key(u128::from(attempt)),
        question: Question::Response,
        target: TargetId(1),
    }
}

/// Without any other limit.
fn reserve(ledger: &mut Ledger, now: u64, attempt: u64) -> Result<Pocket, Denied> {
    ledger.reserve(at(now), trial(attempt), 1e9, Standing::Usable)
}

/// A trial that ended so.
fn tried(ledger: &mut Ledger, now: u64, attempt: u64, settled: Settled) {
    reserve(ledger, now, attempt).expect("affordable");
    ledger.begin(at(now), attempt).expect("reserved");
    ledger.settle(at(now), attempt, settled, 0.0);
}

fn earn(ledger: &mut Ledger, flows: u64) {
    for _ in 0..flows {
        ledger.earn(at(0), 0.0);
    }
}

/// What must hold at any time.
fn check(ledger: &Ledger) {
    let whole = ledger.earned / CREDIT;
    assert!(ledger.spent() + ledger.reserved() <= ledger.allowance + whole);
    let [cold, earned] = ledger.available();
    assert!(cold <= ledger.allowance && earned <= KEPT);
    let totals = ledger.totals();
    assert_eq!(totals.cold + totals.periodic, ledger.spent());
    assert_eq!(totals.trial_starts, ledger.spent());
}

#[test]
fn the_allowance_covers_small_groups_and_grows_with_the_root() {
    let of = [0, 1, 4, 5, 9, 10, 28, 100, 200, 250].map(allowance);
    assert_eq!(of, [0, 1, 4, 4, 4, 5, 7, 11, 16, 17]);
}

#[test]
fn sixteen_flows_earn_a_trial_and_eight_trials_are_kept() {
    let mut ledger = Ledger::new(0);
    earn(&mut ledger, 15);
    assert_eq!(reserve(&mut ledger, 0, 1), Err(Denied::Budget));
    earn(&mut ledger, 1);
    assert_eq!(reserve(&mut ledger, 0, 1), Ok(Pocket::Earned));
    earn(&mut ledger, 1000);
    assert_eq!(ledger.available(), [0, 7], "a reserved credit is unspent");
    ledger.begin(at(0), 1);
    assert_eq!(ledger.available(), [0, 7]);
    earn(&mut ledger, 16);
    assert_eq!(ledger.available(), [0, 8]);
    assert_eq!(ledger.totals().business_starts, 1032);
    check(&ledger);
}

#[test]
fn cold_credit_goes_first_and_refunds_return_where_they_came_from() {
    let mut ledger = Ledger::new(1);
    earn(&mut ledger, 16);
    assert_eq!(reserve(&mut ledger, 0, 1), Ok(Pocket::Cold));
    assert_eq!(reserve(&mut ledger, 0, 2), Ok(Pocket::Earned));
    assert_eq!(reserve(&mut ledger, 0, 3), Err(Denied::Budget));
    ledger.release(2);
    ledger.release(2);
    assert_eq!(ledger.available(), [0, 1]);
    ledger.release(1);
    assert_eq!((ledger.available(), ledger.reserved()), ([1, 1], 0));
    assert_eq!((ledger.totals().refunded, ledger.spent()), (2, 0));
    check(&ledger);
}

#[test]
fn begun_work_is_never_refunded() {
    let mut ledger = Ledger::new(1);
    reserve(&mut ledger, 0, 1).unwrap();
    assert_eq!(ledger.begin(at(1), 1), Some(Pocket::Cold));
    assert_eq!(ledger.begin(at(1), 1), None, "once");
    ledger.release(1);
    ledger.settle(at(2), 1, Settled::Neutral, 5.0);
    assert_eq!((ledger.spent(), ledger.available()), (1, [0, 0]));
    assert_eq!((ledger.totals().cancelled, ledger.in_flight()), (1, 0));
    check(&ledger);
}

#[test]
fn what_waits_for_a_minute_ends() {
    let mut ledger = Ledger::new(2);
    reserve(&mut ledger, 0, 1).unwrap();
    reserve(&mut ledger, 0, 2).unwrap();
    ledger.begin(at(30), 2);
    assert!(ledger.affords(at(59), Standing::Usable).is_none());
    assert!(
        ledger.affords(at(60), Standing::Usable).is_some(),
        "a read counts it"
    );
    assert_eq!(ledger.reserved(), 1, "and changes nothing");
    assert_eq!(ledger.begin(at(60), 1), None);
    assert_eq!((ledger.totals().expired, ledger.totals().refunded), (1, 1));
    ledger.expire(at(90));
    assert_eq!((ledger.totals().expired, ledger.in_flight()), (2, 1));
    ledger.settle(at(500), 2, Settled::Success, 1.0);
    assert_eq!((ledger.totals().success, ledger.in_flight()), (1, 0));
    check(&ledger);
}

/// SI-37.
#[test]
fn busy_groups_whose_trials_pay_off_earn_twice() {
    let mut ledger = Ledger::new(4);
    for attempt in 1..=2 {
        tried(&mut ledger, 0, attempt, Settled::Success);
    }
    assert_eq!(ledger.period_at(at(0), 2.0), 16, "two outcomes");
    tried(&mut ledger, 0, 3, Settled::Success);
    assert_eq!(ledger.period_at(at(0), 2.0), 8);
    assert_eq!(ledger.period_at(at(0), 1.99), 16);
    assert_eq!(ledger.period_at(at(157), 2.0), 8);
    assert_eq!(ledger.period_at(at(158), 2.0), 16, "the weight fell to 2.5");
    ledger.earn(at(0), 2.0);
    assert_eq!((ledger.earned, ledger.period()), (2, 8));
    tried(&mut ledger, 0, 4, Settled::Failure);
    assert_eq!(ledger.period_at(at(0), 2.0), 16, "three of four");
}

#[test]
fn refusals_of_targets_are_no_outcomes() {
    let mut ledger = Ledger::new(4);
    for attempt in 1..=3 {
        tried(&mut ledger, 0, attempt, Settled::Neutral);
    }
    assert_eq!(ledger.yields(at(0)), Yield::Open);
    assert_eq!(ledger.period_at(at(0), 9.0), 16);
}

#[test]
fn wasted_trials_pause_until_they_fade() {
    let mut ledger = Ledger::new(10);
    tried(&mut ledger, 0, 1, Settled::Failure);
    assert_eq!(ledger.yields(at(0)), Yield::Single);
    tried(&mut ledger, 0, 2, Settled::Failure);
    assert_eq!(ledger.yields(at(0)), Yield::Paused);
    assert_eq!(ledger.yields(at(249)), Yield::Paused);
    assert_eq!(ledger.yields(at(250)), Yield::Single);
    assert_eq!(ledger.yields(at(1199)), Yield::Single);
    assert_eq!(ledger.yields(at(1200)), Yield::Open);
    assert_eq!(reserve(&mut ledger, 1, 3), Err(Denied::Budget));
    assert_eq!(ledger.totals().budget_blocked, 1);
    let unproven = ledger.affords(at(1), Standing::Unproven);
    assert!(unproven.is_some(), "the way out stays open");
    ledger.activate();
    assert_eq!(ledger.yields(at(1)), Yield::Open);
}

#[test]
fn after_one_failure_trials_go_one_at_a_time() {
    let mut ledger = Ledger::new(10);
    tried(&mut ledger, 0, 1, Settled::Failure);
    reserve(&mut ledger, 1, 2).unwrap();
    assert_eq!(reserve(&mut ledger, 1, 3), Err(Denied::Budget));
    ledger.begin(at(1), 2);
    ledger.settle(at(2), 2, Settled::Success, 0.0);
    assert_eq!(ledger.yields(at(2)), Yield::Open, "half of two succeed");
    assert!(reserve(&mut ledger, 2, 3).is_ok());
}

#[test]
fn a_member_answers_one_question_of_a_target_at_a_time() {
    let mut ledger = Ledger::new(4);
    let of = |attempt, question, target| Trial {
        attempt,
        node: key(1),
        question,
        target: TargetId(target),
    };
    let mut ask = |trial| ledger.reserve(at(0), trial, 1e9, Standing::Usable).is_ok();
    assert!(ask(of(1, Question::Response, 1)));
    assert!(!ask(of(2, Question::Response, 1)));
    assert!(ask(of(3, Question::Response, 2)), "another target");
    assert!(ask(of(4, Question::Qualification, 1)), "another question");
    assert!(
        !ask(of(5, Question::Qualification, 2)),
        "one record for all targets"
    );
    ledger.answer(1, Evidence::Received);
    ledger.answer(1, Evidence::Responded);
    let again = of(6, Question::Response, 1);
    assert!(ledger.reserve(at(0), again, 1e9, Standing::Usable).is_ok());
    ledger.answer(6, Evidence::Responded);
    let fifth = of(7, Question::Response, 1);
    let denied = ledger.reserve(at(0), fifth, 1e9, Standing::Usable);
    assert_eq!(denied, Err(Denied::InFlight), "four unfinished");
    assert_eq!(ledger.totals().in_flight_blocked, 3);
    assert_eq!(ledger.flights().of(at(0), key(1)).count(), 4);
}

#[test]
fn flights_are_bounded_whatever_members_come() {
    let mut ledger = Ledger::new(250);
    ledger.allowance = 1000;
    let granted = (1..=1000)
        .filter(|&n| reserve(&mut ledger, 0, n).is_ok())
        .count();
    assert_eq!(granted, 100);
    check(&ledger);
}

#[test]
fn a_reload_refunds_what_waits_and_keeps_the_currency() {
    let mut ledger = Ledger::new(4);
    earn(&mut ledger, 32);
    reserve(&mut ledger, 0, 1).unwrap();
    reserve(&mut ledger, 0, 2).unwrap();
    ledger.begin(at(0), 2);
    ledger.activate();
    assert_eq!((ledger.reserved(), ledger.spent()), (0, 1));
    assert_eq!(ledger.available(), [3, 2]);
    assert_eq!(ledger.begin(at(1), 1), None);
    ledger.settle(at(1), 2, Settled::Success, 0.0);
    assert_eq!(ledger.totals().success, 1);
    check(&ledger);
}

#[test]
fn setups_are_counted_by_powers_of_two() {
    let mut ledger = Ledger::new(1);
    for millis in [0.0, 1.9, 2.0, 127.0, 128.0, 1e9, f64::NAN, -1.0] {
        ledger.set_up(millis);
    }
    assert_eq!(ledger.totals().setup_histogram, [4, 1, 0, 0, 0, 0, 1, 2]);
    assert_eq!(
        ledger.totals().setup_millis,
        1 + 2 + 127 + 128 + 1_000_000_000
    );
}

#[test]
fn a_counter_at_its_end_stops_trials() {
    let mut ledger = Ledger::new(4);
    ledger.totals.business_starts = u64::MAX;
    ledger.earn(at(0), 0.0);
    assert_eq!(reserve(&mut ledger, 0, 1), Err(Denied::Budget));
}

#[test]
fn demand_is_a_rate_of_the_last_minutes() {
    let mut demand = Demand::default();
    for n in 0..3000 {
        demand.count(T::from_nanos(n * 500_000_000));
    }
    assert!((demand.rate(at(1500)) - 2.0).abs() < 0.1);
    assert!((demand.rate(at(1800)) - 1.0).abs() < 0.05);
}
