//! The memory of answers: pairs of name and address, each with its own end.
//!
//! A fresh answer that lacks an address takes nothing away, because other clients still hold
//! the old one; only time, a negative answer and lack of room do.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use honk_common::limits::DOMAIN_ENTRIES;

use super::{NEGATIVE_LEFT, RENEW, expiry, recent::Recent, teaches};

/// A name in the memory; a number is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(u64);

/// Sizes of the memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Addresses; beyond it those whose leases end first go.
    pub addresses: usize,
    /// Addresses left after that.
    pub addresses_low: usize,
    /// Names of one address; the one that ends first goes.
    pub owners: usize,
    /// Addresses of one name; the one that ends first goes.
    pub per_name: usize,
    /// Pairs of name and address.
    pub leases: usize,
    /// Pairs of client and address of which the last name is known.
    pub recent: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let map = DOMAIN_ENTRIES as usize;
        Self {
            addresses: map / 10 * 9,
            addresses_low: map / 20 * 17,
            owners: 16,
            per_name: 1024,
            leases: 131_072,
            recent: 65_536,
        }
    }
}

/// What one answer says about the name that was asked for.
#[derive(Clone, Debug)]
pub struct Lesson {
    /// Who asked.
    pub client: IpAddr,
    /// Lower case, without trailing dot.
    pub name: String,
    /// Record type asked for.
    pub kind: u16,
    /// Addresses with their time to live; none means that there is none of this type.
    pub addresses: Vec<(IpAddr, u32)>,
}

/// A lease as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerView {
    /// The name.
    pub name: Arc<str>,
    /// The address.
    pub address: IpAddr,
    /// Seconds left.
    pub left: u64,
}

#[derive(Clone, Debug)]
struct Named {
    text: Arc<str>,
    addresses: BTreeSet<IpAddr>,
}

#[derive(Clone, Debug)]
struct Owner {
    name: NameId,
    expires: u64,
    renewed: u64,
    kind: u16,
    /// Order of the answers, for "the last name of this address".
    seen: u64,
}

/// The memory.
#[derive(Clone, Debug)]
pub struct Leases {
    limits: Limits,
    names: HashMap<NameId, Named>,
    ids: HashMap<Arc<str>, NameId>,
    owners: HashMap<IpAddr, Vec<Owner>>,
    /// Every lease by its end.
    ends: BTreeSet<(u64, IpAddr, NameId)>,
    recent: Recent,
    serial: u64,
    evicted: u64,
}

