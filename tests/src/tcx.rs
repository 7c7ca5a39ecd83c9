//! Foreign programs beside honk's: one that counts every packet, may set the mark and passes on,
//! and one for XDP that only passes.
//!
//! Tests of hook order attach the first before or after honk's own programs.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::Context as _;

use crate::netns::Netns;
use crate::tool;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const OBJ_PIN: libc::c_int = 6;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const XDP: u32 = 37;
/// Takes packets of several pages; a link as large as the pair has no others.
const XDP_HAS_FRAGS: u32 = 1 << 5;
/// In front of the stack.
const XDP_GENERIC: u32 = 1 << 1;
const TCX_INGRESS: u32 = 46;
const F_BEFORE: u32 = 1 << 3;
const F_AFTER: u32 = 1 << 4;

/// Where a foreign program stands in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// First of all.
    First,
    /// Last of all.
    Last,
}

/// An attached counting program; detached when dropped.
#[derive(Debug)]
pub struct Counter {
    map: OwnedFd,
    _link: OwnedFd,
}

impl Counter {
    /// Attaches at the ingress of an interface; `mark` is written into every packet.
    pub fn attach(ns: &Netns, interface: &str, place: Place, mark: Option<u32>) -> Result<Self> {
        ns.run(|| Self::attach_here(interface, place, mark))
    }

    fn attach_here(interface: &str, place: Place, mark: Option<u32>) -> Result<Self> {
        let index = index_of(interface)?;
        let (map, program) = load(mark)?;
        let flags = if place == Place::First {
            F_BEFORE
        } else {
            F_AFTER
        };
        let link = [
            program.as_raw_fd() as u32,
            index,
            TCX_INGRESS,
            flags,
            0,
            0,
            0,
            0,
        ];
        Ok(Self {
            map,
            _link: fd_of(LINK_CREATE, &link)?,
        })
    }

    /// Packets seen so far.
    pub fn count(&self) -> Result<u64> {
        read(&self.map)
    }
}

/// The same program as a clsact filter; it stays until the interface or its qdisc goes.
#[derive(Debug)]
pub struct Filter {
    map: OwnedFd,
}

impl Filter {
    /// Adds the qdisc and the filter; `pin` is a free path on a bpf file system.
    pub fn attach(ns: &Netns, interface: &str, pin: &Path) -> anyhow::Result<Self> {
        let (map, program) = load(None)?;
        let path = std::ffi::CString::new(pin.as_os_str().as_bytes())?;
        let attr = [path.as_ptr() as u64, program.as_raw_fd() as u64];
        bpf(OBJ_PIN, &attr).with_context(|| format!("cannot pin at {}", pin.display()))?;
        let mut tc = ns.command("tc");
        tool::run(tc.args(["qdisc", "add", "dev", interface, "clsact"]))?;
        let mut tc = ns.command("tc");
        tc.args([
            "filter",
            "add",
            "dev",
            interface,
            "ingress",
            "bpf",
            "direct-action",
        ]);
        tool::run(tc.arg("object-pinned").arg(pin))?;
        std::fs::remove_file(pin)?;
        Ok(Self { map })
    }

    /// Packets seen so far.
    pub fn count(&self) -> Result<u64> {
        read(&self.map)
    }
}

/// A map with one counter and the program that counts into it.
fn load(mark: Option<u32>) -> Result<(OwnedFd, OwnedFd)> {
    // type, key size, value size, entries, flags
    let map = fd_of(MAP_CREATE, &[MAP_TYPE_ARRAY, 4, 8, 1, 0])?;
    let code = program(map.as_raw_fd(), mark);
    let program = load_code(PROG_TYPE_SCHED_CLS, &code, 0)?;
    Ok((map, program))
}

fn load_code(kind: u32, code: &[u64], flags: u32) -> Result<OwnedFd> {
    let head = u64::from(kind) | (code.len() as u64) << 32;
    let flags = u64::from(flags) << 32;
    // type and instruction count, instructions, licence, log level and size, buffer, flags
    let code = code.as_ptr() as u64;
    fd_of(
        PROG_LOAD,
        &[head, code, c"GPL".as_ptr() as u64, 0, 0, flags],
    )
}

fn index_of(interface: &str) -> Result<u32> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: name is a valid C string for the duration of the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(Error::last_os_error()),
        index => Ok(index),
    }
}

/// Verdicts of the programs here.
pub const XDP_DROP: u32 = 1;
/// See above.
pub const XDP_PASS: u32 = 2;

/// An XDP program that gives every packet one verdict.
pub fn xdp_program(verdict: u32) -> Result<OwnedFd> {
    // w0 = verdict; exit
    let code = [u64::from(verdict) << 32 | 0xb4, 0x95];
    load_code(PROG_TYPE_XDP, &code, XDP_HAS_FRAGS)
}

