//! Plays a world for one policy: arrivals, attempts, probes, health.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{
    outcome::{Outcome, Served},
    policy::{Policy, Seen},
    world::{Fails, Flow, Meeting, World},
};

/// Seconds between two probes of a node.
const PROBE: f64 = 30.0;
/// Seconds after which a dial without an answer has failed.
const DIAL: f64 = 3.0;
/// Seconds after the setup at which a broken flow breaks.
const BREAK: f64 = 0.5;
/// Failed probes that make a node dead.
const DEAD: u32 = 3;
/// Good probes that make it alive.
const ALIVE: u32 = 2;

/// What comes next, in nanoseconds and by number.
type Queue = BinaryHeap<Reverse<(u64, u64, Next)>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Arrive(usize),
    /// What happens to an attempt: its flow, its node, what, and how long it lasts.
    Attempt(usize, usize, Step),
    Probe(usize, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Setup,
    Response,
    Data,
    End,
    FailedBefore,
    FailedAfter,
}

/// Health of a node, from probes alone.
#[derive(Clone, Copy, Debug)]
struct Health {
    alive: bool,
    run: u32,
}

pub(super) struct Player<'a> {
    world: &'a World,
    seed: u64,
    policy: &'a mut dyn Policy,
    queue: Queue,
    number: u64,
    flows: Vec<Flow>,
    served: Vec<Served>,
    health: Vec<Health>,
}

impl<'a> Player<'a> {
    pub(super) fn new(world: &'a World, seed: u64, policy: &'a mut dyn Policy) -> Self {
        let flows = world.flows(seed);
        Self {
            world,
            seed,
            policy,
            queue: BinaryHeap::new(),
            number: 0,
            served: flows.iter().map(Served::new).collect(),
            flows,
            health: vec![
                Health {
                    alive: true,
                    run: 0
                };
                world.nodes
            ],
        }
    }

    pub(super) fn play(mut self) -> Outcome {
        if let Some(first) = self.flows.first() {
            self.later(first.at, Next::Arrive(0));
        }
        for node in 0..self.world.nodes {
            let first = PROBE * node as f64 / self.world.nodes as f64;
            self.later(first, Next::Probe(node, 0));
        }
        while let Some(Reverse((nanos, _, next))) = self.queue.pop() {
            let at = nanos as f64 / 1e9;
            match next {
                Next::Arrive(flow) => self.arrive(at, flow),
                Next::Attempt(flow, node, step) => self.step(at, flow, node, step),
                Next::Probe(node, number) => self.probe(at, node, number),
            }
        }
        Outcome {
            served: self.served,
            seconds: self.world.seconds,
        }
    }

    fn later(&mut self, at: f64, next: Next) {
        self.number += 1;
        let nanos = (at * 1e9) as u64;
        self.queue.push(Reverse((nanos, self.number, next)));
    }

    fn view(&self) -> Vec<usize> {
        let alive = |n: &usize| self.health[*n].alive;
        (0..self.health.len()).filter(alive).collect()
    }

    fn arrive(&mut self, at: f64, flow: usize) {
        if let Some(next) = self.flows.get(flow + 1) {
            self.later(next.at, Next::Arrive(flow + 1));
        }
        let view = self.view();
        let Some(choice) = self.policy.pick(&self.flows[flow], &view, None) else {
            return;
        };
        assert!(view.contains(&choice.node), "a leaf that was not offered");
        self.served[flow].first = Some(choice);
        self.attempt(at, flow, choice.node);
    }

    fn attempt(&mut self, at: f64, flow: usize, node: usize) {
        let meeting = self.world.meets(self.seed, &self.flows[flow], node, at);
        let Meeting {
            response, fails, ..
        } = meeting;
        self.served[flow].response = response;
        let setup = at + response / 2000.0;
        let (then, step) = match fails {
            Some(Fails::Before) => (at + DIAL, Step::FailedBefore),
            Some(Fails::After) | None => (setup, Step::Setup),
        };
        self.later(then, Next::Attempt(flow, node, step));
        match fails {
            Some(Fails::Before) => {}
            Some(Fails::After) => {
                self.later(setup + BREAK, Next::Attempt(flow, node, Step::FailedAfter));
            }
            None => {
                let answered = at + response / 1000.0;
                let end = answered + meeting.life;
                self.later(answered, Next::Attempt(flow, node, Step::Response));
                for second in 1..=meeting.life as u64 {
                    let data = answered + second as f64;
                    self.later(data, Next::Attempt(flow, node, Step::Data));
                }
                self.later(end, Next::Attempt(flow, node, Step::End));
            }
        }
    }

    fn step(&mut self, at: f64, flow: usize, node: usize, step: Step) {
        let seen = match step {
            Step::Setup => Seen::Setup,
            Step::Response => Seen::Response(self.served[flow].response),
            Step::Data => Seen::Data,
            Step::End => Seen::End,
            Step::FailedBefore => Seen::FailedBefore,
            Step::FailedAfter => Seen::FailedAfter,
        };
        let first = self.served[flow].last.is_none();
        self.policy.see(at, &self.flows[flow], node, seen);
        match step {
            Step::Setup | Step::Data | Step::End => {}
            Step::Response => {
                let waited = (at - self.served[flow].at) * 1000.0;
                self.served[flow].millis = Some(waited);
                self.served[flow].last = Some(node);
            }
            Step::FailedBefore | Step::FailedAfter => {
                self.served[flow].last = Some(node);
                self.served[flow].failed_first |= first;
                if step == Step::FailedBefore && first && self.policy.retries() {
                    self.again(at, flow, node);
                }
            }
        }
    }

    fn again(&mut self, at: f64, flow: usize, failed: usize) {
        let view = self.view();
        let again = Flow {
            at,
            ..self.flows[flow]
        };
        if let Some(choice) = self.policy.pick(&again, &view, Some(failed)) {
            assert_ne!(choice.node, failed, "the same leaf again");
            self.attempt(at, flow, choice.node);
        }
    }

    fn probe(&mut self, at: f64, node: usize, number: u64) {
        if at + PROBE < self.world.seconds {
            self.later(at + PROBE, Next::Probe(node, number + 1));
        }
        let millis = self.world.probe(self.seed, node, at, number);
        let health = &mut self.health[node];
        health.run = if millis.is_some() == health.alive {
            0
        } else {
            health.run + 1
        };
        let needed = if health.alive { DEAD } else { ALIVE };
        if health.run >= needed {
            *health = Health {
                alive: !health.alive,
                run: 0,
            };
        }
        self.policy.probed(at, node, millis);
    }
}
