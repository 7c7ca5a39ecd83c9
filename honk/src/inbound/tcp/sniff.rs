//! Flows whose first bytes have a say: looked at where they lie, within bounds of size and
//! time, before the flow is decided.
//!
//! The bytes stay in the socket (`MSG_PEEK`): no buffer is owned, nothing can be sent twice
//! or lost, and the relay finds the flow as if nobody had looked.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use honk_wire::sniff::{self, Kind, MAX_STREAM, Step};
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{self, RecvFlags},
};

use super::{
    flow::Watch,
    mailbox::Command,
    slab::{Slab, Token},
    worker::{CLIENT_EVENTS, Worker},
};
use crate::{
    flow::{Finding, Undecided},
    inbound::counters::Seat,
    socket::{self, Accepted},
};

/// Marks the tokens of this table among those of flows, whose index never gets so far.
pub(super) const SNIFFING: u64 = 1 << 63;
/// A ClientHello that has begun may take this many times as long as its first byte.
const PATIENT: u32 = 4;

/// A connection whose first bytes are awaited.
#[derive(Debug)]
pub(super) struct Sniffed {
    accepted: Accepted,
    seat: Seat,
    flow: Box<dyn Undecided>,
    /// When the connection was accepted.
    began: Instant,
    until: Instant,
    /// What was seen so far.
    kind: Option<Kind>,
    /// The name is being checked; the bytes are not looked at any more.
    checking: bool,
}

/// The table, and who is to be looked at next.
#[derive(Debug)]
pub(super) struct Sniffing {
    slab: Slab<Sniffed>,
    deadlines: BTreeSet<(Instant, Token)>,
}

impl Sniffing {
    pub(super) fn new() -> Self {
        Self {
            slab: Slab::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// The first deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn remove(&mut self, token: Token) -> Option<Sniffed> {
        let sniffed = self.slab.remove(token)?;
        self.deadlines.remove(&(sniffed.until, token));
        Some(sniffed)
    }

    fn wait_until(&mut self, token: Token, until: Instant) {
        if let Some(sniffed) = self.slab.get_mut(token) {
            self.deadlines.remove(&(sniffed.until, token));
            sniffed.until = until;
            self.deadlines.insert((until, token));
        }
    }

    /// Ends all.
    pub(super) fn clear(&mut self) {
        for token in self.slab.tokens().collect::<Vec<_>>() {
            if let Some(sniffed) = self.remove(token) {
                socket::reset_on_close(&sniffed.accepted.fd);
            }
        }
    }
}

impl Worker {
    /// Waits for the first bytes of a connection.
    pub(super) fn sniff(&mut self, accepted: Accepted, flow: Box<dyn Undecided>, seat: Seat) {
        let now = self.now;
        let until = now + flow.patience();
        let token = self.sniffing.slab.insert(|_| Sniffed {
            accepted,
            seat,
            flow,
            began: now,
            until,
            kind: None,
            checking: false,
        });
        self.sniffing.deadlines.insert((until, token));
        let Some(sniffed) = self.sniffing.slab.get_mut(token) else {
            return;
        };
        // What is there already is reported at once.
        let data = EventData::new_u64(token.0 | SNIFFING);
        if epoll::add(&self.epoll, &sniffed.accepted.fd, data, CLIENT_EVENTS).is_err() {
            self.drop_sniffed(token);
        }
    }

    /// Something happened to a connection of the table.
    pub(super) fn sniff_event(&mut self, data: u64, flags: EventFlags) {
        let token = Token(data & !SNIFFING);
        let Some(sniffed) = self.sniffing.slab.get_mut(token) else {
            return;
        };
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if sniffed.checking && !broken {
            return;
        }
        let bytes = &mut self.shop.scratch[..MAX_STREAM];
        let step = match net::recv(&sniffed.accepted.fd, &mut *bytes, RecvFlags::PEEK) {
            Ok((n, _)) => sniff::stream(&bytes[..n]),
            Err(Errno::AGAIN | Errno::INTR) => return,
            // The client is gone before anybody was asked.
            Err(_) => return self.drop_sniffed(token),
        };
        let finding = match step {
            Step::More(kind) if flags.contains(EventFlags::RDHUP) => Finding::Timeout(kind),
            Step::More(kind) => {
                sniffed.kind = kind;
                if kind == Some(Kind::Tls) {
                    let until = sniffed.began + PATIENT * sniffed.flow.patience();
                    self.sniffing.wait_until(token, until);
                }
                return;
            }
            Step::Done(kind, hello) => Finding::Hello(kind, hello),
            Step::Foreign => Finding::Foreign,
        };
        self.found(token, finding);
    }

    fn found(&mut self, token: Token, finding: Finding) {
        let Some(sniffed) = self.sniffing.slab.get_mut(token) else {
            return;
        };
        let mailbox = Arc::clone(&self.mailbox);
        let wake = Box::new(move || mailbox.send(Command::Checked(token)));
        match sniffed.flow.found(finding, wake) {
            Some(wait) => {
                sniffed.checking = true;
                self.sniffing.wait_until(token, self.now + wait);
            }
            None => self.decide(token),
        }
    }

    /// The name of a flow was checked, or there is nothing to wait for.
    pub(super) fn decide(&mut self, token: Token) {
        let Some(sniffed) = self.sniffing.remove(token) else {
            return;
        };
        match sniffed.flow.decide() {
            Ok(route) => self.begin(sniffed.accepted, route, sniffed.seat, Watch::Elsewhere),
            Err(_) => self.refuse(&sniffed.accepted),
        }
    }

    fn drop_sniffed(&mut self, token: Token) {
        if let Some(sniffed) = self.sniffing.remove(token) {
            socket::reset_on_close(&sniffed.accepted.fd);
        }
    }

    /// Goes on with those that have waited long enough.
    pub(super) fn sniff_timeouts(&mut self) {
        while let Some(&(until, token)) = self.sniffing.deadlines.first()
            && until <= self.now
        {
            let Some(sniffed) = self.sniffing.slab.get_mut(token) else {
                self.sniffing.deadlines.remove(&(until, token));
                continue;
            };
            if sniffed.checking {
                self.decide(token);
            } else {
                let finding = Finding::Timeout(sniffed.kind);
                self.found(token, finding);
            }
        }
    }
}
