//! Longest-prefix tables in which the longest match alone is enough.
//!
//! The kernel finds one entry, the most specific. Each entry therefore carries the class of
//! all prefixes that cover it as well (ancestor closure): without that a `/16` of one rule
//! would hide the `/8` of another. An entry that would answer like the next shorter one is
//! left out.

use honk_common::key::LpmKey;

use super::{
    classes::{Classes, Dim, State},
    rule::Prefix,
};

/// `::ffff:0:0`, where the IPv4 addresses live.
pub(super) const V4: u128 = 0xffff_0000_0000;
pub(super) const V4_LEN: u8 = 96;

/// A prefix on the way from the root to the current one.
struct Cover<'a> {
    addr: u128,
    len: u8,
    /// The prefix with each set it stands in itself.
    own: &'a [Listed],
    class: u32,
    /// What covers the IPv4 block, while the way is in it.
    outside: Option<State>,
}

/// Address and length of a prefix, and the set it stands in.
type Listed = (u128, u8, Option<u32>);

impl Cover<'_> {
    fn covers(&self, addr: u128, len: u8) -> bool {
        self.len <= len && mask(addr, self.len) == self.addr
    }
}

/// The entries, sorted by key, and the class of addresses outside all of them.
pub(super) fn table(dim: &mut Dim<'_, Prefix>, classes: &mut Classes) -> (Vec<(LpmKey, u32)>, u32) {
    let prefixes = in_tree_order(dim);
    let default = dim.class(&[], classes);
    let mut covers: Vec<Cover<'_>> = Vec::new();
    let mut table = Vec::new();
    for same in prefixes.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (addr, len, _) = same[0];
        while let Some(cover) = covers.pop_if(|c| !c.covers(addr, len)) {
            cover
                .own
                .iter()
                .filter_map(|p| p.2)
                .for_each(|set| dim.leave(set));
            if let Some(outside) = cover.outside {
                dim.resume(outside);
            }
        }
        // An IPv6 prefix around the IPv4 block means IPv6 only.
        let outside = ((addr, len) == (V4, V4_LEN)).then(|| dim.suspend());
        same.iter()
            .filter_map(|p| p.2)
            .for_each(|set| dim.enter(set));
        let class = dim.here(classes);
        if class != covers.last().map_or(default, |cover| cover.class) {
            let key = LpmKey {
                prefix_len: len.into(),
                addr: addr.to_be_bytes(),
            };
            table.push((key, class));
        }
        covers.push(Cover {
            addr,
            len,
            own: same,
            class,
            outside,
        });
    }
    table.sort_unstable_by_key(|(key, _)| *key);
    (table, default)
}

/// Prefixes with their sets, each after all that cover it; the IPv4 block is always there.
fn in_tree_order(dim: &Dim<'_, Prefix>) -> Vec<Listed> {
    let listed = dim.values().map(|(p, set)| {
        let addr = mask(u128::from_be_bytes(p.addr), p.len);
        (addr, p.len.min(128), Some(set))
    });
    let mut all: Vec<_> = listed.chain([(V4, V4_LEN, None)]).collect();
    all.sort_unstable();
    all
}

/// `addr` with the bits after the first `len` cleared.
pub(super) fn mask(addr: u128, len: u8) -> u128 {
    addr & u128::MAX
        .checked_shl(128 - u32::from(len.min(128)))
        .unwrap_or(0)
}
