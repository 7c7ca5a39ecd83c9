//! Signals as events: which one asks for what.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What signals ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Reload,
    Suspend,
    Stop,
    Dump,
}

/// The signals of a daemon.
pub(super) struct Signals {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    pub(super) async fn next(&mut self) -> Event {
        tokio::select! {
            biased;
            _ = self.quit.recv() => Event::Dump,
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
            // A pending suspension wins over a pending reload.
            _ = self.user2.recv() => Event::Suspend,
            _ = self.hangup.recv() => Event::Reload,
            _ = self.user1.recv() => Event::Reload,
        }
    }

    pub(super) async fn stop_again(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}
