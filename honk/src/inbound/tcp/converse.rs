//! The conversation with a server after the connect, and the hand-over to the relay.

use std::{io, os::fd::OwnedFd, sync::atomic::Ordering};

use honk_policy::{
    id::{Family, Network},
    node::Protocol,
};
use rustix::{
    event::epoll::{self, EventFlags},
    net::{self, RecvFlags, SendFlags},
};

use super::{
    COPY,
    flow::{Flow, Phase},
    slab::Token,
    worker::Worker,
};
use crate::{
    dns,
    outbound::{
        error::{DialError, Stage},
        handshake::Progress,
        server::Candidates,
    },
    relay::{End, Relay},
    socket,
};

/// What the server sent in one piece with the last answer of the handshake.
#[derive(Debug)]
pub(super) enum Early {
    /// Bytes behind the answer, taken off the socket with it.
    Read(Vec<u8>),
    /// Everything is still in the socket, with this much of the answer in front, and whether
    /// there is something behind it.
    Unread(usize, bool),
}

impl Worker {
    /// Sends what the handshake wants to say; false when the flow has failed.
    pub(super) fn flush(&mut self, token: Token) -> bool {
        let Some(dial) = self.dial(token) else {
            return false;
        };
        let (Some(fd), false) = (&dial.socket, dial.out.is_empty()) else {
            return true;
        };
        match net::send(fd, &dial.out, SendFlags::NOSIGNAL).map_err(io::Error::from) {
            Ok(n) => {
                dial.out.drain(..n);
                true
            }
            // An event tells when there is room.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => true,
            Err(e) => {
                let error = DialError::carrier(dial.stage(), &e);
                self.fail(token, error);
                false
            }
        }
    }

    /// Reads answers of the handshake.
    pub(super) fn converse(&mut self, token: Token, flags: EventFlags) {
        let reply = self.shared.timeouts.reply;
        // The shared buffer is lent out while `self` is needed whole.
        let mut scratch = std::mem::take(&mut self.shop.scratch);
        let mut agreed = None;
        while let Some(dial) = self.dial(token) {
            let (Some(fd), Some(handshake)) = (&dial.socket, &mut dial.handshake) else {
                break;
            };
            // Looking first and taking later saves a packet: taking the answer acknowledges it
            // at once, but the client's first bytes, if they are here, can do that.
            let look = if dial.pipelined {
                RecvFlags::PEEK
            } else {
                RecvFlags::empty()
            };
            let n = match net::recv(fd, &mut scratch[..], look) {
                Ok((n, _)) => n,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => {
                    let error = DialError::carrier(handshake.stage(), &e.into());
                    self.fail(token, error);
                    break;
                }
            };
            if n == 0 {
                let error = handshake.eof();
                self.fail(token, error);
                break;
            }
            let before = handshake.stage();
            match handshake.read(&scratch[..n], &mut dial.out) {
                Ok(Progress::More) => {
                    if dial.pipelined
                        && net::recv(fd, &mut scratch[..n], RecvFlags::empty()).is_err()
                    {
                        break;
                    }
                    if dial.pipelined && dial.server.as_ref().is_some_and(|s| s.holds_back()) {
                        // It waits for the acknowledgement of this answer before the next,
                        // and we have nothing to send with it.
                        socket::delay_acks(fd, false);
                    }
                    if before != handshake.stage() && handshake.stage() == Stage::Reply {
                        self.set_deadline(token, reply);
                    }
                    if !self.flush(token) {
                        break;
                    }
                }
                Ok(Progress::Done(used)) => {
                    // Empty as a rule: most servers send nothing before they are asked.
                    let early = if dial.pipelined {
                        Early::Unread(used, n > used)
                    } else {
                        Early::Read(scratch.get(used..n).unwrap_or(&[]).to_vec())
                    };
                    agreed = Some((n == scratch.len(), early));
                    break;
                }
                Err(error) => {
                    self.fail(token, error);
                    break;
                }
            }
            if n < scratch.len() && !flags.contains(EventFlags::RDHUP) {
                break;
            }
        }
        self.shop.scratch = scratch;
        if let Some((more, early)) = agreed {
            let input = EventFlags::IN;
            let flags = if more { flags | input } else { flags - input };
            self.relay(token, flags, early);
        }
    }

    /// Hands the flow over to the relay. `flags` tell whether the server has more to read.
    pub(super) fn relay(&mut self, token: Token, flags: EventFlags, early: Early) {
        let Some(flow) = self.flows.get_mut(token) else {
            return;
        };
        let Phase::Dialing(dial) = &mut flow.phase else {
            return;
        };
        let (Some(client), Some(socket)) = (dial.client.take(), dial.socket.take()) else {
            return;
        };
        let took = self.now.saturating_duration_since(dial.started);
        let (server, pipelined) = (dial.server.take(), dial.pipelined);
        let family = dial.candidates.as_ref().map(Candidates::family);
        let dialer = &self.shared.dialer;
        match &server {
            Some(server) => {
                dialer.counts.ok(Network::Tcp, &server.node.protocol, took);
                let family = family.unwrap_or(Family::V4);
                dialer.feed.dialed(server, family, took);
                if !pipelined {
                    dialer.learn(server);
                }
            }
            None => dialer.counts.ok(Network::Tcp, &Protocol::Direct, took),
        }
        self.dialing -= 1;
        flow.guard.entry.reached();
        if dns::concerns(&flow.guard.entry) {
            return self.hand_to_dns(token, client, socket, early);
        }
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
        let (early, (skip, behind)) = match early {
            Early::Read(bytes) => (bytes, (0, false)),
            Early::Unread(length, behind) => (Vec::new(), (length, behind)),
        };
        let server_end = End {
            fd: socket,
            readable: ended || behind || flags.contains(EventFlags::IN),
            writable: true,
            hangup: ended,
            fin: flags.contains(EventFlags::RDHUP) && !flags.contains(EventFlags::ERR),
            skip,
            unacknowledged: false,
        };
        // Dropping the dial gives its permit back.
        flow.phase = Phase::Relaying(Box::new(Relay::new(End::client(client), server_end, early)));
        flow.clock = self.now;
        flow.guard.entry.carrier.store(COPY, Ordering::Relaxed);
        flow.unproven = server;
        self.step(token);
        // The answer can wait for what comes behind it, if the client's bytes acknowledged it.
        if skip > 0
            && let Some(flow) = self.flows.get_mut(token)
            && flow.guard.entry.counters.up.load(Ordering::Relaxed) == 0
            && let Phase::Relaying(relay) = &mut flow.phase
        {
            relay.server.readable = true;
            self.step(token);
        }
    }

    /// A connection to port 53 is carried message by message, elsewhere.
    fn hand_to_dns(&mut self, token: Token, client: OwnedFd, server: OwnedFd, early: Early) {
        let early = match early {
            Early::Read(bytes) => bytes,
            Early::Unread(length, _) => {
                // They have been seen, so they are there to be taken.
                let _ = net::recv(&server, &mut vec![0; length][..], RecvFlags::empty());
                Vec::new()
            }
        };
        // Some clients send the length of a query in a segment of its own.
        socket::delay_acks(&client, false);
        // The client is not watched before the relay.
        let _ = epoll::delete(&self.epoll, &server);
        if let Some(Flow { guard, seat, .. }) = self.flows.remove(token) {
            guard.entry.carrier.store(COPY, Ordering::Relaxed);
            self.shared.dns.carry(dns::Carried {
                client,
                server,
                early,
                guard,
                seat: Box::new(seat),
            });
        }
    }
}
