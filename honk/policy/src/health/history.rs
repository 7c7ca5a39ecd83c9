//! The last samples of a node, for people to look at.

use std::{collections::VecDeque, time::Duration};

use super::limits::HISTORY;
use crate::time::Moment;

/// Where a sample comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A probe of the health loop or of a group test.
    Probe,
    /// A dial of a flow.
    Traffic,
}

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Moment,
    /// `None` for a failure.
    pub latency: Option<Duration>,
    /// From where.
    pub kind: Kind,
}

/// A ring of samples.
#[derive(Clone, Debug, Default)]
pub(super) struct History(VecDeque<Sample>);

impl History {
    pub(super) fn push(&mut self, sample: Sample) {
        if self.0.len() == HISTORY {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_sample_makes_room() {
        let mut history = History::default();
        for n in 0..=HISTORY as u64 {
            history.push(Sample {
                at: Moment::START + Duration::from_secs(n),
                latency: None,
                kind: Kind::Probe,
            });
        }
        let times: Vec<_> = history.iter().map(|s| s.at.since(Moment::START)).collect();
        assert_eq!(times.len(), HISTORY);
        assert_eq!(times[0], Duration::from_secs(1));
    }
}
