//! The few bpf(2) commands the kernel tests need, on raw bytes.
//!
//! aya loads the object; maps are then written and read through their descriptors, because the
//! tests use the ABI structs as they are and aya's typed maps want traits of its own.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const MAP_NEXT_KEY: libc::c_int = 4;
const MAP_UPDATE_BATCH: libc::c_int = 26;
const PROG_TEST_RUN: libc::c_int = 10;

const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_LPM_TRIE: u32 = 11;
const F_NO_PREALLOC: u32 = 1;
/// Of a test run: what an XDP program passes goes on into the stack.
const F_LIVE_FRAMES: u32 = 1 << 1;

#[repr(C)]
struct ElemAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

#[repr(C)]
struct CreateAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct RunAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

fn bpf<T>(cmd: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: every attr struct above begins with the fields the command reads, and its size is
    // given; pointers inside refer to buffers that the caller keeps alive.
    let r = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            cmd,
            std::ptr::from_mut(attr),
            size_of::<T>() as libc::c_uint,
        )
    };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(r as libc::c_int)
}

fn elem(fd: BorrowedFd<'_>, key: *const u8, value: *const u8) -> ElemAttr {
    ElemAttr {
        map_fd: fd.as_raw_fd() as u32,
        pad: 0,
        key: key as u64,
        value: value as u64,
        flags: 0,
    }
}

/// Inserts or replaces an entry.
pub fn update(fd: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    bpf(MAP_UPDATE, &mut elem(fd, key.as_ptr(), value.as_ptr())).map(drop)
}

/// Replaces `count` entries at once.
pub fn update_batch(
    fd: BorrowedFd<'_>,
    keys: &[u8],
    values: &[u8],
    count: usize,
) -> io::Result<()> {
    let mut attr = BatchAttr {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count: count as u32,
        map_fd: fd.as_raw_fd() as u32,
        elem_flags: 0,
        flags: 0,
    };
    bpf(MAP_UPDATE_BATCH, &mut attr).map(drop)
}

/// Reads an entry into `value`; false if there is none.
pub fn lookup(fd: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    match bpf(MAP_LOOKUP, &mut elem(fd, key.as_ptr(), value.as_mut_ptr())) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes an entry; false if there was none.
pub fn delete(fd: BorrowedFd<'_>, key: &[u8]) -> io::Result<bool> {
    match bpf(MAP_DELETE, &mut elem(fd, key.as_ptr(), std::ptr::null())) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Some key of the map, or `None` if the map is empty.
pub fn first_key(fd: BorrowedFd<'_>, key_size: usize) -> io::Result<Option<Vec<u8>>> {
    let mut key = vec![0u8; key_size];
    match bpf(
        MAP_NEXT_KEY,
        &mut elem(fd, std::ptr::null(), key.as_mut_ptr()),
    ) {
        Ok(_) => Ok(Some(key)),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A prefix map for one bank of `DEST_LPM` or `SRC_LPM`.
pub fn create_prefixes(capacity: u32) -> io::Result<OwnedFd> {
    create(MAP_TYPE_LPM_TRIE, 20, 4, capacity)
}

/// An inner hash for `DOMAIN`.
pub fn create_names(capacity: u32) -> io::Result<OwnedFd> {
    let value = size_of::<honk_common::route::DomainVal>() as u32;
    create(MAP_TYPE_HASH, 16, value, capacity)
}

/// An inner array for `DEST_NEAR` or `SRC_NEAR`.
pub fn create_near() -> io::Result<OwnedFd> {
    let value = size_of::<honk_common::route::NearWords>() as u32;
    create(MAP_TYPE_ARRAY, 4, value, honk_common::limits::NEAR_ENTRIES)
}

fn create(map_type: u32, key_size: u32, value_size: u32, capacity: u32) -> io::Result<OwnedFd> {
    let mut attr = CreateAttr {
        map_type,
        key_size,
        value_size,
        max_entries: capacity.max(1),
        map_flags: if map_type == MAP_TYPE_ARRAY {
            0
        } else {
            F_NO_PREALLOC
        },
    };
    let fd: RawFd = bpf(MAP_CREATE, &mut attr)?;
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The root of the unified control groups, by a mount of its own.
pub fn control_group() -> io::Result<OwnedFd> {
    use std::os::fd::AsFd as _;

    use rustix::fs::{Mode, OFlags, openat};
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
    };
    let context = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(context.as_fd(), flags, MountAttrFlags::empty())?;
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&mount, ".", directory, Mode::empty())?)
}

/// What a test run gave.
#[derive(Debug)]
pub struct Ran {
    /// Return value of the program.
    pub verdict: i32,
    /// Average nanoseconds of one repetition.
    pub ns: u32,
    /// Packet after the program.
    pub data: Vec<u8>,
}

impl Ran {
    /// The verdict, with a refusal counted as the drop it is: a blocked SYN comes back to its
    /// sender as a reset.
    pub fn outcome(&self) -> i32 {
        let handed_over = self.data.get(6..9) == Some(&honk_common::param::MAGIC_MAC);
        if self.verdict == super::REDIRECT && !handed_over {
            super::SHOT
        } else {
            self.verdict
        }
    }
}

/// Lets `count` copies of a frame arrive on an interface, each through an XDP program.
pub fn inject(prog: BorrowedFd<'_>, frame: &[u8], interface: u32, count: u32) -> io::Result<()> {
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress.
    let ctx = [0, frame.len() as u32, 0, interface, 0, 0];
    let mut attr = RunAttr {
        prog_fd: prog.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat: count,
        ctx_size_in: size_of_val(&ctx) as u32,
        ctx_in: ctx.as_ptr() as u64,
        flags: F_LIVE_FRAMES,
        ..RunAttr::default()
    };
    bpf(PROG_TEST_RUN, &mut attr).map(drop)
}

/// Runs a program on a packet. `ctx` is read and written back.
pub fn test_run(prog: BorrowedFd<'_>, data: &[u8], ctx: &mut [u8], repeat: u32) -> io::Result<Ran> {
    let mut out = vec![0u8; data.len() + 256];
    let mut attr = RunAttr {
        prog_fd: prog.as_raw_fd() as u32,
        repeat,
        ctx_size_in: ctx.len() as u32,
        ctx_size_out: ctx.len() as u32,
        ctx_in: ctx.as_ptr() as u64,
        ctx_out: ctx.as_mut_ptr() as u64,
        ..RunAttr::default()
    };
    if !data.is_empty() {
        attr.data_size_in = data.len() as u32;
        attr.data_in = data.as_ptr() as u64;
        attr.data_size_out = out.len() as u32;
        attr.data_out = out.as_mut_ptr() as u64;
    }
    bpf(PROG_TEST_RUN, &mut attr)?;
    out.truncate(attr.data_size_out as usize);
    Ok(Ran {
        verdict: attr.retval as i32,
        ns: attr.duration,
        data: out,
    })
}
