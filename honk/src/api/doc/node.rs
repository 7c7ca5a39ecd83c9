//! Documents of nodes: what they are, how they do, what was measured.

use serde::{Deserialize, Serialize};

use super::{Disabled, Id, NodeOrigin, Ts};

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) protocol: String,
    /// `tcp` or `tcp+udp`.
    pub(crate) network: String,
    /// `null` for a node of the configuration itself.
    pub(crate) subscription: Option<NodeOrigin>,
    /// Groups that have it as a direct member.
    pub(crate) groups: Vec<Id>,
    pub(crate) builtin: bool,
    /// `alive` or `dead` for TCP; `unknown` for a node nobody has asked or used yet.
    pub(crate) state: String,
    /// Why it is switched off.
    #[serde(default)]
    pub(crate) disabled: Option<Disabled>,
    pub(crate) duplicate_name: bool,
    /// Live flows through it.
    pub(crate) active: usize,
    #[serde(default)]
    pub(crate) health: Health,
    /// The last ones, the oldest first.
    #[serde(default)]
    pub(crate) history: Vec<Sample>,
}

impl Node {
    /// The latency to show: of the first path that has one.
    pub(crate) fn delay_ms(&self) -> Option<u16> {
        self.health.paths().into_iter().find_map(|(_, h)| h.avg_ms)
    }
}

/// A latency in whole milliseconds.
pub(crate) fn whole_ms(ms: Option<f64>) -> Option<u16> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range"
    )]
    ms.map(|ms| ms.round().clamp(0.0, f64::from(u16::MAX)) as u16)
}

/// What is known of the paths to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Health {
    pub(crate) tcp_v4: PathHealth,
    pub(crate) tcp_v6: PathHealth,
    pub(crate) udp_v4: PathHealth,
    pub(crate) udp_v6: PathHealth,
}

impl Health {
    /// All paths by name.
    pub(crate) fn paths(&self) -> [(&'static str, &PathHealth); 4] {
        [
            ("tcp_v4", &self.tcp_v4),
            ("tcp_v6", &self.tcp_v6),
            ("udp_v4", &self.udp_v4),
            ("udp_v6", &self.udp_v6),
        ]
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathHealth {
    /// `alive`, `dead` or `unknown`.
    pub(crate) state: String,
    pub(crate) avg_ms: Option<u16>,
    pub(crate) fail_streak: u32,
}

impl Default for PathHealth {
    fn default() -> Self {
        Self {
            state: "unknown".to_owned(),
            avg_ms: None,
            fail_streak: 0,
        }
    }
}

/// A latency that was measured, or a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) at: Ts,
    /// `null` is a failure.
    pub(crate) delay_ms: Option<u16>,
    pub(crate) url: String,
    /// `probe`, `traffic` or `manual`.
    pub(crate) kind: String,
}
