//! A table in front of a prefix tree, so that long lists cost no more than short ones.
//!
//! The tree gets deeper with the list: among 100,000 networks a lookup costs a third more. Nearly
//! all listed IPv4 networks are no longer than 24 bits, so one word for the first half of an
//! address and, where networks are longer than that, one for its third byte answer most packets.
//! What they cannot tell is left to the tree, which holds everything.

use crate::{
    key::{LpmKey, v4_mapped},
    limits::{NEAR_CHUNKS, NEAR_FROM, NEAR_HALVES},
    route::{NEAR_CHUNK, NEAR_DEEP, NearWords},
};

/// Bits of a key before those of an IPv4 address.
const MAPPED: u32 = 96;

/// The elements of a list's table that are not 0; `None` for short lists. Classes in the list
/// include those of shorter networks around.
pub fn near_table(list: &[(LpmKey, u32)]) -> Option<Vec<(u32, NearWords)>> {
    let mut nets: Vec<Net> = list.iter().filter_map(Net::of).collect();
    if nets.len() < NEAR_FROM {
        return None;
    }
    // A longer network is written over the shorter ones around it.
    nets.sort_unstable_by_key(|net| net.len);
    let mut table = Table {
        halves: vec![0; NEAR_HALVES as usize],
        chunks: Vec::new(),
    };
    for net in &nets {
        table.write(net);
    }
    Some(table.elements())
}

struct Net {
    addr: u32,
    /// Of the whole key: several networks hold all IPv4 addresses.
    len: u32,
    bits: u32,
    class: u32,
}

impl Net {
    /// The part of a network that holds IPv4 addresses.
    fn of((key, class): &(LpmKey, u32)) -> Option<Self> {
        let zero = v4_mapped([0; 4]);
        let common = (0..MAPPED.min(key.prefix_len)).all(|bit| {
            let (byte, mask) = (bit as usize / 8, 0x80u8 >> (bit % 8));
            (key.addr[byte] ^ zero[byte]) & mask == 0
        });
        let bits = key.prefix_len.saturating_sub(MAPPED).min(32);
        let [.., a, b, c, d] = key.addr;
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        common.then(|| Self {
            addr: u32::from_be_bytes([a, b, c, d]) & mask,
            len: key.prefix_len,
            bits,
            class: *class,
        })
    }
}

struct Table {
    halves: Vec<u32>,
    chunks: Vec<[u32; 256]>,
}

impl Table {
    fn write(&mut self, net: &Net) {
        let half = (net.addr >> 16) as usize;
        let word = net.class + 1;
        if net.bits <= 16 {
            self.halves[half..half + (1 << (16 - net.bits))].fill(word);
            return;
        }
        let third = (net.addr >> 8) as u8 as usize;
        let Some(chunk) = self.chunk(half) else {
            self.halves[half] = NEAR_DEEP;
            return;
        };
        if net.bits <= 24 {
            chunk[third..third + (1 << (24 - net.bits))].fill(word);
        } else {
            chunk[third] = NEAR_DEEP;
        }
    }

    /// The chunk of a half, made of what the half said; none if there are too many.
    fn chunk(&mut self, half: usize) -> Option<&mut [u32; 256]> {
        let word = self.halves[half];
        if word == NEAR_DEEP {
            return None;
        }
        if word & NEAR_CHUNK == 0 {
            if self.chunks.len() == NEAR_CHUNKS as usize {
                return None;
            }
            self.halves[half] = NEAR_CHUNK | self.chunks.len() as u32;
            self.chunks.push([word; 256]);
        }
        let number = self.halves[half] & !NEAR_CHUNK;
        self.chunks.get_mut(number as usize)
    }

