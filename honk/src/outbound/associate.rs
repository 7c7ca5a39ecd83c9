//! SOCKS5 datagram relays: the control connection and the address of the relay. Also the test
//! whether a server takes a pipelined handshake, which asks for a relay it never uses.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use honk_policy::{
    id::{Family, Network},
    node::Protocol,
};
use honk_wire::{
    Target,
    socks5::{self, Bound, Command, Handshake, Mode, Refusal, Step},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    Dialer, GREETING, REPLY, TOTAL,
    error::{Class, DialError, Stage},
    handshake::credentials,
    open::{OpenError, reach},
    server::{Pipelining, ServerState},
};
use crate::socket::{self, Mark};

/// Time for the answer of a server under test: it has to do nothing but read.
const TEST_REPLY: Duration = Duration::from_secs(2);

/// A second answer this much later than the first was waiting for an acknowledgement: delayed
/// ones leave after 40 ms.
const HELD_BACK: Duration = Duration::from_millis(25);

/// A datagram relay at a server. It lives as long as the control connection.
#[derive(Debug)]
pub(crate) struct Association {
    /// End of the association when it reaches its end.
    pub(crate) control: TcpStream,
    /// Where datagrams go.
    pub(crate) relay: SocketAddr,
}

/// Asks the server of `state` for a datagram relay, within the total time of a dial. `admitted` is
/// called when its turn has come.
pub(crate) async fn associate(
    dialer: &Arc<Dialer>,
    state: &Arc<ServerState>,
    mark: Mark,
    admitted: impl FnOnce(),
) -> Result<Association, DialError> {
    let started = Instant::now();
    let mut result = Err(no_udp());
    if state.udp() {
        let opened = async {
            let _permit = dialer.permits.take().await;
            admitted();
            Ok(open(dialer, state, None, mark).await?)
        };
        let opened = timeout(TOTAL, opened).await;
        result = opened.unwrap_or_else(|_| Err(DialError::timeout(Stage::Connect)));
    }
    let protocol = &state.node.protocol;
    match &result {
        Ok(_) => dialer.counts.ok(Network::Udp, protocol, started.elapsed()),
        Err(error) => dialer.counts.failed(Network::Udp, protocol, error.result()),
    }
    result
}

/// The server of a node has refused to carry datagrams at all.
fn no_udp() -> DialError {
    DialError::new(
        Class::ConfigUnsupported,
        "the server has said that it carries no UDP",
    )
}

/// The same for a check, which takes no place from flows and is not counted as one. The caller
/// owns the deadline.
pub(crate) async fn check(
    dialer: &Arc<Dialer>,
    state: &Arc<ServerState>,
    family: Option<Family>,
) -> Result<Association, OpenError> {
    if !state.udp() {
        return Err(no_udp().into());
    }
    open(dialer, state, family, dialer.mark(0)).await
}

async fn open(
    dialer: &Arc<Dialer>,
    state: &Arc<ServerState>,
    family: Option<Family>,
    mark: Mark,
) -> Result<Association, OpenError> {
    let (mut control, peer, _) = reach(dialer, state, family, mark).await?;
    let (mut handshake, mut out) = start(state, peer, Command::UdpAssociate, Mode::Serial)?;
    let mut buffer = [0; 512];
    loop {
        let stage = stage(&handshake);
        let limit = if stage == Stage::Reply {
            REPLY
        } else {
            GREETING
        };
        let exchange = async {
            control.write_all(&out).await?;
            control.read(&mut buffer).await
        };
        let n = timeout(limit, exchange)
            .await
            .map_err(|_| late(stage))?
            .map_err(|e| DialError::carrier(stage, &e))?;
        if n == 0 {
            let text = "the server closed the connection during the handshake";
            return Err(DialError::new(Class::UnknownPreResponse, text).into());
        }
        out.clear();
        let step = handshake.read(&buffer[..n], &mut out);
        if let Err(socks5::Error::Refused(Refusal::CommandUnsupported)) = step {
            state.no_udp();
        }
        if let Step::Done { bound, .. } = step.map_err(DialError::from)? {
            let relay = relay_address(dialer, bound, peer).await?;
            return Ok(Association { control, relay });
        }
    }
}

/// A request for a relay that takes datagrams from any address of ours, or for a stream to
/// the server itself.
fn start(
    state: &ServerState,
    peer: SocketAddr,
    command: Command,
    mode: Mode,
) -> Result<(Handshake, Vec<u8>), DialError> {
    let Protocol::Socks5(server) = &state.node.protocol else {
        return Err(DialError::new(
            Class::ConfigUnsupported,
            "the protocol of the node carries no UDP",
        ));
    };
    let any = match peer {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0u16; 8]),
    };
    let target = match command {
        Command::Connect => peer,
        Command::UdpAssociate => SocketAddr::new(any, 0),
    };
    let mut out = Vec::new();
    let auth = credentials(server);
    let hs = Handshake::start(command, &Target::Ip(target), auth, mode, &mut out)?;
    Ok((hs, out))
}

