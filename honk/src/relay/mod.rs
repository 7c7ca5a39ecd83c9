//! Moving bytes between two TCP sockets: copy first, splice once a flow turns out to be
//! bulk, half-close both ways.
//!
//! [`Relay`] knows two descriptors and what the event loop said about them; it never waits
//! and never reads the clock. Short flows cost one read and one write per message from a
//! buffer all flows of a loop share; an idle flow owns no buffer and no pipe.

mod lane;
mod whole;

use std::{io, os::fd::OwnedFd};

use rustix::io::Errno;

use self::lane::{Fault, Lane, Pump};
use crate::{
    flow::{CloseReason, FlowCounters},
    socket::pipe::PipePool,
};

/// Bytes of the shared copy buffer.
pub(crate) const SCRATCH: usize = 64 << 10;

/// What the flows of one event loop share.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) scratch: Box<[u8]>,
    pub(crate) pipes: PipePool,
    /// Cleared for the whole loop when the first splice says that it cannot work here.
    pub(crate) splice: bool,
}

impl Shop {
    pub(crate) fn new(pipes: PipePool) -> Self {
        Self {
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            pipes,
            splice: true,
        }
    }
}

/// One end of a relay and what is known about its readiness. The event loop sets flags, the
/// relay clears them when a call would block.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) fd: OwnedFd,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has sent its FIN or an error: after the data that is there comes the end.
    pub(crate) hangup: bool,
    /// It was a FIN and no error, so the data that is there is all there will ever be.
    pub(crate) fin: bool,
    /// Bytes in front of the stream that have been looked at and are nobody's data.
    pub(crate) skip: usize,
    /// Its first segment is not acknowledged until there is an answer.
    pub(crate) unacknowledged: bool,
}

impl End {
    /// Nothing is known yet, so both calls are worth a try.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            readable: true,
            writable: true,
            hangup: false,
            fin: false,
            skip: 0,
            unacknowledged: false,
        }
    }

    /// The end of a client, as its listener has prepared it.
    pub(crate) fn client(fd: OwnedFd) -> Self {
        Self {
            unacknowledged: true,
            ..Self::new(fd)
        }
    }
}

/// A pair of sockets and the two lanes between them.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) client: End,
    pub(crate) server: End,
    up: Lane,
    down: Lane,
    broken: Option<Side>,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing more to do until a socket gets ready.
    Wait,
    /// The budget of this turn is used up; there is more.
    Again,
    /// The flow is over. After anything but `Eof` the sockets want RST.
    Closed(CloseReason),
}

impl Relay {
    /// `early` are bytes the server sent behind its handshake.
    pub(crate) fn new(client: End, server: End, early: Vec<u8>) -> Self {
        Self {
            client,
            server,
            up: Lane::default(),
            down: Lane::with_pending(early),
            broken: None,
        }
    }

    /// Moves what can be moved. Also returns the bytes that arrived at their destination, so
    /// that the caller can tell progress.
    pub(crate) fn step(&mut self, shop: &mut Shop, counters: &FlowCounters) -> (Step, u64) {
        let up = self.up.pump(&mut self.client, &mut self.server, shop);
        counters.add_up(up.moved);
        let down = match up.result {
            Ok(_) => self.down.pump(&mut self.server, &mut self.client, shop),
            Err(_) => Pump::nothing(),
        };
        counters.add_down(down.moved);
        let moved = up.moved + down.moved;
        self.broken = match (&up.result, &down.result) {
            (Err(_), _) => Some(side(self.up.fault(), Side::Client, Side::Server)),
            (_, Err(_)) => Some(side(self.down.fault(), Side::Server, Side::Client)),
            _ => None,
        };
        let step = match (up.result, down.result) {
            (Err(e), _) | (_, Err(e)) => Step::Closed(reason(&e)),
            (Ok(up), Ok(down)) => self.after(up || down),
        };
        (step, moved)
    }

    fn after(&mut self, again: bool) -> Step {
        match (self.up.at_end(), self.down.at_end()) {
            // Closing sends the FIN that is still owed, so no shutdown is needed.
            (true, true) => return Step::Closed(CloseReason::Eof),
            (true, false) => self.up.finish(&self.server),
            // The server's FIN is acknowledged by ours, or by the kernel a moment later.
            (false, true) => self.down.finish(&self.client),
            (false, false) => {}
        }
        if again { Step::Again } else { Step::Wait }
    }

    /// The end whose error ended the flow.
    pub(crate) fn broken(&self) -> Option<Side> {
        self.broken
    }

    /// One direction has ended and the other has not.
    pub(crate) fn half_closed(&self) -> bool {
        self.up.at_end() || self.down.at_end()
    }

    /// Whether the client end waits for room, for the event loop to watch for it.
    pub(crate) fn client_blocked(&self) -> bool {
        !self.client.writable && self.down.holds_bytes()
    }

    /// Whether either lane has spliced.
    pub(crate) fn spliced(&self) -> bool {
        self.up.spliced() || self.down.spliced()
    }

    #[cfg(test)]
    fn has_pipe(&self) -> bool {
        self.up.has_pipe() || self.down.has_pipe()
    }

    /// A socket reported an error. One whose stream has ended would never be read again, so
    /// the error must be looked at here; otherwise reading finds it after the data.
    pub(crate) fn error_is_final(&self, side: Side) -> bool {
        match side {
            Side::Client => self.up.at_end(),
            Side::Server => self.down.at_end(),
        }
    }

    /// Gives pipes back that hold nothing: the flow has been quiet.
    pub(crate) fn rest(&mut self, shop: &mut Shop) {
        self.up.rest(shop);
        self.down.rest(shop);
    }
}

/// Which end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The end a lane had trouble with.
fn side(fault: Fault, from: Side, to: Side) -> Side {
    match fault {
        Fault::From => from,
        Fault::To => to,
    }
}

fn reason(error: &io::Error) -> CloseReason {
    match Errno::from_io_error(error) {
        Some(Errno::TIMEDOUT) => CloseReason::Timeout,
        _ => CloseReason::Reset,
    }
}

#[cfg(test)]
mod tests;
