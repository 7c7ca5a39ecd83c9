//! The kernel object: loads it and keeps typed handles on its maps and programs.
//!
//! aya reads the ELF file, creates maps and loads programs; afterwards only descriptors are
//! kept. Dropping this drops the maps and programs that nothing else holds.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use aya::{
    EbpfLoader,
    maps::{Map as AyaMap, MapData, RingBuf},
    programs::{Program, ProgramError},
};
use honk_common::{
    counter::OutStats,
    flow::{FlowVal, ReturnVal},
    key::FlowKey,
    param::{AbiMeta, Param},
    route::{ClassBits, DscpClasses, PnameKey, PortClasses, RouteMeta, RuleAct},
};

use super::{
    error::Error,
    map::{Addr, Map},
    process,
};
use crate::netlink::Side;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../honk-ebpf/prebuilt/honk.bpf.o"
));

/// Maps the daemon reads or writes.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) gate: Map<u32, u32>,
    pub(super) param: Map<u32, Param>,
    pub(super) flags: Map<u32, u32>,
    pub(super) flow: Map<FlowKey, FlowVal>,
    pub(super) ret: Map<Addr, ReturnVal>,
    pub(super) local_addr: Map<Addr, u32>,
    pub(super) route_sel: Map<u32, u32>,
    pub(super) route_meta: Map<u32, RouteMeta>,
    pub(super) rule_act: Map<u32, RuleAct>,
    pub(super) class_bits: Map<u32, ClassBits>,
    pub(super) usual_bits: Map<u32, ClassBits>,
    pub(super) port_class: Map<u32, PortClasses>,
    pub(super) dscp_class: Map<u32, DscpClasses>,
    pub(super) mac_class: Map<u64, u32>,
    pub(super) pname_class: Map<PnameKey, u32>,
    pub(super) dest_lpm: Map<u32, u32>,
    pub(super) src_lpm: Map<u32, u32>,
    pub(super) dest_near: Map<u32, u32>,
    pub(super) src_near: Map<u32, u32>,
    pub(super) domain: Map<u32, u32>,
    pub(super) xdp_block: Map<u32, u32>,
    pub(super) xdp_mac: Map<u32, u64>,
    pub(super) group_state: Map<u32, u32>,
    pub(super) socks: Socks,
    pub(super) out_stats: Map<u32, OutStats>,
    pub(super) stats: Map<u32, u64>,
}

/// All programs.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) hooks: [Hook; HOOKS.len()],
    /// Hooks of the root control group, in the order of [`process::HOOKS`]; absent where the
    /// kernel refuses them.
    pub(super) process: Option<Vec<OwnedFd>>,
    pub(super) dev0: OwnedFd,
    pub(super) peer: OwnedFd,
    pub(super) listener: OwnedFd,
    /// The early drop program for drivers and for the generic mode, if it is asked for and the
    /// kernel takes it.
    pub(super) guard: Option<[OwnedFd; 2]>,
}

/// A program of an interface.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: &'static str,
    pub(super) fd: OwnedFd,
}

/// Whether packets of an interface start with an Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    L2,
    L3,
}

/// What an interface is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Clients come in here.
    Lan,
    /// The gateway's own traffic leaves here.
    Wan,
    /// Both: its one ingress program serves clients, its egress program the gateway.
    Both,
}

/// Which programs an interface gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) layer: Layer,
    pub(super) role: Role,
}

/// LAN before WAN, egress before ingress, L2 before L3: the order [`Place::program`] counts on.
const HOOKS: [&str; 8] = [
    "lan_egress_l2",
    "lan_egress_l3",
    "lan_ingress_l2",
    "lan_ingress_l3",
    "wan_egress_l2",
    "wan_egress_l3",
    "wan_ingress_l2",
    "wan_ingress_l3",
];

impl Place {
    /// Whether the program of a side belongs to the WAN.
    fn is_wan(self, side: Side) -> bool {
        match self.role {
            Role::Lan => false,
            Role::Wan => true,
            Role::Both => side == Side::Egress,
        }
    }

    /// Index in [`HOOKS`].
    fn program(self, side: Side) -> usize {
        usize::from(self.is_wan(side)) * 4
            + usize::from(side == Side::Ingress) * 2
            + usize::from(self.layer == Layer::L3)
    }

    /// Whether the program of a side decides about packets; the others watch.
    pub(super) fn decides(self, side: Side) -> bool {
        self.is_wan(side) == (side == Side::Egress)
    }
}

impl Programs {
    /// The program of an interface for a side.
    pub(super) fn hook(&self, side: Side, place: Place) -> &Hook {
        &self.hooks[place.program(side)]
    }
}

