//! First datagrams of flows that may be QUIC: held until the hello in them has a name, which
//! may take more than one, or until the flow has waited long enough.
//!
//! Only datagrams that look like the beginning of a QUIC connection are held, few of each
//! flow, of a limited number of flows. Where a limit is met, the flow is decided without name.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use honk_wire::sniff::{
    Kind,
    quic::{Session, Step},
};

use super::{
    service::Service,
    shares::Place,
    table::{FlowId, Found, UdpFlow, lock},
};
use crate::{
    flow::{Finding, Undecided, Wake},
    inbound::counters::Seat,
};

/// Flows held at once.
pub(super) const MAX_HOLDS: usize = 1024;
/// Datagrams held of one flow.
const MAX_HELD: usize = 8;
/// Longest time the rest of a hello is awaited.
const PATIENCE: Duration = Duration::from_millis(250);
/// The rest of a hello may take this many times as long as the first byte of a stream.
const PATIENT: u32 = 4;

/// A flow that is held.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) id: FlowId,
    /// Taken by whoever decides the flow.
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    flow: Box<dyn Undecided>,
    /// Place under the cap of flows.
    place: Place,
    /// Seat under the cap of held flows.
    seat: Option<Seat>,
    session: Session,
    datagrams: Vec<Box<[u8]>>,
    /// The name is being checked; further datagrams say nothing new.
    checking: bool,
}

impl State {
    fn look(&mut self, datagram: &[u8]) -> Option<Finding> {
        if self.checking {
            return None;
        }
        match self.session.datagram(datagram) {
            Step::More => None,
            Step::Done(hello) => Some(Finding::Hello(Kind::Quic, hello)),
            Step::Foreign => Some(Finding::Foreign),
        }
    }
}

impl Service {
    /// Looks at the first datagram of a flow. Returns the flow if that was enough.
    pub(super) fn sniff(
        self: &Arc<Self>,
        id: FlowId,
        flow: Box<dyn Undecided>,
        place: Place,
        datagram: &[u8],
        now: Instant,
    ) -> Option<Arc<UdpFlow>> {
        let mut state = State {
            flow,
            place,
            seat: None,
            session: Session::default(),
            datagrams: Vec::new(),
            checking: false,
        };
        let hold = Arc::new(Hold {
            id,
            state: Mutex::new(None),
        });
        // Locked while the name may already be checked: the answer finds the state in place.
        let mut slot = lock(&hold.state);
        let wait = match state.look(datagram) {
            Some(finding) => {
                let Some(wait) = state.flow.found(finding, self.waker(&hold)) else {
                    return self.release(id, state, Some(datagram), now);
                };
                state.checking = true;
                wait
            }
            None => (PATIENT * state.flow.patience()).min(PATIENCE),
        };
        state.seat = self.holds.take();
        if state.seat.is_none() || !self.backlog.take(datagram.len()) {
            self.counters.holds_full.inc();
            return self.give_up_waiting(id, state, Some(datagram), now);
        }
        self.counters.held.inc();
        state.datagrams.push(datagram.into());
        *slot = Some(state);
        drop(slot);
        self.table.hold(&hold);
        let service = Arc::clone(self);
        self.spawn(async move {
            tokio::time::sleep(wait).await;
            service.settle(&hold);
        });
        None
    }

    /// Another datagram of a flow that is held. Returns the flow if the datagram is to be sent
    /// after all.
    pub(super) fn held(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        datagram: &[u8],
        now: Instant,
    ) -> Option<Arc<UdpFlow>> {
        let mut slot = lock(&hold.state);
        let Some(state) = &mut *slot else {
            drop(slot);
            // Decided a moment ago.
            if let Found::Live(flow) = self.table.find(&hold.id, now) {
                return Some(flow);
            }
            self.counters.drop_closed.inc();
            return None;
        };
        if state.datagrams.len() >= MAX_HELD || !self.backlog.take(datagram.len()) {
            self.counters.holds_full.inc();
            let state = slot.take()?;
            drop(slot);
            return self.give_up_waiting(hold.id, state, Some(datagram), now);
        }
        state.datagrams.push(datagram.into());
        if let Some(finding) = state.look(datagram) {
            match state.flow.found(finding, self.waker(hold)) {
                // The timer of the hold goes on: a check may take what is left of it.
                Some(_) => state.checking = true,
                None => {
                    let state = slot.take()?;
                    drop(slot);
                    self.release(hold.id, state, None, now);
                }
            }
        }
        None
    }

    /// Decides a held flow with what is known.
    fn settle(self: &Arc<Self>, hold: &Hold) {
        let state = lock(&hold.state).take();
        if let Some(state) = state {
            self.give_up_waiting(hold.id, state, None, Instant::now());
        }
    }

    fn give_up_waiting(
        self: &Arc<Self>,
        id: FlowId,
        mut state: State,
        last: Option<&[u8]>,
        now: Instant,
    ) -> Option<Arc<UdpFlow>> {
        if !state.checking {
            // Too late for a check as well.
            let finding = Finding::Timeout(Some(Kind::Quic));
            let _ = state.flow.found(finding, Box::new(|| {}));
        }
        self.release(id, state, last, now)
    }

    /// Decides a flow and sends what was held of it. Returns the flow if the last datagram, which
    /// was not held, is still to be sent.
    fn release(
        self: &Arc<Self>,
        id: FlowId,
        state: State,
        last: Option<&[u8]>,
        now: Instant,
    ) -> Option<Arc<UdpFlow>> {
        let State {
            flow,
            place,
            datagrams,
            ..
        } = state;
        let bytes = datagrams.iter().map(|d| d.len()).sum();
        self.backlog.give_back(bytes);
        let flow = match flow.decide() {
            Ok(route) if route.back.is_some() => {
                let mut datagrams = datagrams;
                datagrams.extend(last.map(Box::from));
                self.begin_back(id, route, place, datagrams, now);
                return None;
            }
            decided => self.enlist(id, decided, place, now),
        };
        let Ok(flow) = flow else {
            self.table.unhold(&id);
            // The one that led here was counted.
            let rest = datagrams.len().saturating_sub(1);
            self.counters.drop_policy.add(rest as u64);
            return None;
        };
        self.send_all(&flow, &datagrams, now);
        Some(flow)
    }

    /// Sends datagrams that came before their flow was decided.
    pub(super) fn send_all(
        self: &Arc<Self>,
        flow: &Arc<UdpFlow>,
        datagrams: &[Box<[u8]>],
        now: Instant,
    ) {
        let mut run: Vec<_> = datagrams.iter().map(|d| (Arc::clone(flow), &**d)).collect();
        for (flow, datagram) in &run {
            self.table.touch_up(flow, now);
            flow.entry.counters.add_up(datagram.len() as u64);
            flow.entry.progressed();
        }
        self.send_run(&mut run);
    }

    /// Decides the flow as soon as the check of its name is over. From a task of its own: the
    /// caller may be in the middle of something.
    fn waker(self: &Arc<Self>, hold: &Arc<Hold>) -> Wake {
        let (service, hold) = (Arc::clone(self), Arc::clone(hold));
        Box::new(move || {
            let owner = Arc::clone(&service);
            owner.spawn(async move { service.settle(&hold) });
        })
    }
}
