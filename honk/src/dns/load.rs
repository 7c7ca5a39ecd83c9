//! Places that all clients share, of which no client gets more than a part.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use super::lock;

/// The places.
#[derive(Debug)]
pub(super) struct Load {
    limit: usize,
    per_client: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    clients: HashMap<IpAddr, usize>,
}

/// One place; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Place {
    load: Arc<Load>,
    client: IpAddr,
}

impl Load {
    pub(super) fn new(limit: usize, per_client: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            per_client,
            taken: Mutex::default(),
        })
    }

    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<Place> {
        let client = client.to_canonical();
        let mut taken = lock(&self.taken);
        if taken.total >= self.limit {
            return None;
        }
        let mine = taken.clients.entry(client).or_default();
        if *mine >= self.per_client {
            return None;
        }
        *mine += 1;
        taken.total += 1;
        drop(taken);
        Some(Place {
            load: Arc::clone(self),
            client,
        })
    }

    pub(super) fn used(&self) -> usize {
        lock(&self.taken).total
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.load.taken);
        taken.total -= 1;
        if let Some(mine) = taken.clients.get_mut(&self.client) {
            *mine -= 1;
            if *mine == 0 {
                taken.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_all_places() {
        let load = Load::new(3, 2);
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mine = [load.take(a), load.take(a), load.take(a)];
        assert!(mine[1].is_some() && mine[2].is_none());
        let other = load.take(b);
        assert!(other.is_some() && load.take(b).is_none(), "all are taken");
        drop(mine);
        assert!(load.take(b).is_some());
        drop(other);
        assert_eq!((load.used(), lock(&load.taken).clients.len()), (0, 0));
    }
}