/// Name of that program.
pub(super) fn hook_name(side: Side, place: Place) -> &'static str {
    HOOKS[place.program(side)]
}

/// Whether a name is that of a program for interfaces.
pub(super) fn is_hook(name: &str) -> bool {
    HOOKS.contains(&name)
}

/// What a load yields.
pub(super) struct Object {
    pub(super) maps: Maps,
    pub(super) programs: Programs,
    pub(super) events: RingBuf<MapData>,
}

/// `SOCKS`: written only, by socket descriptor.
#[derive(Debug)]
pub(super) struct Socks {
    fd: OwnedFd,
    wide: bool,
}

impl Socks {
    pub(super) fn publish(&self, slot: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let value = u64::from(socket.as_raw_fd().cast_unsigned());
        // SAFETY: the key is a u32; the value is at least as large as the map's value size,
        // and a descriptor fits its low half.
        unsafe { super::bpf::update(self.fd.as_fd(), &raw const slot, &raw const value, 0) }
    }

    /// Whether a slot holds a live socket. A map with 4-byte values cannot tell; then yes.
    pub(super) fn present(&self, slot: u32) -> io::Result<bool> {
        if !self.wide {
            return Ok(true);
        }
        let mut cookie = 0u64;
        // SAFETY: key of 4, value of 8 bytes.
        unsafe { super::bpf::lookup(self.fd.as_fd(), &raw const slot, &raw mut cookie) }
    }
}

/// Loads the embedded object.
pub(super) fn load(flow_entries: u32, guard: bool) -> Result<Object, Error> {
    let mut ebpf = EbpfLoader::new()
        .map_max_entries("FLOW", flow_entries.max(1))
        .load(OBJECT)
        .map_err(load_error)?;
    // Programs first: their code names maps by descriptor, and taking a map closes it.
    let mut program = |name: &'static str| load_program(&mut ebpf, name);
    let mut hooks = Vec::with_capacity(HOOKS.len());
    for name in HOOKS {
        hooks.push(Hook {
            name,
            fd: program(name)?,
        });
    }
    let programs = Programs {
        hooks: hooks
            .try_into()
            .map_err(|_| Error::Object("program table".to_owned()))?,
        dev0: program("dev0_ingress")?,
        peer: program("peer_ingress")?,
        listener: program("listener_lookup")?,
        guard: guard.then(|| load_guard(&mut ebpf)).flatten(),
        process: load_process(&mut ebpf),
    };
    let mut take = |name: &str| -> Result<Option<OwnedFd>, Error> {
        ebpf.take_map(name).map(|m| owned(name, m)).transpose()
    };
    macro_rules! map {
        ($name:literal) => {
            match take($name)? {
                Some(fd) => {
                    Map::new(fd).map_err(|e| Error::Object(format!("map {}: {e}", $name)))?
                }
                None => return Err(Error::Object(format!("map {} is missing", $name))),
            }
        };
    }
    let maps = Maps {
        gate: map!("GATE"),
        param: map!("PARAM"),
        flags: map!("FLAGS"),
        flow: map!("FLOW"),
        ret: map!("RETURN"),
        local_addr: map!("LOCAL_ADDR"),
        route_sel: map!("ROUTE_SEL"),
        route_meta: map!("ROUTE_META"),
        rule_act: map!("RULE_ACT"),
        class_bits: map!("CLASS_BITS"),
        usual_bits: map!("USUAL_BITS"),
        port_class: map!("PORT_CLASS"),
        dscp_class: map!("DSCP_CLASS"),
        mac_class: map!("MAC_CLASS"),
        pname_class: map!("PNAME_CLASS"),
        dest_lpm: map!("DEST_LPM"),
        src_lpm: map!("SRC_LPM"),
        dest_near: map!("DEST_NEAR"),
        src_near: map!("SRC_NEAR"),
        domain: map!("DOMAIN"),
        xdp_block: map!("XDP_BLOCK"),
        xdp_mac: map!("XDP_MAC"),
        group_state: map!("GROUP_STATE"),
        socks: match take("SOCKS")? {
            Some(fd) => {
                let (_, value) =
                    super::bpf::map_sizes(fd.as_fd()).map_err(Error::io("read map SOCKS"))?;
                Socks {
                    fd,
                    wide: value == 8,
                }
            }
            None => return Err(Error::Object("map SOCKS is missing".to_owned())),
        },
        out_stats: map!("OUT_STATS"),
        stats: map!("STATS"),
    };
    write_meta(take("ABI_META")?)?;
    let events = ebpf
        .take_map("EVENTS")
        .ok_or_else(|| Error::Object("map EVENTS is missing".to_owned()))?;
    let events = RingBuf::try_from(events).map_err(|e| Error::Object(e.to_string()))?;
    Ok(Object {
        maps,
        programs,
        events,
    })
}

