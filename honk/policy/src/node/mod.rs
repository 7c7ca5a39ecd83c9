//! Nodes: the servers a flow can leave through.
//!
//! What a server is ([`Proxy`]), which flows it can carry, and an identity that survives renaming
//! and reordering. Links are read and written in [`link`]; nothing here opens a socket.

mod capability;
mod check;
pub(crate) mod fields;
mod identity;
mod kind;
pub mod link;
mod port;
mod proxy;
pub(crate) mod text;
mod tls;
pub(crate) mod transport;
pub(crate) mod url;
pub(crate) mod value;

use std::{fmt, net::IpAddr, sync::Arc};

pub use self::{
    capability::Carries,
    identity::built_in,
    kind::{
        AnyTls, Cipher, Congestion, Encryption, Flow, Hysteria2, Juicity, Kind, Login, Obfs,
        Plugin, Quic, Shadowsocks, SimpleObfs, Trojan, Tuic, UdpOverTcp, UdpRelay, UserId, Vless,
        VlessMode, Vmess, VmessCipher,
    },
    port::PortSet,
    proxy::{Hint, Proxy, Tuning},
    tls::{Ech, Pin, Reality, Sni, Tls, TlsVersion},
    transport::{EarlyData, Header, Transport},
};
pub(crate) use self::{check::Fault, check::check, port::port};
use crate::id::{NodeId, Secret, Uuid};
pub use crate::name::to_ascii as ascii_name;

/// One proxy server entry, or a built-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Stable identity.
    pub id: NodeId,
    /// Display name; not unique.
    pub name: String,
    /// Protocol with its settings.
    pub protocol: Protocol,
    /// The subscription that brought it; `None` for a node of the configuration.
    pub origin: Option<Arc<Origin>>,
}

/// Where a node of a subscription comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Identity of the subscription.
    pub subscription: Uuid,
    /// Its tag at present, which may be empty.
    pub tag: String,
}

/// How a node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Built in: the target is dialed from the gateway itself.
    Direct,
    /// Built in: every flow is refused.
    Block,
    /// SOCKS5 (RFC 1928) over plain TCP, with username/password authentication (RFC 1929) when
    /// given.
    Socks5(Server),
    /// HTTP CONNECT (RFC 9110 section 9.3.6) over plain TCP, with Basic authentication when given.
    /// TCP only.
    Http(Server),
    /// Everything else, chains and SOCKS5 or HTTP with TLS or other settings included. Made by
    /// [`Protocol::from`], which prefers the variants above.
    Proxy(Arc<Proxy>),
}

/// A server and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name or address.
    pub host: Host,
    /// Port, never 0.
    pub port: u16,
    /// Username and password.
    pub auth: Option<(Secret, Secret)>,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A literal address.
    Ip(IpAddr),
    /// A name, lower-case, to be resolved by the bootstrap resolvers.
    Name(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Node {
    /// A node of a protocol, with its identity.
    pub fn new(name: String, protocol: Protocol) -> Self {
        let id = match protocol.proxy() {
            Some(proxy) => proxy.id(),
            None => built_in(protocol.name()),
        };
        Self {
            id,
            name,
            protocol,
            origin: None,
        }
    }
}

impl From<Proxy> for Protocol {
    fn from(proxy: Proxy) -> Self {
        let server = |auth: &Option<Login>| Server {
            host: proxy.host.clone(),
            port: proxy.port,
            auth: auth.clone(),
        };
        match &proxy.kind {
            Kind::Socks5(auth) if proxy.is_plain() => Self::Socks5(server(auth)),
            Kind::Http(auth) if proxy.is_plain() => Self::Http(server(auth)),
            _ => Self::Proxy(Arc::new(proxy)),
        }
    }
}

impl Protocol {
    /// Whether this build can dial it.
    pub fn built(&self) -> bool {
        match self {
            Self::Direct | Self::Block | Self::Socks5(_) | Self::Http(_) => true,
            Self::Proxy(_) => false,
        }
    }

    /// The proxy in full; `None` for built-ins.
    pub fn proxy(&self) -> Option<Arc<Proxy>> {
        let plain = |server: &Server, kind| {
            let proxy = Proxy::new(server.host.clone(), server.port, kind);
            Some(Arc::new(proxy))
        };
        match self {
            Self::Direct | Self::Block => None,
            Self::Socks5(server) => plain(server, Kind::Socks5(server.auth.clone())),
            Self::Http(server) => plain(server, Kind::Http(server.auth.clone())),
            Self::Proxy(proxy) => Some(Arc::clone(proxy)),
        }
    }

    /// Whether TCP can be carried.
    pub fn tcp(&self) -> bool {
        match self {
            Self::Direct | Self::Block | Self::Socks5(_) | Self::Http(_) => true,
            Self::Proxy(proxy) => proxy.carries().tcp,
        }
    }

    /// Whether UDP can be carried.
    pub fn udp(&self) -> bool {
        match self {
            Self::Direct | Self::Block | Self::Socks5(_) => true,
            Self::Http(_) => false,
            Self::Proxy(proxy) => proxy.carries().udp,
        }
    }

    /// Name as in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Block => "block",
            Self::Socks5(_) => "socks5",
            Self::Http(_) => "http",
            Self::Proxy(proxy) => proxy.kind.name(),
        }
    }
}
