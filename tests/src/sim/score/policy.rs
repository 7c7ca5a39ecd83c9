//! What a policy is to the simulator, and the baselines.

use super::{chance::Chance, world::Flow};

/// Where a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The node.
    pub node: usize,
    /// Whether it is a trial of another node than the selection.
    pub trial: bool,
}

/// What became known of a flow at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen {
    /// The node acknowledged.
    Setup,
    /// The target answered, so many milliseconds after the attempt began.
    Response(f64),
    /// More data came.
    Data,
    /// The flow ended well.
    End,
    /// Nothing was set up.
    FailedBefore,
    /// It broke after its setup.
    FailedAfter,
}

/// Chooses nodes for flows.
pub trait Policy {
    /// The node for a flow among those that health allows. `failed`: the one that was tried
    /// already.
    fn pick(&mut self, flow: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice>;
    /// Something became known.
    fn see(&mut self, _at: f64, _flow: &Flow, _node: usize, _seen: Seen) {}
    /// A probe ended; nothing for one that failed.
    fn probed(&mut self, _at: f64, _node: usize, _millis: Option<f64>) {}
    /// Whether a flow that was not set up may go to another node.
    fn retries(&self) -> bool {
        true
    }
    /// For what only one policy has.
    fn score(&self) -> Option<&super::engine::Score> {
        None
    }
}

/// What a served flow is worth to a policy that learns.
pub(super) fn reward(millis: f64) -> f64 {
    1.0 - 0.25 * millis.min(2000.0) / 1000.0
}

fn plain(node: Option<usize>) -> Option<Choice> {
    node.map(|node| Choice { node, trial: false })
}

fn others(view: &[usize], failed: Option<usize>) -> Vec<usize> {
    let left = view.iter().copied().filter(|n| Some(*n) != failed);
    left.collect()
}

/// Knows the world: the most that any policy could do.
#[derive(Debug)]
pub struct Oracle<'a>(pub &'a super::world::World);

impl Policy for Oracle<'_> {
    fn pick(&mut self, flow: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice> {
        let worth = |n: &usize| self.0.worth(flow, *n);
        let view = others(view, failed);
        plain(
            view.into_iter()
                .max_by(|a, b| worth(a).total_cmp(&worth(b))),
        )
    }
}

/// The lowest halving average of probes, kept within a tolerance; failing members last.
#[derive(Debug)]
pub struct UrlTest {
    average: Vec<Option<f64>>,
    run: Vec<u32>,
    struck: Vec<Option<f64>>,
    selected: Option<usize>,
}

/// Milliseconds by which another node must be faster.
const TOLERANCE: f64 = 50.0;
/// Seconds until a strike is forgotten.
const FORGET: f64 = 600.0;

impl UrlTest {
    /// Of so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            average: vec![None; nodes],
            run: vec![0; nodes],
            struck: vec![None; nodes],
            selected: None,
        }
    }

    fn rank(&self, node: usize, at: f64) -> (bool, f64) {
        let struck = self.struck[node].is_some_and(|since| at - since < FORGET);
        (struck, self.average[node].unwrap_or(f64::INFINITY))
    }
}

impl Policy for UrlTest {
    fn pick(&mut self, flow: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice> {
        let view = others(view, failed);
        let rank = |n: &usize| self.rank(*n, flow.at);
        let order = |a: &usize, b: &usize| {
            let ((s, x), (t, y)) = (rank(a), rank(b));
            s.cmp(&t).then(x.total_cmp(&y))
        };
        let best = view.iter().copied().min_by(order)?;
        let kept = self.selected.filter(|s| view.contains(s)).filter(|s| {
            let ((struck, mine), (other, theirs)) = (rank(s), rank(&best));
            struck == other && mine <= theirs + TOLERANCE
        });
        let node = kept.unwrap_or(best);
        if failed.is_none() {
            self.selected = Some(node);
        }
        plain(Some(node))
    }

    fn see(&mut self, at: f64, _flow: &Flow, node: usize, seen: Seen) {
        match seen {
            Seen::FailedBefore | Seen::FailedAfter => {
                self.run[node] += 1;
                if self.run[node] >= 2 {
                    self.run[node] = 0;
                    self.struck[node] = Some(at);
                }
            }
            Seen::Response(_) => self.run[node] = 0,
            Seen::Setup | Seen::Data | Seen::End => {}
        }
    }

    fn probed(&mut self, _at: f64, node: usize, millis: Option<f64>) {
        if let Some(new) = millis {
            let old = self.average[node];
            self.average[node] = Some(old.map_or(new, |old| f64::midpoint(old, new)));
        }
    }
}

/// The first that is alive, kept while it stays alive; flows are not tried twice.
#[derive(Debug, Default)]
pub struct Fallback(Option<usize>);

impl Policy for Fallback {
    fn pick(&mut self, _: &Flow, view: &[usize], _: Option<usize>) -> Option<Choice> {
        self.0 = self
            .0
            .filter(|n| view.contains(n))
            .or_else(|| view.first().copied());
        plain(self.0)
    }

