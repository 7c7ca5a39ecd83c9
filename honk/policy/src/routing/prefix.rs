//! Longest-prefix tables in which the longest match alone is enough.
//!
//! The kernel finds one entry, the most specific. Each entry therefore carries the class of
//! all prefixes that cover it as well (ancestor closure): without that a `/16` of one rule
//! would hide the `/8` of another. An entry that would answer like the next shorter one is
//! left out.

use honk_common::key::LpmKey;

use super::{
    classes::{Classes, Dim},
    rule::Prefix,
};

/// `::ffff:0:0`, where the IPv4 addresses live.
const V4: u128 = 0xffff_0000_0000;
const V4_LEN: u8 = 96;

/// A prefix on the way from the root to the current one.
struct Cover {
    addr: u128,
    len: u8,
    /// Sets that hold all its addresses, ascending.
    members: Vec<u32>,
    class: u32,
}

impl Cover {
    fn covers(&self, addr: u128, len: u8) -> bool {
        self.len <= len && mask(addr, self.len) == self.addr
    }
}

/// The entries, sorted by key, and the class of addresses outside all of them.
pub(super) fn table(dim: &mut Dim<'_, Prefix>, classes: &mut Classes) -> (Vec<(LpmKey, u32)>, u32) {
    let prefixes = in_tree_order(dim);
    let default = dim.class(&[], classes);
    let mut covers: Vec<Cover> = Vec::new();
    let mut table = Vec::new();
    for same in prefixes.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (addr, len, _) = same[0];
        while covers.pop_if(|c| !c.covers(addr, len)).is_some() {}
        let above = covers.last();
        // An IPv6 prefix around the IPv4 block means IPv6 only.
        let inherited = match above {
            Some(cover) if (addr, len) != (V4, V4_LEN) => cover.members.as_slice(),
            _ => &[],
        };
        let members = union(inherited, same.iter().filter_map(|p| p.2));
        let class = dim.class(&members, classes);
        if class != above.map_or(default, |cover| cover.class) {
            let key = LpmKey {
                prefix_len: len.into(),
                addr: addr.to_be_bytes(),
            };
            table.push((key, class));
        }
        covers.push(Cover {
            addr,
            len,
            members,
            class,
        });
    }
    table.sort_unstable_by_key(|(key, _)| *key);
    (table, default)
}

/// Prefixes with their sets, each after all that cover it; the IPv4 block is always there.
fn in_tree_order(dim: &Dim<'_, Prefix>) -> Vec<(u128, u8, Option<u32>)> {
    let listed = dim.values().map(|(p, set)| {
        let addr = mask(u128::from_be_bytes(p.addr), p.len);
        (addr, p.len.min(128), Some(set))
    });
    let mut all: Vec<_> = listed.chain([(V4, V4_LEN, None)]).collect();
    all.sort_unstable();
    all
}

fn union(inherited: &[u32], own: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut members = inherited.to_vec();
    for set in own {
        if let Err(at) = members.binary_search(&set) {
            members.insert(at, set);
        }
    }
    members
}

/// `addr` with the bits after the first `len` cleared.
pub(super) fn mask(addr: u128, len: u8) -> u128 {
    addr & u128::MAX
        .checked_shl(128 - u32::from(len.min(128)))
        .unwrap_or(0)
}
