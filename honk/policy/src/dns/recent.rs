//! Which name a client heard last for an address.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use super::lease::NameId;

type Pair = (IpAddr, IpAddr);

/// Pairs of client and address, the least recently answered out first.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    limit: usize,
    pairs: HashMap<Pair, (NameId, u64)>,
    order: BTreeMap<u64, Pair>,
    serial: u64,
}

impl Recent {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            pairs: HashMap::new(),
            order: BTreeMap::new(),
            serial: 0,
        }
    }

    pub(super) fn set(&mut self, client: IpAddr, address: IpAddr, name: NameId) {
        let pair = (client, address);
        self.serial += 1;
        if let Some((_, before)) = self.pairs.insert(pair, (name, self.serial)) {
            self.order.remove(&before);
        }
        self.order.insert(self.serial, pair);
        while self.pairs.len() > self.limit {
            let Some((_, oldest)) = self.order.pop_first() else {
                return;
            };
            self.pairs.remove(&oldest);
        }
    }

    pub(super) fn get(&self, client: IpAddr, address: IpAddr) -> Option<NameId> {
        self.pairs.get(&(client, address)).map(|(name, _)| *name)
    }

    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Forgets pairs whose lease has ended.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(IpAddr, NameId) -> bool) {
        let order = &mut self.order;
        self.pairs.retain(|(_, address), (name, serial)| {
            let stays = keep(*address, *name);
            if !stays {
                order.remove(serial);
            }
            stays
        });
    }
}
