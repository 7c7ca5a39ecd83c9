//! Links: the table of them, and the veth pair.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{
        InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkHeader, LinkInfo, LinkMessage,
    },
};

use super::{Error, Rtnl, attributes, bytes6, text, u16_at, u32_at};

/// Link type of everything with an Ethernet header.
pub(crate) const ARPHRD_ETHER: u16 = 1;

const HEADER: usize = 16;
const RTM_NEWLINK: u16 = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_IFALIAS: u16 = 20;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
/// Value of `IFLA_XDP_ATTACHED`.
const XDP_IN_FRONT: u8 = 2;
/// Set on attributes that hold others.
const NESTED: u16 = 1 << 15;

/// What honk wants to know about a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// `ARPHRD_*`.
    pub(crate) kind: u16,
    pub(crate) mtu: u32,
    pub(crate) mac: Option<[u8; 6]>,
    /// Index of the bridge, bond or team it belongs to.
    pub(crate) master: Option<u32>,
    pub(crate) alias: Option<String>,
    pub(crate) up: bool,
    pub(crate) xdp: Option<Xdp>,
}

/// The XDP program of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Xdp {
    pub(crate) program: u32,
    /// It runs in front of the stack, not in the driver.
    pub(crate) generic: bool,
}

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    pub(crate) name: &'a str,
    pub(crate) mac: [u8; 6],
}

/// A veth pair to be made. Both ends come up with these MACs, so nothing that renames or
/// re-addresses new links has a moment to differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) host: End<'a>,
    pub(crate) peer: End<'a>,
    pub(crate) peer_netns: BorrowedFd<'a>,
    pub(crate) mtu: u32,
    pub(crate) alias: &'a str,
}

impl Rtnl {
    /// All links of the namespace.
    pub(crate) fn links(&mut self) -> Result<Vec<Link>, Error> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let rows = self.dump(&request, "list links")?;
        Ok(rows
            .iter()
            .filter(|(kind, _)| *kind == RTM_NEWLINK)
            .filter_map(|(_, payload)| parse(payload))
            .collect())
    }

    /// The link of that name.
    pub(crate) fn link(&mut self, name: &str) -> Result<Option<Link>, Error> {
        Ok(self.links()?.into_iter().find(|l| l.name == name))
    }

    /// Creates a veth pair whose peer end lives in another namespace. The alias comes with a
    /// second message: the kernel ignores it in the first.
    pub(crate) fn create_pair(&mut self, pair: &Pair<'_>) -> Result<(), Error> {
        let name = pair.host.name;
        self.change(
            RouteNetlinkMessage::NewLink(pair_message(pair)),
            NLM_F_CREATE | NLM_F_EXCL,
            &format!("create the pair {name} / {}", pair.peer.name),
        )?;
        let mut alias = LinkMessage::default();
        alias.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::IfAlias(pair.alias.to_owned()),
        ];
        self.change(
            RouteNetlinkMessage::SetLink(alias),
            0,
            &format!("name the owner of link {name}"),
        )
    }

    /// Deletes a link; a veth takes its peer along.
    pub(crate) fn delete_link(&mut self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.change(
            RouteNetlinkMessage::DelLink(message),
            0,
            &format!("delete link {index}"),
        )
    }

    /// Brings a link up.
    pub(crate) fn set_up(&mut self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change(
            RouteNetlinkMessage::SetLink(message),
            0,
            &format!("bring link {index} up"),
        )
    }

    /// Sets MAC and MTU of a link.
    pub(crate) fn set_mac_mtu(&mut self, index: u32, mac: [u8; 6], mtu: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![
            LinkAttribute::Address(mac.to_vec()),
            LinkAttribute::Mtu(mtu),
        ];
        self.change(
            RouteNetlinkMessage::SetLink(message),
            0,
            &format!("set the address of link {index}"),
        )
    }
}

pub(super) fn pair_message(pair: &Pair<'_>) -> LinkMessage {
    let end = |end: &End<'_>| {
        vec![
            LinkAttribute::IfName(end.name.to_owned()),
            LinkAttribute::Address(end.mac.to_vec()),
            LinkAttribute::Mtu(pair.mtu),
        ]
    };
    let mut peer = LinkMessage::default();
    peer.header = LinkHeader::default();
    peer.attributes = end(&pair.peer);
    peer.attributes
        .push(LinkAttribute::NetNsFd(pair.peer_netns.as_raw_fd()));
    let mut host = LinkMessage::default();
    host.attributes = end(&pair.host);
    host.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    host
}

fn parse(payload: &[u8]) -> Option<Link> {
    let mut link = Link {
        index: u32_at(payload, 4)?,
        name: String::new(),
        kind: u16_at(payload, 2)?,
        mtu: 0,
        mac: None,
        master: None,
        alias: None,
        up: u32_at(payload, 8)? & 1 != 0,
        xdp: None,
    };
    for (kind, value) in attributes(payload, HEADER) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_ADDRESS => link.mac = bytes6(value),
            IFLA_MTU => link.mtu = u32_at(value, 0)?,
            IFLA_MASTER => link.master = u32_at(value, 0),
            IFLA_IFALIAS => link.alias = Some(text(value)),
            _ if kind & !NESTED == IFLA_XDP => link.xdp = xdp(value),
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

fn xdp(nested: &[u8]) -> Option<Xdp> {
    let mut xdp = Xdp {
        program: 0,
        generic: false,
    };
    for (kind, value) in attributes(nested, 0) {
        match kind {
            IFLA_XDP_ATTACHED => xdp.generic = value.first() == Some(&XDP_IN_FRONT),
            IFLA_XDP_PROG_ID => xdp.program = u32_at(value, 0)?,
            _ => {}
        }
    }
    (xdp.program != 0).then_some(xdp)
}