    fn retries(&self) -> bool {
        false
    }
}

/// Any that is alive.
#[derive(Debug)]
pub struct Random(pub Chance);

impl Policy for Random {
    fn pick(&mut self, _: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice> {
        let view = others(view, failed);
        (!view.is_empty()).then(|| Choice {
            node: view[self.0.below(view.len())],
            trial: false,
        })
    }
}

/// Rewards of nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    sum: f64,
    count: f64,
}

fn learn(arms: &mut [Arm], node: usize, seen: Seen) {
    let gained = match seen {
        Seen::Response(millis) => reward(millis),
        Seen::FailedBefore | Seen::FailedAfter => 0.0,
        Seen::Setup | Seen::Data | Seen::End => return,
    };
    arms[node].sum += gained;
    arms[node].count += 1.0;
}

/// The highest upper confidence bound.
#[derive(Debug)]
pub struct Ucb1(Vec<Arm>);

impl Ucb1 {
    /// Of so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self(vec![Arm::default(); nodes])
    }
}

impl Policy for Ucb1 {
    fn pick(&mut self, _: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice> {
        let all: f64 = self.0.iter().map(|arm| arm.count).sum();
        let index = |n: &usize| match self.0[*n] {
            Arm { count: 0.0, .. } => f64::INFINITY,
            arm => arm.sum / arm.count + (2.0 * all.ln() / arm.count).sqrt(),
        };
        let view = others(view, failed);
        plain(
            view.into_iter()
                .rev()
                .max_by(|a, b| index(a).total_cmp(&index(b))),
        )
    }

    fn see(&mut self, _: f64, _: &Flow, node: usize, seen: Seen) {
        learn(&mut self.0, node, seen);
    }
}

/// The best of one draw from each node's posterior.
#[derive(Debug)]
pub struct Thompson(Vec<Arm>, Chance);

impl Thompson {
    /// Of so many nodes.
    pub fn new(nodes: usize, chance: Chance) -> Self {
        Self(vec![Arm::default(); nodes], chance)
    }
}

impl Policy for Thompson {
    fn pick(&mut self, _: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice> {
        let draws: Vec<(f64, usize)> = others(view, failed)
            .into_iter()
            .map(|n| {
                let arm = self.0[n];
                (self.1.beta(1.0 + arm.sum, 1.0 + arm.count - arm.sum), n)
            })
            .collect();
        let best = draws.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        plain(best.map(|(_, n)| n))
    }

    fn see(&mut self, _: f64, _: &Flow, node: usize, seen: Seen) {
        learn(&mut self.0, node, seen);
    }
}

/// The faster of two at random, by moving average.
#[derive(Debug)]
pub struct TwoChoices(Vec<f64>, Chance);

impl TwoChoices {
    /// Of so many nodes.
    pub fn new(nodes: usize, chance: Chance) -> Self {
        Self(vec![0.0; nodes], chance)
    }
}

impl Policy for TwoChoices {
    fn pick(&mut self, _: &Flow, view: &[usize], failed: Option<usize>) -> Option<Choice> {
        let mut view = others(view, failed);
        if view.is_empty() {
            return None;
        }
        let a = view.swap_remove(self.1.below(view.len()));
        if view.is_empty() {
            return plain(Some(a));
        }
        let b = view[self.1.below(view.len())];
        plain(Some(if self.0[b] < self.0[a] { b } else { a }))
    }

    fn see(&mut self, _: f64, _: &Flow, node: usize, seen: Seen) {
        let sample = match seen {
            Seen::Response(millis) => millis,
            Seen::FailedBefore | Seen::FailedAfter => 10_000.0,
            Seen::Setup | Seen::Data | Seen::End => return,
        };
        let old = self.0[node];
        self.0[node] = if old == 0.0 {
            sample
        } else {
            old + (sample - old) / 8.0
        };
    }
}
