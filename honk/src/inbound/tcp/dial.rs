//! The steps of a dial: connect, next address, deadlines, failure.

use std::{io, sync::Arc, time::Duration};

use honk_policy::{
    id::{Family, Network},
    node::Protocol,
};
use honk_wire::{Target, socks5::Mode};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{
    converse::Early,
    flow::{Dial, Phase},
    slab::Token,
    worker::{SERVER_EVENTS, Worker},
};
use crate::{
    flow::{CloseReason, End},
    outbound::{
        error::{Class, DialError, Stage},
        handshake::Handshake,
        server::Candidates,
    },
    socket::{self, Kind},
};

impl Worker {
    /// Tries the next address; `last` is the error of the one before.
    pub(super) fn connect(&mut self, token: Token, mut last: Option<DialError>) {
        if let Some(flow) = self.flows.get_mut(token) {
            flow.guard.entry.started();
        }
        loop {
            let now = self.now;
            let Some(dial) = self.dial(token) else {
                return;
            };
            dial.socket = None;
            dial.connected = false;
            dial.started = now;
            let proxied = dial.server.is_some();
            let peer = match &mut dial.candidates {
                Some(candidates) => candidates.advance(),
                None if last.is_none() => Some(dial.target.0),
                None => None,
            };
            let Some(peer) = peer else {
                let none = || DialError::new(Class::Carrier(Stage::Resolve), "no address");
                let error = last.unwrap_or_else(none);
                return self.fail(token, error);
            };
            let started = (|| {
                let fd = socket::open(peer, Kind::Stream, dial.mark)?;
                if proxied {
                    // We speak first: the ACK that completes the handshake can wait for
                    // the greeting and travel with it.
                    socket::delay_acks(&fd, true);
                }
                let done = socket::connect(&fd, peer)?;
                Ok((fd, done))
            })();
            let attempt = started.and_then(|(fd, done)| {
                let data = EventData::new_u64(token.server().0);
                epoll::add(&self.epoll, &fd, data, SERVER_EVENTS)?;
                Ok((fd, done))
            });
            match attempt {
                Ok((fd, done)) => {
                    let timeouts = self.shared.timeouts;
                    let connect = self.shared.dialer.connect_timeout();
                    let Some(dial) = self.dial(token) else {
                        return;
                    };
                    dial.socket = Some(fd);
                    let others = dial.candidates.as_ref().is_some_and(Candidates::more);
                    let wait = if others {
                        connect.min(timeouts.stagger)
                    } else {
                        connect
                    };
                    self.set_deadline(token, wait);
                    if done {
                        self.connected(token, EventFlags::empty());
                    }
                    return;
                }
                Err(error) => last = Some(connect_error(proxied, &error)),
            }
        }
    }

