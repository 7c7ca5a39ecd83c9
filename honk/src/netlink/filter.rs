//! `clsact` qdiscs and their BPF filters: the attachment of kernels without TCX.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption},
};

use super::{Error, Rtnl, attributes, text, u32_at};

const HEADER: usize = 20;
const RTM_NEWTFILTER: u16 = 44;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// `ETH_P_ALL` in network order, as the low half of `tcm_info`.
const PROTO_ALL: u32 = 0x0300;

/// Direction of a hook, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Side {
    Ingress,
    Egress,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    fn parent(self) -> u32 {
        match self {
            Self::Ingress => 0xffff_fff2,
            Self::Egress => 0xffff_fff3,
        }
    }
}

/// A BPF filter in a `clsact` qdisc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) link: u32,
    pub(crate) side: Side,
    pub(crate) name: String,
    pub(crate) priority: u16,
    pub(crate) handle: u32,
    pub(crate) program: u32,
}

impl Rtnl {
    /// Makes sure the link has a `clsact` qdisc. Says whether it had to be added.
    pub(crate) fn ensure_clsact(&mut self, link: u32) -> Result<bool, Error> {
        let mut message = TcMessage::default();
        message.header.index = link.cast_signed();
        message.header.parent = handle(CLSACT);
        message.header.handle = handle(CLSACT_HANDLE);
        message.attributes = vec![TcAttribute::Kind("clsact".to_owned())];
        let added = self.change(
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
            "add the clsact qdisc",
        );
        match added {
            Err(e) if e.errno() == Some(libc::EEXIST) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Removes the `clsact` qdisc with everything in it.
    pub(crate) fn delete_clsact(&mut self, link: u32) -> Result<(), Error> {
        let mut message = TcMessage::default();
        message.header.index = link.cast_signed();
        message.header.parent = handle(CLSACT);
        message.header.handle = handle(CLSACT_HANDLE);
        self.change(
            RouteNetlinkMessage::DelQueueDiscipline(message),
            0,
            "delete the clsact qdisc",
        )
    }

    /// Adds a program after the filters that are there; the kernel picks priority and handle.
    pub(crate) fn add_filter(
        &mut self,
        link: u32,
        side: Side,
        name: &str,
        program: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let mut message = TcMessage::default();
        message.header.index = link.cast_signed();
        message.header.parent = handle(side.parent());
        message.header.info = PROTO_ALL;
        message.attributes = vec![
            TcAttribute::Kind("bpf".to_owned()),
            TcAttribute::Options(vec![
                TcOption::Bpf(TcFilterBpfOption::ProgFd(
                    program.as_raw_fd().cast_unsigned(),
                )),
                TcOption::Bpf(TcFilterBpfOption::ProgName(name.to_owned())),
                TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::from_bits_retain(1))),
            ]),
        ];
        self.change(
            RouteNetlinkMessage::NewTrafficFilter(message),
            NLM_F_CREATE | NLM_F_EXCL,
            &format!("add the {} filter {name}", side.name()),
        )
    }

    /// Removes one filter.
    pub(crate) fn delete_filter(&mut self, filter: &Filter) -> Result<(), Error> {
        let mut message = TcMessage::default();
        message.header.index = filter.link.cast_signed();
        message.header.parent = handle(filter.side.parent());
        message.header.handle = handle(filter.handle);
        message.header.info = u32::from(filter.priority) << 16 | PROTO_ALL;
        message.attributes = vec![TcAttribute::Kind("bpf".to_owned())];
        self.change(
            RouteNetlinkMessage::DelTrafficFilter(message),
            0,
            &format!("delete the filter {}", filter.name),
        )
    }

    /// BPF filters of a link. No qdisc, no filters.
    pub(crate) fn filters(&mut self, link: u32) -> Result<Vec<Filter>, Error> {
        let mut found = Vec::new();
        for side in Side::BOTH {
            let mut message = TcMessage::default();
            message.header.index = link.cast_signed();
            message.header.parent = handle(side.parent());
            let request = RouteNetlinkMessage::GetTrafficFilter(message);
            let rows = match self.dump(&request, "list filters") {
                // Older kernels answer so when there is no clsact qdisc.
                Err(e) if e.errno() == Some(libc::EINVAL) || e.is_gone() => continue,
                other => other?,
            };
            found.extend(
                rows.iter()
                    .filter(|(kind, _)| *kind == RTM_NEWTFILTER)
                    .filter_map(|(_, payload)| parse(payload, link, side)),
            );
        }
        Ok(found)
    }
}

fn handle(value: u32) -> TcHandle {
    TcHandle::from(value)
}

fn parse(payload: &[u8], link: u32, side: Side) -> Option<Filter> {
    let mut filter = Filter {
        link,
        side,
        name: String::new(),
        priority: (u32_at(payload, 16)? >> 16) as u16,
        handle: u32_at(payload, 8)?,
        program: 0,
    };
    let mut bpf = false;
    for (kind, value) in attributes(payload, HEADER) {
        match kind {
            TCA_KIND => bpf = text(value) == "bpf",
            TCA_OPTIONS => {
                for (kind, value) in attributes(value, 0) {
                    match kind {
                        TCA_BPF_NAME => filter.name = text(value),
                        TCA_BPF_ID => filter.program = u32_at(value, 0)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    // The dump of a filter chain starts with a header row that has no handle.
    (bpf && filter.handle != 0).then_some(filter)
}
