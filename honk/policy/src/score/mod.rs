//! Score: the policy that learns from real traffic which leaf serves a flow best.
//!
//! Everything is evidence of attempts that were made for clients anyway: cells keep decayed
//! counts of what happened, an ordinary choice weighs them, and a small budget sends some flows
//! through challengers whose evidence lacks something. Nothing here knows a clock, a socket or
//! chance: the same calls with the same times give the same answers. Reading changes nothing.

mod call;
mod cell;
mod clock;
mod cohort;
mod consts;
mod decay;
mod ids;
mod index;
mod lru;
mod outcome;
mod reasons;
mod rel;
mod snapshot;
mod targets;
mod wm;

pub use call::{
    Cand, Ctx, GroupMembers, Membership, Mode, Obs, Pick, PickView, PressureHint, ProbeSample,
    Refused, Source, Trials,
};
pub use clock::T;
pub use ids::{AttemptId, GroupKey, NodeKey, ReporterId, Target, WorkId, family_of};
pub use outcome::Outcome;
pub use reasons::Reason;
