//! The tables of `docs/SCORE.md`: every scenario for every policy, and what Score did in it.

use std::fmt::Write as _;

use super::{
    Figures, Outcome, Who, World, figures, play, play_score,
    scenario::{self, Scenario},
    world::{Flow, TARGETS},
};

/// Plays everything with so many seeds each and writes a Markdown table: flows whose first
/// attempt failed and flows that failed, per thousand, then median and mean in milliseconds.
pub fn table(seeds: u64) -> String {
    let mut text = String::from("| | scenario |");
    for who in Who::ALL {
        let _ = write!(text, " {} |", who.name());
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(Who::ALL.len()));
    text.push('\n');
    for scenario in scenario::ALL {
        let _ = write!(text, "| {} | {} |", scenario.number, scenario.title);
        let world = (scenario.world)();
        for who in Who::ALL {
            let _ = write!(text, " {} |", cell(&figures(&world, 1..=seeds, who)));
        }
        text.push('\n');
    }
    text
}

fn cell(figures: &Figures) -> String {
    let Figures {
        first_failed,
        failed,
        p50,
        mean,
        ..
    } = figures;
    let (first, failed) = (first_failed * 1e3, failed * 1e3);
    format!("{first:.1} {failed:.1} {p50:.0} {mean:.0}")
}

/// Every run of these scenarios, with so many seeds each, as comma-separated values under a line
/// of names. Shares are of all flows.
pub fn csv(scenarios: &[Scenario], seeds: u64) -> String {
    let mut text = String::from(
        "scenario,policy,seed,flows,first_failed,failed,p50_ms,p95_ms,mean_ms,trials\n",
    );
    for scenario in scenarios {
        let world = (scenario.world)();
        for (who, seed) in Who::ALL
            .into_iter()
            .flat_map(|who| (1..=seeds).map(move |s| (who, s)))
        {
            let outcome = play(&world, seed, who);
            let Figures {
                first_failed,
                failed,
                p50,
                p95,
                mean,
                trials,
            } = outcome.figures();
            let (number, name) = (scenario.number, who.name());
            let flows = outcome.chosen().count();
            let _ = writeln!(
                text,
                "{number},{name},{seed},{flows},{first_failed},{failed},{p50},{p95},{mean},{trials}"
            );
        }
    }
    text
}

/// What Score spent in each scenario, as Markdown: trials per hundred flows, the 95th percentile
/// in milliseconds, moves and moves back per target and hour, and how far the first choice lay
/// below the best there was, in thousandths of a reward, next to two others.
pub fn costs(seeds: u64) -> String {
    let mut text = String::from(
        "| | trials | p95 | moves | back | regret | urltest's | random's |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for scenario in scenario::ALL {
        let world = (scenario.world)();
        let mut sums = [0.0; 5];
        for seed in 1..=seeds {
            let (outcome, score) = play_score(&world, seed);
            let figures = outcome.figures();
            let reasons = score.stats(outcome.seconds).tcp.reasons;
            let scope_hours = TARGETS as f64 * outcome.seconds / 3600.0;
            let values = [
                figures.trials * 100.0,
                figures.p95,
                reasons.ordinary_switch as f64 / scope_hours,
                reasons.switch_flap as f64 / scope_hours,
                regret(&world, &outcome),
            ];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value / seeds as f64;
            }
        }
        let other = |who| {
            let all = (1..=seeds).map(|seed| regret(&world, &play(&world, seed, who)));
            all.sum::<f64>() / seeds as f64
        };
        let [trials, p95, moves, back, score] = sums;
        let (urltest, random) = (other(Who::UrlTest), other(Who::Random));
        let _ = writeln!(
            text,
            "| {} | {trials:.1} | {p95:.0} | {moves:.1} | {back:.1} | {score:.0} | \
             {urltest:.0} | {random:.0} |",
            scenario.number
        );
    }
    text
}

/// Thousandths of a reward that first choices lacked to the best.
fn regret(world: &World, outcome: &Outcome) -> f64 {
    let (mut lost, mut count) = (0.0, 0_u32);
    for served in outcome.chosen() {
        let Some(choice) = served.first else { continue };
        let flow = Flow {
            number: 0,
            at: served.at,
            target: served.target,
            v6: served.v6,
        };
        let worth = |node| world.worth(&flow, node);
        let best = (0..world.nodes).map(worth).fold(0.0, f64::max);
        lost += best - worth(choice.node);
        count += 1;
    }
    lost * 1000.0 / f64::from(count.max(1))
}
