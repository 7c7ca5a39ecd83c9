//! Messages to the service manager, and the watchdog that speaks only for a live daemon.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

/// A supervised task older than this has stopped making progress.
const STALE: Duration = Duration::from_secs(20);

/// Tasks without which the daemon is not alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Signals, reloads, stop.
    Control,
    /// Kernel counters and group slots.
    Sampler,
}

impl Task {
    pub(crate) const ALL: [(Self, &'static str); 2] =
        [(Self::Control, "control"), (Self::Sampler, "sampler")];
}

/// When each supervised task last showed progress.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    start: Instant,
    /// Milliseconds after `start`.
    beats: [AtomicU64; Task::ALL.len()],
}

impl Heartbeats {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            start: now,
            beats: Default::default(),
        }
    }

    pub(crate) fn beat(&self, task: Task, now: Instant) {
        self.beats[task as usize].store(self.millis(now), Ordering::Relaxed);
    }

    pub(crate) fn age(&self, task: Task, now: Instant) -> Duration {
        let beat = self.beats[task as usize].load(Ordering::Relaxed);
        Duration::from_millis(self.millis(now).saturating_sub(beat))
    }

    /// Whether every task is fresh.
    pub(crate) fn alive(&self, now: Instant) -> bool {
        Task::ALL
            .iter()
            .all(|(task, _)| self.age(*task, now) < STALE)
    }

    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

/// Half of what the service manager allows, if it watches this process.
pub(crate) fn watchdog_period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// Start-up is over.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A reload begins. Without the timestamp systemd would not believe it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell the time to the service manager"),
    }
}

/// The daemon leaves.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// One line for `systemctl status`.
pub(crate) fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// A start takes longer than usual.
pub(crate) fn checking(text: &str) {
    const MORE: Duration = Duration::from_secs(30);
    let micros = u32::try_from(MORE.as_micros()).unwrap_or(u32::MAX);
    let more = NotifyState::ExtendTimeoutUsec(micros);
    send(&[more, NotifyState::Status(text)]);
}

/// Everything is alive.
pub(crate) fn watchdog() {
    send(&[NotifyState::Watchdog]);
}

/// Without a service manager this does nothing.
fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stuck_task_silences_the_watchdog() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let beats = Heartbeats::new(start);
        assert!(beats.alive(at(19)));
        beats.beat(Task::Control, at(15));
        assert!(!beats.alive(at(21)), "the sampler never beat");
        beats.beat(Task::Sampler, at(21));
        assert!(beats.alive(at(21)));
        assert_eq!(beats.age(Task::Control, at(21)), Duration::from_secs(6));
    }
}
