//! Distributions: the only values that are gathered as they happen, because no counter could
//! give them back later.

use honk_policy::id::Network;
use prometheus::{Histogram, HistogramOpts, HistogramVec, proto::MetricFamily};

use super::names::{self, Family};

/// Seconds a flow lives.
const LIFE: [f64; 8] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0];
/// Bytes of a flow.
const BYTES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Seconds a phase of a reload takes.
const RELOAD: [f64; 9] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Phases of a reload.
pub(crate) const PHASES: [&str; 3] = ["build", "commit", "drain"];

/// All histograms of the daemon.
#[derive(Debug)]
pub(crate) struct Histograms {
    registry: prometheus::Registry,
    tcp: PerNetwork,
    udp: PerNetwork,
    reload: [Histogram; PHASES.len()],
}

#[derive(Debug)]
struct PerNetwork {
    life: Histogram,
    up: Histogram,
    down: Histogram,
}

impl Histograms {
    pub(crate) fn new() -> Self {
        let registry = prometheus::Registry::new();
        let life = vec(&registry, &names::CONNECTION_DURATION, &LIFE);
        let bytes = vec(&registry, &names::CONNECTION_TRANSFER, &BYTES);
        let reload = vec(&registry, &names::CONFIG_RELOAD_DURATION, &RELOAD);
        let network = |name| PerNetwork {
            life: life.with_label_values(&[name]),
            up: bytes.with_label_values(&[name, "up"]),
            down: bytes.with_label_values(&[name, "down"]),
        };
        Self {
            tcp: network("tcp"),
            udp: network("udp"),
            reload: PHASES.map(|phase| reload.with_label_values(&[phase])),
            registry,
        }
    }

    /// A flow ended.
    #[expect(clippy::cast_precision_loss, reason = "buckets are coarse")]
    pub(crate) fn flow(&self, network: Network, millis: u64, up: u64, down: u64) {
        let of = match network {
            Network::Tcp => &self.tcp,
            Network::Udp => &self.udp,
        };
        of.life.observe(millis as f64 / 1000.0);
        of.up.observe(up as f64);
        of.down.observe(down as f64);
    }

    /// A phase of a reload ended; `phase` is an index of [`PHASES`].
    pub(crate) fn reload(&self, phase: usize, seconds: f64) {
        if let Some(histogram) = self.reload.get(phase) {
            histogram.observe(seconds);
        }
    }

    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

fn vec(registry: &prometheus::Registry, family: &Family, buckets: &[f64]) -> HistogramVec {
    let opts = HistogramOpts::new(family.name, family.help).buckets(buckets.to_vec());
    let made = HistogramVec::new(opts, family.labels).expect("name and labels are constants");
    registry
        .register(Box::new(made.clone()))
        .expect("every name is registered once");
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::page::encode;

    #[test]
    fn an_ended_flow_stands_in_its_buckets() {
        let histograms = Histograms::new();
        histograms.flow(Network::Tcp, 61_000, 10, 2_000_000);
        histograms.reload(1, 0.01);
        let text = String::from_utf8(encode(&histograms.gather()).unwrap()).unwrap();
        for line in [
            "honk_connection_duration_seconds_bucket{network=\"tcp\",le=\"60\"} 0",
            "honk_connection_duration_seconds_bucket{network=\"tcp\",le=\"300\"} 1",
            "honk_connection_transfer_bytes_bucket{direction=\"down\",network=\"tcp\",le=\"10000000\"} 1",
            "honk_connection_duration_seconds_count{network=\"udp\"} 0",
            "honk_config_reload_duration_seconds_count{phase=\"commit\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
