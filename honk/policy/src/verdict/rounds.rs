//! The steps of an activation that leaves out what cannot be built (health.md, H-113, H-114).
//!
//! The builder stops at the first node it rejects. So: activate; if a node is named, leave it
//! out and check until nothing is named any more; then activate once more. Two activations at
//! most, and a start without rejection makes no check.

use super::{NodeRef, Rejection};

/// Nodes that one start leaves out before a human is asked.
pub const LIMIT: usize = 10;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Build what is left and take it into use.
    Activate,
    /// Build what is left and throw it away.
    Check,
    /// Nothing.
    End(End),
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was built.
    Clean,
    /// A node was rejected.
    Rejected(Rejection),
    /// Something else is wrong.
    Other(String),
}

/// How it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// In use.
    Active,
    /// Not in use: leaving out nodes does not help.
    Failed(String),
    /// Not in use: this one would have been one too many.
    Limit(Rejection),
}

/// One activation.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// Whether there is a limit.
    limit: Option<usize>,
    off: Vec<Rejection>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    First,
    Checking,
    Final,
}

impl Rounds {
    /// A fresh one; its first step is [`Step::Activate`]. Without a limit it never asks.
    pub fn new(limit: Option<usize>) -> Self {
        Self {
            limit,
            off: Vec::new(),
            stage: Stage::First,
        }
    }

    /// Nodes left out so far, in the order in which they were found.
    pub fn off(&self) -> &[Rejection] {
        &self.off
    }

    /// Takes the outcome of a step. `known` tells whether a node is one of the configuration.
    pub fn told(&mut self, outcome: Outcome, known: impl Fn(&NodeRef) -> bool) -> Step {
        let rejection = match outcome {
            Outcome::Clean if self.stage == Stage::Checking => {
                self.stage = Stage::Final;
                return Step::Activate;
            }
            Outcome::Clean => return Step::End(End::Active),
            Outcome::Other(error) => return Step::End(End::Failed(error)),
            Outcome::Rejected(rejection) => rejection,
        };
        let again = self.off.iter().any(|old| old.node == rejection.node);
        if again || !known(&rejection.node) {
            return Step::End(End::Failed(rejection.to_string()));
        }
        if self.limit.is_some_and(|limit| self.off.len() >= limit) {
            return Step::End(End::Limit(rejection));
        }
        let text = rejection.to_string();
        self.off.push(rejection);
        match self.stage {
            Stage::First | Stage::Checking => {
                self.stage = Stage::Checking;
                Step::Check
            }
            // It is left out the next time; there is no third activation.
            Stage::Final => Step::End(End::Failed(text)),
        }
    }
}
