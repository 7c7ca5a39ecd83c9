//! Counters of dials by network, protocol and result, and how long successes took.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use honk_policy::{id::Network, node::Protocol};

use super::error::DialResult;

/// Label values of `protocol`, in index order. `block` never dials.
pub(crate) const PROTOCOLS: [&str; 3] = ["direct", "socks5", "http"];

/// Upper bounds of the duration buckets, milliseconds; one more bucket takes the rest.
pub(crate) const BUCKETS_MS: [u64; 14] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 3000, 5000, 10_000,
];

const NETWORKS: [Network; 2] = [Network::Tcp, Network::Udp];

#[derive(Debug, Default)]
struct Row {
    results: [AtomicU64; DialResult::NAMES.len()],
    buckets: [AtomicU64; BUCKETS_MS.len() + 1],
    sum_us: AtomicU64,
}

/// All rows.
#[derive(Debug, Default)]
pub(crate) struct DialCounters {
    rows: [[Row; PROTOCOLS.len()]; NETWORKS.len()],
}

/// One row, copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DialRow {
    pub(crate) network: Network,
    pub(crate) protocol: &'static str,
    /// Same order as [`DialResult::NAMES`].
    pub(crate) results: [u64; DialResult::NAMES.len()],
    /// Successes per bucket of [`BUCKETS_MS`], not cumulative.
    pub(crate) buckets: [u64; BUCKETS_MS.len() + 1],
    pub(crate) sum: Duration,
}

impl DialCounters {
    /// Counts a success.
    pub(crate) fn ok(&self, network: Network, protocol: &Protocol, took: Duration) {
        let Some(row) = self.row(network, protocol) else {
            return;
        };
        let ms = took.as_micros().div_ceil(1000);
        let bucket = BUCKETS_MS.partition_point(|&bound| u128::from(bound) < ms);
        row.results[DialResult::Ok as usize].fetch_add(1, Relaxed);
        row.buckets[bucket].fetch_add(1, Relaxed);
        row.sum_us.fetch_add(took.as_micros() as u64, Relaxed);
    }

    /// Counts a failure.
    pub(crate) fn failed(&self, network: Network, protocol: &Protocol, result: DialResult) {
        if let Some(row) = self.row(network, protocol) {
            row.results[result as usize].fetch_add(1, Relaxed);
        }
    }

    /// The rows that ever counted.
    pub(crate) fn snapshot(&self) -> Vec<DialRow> {
        let mut out = Vec::new();
        for (network, rows) in NETWORKS.into_iter().zip(&self.rows) {
            for (protocol, row) in PROTOCOLS.into_iter().zip(rows) {
                let results = row.results.each_ref().map(|n| n.load(Relaxed));
                if results.iter().any(|&n| n > 0) {
                    out.push(DialRow {
                        network,
                        protocol,
                        results,
                        buckets: row.buckets.each_ref().map(|n| n.load(Relaxed)),
                        sum: Duration::from_micros(row.sum_us.load(Relaxed)),
                    });
                }
            }
        }
        out
    }

    fn row(&self, network: Network, protocol: &Protocol) -> Option<&Row> {
        let network = NETWORKS.iter().position(|n| *n == network)?;
        let protocol = PROTOCOLS.iter().position(|p| *p == protocol.name())?;
        self.rows.get(network)?.get(protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successes_fall_into_their_bucket() {
        let counters = DialCounters::default();
        for us in [1, 1000, 1001, 60_000_000] {
            counters.ok(Network::Tcp, &Protocol::Direct, Duration::from_micros(us));
        }
        counters.failed(Network::Tcp, &Protocol::Direct, DialResult::Timeout);
        counters.failed(Network::Tcp, &Protocol::Block, DialResult::Refused);
        let rows = counters.snapshot();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].protocol, "direct");
        assert_eq!(rows[0].results[DialResult::Ok as usize], 4);
        assert_eq!(rows[0].results[DialResult::Timeout as usize], 1);
        assert_eq!(rows[0].buckets[0], 2);
        assert_eq!(rows[0].buckets[1], 1);
        assert_eq!(rows[0].buckets[BUCKETS_MS.len()], 1);
    }
}
