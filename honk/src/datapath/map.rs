//! Typed handles on the kernel maps. Every call is one system call on `&self`; the kernel does
//! the locking.

use std::{
    io,
    marker::PhantomData,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use honk_common::Pod;

use super::bpf;

/// Elements of one batch call.
const CHUNK: usize = 4096;

/// A map with keys `K` and values `V`.
#[derive(Debug)]
pub(super) struct Map<K, V> {
    fd: OwnedFd,
    kind: PhantomData<fn(K) -> V>,
}

/// A 16-byte address as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(super) struct Addr(pub(super) [u8; 16]);
// SAFETY: a transparent byte array.
unsafe impl Pod for Addr {}

impl<K, V> AsFd for Map<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<K: Pod, V: Pod> Map<K, V> {
    /// Wraps a descriptor. Fails unless the kernel's sizes are those of the types, since every
    /// call below relies on it.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        let (key, value) = bpf::map_sizes(fd.as_fd())?;
        if key as usize == size_of::<K>() && value as usize == size_of::<V>() {
            Ok(Self {
                fd,
                kind: PhantomData,
            })
        } else {
            Err(io::Error::other(format!(
                "key and value have {key} and {value} bytes in the kernel, {} and {} here",
                size_of::<K>(),
                size_of::<V>()
            )))
        }
    }

    /// The value of a key.
    pub(super) fn lookup(&self, key: &K) -> io::Result<Option<V>> {
        let mut value = MaybeUninit::<V>::uninit();
        // SAFETY: sizes were checked in `new`; the kernel fills the whole value.
        unsafe {
            Ok(bpf::lookup(self.as_fd(), key, value.as_mut_ptr())?.then(|| value.assume_init()))
        }
    }

    /// Inserts or replaces.
    pub(super) fn put(&self, key: &K, value: &V) -> io::Result<()> {
        // SAFETY: sizes were checked in `new`.
        unsafe { bpf::update(self.as_fd(), key, value, 0) }
    }

    /// Replaces; false when there is no such key.
    pub(super) fn replace(&self, key: &K, value: &V) -> io::Result<bool> {
        // SAFETY: sizes were checked in `new`.
        match unsafe { bpf::update(self.as_fd(), key, value, bpf::EXIST) } {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Deletes; false when there was nothing.
    pub(super) fn delete(&self, key: &K) -> io::Result<bool> {
        // SAFETY: sizes were checked in `new`.
        unsafe { bpf::delete(self.as_fd(), key) }
    }

    /// Writes many elements. Kernels that cannot batch this map type get single calls.
    pub(super) fn put_all(&self, keys: &[K], values: &[V]) -> io::Result<()> {
        debug_assert_eq!(keys.len(), values.len());
        for (keys, values) in keys.chunks(CHUNK).zip(values.chunks(CHUNK)) {
            // SAFETY: sizes were checked in `new`, and both slices have `len` elements.
            let batch = unsafe {
                bpf::update_batch(
                    self.as_fd(),
                    keys.as_ptr(),
                    values.as_ptr(),
                    keys.len() as u32,
                )
            };
            match batch {
                // EINVAL, or the kernel-internal "not supported".
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | 524)) => {
                    for (key, value) in keys.iter().zip(values) {
                        self.put(key, value)?;
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }
}

impl<V: Pod> Map<u32, V> {
    /// Reads one element of a per-CPU array: one value per possible CPU.
    pub(super) fn per_cpu(&self, index: u32, cpus: usize) -> io::Result<Vec<V>> {
        const { assert!(size_of::<V>().is_multiple_of(8)) };
        let mut values = Vec::with_capacity(cpus);
        // SAFETY: sizes were checked in `new`; the kernel writes `cpus` values of a size that
        // is a multiple of eight, so without gaps, and then they are initialised.
        unsafe {
            if bpf::lookup(self.as_fd(), &raw const index, values.as_mut_ptr())? {
                values.set_len(cpus);
            }
        }
        Ok(values)
    }
}

/// A resumable walk over a hash map.
#[derive(Debug)]
pub(super) struct Walk<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
    position: Option<u32>,
}

/// Smallest and largest batch of a walk. The kernel needs room for a whole bucket.
const BATCH: usize = 512;
const BATCH_MAX: usize = 65_536;

impl<K: Pod, V: Pod> Walk<K, V> {
    pub(super) fn new() -> Self {
        Self {
            keys: Vec::with_capacity(BATCH),
            values: Vec::with_capacity(BATCH),
            position: None,
        }
    }

    /// Reads the next batch; true when it was the last, and the walk is at the start again.
    pub(super) fn next(&mut self, map: &Map<K, V>) -> io::Result<(bool, &[K], &[V])> {
        self.keys.clear();
        self.values.clear();
        loop {
            let count = self.keys.capacity().min(self.values.capacity());
            let mut position = 0u32;
            let resume = self
                .position
                .as_ref()
                .map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: sizes were checked in `Map::new`; both vectors have room for `count`
            // elements, and the kernel initialises as many as it reports.
            let step = unsafe {
                bpf::lookup_batch(
                    map.as_fd(),
                    resume,
                    &raw mut position,
                    self.keys.as_mut_ptr(),
                    self.values.as_mut_ptr(),
                    count as u32,
                )
            };
            match step {
                Ok((read, end)) => {
                    let read = (read as usize).min(count);
                    // SAFETY: see above.
                    unsafe {
                        self.keys.set_len(read);
                        self.values.set_len(read);
                    }
                    self.position = (!end).then_some(position);
                    return Ok((end, &self.keys, &self.values));
                }
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) && count < BATCH_MAX => {
                    self.keys.reserve(count * 2);
                    self.values.reserve(count * 2);
                }
                Err(e) => {
                    self.position = None;
                    return Err(e);
                }
            }
        }
    }
}
