//! The SOCKS5 upstream of the benchmark: the same for every engine, and not the bottleneck.
//!
//! Two event loops share the port. Short relays are copied through one buffer per thread;
//! a relay that has moved much data gets pipes and is spliced from then on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::UPSTREAM;
use super::slab::Slab;
use super::sock::{self, Poll};
use crate::netns::Netns;

const LISTENER: u64 = 1 << 63;
const FAR: u64 = 1 << 62;
const SPLICE_AFTER: u64 = 256 << 10;
const PIPE: usize = 1 << 20;
const THREADS: usize = 2;
/// Command of a SOCKS5 request.
const ASSOCIATE: u8 = 3;

/// A running upstream.
pub(super) struct Upstream {
    stop: Arc<AtomicBool>,
}

impl Upstream {
    /// Listens on one address; no login.
    pub(super) fn start(ns: &Netns, ip: IpAddr) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        super::relay_udp::mirror(ns, ip, &stop)?;
        for _ in 0..THREADS {
            let at = SocketAddr::new(ip, UPSTREAM);
            let listener = ns
                .run(|| sock::listener(at))
                .with_context(|| format!("cannot listen at {at}"))?;
            let stop = Arc::clone(&stop);
            ns.spawn(move || {
                if let Err(error) = serve(listener, &stop) {
                    eprintln!("benchmark upstream ended: {error}");
                }
            });
        }
        Ok(Self { stop })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Greeting,
    Request,
    Connecting,
    Relay,
    /// Datagrams are relayed beside this connection for as long as it lasts.
    Associated,
}

struct Relay {
    near: OwnedFd,
    far: Option<OwnedFd>,
    phase: Phase,
    head: Vec<u8>,
    up: Half,
    down: Half,
}

/// One direction of a relay.
#[derive(Default)]
struct Half {
    moved: u64,
    left: Vec<u8>,
    pipe: Option<(OwnedFd, OwnedFd)>,
    in_pipe: usize,
    ended: bool,
    /// The last call found nothing; true until the next event.
    drained: bool,
    shut: bool,
}

fn serve(listener: OwnedFd, stop: &AtomicBool) -> rustix::io::Result<()> {
    let mut poll = Poll::new()?;
    poll.level(&listener, LISTENER)?;
    let mut relays: Slab<Relay> = Slab::new();
    let mut scratch = vec![0_u8; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        for token in poll.wait(Duration::from_millis(100))? {
            if token == LISTENER {
                accept_some(&listener, &poll, &mut relays)?;
                continue;
            }
            let token = token & !FAR;
            let Some(relay) = relays.get(token) else {
                continue;
            };
            if !matches!(drive(relay, token, &poll, &mut scratch), Ok(false)) {
                relays.remove(token);
            }
        }
    }
    Ok(())
}

fn accept_some(
    listener: &OwnedFd,
    poll: &Poll,
    relays: &mut Slab<Relay>,
) -> rustix::io::Result<()> {
    for _ in 0..64 {
        let Ok(near) = sock::take(listener) else {
            break;
        };
        let token = relays.insert(Relay {
            near,
            far: None,
            phase: Phase::Greeting,
            head: Vec::new(),
            up: Half::default(),
            down: Half::default(),
        });
        if let Some(relay) = relays.get(token) {
            poll.edge(&relay.near, token)?;
        }
    }
    Ok(())
}

/// Does all that can be done now; true when the relay has ended.
fn drive(
    relay: &mut Relay,
    token: u64,
    poll: &Poll,
    scratch: &mut [u8],
) -> rustix::io::Result<bool> {
    if relay.phase == Phase::Associated {
        return match recv(&relay.near, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => Ok(true),
            Ok(_) | Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        };
    }
    if matches!(relay.phase, Phase::Greeting | Phase::Request) {
        match recv(&relay.near, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Ok(true),
            Ok((length, _)) => relay.head.extend(&scratch[..length]),
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
        if !handshake(relay, token, poll)? {
            return Ok(false);
        }
    }
    let Relay {
        near,
        far: Some(far),
        phase,
        up,
        down,
        ..
    } = relay
    else {
        return Ok(false);
    };
    if *phase == Phase::Connecting {
        match rustix::net::sockopt::socket_error(&*far)? {
            Ok(()) if rustix::net::getpeername(&*far).is_ok() => {}
            Ok(()) => return Ok(false),
            Err(error) => return Err(error),
        }
        send(&*near, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0], SendFlags::NOSIGNAL)?;
        *phase = Phase::Relay;
    }
    pump(near, far, up, scratch)?;
    pump(far, near, down, scratch)?;
    Ok(up.shut && down.shut)
}

