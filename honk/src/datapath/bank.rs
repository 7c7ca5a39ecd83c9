//! Puts a compiled rule set into the kernel: fill the spare bank (`stage`), flip one word, wait,
//! clear the old bank (`activate`). Up to the flip nothing that packets read is touched.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use honk_common::{
    key::LpmKey,
    limits::{
        BANKS, LPM_MAX_ENTRIES, MAC_ENTRIES, MAX_CLASSES, MAX_RULES, NEAR_ENTRIES, PNAME_ENTRIES,
        PORT_ELEMS, USUAL_ROWS,
    },
    near::near_table,
    route::{
        ClassBits, DIM_DOMAIN, DIR_DPORT, DIR_SPORT, NearWords, PnameKey, PortClasses, bank,
        mac_key,
    },
    tables::RouteTables,
};

use super::{bpf, domains::Domains, error::Error, map::Map, object::Maps};

/// Room in a prefix map beyond what is put in.
const SPARE_PREFIXES: usize = 1024;

/// What is in the banks.
#[derive(Debug, Default)]
pub(super) struct Banks {
    pub(super) generation: u32,
    /// What is filled and not in force yet.
    staged: Option<Staged>,
    /// The highest generation that was ever staged: a number is used once.
    last: u32,
    /// The early drop program runs and wants its networks.
    guard: bool,
    /// Which banks hold prefix maps. Each change of those waits for running packets.
    filled: [bool; 2],
    /// Keys in the hashes both banks share.
    mac: [Vec<u64>; 2],
    pname: [Vec<PnameKey>; 2],
}

#[derive(Debug)]
struct Staged {
    generation: u32,
    dest: OwnedFd,
}

impl Banks {
    /// `guard`: the early drop program wants its networks.
    pub(super) fn new(guard: bool) -> Self {
        Self {
            guard,
            ..Self::default()
        }
    }

    /// Fills the spare bank with `tables`; whatever was staged there before is forgotten.
    pub(super) fn stage(
        &mut self,
        maps: &Maps,
        domains: &Domains,
        tables: &RouteTables,
    ) -> Result<u32, Error> {
        check(tables)?;
        let mut generation = self.last.max(self.generation).wrapping_add(1);
        if bank(generation) == bank(self.generation) {
            generation = generation.wrapping_add(1);
        }
        let spare = bank(generation);
        // An attempt that came to nothing may have left keys.
        self.staged = None;
        self.clear(maps, domains, spare);
        match self.fill(maps, domains, tables, generation) {
            Ok(dest) => self.staged = Some(Staged { generation, dest }),
            Err(e) => {
                self.clear(maps, domains, spare);
                return Err(Error::io("fill the rule tables")(e));
            }
        }
        self.last = generation;
        Ok(generation)
    }

    /// Makes the staged generation the one packets see.
    pub(super) fn activate(
        &mut self,
        maps: &Maps,
        domains: &Domains,
        generation: u32,
    ) -> Result<(), Error> {
        let staged = self.staged.take_if(|s| s.generation == generation);
        let Some(Staged { dest: inner, .. }) = staged else {
            return Err(Error::Tables(format!(
                "generation {generation} is not staged"
            )));
        };
        let spare = bank(generation);
        maps.route_sel
            .put(&0, &generation)
            .map_err(Error::io("switch to the new rules"))?;
        self.generation = generation;
        // An update of an outer map returns when no packet can still be using what it replaced;
        // writing the same inner map again waits for those that started under the old rules.
        let raw = inner.as_raw_fd().cast_unsigned();
        match maps.dest_lpm.put(&spare, &raw) {
            Ok(()) => self.clear(maps, domains, 1 - spare),
            // The new rules are in force. The old ones stay until the bank is filled again.
            Err(e) => tracing::warn!(target: super::TARGET, error = %e, "old rules are kept"),
        }
        Ok(())
    }

    /// Fills the bank of `generation`; returns the destination prefixes.
    fn fill(
        &mut self,
        maps: &Maps,
        domains: &Domains,
        t: &RouteTables,
        generation: u32,
    ) -> io::Result<OwnedFd> {
        let at = bank(generation);
        self.filled[at as usize] = true;
        let dest = prefixes(&t.dest)?;
        let src = prefixes(&t.src)?;
        maps.dest_lpm.put(&at, &dest.as_raw_fd().cast_unsigned())?;
        maps.src_lpm.put(&at, &src.as_raw_fd().cast_unsigned())?;
        for (list, outer) in [(&t.dest, &maps.dest_near), (&t.src, &maps.src_near)] {
            if let Some(elements) = near_table(list) {
                let table = near(&elements)?;
                outer.put(&at, &table.as_raw_fd().cast_unsigned())?;
            }
        }
        if self.guard && !t.guard.is_empty() {
            let guard = prefixes(&t.guard)?;
            maps.xdp_block
                .put(&at, &guard.as_raw_fd().cast_unsigned())?;
        }
        let classes: Vec<ClassBits> = t.classes.iter().map(|c| ClassBits(*c)).collect();
        row(&maps.class_bits, at * MAX_CLASSES as u32, &classes)?;
        let usual: Vec<ClassBits> = t.usual_bits().into_iter().map(ClassBits).collect();
        row(&maps.usual_bits, at * USUAL_ROWS, &usual)?;
        row(&maps.rule_act, at * MAX_RULES as u32, &t.acts)?;
        for (direction, ports) in [(DIR_DPORT, &t.dport), (DIR_SPORT, &t.sport)] {
            let first = (at * 2 + direction) * PORT_ELEMS;
            row(&maps.port_class, first, &packed(ports))?;
        }
        maps.dscp_class.put(&at, &t.dscp)?;
        self.mac[at as usize] = t.mac.iter().map(|(m, _)| mac_key(at, *m)).collect();
        let values: Vec<u32> = t.mac.iter().map(|(_, class)| *class).collect();
        maps.mac_class.put_all(&self.mac[at as usize], &values)?;
        let process = |(name, _): &([u8; 16], u32)| PnameKey {
            name: *name,
            bank: at,
        };
        self.pname[at as usize] = t.pname.iter().map(process).collect();
        let values: Vec<u32> = t.pname.iter().map(|(_, class)| *class).collect();
        maps.pname_class
            .put_all(&self.pname[at as usize], &values)?;
        if t.meta.dims & DIM_DOMAIN != 0 {
            domains.open(&maps.domain, generation)?;
        }
        let mut meta = t.meta;
        meta.generation = generation;
        maps.route_meta.put(&at, &meta)?;
        Ok(dest)
    }

