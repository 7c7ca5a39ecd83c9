//! What one generation of rules makes of the leases, and what the kernel knows of it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use honk_common::{
    limits::RULE_WORDS,
    route::{DomainVal, RuleBits},
};

use super::lease::{Leases, NameId};
use crate::routing::oracle::Oracle;

/// One entry to write, or to delete when there is no value.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Whose entry.
    pub address: IpAddr,
    /// What the names of the address say about the lines.
    pub value: Option<DomainVal>,
    /// What it was made of.
    made_of: Option<Made>,
}

/// The calls that some name of an address satisfies, and those that all do: what an entry is
/// made of beside the number of names, which decides nothing.
type Made = (Arc<RuleBits>, Arc<RuleBits>);

/// The leases as bits of one generation.
///
/// Entries are made from all names of an address, never by adding to what was there: a name
/// that left leaves no trace.
#[derive(Clone, Debug)]
pub struct Projection {
    oracle: Arc<Oracle>,
    /// Which calls a name satisfies.
    calls: HashMap<NameId, Arc<RuleBits>>,
    /// One copy of each bitmap.
    shared: HashSet<Arc<RuleBits>>,
    written: HashMap<IpAddr, Made>,
    dirty: BTreeSet<IpAddr>,
}

impl Projection {
    /// Nothing is written yet and every address waits for it.
    pub fn new(oracle: Arc<Oracle>, leases: &Leases) -> Self {
        let mut projection = Self {
            oracle,
            calls: HashMap::new(),
            shared: HashSet::new(),
            written: HashMap::new(),
            dirty: BTreeSet::new(),
        };
        let addresses: Vec<_> = leases.addresses().collect();
        projection.touch(&addresses);
        projection
    }

    /// The names of these addresses have changed.
    pub fn touch(&mut self, addresses: &[IpAddr]) {
        // Without conditions on names the kernel asks for none.
        if self.oracle.has_names() {
            self.dirty.extend(addresses);
        }
    }

    /// Entries of `among` that differ from what the kernel knows.
    pub fn changes_among(&mut self, leases: &Leases, among: &[IpAddr]) -> Vec<Change> {
        let dirty = among.iter().filter(|a| self.dirty.contains(a)).copied();
        let dirty: Vec<_> = dirty.collect();
        self.make(leases, dirty)
    }

    /// Up to about `max` entries that differ from what the kernel knows.
    pub fn changes(&mut self, leases: &Leases, max: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        while changes.is_empty() && !self.dirty.is_empty() {
            let some: Vec<_> = self.dirty.iter().take(max).copied().collect();
            changes = self.make(leases, some);
        }
        changes
    }

    /// The kernel has taken these changes.
    pub fn confirm(&mut self, changes: &[Change]) {
        for change in changes {
            self.dirty.remove(&change.address);
            match &change.made_of {
                Some(made) => self.written.insert(change.address, made.clone()),
                None => self.written.remove(&change.address),
            };
        }
    }

    /// Addresses whose entry is not what it should be.
    pub fn waiting(&self) -> usize {
        self.dirty.len()
    }

    /// Entries in the kernel.
    pub fn entries(&self) -> usize {
        self.written.len()
    }

    /// Entries on whose lines the names disagree.
    pub fn ambiguous(&self) -> usize {
        let differ = |(any, all): &&Made| any != all;
        self.written.values().filter(differ).count()
    }

    /// Lines of the rules that an address's names hold for certain, and those on which they
    /// disagree; `None` when it has no name.
    pub fn value(&mut self, leases: &Leases, address: IpAddr) -> Option<DomainVal> {
        self.value_of(leases, address).map(|(value, _)| value)
    }

    /// Forgets what belongs to names that are gone.
    pub fn tidy(&mut self, leases: &Leases) {
        self.calls.retain(|name, _| leases.knows(*name));
        self.shared.retain(|bits| Arc::strong_count(bits) > 1);
    }

    #[cfg(test)]
    pub(super) fn calls_known(&self) -> usize {
        self.calls.len()
    }

    fn make(&mut self, leases: &Leases, addresses: Vec<IpAddr>) -> Vec<Change> {
        let mut changes = Vec::new();
        for address in addresses {
            let new = self.value_of(leases, address);
            let made_of = new.as_ref().map(|(_, made)| made.clone());
            if self.written.get(&address) == made_of.as_ref() {
                self.dirty.remove(&address);
                continue;
            }
            changes.push(Change {
                address,
                value: new.map(|(value, _)| value),
                made_of,
            });
        }
        changes
    }

    fn value_of(&mut self, leases: &Leases, address: IpAddr) -> Option<(DomainVal, Made)> {
        let owners: Vec<_> = leases
            .owners(address)
            .map(|(id, name)| self.calls(id, name))
            .collect();
        let value = self.oracle.domain_value(owners.iter().map(|c| &**c))?;
        let (mut any, mut all) = ([0; RULE_WORDS], [u64::MAX; RULE_WORDS]);
        for calls in &owners {
            for (word, bits) in calls.iter().enumerate() {
                any[word] |= bits;
                all[word] &= bits;
            }
        }
        Some((value, (self.share(any), self.share(all))))
    }

    fn calls(&mut self, id: NameId, name: &str) -> Arc<RuleBits> {
        if let Some(calls) = self.calls.get(&id) {
            return Arc::clone(calls);
        }
        let calls = self.oracle.domain_calls(name);
        let calls = self.share(calls);
        self.calls.insert(id, Arc::clone(&calls));
        calls
    }

    fn share(&mut self, bits: RuleBits) -> Arc<RuleBits> {
        if let Some(known) = self.shared.get(&bits) {
            return Arc::clone(known);
        }
        let bits = Arc::new(bits);
        self.shared.insert(Arc::clone(&bits));
        bits
    }
}
