//! The event loop: epoll events, messages and deadlines to steps of flows.
//!
//! One loop runs per CPU on a thread of its own instead of the shared runtime: a proxied
//! connection is a dozen system calls, and task wake-ups, timers and readiness bookkeeping
//! per connection would cost as much again. Listeners are in every loop with
//! `EPOLLEXCLUSIVE`, so an idle loop takes the connection and stays with it. A flow lives
//! and dies on its loop; nothing here blocks.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use honk_policy::{id::Network, node::Protocol};
use rustix::{
    buffer::spare_capacity,
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    io::Errno,
};

use super::{
    Peers, Shared,
    flow::{Flow, Phase, Watch},
    mailbox::{Command, Mailbox},
    slab::{Slab, Token},
    sniff::{SNIFFING, Sniffing},
};
use crate::{
    flow::{CloseReason, End},
    outbound::error::DialResult,
    relay::{Shop, Side, Step},
    socket,
    socket::pipe::{PipeBudget, PipePool},
};

/// Events taken per wait.
const EVENTS: usize = 256;
/// Most connections accepted per wake-up of a listener, so that flows get their turn.
const ACCEPTS: usize = 64;
/// Pause of accepting when the process is out of descriptors.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);
/// Interval of the sweep when nothing dials.
const SWEEP: Duration = Duration::from_secs(1);
/// A flow this long without progress gives its pipes back and gets keepalive.
const QUIET: Duration = Duration::from_secs(10);
/// Idle pipes one loop keeps.
const SPARE_PIPES: usize = 64;

/// Event data that are no flow: their slot index is one no slab reaches.
const MAILBOX: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 16;
/// More listeners than families and address kinds there could be.
const MAX_LISTENERS: usize = 16;

