//! What happened in a run.

use std::time::Duration;

use super::Sim;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A group's TCP selection is another member, and why.
    Switched {
        /// The group.
        group: String,
        /// What decided.
        cause: &'static str,
        /// The leaf from now on.
        leaf: String,
    },
    /// A flow came through a group.
    Flow {
        /// The group.
        group: String,
        /// The leaf; `None` when it was refused.
        leaf: Option<String>,
        /// Whether its dial succeeded.
        ok: bool,
    },
    /// A flow of a group would be closed by a switch.
    Closed {
        /// The group.
        group: String,
    },
}

/// Facts in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub(super) facts: Vec<(Duration, Fact)>,
    /// When each probe began.
    pub(super) probes: Vec<Duration>,
    pub(super) most_probes: usize,
}

impl History {
    /// TCP switches of a group: second, cause, leaf.
    pub fn switches(&self, of: &str) -> Vec<(f64, &'static str, &str)> {
        let switches = self.facts.iter().filter_map(|(at, fact)| match fact {
            Fact::Switched { group, cause, leaf } if group == of => {
                Some((at.as_secs_f64(), *cause, leaf.as_str()))
            }
            _ => None,
        });
        switches.collect()
    }

    /// Leaves of flows of a group that began in these seconds, and whether they were reached.
    pub fn flows(&self, of: &str, seconds: std::ops::Range<u64>) -> Vec<(Option<&str>, bool)> {
        let window = Sim::s(seconds.start)..Sim::s(seconds.end);
        let flows = self.facts.iter().filter_map(|(at, fact)| match fact {
            Fact::Flow { group, leaf, ok } if group == of && window.contains(at) => {
                Some((leaf.as_deref(), *ok))
            }
            _ => None,
        });
        flows.collect()
    }

    /// Flows of a group in these seconds that failed.
    pub fn failed(&self, of: &str, seconds: std::ops::Range<u64>) -> usize {
        self.flows(of, seconds).iter().filter(|(_, ok)| !ok).count()
    }

    /// Everything, in order.
    pub fn facts(&self) -> impl Iterator<Item = &(Duration, Fact)> {
        self.facts.iter()
    }

    /// Probes started.
    pub fn probes(&self) -> usize {
        self.probes.len()
    }

    /// Probes started in these seconds.
    pub fn probes_in(&self, seconds: std::ops::Range<u64>) -> usize {
        let window = Sim::s(seconds.start)..Sim::s(seconds.end);
        self.probes.iter().filter(|at| window.contains(at)).count()
    }

    /// Most probes under way at a time.
    pub fn most_probes(&self) -> usize {
        self.most_probes
    }

    /// Most switches of a group within any 10 seconds.
    pub fn most_in_10_s(&self, group: &str) -> usize {
        let switches = self.switches(group);
        let within = |from: f64| {
            let inside = switches
                .iter()
                .filter(|(at, ..)| (from..from + 10.0).contains(at));
            inside.count()
        };
        switches
            .iter()
            .map(|(at, ..)| within(*at))
            .max()
            .unwrap_or(0)
    }
}
