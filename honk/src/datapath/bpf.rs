//! The `bpf(2)` calls that aya does not offer: batch operations, inner maps, and links that
//! are addressed by interface index from any thread.
//!
//! One function per command, one `repr(C)` struct per argument layout. Nothing here keeps
//! state; descriptors are owned by the callers.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use crate::netlink::Side;

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const MAP_NEXT_KEY: i32 = 4;
const PROG_LOAD: i32 = 5;
const OBJ_PIN: i32 = 6;
const OBJ_GET: i32 = 7;
const OBJ_INFO: i32 = 15;
const MAP_LOOKUP_BATCH: i32 = 24;
const MAP_UPDATE_BATCH: i32 = 26;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const LINK_DETACH: i32 = 34;

const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
const SK_LOOKUP: u32 = 36;
const F_BEFORE: u32 = 1 << 3;
const F_AFTER: u32 = 1 << 4;

const MAP_TYPE_LPM_TRIE: u32 = 11;
const F_NO_PREALLOC: u32 = 1;

const PROG_TYPE_SCHED_CLS: u32 = 3;

/// Only replace.
pub(super) const EXIST: u64 = 2;

/// The kernel zero-extends a short argument, and rejects set bytes it does not know.
fn call<T>(command: i32, argument: &mut T) -> io::Result<i32> {
    loop {
        // SAFETY: `argument` is a live repr(C) struct of the command's layout without padding
        // that could hold garbage, its size is passed along, and the pointers inside refer to
        // buffers the caller keeps alive over the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                libc::c_long::from(command),
                std::ptr::from_mut(argument),
                size_of::<T>(),
            )
        };
        if result >= 0 {
            // Descriptors and zero fit.
            return Ok(i32::try_from(result).unwrap_or(0));
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

fn call_fd<T>(command: i32, argument: &mut T) -> io::Result<OwnedFd> {
    let fd = call(command, argument)?;
    // SAFETY: the command returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

#[repr(C)]
struct Elem {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn elem<K, V>(map: BorrowedFd<'_>, key: *const K, value: *const V, flags: u64) -> Elem {
    Elem {
        map: raw(map),
        pad: 0,
        key: key as u64,
        value: value as u64,
        flags,
    }
}

/// Reads an element into `value`, which must hold what the map's value size says (for per-CPU
/// maps: once per possible CPU). False when there is none.
///
/// # Safety
/// `key` and `value` must be valid for the map's key size and its total value size.
pub(super) unsafe fn lookup<K, V>(
    map: BorrowedFd<'_>,
    key: *const K,
    value: *mut V,
) -> io::Result<bool> {
    let mut argument = elem(map, key, value.cast_const(), 0);
    present(call(MAP_LOOKUP, &mut argument))
}

/// Writes an element.
///
/// # Safety
/// `key` and `value` must be valid for the map's key and value size.
pub(super) unsafe fn update<K, V>(
    map: BorrowedFd<'_>,
    key: *const K,
    value: *const V,
    flags: u64,
) -> io::Result<()> {
    call(MAP_UPDATE, &mut elem(map, key, value, flags)).map(drop)
}

/// Deletes an element; false when there was none.
///
/// # Safety
/// `key` must be valid for the map's key size.
pub(super) unsafe fn delete<K>(map: BorrowedFd<'_>, key: *const K) -> io::Result<bool> {
    let mut argument = elem(map, key, std::ptr::null::<u8>(), 0);
    present(call(MAP_DELETE, &mut argument))
}

/// Writes the key after `key` (the first one for null) to `next`; false at the end.
///
/// # Safety
/// `key` must be null or valid for the map's key size, `next` valid for it.
pub(super) unsafe fn next_key<K>(
    map: BorrowedFd<'_>,
    key: *const K,
    next: *mut K,
) -> io::Result<bool> {
    let mut argument = elem(map, key, next.cast_const(), 0);
    present(call(MAP_NEXT_KEY, &mut argument))
}

fn present(result: io::Result<i32>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

#[repr(C)]
struct Batch {
    resume: u64,
    position: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    elem_flags: u64,
    flags: u64,
}

/// Reads up to `count` elements after `resume` (null: from the start) and stores where to go
/// on in `position`. Returns how many were read and whether the end was reached.
///
/// # Safety
/// `keys` and `values` must be valid for `count` elements of the map's sizes; `resume` must be
/// null or point to a position an earlier call on this map stored; `position` must be valid.
pub(super) unsafe fn lookup_batch<K, V>(
    map: BorrowedFd<'_>,
    resume: *const u32,
    position: *mut u32,
    keys: *mut K,
    values: *mut V,
    count: u32,
) -> io::Result<(u32, bool)> {
    let mut argument = Batch {
        resume: resume as u64,
        position: position as u64,
        keys: keys as u64,
        values: values as u64,
        count,
        map: raw(map),
        elem_flags: 0,
        flags: 0,
    };
    match call(MAP_LOOKUP_BATCH, &mut argument) {
        Ok(_) => Ok((argument.count, false)),
        // Only this says that the end was reached; a short batch does not.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok((argument.count, true)),
        Err(e) => Err(e),
    }
}

/// Writes `count` elements with one call. On failure some of them may have been written.
///
/// # Safety
/// `keys` and `values` must be valid for `count` elements of the map's sizes.
pub(super) unsafe fn update_batch<K, V>(
    map: BorrowedFd<'_>,
    keys: *const K,
    values: *const V,
    count: u32,
) -> io::Result<()> {
    let mut argument = Batch {
        resume: 0,
        position: 0,
        keys: keys as u64,
        values: values as u64,
        count,
        map: raw(map),
        elem_flags: 0,
        flags: 0,
    };
    call(MAP_UPDATE_BATCH, &mut argument).map(drop)
}

/// Creates a prefix map with `u32` values, to be put into an outer map.
pub(super) fn create_lpm(key_size: u32, entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
    }
    let mut argument = Create {
        map_type: MAP_TYPE_LPM_TRIE,
        key_size,
        value_size: 4,
        max_entries: entries,
        flags: F_NO_PREALLOC,
    };
    call_fd(MAP_CREATE, &mut argument)
}

/// Place of a TCX program among foreign ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
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
pub(super) fn attach_tcx(
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
pub(super) fn attach_sk_lookup(
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

fn tcx_type(side: Side) -> u32 {
    match side {
        Side::Ingress => TCX_INGRESS,
        Side::Egress => TCX_EGRESS,
    }
}

/// Replaces the program of a link; no packet sees a gap.
pub(super) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut argument = [raw(link), raw(program), 0, 0];
    call(LINK_UPDATE, &mut argument).map(drop)
}

/// Takes a link off its hook now, whoever else holds it.
pub(super) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut argument = [raw(link)];
    call(LINK_DETACH, &mut argument).map(drop)
}

/// Where a TCX link is attached: interface index and side. No interface means that the
/// interface is gone or the link was detached.
pub(super) fn tcx_link(link: BorrowedFd<'_>) -> io::Result<Option<(u32, Side)>> {
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

/// Kernel-wide id of a program.
pub(super) fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    // bpf_prog_info: type, id, ..
    let info: [u32; 32] = object_info(program)?;
    Ok(info[1])
}

/// Key and value size of a map.
pub(super) fn map_sizes(map: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    // bpf_map_info: type, id, key_size, value_size, max_entries, ..
    let info: [u32; 32] = object_info(map)?;
    Ok((info[2], info[3]))
}

/// Capacity of a map.
pub(super) fn map_capacity(map: BorrowedFd<'_>) -> io::Result<u32> {
    let info: [u32; 32] = object_info(map)?;
    Ok(info[4])
}

fn object_info(object: BorrowedFd<'_>) -> io::Result<[u32; 32]> {
    #[repr(C)]
    struct Info {
        object: u32,
        length: u32,
        buffer: u64,
    }
    let mut info = [0u32; 32];
    let mut argument = Info {
        object: raw(object),
        length: size_of_val(&info) as u32,
        buffer: info.as_mut_ptr() as u64,
    };
    call(OBJ_INFO, &mut argument)?;
    Ok(info)
}

#[repr(C)]
struct Pin {
    path: u64,
    object: u32,
    flags: u32,
}

/// Pins an object at a path on a bpffs.
pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut argument = Pin {
        path: path.as_ptr() as u64,
        object: raw(object),
        flags: 0,
    };
    call(OBJ_PIN, &mut argument).map(drop)
}

/// Opens a pinned object.
pub(super) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut argument = Pin {
        path: path.as_ptr() as u64,
        object: 0,
        flags: 0,
    };
    call_fd(OBJ_GET, &mut argument)
}

/// Loads a classifier that passes everything, to try attachments with.
pub(super) fn load_pass() -> io::Result<OwnedFd> {
    // r0 = -1; exit
    load_classifier(&[0xffff_ffff_0000_00b7, EXIT])
}

/// Loads a classifier that hands every packet to the peer of a link.
pub(super) fn load_redirect_peer(link: u32) -> io::Result<OwnedFd> {
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

/// Ids of the TCX links on an interface of the calling thread's namespace.
#[cfg(test)]
pub(super) fn query_tcx(interface: u32, side: Side) -> io::Result<Vec<u32>> {
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
    let mut programs = [0u32; 64];
    let mut links = [0u32; 64];
    let mut argument = Query {
        target: interface,
        attach_type: tcx_type(side),
        query_flags: 0,
        attach_flags: 0,
        programs: programs.as_mut_ptr() as u64,
        count: 64,
        pad: 0,
        program_flags: 0,
        links: links.as_mut_ptr() as u64,
        link_flags: 0,
        revision: 0,
    };
    match call(16, &mut argument) {
        Ok(_) => Ok(links[..argument.count as usize].to_vec()),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// All links of the system.
#[cfg(test)]
pub(super) fn links() -> io::Result<Vec<(u32, OwnedFd)>> {
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