/// An XDP program that passes every frame as it was at first: frames of a live test run are used
/// again as forwarding left them, with other addresses and less time to live.
pub fn xdp_restore(frame: &[u8]) -> anyhow::Result<OwnedFd> {
    let insn = |code: u8, dst: u8, src: u8, off: i16, imm: u32| {
        u64::from(code)
            | u64::from(src << 4 | dst) << 8
            | u64::from(off as u16) << 16
            | u64::from(imm) << 32
    };
    let word = |at: usize| -> anyhow::Result<u32> {
        let bytes = frame.get(at..at + 4).and_then(|b| b.try_into().ok());
        Ok(u32::from_ne_bytes(bytes.context("a short frame")?))
    };
    let mut code = vec![
        insn(0x61, 2, 1, 0, 0),  // r2 = data
        insn(0x61, 3, 1, 4, 0),  // r3 = data_end
        insn(0xbf, 4, 2, 0, 0),  // r4 = r2
        insn(0x07, 4, 0, 0, 28), // r4 += 28
        insn(0x2d, 4, 3, 7, 0),  // beyond the end: pass
    ];
    for at in (0..28).step_by(4) {
        code.push(insn(0x62, 2, 0, at as i16, word(at)?)); // four bytes
    }
    code.extend([u64::from(XDP_PASS) << 32 | 0xb4, 0x95]);
    Ok(load_code(PROG_TYPE_XDP, &code, XDP_HAS_FRAGS)?)
}

/// A program with one verdict on an interface of the calling thread's namespace, until the descriptor is closed.
pub fn xdp_here(interface: &str, verdict: u32) -> Result<OwnedFd> {
    attach_xdp(interface, verdict, 0)
}

fn attach_xdp(interface: &str, verdict: u32, mode: u32) -> Result<OwnedFd> {
    let program = xdp_program(verdict)?;
    let fd = program.as_raw_fd() as u32;
    let index = index_of(interface)?;
    fd_of(LINK_CREATE, &[fd, index, XDP, mode, 0, 0, 0, 0])
}

/// An XDP program that passes everything; its presence makes a veth receive through NAPI. It is
/// detached when the descriptor is closed.
pub fn xdp_pass(ns: &Netns, interface: &str) -> Result<OwnedFd> {
    ns.run(|| xdp_here(interface, XDP_PASS))
}

/// The same in front of the stack instead of in the driver. There the kernel gives a program that
/// takes packets of several pages a copy of each packet, which does not know its link header.
pub fn xdp_generic_here(interface: &str) -> Result<OwnedFd> {
    attach_xdp(interface, XDP_PASS, XDP_GENERIC)
}

fn read(map: &OwnedFd) -> Result<u64> {
    let (key, mut value) = (0_u32, 0_u64);
    let attr = [
        map.as_raw_fd() as u64,
        std::ptr::from_ref(&key) as u64,
        std::ptr::from_mut(&mut value) as u64,
        0,
    ];
    bpf(MAP_LOOKUP, &attr)?;
    Ok(value)
}

/// Adds one to the only element of the map, writes the mark, returns NEXT.
fn program(map: i32, mark: Option<u32>) -> Vec<u64> {
    let insn = |code: u8, dst: u8, src: u8, off: i16, imm: i32| {
        u64::from(code)
            | u64::from(src << 4 | dst) << 8
            | u64::from(off as u16) << 16
            | u64::from(imm as u32) << 32
    };
    let mut code = vec![insn(0xbf, 6, 1, 0, 0)]; // r6 = ctx
    if let Some(mark) = mark {
        code.push(insn(0xb4, 1, 0, 0, mark as i32)); // w1 = mark
        code.push(insn(0x63, 6, 1, 8, 0)); // ctx->mark = w1
    }
    code.extend([
        insn(0x62, 10, 0, -4, 0), // key on the stack = 0
        insn(0x18, 1, 1, 0, map), // r1 = map
        0,                        // second half of the wide load
        insn(0xbf, 2, 10, 0, 0),  // r2 = fp
        insn(0x07, 2, 0, 0, -4),  // r2 -= 4
        insn(0x85, 0, 0, 0, 1),   // r0 = map_lookup_elem
        insn(0x15, 0, 0, 2, 0),   // none: skip
        insn(0xb7, 1, 0, 0, 1),   // r1 = 1
        insn(0xdb, 0, 1, 0, 0),   // *r0 += r1, atomically
        insn(0xb4, 0, 0, 0, -1),  // NEXT
        insn(0x95, 0, 0, 0, 0),   // exit
    ]);
    code
}

fn fd_of<T>(command: libc::c_int, attr: &[T]) -> Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: the command has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: libc::c_int, attr: &[T]) -> Result<libc::c_int> {
    // SAFETY: attr holds the fields the command reads, in its layout, and outlives the call.
    let code = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_ptr(), size_of_val(attr)) };
    if code < 0 {
        return Err(Error::last_os_error());
    }
    Ok(code as libc::c_int)
}