fn stage(handshake: &Handshake) -> Stage {
    if handshake.awaits_reply() {
        Stage::Reply
    } else {
        Stage::Greeting
    }
}

/// There is no target here: a slow reply is the server's fault too.
fn late(stage: Stage) -> DialError {
    DialError::new(Class::Timeout(stage), "no answer in time")
}

/// The relay as the server named it, unless it named something that cannot be meant.
async fn relay_address(
    dialer: &Dialer,
    bound: Bound,
    peer: SocketAddr,
) -> Result<SocketAddr, DialError> {
    let named = match bound {
        Bound::Ip(addr) => addr,
        Bound::Name(name, port) => {
            let ip = match name.parse::<IpAddr>() {
                Ok(ip) => ip,
                Err(_) if name.is_empty() => peer.ip(),
                Err(_) => {
                    let bootstrap = dialer.settings.load().bootstrap.clone();
                    let found = dialer.resolver.lookup(&name, &bootstrap, dialer.mark(0));
                    let found = found
                        .await
                        .map_err(|e| super::resolve_error(e.to_string()))?;
                    found.ips.first().copied().unwrap_or_else(|| peer.ip())
                }
            };
            SocketAddr::new(ip, port)
        }
    };
    if named.port() == 0 {
        return Err(DialError::new(
            Class::ProxyProtocol,
            "the server named a relay with port 0",
        ));
    }
    Ok(SocketAddr::new(
        relay_ip(named.ip(), peer.ip()),
        named.port(),
    ))
}

/// Servers that listen on all addresses, or sit behind NAT, name an address that does not
/// reach them; the address the control connection uses does.
fn relay_ip(named: IpAddr, peer: IpAddr) -> IpAddr {
    if named.is_unspecified() || (private(named) && !private(peer)) {
        peer
    } else {
        named
    }
}

fn private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Whether the server reads a request that came together with the greeting. The first request
/// is for a datagram relay: no target hears of it, and a refusal is as good an answer as a
/// grant. A server that hangs up on it is asked for a stream to itself, to see its timing.
/// `None` when the server could not be reached.
pub(crate) async fn test_pipelining(
    dialer: &Arc<Dialer>,
    state: &Arc<ServerState>,
) -> Option<Pipelining> {
    let _permit = dialer.permits.take().await;
    match attempt(dialer, state, Command::UdpAssociate).await? {
        Attempt::Closed => Some(match attempt(dialer, state, Command::Connect).await? {
            Attempt::Closed => Pipelining::AcceptedHoldsBack,
            answered => answered.into(),
        }),
        answered => Some(answered.into()),
    }
}

/// What a server did with a pipelined handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Lost the request, or refused to talk.
    Lost,
    /// Answered the request, this long after the greeting.
    Answered(Duration),
    /// Accepted the greeting and hung up in good order: it has read the request, and its
    /// answer to it is this.
    Closed,
}

impl From<Attempt> for Pipelining {
    fn from(attempt: Attempt) -> Self {
        match attempt {
            Attempt::Lost => Self::Refused,
            Attempt::Answered(gap) if gap < HELD_BACK => Self::Accepted,
            Attempt::Answered(_) | Attempt::Closed => Self::AcceptedHoldsBack,
        }
    }
}

async fn attempt(
    dialer: &Arc<Dialer>,
    state: &Arc<ServerState>,
    command: Command,
) -> Option<Attempt> {
    let reached = timeout(TOTAL, reach(dialer, state, None, dialer.mark(0))).await;
    let (mut control, peer, _) = reached.ok()?.ok()?;
    let (mut handshake, out) = start(state, peer, command, Mode::Pipelined).ok()?;
    // As in a real handshake, where acknowledgements travel with data.
    socket::delay_acks(&control, true);
    control.write_all(&out).await.ok()?;
    let mut buffer = [0; 512];
    let mut first_answer = None;
    loop {
        let n = match timeout(TEST_REPLY, control.read(&mut buffer)).await {
            Ok(Ok(0)) if handshake.awaits_reply() => return Some(Attempt::Closed),
            Ok(Ok(n)) if n > 0 => n,
            _ => return Some(Attempt::Lost),
        };
        match handshake.read(&buffer[..n], &mut Vec::new()) {
            Ok(Step::More) => {
                first_answer.get_or_insert_with(Instant::now);
            }
            Ok(Step::Done { .. }) | Err(socks5::Error::Refused(_)) => {
                let gap = first_answer.map_or(Duration::ZERO, |at| at.elapsed());
                return Some(Attempt::Answered(gap));
            }
            Err(_) => return Some(Attempt::Lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_relay_addresses_are_replaced() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (named, peer, want) in [
            ("0.0.0.0", "198.51.100.7", "198.51.100.7"),
            ("::", "2001:db8::7", "2001:db8::7"),
            ("10.0.0.5", "198.51.100.7", "198.51.100.7"),
            ("10.0.0.5", "10.0.0.7", "10.0.0.5"),
            ("203.0.113.9", "198.51.100.7", "203.0.113.9"),
        ] {
            assert_eq!(relay_ip(ip(named), ip(peer)), ip(want), "{named} at {peer}");
        }
    }
}
