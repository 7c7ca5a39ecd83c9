//! What the datapath tells about itself. Plain values; taken by the API and the metrics.

use std::os::fd::AsFd;

use honk_common::counter::{OutStats, Stat};

use super::{bpf, error::Error, object::Maps};

/// An interface, or a pattern that means none at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceStatus {
    pub(crate) name: String,
    pub(crate) pattern: String,
    /// `lan` or `wan`.
    pub(crate) role: &'static str,
    pub(crate) attached: bool,
    /// Programs that run there.
    pub(crate) hooks: Vec<&'static str>,
    pub(crate) problem: Option<String>,
    /// No interface fits the pattern yet.
    pub(crate) pending: bool,
}

/// A map and how full it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) map: &'static str,
    /// As of the last count.
    pub(crate) entries: u64,
    pub(crate) capacity: u64,
}

/// A snapshot of all counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// By name: those of the kernel programs in ABI order, then the daemon's own.
    pub(crate) stats: Vec<(&'static str, u64)>,
    /// Ordinals that carried traffic.
    pub(crate) outbounds: Vec<(u8, OutStats)>,
    pub(crate) maps: Vec<Fill>,
    pub(crate) features: Vec<(&'static str, bool)>,
}

/// Possible CPUs: the length of per-CPU values.
pub(super) fn possible_cpus() -> Result<usize, Error> {
    let path = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(path).map_err(Error::io(format!("read {path}")))?;
    count_cpus(&text).ok_or_else(|| {
        Error::io(format!("read {path}"))(std::io::Error::other(format!("unexpected {text:?}")))
    })
}

/// CPUs of a list like `0-3,8`.
fn count_cpus(text: &str) -> Option<usize> {
    text.trim()
        .split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            Some(last.checked_sub(first)? + 1)
        })
        .sum()
}

pub(super) fn stats(maps: &Maps, cpus: usize) -> Vec<(&'static str, u64)> {
    Stat::ALL
        .iter()
        .map(|(stat, name)| (*name, stat_of(maps, *stat, cpus)))
        .collect()
}

pub(super) fn stat_of(maps: &Maps, stat: Stat, cpus: usize) -> u64 {
    let values = maps.stats.per_cpu(stat as u32, cpus).unwrap_or_default();
    values.iter().fold(0, |sum, v| sum.wrapping_add(*v))
}

pub(super) fn outbounds(maps: &Maps, cpus: usize) -> Vec<(u8, OutStats)> {
    (0..=u8::MAX)
        .filter_map(|ordinal| {
            let values = maps.out_stats.per_cpu(ordinal.into(), cpus).ok()?;
            let sum = values.iter().fold(OutStats::default(), |s, v| OutStats {
                tx_packets: s.tx_packets.wrapping_add(v.tx_packets),
                tx_bytes: s.tx_bytes.wrapping_add(v.tx_bytes),
                rx_packets: s.rx_packets.wrapping_add(v.rx_packets),
                rx_bytes: s.rx_bytes.wrapping_add(v.rx_bytes),
            });
            (sum != OutStats::default()).then_some((ordinal, sum))
        })
        .collect()
}

pub(super) fn capacity(map: &impl AsFd) -> u64 {
    bpf::map_capacity(map.as_fd()).map_or(0, u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_documented() {
        let text = include_str!("../../../docs/DATAPATH.md");
        for (_, name) in Stat::ALL {
            assert!(
                text.contains(&format!("`{name}`")),
                "docs/DATAPATH.md: {name}"
            );
        }
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(count_cpus("0\n"), Some(1));
        assert_eq!(count_cpus("0-1\n"), Some(2));
        assert_eq!(count_cpus("0-3,8-15"), Some(12));
        assert_eq!(count_cpus("x"), None);
        assert_eq!(count_cpus("3-1"), None);
    }
}
