//! Links: programs on interfaces and namespaces, and trial programs to attach.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use super::{call, call_fd, object_info, raw};
use crate::netlink::Side;

const PROG_LOAD: i32 = 5;
const PROG_GET_FD_BY_ID: i32 = 13;
const PROG_QUERY: i32 = 16;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const LINK_DETACH: i32 = 34;

const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
const SK_LOOKUP: u32 = 36;
const XDP: u32 = 37;
const F_BEFORE: u32 = 1 << 3;
const F_AFTER: u32 = 1 << 4;

const PROG_TYPE_SCHED_CLS: u32 = 3;

/// Place of a TCX program among foreign ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Order {
    First,
    Last,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    pad: u32,
    revision: u64,
}

/// Attaches a program to an interface of the calling thread's namespace.
pub(in super::super) fn attach_tcx(
    program: BorrowedFd<'_>,
    link: u32,
    side: Side,
    order: Order,
) -> io::Result<OwnedFd> {
    let mut argument = LinkCreate {
        program: raw(program),
        target: link,
        attach_type: tcx_type(side),
        flags: match order {
            Order::First => F_BEFORE,
            Order::Last => F_AFTER,
        },
        relative: 0,
        pad: 0,
        revision: 0,
    };
    call_fd(LINK_CREATE, &mut argument)
}

/// Attaches an `sk_lookup` program to a namespace.
pub(in super::super) fn attach_sk_lookup(
    program: BorrowedFd<'_>,
    netns: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let mut argument = LinkCreate {
        program: raw(program),
        target: raw(netns),
        attach_type: SK_LOOKUP,
        flags: 0,
        relative: 0,
        pad: 0,
        revision: 0,
    };
    call_fd(LINK_CREATE, &mut argument)
}

/// Attaches a program to a control group.
pub(in super::super) fn attach_cgroup(
    program: BorrowedFd<'_>,
    group: BorrowedFd<'_>,
    attach_type: u32,
) -> io::Result<OwnedFd> {
    let mut argument = LinkCreate {
        program: raw(program),
        target: raw(group),
        attach_type,
        flags: 0,
        relative: 0,
        pad: 0,
        revision: 0,
    };
    call_fd(LINK_CREATE, &mut argument)
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum XdpMode {
    /// In the driver, before a socket buffer is made.
    Native,
    /// In front of the stack, on a socket buffer.
    Generic,
}

/// Attaches an XDP program to an interface of the calling thread's namespace.
pub(in super::super) fn attach_xdp(
    program: BorrowedFd<'_>,
    link: u32,
    mode: XdpMode,
) -> io::Result<OwnedFd> {
    let mut argument = LinkCreate {
        program: raw(program),
        target: link,
        attach_type: XDP,
        flags: match mode {
            XdpMode::Native => 1 << 2,
            XdpMode::Generic => 1 << 1,
        },
        relative: 0,
        pad: 0,
        revision: 0,
    };
    call_fd(LINK_CREATE, &mut argument)
}

fn tcx_type(side: Side) -> u32 {
    match side {
        Side::Ingress => TCX_INGRESS,
        Side::Egress => TCX_EGRESS,
    }
}

/// Replaces the program of a link; no packet sees a gap.
pub(in super::super) fn update_link(
    link: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut argument = [raw(link), raw(program), 0, 0];
    call(LINK_UPDATE, &mut argument).map(drop)
}

/// Takes a link off its hook now, whoever else holds it.
pub(in super::super) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut argument = [raw(link)];
    call(LINK_DETACH, &mut argument).map(drop)
}

/// Where a TCX link is attached: interface index and side. No interface means that the
/// interface is gone or the link was detached.
pub(in super::super) fn tcx_link(link: BorrowedFd<'_>) -> io::Result<Option<(u32, Side)>> {
    const LINK_TYPE_TCX: u32 = 11;
    // bpf_link_info: type, id, prog_id, hole, then ifindex and attach_type of a TCX link.
    let info: [u32; 32] = object_info(link)?;
    let side = match info[5] {
        TCX_INGRESS => Side::Ingress,
        TCX_EGRESS => Side::Egress,
        _ => return Ok(None),
    };
    Ok((info[0] == LINK_TYPE_TCX && info[4] != 0).then_some((info[4], side)))
}