impl Leases {
    /// An empty memory.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            names: HashMap::new(),
            ids: HashMap::new(),
            owners: HashMap::new(),
            ends: BTreeSet::new(),
            recent: Recent::new(limits.recent),
            serial: 0,
            evicted: 0,
        }
    }

    /// Takes in an answer; returns the addresses whose names are others than before.
    pub fn learn(&mut self, now: u64, lesson: &Lesson) -> Vec<IpAddr> {
        let mut touched = BTreeSet::new();
        if lesson.addresses.is_empty() {
            self.shorten(now, &lesson.name, lesson.kind);
            return Vec::new();
        }
        let client = lesson.client.to_canonical();
        for &(address, ttl) in lesson.addresses.iter().filter(|(a, _)| teaches(*a)) {
            let address = address.to_canonical();
            let id = self.id(&lesson.name);
            if self.grant(now, address, id, lesson.kind, expiry(now, ttl)) {
                touched.insert(address);
                self.bound(address, id, &mut touched);
            }
            self.recent.set(client, address, id);
        }
        touched.into_iter().collect()
    }

    /// Forgets what has ended; returns the addresses whose names are others than before.
    pub fn sweep(&mut self, now: u64) -> Vec<IpAddr> {
        let mut touched = BTreeSet::new();
        while let Some(&(end, address, name)) = self.ends.first() {
            if end > now {
                break;
            }
            self.remove(address, name);
            touched.insert(address);
        }
        if !touched.is_empty() {
            self.forget_recent();
        }
        touched.into_iter().collect()
    }

    /// The names of an address.
    pub fn owners(&self, address: IpAddr) -> impl Iterator<Item = (NameId, &Arc<str>)> {
        let owners = self.owners.get(&address.to_canonical());
        owners
            .into_iter()
            .flatten()
            .filter_map(|o| Some((o.name, &self.names.get(&o.name)?.text)))
    }

    /// The name a client heard last for an address, else the last that anybody heard.
    pub fn name_for(&self, client: IpAddr, address: IpAddr) -> Option<&Arc<str>> {
        let address = address.to_canonical();
        let owners = self.owners.get(&address)?;
        let own = self.recent.get(client.to_canonical(), address);
        let own = own.filter(|name| owners.iter().any(|o| o.name == *name));
        let last = || owners.iter().max_by_key(|o| o.seen).map(|o| o.name);
        Some(&self.names.get(&own.or_else(last)?)?.text)
    }

    /// The name a client itself heard last for an address.
    pub fn heard(&self, client: IpAddr, address: IpAddr) -> Option<&Arc<str>> {
        let address = address.to_canonical();
        let name = self.recent.get(client.to_canonical(), address)?;
        self.owners.get(&address)?.iter().find(|o| o.name == name)?;
        Some(&self.names.get(&name)?.text)
    }

    /// Whether an address was given out for a name.
    pub fn holds(&self, address: IpAddr, name: &str) -> bool {
        let id = self.ids.get(name);
        id.and_then(|id| self.names.get(id))
            .is_some_and(|n| n.addresses.contains(&address.to_canonical()))
    }

    /// Leases of one address, the ones that end first at the front.
    pub fn of_address(&self, now: u64, address: IpAddr) -> Vec<OwnerView> {
        let address = address.to_canonical();
        let owners = self.owners.get(&address);
        let mut views: Vec<_> = owners
            .into_iter()
            .flatten()
            .filter_map(|o| self.view(now, o.expires, address, o.name))
            .collect();
        views.sort_by(|a, b| (a.left, &a.name).cmp(&(b.left, &b.name)));
        views
    }

    /// Leases of one name, by address.
    pub fn of_name(&self, now: u64, name: &str) -> Vec<OwnerView> {
        let Some(id) = self.ids.get(name) else {
            return Vec::new();
        };
        let addresses = self.names.get(id).map(|n| &n.addresses);
        let owner = |address: &IpAddr| {
            let owner = self.owners.get(address)?.iter().find(|o| o.name == *id)?;
            self.view(now, owner.expires, *address, *id)
        };
        addresses.into_iter().flatten().filter_map(owner).collect()
    }

    /// Addresses with names.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.owners.keys().copied()
    }

    /// Number of addresses.
    pub fn address_count(&self) -> usize {
        self.owners.len()
    }

    /// Number of pairs of name and address.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of names.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    /// Pairs of client and address.
    pub fn recent_count(&self) -> usize {
        self.recent.len()
    }

    /// Leases that ended early for lack of room, so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Whether a name is still in the memory.
    pub fn knows(&self, name: NameId) -> bool {
        self.names.contains_key(&name)
    }

    fn view(&self, now: u64, end: u64, address: IpAddr, name: NameId) -> Option<OwnerView> {
        Some(OwnerView {
            name: Arc::clone(&self.names.get(&name)?.text),
            address,
            left: end.saturating_sub(now),
        })
    }

    fn id(&mut self, name: &str) -> NameId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        self.serial += 1;
        let (id, text) = (NameId(self.serial), Arc::<str>::from(name));
        self.ids.insert(Arc::clone(&text), id);
        let addresses = BTreeSet::new();
        self.names.insert(id, Named { text, addresses });
        id
    }

    /// Adds or renews a lease; true when it is new.
    fn grant(&mut self, now: u64, address: IpAddr, id: NameId, kind: u16, end: u64) -> bool {
        self.serial += 1;
        let seen = self.serial;
        let owners = self.owners.entry(address).or_default();
        if let Some(owner) = owners.iter_mut().find(|o| o.name == id) {
            owner.seen = seen;
            // A lease that was cut short by a negative answer is renewed at once.
            let due =
                now.saturating_sub(owner.renewed) >= RENEW || owner.expires <= now + NEGATIVE_LEFT;
            if due && end > owner.expires {
                self.ends.remove(&(owner.expires, address, id));
                self.ends.insert((end, address, id));
                owner.expires = end;
            }
            if due {
                (owner.renewed, owner.kind) = (now, kind);
            }
            return false;
        }
        owners.push(Owner {
            name: id,
            expires: end,
            renewed: now,
            kind,
            seen,
        });
        self.ends.insert((end, address, id));
        if let Some(named) = self.names.get_mut(&id) {
            named.addresses.insert(address);
        }
        true
    }

    /// Restores the limits after a new lease, which itself stays.
    fn bound(&mut self, address: IpAddr, id: NameId, touched: &mut BTreeSet<IpAddr>) {
        let owners = self.owners.get(&address).map_or(&[][..], Vec::as_slice);
        if owners.len() > self.limits.owners {
            let others = owners.iter().filter(|o| o.name != id);
            if let Some(first) = others.min_by_key(|o| o.expires).map(|o| o.name) {
                self.evict(address, first, touched);
            }
        }
        let named = self.names.get(&id);
        if named.is_some_and(|n| n.addresses.len() > self.limits.per_name) {
            let end = |a: &&IpAddr| {
                let owner = self.owners.get(*a)?.iter().find(|o| o.name == id)?;
                Some(owner.expires)
            };
            let others = named
                .iter()
                .flat_map(|n| &n.addresses)
                .filter(|a| **a != address);
            if let Some(first) = others.min_by_key(end).copied() {
                self.evict(first, id, touched);
            }
        }
        if self.ends.len() > self.limits.leases {
            self.evict_first((address, id), touched);
        }
        if self.owners.len() > self.limits.addresses {
            while self.owners.len() > self.limits.addresses_low
                && self.evict_first((address, id), touched)
            {}
        }
    }

    /// Ends the lease whose end is nearest, other than `keep`.
    fn evict_first(&mut self, keep: (IpAddr, NameId), touched: &mut BTreeSet<IpAddr>) -> bool {
        let mut ends = self.ends.iter().take(2);
        let first = ends.find(|(_, address, name)| (*address, *name) != keep);
        let Some(&(_, address, name)) = first else {
            return false;
        };
        self.evict(address, name, touched);
        true
    }

    fn evict(&mut self, address: IpAddr, name: NameId, touched: &mut BTreeSet<IpAddr>) {
        self.evicted += 1;
        self.remove(address, name);
        touched.insert(address);
    }

    fn remove(&mut self, address: IpAddr, id: NameId) {
        if let Some(owners) = self.owners.get_mut(&address) {
            if let Some(at) = owners.iter().position(|o| o.name == id) {
                let owner = owners.swap_remove(at);
                self.ends.remove(&(owner.expires, address, id));
            }
            if owners.is_empty() {
                self.owners.remove(&address);
            }
        }
        if let Some(named) = self.names.get_mut(&id) {
            named.addresses.remove(&address);
            if named.addresses.is_empty() {
                self.ids.remove(&named.text);
                self.names.remove(&id);
            }
        }
    }

    /// The name has no such record any more.
    fn shorten(&mut self, now: u64, name: &str, kind: u16) {
        let Some(id) = self.ids.get(name).copied() else {
            return;
        };
        let end = now + NEGATIVE_LEFT;
        let addresses = self.names.get(&id).map(|n| &n.addresses);
        for address in addresses.into_iter().flatten() {
            let owners = self.owners.get_mut(address).into_iter().flatten();
            for owner in owners.filter(|o| o.name == id && o.kind == kind && o.expires > end) {
                self.ends.remove(&(owner.expires, *address, id));
                self.ends.insert((end, *address, id));
                owner.expires = end;
            }
        }
    }

    fn forget_recent(&mut self) {
        let owners = &self.owners;
        self.recent.retain(|address, name| {
            let owners = owners.get(&address).into_iter().flatten();
            owners.into_iter().any(|o| o.name == name)
        });
    }
}
