//! Transparent TCP: event loops that accept, dial and relay.

mod admit;
mod converse;
mod dial;
mod flow;
mod mailbox;
mod race;
mod slab;
mod sniff;
mod worker;

use std::{
    io,
    net::TcpListener,
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use self::{flow::Balance, mailbox::Mailbox, worker::Worker};
use super::counters::{Cap, TcpCounters};
use crate::{dns::Dns, flow::Admission, outbound::Dialer, socket::pipe::PipeBudget};

pub(crate) use self::{flow::Timeouts, mailbox::Command};

/// Values of `FlowEntry::carrier`, see `flow::CARRIERS`.
const COPY: u8 = 1;
const SPLICE: u8 = 2;

/// What all loops share.
pub(crate) struct Shared {
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) dns: Arc<Dns>,
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) counters: TcpCounters,
    pub(crate) cap: Arc<Cap>,
    pub(crate) timeouts: Timeouts,
    /// Cleared for good by [`Loops::stop_accepting`].
    pub(crate) accepting: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("listeners", &self.listeners)
            .field("cap", &self.cap)
            .finish_non_exhaustive()
    }
}

/// What a loop knows of the others.
#[derive(Clone, Debug)]
struct Peers {
    mailboxes: Vec<Arc<Mailbox>>,
    /// Index of the loop itself.
    own: usize,
    balance: Arc<Balance>,
}

/// The running loops.
#[derive(Debug)]
pub(crate) struct Loops {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pipes: PipeBudget,
    mailboxes: Vec<Arc<Mailbox>>,
    balance: Arc<Balance>,
    threads: Vec<JoinHandle<()>>,
}

impl Loops {
    /// Starts `count` loops. They inherit the network namespace of the caller, which must be
    /// the one flows leave from.
    pub(crate) fn start(shared: Shared, pipes: PipeBudget, count: usize) -> io::Result<Self> {
        for listener in &shared.listeners {
            listener.set_nonblocking(true)?;
            crate::socket::prepare_listener(listener)?;
        }
        let mut loops = Self {
            shared: Arc::new(shared),
            pipes: pipes.clone(),
            mailboxes: Vec::new(),
            balance: Balance::new(0),
            threads: Vec::new(),
        };
        let mailboxes: Vec<_> = (0..count.max(1))
            .map(|_| Mailbox::new())
            .collect::<io::Result<_>>()?;
        let balance = Balance::new(mailboxes.len());
        for n in 0..mailboxes.len() {
            let peers = Peers {
                mailboxes: mailboxes.clone(),
                own: n,
                balance: Arc::clone(&balance),
            };
            let (shared, pipes) = (Arc::clone(&loops.shared), pipes.clone());
            let make = move || Worker::new(Arc::clone(&shared), peers.clone(), pipes.clone());
            let first = make()?;
            let builder = std::thread::Builder::new().name(format!("honk-tcp-{n}"));
            loops.threads.push(builder.spawn(move || run(first, make))?);
        }
        loops.mailboxes = mailboxes;
        loops.balance = balance;
        Ok(loops)
    }

    /// Takes no new connections.
    pub(crate) fn stop_accepting(&self) {
        self.shared.accepting.store(false, Ordering::Relaxed);
        self.send_all(|| Command::StopAccepting);
    }

    fn send_all(&self, command: impl Fn() -> Command) {
        for mailbox in &self.mailboxes {
            mailbox.send(command());
        }
    }

    /// Ends all loops and waits for their threads; blocks for at most one turn of each.
    pub(crate) fn finish(&mut self) {
        self.send_all(|| Command::Finish);
        for thread in self.threads.drain(..) {
            // Panics were caught and told inside.
            let _ = thread.join();
        }
    }
}

/// Runs a loop. A panic is a bug that ends the flows of this loop, not the gateway: the loop
/// starts afresh.
fn run(mut worker: Worker, make: impl Fn() -> io::Result<Worker>) {
    loop {
        let ended = panic::catch_unwind(panic::AssertUnwindSafe(|| worker.run()));
        if ended.is_ok() {
            return;
        }
        tracing::error!("relay_loop_panicked");
        match make() {
            Ok(fresh) => worker = fresh,
            Err(error) => {
                tracing::error!(%error, "relay_loop_lost");
                return;
            }
        }
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests;
