//! Flows for which several leaves are tried. The race itself runs elsewhere; the loop begins it,
//! calls it off with the flow, and goes on with what it brings.

use std::{sync::Arc, time::Duration};

use honk_policy::{group::Rivals, id::Network};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{
    converse::Early,
    flow::{Phase, Race},
    mailbox::Command,
    slab::Token,
    worker::{SERVER_EVENTS, Worker},
};
use crate::{
    flow::{CloseReason, End, Fault, Why},
    outbound::{
        error::{DialError, Retry},
        race::{self, Ask, Finish, Reached},
    },
};

/// A retry needs at least so much of the time for a whole dial.
const WORTH_IT: Duration = Duration::from_millis(500);

impl Worker {
    /// Tries other leaves after a failure, once per flow; false when there are none to try.
    /// No byte of the client has left so far: it is read by the relay only.
    pub(super) fn retry(&mut self, token: Token, error: &DialError) -> bool {
        if error.retry() != Retry::OtherLeaf {
            return false;
        }
        let whole = self.shared.timeouts.dial;
        let left = match self.dial(token) {
            Some(dial) => (dial.arrived + whole).saturating_duration_since(self.now),
            None => return false,
        };
        if left < WORTH_IT {
            return false;
        }
        let entry = match self.flows.get_mut(token) {
            Some(flow) => Arc::clone(&flow.guard.entry),
            None => return false,
        };
        let Some(rivals) = self.shared.admission.rivals(&entry) else {
            return false;
        };
        self.race(token, rivals, Why::Retry);
        true
    }

    /// Begins a race.
    pub(super) fn race(&mut self, token: Token, rivals: Rivals, why: Why) {
        let (now, whole) = (self.now, self.shared.timeouts.dial);
        let shared = Arc::clone(&self.shared);
        let mailbox = Arc::clone(&self.mailbox);
        let Some(flow) = self.flows.get_mut(token) else {
            return;
        };
        let Phase::Dialing(dial) = &mut flow.phase else {
            return;
        };
        // The racers take permits of their own.
        (dial.socket, dial.permit, dial.handshake) = (None, None, None);
        (dial.connected, dial.server, dial.candidates) = (false, None, None);
        dial.out.clear();
        let deadline = race::deadline(&shared.dialer, now).min(dial.arrived + whole);
        // The race ends by itself then; the loop looks later.
        flow.clock = deadline + shared.timeouts.tick;
        let ask = Ask {
            target: dial.target,
            name: dial.name.clone(),
            mark: dial.mark,
            flow: Arc::clone(&flow.guard.entry),
        };
        let entry = Arc::clone(&flow.guard.entry);
        let Rivals { group, leaves } = rivals;
        let dialer = Arc::clone(&shared.dialer);
        let runner = Arc::clone(&shared.dialer);
        let running = runner.run(async move {
            let dial =
                |rival: &_| race::dial(Arc::clone(&dialer), Clone::clone(rival), ask.clone());
            let still = |rival: &_| shared.admission.eligible(&entry, rival);
            let finish = race::race(leaves, deadline, dial, still).await;
            mailbox.send(Command::Raced(token, Box::new(finish)));
        });
        dial.race = Some(Race {
            group,
            why,
            _running: running,
        });
    }

    /// A race has ended, or should have.
    pub(super) fn raced(&mut self, token: Token, finish: Finish<Reached>) {
        let shared = Arc::clone(&self.shared);
        let Some(flow) = self.flows.get_mut(token) else {
            return;
        };
        let Phase::Dialing(dial) = &mut flow.phase else {
            return;
        };
        let Some(race) = dial.race.take() else {
            return;
        };
        let watched = finish.map(|(rival, reached)| {
            let data = EventData::new_u64(token.server().0);
            let watched = epoll::add(&self.epoll, &reached.socket, data, SERVER_EVENTS);
            watched.map(|()| (rival, reached))
        });
        let won = matches!(watched, Ok(Ok(_)));
        let admission = &shared.admission;
        admission.raced(&race.group, Network::Tcp, race.why, won);
        match watched {
            Ok(Ok((rival, reached))) => {
                flow.guard.entry.served_by(&rival);
                dial.socket = Some(reached.socket);
                (dial.connected, dial.pipelined) = (true, false);
                dial.started = reached.began;
                (dial.server, dial.candidates) = match reached.server {
                    Some((server, candidates)) => (Some(server), Some(candidates)),
                    None => (None, None),
                };
                self.relay(token, EventFlags::empty(), Early::Read(reached.early));
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a socket is not watched");
                flow.guard.entry.ended(End::Failed(Fault::Own));
                self.close(token, CloseReason::DialFailed);
            }
            Err(failures) => {
                // Where nobody has failed, nobody has answered.
                let fault = failures.first().map_or(Fault::Silent, |(_, e)| e.fault());
                flow.guard.entry.ended(End::Failed(fault));
                let dialer = &shared.dialer;
                for (rival, error) in failures {
                    let server = dialer.server(&rival.leaf);
                    dialer.report(&rival.leaf, &error);
                    dialer.feed.failed(&server, race::family(&server), &error);
                    let protocol = &rival.leaf.protocol;
                    dialer.counts.failed(Network::Tcp, protocol, error.result());
                }
                shared.counters.dial_failed.inc();
                self.close(token, CloseReason::DialFailed);
            }
        }
    }
}
