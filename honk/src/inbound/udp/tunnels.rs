//! The tunnels that live, and who may have another one.
//!
//! Tunnels hold descriptors, which all clients share, so no client may hold more than a
//! share of them. A client at its share, or any client when the table is full, gets a new
//! one in place of one that nobody used for a while; only when there is none it is refused.
//! Decides who goes, but ends nothing: the caller does.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use super::{table::TunnelKey, tunnel::Tunnel};

/// Part of the table one client may hold.
const SHARES: usize = 4;
/// A tunnel that was quiet this long may be closed for a newer one.
const QUIET: Duration = Duration::from_secs(5);
/// Clients looked at when the table is full, those with the most tunnels first.
const RICHEST: usize = 64;
/// How often a shortage is told.
const TELL: Duration = Duration::from_secs(60);

/// A place in the order of use: milliseconds of the table, and a number that makes it unique.
type Place = (u64, u64);

/// The table of tunnels.
#[derive(Debug)]
pub(super) struct Tunnels {
    limit: usize,
    share: usize,
    held: HashMap<TunnelKey, (Arc<Tunnel>, Place)>,
    /// The tunnels of each client, oldest use first. A place is brought up to date only when
    /// it comes first, so that datagrams need not touch this table.
    clients: HashMap<IpAddr, BTreeMap<Place, TunnelKey>>,
    /// Clients by the number of their tunnels.
    ranks: BTreeSet<(usize, IpAddr)>,
    serial: u64,
    /// When the last shortage was told.
    told: Option<u64>,
}

/// A client met its share or a full table.
#[derive(Debug)]
pub(super) struct Shortage {
    /// Out of the table and to be ended; without one the new tunnel is refused.
    pub(super) victim: Option<Arc<Tunnel>>,
    /// Tunnels of the client that asked.
    pub(super) client: usize,
    pub(super) share: usize,
    /// Tunnels of all clients.
    pub(super) total: usize,
    pub(super) limit: usize,
    /// The last time this was told is long enough ago.
    pub(super) tell: bool,
}

impl Tunnels {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            share: (limit / SHARES).max(1),
            held: HashMap::new(),
            clients: HashMap::new(),
            ranks: BTreeSet::new(),
            serial: 0,
            told: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn find(&self, key: &TunnelKey) -> Option<&Arc<Tunnel>> {
        self.held.get(key).map(|(tunnel, _)| tunnel)
    }

    /// Makes room for another tunnel of `client`; nothing when there was room.
    pub(super) fn make_room(&mut self, client: IpAddr, now: u64) -> Option<Shortage> {
        let (mine, total) = (self.count(client), self.len());
        let at_share = mine >= self.share;
        if !at_share && total < self.limit {
            return None;
        }
        let victim = if at_share {
            self.quietest(client, now)
        } else {
            let richest: Vec<_> = self.ranks.iter().rev().take(RICHEST).copied().collect();
            let mut asked = richest.into_iter().map(|(_, ip)| ip).chain([client]);
            asked.find_map(|ip| self.quietest(ip, now))
        };
        if let Some(victim) = &victim {
            self.remove(victim);
        }
        let tell = self
            .told
            .is_none_or(|at| now.saturating_sub(at) >= TELL.as_millis() as u64);
        if tell {
            self.told = Some(now);
        }
        Some(Shortage {
            victim,
            client: mine,
            share: self.share,
            total,
            limit: self.limit,
            tell,
        })
    }

    /// Takes in a tunnel whose key is not there yet.
    pub(super) fn insert(&mut self, tunnel: &Arc<Tunnel>) {
        let client = client(&tunnel.key);
        self.serial += 1;
        let place = (tunnel.used(), self.serial);
        self.held.insert(tunnel.key, (Arc::clone(tunnel), place));
        let order = self.clients.entry(client).or_default();
        self.ranks.remove(&(order.len(), client));
        order.insert(place, tunnel.key);
        self.ranks.insert((order.len(), client));
    }

    /// Takes the very tunnel out, if it is there.
    pub(super) fn remove(&mut self, tunnel: &Arc<Tunnel>) {
        let same = |held: &(Arc<Tunnel>, Place)| Arc::ptr_eq(&held.0, tunnel);
        if !self.held.get(&tunnel.key).is_some_and(same) {
            return;
        }
        let Some((_, place)) = self.held.remove(&tunnel.key) else {
            return;
        };
        let client = client(&tunnel.key);
        let Some(order) = self.clients.get_mut(&client) else {
            return;
        };
        self.ranks.remove(&(order.len(), client));
        order.remove(&place);
        if order.is_empty() {
            self.clients.remove(&client);
        } else {
            self.ranks.insert((order.len(), client));
        }
    }

    fn count(&self, client: IpAddr) -> usize {
        self.clients.get(&client).map_or(0, BTreeMap::len)
    }

