//! Blocking rtnetlink: one request, one answer.
//!
//! A socket belongs to the network namespace of the thread that opened it. Requests are built
//! with `netlink-packet-route`; answers are read attribute by attribute, so that an attribute
//! this build does not know can never fail a dump. Dumps are read until `NLMSG_DONE`, and an
//! error message is always an error. Called by the namespace and host threads only.

mod address;
mod changes;
mod filter;
pub(crate) mod firewall;
mod link;
mod route;
mod watch;

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NlaBuffer, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

pub(crate) use address::{Address, broadcast};
pub(crate) use changes::Changes;
#[cfg(test)]
pub(crate) use filter::Filter;
pub(crate) use filter::Side;
pub(crate) use link::{ARPHRD_ETHER, End, Link, Pair};
pub(crate) use route::Family;
pub(crate) use watch::Watch;

/// Largest answer the kernel sends in one datagram is 32 KiB; dumps honour the buffer size.
const BUFFER: usize = 64 * 1024;

/// Attempts of a dump that was interrupted by a change.
const DUMP_ATTEMPTS: usize = 8;

/// A request failed: what was asked, and the kernel's answer.
#[derive(Debug, thiserror::Error)]
#[error("netlink: {what}: {source}")]
pub(crate) struct Error {
    pub(crate) what: String,
    pub(crate) source: io::Error,
}

impl Error {
    fn new(what: impl Into<String>, source: io::Error) -> Self {
        Self {
            what: what.into(),
            source,
        }
    }

    /// The kernel's error number, if it was one.
    pub(crate) fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// Whether the thing asked about does not exist (any more).
    pub(crate) fn is_gone(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENODEV | libc::ENOENT | libc::ESRCH | libc::EADDRNOTAVAIL)
        )
    }
}

/// A route socket with strict checking and extended errors where the kernel has them.
#[derive(Debug)]
pub(crate) struct Rtnl {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Rtnl {
    /// Opens a socket in the calling thread's namespace.
    pub(crate) fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Both are younger than the oldest kernel served and only sharpen errors.
            let _ = socket.set_netlink_get_strict_chk(true);
            let _ = socket.set_ext_ack(true);
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(|e| Error::new("open a route socket", e))?,
            sequence: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// Sends a change and waits for the acknowledgement.
    pub(crate) fn change(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: &str,
    ) -> Result<(), Error> {
        let fail = |e| Error::new(what, e);
        let sequence = self
            .send(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map_err(fail)?;
        let mut answer = Ok(());
        self.receive(sequence, |kind, _, payload| {
            if kind == NLMSG_ERROR {
                answer = error_of(payload);
                return Flow::Stop;
            }
            Flow::More
        })
        .map_err(fail)?;
        answer.map_err(fail)
    }

    /// Reads a whole table. Repeats when the kernel says the table changed meanwhile.
    pub(crate) fn dump(
        &mut self,
        message: &RouteNetlinkMessage,
        what: &str,
    ) -> Result<Vec<(u16, Vec<u8>)>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            let (rows, interrupted) = self
                .dump_once(message.clone())
                .map_err(|e| Error::new(what, e))?;
            if !interrupted {
                return Ok(rows);
            }
        }
        let e = io::Error::other("the table kept changing while it was read");
        Err(Error::new(what, e))
    }

    fn dump_once(&mut self, message: RouteNetlinkMessage) -> io::Result<(Rows, bool)> {
        let sequence = self.send(message, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut rows = Vec::new();
        let mut interrupted = false;
        let mut failure = Ok(());
        self.receive(sequence, |kind, flags, payload| {
            interrupted |= flags & NLM_F_DUMP_INTR != 0;
            match kind {
                NLMSG_DONE => {
                    // A dump may end in an error code.
                    failure = error_of(payload);
                    Flow::Stop
                }
                NLMSG_ERROR => {
                    failure = error_of(payload);
                    Flow::Stop
                }
                _ => {
                    rows.push((kind, payload.to_vec()));
                    Flow::More
                }
            }
        })?;
        failure.map(|()| (rows, interrupted))
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let bytes = encode(message, flags, self.sequence);
        let sent = self.socket.send(&bytes, 0)?;
        if sent == bytes.len() {
            Ok(self.sequence)
        } else {
            Err(io::Error::other("short write to a route socket"))
        }
    }

    fn receive(
        &mut self,
        sequence: u32,
        mut each: impl FnMut(u16, u16, &[u8]) -> Flow,
    ) -> io::Result<()> {
        loop {
            let mut room = &mut self.buffer[..];
            let read = match self.socket.recv(&mut room, libc::MSG_TRUNC) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let Some(datagram) = self.buffer.get(..read) else {
                return Err(io::Error::other("answer larger than the buffer"));
            };
            for message in messages(datagram) {
                if message.sequence != sequence {
                    continue; // rest of a request that was given up
                }
                if let Flow::Stop = each(message.kind, message.flags, message.payload) {
                    return Ok(());
                }
            }
        }
    }
}

type Rows = Vec<(u16, Vec<u8>)>;

enum Flow {
    More,
    Stop,
}

/// The bytes of a request.
fn encode(message: RouteNetlinkMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    bytes
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

const HEADER: usize = 16;

/// Splits a datagram; stops at the first header that does not fit.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        if length < HEADER || length > rest.len() {
            return None;
        }
        let message = Message {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            payload: &rest[HEADER..length],
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

fn error_of(payload: &[u8]) -> io::Result<()> {
    match u32_at(payload, 0).map_or(0, u32::cast_signed) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Attributes after a fixed header; ends quietly at malformed bytes.
fn attributes(payload: &[u8], header: usize) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(payload.get(header..).unwrap_or_default())
        .map_while(Result::ok)
        .map(|a: NlaBuffer<&[u8]>| (a.kind(), a.into_inner()))
        .filter_map(|(kind, bytes)| {
            let length = usize::from(u16_at(bytes, 0)?);
            Some((kind, bytes.get(4..length)?))
        })
}

/// A string attribute without its terminator.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn bytes6(value: &[u8]) -> Option<[u8; 6]> {
    value.try_into().ok()
}

#[cfg(test)]
mod tests;
