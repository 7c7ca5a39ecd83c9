//! The steps of a dial: admission, address, permit, connect, handshake, hand-over to the
//! relay. Every step either goes on at once or leaves the flow waiting for one event.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use honk_policy::{id::Network, node::Protocol};
use honk_wire::{Target, socks5::Mode};
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    net::{self, RecvFlags, SendFlags},
};

use super::{
    COPY,
    flow::{Dial, Flow, Phase, Watch},
    mailbox::{Command, FlowClaim},
    slab::Token,
    worker::{SERVER_EVENTS, Worker},
};
use crate::{
    flow::{ClientAddr, CloseReason, NewFlow, OrigDst, Route},
    inbound::counters::Seat,
    outbound::{
        error::{Class, DialError, Stage},
        handshake::{Handshake, Progress},
        permits::Permit,
        server::{Candidates, server},
    },
    relay::{End, Relay},
    socket::{self, Accepted, Kind},
};

impl Worker {
    /// Asks for admission; a refusal is a reset, so that the client need not wait.
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
        match self.shared.admission.admit(&flow) {
            Ok(route) => self.begin(accepted, route, seat),
            Err(_) => {
                self.shared.counters.refused.inc();
                socket::reset_on_close(&accepted.fd);
            }
        }
    }

    /// Takes over a flow admitted elsewhere.
    pub(super) fn adopt(&mut self, accepted: Accepted, route: Route) {
        match self.shared.cap.take() {
            Some(seat) => self.begin(accepted, route, seat),
            None => {
                self.shared.counters.capacity.inc();
                socket::reset_on_close(&accepted.fd);
                route.guard.close(CloseReason::Refused);
            }
        }
    }

    fn begin(&mut self, accepted: Accepted, route: Route, seat: Seat) {
        let Route {
            leaf, mark, guard, ..
        } = route;
        if leaf.protocol == Protocol::Block {
            socket::reset_on_close(&accepted.fd);
            guard.close(CloseReason::Refused);
            return;
        }
        let dialer = &self.shared.dialer;
        let (mark, now) = (dialer.mark(mark), self.now);
        let server = server(&leaf.protocol).map(|_| dialer.server(&leaf));
        let entry = Arc::clone(&guard.entry);
        let token = self.flows.insert(|_| Flow {
            guard,
            clock: now + self.shared.timeouts.dial,
            watch: Watch::Nothing,
            kept_alive: false,
            seat,
            phase: Phase::Dialing(Box::new(Dial {
                client: Some(accepted.fd),
                target: OrigDst(accepted.target),
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
                arrived: now,
                started: now,
            })),
        });
        self.dialing += 1;
        if self.dialing == 1 {
            self.next_sweep = self.next_sweep.min(now + self.shared.timeouts.tick);
        }
        entry.cancel.register(self.mailbox.clone(), token.0);
        self.advance(token);
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

    /// Tries the next address; `last` is the error of the one before.
    fn connect(&mut self, token: Token, mut last: Option<DialError>) {
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
            return self.relay(token, flags, Vec::new());
        };
        if let Some(candidates) = &dial.candidates {
            candidates.worked();
        }
        let mode = if dial.serial_only {
            Mode::Serial
        } else {
            server.mode()
        };
        let target = Target::Ip(dial.target.0);
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

    /// Sends what the handshake wants to say; false when the flow has failed.
    fn flush(&mut self, token: Token) -> bool {
        let Some(dial) = self.dial(token) else {
            return false;
        };
        let (Some(fd), false) = (&dial.socket, dial.out.is_empty()) else {
            return true;
        };
        match net::send(fd, &dial.out, SendFlags::NOSIGNAL).map_err(io::Error::from) {
            Ok(n) => {
                dial.out.drain(..n);
                true
            }
            // An event tells when there is room.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => true,
            Err(e) => {
                let error = DialError::carrier(dial.stage(), &e);
                self.fail(token, error);
                false
            }
        }
    }

    /// Reads answers of the handshake.
    fn converse(&mut self, token: Token, flags: EventFlags) {
        let reply = self.shared.timeouts.reply;
        // The shared buffer is lent out while `self` is needed whole.
        let mut scratch = std::mem::take(&mut self.shop.scratch);
        let mut agreed = None;
        while let Some(dial) = self.dial(token) {
            let (Some(fd), Some(handshake)) = (&dial.socket, &mut dial.handshake) else {
                break;
            };
            let n = match net::recv(fd, &mut scratch[..], RecvFlags::empty()) {
                Ok((n, _)) => n,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => {
                    let error = DialError::carrier(handshake.stage(), &e.into());
                    self.fail(token, error);
                    break;
                }
            };
            if n == 0 {
                let error = handshake.eof();
                self.fail(token, error);
                break;
            }
            let before = handshake.stage();
            match handshake.read(&scratch[..n], &mut dial.out) {
                Ok(Progress::More) => {
                    if dial.pipelined {
                        // The server may hold its next answer back until this one is
                        // acknowledged (Nagle), and we have nothing to send with it.
                        socket::delay_acks(fd, false);
                    }
                    if before != handshake.stage() && handshake.stage() == Stage::Reply {
                        self.set_deadline(token, reply);
                    }
                    if !self.flush(token) {
                        break;
                    }
                }
                Ok(Progress::Done(used)) => {
                    // Empty as a rule: most servers send nothing before they are asked.
                    let early = scratch.get(used..n).unwrap_or(&[]).to_vec();
                    agreed = Some((n == scratch.len(), early));
                    break;
                }
                Err(error) => {
                    self.fail(token, error);
                    break;
                }
            }
            if n < scratch.len() && !flags.contains(EventFlags::RDHUP) {
                break;
            }
        }
        self.shop.scratch = scratch;
        if let Some((more, early)) = agreed {
            let input = EventFlags::IN;
            let flags = if more { flags | input } else { flags - input };
            self.relay(token, flags, early);
        }
    }

    /// Hands the flow over to the relay. `flags` tell whether the server has more to read.
    fn relay(&mut self, token: Token, flags: EventFlags, early: Vec<u8>) {
        let Some(flow) = self.flows.get_mut(token) else {
            return;
        };
        let Phase::Dialing(dial) = &mut flow.phase else {
            return;
        };
        let (Some(client), Some(socket)) = (dial.client.take(), dial.socket.take()) else {
            return;
        };
        let took = self.now.saturating_duration_since(dial.started);
        let (server, pipelined) = (dial.server.take(), dial.pipelined);
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
        let server_end = End {
            fd: socket,
            readable: ended || flags.contains(EventFlags::IN),
            writable: true,
            hangup: ended,
        };
        // Dropping the dial gives its permit back.
        flow.phase = Phase::Relaying(Box::new(Relay::new(End::new(client), server_end, early)));
        flow.clock = self.now;
        flow.guard.entry.carrier.store(COPY, Ordering::Relaxed);
        self.dialing -= 1;
        let dialer = &self.shared.dialer;
        match &server {
            Some(server) => {
                dialer.counts.ok(Network::Tcp, &server.node.protocol, took);
                if !pipelined {
                    dialer.learn(server);
                }
            }
            None => dialer.counts.ok(Network::Tcp, &Protocol::Direct, took),
        }
        self.step(token);
    }

    /// A deadline of a dial passed.
    pub(super) fn dial_timeout(&mut self, token: Token) {
        let Some(dial) = self.dial(token) else {
            return;
        };
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
    fn fail(&mut self, token: Token, error: DialError) {
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
                &server.node.protocol
            }
            None => &Protocol::Direct,
        };
        dialer.counts.failed(Network::Tcp, protocol, error.result());
        self.shared.counters.dial_failed.inc();
        self.close(token, CloseReason::DialFailed);
    }

    /// The next deadline of a dial: `wait` from now, but never beyond the whole.
    fn set_deadline(&mut self, token: Token, wait: Duration) {
        let (now, whole) = (self.now, self.shared.timeouts.dial);
        if let Some(flow) = self.flows.get_mut(token)
            && let Phase::Dialing(dial) = &flow.phase
        {
            flow.clock = (now + wait).min(dial.arrived + whole);
        }
    }

    fn dial(&mut self, token: Token) -> Option<&mut Dial> {
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
