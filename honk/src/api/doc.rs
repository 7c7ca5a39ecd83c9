//! Documents of the API: the daemon writes them, the command line reads them.
//!
//! Plain data with the field names of the interface. Building them is the business of the
//! route modules; nothing here knows groups, maps or flows. Fields whose source does not exist
//! yet (traffic rates of a node) are left out rather than invented.

mod node;
pub(crate) mod score;
mod stats;

use serde::{Deserialize, Serialize};

use self::score::ScoreVerification;
pub(crate) use self::{
    node::{Health, Node, PathHealth, Sample, whole_ms},
    stats::{OutboundStats, Stats},
};

use crate::app::kernel::{Interface, MapUse};

/// A time as text.
pub(crate) type Ts = String;
/// A UUID as text.
pub(crate) type Id = String;

/// One diagnostic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Diag {
    pub(crate) code: String,
    pub(crate) severity: String,
    pub(crate) message: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end_line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end_column: Option<u32>,
    pub(crate) section: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) help: Option<String>,
    pub(crate) related: Vec<Related>,
}

/// Another place of a diagnostic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Related {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) message: String,
}

/// `GET /api/v1`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Discovery {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) git: String,
    pub(crate) api: String,
    pub(crate) pid: u32,
    pub(crate) generation: u64,
    pub(crate) config_revision: String,
    pub(crate) features: Vec<String>,
    pub(crate) links: Vec<String>,
    pub(crate) started_at: Ts,
    pub(crate) now: Ts,
}

/// `GET /api/v1/status`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) state: String,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_s: u64,
    pub(crate) mode: String,
    pub(crate) generation: u64,
    pub(crate) config_revision: String,
    pub(crate) last_reload: ReloadState,
    pub(crate) datapath: DatapathStatus,
    pub(crate) counts: Counts,
    pub(crate) rates: Rates,
    pub(crate) totals: Totals,
    pub(crate) memory: Memory,
    /// Something that happened once and nobody has acknowledged.
    #[serde(default)]
    pub(crate) banner: Option<Banner>,
    pub(crate) warnings: Vec<Diag>,
}

/// A message to be acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Banner {
    pub(crate) id: Id,
    pub(crate) text: String,
    pub(crate) nodes: Vec<Id>,
}

/// Why a state is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reason {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// Hooks in short.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DatapathStatus {
    pub(crate) backend: String,
    /// `closed`, `open` or `draining`.
    pub(crate) gate: String,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) on_crash: String,
}

/// Numbers of things.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) groups: usize,
    pub(crate) nodes: usize,
    pub(crate) connections_tcp: usize,
    pub(crate) connections_udp: usize,
    pub(crate) rules: usize,
}

/// Bytes per second of userspace flows.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rates {
    pub(crate) up_bps: u64,
    pub(crate) down_bps: u64,
}

/// Bytes of userspace flows since the start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) up_bytes: u64,
    pub(crate) down_bytes: u64,
}

/// Memory of the process.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) rss_bytes: u64,
}

/// `GET` and `POST /api/v1/reload`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReloadState {
    /// `idle`, `running`, `done` or `rejected`.
    pub(crate) state: String,
    pub(crate) phase: Option<String>,
    pub(crate) generation: u64,
    pub(crate) config_revision: String,
    /// Rises with every reload that was begun; lets a client recognise its own.
    pub(crate) sequence: u64,
    pub(crate) started_at: Option<Ts>,
    pub(crate) duration_ms: Option<u64>,
    /// Milliseconds since the end of the last one.
    pub(crate) age_ms: Option<u64>,
    pub(crate) changed: Vec<String>,
    pub(crate) diagnostics: Vec<Diag>,
    /// One line: what became of it.
    pub(crate) message: String,
}

/// A page of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next_cursor: Option<String>,
    pub(crate) total: usize,
}

/// A value for each network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PerNet<T> {
    pub(crate) tcp: T,
    pub(crate) udp: T,
}

/// One group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) policy: String,
    /// Configuration ordinal.
    pub(crate) ordinal: u8,
    /// Kernel ordinal: stays with the name over reloads.
    pub(crate) slot: u8,
    /// Made for a node that a rule names.
    pub(crate) implicit: bool,
    pub(crate) icon: Option<String>,
    pub(crate) default: Option<String>,
    pub(crate) default_member_id: Option<Id>,
    #[serde(rename = "final")]
    pub(crate) final_: Option<Final>,
    /// Of an automatic group.
    pub(crate) check_url: Option<String>,
    /// Of an automatic group.
    pub(crate) check_interval_s: Option<u64>,
    /// Of a urltest group.
    pub(crate) tolerance_ms: Option<u16>,
    /// `explicit`, `global` or `default`.
    pub(crate) tolerance_source: String,
    pub(crate) idle_timeout_s: Option<u64>,
    /// What holds; 0 is never idle.
    pub(crate) idle_timeout_effective_s: u64,
    pub(crate) interrupt_connections: bool,
    pub(crate) filters: Vec<String>,
    pub(crate) members: Vec<Member>,
    pub(crate) dropped_members: Vec<Dropped>,
    pub(crate) leaf_count: usize,
    pub(crate) selection: PerNet<Sel>,
    pub(crate) selection_revision: u64,
    /// Of a group with the policy `score`.
    #[serde(rename = "scoreVerification", default)]
    pub(crate) score_verification: Option<PerNet<ScoreVerification>>,
    /// Changes with what is configured, not with what is selected.
    pub(crate) revision: String,
    pub(crate) traffic: Traffic,
    pub(crate) warnings: Vec<Diag>,
}

