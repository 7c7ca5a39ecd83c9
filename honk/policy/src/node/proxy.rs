//! A proxy server: where it is, what it speaks, and through which others it is reached.

use std::{fmt, sync::Arc};

use super::{Host, Kind, Node, Tls, Transport};

/// A proxy server in full. `Debug` shows what it is, not where or with which credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Name or address.
    pub host: Host,
    /// Port, never 0.
    pub port: u16,
    /// Protocol with its credentials.
    pub kind: Kind,
    /// What carries the protocol's stream.
    pub transport: Transport,
    /// TLS below the transport, or inside QUIC.
    pub tls: Option<Tls>,
    /// Which networks the author of the entry wants carried.
    pub hint: Hint,
    /// Socket options.
    pub tuning: Tuning,
    /// The nodes it is reached through: the first of them is asked to connect to this server,
    /// through the second, and so on; the last one is dialed from the gateway. Their own `via`
    /// is empty.
    pub via: Vec<Arc<Node>>,
}

/// Which networks a node is meant for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hint {
    /// Whatever the protocol can.
    #[default]
    Both,
    /// TCP only.
    Tcp,
    /// UDP only.
    Udp,
}

/// Socket options of the connection to the server; only the hop next to the gateway has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// TCP Fast Open.
    pub fast_open: bool,
    /// Multipath TCP.
    pub multipath: bool,
}

impl Proxy {
    /// A server without TLS, transport or other settings.
    pub fn new(host: Host, port: u16, kind: Kind) -> Self {
        Self {
            host,
            port,
            kind,
            transport: Transport::Tcp,
            tls: None,
            hint: Hint::Both,
            tuning: Tuning::default(),
            via: Vec::new(),
        }
    }

    /// Nothing but the protocol itself over TCP.
    pub(crate) fn is_plain(&self) -> bool {
        self.tls.is_none()
            && self.transport == Transport::Tcp
            && self.hint == Hint::Both
            && self.tuning == Tuning::default()
            && self.via.is_empty()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hops: Vec<&str> = self.via.iter().map(|hop| hop.protocol.name()).collect();
        f.debug_struct("Proxy")
            .field("kind", &self.kind)
            .field("transport", &self.transport)
            .field("tls", &self.tls)
            .field("via", &hops)
            .finish_non_exhaustive()
    }
}