/// Interface of an XDP link, while it is attached.
pub(in super::super) fn xdp_link(link: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    const LINK_TYPE_XDP: u32 = 6;
    // bpf_link_info: type, id, prog_id, hole, then ifindex of an XDP link.
    let info: [u32; 32] = object_info(link)?;
    Ok((info[0] == LINK_TYPE_XDP && info[4] != 0).then_some(info[4]))
}

/// Loads a classifier that passes everything, to try attachments with.
pub(in super::super) fn load_pass() -> io::Result<OwnedFd> {
    // r0 = -1; exit
    load_classifier(&[0xffff_ffff_0000_00b7, EXIT])
}

/// Loads a classifier that hands every packet to the peer of a link.
pub(in super::super) fn load_redirect_peer(link: u32) -> io::Result<OwnedFd> {
    const REDIRECT_PEER: u64 = 155;
    // r1 = link; r2 = 0; call; exit
    load_classifier(&[
        0x01b7 | u64::from(link) << 32,
        0x02b7,
        0x85 | REDIRECT_PEER << 32,
        EXIT,
    ])
}

const EXIT: u64 = 0x95;

fn load_classifier(code: &[u64]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        instructions: u32,
        code: u64,
        license: u64,
    }
    let license = c"GPL";
    let mut argument = Load {
        kind: PROG_TYPE_SCHED_CLS,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
    };
    call_fd(PROG_LOAD, &mut argument)
}

/// Programs and links of one TCX hook, in the order of their turn.
#[derive(Debug, Default)]
pub(in super::super) struct Hooked {
    pub(in super::super) programs: Vec<u32>,
    #[cfg(test)]
    pub(in super::super) links: Vec<u32>,
}

/// Most programs that one hook of the kernel takes.
const TCX_MOST: usize = 64;

/// What is on an interface of the calling thread's namespace.
pub(in super::super) fn query_tcx(interface: u32, side: Side) -> io::Result<Hooked> {
    #[repr(C)]
    struct Query {
        target: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        programs: u64,
        count: u32,
        pad: u32,
        program_flags: u64,
        links: u64,
        link_flags: u64,
        revision: u64,
    }
    let mut programs = [0u32; TCX_MOST];
    let mut links = [0u32; TCX_MOST];
    let mut argument = Query {
        target: interface,
        attach_type: tcx_type(side),
        query_flags: 0,
        attach_flags: 0,
        programs: programs.as_mut_ptr() as u64,
        count: TCX_MOST as u32,
        pad: 0,
        program_flags: 0,
        links: links.as_mut_ptr() as u64,
        link_flags: 0,
        revision: 0,
    };
    match call(PROG_QUERY, &mut argument) {
        Ok(_) => {
            let count = TCX_MOST.min(argument.count as usize);
            Ok(Hooked {
                programs: programs[..count].to_vec(),
                #[cfg(test)]
                links: links[..count].to_vec(),
            })
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Hooked::default()),
        Err(e) => Err(e),
    }
}

/// Name of a loaded program, cut at 15 characters by the kernel.
pub(in super::super) fn program_name(id: u32) -> io::Result<String> {
    let fd = call_fd(PROG_GET_FD_BY_ID, &mut [id, 0, 0])?;
    // bpf_prog_info: the name stands at byte 64.
    let info = object_info(fd.as_fd())?;
    let bytes = info[16..20].iter().flat_map(|word| word.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// All links of the system.
#[cfg(test)]
pub(in super::super) fn links() -> io::Result<Vec<(u32, OwnedFd)>> {
    let mut found = Vec::new();
    // start_id, next_id, open_flags
    let mut next = [0u32, 0, 0];
    while call(31, &mut next).is_ok() {
        next[0] = next[1];
        if let Ok(fd) = call_fd(30, &mut [next[0], 0, 0]) {
            found.push((next[0], fd));
        }
    }
    Ok(found)
}
