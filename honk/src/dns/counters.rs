//! What the DNS side counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use honk_wire::dns::kind;

/// Label values of `ingress`.
pub(crate) const INGRESS: [&str; 2] = ["transparent_udp", "transparent_tcp"];
/// Label values of `qtype`.
pub(crate) const QTYPES: [&str; 5] = ["a", "aaaa", "https", "ptr", "other"];
/// Label values of `rcode`.
pub(crate) const RCODES: [&str; 7] = [
    "noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "other",
];
/// Label values of `source` of responses.
pub(crate) const SOURCES: [&str; 2] = ["upstream", "error"];
/// Label values of `reason` of refused queries.
pub(crate) const REFUSALS: [&str; 2] = ["capacity", "blocked"];

/// Counters that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    queries: [[AtomicU64; QTYPES.len()]; INGRESS.len()],
    responses: [[AtomicU64; RCODES.len()]; SOURCES.len()],
    pub(super) refused: [AtomicU64; REFUSALS.len()],
    /// Messages to the port that are no queries.
    pub(super) opaque: AtomicU64,
    /// Datagrams and frames of servers that answer nothing that was asked.
    pub(super) mismatch: AtomicU64,
    /// Answers to the right question that cannot be read.
    pub(super) malformed: AtomicU64,
    /// Queries that nobody answered in time.
    pub(super) timeouts: AtomicU64,
    /// Addresses of answers beyond what is learned of one.
    pub(super) cut: AtomicU64,
    /// Answers sent before the kernel knew.
    pub(super) late: AtomicU64,
    /// Answers dropped because too many had to be learned at once.
    pub(super) unlearned: AtomicU64,
    /// Replies of honk's own that found no room.
    pub(super) unsent: AtomicU64,
}

/// The counters copied out, and what is in the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) queries: Vec<(&'static str, &'static str, u64)>,
    pub(crate) responses: Vec<(&'static str, &'static str, u64)>,
    pub(crate) refused: Vec<(&'static str, u64)>,
    pub(crate) opaque: u64,
    pub(crate) mismatch: u64,
    pub(crate) malformed: u64,
    pub(crate) timeouts: u64,
    pub(crate) cut: u64,
    pub(crate) late: u64,
    pub(crate) unlearned: u64,
    pub(crate) unsent: u64,
    /// Queries without answer now.
    pub(crate) waiting: usize,
    /// TCP connections now.
    pub(crate) streams: usize,
    pub(crate) leases: usize,
    pub(crate) addresses: usize,
    pub(crate) names: usize,
    pub(crate) evicted: u64,
    /// Entries in the kernel map.
    pub(crate) entries: usize,
    /// Entries that wait to be written.
    pub(crate) unwritten: usize,
    pub(crate) ambiguous: usize,
    pub(crate) map_failures: u64,
}

impl Counters {
    /// A query; `ingress` is an index of [`INGRESS`].
    pub(super) fn query(&self, ingress: usize, qtype: u16) {
        let at = match qtype {
            kind::A => 0,
            kind::AAAA => 1,
            kind::HTTPS => 2,
            kind::PTR => 3,
            _ => 4,
        };
        self.queries[ingress][at].fetch_add(1, Relaxed);
    }

    /// An answer of a server.
    pub(super) fn response(&self, message: &[u8]) {
        self.responses[0][rcode_index(message)].fetch_add(1, Relaxed);
    }

    /// A reply of honk's own.
    pub(super) fn own(&self, message: &[u8]) {
        self.responses[1][rcode_index(message)].fetch_add(1, Relaxed);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let get = |n: &AtomicU64| n.load(Relaxed);
        let mut snapshot = Snapshot {
            opaque: get(&self.opaque),
            mismatch: get(&self.mismatch),
            malformed: get(&self.malformed),
            timeouts: get(&self.timeouts),
            cut: get(&self.cut),
            late: get(&self.late),
            unlearned: get(&self.unlearned),
            unsent: get(&self.unsent),
            ..Snapshot::default()
        };
        for (ingress, row) in INGRESS.iter().zip(&self.queries) {
            let row = QTYPES.iter().zip(row);
            let row = row.map(|(qtype, n)| (*ingress, *qtype, get(n)));
            snapshot.queries.extend(row);
        }
        for (source, row) in SOURCES.iter().zip(&self.responses) {
            let row = RCODES.iter().zip(row);
            let row = row.map(|(code, n)| (*code, *source, get(n)));
            snapshot.responses.extend(row);
        }
        let refused = REFUSALS.iter().zip(&self.refused);
        snapshot.refused = refused.map(|(reason, n)| (*reason, get(n))).collect();
        snapshot
    }
}

fn rcode_index(message: &[u8]) -> usize {
    let code = usize::from(message.get(3).copied().unwrap_or(15) & 15);
    code.min(RCODES.len() - 1)
}
