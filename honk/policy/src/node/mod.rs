//! Nodes: the servers a flow can leave through.

pub mod link;
pub(crate) mod url;

use std::{fmt, net::IpAddr};

use crate::id::{NodeId, Secret};

/// One proxy server entry, or a built-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Stable identity.
    pub id: NodeId,
    /// Display name; not unique.
    pub name: String,
    /// Protocol with its settings.
    pub protocol: Protocol,
}

/// How a node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Built in: the target is dialed from the gateway itself.
    Direct,
    /// Built in: every flow is refused.
    Block,
    /// SOCKS5 (RFC 1928), with username/password authentication (RFC 1929) when given.
    Socks5(Server),
    /// HTTP CONNECT (RFC 9110 section 9.3.6), with Basic authentication when given. TCP only.
    Http(Server),
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

impl Protocol {
    /// Whether UDP can be carried.
    pub fn udp(&self) -> bool {
        match self {
            Self::Direct | Self::Block | Self::Socks5(_) => true,
            Self::Http(_) => false,
        }
    }

    /// Name as in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Block => "block",
            Self::Socks5(_) => "socks5",
            Self::Http(_) => "http",
        }
    }
}
