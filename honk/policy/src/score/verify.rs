//! What Score knows and still wants to know, for people. A read: it spends and changes nothing.

use super::{
    budget::Ledger,
    cell::TargetScope,
    clock::T,
    compare::{Relation, relation},
    dispatch::{Pending, Walk, standing},
    ids::NodeKey,
    question::Question,
};

/// Whether the selection is seen to work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Not by enough recent flows.
    #[default]
    Provisional,
    /// Four flows received data lately.
    ObservedUsable,
}

/// What the open question waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NextAction {
    /// Nothing is open.
    #[default]
    None,
    /// A flow of a client: needed, not reserved.
    NextBusinessFlow,
    /// Time after failures.
    Backoff,
}

/// Why the open question is not answered yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// Nothing is open.
    #[default]
    None,
    /// Trials are used up or paused.
    Budget,
    /// The next flow that compares.
    ComparableTraffic,
    /// A trial that is under way.
    InFlight,
    /// Time after failures.
    Backoff,
}

/// Members by how their response compares with the selection's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Challengers {
    /// Slower than the selection.
    pub selected_faster: u64,
    /// Within a tenth.
    pub equivalent: u64,
    /// Faster.
    pub challenger_faster: u64,
    /// Not comparable now.
    pub unknown: u64,
}

/// How much of the group was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Leaves that could be selected.
    pub candidates: u64,
    /// Those in the serving pool, the selection among them.
    pub evaluated: u64,
    /// The rest.
    pub unevaluated: u64,
    /// Evaluated members with an open question.
    pub pending: u64,
}

/// The member through which flows go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The leaf.
    pub node: NodeKey,
    /// Its index in the view.
    pub index: usize,
    /// Number of the direct member it came through.
    pub member: u32,
}

/// The state of one network of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Absent without a candidate.
    pub selected: Option<Selected>,
    /// Whether the selection is seen to work.
    pub state: State,
    /// The other members.
    pub challengers: Challengers,
    /// The first open question in the order of trials.
    pub question: Question,
    /// What it waits for.
    pub next_action: NextAction,
    /// Why it waits.
    pub wait_reason: WaitReason,
    /// How much was looked at.
    pub coverage: Coverage,
    /// When the first part of this ends, if any of it does.
    pub fresh_until: Option<T>,
}

macro_rules! names {
    ($type:ident { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// As in the API.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

names!(State { Provisional => "provisional", ObservedUsable => "observedUsable" });
names!(NextAction {
    None => "none",
    NextBusinessFlow => "nextBusinessFlow",
    Backoff => "backoff",
});
names!(WaitReason {
    None => "none",
    Budget => "budget",
    ComparableTraffic => "comparableTraffic",
    InFlight => "inFlight",
    Backoff => "backoff",
});

/// Reports on a selection. `ledgers`: those of the families that the read is about, absent where
/// a family has none yet. `candidates`: leaves in the view.
pub(super) fn report(walk: &Walk<'_>, ledgers: &[Option<&Ledger>], candidates: usize) -> Report {
    let now = walk.beside.reading.now;
    let selection = &walk.rows[walk.selection];
    let order = walk.order();
    let usable_until = selection.known.usable_until;
    let (challengers, relations_until) = relations(walk);
    let first = order.actionable().next();
    let (question, next_action, wait_reason) = match (first, order.pending().next()) {
        (Some(first), _) => (
            first.open.question,
            NextAction::NextBusinessFlow,
            wait(walk, ledgers, first, now),
        ),
        (None, Some(pending)) => (
            pending.open.question,
            NextAction::Backoff,
            WaitReason::Backoff,
        ),
        (None, None) => Default::default(),
    };
    let evaluated = walk.rows.len();
    Report {
        selected: Some(Selected {
            node: selection.node,
            index: selection.index,
            member: selection.member,
        }),
        state: match usable_until {
            Some(_) => State::ObservedUsable,
            None => State::Provisional,
        },
        challengers,
        question,
        next_action,
        wait_reason,
        coverage: Coverage {
            candidates: candidates as u64,
            evaluated: evaluated as u64,
            unevaluated: candidates.saturating_sub(evaluated) as u64,
            pending: order.pending().count() as u64,
        },
        fresh_until: [usable_until, relations_until].into_iter().flatten().min(),
    }
}

/// How the other members compare, and until when that holds.
fn relations(walk: &Walk<'_>) -> (Challengers, Option<T>) {
    let mut counts = Challengers::default();
    let mut until: Option<T> = None;
    let selection = walk.rows[walk.selection].node;
    for row in walk.rows.iter().filter(|row| row.node != selection) {
        let pair = walk.beside.pair(row.node);
        let Some(response) = pair.and_then(|pair| pair.response) else {
            counts.unknown += 1;
            continue;
        };
        until = Some(until.map_or(response.expires, |u| u.min(response.expires)));
        match relation(response.incumbent, response.challenger) {
            Relation::SelectedFaster => counts.selected_faster += 1,
            Relation::Equivalent => counts.equivalent += 1,
            Relation::ChallengerFaster => counts.challenger_faster += 1,
        }
    }
    (counts, until)
}

/// Why the first question that a flow could answer is still open.
fn wait(walk: &Walk<'_>, ledgers: &[Option<&Ledger>], first: &Pending, now: T) -> WaitReason {
    let standing = standing(&walk.rows[walk.selection].known);
    let (node, question) = (first.facts.node, first.open.question);
    let retained = || ledgers.iter().flatten();
    let asked = |ledger: &&&Ledger| {
        let flights = ledger.flights();
        match walk.beside.reading.scope.target {
            TargetScope::One(target) => flights.is_unanswered(now, node, question, Some(target)),
            TargetScope::Any => flights.is_unanswered(now, node, question, None),
            // Of a target that nothing is kept of, only the record is asked elsewhere.
            TargetScope::New => {
                question == Question::Qualification
                    && flights.is_unanswered(now, node, question, None)
            }
        }
    };
    if retained().any(|ledger| asked(&ledger) || ledger.flights().is_full(now, node)) {
        return WaitReason::InFlight;
    }
    let unused = ledgers.iter().any(Option::is_none);
    if unused || retained().any(|ledger| ledger.affords(now, standing).is_some()) {
        WaitReason::ComparableTraffic
    } else {
        WaitReason::Budget
    }
}
