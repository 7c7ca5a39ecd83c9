//! One TCP flow of an event loop: from the accepted connection to the relay.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    flow::{FlowGuard, OrigDst, Why},
    inbound::counters::Seat,
    outbound::{
        error::Stage, handshake::Handshake, permits::Permit, race::Running, server::Candidates,
        server::ServerState,
    },
    relay::Relay,
    socket::Mark,
};

/// A flow. Dropping it closes its sockets and takes it off the list.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) guard: FlowGuard,
    pub(crate) phase: Phase,
    /// When the dial must have got further, or the last time bytes moved.
    pub(crate) clock: Instant,
    /// What epoll watches the client for.
    pub(crate) watch: Watch,
    /// Keepalive is set.
    pub(crate) kept_alive: bool,
    /// Set while the flow counts as bulk on its loop.
    pub(crate) bulk: Option<Bulk>,
    /// The server, until an answer has come through it.
    pub(crate) unproven: Option<Arc<ServerState>>,
    /// Place under the flow cap.
    pub(crate) seat: Seat,
}

/// Bulk flows per loop: what one loop moves is bounded by one CPU, so they are spread.
#[derive(Debug)]
pub(crate) struct Balance(Box<[AtomicUsize]>);

impl Balance {
    pub(crate) fn new(loops: usize) -> Arc<Self> {
        Arc::new(Self((0..loops).map(|_| AtomicUsize::new(0)).collect()))
    }

    /// Counts a bulk flow on a loop.
    pub(crate) fn enter(self: &Arc<Self>, index: usize) -> Bulk {
        if let Some(count) = self.0.get(index) {
            count.fetch_add(1, Relaxed);
        }
        Bulk(Arc::clone(self), index)
    }

    /// A loop that would still have fewer bulk flows than `index` after taking one over.
    pub(crate) fn better(&self, index: usize) -> Option<usize> {
        let here = self.0.get(index)?.load(Relaxed);
        let counts = self.0.iter().map(|n| n.load(Relaxed)).enumerate();
        let (least, count) = counts.min_by_key(|(_, count)| *count)?;
        (count + 1 < here).then_some(least)
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.0.iter().map(|n| n.load(Relaxed)).collect()
    }
}

/// One flow in a [`Balance`].
#[derive(Debug)]
pub(crate) struct Bulk(Arc<Balance>, usize);

impl Drop for Bulk {
    fn drop(&mut self) {
        if let Some(count) = self.0.0.get(self.1) {
            count.fetch_sub(1, Relaxed);
        }
    }
}

/// What the client's descriptor is registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Nothing,
    /// Registered, but under the token of the time before the flow was decided.
    Elsewhere,
    Input,
    InputAndRoom,
}

/// Where a flow is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// On its way to the server or target; `Flow::clock` is the deadline.
    Dialing(Box<Dial>),
    /// Moving bytes; `Flow::clock` is the last progress.
    Relaying(Box<Relay>),
}

/// A dial under way.
#[derive(Debug)]
pub(crate) struct Dial {
    /// Taken by the relay.
    pub(crate) client: Option<OwnedFd>,
    pub(crate) target: OrigDst,
    /// What a proxy is asked for instead of the address.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) mark: Mark,
    /// `None` when the target is dialed itself.
    pub(crate) server: Option<Arc<ServerState>>,
    pub(crate) candidates: Option<Candidates>,
    pub(crate) permit: Option<Permit>,
    pub(crate) handshake: Option<Handshake>,
    /// Bytes of the handshake to send.
    pub(crate) out: Vec<u8>,
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) connected: bool,
    pub(crate) pipelined: bool,
    /// Pipelining went wrong for this flow.
    pub(crate) serial_only: bool,
    /// Several leaves are tried instead.
    pub(crate) race: Option<Race>,
    /// When the flow arrived.
    pub(crate) arrived: Instant,
    /// When the connect began: waiting for a permit is not the server's slowness.
    pub(crate) started: Instant,
}

/// A race for a flow; dropping it calls it off.
#[derive(Debug)]
pub(crate) struct Race {
    pub(crate) group: Arc<str>,
    pub(crate) why: Why,
    pub(crate) _running: Running,
}

impl Dial {
    /// What is being waited for.
    pub(crate) fn stage(&self) -> Stage {
        match (&self.candidates, &self.handshake) {
            (None, _) if self.server.is_some() => Stage::Resolve,
            (_, Some(handshake)) if self.connected => handshake.stage(),
            _ => Stage::Connect,
        }
    }
}

/// How long a flow may stay in a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// A relay without progress (config.md: constant).
    pub(crate) idle: Duration,
    /// A half-closed relay without progress (datapath.md 5.3).
    pub(crate) half_closed: Duration,
    /// The answer to a greeting.
    pub(crate) greeting: Duration,
    /// The word about a target.
    pub(crate) reply: Duration,
    /// A whole dial.
    pub(crate) dial: Duration,
    /// Time until the next address of a server is tried.
    pub(crate) stagger: Duration,
    /// How often deadlines are looked at while flows dial.
    pub(crate) tick: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(300),
            half_closed: Duration::from_secs(30),
            greeting: crate::outbound::GREETING,
            reply: crate::outbound::REPLY,
            dial: crate::outbound::TOTAL,
            stagger: crate::outbound::STAGGER,
            tick: Duration::from_millis(250),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_better_only_if_moving_helps() {
        let balance = Balance::new(2);
        let first = balance.enter(0);
        assert_eq!(balance.better(0), None, "1 and 0 is as good as 0 and 1");
        let second = balance.enter(0);
        assert_eq!(balance.better(0), Some(1));
        drop(first);
        let _other = balance.enter(1);
        assert_eq!(balance.better(0), None);
        drop(second);
        assert_eq!(balance.counts(), [0, 1]);
    }
}
