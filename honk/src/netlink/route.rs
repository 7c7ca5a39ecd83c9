//! The few routes, rules and neighbours of the private namespace.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
        RouteScope, RouteType,
    },
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use super::{Error, Rtnl, attributes, text};

/// Which family a rule or route serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    fn code(self) -> AddressFamily {
        match self {
            Self::V4 => AddressFamily::Inet,
            Self::V6 => AddressFamily::Inet6,
        }
    }
}

impl Rtnl {
    /// `ip host/32 dev LINK scope link`.
    pub(crate) fn add_link_route(&mut self, link: u32, host: IpAddr) -> Result<(), Error> {
        let mut message = base(Family::of(host), RouteType::Unicast, RouteScope::Link);
        message.header.destination_prefix_length = if host.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::from(host)),
            RouteAttribute::Oif(link),
        ];
        self.put_route(message, &format!("add the route to {host}"))
    }

    /// `default via GATEWAY dev LINK mtu MTU`, replacing an earlier one.
    pub(crate) fn set_default(
        &mut self,
        link: u32,
        gateway: IpAddr,
        mtu: u32,
    ) -> Result<(), Error> {
        let mut message = base(
            Family::of(gateway),
            RouteType::Unicast,
            RouteScope::Universe,
        );
        message.attributes = vec![
            RouteAttribute::Gateway(RouteAddress::from(gateway)),
            RouteAttribute::Oif(link),
            RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]),
        ];
        self.put_route(message, &format!("set the default route via {gateway}"))
    }

    /// `local default dev LINK table TABLE`: everything that looks there is delivered here.
    pub(crate) fn add_local_default(
        &mut self,
        family: Family,
        link: u32,
        table: u8,
    ) -> Result<(), Error> {
        let mut message = base(family, RouteType::Local, RouteScope::Host);
        message.header.table = table;
        message.attributes = vec![RouteAttribute::Oif(link)];
        self.put_route(message, &format!("add the local route of table {table}"))
    }

    /// `iif NAME lookup TABLE`.
    pub(crate) fn add_iif_rule(
        &mut self,
        family: Family,
        name: &str,
        table: u8,
        priority: u32,
    ) -> Result<(), Error> {
        self.change(
            RouteNetlinkMessage::NewRule(iif_rule(family, name, table, priority)),
            NLM_F_CREATE | NLM_F_EXCL,
            &format!("add the rule iif {name} lookup {table}"),
        )
    }

    /// Whether `iif NAME lookup TABLE` exists.
    pub(crate) fn has_iif_rule(
        &mut self,
        family: Family,
        name: &str,
        table: u8,
    ) -> Result<bool, Error> {
        const RTM_NEWRULE: u16 = 32;
        const FRA_IIFNAME: u16 = 3;
        const HEADER: usize = 12;
        let mut message = RuleMessage::default();
        message.header.family = family.code();
        let rows = self.dump(&RouteNetlinkMessage::GetRule(message), "list rules")?;
        Ok(rows.iter().any(|(kind, row)| {
            let named = |(kind, value)| kind == FRA_IIFNAME && text(value) == name;
            *kind == RTM_NEWRULE && row.get(4) == Some(&table) && attributes(row, HEADER).any(named)
        }))
    }

    /// A neighbour entry that never expires.
    pub(crate) fn set_neighbour(
        &mut self,
        link: u32,
        ip: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), Error> {
        let mut message = NeighbourMessage::default();
        message.header.family = Family::of(ip).code();
        message.header.ifindex = link;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(match ip {
                IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
                IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
            }),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        self.change(
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
            &format!("set the neighbour {ip}"),
        )
    }

    /// Links of the best default routes: of IPv4, then of IPv6 if it is another one.
    pub(crate) fn default_links(&mut self) -> Result<Vec<u32>, Error> {
        let mut request = RouteMessage::default();
        request.header.table = RouteHeader::RT_TABLE_MAIN;
        let rows = self.dump(&RouteNetlinkMessage::GetRoute(request), "list routes")?;
        let mut links = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let routes = rows
                .iter()
                .filter_map(|(_, row)| default_route(row, family));
            if let Some((_, link)) = routes.min()
                && !links.contains(&link)
            {
                links.push(link);
            }
        }
        Ok(links)
    }

    /// MTU of the IPv4 default route.
    #[cfg(test)]
    pub(crate) fn default_mtu(&mut self) -> Option<u32> {
        let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let rows = self.dump(&request, "list routes").ok()?;
        rows.iter()
            .filter(|(_, row)| row[0] == 2 && row[1] == 0 && row[4] == RouteHeader::RT_TABLE_MAIN)
            .flat_map(|(_, row)| attributes(row, 12))
            .filter(|(kind, _)| *kind == 8)
            .flat_map(|(_, metrics)| attributes(metrics, 0))
            .find_map(|(kind, mtu)| (kind == 2).then(|| super::u32_at(mtu, 0))?)
    }

    fn put_route(&mut self, message: RouteMessage, what: &str) -> Result<(), Error> {
        self.change(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_REPLACE,
            what,
        )
    }
}

/// Metric and link of a row that is a unicast default route of the main table.
fn default_route(row: &[u8], family: i32) -> Option<(u32, u32)> {
    const HEADER: usize = 12;
    const RTN_UNICAST: u8 = 1;
    const RTA_OIF: u16 = 4;
    const RTA_PRIORITY: u16 = 6;
    const RTA_MULTIPATH: u16 = 9;
    let head = row.get(..HEADER)?;
    let main = head[4] == RouteHeader::RT_TABLE_MAIN && head[7] == RTN_UNICAST;
    if i32::from(head[0]) != family || head[1] != 0 || !main {
        return None;
    }
    let (mut metric, mut link) = (0, None);
    for (kind, value) in attributes(row, HEADER) {
        match kind {
            RTA_OIF => link = super::u32_at(value, 0),
            RTA_PRIORITY => metric = super::u32_at(value, 0)?,
            // The first of several next hops: length, flags, hops, then the link.
            RTA_MULTIPATH => link = link.or_else(|| super::u32_at(value, 4)),
            _ => {}
        }
    }
    Some((metric, link?))
}

fn base(family: Family, kind: RouteType, scope: RouteScope) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family.code();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = kind;
    // IPv6 knows no scopes and answers every dump with universe.
    message.header.scope = match family {
        Family::V4 => scope,
        Family::V6 => RouteScope::Universe,
    };
    message
}

pub(super) fn iif_rule(family: Family, name: &str, table: u8, priority: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family.code();
    message.header.table = table;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Iifname(name.to_owned()),
        RuleAttribute::Priority(priority),
    ];
    message
}
