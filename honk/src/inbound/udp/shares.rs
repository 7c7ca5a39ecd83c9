//! Who may have another UDP flow: the table is shared, so no client may hold more than a part.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use super::table::lock;
use crate::inbound::counters::{Cap, Seat};

/// Part of the table one client may hold.
const SHARES: usize = 4;

/// Places of the flow table.
#[derive(Debug)]
pub(super) struct Shares {
    cap: Arc<Cap>,
    share: usize,
    held: Mutex<HashMap<IpAddr, usize>>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Table,
    /// The client holds its share.
    Share,
}

/// A place of one client; given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    shares: Arc<Shares>,
    client: IpAddr,
    _seat: Seat,
}

impl Shares {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            cap: Cap::new(limit),
            share: (limit / SHARES).max(1),
            held: Mutex::default(),
        })
    }

    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Result<Place, Full> {
        let seat = self.cap.take().ok_or(Full::Table)?;
        let mut held = lock(&self.held);
        let mine = held.entry(client).or_default();
        if *mine >= self.share {
            return Err(Full::Share);
        }
        *mine += 1;
        drop(held);
        Ok(Place {
            shares: Arc::clone(self),
            client,
            _seat: seat,
        })
    }

    pub(super) fn used(&self) -> usize {
        self.cap.used()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = lock(&self.shares.held);
        if let Some(mine) = held.get_mut(&self.client) {
            *mine -= 1;
            if *mine == 0 {
                held.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_ends_at_its_share_and_places_come_back() {
        let shares = Shares::new(8);
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        let (a, b) = (shares.take(ip(1)).unwrap(), shares.take(ip(1)).unwrap());
        assert_eq!(shares.take(ip(1)).unwrap_err(), Full::Share);
        let others: Vec<_> = [2, 2, 3, 3, 4, 4]
            .map(|n| shares.take(ip(n)).unwrap())
            .into();
        assert_eq!(shares.take(ip(5)).unwrap_err(), Full::Table);
        drop(a);
        let c = shares.take(ip(1)).unwrap();
        drop((b, c, others));
        assert_eq!(shares.used(), 0);
        assert!(
            lock(&shares.held).is_empty(),
            "clients without flows are forgotten"
        );
    }
}
