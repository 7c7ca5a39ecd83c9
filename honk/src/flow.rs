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
    id::{Family, GroupId, MemberId, Network, NodeId},
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
#[derive(Debug)]
pub(crate) struct Route {
    /// Node to dial through; `direct` dials the target from the gateway.
    pub(crate) leaf: Arc<Node>,
    /// Mark of the rule, ORed into the own mark of the dialed socket.
    pub(crate) mark: u32,
    /// Keeps the flow listed until it is dropped; its entry tells outbound, path and rule.
    pub(crate) guard: FlowGuard,
}

/// Why a flow was refused; label values of `reason` in API and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The rule or the selection says `block`.
    Blocked,
    /// The group has no member.
    NoMember,
    /// No node of the group that may serve is alive.
    AllDead,
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

/// Answers new flows. Called on the accept path: never blocks.
pub(crate) trait Admission: Send + Sync + 'static {
    /// Decides a flow, claims its kernel entry and lists it. On refusal nothing stays behind.
    fn admit(&self, flow: &NewFlow) -> Result<Route, Refusal>;
}

/// Told when a listed flow ends: takes it off the list, counts it, frees its kernel entry.
pub(crate) trait FlowSink: Send + Sync + 'static {
    /// Called exactly once per flow.
    fn closed(&self, entry: &FlowEntry, reason: CloseReason);
}

/// The sockets that live in the private namespace and receive intercepted flows.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// IPv4 and IPv6.
    pub(crate) tcp: Vec<std::net::TcpListener>,
    /// One `SO_REUSEPORT` group per family.
    pub(crate) udp: Vec<std::net::UdpSocket>,
}

/// Makes transparent UDP sockets inside the private namespace, for replies that must carry a
/// foreign source address.
pub(crate) trait ReplySockets: Send + Sync + 'static {
    /// A non-blocking transparent socket bound to `*:port`, or to `addr` when given (needed
    /// when the port is that of the listeners). Blocks for one round trip to the namespace
    /// thread: call it from a blocking task.
    fn bind(
        &self,
        v6: bool,
        port: u16,
        addr: Option<std::net::IpAddr>,
    ) -> std::io::Result<std::net::UdpSocket>;
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

/// Ownership of a listed flow; dropping it ends the listing. The reason is `Eof` unless the
/// relay says otherwise.
pub(crate) struct FlowGuard {
    pub(crate) entry: Arc<FlowEntry>,
    sink: Arc<dyn FlowSink>,
    reason: CloseReason,
}

impl FlowGuard {
    pub(crate) fn new(entry: Arc<FlowEntry>, sink: Arc<dyn FlowSink>) -> Self {
        Self {
            entry,
            sink,
            reason: CloseReason::Eof,
        }
    }

    /// Ends the flow with a reason.
    pub(crate) fn close(mut self, reason: CloseReason) {
        self.reason = reason;
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        self.sink.closed(&self.entry, self.reason);
    }
}

impl std::fmt::Debug for FlowGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowGuard")
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

/// Values of [`FlowEntry::carrier`]: how the bytes move.
pub(crate) const CARRIERS: [&str; 4] = ["opening", "direct", "splice", "udp"];

/// One listed flow.
#[derive(Debug)]
pub(crate) struct FlowEntry {
    pub(crate) id: u64,
    pub(crate) flow: NewFlow,
    pub(crate) outbound: Arc<str>,
    /// Groups it came through, outermost first.
    pub(crate) path: Arc<[Arc<str>]>,
    /// Their ids.
    pub(crate) groups: Arc<[GroupId]>,
    pub(crate) leaf: NodeId,
    pub(crate) leaf_name: Arc<str>,
    pub(crate) rule: u16,
    pub(crate) must: bool,
    pub(crate) generation: u64,
    /// Unix time, milliseconds.
    pub(crate) started_ms: u64,
    pub(crate) counters: FlowCounters,
    /// Index in [`CARRIERS`], set by the relay.
    pub(crate) carrier: std::sync::atomic::AtomicU8,
    /// Closes the flow from outside.
    pub(crate) cancel: Cancel,
}

impl FlowEntry {
    /// The member of a group that the flow went through, if it came through the group.
    pub(crate) fn member_of(&self, group: GroupId) -> Option<MemberId> {
        let at = self.groups.iter().position(|id| *id == group)?;
        let nested = self.groups.get(at + 1).copied().map(MemberId::Group);
        Some(nested.unwrap_or(MemberId::Node(self.leaf)))
    }
}

impl NewFlow {
    /// Address family of the target.
    pub(crate) fn family(&self) -> Family {
        match self.target.0.ip().to_canonical() {
            std::net::IpAddr::V4(_) => Family::V4,
            std::net::IpAddr::V6(_) => Family::V6,
        }
    }
}

/// The way to end a listed flow from outside: whoever lists flows calls [`Cancel::set`], and
/// whoever carries the flow has registered a hook that hears of it.
///
/// A hook instead of a channel: the TCP relay is an event loop of its own and a proxied
/// connection should cost one small lock, not a channel with waiters.
#[derive(Default)]
pub(crate) struct Cancel {
    inner: std::sync::Mutex<CancelInner>,
}

#[derive(Default)]
struct CancelInner {
    reason: Option<CloseReason>,
    hook: Option<(Arc<dyn CancelHook>, u64)>,
}

/// Told once that a flow must end; must not block.
pub(crate) trait CancelHook: Send + Sync {
    /// `token` is the number given to [`Cancel::register`].
    fn cancelled(&self, token: u64, reason: CloseReason);
}

impl Cancel {
    /// Asks for the end of the flow. The first reason wins; later calls do nothing.
    pub(crate) fn set(&self, reason: CloseReason) {
        let hook = {
            let mut inner = self.lock();
            if inner.reason.is_some() {
                return;
            }
            inner.reason = Some(reason);
            inner.hook.take()
        };
        if let Some((hook, token)) = hook {
            hook.cancelled(token, reason);
        }
    }

    /// The reason, once set.
    pub(crate) fn reason(&self) -> Option<CloseReason> {
        self.lock().reason
    }

    /// Registers who is told. When the flow was cancelled before, the hook is called at once.
    pub(crate) fn register(&self, hook: Arc<dyn CancelHook>, token: u64) {
        let reason = {
            let mut inner = self.lock();
            let reason = inner.reason;
            if reason.is_none() {
                inner.hook = Some((Arc::clone(&hook), token));
            }
            reason
        };
        if let Some(reason) = reason {
            hook.cancelled(token, reason);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CancelInner> {
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cancel").field(&self.reason()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(std::sync::Mutex<Vec<(u64, CloseReason)>>);

    impl CancelHook for Heard {
        fn cancelled(&self, token: u64, reason: CloseReason) {
            self.0.lock().unwrap().push((token, reason));
        }
    }

    #[test]
    fn a_hook_hears_the_first_reason_once() {
        let (cancel, heard) = (Cancel::default(), Arc::new(Heard::default()));
        cancel.register(heard.clone(), 7);
        cancel.set(CloseReason::Api);
        cancel.set(CloseReason::Shutdown);
        assert_eq!(*heard.0.lock().unwrap(), [(7, CloseReason::Api)]);
        assert_eq!(cancel.reason(), Some(CloseReason::Api));
    }

    #[test]
    fn a_late_hook_hears_at_once() {
        let (cancel, heard) = (Cancel::default(), Arc::new(Heard::default()));
        cancel.set(CloseReason::Reload);
        cancel.register(heard.clone(), 1);
        assert_eq!(*heard.0.lock().unwrap(), [(1, CloseReason::Reload)]);
    }
}
