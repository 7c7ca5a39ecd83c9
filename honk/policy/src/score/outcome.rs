//! How an attempt ends, and what that means for each layer of evidence (section 5 of the design:
//! target-path failures stay with the target, faults of node or carrier reach all of it).

/// The one end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was served.
    Success,
    /// No answer in time.
    Timeout,
    /// An error of the connection.
    Io,
    /// An error that nothing more is known of.
    Other,
    /// The far side said that the target refuses or cannot be reached.
    TargetRefused,
    /// The target, as opposed to the node, did not answer in time.
    TargetTimeout,
    /// The proxy or the way to it failed.
    NodeFailure,
    /// One event of a carrier that ended this attempt among others. Every event has a number of
    /// its own, growing.
    SharedNodeFailure(u64),
    /// Refused by ourselves.
    Rejected,
    /// Given up by the client.
    Cancelled,
    /// Ended because honk stops.
    Shutdown,
}

/// What a reporter knows when its attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) setup: bool,
    pub(super) tx: bool,
    pub(super) rx: bool,
    pub(super) targeted: bool,
}

/// Additions to the reliability counters of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Marks {
    pub(super) ok: f64,
    pub(super) bad: f64,
    pub(super) set_up: f64,
    pub(super) not_set_up: f64,
}

/// Which cells a failure counts hard against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hard {
    No,
    /// The exact cell.
    Exact,
    /// All cells.
    All,
    /// All cells that have not counted this event yet.
    Shared(u64),
}

/// What a trial's outcome says about trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It worked.
    Success,
    /// It did not.
    Failure,
    /// Neither: given up, or refused by the target.
    Neutral,
}

/// Everything that follows from an end. `None` for a neutral one: the attempt leaves no mark.
pub(super) fn verdict(outcome: Outcome, seen: Seen) -> Option<(Marks, Hard)> {
    let one = |ok: f64, bad: f64| Marks {
        ok,
        bad,
        set_up: f64::from(u8::from(seen.setup)),
        not_set_up: f64::from(u8::from(!seen.setup)),
    };
    let failed = one(0.0, 1.0);
    Some(match outcome {
        Outcome::Success => {
            let served = match (seen.tx, seen.rx) {
                (true, true) => (1.0, 0.0),
                // Asked and never answered: a soft failure, though nothing broke.
                (true, false) => (0.0, 1.0),
                (false, _) => (0.0, 0.0),
            };
            let marks = Marks {
                set_up: 1.0,
                not_set_up: 0.0,
                ..one(served.0, served.1)
            };
            (marks, Hard::No)
        }
        Outcome::Timeout | Outcome::Io | Outcome::Other => {
            let hard = if seen.setup && seen.targeted {
                Hard::Exact
            } else {
                Hard::All
            };
            (failed, hard)
        }
        Outcome::TargetRefused | Outcome::TargetTimeout => (failed, Hard::Exact),
        Outcome::NodeFailure => (failed, Hard::All),
        Outcome::SharedNodeFailure(event) => (failed, Hard::Shared(event)),
        Outcome::Rejected | Outcome::Cancelled | Outcome::Shutdown => return None,
    })
}

/// What an end means for the yield of trials (S-205).
pub(super) fn settled(outcome: Outcome, seen: Seen) -> Settled {
    match outcome {
        Outcome::Success if seen.tx && seen.rx => Settled::Success,
        Outcome::Success if seen.tx => Settled::Failure,
        Outcome::Timeout
        | Outcome::Io
        | Outcome::Other
        | Outcome::TargetTimeout
        | Outcome::NodeFailure
        | Outcome::SharedNodeFailure(_) => Settled::Failure,
        Outcome::Success
        | Outcome::TargetRefused
        | Outcome::Rejected
        | Outcome::Cancelled
        | Outcome::Shutdown => Settled::Neutral,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET_UP: Seen = Seen {
        setup: true,
        tx: true,
        rx: true,
        targeted: true,
    };
    const COLD: Seen = Seen {
        setup: false,
        tx: false,
        rx: false,
        targeted: true,
    };

    fn marks(outcome: Outcome, seen: Seen) -> [f64; 4] {
        let (m, _) = verdict(outcome, seen).expect("not neutral");
        [m.ok, m.bad, m.set_up, m.not_set_up]
    }

    fn hard(outcome: Outcome, seen: Seen) -> Hard {
        verdict(outcome, seen).expect("not neutral").1
    }

    #[test]
    fn counters_follow_the_table() {
        let silent = Seen {
            rx: false,
            ..SET_UP
        };
        let empty = Seen {
            tx: false,
            ..silent
        };
        assert_eq!(marks(Outcome::Success, SET_UP), [1.0, 0.0, 1.0, 0.0]);
        assert_eq!(marks(Outcome::Success, silent), [0.0, 1.0, 1.0, 0.0]);
        assert_eq!(marks(Outcome::Success, empty), [0.0, 0.0, 1.0, 0.0]);
        for outcome in [Outcome::Timeout, Outcome::Io, Outcome::Other] {
            assert_eq!(marks(outcome, COLD), [0.0, 1.0, 0.0, 1.0]);
            assert_eq!(marks(outcome, SET_UP), [0.0, 1.0, 1.0, 0.0]);
        }
        assert_eq!(marks(Outcome::TargetRefused, COLD), [0.0, 1.0, 0.0, 1.0]);
        assert_eq!(marks(Outcome::NodeFailure, SET_UP), [0.0, 1.0, 1.0, 0.0]);
        for neutral in [Outcome::Rejected, Outcome::Cancelled, Outcome::Shutdown] {
            assert_eq!(verdict(neutral, SET_UP), None);
        }
    }

    #[test]
    fn only_faults_of_the_node_reach_beyond_the_target() {
        let targetless = Seen {
            targeted: false,
            ..SET_UP
        };
        assert_eq!(hard(Outcome::Io, COLD), Hard::All);
        assert_eq!(hard(Outcome::Io, SET_UP), Hard::Exact);
        assert_eq!(hard(Outcome::Io, targetless), Hard::All);
        assert_eq!(hard(Outcome::TargetRefused, COLD), Hard::Exact);
        assert_eq!(hard(Outcome::TargetTimeout, SET_UP), Hard::Exact);
        assert_eq!(hard(Outcome::NodeFailure, SET_UP), Hard::All);
        assert_eq!(hard(Outcome::SharedNodeFailure(7), COLD), Hard::Shared(7));
        assert_eq!(
            hard(
                Outcome::Success,
                Seen {
                    rx: false,
                    ..SET_UP
                }
            ),
            Hard::No
        );
    }

    #[test]
    fn refusals_say_nothing_about_trials() {
        assert_eq!(settled(Outcome::TargetRefused, COLD), Settled::Neutral);
        assert_eq!(settled(Outcome::TargetTimeout, COLD), Settled::Failure);
        assert_eq!(settled(Outcome::Success, SET_UP), Settled::Success);
        let silent = Seen {
            rx: false,
            ..SET_UP
        };
        assert_eq!(settled(Outcome::Success, silent), Settled::Failure);
        assert_eq!(settled(Outcome::Cancelled, SET_UP), Settled::Neutral);
    }
}