/// Advances the handshake over what has been read; true once the target is being dialed.
fn handshake(relay: &mut Relay, token: u64, poll: &Poll) -> rustix::io::Result<bool> {
    if relay.phase == Phase::Greeting {
        let Some(&count) = relay.head.get(1) else {
            return Ok(false);
        };
        let length = 2 + usize::from(count);
        if relay.head.len() < length {
            return Ok(false);
        }
        relay.head.drain(..length);
        send(&relay.near, &[5, 0], SendFlags::NOSIGNAL)?;
        relay.phase = Phase::Request;
    }
    let Some((target, length)) = request(&relay.head) else {
        return Ok(false);
    };
    if relay.head[1] == ASSOCIATE {
        // The relay is at the address the client dialed; not every client takes 0.0.0.0 for that.
        let here = SocketAddr::try_from(rustix::net::getsockname(&relay.near)?)?;
        let IpAddr::V4(ip) = here.ip() else {
            return Err(Errno::AFNOSUPPORT);
        };
        let mut reply = vec![5, 0, 0, 1];
        reply.extend(ip.octets());
        reply.extend(here.port().to_be_bytes());
        send(&relay.near, &reply, SendFlags::NOSIGNAL)?;
        relay.phase = Phase::Associated;
        return Ok(false);
    }
    relay.up.left = relay.head.split_off(length);
    let far = sock::dial(target)?;
    poll.edge(&far, token | FAR)?;
    relay.far = Some(far);
    relay.phase = Phase::Connecting;
    Ok(true)
}

/// Target and length of a complete request by address.
fn request(head: &[u8]) -> Option<(SocketAddr, usize)> {
    let (ip, at): (IpAddr, usize) = match *head.get(3)? {
        1 => (
            Ipv4Addr::from(<[u8; 4]>::try_from(head.get(4..8)?).ok()?).into(),
            8,
        ),
        4 => (
            Ipv6Addr::from(<[u8; 16]>::try_from(head.get(4..20)?).ok()?).into(),
            20,
        ),
        _ => return None,
    };
    let port = u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]);
    Some((SocketAddr::new(ip, port), at + 2))
}

/// Moves data one way until the source is empty or the sink full.
fn pump(
    from: &OwnedFd,
    to: &OwnedFd,
    half: &mut Half,
    scratch: &mut [u8],
) -> rustix::io::Result<()> {
    half.drained = false;
    loop {
        if !half.left.is_empty() {
            // The FIN that is due then travels with the data.
            let more = if half.ended {
                SendFlags::MORE
            } else {
                SendFlags::empty()
            };
            match send(to, &half.left, SendFlags::NOSIGNAL | more) {
                Ok(sent) => drop(half.left.drain(..sent)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
            continue;
        }
        if half.in_pipe > 0 {
            let Some((exit, _)) = &half.pipe else {
                return Ok(());
            };
            match splice(exit, None, to, None, half.in_pipe, SpliceFlags::NONBLOCK) {
                Ok(sent) => half.in_pipe -= sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
            continue;
        }
        if half.ended {
            if !half.shut {
                half.shut = true;
                sock::finish(to);
            }
            return Ok(());
        }
        if half.drained {
            return Ok(());
        }
        if half.moved > SPLICE_AFTER && half.pipe.is_none() {
            let (exit, entry) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
            let _ = fcntl_setpipe_size(&entry, PIPE);
            half.pipe = Some((exit, entry));
        }
        let read = match &half.pipe {
            Some((_, entry)) => splice(from, None, entry, None, PIPE, SpliceFlags::NONBLOCK)
                .inspect(|length| half.in_pipe += length),
            None => take(from, half, scratch),
        };
        match read {
            Ok(0) => half.ended = true,
            Ok(length) => half.moved += length as u64,
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Takes what is there, and learns with the same number of calls whether that was the end.
fn take(from: &OwnedFd, half: &mut Half, scratch: &mut [u8]) -> rustix::io::Result<usize> {
    let (length, _) = recv(from, &mut *scratch, RecvFlags::empty())?;
    half.left.extend(&scratch[..length]);
    if (1..scratch.len()).contains(&length) {
        match recv(from, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => half.ended = true,
            Ok((more, _)) => half.left.extend(&scratch[..more]),
            Err(_) => half.drained = true,
        }
    }
    Ok(length)
}
