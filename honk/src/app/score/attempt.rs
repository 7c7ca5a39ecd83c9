//! What becomes of a flow, for the engine: throttled, in order, and ended exactly once.

use std::{
    any::Any,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use honk_policy::score::{Engine, NodeKey, Obs, Outcome, ReporterId, Source, T, WorkId};

use super::Score;
use crate::flow::{CloseReason, End, Fault, FlowEntry, Witness};

/// Bytes of one direction that are told at once...
const BULK: u64 = 64 << 10;
/// ...and how long fewer wait for more.
const QUIET: Duration = Duration::from_millis(100);

/// An attempt whose work has begun. Dropping it ends it without a word.
#[derive(Debug)]
pub(in crate::app) struct Attempt {
    score: Arc<Score>,
    trial: bool,
    doing: Mutex<Doing>,
}

#[derive(Debug)]
struct Doing {
    stage: Stage,
    leaf: NodeKey,
    /// Bytes of the flow before this attempt.
    base: [u64; 2],
    up: Lane,
    down: Lane,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Nothing was sent yet.
    Begun(WorkId),
    Started(ReporterId),
    Reached(ReporterId),
    Ended,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Bytes so far, and those that were told.
    total: u64,
    told: u64,
    /// When bytes moved last, and when that was told last.
    at: Option<Instant>,
    told_at: Option<Instant>,
}

impl Lane {
    fn count(&mut self, total: u64, now: Instant) {
        if total > self.total {
            (self.total, self.at) = (total, Some(now));
        }
    }

    /// Whether there is enough to tell.
    fn is_due(&self, now: Instant) -> bool {
        let new = self.total - self.told;
        let waited = |at: Instant| now.saturating_duration_since(at) >= QUIET;
        new > 0 && (new >= BULK || self.told_at.is_none_or(waited))
    }

    /// What was not told, with its time.
    fn take(&mut self) -> Option<(u64, Instant)> {
        let new = self.total - self.told;
        let at = self.at.filter(|_| new > 0)?;
        (self.told, self.told_at) = (self.total, Some(at));
        Some((new, at))
    }
}

impl Attempt {
    pub(super) fn new(score: Arc<Score>, work: WorkId, leaf: NodeKey, trial: bool) -> Self {
        Self {
            score,
            trial,
            doing: Mutex::new(Doing {
                stage: Stage::Begun(work),
                leaf,
                base: [0; 2],
                up: Lane::default(),
                down: Lane::default(),
            }),
        }
    }

    /// Whether it goes elsewhere on purpose.
    pub(super) fn is_trial(&self) -> bool {
        self.trial
    }

    /// The leaf it is about.
    pub(in crate::app) fn leaf(&self) -> NodeKey {
        self.lock().leaf
    }

    /// Goes on as the attempt that follows it.
    pub(in crate::app) fn follow(&self, next: &Self) {
        self.ended(End::Retired, Instant::now());
        let mut doing = self.lock();
        let mut next = next.lock();
        let stage = std::mem::replace(&mut next.stage, Stage::Ended);
        *doing = Doing {
            stage,
            leaf: next.leaf,
            base: [
                doing.base[0] + doing.up.total,
                doing.base[1] + doing.down.total,
            ],
            up: Lane::default(),
            down: Lane::default(),
        };
    }

    /// Goes on at another leaf, and nothing is learned.
    pub(in crate::app) fn go_to(&self, leaf: NodeKey) {
        self.ended(End::Retired, Instant::now());
        self.lock().leaf = leaf;
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doing {
    fn start(&mut self, engine: &mut Engine, now: T) -> Option<ReporterId> {
        match self.stage {
            Stage::Begun(work) => {
                let reporter = engine.start(now, work, Source::Traffic);
                self.stage = Stage::Started(reporter);
                Some(reporter)
            }
            Stage::Started(reporter) | Stage::Reached(reporter) => Some(reporter),
            Stage::Ended => None,
        }
    }

    /// Tells all bytes that were not told: what was sent before what came for it.
    fn tell(&mut self, score: &Score, engine: &mut Engine, reporter: ReporterId) {
        if let Some((bytes, at)) = self.up.take() {
            let at = score.at(at);
            engine.observe(at, reporter, Obs::Tx { bytes, at });
        }
        let first = self.down.told == 0;
        if let Some((bytes, at)) = self.down.take() {
            let at = score.at(at);
            if first {
                engine.observe(at, reporter, Obs::FirstResponse);
            }
            engine.observe(at, reporter, Obs::Rx { bytes, at });
        }
    }

    /// The end as the engine knows it.
    fn outcome(&self, end: End) -> Outcome {
        let (sent, answered) = (self.up.total > 0, self.down.total > 0);
        let intended = match answered {
            true => Outcome::Success,
            false => Outcome::Cancelled,
        };
        match end {
            End::Failed(Fault::Own) => Outcome::Rejected,
            End::Failed(Fault::Node) => Outcome::NodeFailure,
            End::Failed(Fault::Carrier(event)) | End::CarrierLost(event) => {
                Outcome::SharedNodeFailure(event)
            }
            End::Failed(Fault::Refused) => Outcome::TargetRefused,
            End::Failed(Fault::Silent) => Outcome::TargetTimeout,
            End::Failed(Fault::Unknown) => Outcome::Other,
            End::Broken => Outcome::Io,
            End::Retired => intended,
            End::Closed(reason) => match reason {
                CloseReason::Eof => match self.stage {
                    Stage::Reached(_) => Outcome::Success,
                    _ => Outcome::Cancelled,
                },
                // Nobody answered in all that time.
                CloseReason::Timeout if sent && !answered => Outcome::Timeout,
                CloseReason::Timeout | CloseReason::HandedBack => intended,
                CloseReason::SelectionChanged | CloseReason::Api | CloseReason::Reload => intended,
                CloseReason::Refused => Outcome::Rejected,
                CloseReason::Shutdown => Outcome::Shutdown,
                // An error on the side of the client, or what was told before.
                CloseReason::Reset | CloseReason::DialFailed => Outcome::Cancelled,
            },
        }
    }
}

impl Witness for Attempt {
    fn started(&self, now: Instant) {
        let mut doing = self.lock();
        if !matches!(doing.stage, Stage::Begun(_)) {
            return;
        }
        let mut engine = self.score.lock();
        doing.start(&mut engine, self.score.at(now));
    }

    fn reached(&self, now: Instant) {
        let doing = &mut *self.lock();
        let mut engine = self.score.lock();
        let at = self.score.at(now);
        let Some(reporter) = doing.start(&mut engine, at) else {
            return;
        };
        if matches!(doing.stage, Stage::Reached(_)) {
            return;
        }
        doing.stage = Stage::Reached(reporter);
        engine.observe(at, reporter, Obs::Setup);
        // What waited for this is sent now.
        for lane in [&mut doing.up, &mut doing.down] {
            lane.at = lane.at.map(|_| now);
        }
        doing.tell(&self.score, &mut engine, reporter);
    }

    fn moved(&self, up: u64, down: u64, now: Instant) {
        let mut doing = self.lock();
        let [up_base, down_base] = doing.base;
        doing.up.count(up.saturating_sub(up_base), now);
        doing.down.count(down.saturating_sub(down_base), now);
        let Stage::Reached(reporter) = doing.stage else {
            return;
        };
        if doing.up.is_due(now) || doing.down.is_due(now) {
            let mut engine = self.score.lock();
            doing.tell(&self.score, &mut engine, reporter);
        }
    }

    fn ended(&self, end: End, now: Instant) {
        let mut doing = self.lock();
        let outcome = doing.outcome(end);
        let mut engine = self.score.lock();
        let at = self.score.at(now);
        match doing.stage {
            Stage::Ended => return,
            // A name that does not resolve is a failure of the way to the node, though nothing
            // was sent.
            Stage::Begun(_) if matches!(end, End::Failed(fault) if fault != Fault::Own) => {
                if let Some(reporter) = doing.start(&mut engine, at) {
                    engine.finish(at, reporter, outcome);
                }
            }
            Stage::Begun(work) => engine.release(at, work.attempt()),
            Stage::Started(reporter) => engine.finish(at, reporter, outcome),
            Stage::Reached(reporter) => {
                doing.tell(&self.score, &mut engine, reporter);
                engine.finish(at, reporter, outcome);
            }
        }
        doing.stage = Stage::Ended;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.ended(End::Retired, Instant::now());
    }
}

/// The attempt of a flow, if it has one.
pub(in crate::app) fn of(entry: &FlowEntry) -> Option<&Attempt> {
    let witness: &dyn Any = &**entry.witness.as_ref()?;
    witness.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(end: End, sent: u64, answered: u64) -> Outcome {
        let lane = |total| Lane {
            total,
            ..Lane::default()
        };
        let mut engine = Engine::new(1);
        let now = T::START;
        let key = NodeKey::from(honk_policy::group::builtin::DIRECT);
        let group = honk_policy::score::GroupKey(1);
        let membership = honk_policy::score::Membership {
            generation: 1,
            groups: vec![honk_policy::score::GroupMembers {
                group,
                leaves: vec![key],
                finals: Vec::new(),
            }],
            dormant: Vec::new(),
        };
        engine.activate(now, &membership);
        let ctx = honk_policy::score::Ctx {
            network: honk_policy::id::Network::Tcp,
            family: None,
            target: None,
            dead_filtered: 0,
            joins: None,
        };
        let mode = honk_policy::score::Mode::Fixed;
        let pick = engine.rank(now, group, &ctx, &super::super::only(key), mode);
        let work = engine.begin(now, &pick.unwrap().attempt.unwrap()).unwrap();
        let doing = Doing {
            stage: Stage::Reached(engine.start(now, work, Source::Traffic)),
            leaf: key,
            base: [0; 2],
            up: lane(sent),
            down: lane(answered),
        };
        doing.outcome(end)
    }

    #[test]
    fn every_end_has_its_meaning() {
        let closed = |reason, sent, answered| outcome(End::Closed(reason), sent, answered);
        for (fault, meaning) in [
            (Fault::Own, Outcome::Rejected),
            (Fault::Node, Outcome::NodeFailure),
            (Fault::Carrier(7), Outcome::SharedNodeFailure(7)),
            (Fault::Refused, Outcome::TargetRefused),
            (Fault::Silent, Outcome::TargetTimeout),
            (Fault::Unknown, Outcome::Other),
        ] {
            assert_eq!(outcome(End::Failed(fault), 0, 0), meaning);
        }
        let lost = outcome(End::CarrierLost(3), 1, 1);
        assert_eq!(lost, Outcome::SharedNodeFailure(3));
        assert_eq!(outcome(End::Broken, 1, 1), Outcome::Io);
        assert_eq!(closed(CloseReason::Eof, 1, 0), Outcome::Success);
        assert_eq!(closed(CloseReason::Reset, 1, 1), Outcome::Cancelled);
        assert_eq!(closed(CloseReason::Refused, 0, 0), Outcome::Rejected);
        assert_eq!(closed(CloseReason::Shutdown, 1, 1), Outcome::Shutdown);
        // Silence is a failure only of who was asked and never answered.
        for (sent, answered, meaning) in [
            (0, 0, Outcome::Cancelled),
            (1, 0, Outcome::Timeout),
            (1, 1, Outcome::Success),
        ] {
            assert_eq!(closed(CloseReason::Timeout, sent, answered), meaning);
        }
        for reason in [
            CloseReason::SelectionChanged,
            CloseReason::Api,
            CloseReason::Reload,
        ] {
            assert_eq!(closed(reason, 1, 0), Outcome::Cancelled);
            assert_eq!(closed(reason, 1, 1), Outcome::Success);
        }
        assert_eq!(outcome(End::Retired, 1, 0), Outcome::Cancelled);
    }

    #[test]
    fn the_first_bytes_are_told_at_once_and_later_ones_in_batches() {
        let start = Instant::now();
        let mut lane = Lane::default();
        assert!(!lane.is_due(start));
        lane.count(1, start);
        assert!(lane.is_due(start));
        assert_eq!(lane.take(), Some((1, start)));
        lane.count(100, start);
        assert!(!lane.is_due(start + QUIET / 2));
        assert!(lane.is_due(start + QUIET));
        lane.count(BULK + 1, start);
        assert!(lane.is_due(start));
        assert_eq!(lane.take(), Some((BULK, start)));
        assert_eq!(lane.take(), None);
    }
}
