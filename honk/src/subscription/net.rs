//! The way to a server: an address that may be reached, a connection with our mark, TLS.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use honk_policy::node::Host;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{error::FetchError, target::Target};
use crate::outbound::{Dialer, stream};

/// How long a fetch may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Everything.
    pub(super) total: Duration,
    /// From the start of a hop to the head of its answer.
    pub(super) first_byte: Duration,
}

const LIMITS: Limits = Limits {
    total: Duration::from_secs(30),
    first_byte: Duration::from_secs(10),
};

/// Time for the connect to one address while others are left.
const CONNECT: Duration = Duration::from_secs(3);

/// Addresses of a name that are tried.
const ADDRESSES: usize = 4;

/// How a fetch reaches the world.
#[derive(Clone)]
pub(crate) struct Net {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) tls: Arc<ClientConfig>,
    /// Addresses of the gateway itself.
    pub(crate) own: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Ranges that are refused.
    pub(super) private: fn(IpAddr) -> bool,
    pub(super) limits: Limits,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}

impl Net {
    pub(crate) fn new(
        dialer: Arc<Dialer>,
        tls: Arc<ClientConfig>,
        own: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    ) -> Self {
        Self {
            dialer,
            tls,
            own,
            private: honk_policy::address::is_private,
            limits: LIMITS,
        }
    }
}

/// Addresses that may be connected to, in order.
pub(super) async fn addresses(
    net: &Net,
    allow_private: bool,
    target: &Target,
) -> Result<Vec<SocketAddr>, FetchError> {
    let ips: Vec<IpAddr> = match &target.host {
        Host::Ip(ip) => vec![*ip],
        Host::Name(name) => {
            let found = net.dialer.lookup(name).await;
            let found = found.map_err(|cause| FetchError::Resolve {
                host: target.authority(),
                cause,
            })?;
            found.ips.to_vec()
        }
    };
    let allowed = |ip: &IpAddr| allow_private || !((net.private)(*ip) || (net.own)(*ip));
    let allowed: Vec<SocketAddr> = ips
        .iter()
        .filter(|ip| allowed(ip))
        .map(|ip| SocketAddr::new(*ip, target.port))
        .take(ADDRESSES)
        .collect();
    if allowed.is_empty() {
        let host = target.authority();
        return Err(FetchError::Private { host });
    }
    Ok(allowed)
}

/// Connects to the first address that answers, and secures the connection for https.
pub(super) async fn connect(
    net: &Net,
    target: &Target,
    addresses: &[SocketAddr],
) -> Result<Box<dyn Io>, FetchError> {
    let stream = plain(net, target, addresses).await?;
    Ok(match target.https {
        false => Box::new(stream),
        true => Box::new(secured(net, target, stream).await?),
    })
}

async fn plain(
    net: &Net,
    target: &Target,
    addresses: &[SocketAddr],
) -> Result<TcpStream, FetchError> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (at, &address) in addresses.iter().enumerate() {
        let connecting = stream::connect(address, net.dialer.mark(0));
        // The last one has what is left of the time for the hop.
        let last_one = at + 1 == addresses.len();
        let limit = if last_one {
            net.limits.first_byte
        } else {
            CONNECT
        };
        match timeout(limit, connecting).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(FetchError::Connect {
        host: target.authority(),
        cause: last,
    })
}

async fn secured(
    net: &Net,
    target: &Target,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, FetchError> {
    let fail = |cause| FetchError::Tls {
        host: target.authority(),
        cause,
    };
    let name = match &target.host {
        Host::Ip(ip) => ServerName::from(*ip),
        Host::Name(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
            .map_err(|e| fail(io::Error::other(e)))?,
    };
    let connector = TlsConnector::from(Arc::clone(&net.tls));
    connector.connect(name, stream).await.map_err(fail)
}

/// A connection of either kind.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}
