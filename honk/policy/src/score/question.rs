//! What is still unsure about a member, compared with the selection.
//!
//! One question at a time, in a fixed order; probes never settle one about business. A member
//! that answers as well as the selection and has proven itself has none left, and then nothing is
//! sampled: missing transfer rates wait for real load.

use super::{
    clock::T,
    consts::{DEGRADED, REPORTERS},
    flight::Evidence,
    ids::NodeKey,
};

/// The first open question of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Question {
    /// Nothing is open.
    #[default]
    None,
    /// Does it carry traffic right now?
    Availability,
    /// How fast does it answer, next to the selection?
    Response,
    /// Is there enough of a record to trust it?
    Qualification,
    /// Has it recovered from its failures?
    Recovery,
}

impl Question {
    /// As in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Availability => "availability",
            Self::Response => "response",
            Self::Qualification => "qualification",
            Self::Recovery => "recovery",
        }
    }

    /// Whether this evidence is what a trial for the question was to bring. A record is complete
    /// only when the flow has ended.
    pub(super) fn is_answered_by(self, evidence: Evidence) -> bool {
        match self {
            Self::Availability | Self::Recovery => evidence == Evidence::Received,
            Self::Response => evidence == Evidence::Responded,
            Self::Qualification | Self::None => false,
        }
    }
}

/// What is known about a member of the pool, in the scope that is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) node: NodeKey,
    /// Place in the order of declaration.
    pub(super) index: usize,
    pub(super) streak: u32,
    pub(super) eligible: bool,
    pub(super) qualified: bool,
    /// Effective completions, and the useful ones of them.
    pub(super) completions: f64,
    pub(super) useful: f64,
    /// Whether it is seen to carry traffic, and how many flows have shown it.
    pub(super) usable: bool,
    pub(super) credits: u8,
    /// Whether its response was compared with the selection's on whole and recent evidence.
    pub(super) compared: bool,
    /// Flows of it that count towards such a comparison.
    pub(super) sharing: u8,
    pub(super) failed_at: Option<T>,
    pub(super) not_before: Option<T>,
    /// When it was last selected, in selections; 0 is never.
    pub(super) selected: u64,
    /// Latency of the probe by which the selection is measured too.
    pub(super) probe: Option<f64>,
}

/// An open question of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Open {
    pub(super) question: Question,
    /// Pieces of evidence there are already, of four.
    pub(super) progress: f64,
    /// Nothing may be asked yet, because of failures.
    pub(super) backed_off: bool,
    /// A flow could answer it now.
    pub(super) actionable: bool,
}

/// The open question of a member that is not the selection. `any_qualified`: some healthy member
/// has a record, so the others need one to compete.
pub(super) fn open(now: T, facts: &Facts, any_qualified: bool) -> Option<Open> {
    let just_failed = facts
        .failed_at
        .is_some_and(|at| !now.is_after(at, DEGRADED));
    if !facts.eligible && just_failed {
        return None;
    }
    let (question, progress) = if facts.streak > 0 {
        (Question::Recovery, f64::from(facts.credits))
    } else if !facts.usable {
        (Question::Availability, f64::from(facts.credits))
    } else if facts.eligible && !facts.compared {
        (Question::Response, f64::from(facts.sharing))
    } else if any_qualified && !facts.qualified {
        (Question::Qualification, facts.useful)
    } else {
        return None;
    };
    let backed_off = facts.not_before.is_some_and(|until| until > now);
    let wanted = question == Question::Recovery || progress < f64::from(REPORTERS);
    Some(Open {
        question,
        progress,
        backed_off,
        actionable: wanted && !backed_off,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::score::ids::key;

    /// A member without any open question.
    pub(in crate::score) fn settled(n: u128) -> Facts {
        Facts {
            node: key(n),
            index: n as usize,
            streak: 0,
            eligible: true,
            qualified: true,
            completions: 8.0,
            useful: 8.0,
            usable: true,
            credits: 4,
            compared: true,
            sharing: 4,
            failed_at: None,
            not_before: None,
            selected: 1,
            probe: None,
        }
    }

    fn asked(facts: &Facts) -> Option<(Question, f64)> {
        open(T::from_secs(1000), facts, true).map(|o| (o.question, o.progress))
    }

    #[test]
    fn questions_come_in_a_fixed_order() {
        let done = settled(1);
        assert_eq!(asked(&done), None);
        let record = Facts {
            qualified: false,
            useful: 2.5,
            ..done
        };
        assert_eq!(asked(&record), Some((Question::Qualification, 2.5)));
        assert_eq!(
            open(T::from_secs(1000), &record, false),
            None,
            "nobody has one"
        );
        let response = Facts {
            compared: false,
            sharing: 3,
            ..record
        };
        assert_eq!(asked(&response), Some((Question::Response, 3.0)));
        let out = Facts {
            eligible: false,
            ..response
        };
        assert_eq!(asked(&out), Some((Question::Qualification, 2.5)));
        let silent = Facts {
            usable: false,
            credits: 1,
            ..response
        };
        assert_eq!(asked(&silent), Some((Question::Availability, 1.0)));
        let failing = Facts {
            streak: 1,
            ..silent
        };
        assert_eq!(asked(&failing), Some((Question::Recovery, 1.0)));
    }

    #[test]
    fn who_just_failed_and_is_out_is_left_alone_for_two_minutes() {
        let failed = Facts {
            streak: 3,
            eligible: false,
            failed_at: Some(T::from_secs(900)),
            ..settled(1)
        };
        assert_eq!(open(T::from_secs(1019), &failed, true), None);
        let after = open(T::from_secs(1020), &failed, true).unwrap();
        assert_eq!(after.question, Question::Recovery);
        let still_in = Facts {
            eligible: true,
            ..failed
        };
        assert!(open(T::from_secs(901), &still_in, true).is_some());
    }

    #[test]
    fn a_question_is_actionable_until_four_pieces_of_evidence_are_there() {
        let at = |facts: Facts| open(T::from_secs(1000), &facts, true).unwrap();
        let waiting = Facts {
            compared: false,
            sharing: 4,
            ..settled(1)
        };
        assert!(!at(waiting).actionable, "the selection's side is missing");
        let recovering = Facts {
            streak: 1,
            credits: 4,
            ..settled(1)
        };
        assert!(at(recovering).actionable);
        let backed_off = Facts {
            not_before: Some(T::from_secs(1001)),
            ..recovering
        };
        assert!(at(backed_off).backed_off && !at(backed_off).actionable);
        let over = Facts {
            not_before: Some(T::from_secs(1000)),
            ..recovering
        };
        assert!(at(over).actionable);
    }

    #[test]
    fn a_question_ends_with_the_evidence_it_asked_for() {
        let by =
            |q: Question| [Evidence::Received, Evidence::Responded].map(|e| q.is_answered_by(e));
        assert_eq!(by(Question::Availability), [true, false]);
        assert_eq!(by(Question::Recovery), [true, false]);
        assert_eq!(by(Question::Response), [false, true]);
        assert_eq!(by(Question::Qualification), [false, false]);
    }
}
