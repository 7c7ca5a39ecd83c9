//! Counters of the engine.

use serde::{Deserialize, Serialize};

use super::score::Score;

/// `GET /stats`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    pub(crate) generation: u64,
    pub(crate) uptime_secs: u64,
    /// By name.
    pub(crate) outbounds: Vec<OutboundStats>,
    pub(crate) score: Score,
}

/// What userspace carried for one outbound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboundStats {
    pub(crate) name: String,
    pub(crate) total_conns: u64,
    pub(crate) active_conns: u64,
    pub(crate) upload: u64,
    pub(crate) download: u64,
    /// Flows that ended by a reset, a timeout or a dial that failed.
    pub(crate) errors: u64,
}