    /// The tunnel of a client that was used least recently, if that is long enough ago.
    fn quietest(&mut self, client: IpAddr, now: u64) -> Option<Arc<Tunnel>> {
        let order = self.clients.get_mut(&client)?;
        loop {
            let (&place, &key) = order.first_key_value()?;
            // A place is never later than the use, so all others are too young as well.
            if now.saturating_sub(place.0) < QUIET.as_millis() as u64 {
                return None;
            }
            let (tunnel, filed) = self.held.get_mut(&key)?;
            let used = tunnel.used();
            if used <= place.0 {
                return Some(Arc::clone(tunnel));
            }
            order.remove(&place);
            *filed = (used, place.1);
            order.insert(*filed, key);
        }
    }
}

/// Who a tunnel belongs to, whatever port it uses.
pub(super) fn client(key: &TunnelKey) -> IpAddr {
    key.client.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use honk_policy::id::{NodeId, Uuid};

    use super::*;

    /// A full second after the table began.
    const START: u64 = 1000;
    const LATER: u64 = START + QUIET.as_millis() as u64;

    /// Asks for a tunnel as the service does; the tunnel if there was room in the end.
    fn open(tunnels: &mut Tunnels, who: (u8, u16), now: u64) -> (Option<Arc<Tunnel>>, bool) {
        let key = TunnelKey {
            client: ([10, 0, 0, who.0], who.1).into(),
            leaf: NodeId(Uuid::from_u128(1)),
            mark: 0,
            alone: None,
            cold: None,
        };
        let shortage = tunnels.make_room(client(&key), now);
        if shortage.as_ref().is_some_and(|s| s.victim.is_none()) {
            return (None, true);
        }
        let tunnel = Arc::new(Tunnel::new(key, now));
        tunnels.insert(&tunnel);
        (Some(tunnel), shortage.is_some())
    }

    #[test]
    fn a_busy_client_ends_at_its_share_and_others_go_on() {
        let mut tunnels = Tunnels::new(16);
        for port in 1..=20 {
            let (got, short) = open(&mut tunnels, (1, port), START);
            assert_eq!((got.is_some(), short), (port <= 4, port > 4), "{port}");
        }
        assert!(open(&mut tunnels, (2, 1), START).0.is_some());
        assert_eq!(tunnels.len(), 5);
    }

    #[test]
    fn the_least_recently_used_makes_room_once_it_is_quiet() {
        let mut tunnels = Tunnels::new(16);
        let old: Vec<_> = (1..=4)
            .filter_map(|port| open(&mut tunnels, (1, port), START).0)
            .collect();
        assert!(open(&mut tunnels, (1, 5), LATER - 1).0.is_none());
        old[0].touch(LATER - 1);
        old[1].touch(START + 1);
        let (got, short) = open(&mut tunnels, (1, 5), LATER);
        assert!(got.is_some() && short);
        assert!(tunnels.find(&old[2].key).is_none(), "the oldest use");
        assert_eq!(tunnels.len(), 4);
        assert!(open(&mut tunnels, (1, 6), LATER).0.is_some());
        assert!(tunnels.find(&old[3].key).is_none());
        assert!(open(&mut tunnels, (1, 7), LATER).0.is_none(), "1 ms early");
        assert!(open(&mut tunnels, (1, 7), LATER + 1).0.is_some());
        assert!(tunnels.find(&old[1].key).is_none());
        assert!(tunnels.find(&old[0].key).is_some(), "used a moment ago");
    }

    #[test]
    fn a_full_table_takes_from_the_client_with_the_most() {
        let mut tunnels = Tunnels::new(8);
        for who in 1..=3 {
            for port in 1..=2 {
                open(&mut tunnels, (who, port), START);
            }
        }
        open(&mut tunnels, (4, 1), START);
        open(&mut tunnels, (5, 1), START);
        assert_eq!(tunnels.len(), 8);
        assert!(open(&mut tunnels, (6, 1), START).0.is_none());
        assert!(open(&mut tunnels, (6, 1), LATER).0.is_some());
        assert_eq!(tunnels.len(), 8);
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        let counts: Vec<_> = (1..=6).map(|n| tunnels.count(ip(n))).collect();
        assert_eq!(counts, [2, 2, 1, 1, 1, 1]);
    }

    #[test]
    fn nothing_is_left_of_tunnels_that_went() {
        let mut tunnels = Tunnels::new(8);
        let all: Vec<_> = (1..=4)
            .filter_map(|who| open(&mut tunnels, (who, 1), START).0)
            .collect();
        for tunnel in &all {
            tunnels.remove(tunnel);
            tunnels.remove(tunnel);
        }
        assert_eq!(tunnels.len(), 0);
        assert!(tunnels.clients.is_empty() && tunnels.ranks.is_empty());
    }

    #[test]
    fn a_shortage_is_told_once_a_minute() {
        let mut tunnels = Tunnels::new(4);
        open(&mut tunnels, (1, 1), START);
        let mut told = |now| {
            let shortage = tunnels.make_room([10, 0, 0, 1].into(), now);
            shortage.map(|s| (s.tell, s.client, s.share, s.total, s.limit))
        };
        assert_eq!(told(START), Some((true, 1, 1, 1, 4)));
        assert_eq!(told(START + 1), Some((false, 1, 1, 1, 4)));
        let next = START + TELL.as_millis() as u64;
        assert_eq!(told(next), Some((true, 1, 1, 1, 4)));
    }
}
