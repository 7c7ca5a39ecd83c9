//! Waiting for descriptors, with a way to be woken from another thread.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};

/// An event counter; `notify` ends a `wait`.
#[derive(Debug)]
pub(super) struct Wake {
    fd: OwnedFd,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd })
    }

    pub(super) fn notify(&self) {
        // Fails only when the counter is full, and then the waiter wakes anyway.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Waits until one of `fds` is readable, somebody notifies, or the time has come.
    pub(super) fn wait(&self, fds: &[BorrowedFd<'_>], until: Option<Instant>) -> io::Result<()> {
        let timeout = until.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let mut polled: Vec<PollFd<'_>> = std::iter::once(self.fd.as_fd())
            .chain(fds.iter().copied())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let mut counter = [0u8; 8];
        // Nothing to read is the usual case.
        let _ = rustix::io::read(&self.fd, &mut counter);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_notification_is_not_lost() {
        let wake = Wake::new().unwrap();
        wake.notify();
        wake.notify();
        wake.wait(&[], None).unwrap();
        let start = Instant::now();
        wake.wait(&[], Some(start + Duration::from_millis(30)))
            .unwrap();
        assert!(start.elapsed() >= Duration::from_millis(29));
    }
}
