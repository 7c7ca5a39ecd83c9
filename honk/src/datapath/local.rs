//! Addresses that belong to the gateway: the kernel's `LOCAL_ADDR` and a copy for the daemon.

use std::{collections::HashMap, io, net::IpAddr};

use arc_swap::ArcSwap;
use honk_common::{key::to_bytes, limits::LOCAL_ADDR_ENTRIES};

use super::map::{Addr, Map};
use crate::netlink::{self, Address};

type Table = HashMap<Addr, u32>;

/// The daemon's copy. Reading takes no lock.
#[derive(Debug, Default)]
pub(super) struct Local {
    table: ArcSwap<Table>,
}

impl Local {
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.table.load().contains_key(&Addr(to_bytes(ip)))
    }

    /// Brings the map and the copy to `addresses`. Additions come first, so that an address
    /// that moves between interfaces is never missing.
    pub(super) fn sync(&self, map: &Map<Addr, u32>, addresses: &[Address]) -> io::Result<()> {
        let wanted = wanted(addresses);
        let have = self.table.load();
        for (addr, link) in &wanted {
            if have.get(addr) != Some(link) {
                map.put(addr, link)?;
            }
        }
        for addr in have.keys().filter(|a| !wanted.contains_key(a)) {
            map.delete(addr)?;
        }
        if **have != wanted {
            self.table.store(wanted.into());
        }
        Ok(())
    }
}

/// Every address and the broadcast address of its prefix.
fn wanted(addresses: &[Address]) -> Table {
    let mut table = Table::new();
    for a in addresses {
        let mut add = |ip: IpAddr| {
            if table.len() < LOCAL_ADDR_ENTRIES as usize {
                table.entry(Addr(to_bytes(ip))).or_insert(a.link);
            }
        };
        add(a.ip);
        if let IpAddr::V4(v4) = a.ip {
            for b in [a.broadcast, netlink::broadcast(v4, a.prefix)]
                .into_iter()
                .flatten()
            {
                add(b.into());
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(link: u32, ip: &str, prefix: u8) -> Address {
        Address {
            link,
            ip: ip.parse().unwrap(),
            prefix,
            broadcast: None,
        }
    }

    #[test]
    fn broadcasts_are_local() {
        let table = wanted(&[address(3, "10.66.0.1", 24), address(3, "fd66::1", 64)]);
        let has = |ip: &str| table.get(&Addr(to_bytes(ip.parse().unwrap()))).copied();
        assert_eq!(has("10.66.0.1"), Some(3));
        assert_eq!(has("10.66.0.255"), Some(3));
        assert_eq!(has("fd66::1"), Some(3));
        assert_eq!(has("10.66.0.2"), None);
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn one_of_two_equal_addresses_may_leave() {
        let both = [address(3, "10.0.0.1", 32), address(4, "10.0.0.1", 32)];
        assert_eq!(wanted(&both).len(), 1);
        assert_eq!(wanted(&both[1..]).len(), 1);
    }

    #[test]
    fn the_table_is_bounded() {
        let many: Vec<_> = (0..5000u32)
            .map(|n| Address {
                link: 1,
                ip: IpAddr::from(n.to_be_bytes()),
                prefix: 32,
                broadcast: None,
            })
            .collect();
        assert_eq!(wanted(&many).len(), LOCAL_ADDR_ENTRIES as usize);
    }
}