    fn elements(&self) -> Vec<(u32, NearWords)> {
        // The chunks follow the halves.
        let (halves, _) = self.halves.as_chunks();
        let (chunks, _) = self.chunks.as_flattened().as_chunks();
        let words = halves.iter().chain(chunks).map(|two| NearWords(*two));
        (0u32..)
            .zip(words)
            .filter(|(_, two)| two.0 != [0; 2])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::route::near_word;

    fn net(addr: [u8; 4], bits: u32, class: u32) -> (LpmKey, u32) {
        let key = LpmKey {
            prefix_len: MAPPED + bits,
            addr: v4_mapped(addr),
        };
        (key, class)
    }

    /// What the tree says: the class of the longest network around an address.
    fn tree(list: &[(LpmKey, u32)], addr: [u8; 4]) -> Option<u32> {
        let addr = u128::from_be_bytes(v4_mapped(addr));
        let around = list.iter().filter(|(key, _)| {
            let bits = u128::from_be_bytes(key.addr) ^ addr;
            key.prefix_len == 0 || bits >> (128 - key.prefix_len) == 0
        });
        around
            .max_by_key(|(key, _)| key.prefix_len)
            .map(|(_, class)| *class)
    }

    /// What the table says; `None`: ask the tree.
    fn near(table: &BTreeMap<u32, NearWords>, addr: [u8; 4]) -> Option<Option<u32>> {
        let word = |at: u32| {
            let two = table.get(&(at / 2)).copied().unwrap_or_default();
            two.0[at as usize % 2]
        };
        let mut found = word(u32::from(addr[0]) << 8 | u32::from(addr[1]));
        if found & NEAR_CHUNK != 0 {
            found = word(near_word(found & !NEAR_CHUNK, addr[2]));
        }
        (found & NEAR_DEEP == 0).then(|| found.checked_sub(1))
    }

    fn random(seed: &mut u64) -> u32 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed >> 16) as u32
    }

    #[test]
    fn short_lists_have_none() {
        let list: Vec<_> = (0..255).map(|i| net([10, i, 0, 0], 16, 1)).collect();
        assert!(near_table(&list).is_none());
    }

    #[test]
    fn it_says_what_the_tree_says_or_leaves_it_to_the_tree() {
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        for round in 0..20 {
            let mut nets = BTreeMap::new();
            while nets.len() < 600 {
                let bits = random(&mut seed) % 33;
                // Few first bytes, so that networks nest.
                let addr = random(&mut seed) & 0x03ff_ffff;
                let masked = addr & u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                nets.insert((masked, bits), random(&mut seed) % 4000);
            }
            let mut list: Vec<_> = nets
                .iter()
                .map(|((addr, bits), class)| net(addr.to_be_bytes(), *bits, *class))
                .collect();
            if round % 2 == 0 {
                // Everything, in both families.
                let all = LpmKey {
                    prefix_len: 0,
                    addr: [0; 16],
                };
                list.push((all, 7));
            }
            let table: BTreeMap<_, _> = near_table(&list).unwrap().into_iter().collect();
            let mut told = 0;
            for _ in 0..4000 {
                let addr = (random(&mut seed) & 0x07ff_ffff).to_be_bytes();
                if let Some(said) = near(&table, addr) {
                    assert_eq!(said, tree(&list, addr), "{addr:?}");
                    told += 1;
                }
            }
            assert!(told > 3000, "only {told}");
        }
    }

    #[test]
    fn what_has_no_chunk_is_left_to_the_tree() {
        let list: Vec<_> = (0..NEAR_CHUNKS + 10)
            .map(|i| net((i << 16 | 0x0100).to_be_bytes(), 24, i % 100))
            .collect();
        let table: BTreeMap<_, _> = near_table(&list).unwrap().into_iter().collect();
        assert_eq!(near(&table, [0, 5, 1, 9]), Some(Some(5)));
        assert_eq!(near(&table, [0, 5, 2, 9]), Some(None));
        let beyond = (NEAR_CHUNKS << 16 | 0x0100).to_be_bytes();
        assert_eq!(near(&table, beyond), None);
        let last = *table.keys().max().unwrap();
        assert!(last < crate::limits::NEAR_ENTRIES, "{last}");
    }

    #[test]
    fn of_networks_around_all_addresses_the_longest_counts() {
        let mut list: Vec<_> = (0..=255).map(|i| net([10, i, 0, 0], 16, 1)).collect();
        let all = |prefix_len, class| {
            let addr = v4_mapped([0; 4]);
            (LpmKey { prefix_len, addr }, class)
        };
        list.extend([all(MAPPED, 5), all(80, 4), all(0, 3)]);
        for _ in 0..2 {
            let table: BTreeMap<_, _> = near_table(&list).unwrap().into_iter().collect();
            assert_eq!(near(&table, [192, 0, 2, 1]), Some(Some(5)));
            assert_eq!(near(&table, [10, 7, 2, 1]), Some(Some(1)));
            list.reverse();
        }
    }

    #[test]
    fn networks_of_ipv6_are_not_in_it() {
        let mut list: Vec<_> = (0..=255).map(|i| net([10, i, 0, 0], 16, 1)).collect();
        let before = near_table(&list);
        let mut addr = [0; 16];
        addr[0] = 0x20;
        let key = LpmKey {
            prefix_len: 32,
            addr,
        };
        list.push((key, 9));
        assert_eq!(near_table(&list), before);
    }
}