/// A nested group that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dropped {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) code: String,
}

/// `final:` of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Final {
    pub(crate) name: String,
    /// `node`, `group`, `direct` or `block`.
    pub(crate) kind: String,
    pub(crate) id: Option<Id>,
    pub(crate) problem: Option<String>,
}

/// One direct member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) id: Id,
    /// `node` or `group`.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) index: usize,
    pub(crate) duplicate_name: bool,
    pub(crate) eligible: PerNet<Elig>,
    /// Average for TCP, under the group's own `check_url` if it has one.
    pub(crate) delay_ms: Option<u16>,
    /// The node it stands for now, for TCP.
    pub(crate) leaf: Option<Leaf>,
}

/// A node in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leaf {
    pub(crate) id: Id,
    pub(crate) name: String,
}

/// Whether a member can carry a network now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Elig {
    pub(crate) ok: bool,
    pub(crate) reason: Option<String>,
}

/// What new flows of a group take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sel {
    pub(crate) member_id: Option<Id>,
    pub(crate) member_name: Option<String>,
    pub(crate) leaf_id: Option<Id>,
    pub(crate) leaf_name: Option<String>,
    /// Ids of the groups on the way, outermost first, then the leaf's.
    pub(crate) path: Vec<Id>,
    pub(crate) alive: bool,
    pub(crate) delay_ms: Option<u16>,
    pub(crate) since: Option<Ts>,
    pub(crate) source: String,
    pub(crate) pinned: bool,
    pub(crate) pinned_at: Option<Ts>,
    pub(crate) final_used: Option<String>,
    pub(crate) refuse: Option<String>,
}

/// Traffic of a group's own outbound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    pub(crate) up_bytes: u64,
    pub(crate) down_bytes: u64,
    pub(crate) active: u64,
}

/// Answer to a selection change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SelectionResult {
    pub(crate) selection: PerNet<Sel>,
    pub(crate) selection_revision: u64,
    pub(crate) changed: PerNet<bool>,
    pub(crate) interrupted: Interrupted,
    pub(crate) warnings: Vec<String>,
}

/// Flows closed by a selection change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interrupted {
    pub(crate) closed: usize,
    pub(crate) pending: usize,
}

/// The subscription a node comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeOrigin {
    pub(crate) id: Id,
    pub(crate) tag: String,
}

/// Why a node is switched off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Disabled {
    /// `auto`: it cannot be built; `user`: somebody switched it off.
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) at: Ts,
    /// Of what cannot be built.
    pub(crate) body_hash: Option<String>,
}

/// One subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Subscription {
    pub(crate) id: Id,
    pub(crate) tag: String,
    /// Scheme, host and a hash of the URL.
    pub(crate) url: String,
    /// `http`, `http-file` or `file`.
    pub(crate) source: String,
    pub(crate) enabled: bool,
    pub(crate) allow_private: bool,
    /// `ok`, `stale` (failed last, older nodes serve), `failed` (no nodes), `pending` or
    /// `disabled`.
    pub(crate) state: String,
    /// `null`: only when asked.
    pub(crate) update_interval_s: Option<u64>,
    /// Nodes that can be used.
    pub(crate) nodes: usize,
    /// Of these, nodes that the configuration or an earlier subscription has already.
    pub(crate) shadowed_nodes: usize,
    pub(crate) format: Option<String>,
    /// `network`, `store`, `file` or `seed`.
    pub(crate) nodes_from: Option<String>,
    pub(crate) entries: Entries,
    /// Nodes left out by protocol: this build does not dial them.
    pub(crate) unbuilt: std::collections::BTreeMap<String, usize>,
    pub(crate) title: Option<String>,
    pub(crate) user_info: Option<UserInfo>,
    pub(crate) error: Option<Reason>,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// Attempts that have ended.
    pub(crate) attempts: u64,
    pub(crate) last_attempt_at: Option<Ts>,
    pub(crate) last_success_at: Option<Ts>,
    pub(crate) next_at: Option<Ts>,
    /// The fetch under way.
    pub(crate) progress: Option<FetchProgress>,
    /// The last refresh that changed something.
    pub(crate) last_change: Option<NodeChanges>,
    pub(crate) findings: Vec<Diag>,
}

