//! What is probed, with its place in the schedule.

use std::time::Duration;

use super::{cell::Cell, event::Subject};
use crate::{id::Domain, time::Moment};

/// One target.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) subject: Subject,
    pub(super) cell: Cell,
    /// Groups that read it, by index.
    pub(super) groups: Vec<usize>,
    /// Shortest period of those groups.
    pub(super) interval: Duration,
    /// Its key in the queue; `None` while a probe runs or waits.
    pub(super) due: Option<Moment>,
    pub(super) state: State,
    /// Why it will be probed when it is due.
    pub(super) next: Cause,
    /// Begin of the last probe.
    pub(super) started: Option<Moment>,
    /// The server has no address in this family.
    pub(super) absent: bool,
}

impl Target {
    /// Datagrams other than DNS are judged by real traffic alone: there is nobody to ask.
    pub(super) fn is_probed(&self) -> bool {
        !matches!(
            self.subject,
            Subject::Node {
                domain: Domain::DataUdp,
                ..
            }
        )
    }
}

/// What a target is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the queue.
    Resting,
    /// In the line of probes that start as soon as there is room.
    Waiting(Cause),
    /// Under way.
    Running(Cause),
}

/// Why a probe is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its time has come.
    Due,
    /// Something happened: also a new node's failure counts.
    Forced,
}
