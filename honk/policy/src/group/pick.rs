//! What a selection is made of: a leaf, or members in turn, and the groups on the way.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    activity::Activity,
    field::{By, Field},
    graph::MAX_DEPTH,
};
use crate::{
    id::{GroupId, MemberId},
    node::Node,
    score::GroupKey,
};

/// The outcome of a selection, borrowed from the table: nothing is copied to get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected<'t> {
    /// The node to dial; `direct` and `block` included.
    pub leaf: &'t Arc<Node>,
    /// Group names from the outermost to the innermost; empty for the built-in slots.
    pub path: &'t Arc<[Arc<str>]>,
    /// Ids of the groups of `path`.
    pub groups: &'t Arc<[GroupId]>,
    /// The member it came through; `None` when `final` or a built-in slot serves.
    pub member: Option<MemberId>,
    /// Why this one.
    pub source: Source,
    /// Name of the outermost group's `final`, when it serves.
    pub final_used: Option<&'t Arc<str>>,
    /// The outermost group ranks by latency and has measured nothing yet (G-138): its
    /// [rivals](super::Rival) are as good.
    pub cold: bool,
    /// Whoever probes the members of the groups on the way should look: one may be in use again
    /// after a pause (G-136).
    pub woke: bool,
}

/// What decided a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A choice made at run time.
    Choice,
    /// `default:`.
    Default,
    /// The first member.
    First,
    /// The policy of an automatic group.
    Auto,
    /// A member that an automatic group was told to keep to.
    Pin,
    /// The only leaf, though its health speaks against it.
    LastResort,
    /// `final:`.
    Final,
}

impl Source {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Choice => "choice",
            Self::Default => "default",
            Self::First => "first",
            Self::Auto => "auto",
            Self::Pin => "pin",
            Self::LastResort => "last_resort",
            Self::Final => "final",
        }
    }
}

/// Why a group selects nothing: the flow is dropped, never sent direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refuse {
    /// No member, or no group in the slot.
    #[error("the group has no member")]
    NoMember,
    /// No leaf that may serve is alive.
    #[error("no node of the group is alive")]
    AllDead,
    /// What is left carries no UDP.
    #[error("the selected node carries no UDP")]
    UdpIncapable,
    /// `final` names nothing that exists.
    #[error("the group's final does not exist")]
    FinalMissing,
    /// `final` leads back to the group.
    #[error("the group's final leads back to it")]
    FinalCycle,
    /// More than eight groups on the way.
    #[error("groups nest deeper than {MAX_DEPTH}")]
    Depth,
}

impl Refuse {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoMember => "no_member",
            Self::AllDead => "all_dead",
            Self::UdpIncapable => "udp_incapable",
            Self::FinalMissing => "final_missing",
            Self::FinalCycle => "final_cycle",
            Self::Depth => "depth",
        }
    }

    /// The obstacle that says most about a group whose members have different ones.
    pub(super) fn worse(self, other: Self) -> Self {
        let weight = |refuse| match refuse {
            Self::AllDead => 5,
            Self::UdpIncapable => 4,
            Self::Depth => 3,
            Self::FinalCycle => 2,
            Self::FinalMissing => 1,
            Self::NoMember => 0,
        };
        if weight(other) > weight(self) {
            other
        } else {
            self
        }
    }
}

/// What a group selects in one pass.
pub(super) type Outcome = Result<Pick, Refuse>;

/// A selection before it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pick {
    pub(super) lead: Lead,
    pub(super) source: Source,
    /// Some group on the way had to use its `final`.
    pub(super) via_final: bool,
    /// No flow changes it: every pick on the way is a selector's, a fallback's, a pin's or a
    /// `final`, so the kernel may act on it alone.
    pub(super) settled: bool,
    /// A urltest group's pick without any measurement.
    pub(super) cold: bool,
}

/// Where a selection leads.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lead {
    /// To one leaf, by its place among the table's leaves.
    Leaf(u32, Arc<Way>),
    /// To the alive members of a balancing group, one after the other.
    Turn(Arc<Turn>),
    /// To whichever leaf of a Score group is ranked first.
    Score(Arc<Field>),
}

