//! How other threads talk to an event loop.
//!
//! The queue needs no cap of its own: a flow has at most one check, one lookup, one permit
//! claim and one race under way, is cancelled once and moves to another loop a few times; flows are capped.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use rustix::event::{EventfdFlags, eventfd};

use super::{flow::Flow, slab::Token};
use crate::{
    flow::{CancelHook, CloseReason},
    outbound::{
        error::DialError,
        permits::{Claim, Permit},
        race::{Finish, Reached},
        server::Candidates,
    },
};

/// A message to the loop.
#[derive(Debug)]
pub(crate) enum Command {
    /// Take over a connection that was accepted and admitted by a test.
    #[cfg(test)]
    Adopt(Box<(crate::socket::Accepted, crate::flow::Route)>),
    /// Admit a connection that was accepted by a test.
    #[cfg(test)]
    Arrive(Box<crate::socket::Accepted>),
    /// Take over a bulk flow from a loop that has too many.
    Take(Box<Flow>),
    /// End a flow.
    Cancel(Token, CloseReason),
    /// The server's name was looked up.
    Resolved(Token, Result<Candidates, DialError>),
    /// A dial permit became free.
    Permit(Token, Permit),
    /// A race for a flow has ended.
    Raced(Token, Box<Finish<Reached>>),
    /// The name of a connection that is sniffed was checked.
    Checked(Token),
    /// Accept no more.
    StopAccepting,
    /// Close all flows and end the loop.
    Finish,
}

/// The queue and the event that wakes the loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<Vec<Command>>,
    /// The loop waits, or is about to: whoever sends must write to the event.
    asleep: AtomicBool,
    /// Watched edge-triggered, so nobody has to read it.
    pub(crate) event: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            queue: Mutex::default(),
            asleep: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }

    /// Queues a message; wakes the loop if it sleeps. A loop that is awake, the sender's own
    /// included, looks before it waits.
    pub(crate) fn send(&self, command: Command) {
        self.lock().push(command);
        if self.asleep.swap(false, SeqCst) {
            // Fails only when the counter is full, which takes longer than a century.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Takes all messages. Once it has returned none, a sender wakes the loop, until
    /// [`awake`](Self::awake).
    pub(crate) fn take_or_sleep(&self) -> Vec<Command> {
        self.asleep.store(true, SeqCst);
        let taken = std::mem::take(&mut *self.lock());
        if !taken.is_empty() {
            self.awake();
        }
        taken
    }

    /// The loop runs: no need to wake it.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, SeqCst);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Command>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CancelHook for Mailbox {
    fn cancelled(&self, token: u64, reason: CloseReason) {
        self.send(Command::Cancel(Token(token), reason));
    }
}

/// A flow of this loop in line for a permit.
#[derive(Debug)]
pub(crate) struct FlowClaim {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) token: Token,
}

impl Claim for FlowClaim {
    fn granted(self: Box<Self>, permit: Permit) {
        self.mailbox.send(Command::Permit(self.token, permit));
    }
}
