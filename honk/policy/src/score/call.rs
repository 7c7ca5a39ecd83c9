//! What callers hand to the engine and get from it.

use super::{
    Reason,
    clock::T,
    ids::{AttemptId, GroupKey, NodeKey, Target},
};
use crate::id::{Domain, Family, Network};

/// One distinct leaf the rest of honk allows for this flow: alive, capable, in declaration order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cand {
    /// The leaf.
    pub node: NodeKey,
    /// Number of the group's direct member it came through. A nested group that answers with
    /// another leaf keeps its place in the serving pool by this.
    pub member: u32,
}

/// What a flow is: the scope its evidence belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ctx<'a> {
    /// Transport.
    pub network: Network,
    /// Family of the destination the client asked for, if there is one.
    pub family: Option<Family>,
    /// Where it goes, if that is known. Without a family it is ignored.
    pub target: Option<Target<'a>>,
    /// Leaves that health or missing UDP kept out of the view.
    pub dead_filtered: u32,
    /// The attempt an outer Score group has answered already; its answer becomes part of that.
    pub joins: Option<AttemptId>,
}

/// On whose authority a leaf is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A new flow of a client: commits history, may be sent through a challenger.
    Apply(Trials),
    /// The same flow again after `failed` could not be reached: never that leaf, never a trial,
    /// neither counted nor charged.
    Retry {
        /// The leaf that failed.
        failed: NodeKey,
    },
    /// A new flow whose leaf was decided elsewhere (a pin, a final, the last resort): the first of
    /// the view is taken and its outcome is evidence; nothing is ranked.
    Fixed,
    /// As `Fixed`, for work that serves no client: it is neither business nor counted.
    Prepare,
}

/// Whether a flow may be a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trials {
    /// It may.
    Allowed,
    /// It may not: an outer group has made it one already, or the flow is not fit.
    Forbidden,
}

/// The answer to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The leaf.
    pub node: NodeKey,
    /// Its index in the view.
    pub index: usize,
    /// To be begun or released. Absent when too many attempts are known: the flow is served, but
    /// nothing is learned from it.
    pub attempt: Option<AttemptId>,
    /// Whether it is a trial, paid by the group's budget.
    pub trial: bool,
    /// Why; absent where there was nothing to decide.
    pub reason: Option<Reason>,
    /// Whether the ordinary choice moved from another leaf to this one.
    pub switched: bool,
}

/// What [`rank`](super::Engine::rank) would answer now, without any effect. Trials are not shown:
/// they are no selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickView {
    /// The leaf.
    pub node: NodeKey,
    /// Its index in the view.
    pub index: usize,
    /// Why; absent where there is nothing to decide.
    pub reason: Option<Reason>,
}

/// Why work on an attempt must not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its leaf has left the serving pool, or the trial was planned before a reload: ask again.
    #[error("the leaf has left the serving pool since it was chosen; ask for another")]
    Cancelled,
    /// It waited too long, or is not known: go on without a score.
    #[error("the attempt is not known or has waited too long; go on without it")]
    Unknown,
}

/// What a started attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Business of a client.
    Traffic,
    /// Preparation of a connection: only its setup is looked at.
    Warmup,
}

/// Something seen of a started attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obs {
    /// The far side acknowledged, or took the header where nothing acknowledges.
    Setup,
    /// The first byte of an answer.
    FirstResponse,
    /// Bytes the outbound accepted from us.
    Tx {
        /// How many.
        bytes: u64,
        /// When sending them began.
        at: T,
    },
    /// Bytes the outbound delivered to us.
    Rx {
        /// How many.
        bytes: u64,
        /// When they came.
        at: T,
    },
}

/// A measurement by a configured check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeSample {
    /// The group whose check it is.
    pub group: GroupKey,
    /// The leaf.
    pub node: NodeKey,
    /// What was probed.
    pub domain: Domain,
    /// Over which family the proxy server was reached.
    pub family: Family,
    /// Identity of the check: context, address and method, cadence.
    pub scope: u64,
    /// Its cadence in nanoseconds, if it has one.
    pub interval: Option<u64>,
    /// The configuration it was made under, as in [`Membership`].
    pub generation: u64,
    /// Identity of the single measurement, distinct from those of others; 0 gives no proof.
    pub reporter: u64,
    /// Milliseconds; nothing for a failure.
    pub latency: Option<f64>,
}

/// A hint that the connection to a proxy server suffers (S-310).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureHint {
    /// The leaf.
    pub node: NodeKey,
    /// Transport of the flows it carries.
    pub network: Network,
    /// Family over which the proxy server is reached.
    pub carrier: Family,
    /// When the episode was seen.
    pub at: T,
    /// Its round trips grew.
    pub rtt: bool,
    /// It lost packets.
    pub loss: bool,
}

/// The Score groups of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    /// Number of the configuration, growing.
    pub generation: u64,
    /// Every group that has policy `score`.
    pub groups: Vec<GroupMembers>,
    /// Every other configured group: keeps what it has if its policy was `score` before.
    pub dormant: Vec<GroupKey>,
}

/// The leaves of a Score group.
#[derive(Clone, Debug)]
pub struct GroupMembers {
    /// The group.
    pub group: GroupKey,
    /// Its valid leaves, those of nested groups included: what the cold allowance is counted by.
    pub leaves: Vec<NodeKey>,
    /// Further leaves its flows can end at (finals): their evidence is kept too.
    pub finals: Vec<NodeKey>,
}
