//! Commands on map elements, single and in batches, and the creation of inner maps.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use super::{call, call_fd, raw};

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const MAP_LOOKUP_BATCH: i32 = 24;
const MAP_UPDATE_BATCH: i32 = 26;

const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_LPM_TRIE: u32 = 11;
const F_NO_PREALLOC: u32 = 1;

/// Only replace.
pub(in super::super) const EXIST: u64 = 2;

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
pub(in super::super) unsafe fn lookup<K, V>(
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
pub(in super::super) unsafe fn update<K, V>(
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
pub(in super::super) unsafe fn delete<K>(map: BorrowedFd<'_>, key: *const K) -> io::Result<bool> {
    let mut argument = elem(map, key, std::ptr::null::<u8>(), 0);
    present(call(MAP_DELETE, &mut argument))
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
pub(in super::super) unsafe fn lookup_batch<K, V>(
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
pub(in super::super) unsafe fn update_batch<K, V>(
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
pub(in super::super) fn create_lpm(key_size: u32, entries: u32) -> io::Result<OwnedFd> {
    create(MAP_TYPE_LPM_TRIE, key_size, 4, entries)
}

/// Creates an array, to be put into an outer map.
pub(in super::super) fn create_array(value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    create(MAP_TYPE_ARRAY, 4, value_size, entries)
}

/// Creates a hash, to be put into an outer map.
pub(in super::super) fn create_hash(
    key_size: u32,
    value_size: u32,
    entries: u32,
) -> io::Result<OwnedFd> {
    create(MAP_TYPE_HASH, key_size, value_size, entries)
}

fn create(map_type: u32, key_size: u32, value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
    }
    let mut argument = Create {
        map_type,
        key_size,
        value_size,
        max_entries: entries,
        // An array always has all its elements.
        flags: if map_type == MAP_TYPE_ARRAY {
            0
        } else {
            F_NO_PREALLOC
        },
    };
    call_fd(MAP_CREATE, &mut argument)
}
