//! A stream through a node for what is no flow: checks and downloads. The caller owns the
//! deadline; giving up is dropping the future, which closes the socket.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use honk_policy::{
    id::Family,
    node::{Node, Protocol},
};
use honk_wire::{Target, socks5::Mode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    Dialer,
    error::{Class, DialError, Stage, not_built},
    handshake::{Handshake, Progress},
    server::{Candidates, ServerState},
    stream,
};
use crate::socket::Mark;

/// Why there is no stream.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The server of the node has no address in the family asked for.
    NoFamily,
    Dial(DialError),
}

impl From<DialError> for OpenError {
    fn from(error: DialError) -> Self {
        Self::Dial(error)
    }
}

impl From<OpenError> for DialError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NoFamily => super::resolve_error("the server has no address in the family"),
            OpenError::Dial(error) => error,
        }
    }
}

/// Opens a stream to `target` through `node`, whose server is reached over `family`.
pub(crate) async fn open(
    dialer: &Arc<Dialer>,
    node: &Arc<Node>,
    target: Target<'_>,
    family: Option<Family>,
) -> Result<TcpStream, OpenError> {
    let mark = dialer.mark(0);
    match &node.protocol {
        Protocol::Block => Err(DialError::new(
            Class::ConfigUnsupported,
            "`block` has no way out",
        ))?,
        Protocol::Direct => Ok(direct(dialer, target, family, mark).await?),
        protocol if !protocol.built() => Err(not_built())?,
        _ => {
            let server = dialer.server(node);
            let (mut stream, ..) = reach(dialer, &server, family, mark).await?;
            let early = converse(&mut stream, &server, target).await?;
            match early.is_empty() {
                true => Ok(stream),
                false => Err(DialError::new(
                    Class::ProxyProtocol,
                    "the server sent data before it was asked for any",
                ))?,
            }
        }
    }
}

/// Connects to the first address of a server that answers.
pub(super) async fn reach(
    dialer: &Arc<Dialer>,
    server: &Arc<ServerState>,
    family: Option<Family>,
    mark: Mark,
) -> Result<(TcpStream, SocketAddr, Candidates), OpenError> {
    let mut candidates = dialer.addresses(server).await?;
    if family.is_some_and(|family| !candidates.has(family)) {
        return Err(OpenError::NoFamily);
    }
    let mut last = DialError::timeout(Stage::Connect);
    while let Some(peer) = next(&mut candidates, family) {
        let connect = stream::connect(peer, mark);
        match timeout(dialer.connect_timeout(), connect).await {
            Ok(Ok(stream)) => {
                candidates.worked();
                return Ok((stream, peer, candidates));
            }
            Ok(Err(error)) => last = DialError::carrier(Stage::Connect, &error),
            Err(_) => last = DialError::timeout(Stage::Connect),
        }
    }
    Err(last.into())
}

fn next(candidates: &mut Candidates, family: Option<Family>) -> Option<SocketAddr> {
    loop {
        let peer = candidates.advance()?;
        if family.is_none_or(|family| family == family_of(peer.ip())) {
            return Some(peer);
        }
    }
}

/// The family of an address.
pub(crate) fn family_of(ip: IpAddr) -> Family {
    match ip {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// The conversation with the server about the target. What the target said already is returned.
pub(super) async fn converse(
    stream: &mut TcpStream,
    server: &ServerState,
    target: Target<'_>,
) -> Result<Vec<u8>, DialError> {
    let mut out = Vec::new();
    let protocol = &server.node.protocol;
    // One message at a time: this must not depend on what is assumed of the server.
    let Some(mut handshake) = Handshake::start(protocol, &target, Mode::Serial, &mut out)? else {
        return Err(not_built());
    };
    let mut buffer = [0; 1024];
    loop {
        let stage = handshake.stage();
        let exchange = async {
            stream.write_all(&out).await?;
            stream.read(&mut buffer).await
        };
        let n = exchange.await.map_err(|e| DialError::carrier(stage, &e))?;
        if n == 0 {
            return Err(handshake.eof());
        }
        out.clear();
        match handshake.read(&buffer[..n], &mut out)? {
            Progress::More => {}
            Progress::Done(used) => return Ok(buffer[used.min(n)..n].to_vec()),
        }
    }
}

async fn direct(
    dialer: &Arc<Dialer>,
    target: Target<'_>,
    family: Option<Family>,
    mark: Mark,
) -> Result<TcpStream, DialError> {
    let addresses: Vec<SocketAddr> = match target {
        Target::Ip(addr) => vec![addr],
        Target::Name(name, port) => {
            let ips = dialer.addresses_of(name).await?;
            ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect()
        }
    };
    let mut last = super::resolve_error("the name has no address in the family");
    for peer in addresses {
        if family.is_some_and(|family| family != family_of(peer.ip())) {
            continue;
        }
        match timeout(dialer.connect_timeout(), stream::connect(peer, mark)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = DialError::direct(&error),
            Err(_) => last = DialError::new(Class::TargetTimeout, "no answer in time"),
        }
    }
    Err(last)
}
