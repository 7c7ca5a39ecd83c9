//! The beginning of a flow: admission, the address of the server, a permit. Every step goes on
//! at once or leaves the flow waiting for one message.

use std::sync::Arc;

use honk_policy::{id::Network, node::Protocol};

use super::{
    flow::{Dial, Flow, Phase, Watch},
    mailbox::{Command, FlowClaim},
    slab::Token,
    worker::Worker,
};
use crate::{
    flow::{Answer, ClientAddr, CloseReason, End, NewFlow, OrigDst, Route, Why},
    inbound::counters::Seat,
    outbound::{
        error::{DialError, not_built},
        permits::Permit,
        server::{Candidates, server},
    },
    socket::{self, Accepted},
};

impl Worker {
    /// Asks for admission.
    pub(super) fn admit(&mut self, accepted: Accepted) {
        let Some(seat) = self.shared.cap.take() else {
            self.shared.counters.capacity.inc();
            socket::reset_on_close(&accepted.fd);
            return;
        };
        let flow = NewFlow {
            network: Network::Tcp,
            client: ClientAddr(accepted.client),
            target: OrigDst(accepted.target),
        };
        match self.shared.admission.ask(&flow) {
            Ok(Answer::Go(route)) => self.begin(accepted, route, seat, Watch::Nothing),
            Ok(Answer::Sniff(flow)) => self.sniff(accepted, flow, seat),
            Err(_) => self.refuse(&accepted),
        }
    }

    /// A refusal is a reset, so that the client need not wait.
    pub(super) fn refuse(&self, accepted: &Accepted) {
        self.shared.counters.refused.inc();
        socket::reset_on_close(&accepted.fd);
    }

    /// Takes over a flow admitted elsewhere.
    #[cfg(test)]
    pub(super) fn adopt(&mut self, accepted: Accepted, route: Route) {
        match self.shared.cap.take() {
            Some(seat) => self.begin(accepted, route, seat, Watch::Nothing),
            None => {
                self.shared.counters.capacity.inc();
                socket::reset_on_close(&accepted.fd);
                route.guard.close(CloseReason::Refused);
            }
        }
    }

    /// Starts the way out of an admitted flow.
    pub(super) fn begin(&mut self, accepted: Accepted, route: Route, seat: Seat, watch: Watch) {
        let Route {
            leaf,
            mark,
            name,
            cold,
            guard,
            back: _,
        } = route;
        if leaf.protocol == Protocol::Block {
            socket::reset_on_close(&accepted.fd);
            guard.close(CloseReason::Refused);
            return;
        }
        let dialer = &self.shared.dialer;
        if !leaf.protocol.built() {
            let error = not_built();
            dialer.report(&leaf, &error);
            guard.entry.ended(End::Failed(error.fault()));
            dialer
                .counts
                .failed(Network::Tcp, &leaf.protocol, error.result());
            socket::reset_on_close(&accepted.fd);
            guard.close(CloseReason::DialFailed);
            return;
        }
        let (mark, now) = (dialer.mark(mark), self.now);
        let server = server(&leaf.protocol).map(|_| dialer.server(&leaf));
        let entry = Arc::clone(&guard.entry);
        let token = self.flows.insert(|_| Flow {
            guard,
            clock: now + self.shared.timeouts.dial,
            watch,
            kept_alive: false,
            bulk: None,
            unproven: None,
            seat,
            phase: Phase::Dialing(Box::new(Dial {
                client: Some(accepted.fd),
                target: OrigDst(accepted.target),
                name,
                mark,
                server,
                candidates: None,
                permit: None,
                handshake: None,
                out: Vec::new(),
                socket: None,
                connected: false,
                pipelined: false,
                serial_only: false,
                race: None,
                arrived: now,
                started: now,
            })),
        });
        self.dialing += 1;
        if self.dialing == 1 {
            self.next_sweep = self.next_sweep.min(now + self.shared.timeouts.tick);
        }
        entry.cancel.register(self.mailbox.clone(), token.0);
        match cold {
            Some(rivals) => self.race(token, rivals, Why::Cold),
            None => self.advance(token),
        }
    }

    /// Goes on with a dial that has no socket yet.
    fn advance(&mut self, token: Token) {
        let shared = Arc::clone(&self.shared);
        let Some(dial) = self.dial(token) else {
            return;
        };
        if let Some(server) = &dial.server {
            if dial.candidates.is_none() {
                dial.candidates = shared.dialer.candidates(server, dial.arrived);
            }
            if dial.candidates.is_none() {
                let (server, mailbox) = (Arc::clone(server), Arc::clone(&self.mailbox));
                shared.dialer.resolve(&server, move |result| {
                    mailbox.send(Command::Resolved(token, result));
                });
                return;
            }
            if dial.permit.is_none() {
                dial.permit = shared.dialer.permits.try_take();
            }
            if dial.permit.is_none() {
                let mailbox = Arc::clone(&self.mailbox);
                let claim = FlowClaim { mailbox, token };
                shared.dialer.permits.claim(Box::new(claim));
                return;
            }
        }
        self.connect(token, None);
    }

    pub(super) fn resolved(&mut self, token: Token, result: Result<Candidates, DialError>) {
        match (result, self.dial(token)) {
            (Ok(candidates), Some(dial)) => {
                dial.candidates = Some(candidates);
                self.advance(token);
            }
            (Err(error), Some(_)) => self.fail(token, error),
            (_, None) => {}
        }
    }

    pub(super) fn permitted(&mut self, token: Token, permit: Permit) {
        if let Some(dial) = self.dial(token) {
            dial.permit = Some(permit);
            self.advance(token);
        }
    }
}