/// What is watched on the server's end, from connect on.
pub(super) const SERVER_EVENTS: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
pub(super) const CLIENT_EVENTS: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// One event loop.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) mailbox: Arc<Mailbox>,
    peers: Peers,
    pub(super) epoll: OwnedFd,
    pub(super) flows: Slab<Flow>,
    /// Flows in [`Phase::Dialing`].
    pub(super) dialing: usize,
    /// Connections that are not flows yet.
    pub(super) sniffing: Sniffing,
    pub(super) shop: Shop,
    /// Time of the current turn.
    pub(super) now: Instant,
    again: Vec<Token>,
    /// Accepts per wake-up, between 1 and [`ACCEPTS`].
    accepts: usize,
    /// Counts wake-ups; `full_turn` is the last one that used up `accepts`.
    turns: u64,
    full_turn: u64,
    paused_until: Option<Instant>,
    pub(super) next_sweep: Instant,
    /// Given up for a moment to shed a connection when descriptors run out.
    reserve: Option<OwnedFd>,
    finished: bool,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, peers: Peers, pipes: PipeBudget) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mailbox = match peers.mailboxes.get(peers.own) {
            Some(own) => Arc::clone(own),
            None => Mailbox::new()?,
        };
        let data = EventData::new_u64(MAILBOX);
        epoll::add(
            &epoll,
            &mailbox.event,
            data,
            EventFlags::IN | EventFlags::ET,
        )?;
        let now = Instant::now();
        let worker = Self {
            shared,
            mailbox,
            peers,
            epoll,
            flows: Slab::new(),
            dialing: 0,
            sniffing: Sniffing::new(),
            shop: Shop::new(PipePool::new(pipes, SPARE_PIPES)),
            now,
            again: Vec::new(),
            accepts: 1,
            turns: 1,
            full_turn: 0,
            paused_until: None,
            next_sweep: now,
            reserve: spare_descriptor(),
            finished: false,
        };
        worker.watch_listeners()?;
        Ok(worker)
    }

    /// Runs until [`Command::Finish`].
    pub(super) fn run(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.finished {
            let mail = self.mailbox.take_or_sleep();
            if mail.is_empty() {
                events.clear();
                let timeout = self.timeout();
                let waited =
                    epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
                self.mailbox.awake();
                if let Err(error) = waited
                    && error != Errno::INTR
                {
                    // Only a programming error gets here; ending the flows beats spinning.
                    tracing::error!(%error, "relay_loop_failed");
                    break;
                }
                self.now = Instant::now();
                self.turn(&events);
            }
            for command in mail {
                self.command(command);
            }
        }
        self.sniffing.clear();
        let tokens: Vec<_> = self.flows.tokens().collect();
        for token in tokens {
            self.close(token, CloseReason::Shutdown);
        }
    }

    fn turn(&mut self, events: &[Event]) {
        self.turns += 1;
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            match data {
                // Its only purpose was to end the wait.
                MAILBOX => {}
                LISTENER..MAILBOX => self.accept((data - LISTENER) as usize),
                SNIFFING..LISTENER => self.sniff_event(data, flags),
                token => self.event(Token(token), flags),
            }
        }
        for token in std::mem::take(&mut self.again) {
            self.step(token);
        }
        self.sniff_timeouts();
        if self.paused_until.is_some_and(|until| until <= self.now) {
            self.paused_until = None;
            if let Err(error) = self.watch_listeners() {
                tracing::error!(%error, "listener_lost");
            }
        }
        if self.next_sweep <= self.now {
            self.sweep();
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let mut wait = None;
        if !self.again.is_empty() {
            wait = Some(Duration::ZERO);
        } else if self.flows.len() > 0 {
            wait = Some(self.next_sweep.saturating_duration_since(self.now));
        }
        for until in self.paused_until.into_iter().chain(self.sniffing.next()) {
            let pause = until.saturating_duration_since(self.now);
            wait = Some(wait.map_or(pause, |w| w.min(pause)));
        }
        wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        })
    }

    fn watch_listeners(&self) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        for (i, listener) in self.shared.listeners.iter().enumerate().take(MAX_LISTENERS) {
            let data = EventData::new_u64(LISTENER + i as u64);
            epoll::add(&self.epoll, listener, data, flags)?;
        }
        Ok(())
    }

    fn unwatch_listeners(&self) {
        if self.paused_until.is_none() {
            for listener in self.shared.listeners.iter().take(MAX_LISTENERS) {
                let _ = epoll::delete(&self.epoll, listener);
            }
        }
    }

    /// Accepts as many connections as lately came at once. The listener reports again while
    /// more are queued, so asking until there are none would mostly be a wasted call.
    fn accept(&mut self, index: usize) {
        let budget = self.accepts;
        for n in 0..budget {
            let open = self.shared.accepting.load(Ordering::Relaxed);
            let Some(listener) = self.shared.listeners.get(index) else {
                return;
            };
            if !open || self.paused_until.is_some() {
                return;
            }
            match socket::accept(listener) {
                Ok(accepted) => {
                    self.shared.counters.accepted.inc();
                    self.admit(accepted);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accepts = n.max(1);
                    return;
                }
                Err(error) => {
                    self.shared.counters.accept_errors.inc();
                    if shortage(&error) {
                        self.shed(index);
                        return;
                    }
                    // A connection that died in the queue: the next one may be fine.
                }
            }
        }
        // Two turns in a row with more than the budget: a burst.
        if self.full_turn + 1 == self.turns {
            self.accepts = (budget * 2).min(ACCEPTS);
        }
        self.full_turn = self.turns;
    }

    /// Out of descriptors: one client learns it by a reset, the others wait in the queue.
    fn shed(&mut self, index: usize) {
        self.reserve = None;
        if let Some(listener) = self.shared.listeners.get(index)
            && let Ok(accepted) = socket::accept(listener)
        {
            socket::reset_on_close(&accepted.fd);
            self.shared.counters.shed.inc();
        }
        self.reserve = spare_descriptor();
        self.unwatch_listeners();
        self.paused_until = Some(self.now + SHORTAGE_PAUSE);
    }

    fn command(&mut self, command: Command) {
        match command {
            #[cfg(test)]
            Command::Adopt(flow) => {
                let (accepted, route) = *flow;
                self.adopt(accepted, route);
            }
            #[cfg(test)]
            Command::Arrive(accepted) => self.admit(*accepted),
            Command::Take(flow) => self.take_over(*flow),
            Command::Cancel(token, reason) => self.close(token, reason),
            Command::Resolved(token, result) => self.resolved(token, result),
            Command::Checked(token) => self.decide(token),
            Command::Raced(token, finish) => self.raced(token, *finish),
            Command::Permit(token, permit) => self.permitted(token, permit),
            Command::StopAccepting => {
                self.unwatch_listeners();
                self.paused_until = None;
            }
            Command::Finish => self.finished = true,
        }
    }

    fn event(&mut self, token: Token, flags: EventFlags) {
        let Some(flow) = self.flows.get_mut(token.flow()) else {
            return;
        };
        let Phase::Relaying(relay) = &mut flow.phase else {
            if token.is_server() {
                self.dial_event(token.flow(), flags);
            }
            return;
        };
        let (side, end) = if token.is_server() {
            (Side::Server, &mut relay.server)
        } else {
            (Side::Client, &mut relay.client)
        };
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        end.readable |= broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        end.writable |= broken || flags.contains(EventFlags::OUT);
        end.hangup |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
        end.fin |= flags.contains(EventFlags::RDHUP) && !flags.contains(EventFlags::ERR);
        if flags.contains(EventFlags::ERR) && relay.error_is_final(side) {
            if side == Side::Server {
                flow.guard.entry.ended(End::Broken);
            }
            self.close(token.flow(), CloseReason::Reset);
        } else {
            self.step(token.flow());
        }
    }

    /// Lets a relay move what it can.
    pub(super) fn step(&mut self, token: Token) {
        let Some(flow) = self.flows.get_mut(token) else {
            return;
        };
        let Phase::Relaying(relay) = &mut flow.phase else {
            return;
        };
        let entry = &flow.guard.entry;
        let spliced_before = relay.spliced();
        let (step, moved) = relay.step(&mut self.shop, &entry.counters);
        if moved > 0 {
            flow.clock = self.now;
            entry.progressed();
            if flow.unproven.is_some()
                && entry.counters.down.load(Ordering::Relaxed) > 0
                && let Some(server) = flow.unproven.take()
            {
                self.shared.dialer.feed.first_byte(&server);
            }
        }
        if relay.spliced() && !spliced_before {
            entry.carrier.store(super::SPLICE, Ordering::Relaxed);
            self.shared.counters.spliced.inc();
            flow.bulk = Some(self.peers.balance.enter(self.peers.own));
            if let (Some(to), false) = (
                self.peers.balance.better(self.peers.own),
                matches!(step, Step::Closed(_)),
            ) {
                return self.hand_over(token, to);
            }
        }
        let wanted = match (relay.client_blocked(), flow.watch) {
            (true, _) | (false, Watch::InputAndRoom) => Watch::InputAndRoom,
            (false, _) => Watch::Input,
        };
        match step {
            Step::Closed(reason) => {
                if relay.broken() == Some(Side::Server) {
                    entry.ended(End::Broken);
                }
                return self.close(token, reason);
            }
            Step::Again => self.again.push(token),
            Step::Wait => {}
        }
        if flow.watch == wanted {
            return;
        }
        let data = EventData::new_u64(token.0);
        let fd = &relay.client.fd;
        let watched = match (flow.watch, wanted) {
            (Watch::Nothing, Watch::Input) => epoll::add(&self.epoll, fd, data, CLIENT_EVENTS),
            (Watch::Nothing, _) => epoll::add(&self.epoll, fd, data, SERVER_EVENTS),
            (Watch::Elsewhere, Watch::Input) => epoll::modify(&self.epoll, fd, data, CLIENT_EVENTS),
            _ => epoll::modify(&self.epoll, fd, data, SERVER_EVENTS),
        };
        flow.watch = wanted;
        if watched.is_err() {
            self.close(token, CloseReason::Reset);
        }
    }

    /// Gives a bulk flow to another loop. Short flows stay where they were accepted.
    fn hand_over(&mut self, token: Token, to: usize) {
        let Some(mailbox) = self.peers.mailboxes.get(to).map(Arc::clone) else {
            return;
        };
        let Some(mut flow) = self.flows.remove(token) else {
            return;
        };
        if let Phase::Relaying(relay) = &mut flow.phase {
            relay.rest(&mut self.shop);
            let _ = epoll::delete(&self.epoll, &relay.server.fd);
            if flow.watch != Watch::Nothing {
                let _ = epoll::delete(&self.epoll, &relay.client.fd);
            }
        }
        flow.bulk = None;
        mailbox.send(Command::Take(Box::new(flow)));
    }

    /// Takes a bulk flow over.
    fn take_over(&mut self, mut flow: Flow) {
        flow.bulk = Some(self.peers.balance.enter(self.peers.own));
        flow.watch = Watch::InputAndRoom;
        let entry = Arc::clone(&flow.guard.entry);
        let token = self.flows.insert(|_| flow);
        let Some(Flow {
            phase: Phase::Relaying(relay),
            ..
        }) = self.flows.get_mut(token)
        else {
            return;
        };
        let mut watched = true;
        for (end, token) in [
            (&mut relay.client, token),
            (&mut relay.server, token.server()),
        ] {
            (end.readable, end.writable) = (true, true);
            let data = EventData::new_u64(token.0);
            watched &= epoll::add(&self.epoll, &end.fd, data, SERVER_EVENTS).is_ok();
        }
        if !watched {
            return self.close(token, CloseReason::Reset);
        }
        // Also hears of a cancel that fell between the loops.
        entry.cancel.register(self.mailbox.clone(), token.0);
        self.step(token);
    }

    /// Looks at the clocks of all flows.
    fn sweep(&mut self) {
        let timeouts = self.shared.timeouts;
        let tokens: Vec<_> = self.flows.tokens().collect();
        for token in tokens {
            let Some(flow) = self.flows.get_mut(token) else {
                continue;
            };
            let Phase::Relaying(relay) = &mut flow.phase else {
                if flow.clock <= self.now {
                    self.dial_timeout(token);
                }
                continue;
            };
            let quiet = self.now.saturating_duration_since(flow.clock);
            if relay.half_closed() && quiet >= timeouts.half_closed {
                // Both ends have been told all there is to tell.
                self.close(token, CloseReason::Timeout);
            } else if quiet >= timeouts.idle {
                self.close(token, CloseReason::Timeout);
            } else if quiet >= QUIET {
                relay.rest(&mut self.shop);
                if !flow.kept_alive {
                    flow.kept_alive = true;
                    socket::keepalive(&relay.server.fd);
                    socket::keepalive(&relay.client.fd);
                }
            }
        }
        let interval = if self.dialing > 0 {
            timeouts.tick
        } else {
            SWEEP.min(timeouts.half_closed)
        };
        self.next_sweep = self.now + interval;
    }

    /// Ends a flow: FIN after a clean end, RST otherwise.
    pub(super) fn close(&mut self, token: Token, reason: CloseReason) {
        let Some(flow) = self.flows.remove(token) else {
            return;
        };
        let Flow {
            guard,
            phase,
            seat,
            bulk,
            ..
        } = flow;
        match phase {
            Phase::Dialing(dial) => {
                self.dialing -= 1;
                if reason != CloseReason::DialFailed && dial.race.is_none() {
                    let server = dial.server.as_ref();
                    let protocol = server.map_or(&Protocol::Direct, |s| &s.node.protocol);
                    let counts = &self.shared.dialer.counts;
                    counts.failed(Network::Tcp, protocol, DialResult::Cancelled);
                }
                if let Some(client) = &dial.client {
                    socket::reset_on_close(client);
                }
            }
            Phase::Relaying(mut relay) => {
                relay.rest(&mut self.shop);
                if reason != CloseReason::Eof {
                    socket::reset_on_close(&relay.client.fd);
                    socket::reset_on_close(&relay.server.fd);
                }
            }
        }
        // The sockets are closed by now: their last segments find the kernel entry alive.
        drop((seat, bulk));
        guard.close(reason);
    }
}

fn shortage(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

fn spare_descriptor() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}
