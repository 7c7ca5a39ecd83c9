//! Identities inside the engine. What names a node or a target is never printed (S-308): these
//! types show nothing of their content.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use super::consts::HOST_MAX;
use crate::id::{Family, NodeId};

/// A group. The caller gives the same number as long as the group's name is configured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey(pub u32);

/// A node, ordered as its [`NodeId`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeKey {
    high: u64,
    low: u64,
}

/// A target in the [`Targets`](super::targets::Targets) of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TargetId(pub(super) u32);

/// Where a flow goes, as the caller knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// A name, in any case, with or without the root's dot.
    Name(&'a str, u16),
    /// An address.
    Address(SocketAddr),
}

/// A normalized target that is kept. Names sort before addresses (S-157).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TargetKey {
    Name(Box<str>, u16),
    Address(SocketAddr),
}

/// Identifies one attempt in every call about it. Never given twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptId(pub(super) Handle);

/// An attempt whose work has begun.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkId(pub(super) Handle);

/// The observer of one attempt that was started.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReporterId(pub(super) Handle);

/// Place of an attempt in its table, and the number that no other attempt ever has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Handle {
    pub(super) slot: u32,
    pub(super) serial: u64,
}

impl From<NodeId> for NodeKey {
    fn from(node: NodeId) -> Self {
        let (high, low) = node.0.as_u64_pair();
        Self { high, low }
    }
}

impl NodeKey {
    /// A few well-spread bits, for tables.
    pub(super) fn bits(self) -> u64 {
        mix(self.high, self.low)
    }
}

impl WorkId {
    /// The attempt it is work of.
    pub fn attempt(self) -> AttemptId {
        AttemptId(self.0)
    }
}

impl Target<'_> {
    /// Without the root's dot, and IPv4 in IPv6 as IPv4; nothing for a name that is too long
    /// or empty. Upper case stays: [`same`](Self::same) and the hash of the table ignore it.
    pub(super) fn normal(self) -> Option<Self> {
        match self {
            Self::Name(host, port) => {
                let host = host.strip_suffix('.').unwrap_or(host);
                (!host.is_empty() && host.len() <= HOST_MAX).then_some(Self::Name(host, port))
            }
            Self::Address(at) => Some(Self::Address(canonical(at))),
        }
    }

    /// Whether a kept target is this one.
    pub(super) fn same(self, key: &TargetKey) -> bool {
        match (self, key) {
            (Self::Name(host, port), TargetKey::Name(kept, kept_port)) => {
                port == *kept_port && host.eq_ignore_ascii_case(kept)
            }
            (Self::Address(at), TargetKey::Address(kept)) => at == *kept,
            _ => false,
        }
    }

    /// To be kept.
    pub(super) fn key(self) -> TargetKey {
        match self {
            Self::Name(host, port) => TargetKey::Name(host.to_ascii_lowercase().into(), port),
            Self::Address(at) => TargetKey::Address(at),
        }
    }
}

impl TargetKey {
    /// Bytes it owns outside itself.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Name(host, _) => host.len(),
            Self::Address(_) => 0,
        }
    }
}

fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), at.port()),
        // Neither flow label nor scope is part of where a flow goes.
        IpAddr::V6(ip) => SocketAddr::new(ip.into(), at.port()),
    }
}

/// The family of an address, an IPv4 one in IPv6 counted as IPv4.
pub fn family_of(at: SocketAddr) -> Family {
    match at.ip().to_canonical() {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// Spreads two words over one.
pub(super) const fn mix(a: u64, b: u64) -> u64 {
    let wide = ((a ^ 0x9e37_79b9_7f4a_7c15) as u128) * ((b ^ 0xd1b5_4a32_d192_ed03) as u128 | 1);
    (wide as u64) ^ ((wide >> 64) as u64)
}

macro_rules! unprinted {
    ($($type:ident $(<$life:lifetime>)?),+) => {$(
        impl fmt::Debug for $type $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($type), "(..)"))
            }
        }
    )+};
}

unprinted!(
    GroupKey,
    NodeKey,
    TargetId,
    TargetKey,
    AttemptId,
    WorkId,
    ReporterId,
    Handle,
    Target<'_>
);

/// A node for tests, ordered by its number.
#[cfg(test)]
pub(super) fn key(n: u128) -> NodeKey {
    NodeId(crate::id::Uuid::from_u128(n)).into()
}