    /// An event of the socket of a dial.
    pub(super) fn dial_event(&mut self, token: Token, flags: EventFlags) {
        let Some(dial) = self.dial(token) else {
            return;
        };
        let Some(fd) = &dial.socket else {
            return;
        };
        if dial.connected {
            if flags.contains(EventFlags::OUT) && !dial.out.is_empty() && !self.flush(token) {
                return;
            }
            let input = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
            if flags.intersects(input) {
                self.converse(token, flags);
            }
        } else if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
            let error = socket::take_error(fd).err().unwrap_or_else(reset);
            let error = connect_error(dial.server.is_some(), &error);
            self.connect(token, Some(error));
        } else if flags.contains(EventFlags::OUT) {
            self.connected(token, flags);
        }
    }

    /// The connect went through: relay at once, or greet the server.
    fn connected(&mut self, token: Token, flags: EventFlags) {
        let greeting = self.shared.timeouts.greeting;
        let Some(dial) = self.dial(token) else {
            return;
        };
        dial.connected = true;
        let Some(server) = &dial.server else {
            return self.relay(token, flags, Early::Unread(0, false));
        };
        if let Some(candidates) = &dial.candidates {
            candidates.worked();
        }
        let mode = if dial.serial_only {
            Mode::Serial
        } else {
            server.mode()
        };
        let target = match &dial.name {
            Some(name) => Target::Name(name, dial.target.0.port()),
            None => Target::Ip(dial.target.0),
        };
        dial.out.clear();
        let protocol = &server.node.protocol;
        match Handshake::start(protocol, &target, mode, &mut dial.out) {
            Ok(handshake) => {
                dial.handshake = handshake;
                dial.pipelined = mode == Mode::Pipelined;
                self.set_deadline(token, greeting);
                self.flush(token);
            }
            Err(error) => self.fail(token, error),
        }
    }

    /// A deadline of a dial passed.
    pub(super) fn dial_timeout(&mut self, token: Token) {
        let Some(dial) = self.dial(token) else {
            return;
        };
        if dial.race.is_some() {
            return self.raced(token, Err(Vec::new()));
        }
        let error = match (&dial.server, dial.stage()) {
            (None, _) => DialError::new(Class::TargetTimeout, "no answer in time"),
            (Some(_), Stage::Connect) if dial.socket.is_none() => {
                DialError::new(Class::LocalResource, "no dial permit became free in time")
            }
            (Some(_), stage) => DialError::timeout(stage),
        };
        if dial.stage() == Stage::Connect && dial.candidates.as_ref().is_some_and(Candidates::more)
        {
            self.connect(token, Some(error));
        } else {
            self.fail(token, error);
        }
    }

    /// The dial is over without success.
    pub(super) fn fail(&mut self, token: Token, error: DialError) {
        let dialer = Arc::clone(&self.shared.dialer);
        let Some(dial) = self.dial(token) else {
            return;
        };
        let protocol = match &dial.server {
            Some(server) => {
                if dial.pipelined {
                    if error.class == Class::TargetTimeout {
                        server.test_again();
                    }
                    let garbled = matches!(
                        error.class,
                        Class::ProxyProtocol | Class::UnknownPreResponse | Class::ProxyAuth
                    );
                    if garbled && !dial.serial_only {
                        // The server is not the one that was tested. No payload has left
                        // yet, so the flow may ask again in small steps.
                        server.doubt();
                        dial.serial_only = true;
                        dial.pipelined = false;
                        dial.handshake = None;
                        dial.candidates = dialer.candidates(server, dial.arrived);
                        return self.connect(token, Some(error));
                    }
                }
                dialer.report(&server.node, &error);
                let family = dial.candidates.as_ref().map(Candidates::family);
                let family = family.unwrap_or(Family::V4);
                dialer.feed.failed(server, family, &error);
                &server.node.protocol
            }
            None => &Protocol::Direct,
        };
        dialer.counts.failed(Network::Tcp, protocol, error.result());
        if let Some(flow) = self.flows.get_mut(token) {
            flow.guard.entry.ended(End::Failed(error.fault()));
        }
        if self.retry(token, &error) {
            return;
        }
        self.shared.counters.dial_failed.inc();
        self.close(token, CloseReason::DialFailed);
    }

    /// The next deadline of a dial: `wait` from now, but never beyond the whole.
    pub(super) fn set_deadline(&mut self, token: Token, wait: Duration) {
        let (now, whole) = (self.now, self.shared.timeouts.dial);
        if let Some(flow) = self.flows.get_mut(token)
            && let Phase::Dialing(dial) = &flow.phase
        {
            flow.clock = (now + wait).min(dial.arrived + whole);
        }
    }

    pub(super) fn dial(&mut self, token: Token) -> Option<&mut Dial> {
        match &mut self.flows.get_mut(token)?.phase {
            Phase::Dialing(dial) => Some(dial),
            Phase::Relaying(_) => None,
        }
    }
}

fn connect_error(proxied: bool, error: &io::Error) -> DialError {
    if proxied {
        DialError::carrier(Stage::Connect, error)
    } else {
        DialError::direct(error)
    }
}
