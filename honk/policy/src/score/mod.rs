//! Score: the policy that learns from real traffic which leaf serves a flow best.
//!
//! Everything is evidence of attempts that were made for clients anyway: cells keep decayed
//! counts of what happened, an ordinary choice weighs them, and a small budget sends some flows
//! through challengers whose evidence lacks something. Nothing here knows a clock, a socket or
//! chance: the same calls with the same times give the same answers. Reading changes nothing.

mod attempt;
mod budget;
mod call;
mod cell;
mod clock;
mod cohort;
mod compare;
mod consts;
mod decay;
mod dispatch;
mod eligible;
mod flight;
mod group;
mod history;
mod ids;
mod index;
mod look;
mod lru;
mod ordinary;
mod outcome;
mod plan;
mod pool;
mod pressure;
mod probe;
mod question;
mod read;
mod reasons;
mod record;
mod recovery;
mod rel;
mod reload;
mod reporter;
mod slab;
mod snapshot;
mod stats;
mod targets;
#[cfg(test)]
mod tests;
mod utility;
mod verify;
mod wm;
mod work;

use group::Group;
use history::History;
use pool::Standing;
use record::Evidence;
use snapshot::Row;
use work::Works;

pub use call::{
    Cand, Ctx, GroupMembers, Membership, Mode, Obs, Pick, PickView, PressureHint, ProbeSample,
    Refused, Source, Trials,
};
pub use clock::T;
pub use compare::ComparisonStats;
pub use consts::{CELLS, COMPARISONS};
pub use ids::{AttemptId, GroupKey, NodeKey, ReporterId, Target, WorkId, family_of};
pub use outcome::Outcome;
pub use question::Question;
pub use reasons::{Reason, ReasonStats};
pub use stats::{BudgetStats, CacheStats, GroupStats, NetworkStats, Stats};
pub use verify::{Challengers, Coverage, NextAction, Report, Selected, State, WaitReason};

/// All evidence and budgets of all Score groups. The caller makes its calls one after another.
#[derive(Debug)]
pub struct Engine {
    /// Number of the active configuration.
    generation: u64,
    /// When it became active.
    activated: Option<T>,
    /// Sorted by key.
    groups: Vec<Group>,
    evidence: Evidence,
    history: History,
    works: Works,
    /// Original flows that passed through any group.
    business_starts: u64,
    dropped: Dropped,
    /// Room for the rows of a call, kept for the next one.
    rows: Vec<Row>,
    standings: Vec<Standing>,
}

/// What was handed in and not used, and the fill of tables that no report shows elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Checks from an earlier configuration or of a leaf that is not of the group.
    pub stale_probes: u64,
    /// Values that are no measurements.
    pub unsound: u64,
    /// Groups beyond the number there can be.
    pub groups: u64,
    /// Flows served without a score because too many attempts were known.
    pub unscored: u64,
    /// Choice histories given up for others.
    pub histories: u64,
    /// Attempts known now.
    pub attempts: u64,
    /// Targets known now.
    pub targets: u64,
}

impl Engine {
    /// An engine that knows nothing. `seed` is mixed into its tables, so that nobody outside can
    /// choose names that collide; it changes no answer.
    pub fn new(seed: u64) -> Self {
        Self {
            generation: 0,
            activated: None,
            groups: Vec::new(),
            evidence: Evidence::new(seed),
            history: History::new(),
            works: Works::new(),
            business_starts: 0,
            dropped: Dropped::default(),
            rows: Vec::new(),
            standings: Vec::new(),
        }
    }

    /// What was not used, and how full the inner tables are.
    pub fn dropped(&self) -> Dropped {
        Dropped {
            unscored: self.works.works.refused(),
            histories: self.history.evictions(),
            attempts: self.works.works.len() as u64,
            targets: self.evidence.targets.len() as u64,
            ..self.dropped
        }
    }

    /// Where a group with Score is.
    fn find(&self, key: GroupKey) -> Option<usize> {
        let at = self.groups.binary_search_by_key(&key, |group| group.key);
        at.ok().filter(|&at| self.groups[at].scored)
    }
}