/// Entries of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entries {
    pub(crate) total: usize,
    pub(crate) malformed: usize,
    pub(crate) unsupported: usize,
    pub(crate) duplicate: usize,
    /// Their way through another node is broken.
    pub(crate) detour: usize,
    /// Beyond the limit.
    pub(crate) cut: usize,
}

/// What the provider says about the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserInfo {
    pub(crate) upload_bytes: Option<u64>,
    pub(crate) download_bytes: Option<u64>,
    pub(crate) total_bytes: Option<u64>,
    /// Unix seconds.
    pub(crate) expire: Option<u64>,
}

/// A fetch under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FetchProgress {
    /// `resolve`, `connect`, `request`, `receive` or `read`.
    pub(crate) phase: String,
    pub(crate) bytes: usize,
}

/// Names of nodes that came, went or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeChanges {
    pub(crate) at: Ts,
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) kept: usize,
}

/// One flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Conn {
    pub(crate) id: Id,
    pub(crate) network: String,
    /// `opening`, `open` or `closed`.
    pub(crate) state: String,
    pub(crate) src: Endpoint,
    pub(crate) dst: Endpoint,
    /// Name of the target, if it is known.
    pub(crate) host: Option<String>,
    /// Where the name comes from: `sni`, `http`, `quic`, `dns` or `none`.
    pub(crate) host_source: String,
    pub(crate) rule: Rule,
    pub(crate) must: bool,
    pub(crate) outbound: String,
    /// Groups from the outermost to the innermost, then the node.
    pub(crate) chain: Vec<String>,
    pub(crate) node_id: Id,
    pub(crate) up_bytes: u64,
    pub(crate) down_bytes: u64,
    pub(crate) started_at: Ts,
    pub(crate) generation: u64,
    pub(crate) carrier: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) closed_at: Option<Ts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// Address and port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) ip: String,
    pub(crate) port: u16,
}

/// The line that decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) index: u16,
    /// Empty when the generation that decided is gone.
    pub(crate) text: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// One event of `GET /api/v1/trace/flows`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    pub(crate) at: Ts,
    /// Who decided: `kernel` or `userspace`.
    pub(crate) stage: String,
    pub(crate) network: String,
    pub(crate) src: Endpoint,
    pub(crate) dst: Endpoint,
    pub(crate) host: Option<String>,
    pub(crate) host_source: String,
    /// Of the gateway's own flows, where it is known.
    pub(crate) process: Option<Process>,
    /// The gateway itself opened it.
    pub(crate) own: bool,
    pub(crate) rule: Option<Rule>,
    pub(crate) must: bool,
    /// Kernel ordinal.
    pub(crate) ordinal: u8,
    pub(crate) outbound: Option<String>,
    pub(crate) chain: Vec<String>,
    /// `direct`, `block`, `proxy`, `userspace` (it goes on deciding) or `drop`.
    pub(crate) verdict: String,
    pub(crate) reason: String,
}

/// A process of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: String,
}

/// `DELETE /api/v1/connections`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CloseResult {
    pub(crate) matched: usize,
    pub(crate) closed: usize,
    pub(crate) pending: usize,
}

/// `GET /api/v1/config`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConfigInfo {
    pub(crate) config_revision: String,
    pub(crate) generation: u64,
    pub(crate) accepted_at: Ts,
    pub(crate) entry: String,
}

/// `POST /api/v1/config/validate`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Validation {
    pub(crate) ok: bool,
    pub(crate) diagnostics: Vec<Diag>,
}

/// `GET /api/v1/datapath`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Datapath {
    pub(crate) gate: String,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) features: Vec<Feature>,
    pub(crate) maps: Vec<MapUse>,
    /// Counters of the kernel programs by name.
    pub(crate) counters: std::collections::BTreeMap<String, u64>,
    pub(crate) outbounds: Vec<KernelTraffic>,
}

/// A probed kernel feature.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Feature {
    pub(crate) name: String,
    pub(crate) used: bool,
}

/// Traffic of one kernel ordinal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KernelTraffic {
    pub(crate) slot: u8,
    pub(crate) outbound: String,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
}

/// `GET /api/v1/dns/map`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DnsMap {
    /// Addresses that match, shown or not.
    pub(crate) total: usize,
    pub(crate) items: Vec<DnsAddress>,
}

/// One address with the names it was given out for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DnsAddress {
    pub(crate) ip: String,
    pub(crate) names: Vec<DnsName>,
    /// Indexes of the rule lines whose conditions on names hold.
    pub(crate) rules: Vec<usize>,
    /// Those on which the names disagree.
    pub(crate) ambiguous: Vec<usize>,
}

/// One name of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DnsName {
    pub(crate) name: String,
    /// Seconds until it is forgotten, unless it is answered again.
    pub(crate) expires_s: u64,
}
