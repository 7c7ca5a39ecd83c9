//! One direction of a relay.

use std::io;

use rustix::net::{self, RecvFlags, SendFlags, Shutdown};

use super::{End, Shop, whole};
use crate::socket::{
    self,
    pipe::{Pipe, cannot_splice},
};

/// A lane that has moved this much is bulk and gets a pipe.
const BULK: u64 = 128 << 10;
/// Bytes one lane moves before other flows get their turn.
const BUDGET: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tail {
    /// The source may send more.
    #[default]
    Open,
    /// The source has ended; its end has not been passed on.
    Ended,
    /// The end has been passed on.
    Finished,
}

/// Bytes on their way from one end to the other.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Copied bytes the destination did not take, from `at` on.
    pending: Vec<u8>,
    at: usize,
    pipe: Option<Pipe>,
    /// It has had a pipe at some time.
    spliced: bool,
    total: u64,
    tail: Tail,
    fault: Fault,
}

/// Which end of a lane its last error came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    From,
    To,
}

/// What one turn came to: bytes delivered, and whether there is more to do at once.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) moved: u64,
    pub(crate) result: io::Result<bool>,
}

impl Pump {
    pub(crate) fn nothing() -> Self {
        Self {
            moved: 0,
            result: Ok(false),
        }
    }
}

impl Lane {
    pub(crate) fn with_pending(bytes: Vec<u8>) -> Self {
        Self {
            pending: bytes,
            ..Self::default()
        }
    }

