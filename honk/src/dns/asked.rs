//! Datagram queries that wait for their answer.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

use honk_wire::dns::{Explanation, Name, Query, rcode, refuse};

use super::{load::Place, lock};

/// Who asked whom under which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) id: u16,
}

/// An unanswered query.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: u16,
    pub(super) name: Name,
    pub(super) kind: u16,
    pub(super) since: Instant,
    bytes: Box<[u8]>,
    /// Gives the place back with the answer.
    _place: Place,
}

impl Waiting {
    pub(super) fn new(query: &Query<'_>, bytes: &[u8], since: Instant, place: Place) -> Self {
        Self {
            id: query.id,
            name: query.name.clone(),
            kind: query.kind,
            since,
            bytes: bytes.into(),
            _place: place,
        }
    }

    /// The reply that says that there will be no answer.
    pub(super) fn failure(&self, why: Explanation) -> Option<Vec<u8>> {
        let query = Query::read(&self.bytes)?;
        let mut bytes = Vec::new();
        refuse(&query, rcode::SERVFAIL, why, &mut bytes);
        Some(bytes)
    }
}

/// The queries by key, and in the order in which they came. As many as there are places.
#[derive(Debug, Default)]
pub(super) struct Asked(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<Key, (u64, Waiting)>,
    order: BTreeMap<u64, Key>,
    serial: u64,
}

impl Table {
    fn take(&mut self, key: &Key) -> Option<Waiting> {
        let (serial, waiting) = self.waiting.remove(key)?;
        self.order.remove(&serial);
        Some(waiting)
    }
}

impl Asked {
    /// Whether the very question waits already: the client sends it again.
    pub(super) fn repeats(&self, key: &Key, query: &Query<'_>) -> bool {
        let table = lock(&self.0);
        let waiting = table.waiting.get(key);
        waiting.is_some_and(|(_, w)| w.name == query.name && w.kind == query.kind)
    }

    /// A number that is used again stands for the new question.
    pub(super) fn put(&self, key: Key, waiting: Waiting) {
        let mut table = lock(&self.0);
        table.take(&key);
        table.serial += 1;
        let serial = table.serial;
        table.order.insert(serial, key);
        table.waiting.insert(key, (serial, waiting));
    }

    pub(super) fn find(&self, key: Key) -> Option<(Key, Name, u16)> {
        let table = lock(&self.0);
        let (_, waiting) = table.waiting.get(&key)?;
        Some((key, waiting.name.clone(), waiting.kind))
    }

    pub(super) fn take(&self, key: &Key) -> Option<Waiting> {
        lock(&self.0).take(key)
    }

    pub(super) fn take_all(&self, client: SocketAddr, server: SocketAddr) -> Vec<Waiting> {
        let mut table = lock(&self.0);
        let of = |key: &&Key| key.client == client && key.server == server;
        let keys: Vec<_> = table.waiting.keys().filter(of).copied().collect();
        keys.iter().filter_map(|key| table.take(key)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).waiting.is_empty()
    }

    /// Takes out what nobody answered in time.
    pub(super) fn overdue(&self, now: Instant, deadline: Duration) -> Vec<(Key, Waiting)> {
        let mut table = lock(&self.0);
        let mut late = Vec::new();
        while let Some((_, &key)) = table.order.first_key_value() {
            let due = |w: &(u64, Waiting)| now.saturating_duration_since(w.1.since) >= deadline;
            if !table.waiting.get(&key).is_none_or(due) {
                break;
            }
            match table.take(&key) {
                Some(waiting) => late.push((key, waiting)),
                None => drop(table.order.pop_first()),
            }
        }
        late
    }
}