    /// Empties what grows: prefix maps and shared hashes. Failures leave unused memory behind
    /// until the bank is used again, nothing more.
    fn clear(&mut self, maps: &Maps, domains: &Domains, at: u32) {
        domains.close(&maps.domain, at);
        if std::mem::take(&mut self.filled[at as usize]) {
            // The tables in front first: without them the trees still answer.
            let outers = [
                &maps.dest_near,
                &maps.src_near,
                &maps.dest_lpm,
                &maps.src_lpm,
                &maps.xdp_block,
            ];
            for outer in outers {
                let _ = outer.delete(&at);
            }
        }
        for key in std::mem::take(&mut self.mac[at as usize]) {
            let _ = maps.mac_class.delete(&key);
        }
        for key in std::mem::take(&mut self.pname[at as usize]) {
            let _ = maps.pname_class.delete(&key);
        }
    }
}

fn check(t: &RouteTables) -> Result<(), Error> {
    let too_many = |what, have: usize, limit: usize| {
        if have > limit {
            Err(Error::Tables(format!("{have} {what}, at most {limit}")))
        } else {
            Ok(())
        }
    };
    if t.acts.is_empty() {
        return Err(Error::Tables(
            "no rule line, not even a fallback".to_owned(),
        ));
    }
    if t.dport.len() != 65_536 || t.sport.len() != 65_536 {
        return Err(Error::Tables("port tables of the wrong size".to_owned()));
    }
    let per_bank = (MAC_ENTRIES / BANKS) as usize;
    too_many("rule lines", t.acts.len(), MAX_RULES)?;
    too_many("classes", t.classes.len(), MAX_CLASSES)?;
    too_many("MAC addresses", t.mac.len(), per_bank)?;
    let per_bank = (PNAME_ENTRIES / BANKS) as usize;
    too_many("process names", t.pname.len(), per_bank)?;
    let prefixes = LPM_MAX_ENTRIES as usize - SPARE_PREFIXES;
    too_many("destination prefixes", t.dest.len(), prefixes)?;
    too_many("source prefixes", t.src.len(), prefixes)
}

/// A fresh prefix map with all entries.
fn prefixes(list: &[(LpmKey, u32)]) -> io::Result<OwnedFd> {
    let capacity = list.len() + SPARE_PREFIXES;
    let fd = bpf::create_lpm(size_of::<LpmKey>() as u32, capacity as u32)?;
    let map: Map<LpmKey, u32> = Map::new(fd.as_fd().try_clone_to_owned()?)?;
    let (keys, values): (Vec<LpmKey>, Vec<u32>) = list.iter().copied().unzip();
    map.put_all(&keys, &values)?;
    Ok(fd)
}

/// A fresh table to stand in front of a prefix map.
fn near(elements: &[(u32, NearWords)]) -> io::Result<OwnedFd> {
    let fd = bpf::create_array(size_of::<NearWords>() as u32, NEAR_ENTRIES)?;
    let map: Map<u32, NearWords> = Map::new(fd.as_fd().try_clone_to_owned()?)?;
    let (keys, values): (Vec<u32>, Vec<NearWords>) = elements.iter().copied().unzip();
    map.put_all(&keys, &values)?;
    Ok(fd)
}

/// Writes consecutive array elements.
fn row<V: honk_common::Pod>(map: &Map<u32, V>, first: u32, values: &[V]) -> io::Result<()> {
    let keys: Vec<u32> = (first..).take(values.len()).collect();
    map.put_all(&keys, values)
}

fn packed(ports: &[u16]) -> Vec<PortClasses> {
    let (quads, _) = ports.as_chunks::<4>();
    quads.iter().map(|q| PortClasses(*q)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_ports_share_an_element() {
        let ports: Vec<u16> = (0..=65_535).collect();
        let quads = packed(&ports);
        assert_eq!(quads.len(), PORT_ELEMS as usize);
        assert_eq!(quads[0].0, [0, 1, 2, 3]);
        assert_eq!(quads[(443 >> 2) as usize].0[443 & 3], 443);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let good = RouteTables::fallback_only(253);
        assert!(check(&good).is_ok());
        let mut t = good.clone();
        t.acts = vec![t.acts[0]; MAX_RULES + 1];
        assert!(
            check(&t)
                .unwrap_err()
                .to_string()
                .contains("1025 rule lines")
        );
        let mut t = good.clone();
        t.classes = vec![t.classes[0]; MAX_CLASSES + 1];
        assert!(check(&t).is_err());
        let mut t = good;
        t.acts.clear();
        assert!(check(&t).is_err());
    }
}