    /// Moves bytes until one end blocks, the source ends or the budget is used up.
    pub(crate) fn pump(&mut self, from: &mut End, to: &mut End, shop: &mut Shop) -> Pump {
        let mut moved = 0;
        let result = loop {
            match self.turn(from, to, shop, &mut moved) {
                Ok(true) if moved >= BUDGET => break Ok(true),
                Ok(true) => {}
                Ok(false) => break Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        self.total += moved;
        Pump { moved, result }
    }

    /// The source has ended and everything it sent was delivered.
    pub(crate) fn at_end(&self) -> bool {
        self.tail != Tail::Open && !self.holds_bytes()
    }

    pub(crate) fn holds_bytes(&self) -> bool {
        self.at < self.pending.len() || self.pipe.as_ref().is_some_and(|p| p.held() > 0)
    }

    /// Where an error came from.
    pub(crate) fn fault(&self) -> Fault {
        self.fault
    }

    pub(crate) fn spliced(&self) -> bool {
        self.spliced
    }

    #[cfg(test)]
    pub(crate) fn has_pipe(&self) -> bool {
        self.pipe.is_some()
    }

    /// Passes the end of the source on, once.
    pub(crate) fn finish(&mut self, to: &End) {
        if self.tail == Tail::Ended {
            self.tail = Tail::Finished;
            // A destination that is gone already shows up as an error of the other lane.
            let _ = net::shutdown(&to.fd, Shutdown::Write);
        }
    }

    /// Gives an empty pipe back.
    pub(crate) fn rest(&mut self, shop: &mut Shop) {
        if let Some(pipe) = self.pipe.take_if(|p| p.held() == 0) {
            shop.pipes.give_back(pipe);
        }
    }

    /// One delivery or one read; false when nothing more can be done now.
    fn turn(
        &mut self,
        from: &mut End,
        to: &mut End,
        shop: &mut Shop,
        moved: &mut u64,
    ) -> io::Result<bool> {
        self.fault = Fault::To;
        if self.at < self.pending.len() {
            return self.deliver_pending(to, moved);
        }
        if let Some(pipe) = self.pipe.as_mut().filter(|p| p.held() > 0) {
            if !to.writable {
                return Ok(false);
            }
            let n = unblocked(pipe.drain(&to.fd), &mut to.writable)?;
            *moved += n as u64;
            return Ok(n > 0);
        }
        self.fault = Fault::From;
        if self.tail != Tail::Open {
            self.rest(shop);
            return Ok(false);
        }
        // Reading what cannot be delivered would only fill a buffer of ours instead of the
        // window of the sender.
        if !from.readable || !to.writable {
            return Ok(false);
        }
        if shop.splice && self.pipe.is_none() && self.total + *moved >= BULK {
            self.pipe = shop.pipes.lend();
            self.spliced |= self.pipe.is_some();
        }
        if self.pipe.is_some() {
            self.fill_pipe(from, shop)
        } else {
            self.copy(from, to, shop, moved)
        }
    }

    fn deliver_pending(&mut self, to: &mut End, moved: &mut u64) -> io::Result<bool> {
        if !to.writable {
            return Ok(false);
        }
        let rest = &self.pending[self.at..];
        let sent = net::send(&to.fd, rest, SendFlags::NOSIGNAL).map_err(io::Error::from);
        let n = unblocked(sent, &mut to.writable)?;
        self.at += n;
        *moved += n as u64;
        if self.at == self.pending.len() {
            // Freed, not cleared: an idle flow owns no buffer.
            self.pending = Vec::new();
            self.at = 0;
        }
        Ok(n > 0)
    }

    fn fill_pipe(&mut self, from: &mut End, shop: &mut Shop) -> io::Result<bool> {
        let Some(pipe) = self.pipe.as_mut() else {
            return Ok(true);
        };
        match pipe.fill(&from.fd) {
            Ok(0) => {
                self.tail = Tail::Ended;
                Ok(true)
            }
            Err(e) if cannot_splice(&e) => {
                // No byte has moved through this pipe, so copying takes over seamlessly.
                shop.splice = false;
                self.spliced = false;
                self.rest(shop);
                Ok(true)
            }
            other => Ok(unblocked(other, &mut from.readable)? > 0),
        }
    }

    fn copy(
        &mut self,
        from: &mut End,
        to: &mut End,
        shop: &mut Shop,
        moved: &mut u64,
    ) -> io::Result<bool> {
        let buffer = &mut *shop.scratch;
        let size = buffer.len();
        let received = net::recv(&from.fd, &mut buffer[..], RecvFlags::empty());
        let n = match received.map_err(io::Error::from) {
            Ok((0, _)) => {
                self.tail = Tail::Ended;
                return Ok(true);
            }
            Ok((n, _)) => n,
            Err(e) => {
                unblocked(Err(e), &mut from.readable)?;
                return Ok(false);
            }
        };
        // A short read has emptied the socket: asking again would only be told to wait. With
        // the FIN behind the data the next read finds the end.
        if n < size && !from.hangup {
            from.readable = false;
        }
        // The FIN we owe the destination then travels in the same segment.
        let flags = if from.hangup && n < size {
            SendFlags::NOSIGNAL | SendFlags::MORE
        } else {
            SendFlags::NOSIGNAL
        };
        if from.fin && n < size {
            self.tail = Tail::Ended;
        }
        let skipped = from.skip.min(n);
        from.skip -= skipped;
        let data = &buffer[skipped..n];
        if from.unacknowledged {
            from.unacknowledged = false;
            if !whole::is_request(data) {
                // It may be waiting for this before it sends the rest.
                socket::delay_acks(&from.fd, false);
            }
        }
        if data.is_empty() {
            return Ok(true);
        }
        self.fault = Fault::To;
        let sent = net::send(&to.fd, data, flags).map_err(io::Error::from);
        let sent = unblocked(sent, &mut to.writable)?;
        *moved += sent as u64;
        if sent < data.len() {
            to.writable = false;
            self.pending = data[sent..].to_vec();
            self.at = 0;
        }
        Ok(true)
    }
}

/// Turns "would block" into zero bytes and clears the flag.
fn unblocked(result: io::Result<usize>, ready: &mut bool) -> io::Result<usize> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            *ready = false;
            Ok(0)
        }
        other => other,
    }
}

const _: () = assert!(BULK < BUDGET, "a lane becomes bulk within one turn");