/// Where a selection leads without anybody's judgement.
pub(super) enum Landing<'a> {
    Leaf(u32, &'a Arc<Way>),
    /// Somebody must rank.
    Field(&'a Field),
}

impl Lead {
    /// The same, seen from a group that lists the first of its groups.
    pub(super) fn below(&self, parent: &Way) -> Self {
        match self {
            Self::Leaf(leaf, way) => Self::Leaf(*leaf, Arc::new(way.below(parent))),
            Self::Turn(turn) => Self::Turn(Arc::new(Turn {
                counter: Arc::clone(&turn.counter),
                nodes: Arc::clone(&turn.nodes),
                way: Arc::new(turn.way.below(parent)),
                nested: turn.nested.iter().map(|lead| lead.below(parent)).collect(),
            })),
            Self::Score(field) => Self::Score(Arc::new(field.below(parent))),
        }
    }

    /// Ways to nested groups that are kept for it, its own included.
    pub(super) fn ways(&self) -> usize {
        match self {
            Self::Leaf(..) => 1,
            Self::Turn(turn) => 1 + turn.nested.iter().map(Self::ways).sum::<usize>(),
            Self::Score(field) => field.ways(),
        }
    }

    /// The leaf whose numbers stand for it: of members in turn, the first.
    pub(super) fn first(&self) -> u32 {
        match self {
            Self::Leaf(leaf, _) => *leaf,
            Self::Turn(turn) => match turn.nodes.first() {
                Some(leaf) => *leaf,
                None => turn.nested[0].first(),
            },
            Self::Score(field) => field.first(),
        }
    }

    /// Follows turns; counters advance for real traffic only.
    pub(super) fn step(&self, apply: bool) -> Landing<'_> {
        let mut lead = self;
        loop {
            match lead {
                Self::Leaf(leaf, way) => return Landing::Leaf(*leaf, way),
                Self::Turn(turn) => match turn.take(apply) {
                    Place::Node(leaf) => return Landing::Leaf(leaf, &turn.way),
                    Place::Nested(nested) => lead = nested,
                },
                Self::Score(field) => return Landing::Field(field),
            }
        }
    }

    /// Leaf and way of this moment; `None` where whoever ranks wants none.
    pub(super) fn follow(&self, nodes: &[Arc<Node>], by: &mut By<'_>) -> Option<(u32, &Arc<Way>)> {
        match self.step(by.serves()) {
            Landing::Leaf(leaf, way) => Some((leaf, way)),
            Landing::Field(field) => field.choose(nodes, by),
        }
    }
}

/// Members of a balancing group that may serve, at least one.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) counter: Arc<Counter>,
    /// Leaves that are direct members.
    pub(super) nodes: Arc<[u32]>,
    pub(super) way: Arc<Way>,
    /// Nested groups, behind the nodes as in the declaration.
    pub(super) nested: Box<[Lead]>,
}

enum Place<'a> {
    Node(u32),
    Nested(&'a Lead),
}

impl Turn {
    fn take(&self, apply: bool) -> Place<'_> {
        let count = self.nodes.len() + self.nested.len();
        let at = (self.counter.next(apply) % count as u64) as usize;
        match self.nodes.get(at) {
            Some(leaf) => Place::Node(*leaf),
            None => Place::Nested(&self.nested[at - self.nodes.len()]),
        }
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.counter, &other.counter)
            && self.nodes == other.nodes
            && self.way == other.way
            && self.nested == other.nested
    }
}

/// Whose turn it is: outside of the snapshots, so that a new one goes on where the old one was.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// One that goes on from here but is no longer moved by this one's readers (G-188).
    pub(super) fn fork(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }

    pub(super) fn next(&self, apply: bool) -> u64 {
        if apply {
            self.0.fetch_add(1, Ordering::Relaxed)
        } else {
            self.0.load(Ordering::Relaxed)
        }
    }
}

/// The groups on the way to a leaf, outermost first.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) path: Arc<[Arc<str>]>,
    pub(super) ids: Arc<[GroupId]>,
    /// Those whose health checks sleep while nobody uses them.
    pub(super) activities: Box<[Arc<Activity>]>,
    /// Those that learn from what becomes of a flow.
    pub(super) scores: Box<[GroupKey]>,
}

impl Way {
    /// No group at all.
    pub(super) fn none() -> Self {
        Self {
            path: Arc::new([]),
            ids: Arc::new([]),
            activities: Box::new([]),
            scores: Box::new([]),
        }
    }

    pub(super) fn below(&self, parent: &Self) -> Self {
        Self {
            path: parent.path.iter().chain(&*self.path).cloned().collect(),
            ids: parent.ids.iter().chain(&*self.ids).copied().collect(),
            activities: parent
                .activities
                .iter()
                .chain(&self.activities)
                .cloned()
                .collect(),
            scores: parent.scores.iter().chain(&self.scores).copied().collect(),
        }
    }

    /// Marks all groups as used; true when that is news for one of them.
    pub(super) fn touch(&self) -> bool {
        let news = self.activities.iter().map(|activity| activity.touch());
        news.fold(false, |any, new| any | new)
    }
}

impl PartialEq for Way {
    fn eq(&self, other: &Self) -> bool {
        self.ids == other.ids
    }
}
