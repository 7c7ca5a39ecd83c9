//! The `bpf(2)` calls that aya does not offer: batch operations, inner maps, and links that
//! are addressed by interface index from any thread.
//!
//! One function per command, one `repr(C)` struct per argument layout. Nothing here keeps
//! state; descriptors are owned by the callers.

mod elements;
mod links;

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

pub(super) use elements::{
    EXIST, create_array, create_hash, create_lpm, delete, lookup, lookup_batch, update,
    update_batch,
};
#[cfg(test)]
pub(super) use links::links;
pub(super) use links::{
    Order, XdpMode, attach_cgroup, attach_sk_lookup, attach_tcx, attach_xdp, detach_link,
    load_pass, load_redirect_peer, program_name, query_tcx, tcx_link, update_link, xdp_link,
};

const OBJ_PIN: i32 = 6;
const OBJ_GET: i32 = 7;
const OBJ_INFO: i32 = 15;

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
