//! How other threads talk to an event loop.
//!
//! The queue needs no cap of its own: a flow has at most one lookup and one permit claim
//! under way and is cancelled once, and flows are capped.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::event::{EventfdFlags, eventfd};

use super::slab::Token;
use crate::{
    flow::{CancelHook, CloseReason},
    outbound::{
        error::DialError,
        permits::{Claim, Permit},
        server::Candidates,
    },
};

/// A message to the loop.
#[derive(Debug)]
pub(crate) enum Command {
    /// Take over a connection that was accepted and admitted by a test.
    #[cfg(test)]
    Adopt(Box<(crate::socket::Accepted, crate::flow::Route)>),
    /// End a flow.
    Cancel(Token, CloseReason),
    /// The server's name was looked up.
    Resolved(Token, Result<Candidates, DialError>),
    /// A dial permit became free.
    Permit(Token, Permit),
    /// Accept no more.
    StopAccepting,
    /// Close all flows and end the loop.
    Finish,
}

/// The queue and the event that wakes the loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<Vec<Command>>,
    pub(crate) event: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            queue: Mutex::default(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }

    /// Queues a message; wakes the loop if it was idle.
    pub(crate) fn send(&self, command: Command) {
        let was_empty = {
            let mut queue = self.lock();
            queue.push(command);
            queue.len() == 1
        };
        if was_empty {
            // Fails only when the counter is full, and then the loop is awake.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Takes all messages.
    pub(crate) fn take(&self) -> Vec<Command> {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        std::mem::take(&mut *self.lock())
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
