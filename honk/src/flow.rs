//! What the rooms of a flow's life share: facts of a new flow, the answer to it, and the
//! record that lists it while it lives.
//!
//! A leaf room: it imports nothing of ours but ids and nodes. `app` implements [`Admission`];
//! `inbound` calls it and never sees groups or rules.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use honk_policy::{
    id::{Network, NodeId},
    node::Node,
};

/// A client's address as the listener saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientAddr(pub(crate) SocketAddr);

/// The address the client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OrigDst(pub(crate) SocketAddr);

/// A flow that arrived at a transparent listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFlow {
    pub(crate) network: Network,
    pub(crate) client: ClientAddr,
    pub(crate) target: OrigDst,
}

/// How an admitted flow leaves.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// Node to dial through; `direct` dials the target from the gateway.
    pub(crate) leaf: Arc<Node>,
    /// Outbound the rule named: a group, `direct` or `block`.
    pub(crate) outbound: Arc<str>,
    /// Group names from the outermost to the innermost; empty for built-ins.
    pub(crate) path: Arc<[Arc<str>]>,
    /// Mark of the rule, ORed into the own mark of the dialed socket.
    pub(crate) mark: u32,
    /// Index of the rule line.
    pub(crate) rule: u16,
    /// Verdict is final.
    pub(crate) must: bool,
    /// Lists the flow until it is dropped.
    pub(crate) guard: FlowGuard,
}

/// Why a flow was refused; label values of `reason` in API and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The rule or the selection says `block`.
    Blocked,
    /// The group has no member.
    NoMember,
    /// The selected leaf carries no UDP.
    UdpIncapable,
    /// `final` names nothing that exists.
    FinalMissing,
    /// `final` leads back to itself.
    FinalCycle,
    /// Groups nest deeper than 8.
    Depth,
    /// The flow limit is reached.
    Capacity,
    /// The daemon is stopping.
    Stopping,
}

/// Answers new flows. Called on the accept path: never blocks, takes no lock.
pub(crate) trait Admission: Send + Sync + 'static {
    /// Decides a flow and registers it.
    fn admit(&self, flow: &NewFlow) -> Result<Route, Refusal>;
    /// The flow ended; releases kernel state that belongs to it.
    fn retire(&self, flow: &NewFlow);
}

/// Byte counters of one flow, written by the relay and read by the API.
#[derive(Debug, Default)]
pub(crate) struct FlowCounters {
    pub(crate) up: AtomicU64,
    pub(crate) down: AtomicU64,
}

impl FlowCounters {
    pub(crate) fn add_up(&self, n: u64) {
        self.up.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn add_down(&self, n: u64) {
        self.down.fetch_add(n, Ordering::Relaxed);
    }
}

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    Eof,
    Reset,
    Timeout,
    DialFailed,
    Refused,
    SelectionChanged,
    Api,
    Reload,
    Shutdown,
}

/// Handle of a listed flow. Dropping it takes the flow off the list; `cancelled` resolves when
/// somebody asks for the flow to be closed.
#[derive(Clone, Debug)]
pub(crate) struct FlowGuard {
    pub(crate) entry: Arc<FlowEntry>,
}

/// One listed flow.
#[derive(Debug)]
pub(crate) struct FlowEntry {
    pub(crate) id: u64,
    pub(crate) flow: NewFlow,
    pub(crate) outbound: Arc<str>,
    pub(crate) path: Arc<[Arc<str>]>,
    pub(crate) leaf: NodeId,
    pub(crate) leaf_name: Arc<str>,
    pub(crate) rule: u16,
    pub(crate) must: bool,
    pub(crate) generation: u64,
    /// Unix time, milliseconds.
    pub(crate) started_ms: u64,
    pub(crate) counters: FlowCounters,
    /// `direct`, `splice` or `udp`; set by the relay. See `CARRIERS`.
    pub(crate) carrier: std::sync::atomic::AtomicU8,
    /// Set once to close the flow.
    pub(crate) cancel: tokio::sync::watch::Sender<Option<CloseReason>>,
}