fn write_meta(fd: Option<OwnedFd>) -> Result<(), Error> {
    let Some(fd) = fd else { return Ok(()) };
    let map: Map<u32, AbiMeta> =
        Map::new(fd).map_err(|e| Error::Object(format!("map ABI_META: {e}")))?;
    let meta = AbiMeta {
        magic: honk_common::ABI_MAGIC,
        abi: honk_common::ABI_VERSION,
        ..AbiMeta::default()
    };
    map.put(&0, &meta).map_err(Error::io("write map ABI_META"))
}

fn load_program(ebpf: &mut aya::Ebpf, name: &'static str) -> Result<OwnedFd, Error> {
    let missing = || Error::Object(format!("program {name} is missing"));
    let fail = |e| refused(name, e);
    let fd = match ebpf.program_mut(name).ok_or_else(missing)? {
        Program::SchedClassifier(p) => {
            p.load().map_err(fail)?;
            p.fd().map_err(fail)?
        }
        Program::SkLookup(p) => {
            p.load().map_err(fail)?;
            p.fd().map_err(fail)?
        }
        Program::CgroupSock(p) => {
            p.load().map_err(fail)?;
            p.fd().map_err(fail)?
        }
        Program::CgroupSockAddr(p) => {
            p.load().map_err(fail)?;
            p.fd().map_err(fail)?
        }
        Program::Xdp(p) => {
            p.load().map_err(fail)?;
            p.fd().map_err(fail)?
        }
        _ => return Err(fail(ProgramError::UnexpectedProgramType)),
    };
    fd.as_fd()
        .try_clone_to_owned()
        .map_err(Error::io("duplicate a program descriptor"))
}

/// Without them processes are unknown, and everything else works.
fn load_process(ebpf: &mut aya::Ebpf) -> Option<Vec<OwnedFd>> {
    let names = process::HOOKS.iter().map(|(name, _)| *name);
    let loaded: Result<Vec<OwnedFd>, Error> = names.map(|name| load_program(ebpf, name)).collect();
    loaded
        .inspect_err(|e| {
            tracing::warn!(target: super::TARGET, error = %e, "process names stay unknown");
        })
        .ok()
}

/// Without it the rules hold all the same.
fn load_guard(ebpf: &mut aya::Ebpf) -> Option<[OwnedFd; 2]> {
    let mut load = |name| load_program(ebpf, name);
    let both = load("xdp_guard").and_then(|native| Ok([native, load("xdp_guard_generic")?]));
    both.inspect_err(|e| tracing::warn!(target: super::TARGET, error = %e, "no early drop"))
        .ok()
}

/// Bytes of a verifier log that are worth a log line: the verdict is at its end.
const LOG_TAIL: usize = 4096;

fn refused(name: &'static str, e: ProgramError) -> Error {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = e
    else {
        return Error::Object(format!("program {name}: {e}"));
    };
    let log = verifier_log.to_string();
    let tail = log
        .char_indices()
        .rev()
        .nth(LOG_TAIL)
        .map_or(log.as_str(), |(at, _)| &log[at..]);
    tracing::error!(target: super::TARGET, program = name, verifier = tail, "program refused");
    Error::Program {
        name,
        source: io_error,
    }
}

fn load_error(e: aya::EbpfError) -> Error {
    use aya::{EbpfError, maps::MapError, sys::SyscallError};
    match e {
        EbpfError::MapError(MapError::CreateError {
            name, io_error: io, ..
        }) => Error::Io {
            what: format!("create map {name}"),
            source: io,
        },
        EbpfError::MapError(MapError::SyscallError(SyscallError { call, io_error })) => Error::Io {
            what: call.to_owned(),
            source: io_error,
        },
        other => Error::Object(other.to_string()),
    }
}

fn owned(name: &str, map: AyaMap) -> Result<OwnedFd, Error> {
    let data: &MapData = match &map {
        AyaMap::Array(m)
        | AyaMap::ArrayOfMaps(m)
        | AyaMap::HashMap(m)
        | AyaMap::HashOfMaps(m)
        | AyaMap::LpmTrie(m)
        | AyaMap::LruHashMap(m)
        | AyaMap::PerCpuArray(m)
        | AyaMap::SockMap(m)
        | AyaMap::Unsupported(m) => m,
        _ => return Err(Error::Object(format!("map {name} has an unexpected type"))),
    };
    data.fd()
        .as_fd()
        .try_clone_to_owned()
        .map_err(Error::io("duplicate a map descriptor"))
}
