//! Origins of the benchmark: a source that sends without copying, and a one-shot responder.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::seat::{End, Seats};
use super::slab::Slab;
use super::sock::{self, Poll};
use super::{ONE_SHOT, SOURCE};
use crate::netns::Netns;

const CHUNK: usize = 1 << 20;
const LISTENERS: u64 = 1 << 63;

/// Running benchmark origins.
pub(super) struct Targets {
    stop: Arc<AtomicBool>,
}

impl Targets {
    /// Serves on one address with one thread per kind.
    pub(super) fn start(ns: &Netns, ip: IpAddr, seats: Seats) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for (port, serve) in [
            (SOURCE, source as fn(OwnedFd, &AtomicBool) -> _),
            (ONE_SHOT, one_shot),
        ] {
            let at = SocketAddr::new(ip, port);
            let listener = ns
                .run(|| sock::listener(at))
                .with_context(|| format!("cannot listen at {at}"))?;
            let stop = Arc::clone(&stop);
            ns.spawn(move || {
                if port == SOURCE {
                    seats.take(End::Sender);
                }
                if let Err(error) = serve(listener, &stop) {
                    eprintln!("benchmark origin on port {port} ended: {error}");
                }
            });
        }
        Ok(Self { stop })
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends zeros as fast as the peer takes them, straight from memory pages.
fn source(listener: OwnedFd, stop: &AtomicBool) -> rustix::io::Result<()> {
    let pages = memfd_create("source", MemfdFlags::CLOEXEC)?;
    ftruncate(&pages, CHUNK as u64)?;
    let mut poll = Poll::new()?;
    poll.level(&listener, LISTENERS)?;
    let mut streams: Slab<(OwnedFd, u64)> = Slab::new();
    while !stop.load(Ordering::Relaxed) {
        for token in poll.wait(Duration::from_millis(100))? {
            if token == LISTENERS {
                while let Ok(socket) = sock::take(&listener) {
                    let token = streams.insert((socket, 0));
                    if let Some((socket, _)) = streams.get(token) {
                        poll.edge(&*socket, token)?;
                    }
                }
                continue;
            }
            let Some((socket, offset)) = streams.get(token) else {
                continue;
            };
            if fill(socket, &pages, offset).is_err() {
                streams.remove(token);
            }
        }
    }
    Ok(())
}

/// Sends until the socket is full; an error means the peer is gone.
fn fill(socket: &OwnedFd, pages: &OwnedFd, offset: &mut u64) -> rustix::io::Result<()> {
    loop {
        let left = CHUNK - *offset as usize;
        match sendfile(socket, pages, Some(offset), left) {
            Ok(0) => *offset = 0,
            Ok(_) if *offset as usize >= CHUNK => *offset = 0,
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Reads a request, answers 64 bytes and closes first, as an HTTP/1.0 server does.
fn one_shot(listener: OwnedFd, stop: &AtomicBool) -> rustix::io::Result<()> {
    let mut poll = Poll::new()?;
    poll.level(&listener, LISTENERS)?;
    let mut streams: Slab<OwnedFd> = Slab::new();
    let mut buffer = [0_u8; 256];
    while !stop.load(Ordering::Relaxed) {
        for token in poll.wait(Duration::from_millis(100))? {
            if token == LISTENERS {
                for _ in 0..64 {
                    let Ok(socket) = sock::take(&listener) else {
                        break;
                    };
                    let token = streams.insert(socket);
                    if let Some(socket) = streams.get(token) {
                        poll.edge(&*socket, token)?;
                    }
                }
                continue;
            }
            let Some(socket) = streams.get(token) else {
                continue;
            };
            match recv(&*socket, &mut buffer, RecvFlags::empty()) {
                Ok((1.., _)) => {
                    // With the FIN of the close behind it in the same segment.
                    let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
                    let _ = send(&*socket, &[b'.'; 64], flags);
                    streams.remove(token);
                }
                Err(Errno::AGAIN) => {}
                _ => {
                    streams.remove(token);
                }
            }
        }
    }
    Ok(())
}
