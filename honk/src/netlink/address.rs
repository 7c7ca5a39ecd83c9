//! Addresses of all links.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
};

use super::{Error, Rtnl, attributes, u32_at};

const HEADER: usize = 8;
const RTM_NEWADDR: u16 = 20;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;

/// An address of a link. On point-to-point links `ip` is the local end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) link: u32,
    pub(crate) ip: IpAddr,
    pub(crate) prefix: u8,
    /// As configured; see [`broadcast`] for the one implied by the prefix.
    pub(crate) broadcast: Option<Ipv4Addr>,
}

/// Directed broadcast address of an IPv4 prefix; none for /31, /32 and host bits of zero.
pub(crate) fn broadcast(ip: Ipv4Addr, prefix: u8) -> Option<Ipv4Addr> {
    (1..=30)
        .contains(&prefix)
        .then(|| Ipv4Addr::from_bits(ip.to_bits() | (u32::MAX >> prefix)))
}

impl Rtnl {
    /// Addresses of both families.
    pub(crate) fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let rows = self.dump(&request, "list addresses")?;
        Ok(rows
            .iter()
            .filter(|(kind, _)| *kind == RTM_NEWADDR)
            .filter_map(|(_, payload)| parse(payload))
            .collect())
    }

    /// Adds an address without duplicate detection.
    pub(crate) fn add_address(&mut self, link: u32, ip: IpAddr, prefix: u8) -> Result<(), Error> {
        self.change(
            RouteNetlinkMessage::NewAddress(message(link, ip, prefix)),
            NLM_F_CREATE | NLM_F_REPLACE,
            &format!("add address {ip}/{prefix}"),
        )
    }
}

pub(super) fn message(link: u32, ip: IpAddr, prefix: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = link;
    message.header.prefix_len = prefix;
    message.header.family = match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.header.scope = match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => AddressScope::Link,
        _ => AddressScope::Universe,
    };
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    if ip.is_ipv6() {
        message
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

fn parse(payload: &[u8]) -> Option<Address> {
    let family = i32::from(*payload.first()?);
    let mut address = None;
    let mut local = None;
    let mut broadcast = None;
    for (kind, value) in attributes(payload, HEADER) {
        match kind {
            IFA_ADDRESS => address = ip(family, value),
            IFA_LOCAL => local = ip(family, value),
            IFA_BROADCAST => broadcast = <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from),
            _ => {}
        }
    }
    Some(Address {
        link: u32_at(payload, 4)?,
        ip: local.or(address)?,
        prefix: *payload.get(1)?,
        broadcast,
    })
}

fn ip(family: i32, value: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(<[u8; 4]>::try_from(value).ok()?.into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}
