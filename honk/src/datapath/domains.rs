//! `DOMAIN`: what the names of addresses say about the rule lines, one hash per bank.
//!
//! Entries are bits of one generation's lines, so a write names its generation and meets either
//! that generation's bank or nothing. While a reload is under way two banks take writes.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd},
    sync::Mutex,
};

use honk_common::{
    key::to_bytes,
    limits::DOMAIN_ENTRIES,
    route::{DomainVal, bank},
};

use super::{
    bpf,
    map::{Addr, Map},
};

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Packets see it.
    All,
    /// The map is full: this many entries were written, in order.
    Full(usize),
    /// No bank holds rules of that generation with names in them.
    Stale,
}

/// The hashes of both banks.
#[derive(Debug, Default)]
pub(super) struct Domains {
    banks: Mutex<[Option<Bank>; 2]>,
}

#[derive(Debug)]
struct Bank {
    generation: u32,
    map: Map<Addr, DomainVal>,
}

impl Domains {
    /// Gives a generation an empty hash and hooks it in.
    pub(super) fn open(&self, outer: &Map<u32, u32>, generation: u32) -> io::Result<()> {
        let (key, value) = (size_of::<Addr>() as u32, size_of::<DomainVal>() as u32);
        let map = Map::new(bpf::create_hash(key, value, DOMAIN_ENTRIES)?)?;
        let at = bank(generation);
        outer.put(&at, &map.as_fd().as_raw_fd().cast_unsigned())?;
        super::lock(&self.banks)[at as usize] = Some(Bank { generation, map });
        Ok(())
    }

    /// Forgets a bank.
    pub(super) fn close(&self, outer: &Map<u32, u32>, at: u32) {
        if super::lock(&self.banks)[at as usize].take().is_some() {
            let _ = outer.delete(&at);
        }
    }

    /// Inserts or replaces entries.
    pub(super) fn write(
        &self,
        generation: u32,
        set: &[(IpAddr, DomainVal)],
    ) -> io::Result<Applied> {
        self.with(generation, |map| {
            for (done, (ip, value)) in set.iter().enumerate() {
                match map.put(&Addr(to_bytes(*ip)), value) {
                    Err(e) if e.raw_os_error() == Some(libc::E2BIG) => {
                        return Ok(Applied::Full(done));
                    }
                    other => other?,
                }
            }
            Ok(Applied::All)
        })
    }

    /// Removes entries; absent ones do no harm.
    pub(super) fn delete(&self, generation: u32, gone: &[IpAddr]) -> io::Result<Applied> {
        self.with(generation, |map| {
            for ip in gone {
                map.delete(&Addr(to_bytes(*ip)))?;
            }
            Ok(Applied::All)
        })
    }

    fn with(
        &self,
        generation: u32,
        act: impl FnOnce(&Map<Addr, DomainVal>) -> io::Result<Applied>,
    ) -> io::Result<Applied> {
        match &super::lock(&self.banks)[bank(generation) as usize] {
            Some(bank) if bank.generation == generation => act(&bank.map),
            _ => Ok(Applied::Stale),
        }
    }
}
