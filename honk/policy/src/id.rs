//! Identities, as types that do not mix.

use std::fmt;

pub use uuid::Uuid;

/// Number of an outbound inside one configuration and in the kernel: 0 direct, 1 block,
/// 2..=251 user outbounds, the rest reserved (see `honk_common::outbound`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ordinal(pub u8);

/// Identity of a node: stable over reload while its dial identity is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub Uuid);

/// Identity of a group: random, carried over by name on reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub Uuid);

/// What a group may hold: a node or a nested group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberId {
    /// A node, the built-ins included.
    Node(NodeId),
    /// A nested group.
    Group(GroupId),
}

impl MemberId {
    /// The number behind it.
    pub fn uuid(self) -> Uuid {
        match self {
            Self::Node(NodeId(u)) | Self::Group(GroupId(u)) => u,
        }
    }
}

/// Transport of a flow; selections are kept for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Network {
    /// Lower-case name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What was observed about a node: which kind of traffic it carries well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Domain {
    /// Streams.
    Tcp,
    /// DNS over UDP.
    DnsUdp,
    /// Other datagrams.
    DataUdp,
}

impl Domain {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::DnsUdp, Self::DataUdp];
}

/// Address family. Of health: the one over which the proxy server is reached. Of a target:
/// that of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order of their discriminants.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }
}

/// Text that must not be printed: share links, passwords, subscription URLs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the wire only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
