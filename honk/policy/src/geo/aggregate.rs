//! Fewer prefixes that cover the same addresses.
//!
//! Country lists name neighbours one by one and networks beside their parts; each prefix costs
//! an entry of the kernel's table, so whatever another one covers goes, and two halves become
//! their whole.

use honk_common::key::is_v4_mapped;

use crate::routing::rule::Prefix;

/// Length of the block that holds the IPv4 addresses.
const V4_LEN: u8 = 96;

/// Sorts the prefixes, drops those inside others and joins halves.
pub(super) fn aggregate(mut prefixes: Vec<Prefix>) -> Vec<Prefix> {
    prefixes.sort_unstable();
    let mut kept = 0;
    for at in 0..prefixes.len() {
        let mut next = prefixes[at];
        // A network sorts before its parts.
        if kept > 0 && covers(prefixes[kept - 1], next) {
            continue;
        }
        while kept > 0
            && let Some(whole) = joined(prefixes[kept - 1], next)
        {
            kept -= 1;
            next = whole;
        }
        prefixes[kept] = next;
        kept += 1;
    }
    prefixes.truncate(kept);
    prefixes.shrink_to_fit();
    prefixes
}

/// An IPv6 network around the IPv4 block means IPv6 only, so it covers nothing in there.
fn covers(net: Prefix, part: Prefix) -> bool {
    let inside = net.len <= part.len && bits(net) == bits(part) & mask(net.len);
    inside && (net.len >= V4_LEN || !is_v4_mapped(&part.addr))
}

/// The network that two halves make. The IPv4 block is never a half, for the same reason.
fn joined(a: Prefix, b: Prefix) -> Option<Prefix> {
    if a.len != b.len || a.len == 0 || a.len == V4_LEN {
        return None;
    }
    let len = a.len - 1;
    let same = bits(a) & mask(len) == bits(b) & mask(len) && a.addr != b.addr;
    same.then(|| Prefix {
        addr: (bits(a) & mask(len)).to_be_bytes(),
        len,
    })
}

fn bits(prefix: Prefix) -> u128 {
    u128::from_be_bytes(prefix.addr)
}

fn mask(len: u8) -> u128 {
    !u128::MAX.checked_shr(len.into()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn net(text: &str) -> Prefix {
        let (addr, len) = text.split_once('/').unwrap();
        let addr: std::net::IpAddr = addr.parse().unwrap();
        let base = if addr.is_ipv4() { 96 } else { 0 };
        Prefix {
            addr: honk_common::key::to_bytes(addr),
            len: base + len.parse::<u8>().unwrap(),
        }
    }

    fn nets(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| net(text)).collect()
    }

    #[test]
    fn covered_and_neighbouring_networks_go() {
        for (all, fewer) in [
            (&["10.0.0.0/9", "10.128.0.0/9"][..], &["10.0.0.0/8"][..]),
            (
                &["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8"],
                &["10.0.0.0/8"],
            ),
            (
                &[
                    "10.0.0.0/10",
                    "10.64.0.0/11",
                    "10.96.0.0/11",
                    "10.128.0.0/9",
                ],
                &["10.0.0.0/8"],
            ),
            // Not halves of one network.
            (
                &["10.1.0.0/16", "10.2.0.0/16"],
                &["10.1.0.0/16", "10.2.0.0/16"],
            ),
            (&["0.0.0.0/1", "128.0.0.0/1"], &["0.0.0.0/0"]),
            (&["::/0", "10.0.0.0/8"], &["::/0", "10.0.0.0/8"]),
            (
                &["::fffe:0:0/96", "0.0.0.0/0"],
                &["::fffe:0:0/96", "0.0.0.0/0"],
            ),
            (&[], &[]),
        ] {
            assert_eq!(aggregate(nets(all)), nets(fewer), "{all:?}");
        }
    }

    /// Whether a set holds an address, by the meaning of rules.
    fn holds(nets: &[Prefix], addr: [u8; 16]) -> bool {
        let host = Prefix { addr, len: 128 };
        nets.iter().any(|net| covers(*net, host))
    }

    proptest! {
        #[test]
        fn the_same_addresses_stay(raw in vec((any::<bool>(), any::<u16>(), 0u8..=16), 0..40), low in any::<u16>()) {
            // Near each other, so that they nest and touch.
            let nets: Vec<Prefix> = raw.iter().map(|&(v4, high, len)| {
                let top = if v4 { 0xffff_0000_0000 } else { 0 };
                let len = if v4 { 96 + len } else { 80 + len };
                let addr = top | u128::from(high & 0xff0f) << if v4 { 16 } else { 32 };
                Prefix { addr: (addr & mask(len)).to_be_bytes(), len }
            }).collect();
            let fewer = aggregate(nets.clone());
            prop_assert!(fewer.len() <= nets.len());
            for high in (0..=u16::MAX).step_by(255).chain(raw.iter().map(|r| r.1)) {
                for top in [0xffff_0000_0000u128 | u128::from(high) << 16, u128::from(high) << 32] {
                    let addr = (top | u128::from(low)).to_be_bytes();
                    prop_assert_eq!(holds(&fewer, addr), holds(&nets, addr));
                }
            }
        }
    }
}
