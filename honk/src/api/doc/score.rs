//! Documents of Score: what a group is sure of, and its counters. They count; of nodes and
//! targets they name none but the member that is selected.

use serde::{Deserialize, Serialize};

use super::{PerNet, Ts};

/// How sure a group is about the selection of one network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScoreVerification {
    /// Name of the direct member.
    pub(crate) selected: Option<String>,
    /// `provisional` or `observedUsable`.
    pub(crate) state: String,
    pub(crate) challengers: Challengers,
    /// `none`, `availability`, `response`, `qualification` or `recovery`.
    pub(crate) question: String,
    /// `none`, `nextBusinessFlow` or `backoff`.
    pub(crate) next_action: String,
    /// `none`, `budget`, `comparableTraffic`, `inFlight` or `backoff`.
    pub(crate) wait_reason: String,
    pub(crate) coverage: Coverage,
    pub(crate) fresh_until: Option<Ts>,
}

/// The other members by how fast they answer next to the selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Challengers {
    pub(crate) selected_faster: u64,
    pub(crate) equivalent: u64,
    pub(crate) challenger_faster: u64,
    pub(crate) unknown: u64,
}

/// How much of a group was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Coverage {
    /// `all` or `bounded`.
    pub(crate) scope: String,
    pub(crate) candidates: u64,
    pub(crate) evaluated: u64,
    pub(crate) unevaluated: u64,
    pub(crate) pending: u64,
}

/// `score` of `GET /stats`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Score {
    /// By name.
    pub(crate) groups: Vec<ScoreGroup>,
    /// Flows of clients, each once.
    pub(crate) business_starts: u64,
    pub(crate) cache: Cache,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScoreGroup {
    pub(crate) name: String,
    pub(crate) tcp: Reasons,
    pub(crate) udp: Reasons,
    pub(crate) verification: PerNet<Verified>,
    pub(crate) budget: PerNet<Budget>,
}

/// Choices by reason, then what overlaps with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reasons {
    pub(crate) cold_explore: u64,
    pub(crate) periodic_explore: u64,
    pub(crate) incumbent_ineligible: u64,
    pub(crate) fresh_failure_bypass: u64,
    pub(crate) insufficient_evidence_held: u64,
    pub(crate) directional_tradeoff_held: u64,
    pub(crate) incumbent_held: u64,
    pub(crate) reliability_winner: u64,
    pub(crate) performance_winner: u64,
    pub(crate) ordinary_switch: u64,
    pub(crate) switch_flap: u64,
    pub(crate) dead_filtered: u64,
    pub(crate) fail_streak_excluded: u64,
    pub(crate) explore_backed_off: u64,
    pub(crate) carrier_pressure: u64,
    pub(crate) carrier_rtt_pressure: u64,
    pub(crate) carrier_loss_pressure: u64,
    pub(crate) carrier_validation: u64,
}

/// Choices by what was known of the node they fell on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verified {
    pub(crate) provisional_selections: u64,
    pub(crate) usable_selections: u64,
    pub(crate) validation_selections: u64,
}

/// Trials and what may be spent on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Budget {
    pub(crate) business_starts: u64,
    pub(crate) sources: Sources,
    pub(crate) trial_starts: u64,
    pub(crate) reserved: u64,
    pub(crate) spent: u64,
    pub(crate) budget_blocked: u64,
    pub(crate) in_flight_blocked: u64,
    pub(crate) refunded: u64,
    pub(crate) expired: u64,
    pub(crate) cold_allowance: u64,
    pub(crate) cold_available: u64,
    pub(crate) earned_available: u64,
    pub(crate) earning_period: u64,
    pub(crate) scopes: u64,
    pub(crate) paused_scopes: u64,
    pub(crate) in_flight: u64,
    pub(crate) trial_success: u64,
    pub(crate) trial_failure: u64,
    pub(crate) trial_cancelled: u64,
    pub(crate) trial_setup_histogram: [u64; 8],
    pub(crate) trial_setup_millis: u64,
    pub(crate) trial_elapsed_millis: u64,
}

/// Begun work by what paid for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sources {
    pub(crate) cold: u64,
    pub(crate) periodic: u64,
    pub(crate) recovery: u64,
}

/// The stores of evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cache {
    pub(crate) exact_cells: u64,
    pub(crate) aggregate_cells: u64,
    pub(crate) exact_evictions: u64,
    pub(crate) aggregate_evictions: u64,
    pub(crate) comparison_cells: u64,
    pub(crate) comparison_logical_bytes: u64,
    pub(crate) comparison_logical_capacity: u64,
    pub(crate) comparison_evictions: u64,
    pub(crate) comparison_expired: u64,
    pub(crate) comparison_rejected: u64,
}
