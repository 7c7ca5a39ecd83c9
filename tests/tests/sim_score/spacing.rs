//! A node that fails is asked again when its pause is over, or when a flow that survived has shown
//! that it carries data. The pauses are worked out here once more, from what the policy was told.

use std::collections::{BTreeMap, BTreeSet};

use honk_tests::sim::score::engine::Score;
use honk_tests::sim::score::policy::{Choice, Policy, Seen};
use honk_tests::sim::score::world::Flow;
use honk_tests::sim::score::{World, play_with, scenario};

use crate::SEEDS;

/// Score, watched at node 0.
struct Spaced {
    score: Score,
    /// When flows to the node began.
    begun: BTreeMap<u64, f64>,
    failed_at: Option<f64>,
    /// Outages in a row.
    step: i32,
    not_before: Option<f64>,
    /// Flows that received data since it failed.
    heard: BTreeSet<u64>,
    /// Flows to it while it had not recovered.
    asked: Vec<f64>,
}

impl Spaced {
    fn failed(&mut self, at: f64, flow: &Flow) {
        let begun = self.begun.get(&flow.number).copied().unwrap_or(at);
        if self.step == 0 || self.failed_at.is_none_or(|before| begun >= before) {
            self.step += 1;
            let pause = 300.0 * 2.0_f64.powi(self.step - 1);
            self.not_before = Some(at + pause.min(21_600.0));
        }
        self.failed_at = Some(at);
        self.heard.clear();
    }

    fn received(&mut self, at: f64, flow: &Flow) {
        if self.failed_at.is_some_and(|before| at > before) {
            self.not_before = None;
            self.heard.insert(flow.number);
            if self.heard.len() >= 4 {
                (self.step, self.failed_at) = (0, None);
            }
        }
    }
}

impl Policy for Spaced {
    fn pick(&mut self, flow: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice> {
        let choice = self.score.pick(flow, view, failed)?;
        if choice.node == 0 {
            self.begun.insert(flow.number, flow.at);
            if choice.trial && self.failed_at.is_some() {
                let early = self.not_before.is_some_and(|until| flow.at < until);
                assert!(
                    !early,
                    "asked at {}, not before {:?}",
                    flow.at, self.not_before
                );
                self.asked.push(flow.at);
            }
        }
        Some(choice)
    }

    fn see(&mut self, at: f64, flow: &Flow, node: usize, seen: Seen) {
        self.score.see(at, flow, node, seen);
        match seen {
            Seen::FailedBefore if node == 0 => self.failed(at, flow),
            Seen::Response(_) | Seen::Data if node == 0 => self.received(at, flow),
            _ => {}
        }
    }

    fn probed(&mut self, at: f64, node: usize, millis: Option<f64>) {
        self.score.probed(at, node, millis);
    }
}

/// When the failing node was asked, in every run.
fn asked(world: &World, nodes: usize) -> Vec<Vec<f64>> {
    let run = |seed| {
        let mut spaced = Spaced {
            score: Score::new(nodes),
            begun: BTreeMap::new(),
            failed_at: None,
            step: 0,
            not_before: None,
            heard: BTreeSet::new(),
            asked: Vec::new(),
        };
        play_with(world, seed, &mut spaced);
        spaced.asked
    };
    (1..=SEEDS).map(run).collect()
}

#[test]
fn sim_02_a_flapping_node_is_asked_when_its_pause_is_over_or_it_carried_data() {
    for asked in asked(&scenario::flapping(), 3) {
        assert!(!asked.is_empty());
    }
}

#[test]
fn sim_13_a_dead_node_is_asked_after_pauses_that_double() {
    for asked in asked(&scenario::dial_dead(), 4) {
        // Nothing comes back any more, so each further pause is twice the one before.
        let late: Vec<f64> = asked.into_iter().filter(|at| *at > 630.0).collect();
        assert!(late.len() >= 2, "{late:?}");
        for (pause, pair) in [600.0, 1200.0, 2400.0].into_iter().zip(late.windows(2)) {
            assert!(pair[1] - pair[0] >= pause, "{late:?}");
        }
    }
}
