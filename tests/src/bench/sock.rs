//! Non-blocking sockets and an epoll wrapper for the benchmark's own servers and clients.
//!
//! They must cost as little as possible, because on a small machine everything beside the
//! gateway takes processor time away from it: no runtime, no copy where the kernel can avoid it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, accept_with, bind, connect, listen, shutdown,
    socket_with, sockopt,
};

/// A listener that shares its port with the listeners of other threads.
pub(crate) fn listener(at: SocketAddr) -> Result<OwnedFd> {
    let socket = stream_socket(at)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &at)?;
    listen(&socket, 4096)?;
    Ok(socket)
}

/// Begins a connection; it is open when the socket becomes writable.
pub(crate) fn dial(to: SocketAddr) -> Result<OwnedFd> {
    let socket = stream_socket(to)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Accepts one connection, non-blocking.
pub(crate) fn take(listener: &OwnedFd) -> Result<OwnedFd> {
    let socket = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// Ends the sending direction.
pub(crate) fn finish(socket: &OwnedFd) {
    let _ = shutdown(socket, Shutdown::Write);
}

fn stream_socket(family: SocketAddr) -> Result<OwnedFd> {
    let family = if family.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// An epoll instance whose events carry a number.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    /// A new instance.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(512),
        })
    }

    /// Watches both directions, edge-triggered.
    pub(crate) fn edge(&self, fd: impl AsFd, token: u64) -> Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)
    }

    /// Watches for input, level-triggered.
    pub(crate) fn level(&self, fd: impl AsFd, token: u64) -> Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)
    }

    /// Waits at most `limit` and gives the tokens of what is ready, with whether it failed.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Vec<u64>> {
        let timeout = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        self.events.clear();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            Some(&timeout),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(self.events.iter().map(|event| event.data.u64()).collect())
    }
}
