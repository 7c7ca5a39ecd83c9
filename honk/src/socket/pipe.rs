//! Pipes for `splice(2)` and the bounded pool that lends them to flows.
//!
//! A pipe costs two descriptors, so a flow borrows one only while it moves bulk data, and
//! the number of pipes in the process is capped. Only empty pipes come back to the pool.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice},
};

/// Sizes tried in turn. A big pipe is what makes splice faster than copying: 64 KiB, the
/// default, is one round trip of system calls per 64 KiB (performance.md 3.3).
const SIZES: [usize; 2] = [1 << 20, 256 << 10];

/// Bytes asked for in one call. Less than a pipe: a sender that fills the window learns of
/// room only when a call ends, so taking all at once makes both sides wait in turn (measured:
/// one stream gains 9 %, eight gain 4 % over asking for 1 MiB).
const CHUNK: usize = 256 << 10;

/// Pipes all pools together may hold open.
#[derive(Clone, Debug)]
pub(crate) struct PipeBudget {
    open: Arc<AtomicUsize>,
    limit: usize,
}

impl PipeBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            open: Arc::new(AtomicUsize::new(0)),
            limit,
        }
    }

    /// Pipes that exist now, lent or not.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        let grant = |n| (n < self.limit).then_some(n + 1);
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grant)
            .is_ok()
    }
}

/// A pipe and what is in it.
#[derive(Debug)]
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
    budget: PipeBudget,
}

impl Pipe {
    /// A new pipe, or `None` when the budget or the system has none left.
    fn open(budget: &PipeBudget) -> Option<Self> {
        if !budget.take() {
            return None;
        }
        let Ok((read, write)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else {
            budget.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let _ = SIZES
            .iter()
            .find(|&&s| fcntl_setpipe_size(&write, s).is_ok());
        Some(Self {
            read,
            write,
            held: 0,
            budget: budget.clone(),
        })
    }

    /// Bytes inside.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Moves bytes from a socket into the pipe; 0 is the end of the stream.
    pub(crate) fn fill(&mut self, from: &impl AsFd) -> io::Result<usize> {
        let n = moved(splice(from, None, &self.write, None, CHUNK, flags()))?;
        self.held += n;
        Ok(n)
    }

    /// Moves bytes from the pipe into a socket.
    pub(crate) fn drain(&mut self, to: &impl AsFd) -> io::Result<usize> {
        let n = moved(splice(&self.read, None, to, None, self.held, flags()))?;
        self.held -= n.min(self.held);
        Ok(n)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.budget.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn flags() -> SpliceFlags {
    SpliceFlags::MOVE | SpliceFlags::NONBLOCK
}

fn moved(result: Result<usize, Errno>) -> io::Result<usize> {
    result.map_err(io::Error::from)
}

/// Whether an error of the first [`Pipe::fill`] says that these sockets cannot be spliced at
/// all, so that copying is the way.
pub(crate) fn cannot_splice(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INVAL | Errno::NOSYS | Errno::XDEV))
}

/// Idle pipes of one event loop.
#[derive(Debug)]
pub(crate) struct PipePool {
    idle: Vec<Pipe>,
    keep: usize,
    budget: PipeBudget,
}

impl PipePool {
    /// `keep` bounds the idle pipes kept open.
    pub(crate) fn new(budget: PipeBudget, keep: usize) -> Self {
        Self {
            idle: Vec::new(),
            keep,
            budget,
        }
    }

    /// Lends a pipe, if the budget has one.
    pub(crate) fn lend(&mut self) -> Option<Pipe> {
        self.idle.pop().or_else(|| Pipe::open(&self.budget))
    }

    /// Takes a pipe back; one with bytes inside is closed.
    pub(crate) fn give_back(&mut self, pipe: Pipe) {
        if pipe.held == 0 && self.idle.len() < self.keep {
            self.idle.push(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    #[test]
    fn bytes_pass_through() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let (c, mut d) = UnixStream::pair().unwrap();
        let mut pool = PipePool::new(PipeBudget::new(1), 1);
        let mut pipe = pool.lend().unwrap();
        a.write_all(b"hello").unwrap();
        assert_eq!(pipe.fill(&b).unwrap(), 5);
        assert_eq!(pipe.held(), 5);
        assert_eq!(pipe.drain(&c).unwrap(), 5);
        assert_eq!(pipe.held(), 0);
        let mut got = [0; 5];
        d.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        drop(a);
        assert_eq!(pipe.fill(&b).unwrap(), 0, "end of stream");
    }

    #[test]
    fn the_budget_holds_over_all_pools_and_dirty_pipes_are_closed() {
        let budget = PipeBudget::new(2);
        let mut one = PipePool::new(budget.clone(), 8);
        let mut two = PipePool::new(budget.clone(), 8);
        let mut dirty = one.lend().unwrap();
        let clean = two.lend().unwrap();
        assert!(one.lend().is_none() && two.lend().is_none());
        assert_eq!(budget.open(), 2);
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(b"x").unwrap();
        dirty.fill(&b).unwrap();
        one.give_back(dirty);
        two.give_back(clean);
        assert_eq!(
            budget.open(),
            1,
            "the dirty one is gone, the clean one is kept"
        );
        assert!(two.lend().is_some() && one.lend().is_some());
    }

    #[test]
    fn a_file_that_cannot_be_spliced_is_told_apart() {
        let mut pipe = Pipe::open(&PipeBudget::new(1)).unwrap();
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
        let error = pipe.fill(&epoll.unwrap()).unwrap_err();
        assert!(cannot_splice(&error), "{error}");
    }
}
