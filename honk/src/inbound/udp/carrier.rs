//! The upstream side of a tunnel: one socket that takes datagrams for any target and brings
//! back those of any source.

use std::{io, net::SocketAddr, sync::Arc};

use honk_policy::{
    id::{Family, Network},
    node::Protocol,
};
use honk_wire::{
    Target,
    socks5::udp::{self, Header, MAX_DATAGRAM},
};
use tokio::net::{TcpStream, UdpSocket};

use super::table::UdpFlow;
use crate::{
    outbound::{Dialer, associate, open::family_of, server::ServerState, stream},
    socket::{
        Mark,
        mmsg::{BATCH, Joining, Outgoing, send, want_joined},
    },
};

/// An open way out.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) socket: UdpSocket,
    wrap: Wrap,
    joining: Joining,
    /// The server and the family it was reached over.
    pub(super) server: Option<(Arc<ServerState>, Family)>,
    /// Control connection of an association; its end is the end of the carrier.
    pub(super) control: Option<TcpStream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrap {
    /// Datagrams go to the target as they are.
    None,
    /// Datagrams go to the relay with a SOCKS5 header.
    Socks5,
}

/// What a batch came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Datagrams the system did not take.
    pub(super) dropped: usize,
    /// The carrier is dead.
    pub(super) broken: bool,
}

impl Carrier {
    /// A socket that dials targets itself. Needs no set-up, so the first datagram does not
    /// wait.
    pub(super) fn direct(client: SocketAddr, mark: Mark) -> io::Result<Self> {
        Ok(Self {
            socket: receiving(stream::udp(client, mark)?),
            wrap: Wrap::None,
            joining: Joining::default(),
            server: None,
            control: None,
        })
    }

    /// A relay at a SOCKS5 server; `admitted` is called when the dial begins.
    pub(super) async fn socks5(
        dialer: &Arc<Dialer>,
        leaf: &Arc<honk_policy::node::Node>,
        mark: Mark,
        admitted: impl FnOnce(),
    ) -> Result<Self, crate::outbound::error::DialError> {
        let server = dialer.server(leaf);
        let found = associate::associate(dialer, &server, mark, admitted).await?;
        let open = async {
            let socket = receiving(stream::udp(found.relay, mark)?);
            // Connected: the kernel then drops whatever does not come from the relay.
            socket.connect(found.relay).await?;
            Ok(socket)
        };
        let socket = open.await.map_err(|e: io::Error| {
            let error = crate::outbound::error::DialError::direct(&e);
            let protocol: &Protocol = &leaf.protocol;
            dialer.counts.failed(Network::Udp, protocol, error.result());
            error
        })?;
        Ok(Self {
            socket,
            wrap: Wrap::Socks5,
            joining: Joining::default(),
            server: Some((server, family_of(found.relay.ip()))),
            control: Some(found.control),
        })
    }

    /// Sends datagrams of any number without waiting.
    pub(super) fn send<'a>(
        &self,
        datagrams: impl Iterator<Item = (&'a UdpFlow, &'a [u8])>,
    ) -> Sent {
        let mut sent = Sent::default();
        let mut headers: [Option<Header>; BATCH] = [None; BATCH];
        let mut datagrams = datagrams.peekable();
        while datagrams.peek().is_some() && !sent.broken {
            let chunk: Vec<_> = datagrams.by_ref().take(BATCH).collect();
            for (slot, (flow, _)) in headers.iter_mut().zip(&chunk) {
                let by_address = self.wrap == Wrap::Socks5 && flow.header.is_none();
                *slot = by_address.then(|| Header::new(flow.key.target));
            }
            let out: Vec<_> = chunk
                .iter()
                .zip(&headers)
                .map(|(&(flow, payload), header)| Outgoing {
                    to: (self.wrap == Wrap::None).then_some(flow.key.target),
                    from: None,
                    header: match (&flow.header, header) {
                        (Some(named), _) => named,
                        (None, Some(header)) => header.as_bytes(),
                        (None, None) => &[],
                    },
                    payload,
                })
                .filter(|out| {
                    let len = out.header.len() + out.payload.len();
                    out.header.is_empty() || len <= MAX_DATAGRAM
                })
                .collect();
            sent.dropped += chunk.len() - out.len();
            self.send_chunk(&out, &mut sent);
        }
        sent.dropped += datagrams.count();
        sent
    }

    fn send_chunk(&self, mut out: &[Outgoing<'_>], sent: &mut Sent) {
        while !out.is_empty() {
            match send(&self.socket, out, &self.joining) {
                Ok(n) => out = &out[n.min(out.len())..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => match fault(&e) {
                    Fault::Full => {
                        sent.dropped += out.len();
                        return;
                    }
                    Fault::Datagram => {
                        sent.dropped += 1;
                        out = &out[1..];
                    }
                    // Without a server between us and the target nothing is shared that
                    // could be broken.
                    Fault::Carrier if self.wrap == Wrap::None => {
                        sent.dropped += 1;
                        out = &out[1..];
                    }
                    Fault::Carrier => {
                        sent.dropped += out.len();
                        sent.broken = true;
                        return;
                    }
                },
            }
        }
    }

    /// Splits what arrived into its source and payload.
    pub(super) fn unwrap<'a>(
        &self,
        from: Option<SocketAddr>,
        datagram: &'a [u8],
    ) -> Option<(Target<'a>, &'a [u8])> {
        match self.wrap {
            Wrap::None => {
                let from = from?;
                let from = SocketAddr::new(from.ip(), from.port());
                Some((Target::Ip(from), datagram))
            }
            Wrap::Socks5 => udp::parse(datagram).ok(),
        }
    }

    /// Whether an error of receiving ends the carrier.
    pub(super) fn fatal(&self, error: &io::Error) -> bool {
        self.wrap != Wrap::None && fault(error) == Fault::Carrier
    }
}

/// Replies come joined where the kernel can; it works without, too.
fn receiving(socket: UdpSocket) -> UdpSocket {
    let _ = want_joined(&socket);
    socket
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// No room now: the rest would not fit either.
    Full,
    /// This datagram cannot be sent.
    Datagram,
    /// Nothing can be sent any more.
    Carrier,
}

fn fault(error: &io::Error) -> Fault {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Fault::Full,
        Some(
            Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::PIPE
            | Errno::NOTCONN
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::ADDRNOTAVAIL
            | Errno::BADF,
        ) => Fault::Carrier,
        _ => Fault::Datagram,
    }
}
