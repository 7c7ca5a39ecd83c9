//! What a scenario is made of: nodes, how they behave over time, and how flows arrive.

use super::chance::Chance;

/// Targets a world has unless it says otherwise.
pub const TARGETS: usize = 20;
/// Exponent of their popularity.
const ZIPF: f64 = 1.1;
/// Spread of latencies.
const SIGMA: f64 = 0.15;

/// How often a node fails a flow, before its setup and after.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Nothing answers: known after three seconds, and another node may be tried.
    pub before: f64,
    /// Breaks half a second after its setup, without a response.
    pub after: f64,
}

impl Loss {
    /// Only failures before the setup.
    pub fn before(share: f64) -> Self {
        Self {
            before: share,
            after: 0.0,
        }
    }

    /// Only failures after it.
    pub fn after(share: f64) -> Self {
        Self {
            before: 0.0,
            after: share,
        }
    }
}

/// One flow as it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Its number.
    pub number: u64,
    /// Seconds since the start.
    pub at: f64,
    /// Where it goes.
    pub target: usize,
    /// Whether that is an IPv6 target.
    pub v6: bool,
}

/// Latency in milliseconds of a node at a moment.
type Base = Box<dyn Fn(usize, f64) -> f64 + Send + Sync>;
/// Losses of a node for a flow.
type Losses = Box<dyn Fn(usize, &Flow) -> Loss + Send + Sync>;
/// Whether something is so at a moment.
type When = Box<dyn Fn(usize, f64) -> bool + Send + Sync>;

/// A scenario.
pub struct World {
    pub(super) nodes: usize,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    pub(super) v6: bool,
    pub(super) base: Base,
    pub(super) losses: Losses,
    pub(super) probe_answers: When,
    pub(super) quiet: When,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("nodes", &self.nodes)
            .field("seconds", &self.seconds)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Nodes of these latencies without any loss.
    pub fn new(seconds: f64, per_second: f64, bases: &[f64]) -> Self {
        let bases = bases.to_vec();
        Self {
            nodes: bases.len(),
            seconds,
            per_second,
            v6: false,
            base: Box::new(move |node, _| bases[node]),
            losses: Box::new(|_, _| Loss::default()),
            probe_answers: Box::new(|_, _| true),
            quiet: Box::new(|_, _| false),
        }
    }

    /// With losses.
    #[must_use]
    pub fn loses(mut self, losses: impl Fn(usize, &Flow) -> Loss + Send + Sync + 'static) -> Self {
        self.losses = Box::new(losses);
        self
    }

    /// With latencies that change.
    #[must_use]
    pub fn takes(mut self, base: impl Fn(usize, f64) -> f64 + Send + Sync + 'static) -> Self {
        self.base = Box::new(base);
        self
    }

    /// With nodes that do not always answer probes.
    #[must_use]
    pub fn answers(mut self, when: impl Fn(usize, f64) -> bool + Send + Sync + 'static) -> Self {
        self.probe_answers = Box::new(when);
        self
    }

    /// Without flows while it says so.
    #[must_use]
    pub fn quiet(mut self, when: impl Fn(f64) -> bool + Send + Sync + 'static) -> Self {
        self.quiet = Box::new(move |_, at| when(at));
        self
    }

    /// Every second target is an IPv6 one.
    #[must_use]
    pub fn with_v6(mut self) -> Self {
        self.v6 = true;
        self
    }

    /// All flows, the same for every policy.
    pub(super) fn flows(&self, seed: u64) -> Vec<Flow> {
        let mut chance = Chance::of(&[seed, 1]);
        let weights: Vec<f64> = (1..=TARGETS).map(|n| (n as f64).powf(-ZIPF)).collect();
        let total: f64 = weights.iter().sum();
        let mut flows = Vec::new();
        let mut at = 0.0;
        loop {
            at += chance.wait(1.0 / self.per_second);
            if at >= self.seconds {
                return flows;
            }
            let mut left = chance.unit() * total;
            let target = weights.iter().position(|w| {
                left -= w;
                left < 0.0
            });
            if (self.quiet)(0, at) {
                continue;
            }
            let target = target.unwrap_or(TARGETS - 1);
            flows.push(Flow {
                number: flows.len() as u64,
                at,
                target,
                v6: self.v6 && target % 2 == 1,
            });
        }
    }

    /// What a flow meets at a node: the same whoever sends it there.
    pub(super) fn meets(&self, seed: u64, flow: &Flow, node: usize, at: f64) -> Meeting {
        let mut chance = Chance::of(&[seed, 2, flow.number, node as u64]);
        let response = (self.base)(node, at) * chance.spread(SIGMA);
        let life = chance.wait(2.0);
        let loss = (self.losses)(node, &Flow { at, ..*flow });
        let luck = chance.unit();
        Meeting {
            response,
            life,
            fails: if luck < loss.before {
                Some(Fails::Before)
            } else if luck < loss.before + loss.after {
                Some(Fails::After)
            } else {
                None
            },
        }
    }

    /// What a probe measures.
    pub(super) fn probe(&self, seed: u64, node: usize, at: f64, number: u64) -> Option<f64> {
        let mut chance = Chance::of(&[seed, 3, node as u64, number]);
        let millis = (self.base)(node, at) * chance.spread(SIGMA);
        (self.probe_answers)(node, at).then_some(millis)
    }

    /// What a flow can expect of a node: the reward of the best policy there is.
    pub(super) fn worth(&self, flow: &Flow, node: usize) -> f64 {
        let loss = (self.losses)(node, flow);
        let serves = (1.0 - loss.before - loss.after).max(0.0);
        serves * super::policy::reward((self.base)(node, flow.at))
    }
}

/// When a flow breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fails {
    Before,
    After,
}

/// A flow at a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    /// Milliseconds.
    pub(super) response: f64,
    /// Seconds after the response.
    pub(super) life: f64,
    pub(super) fails: Option<Fails>,
}
