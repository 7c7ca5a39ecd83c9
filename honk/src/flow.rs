//! What the rooms of a flow's life share: facts of a new flow, the answer to it, and the
//! record that lists it while it lives.
//!
//! A leaf room: it imports nothing of ours but ids, nodes, ways and what sniffing finds. `app`
//! implements [`Admission`]; `inbound` calls it and never sees groups or rules.

mod witness;

use std::{
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use honk_policy::{
    group::{Rival, Rivals},
    id::{Family, GroupId, MemberId, Network, NodeId},
    node::Node,
};
use honk_wire::sniff::{Hello, Kind};

pub(crate) use self::witness::{End, Fault, Witness, event};

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
    /// What a proxy is asked for instead of the address.
    pub(crate) name: Option<Arc<str>>,
    /// Leaves as good as `leaf`, itself included: nothing is measured yet.
    pub(crate) cold: Option<Rivals>,
    /// Set where the kernel can carry the flow on by itself.
    pub(crate) back: Option<Back>,
    /// Keeps the flow listed until it is dropped; its entry tells outbound, path and rule.
    pub(crate) guard: FlowGuard,
}

/// A UDP flow that is direct by the rules and known to the kernel: after its first datagrams
/// have been handed back, none comes here again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// Differentiated services code point of the client's datagrams.
    pub(crate) dscp: u8,
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
    /// Decides a flow, claims its kernel entry and lists it, unless its first bytes have a say.
    /// On refusal nothing stays behind.
    fn ask(&self, flow: &NewFlow) -> Result<Answer, Refusal>;

    /// Other leaves for a flow whose own one failed, at most [`RACERS`].
    fn rivals(&self, _: &FlowEntry) -> Option<Rivals> {
        None
    }

    /// Whether a leaf that has answered may still serve the flow.
    fn eligible(&self, _: &FlowEntry, _: &Rival) -> bool {
        true
    }

    /// Rivals of a group were tried for a flow.
    fn raced(&self, _group: &Arc<str>, _network: Network, _why: Why, _won: bool) {}

    /// Tells the kernel that a flow whose route may go [`Back`] is direct, with the mark of the
    /// rule. From then on the client's datagrams pass, and those sent in its name out of the
    /// private namespace are put on the way they came. False when the kernel cannot; then the
    /// flow must be carried.
    fn hand_back(&self, flow: &NewFlow, mark: u32) -> bool;

    /// Nothing is sent in the client's name any more.
    fn handed_back(&self, flow: &NewFlow);

    /// Admits a flow that is not to be sniffed.
    #[cfg(test)]
    fn admit(&self, flow: &NewFlow) -> Result<Route, Refusal> {
        match self.ask(flow)? {
            Answer::Go(route) => Ok(route),
            Answer::Sniff(flow) => panic!("to be sniffed: {flow:?}"),
        }
    }
}

/// Leaves that are dialed for one flow at a time.
pub(crate) const RACERS: usize = 3;

/// Why several leaves were tried for one flow; label values of `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The selected one failed.
    Retry,
    /// Nothing was measured yet.
    Cold,
}

impl Why {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cold => "cold",
        }
    }
}

/// The answer to a new flow.
#[derive(Debug)]
pub(crate) enum Answer {
    Go(Route),
    /// Look at the first bytes, tell what they say, then let it decide.
    Sniff(Box<dyn Undecided>),
}

/// A flow whose name is being looked for. Dropping it gives the flow up.
pub(crate) trait Undecided: Send + std::fmt::Debug {
    /// How long the first bytes are worth waiting for.
    fn patience(&self) -> Duration;
    /// Tells what was found, once. Where a time is returned, the name is being checked: decide
    /// when `wake` is called or the time is over.
    fn found(&mut self, finding: Finding, wake: Wake) -> Option<Duration>;
    /// Decides the flow as [`Admission::ask`] does, with what is known by now.
    fn decide(self: Box<Self>) -> Result<Route, Refusal>;
}

/// Called at most once, from any thread; must not block.
pub(crate) type Wake = Box<dyn FnOnce() + Send>;

/// What the first bytes of a flow came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The protocol was understood.
    Hello(Kind, Hello),
    /// No protocol that names its server.
    Foreign,
    /// Too few bytes came in time; the protocol, if it was clear.
    Timeout(Option<Kind>),
}

/// What is known about names beside the flow itself. Never blocks.
pub(crate) trait Names: Send + Sync + std::fmt::Debug + 'static {
    /// The name a client most likely means by an address, as far as answers tell.
    fn meant(&self, client: IpAddr, address: IpAddr) -> Option<Arc<str>>;
    /// Whether an answer with this name and address is still good.
    fn leased(&self, name: &str, address: IpAddr) -> bool;
    /// Whether a positive answer for the name is in the cache.
    fn cached(&self, name: &str) -> bool;
    /// Whether the name is that of a server that decrypts Encrypted Client Hello for others.
    fn fronts(&self, name: &str) -> bool;
    /// Looks the name up as for this client: whether it has an address, or `None` on failure.
    /// Nothing where lookups cannot be made.
    fn exists(&self, name: Arc<str>, client: ClientAddr) -> Option<Existence>;
}

/// A lookup under way.
pub(crate) type Existence = Pin<Box<dyn Future<Output = Option<bool>> + Send>>;

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
        addr: Option<IpAddr>,
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
    /// The kernel carries it on.
    HandedBack,
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
        self.entry.ended(End::Closed(self.reason));
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

/// Where the name of a flow comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostSource {
    Sni,
    Http,
    Quic,
    Dns,
}

impl HostSource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sni => "sni",
            Self::Http => "http",
            Self::Quic => "quic",
            Self::Dns => "dns",
        }
    }
}

impl From<Kind> for HostSource {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Tls => Self::Sni,
            Kind::Http => Self::Http,
            Kind::Quic => Self::Quic,
        }
    }
}

/// The groups a flow came through, and the leaf that serves it.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// Groups, outermost first.
    pub(crate) path: Arc<[Arc<str>]>,
    /// Their ids.
    pub(crate) groups: Arc<[GroupId]>,
    pub(crate) leaf: NodeId,
    pub(crate) leaf_name: Arc<str>,
}

impl From<&Rival> for Way {
    fn from(rival: &Rival) -> Self {
        Self {
            path: Arc::clone(&rival.path),
            groups: Arc::clone(&rival.groups),
            leaf: rival.leaf.id,
            leaf_name: rival.leaf.name.as_str().into(),
        }
    }
}

/// One listed flow.
#[derive(Debug)]
pub(crate) struct FlowEntry {
    pub(crate) id: u64,
    pub(crate) flow: NewFlow,
    pub(crate) outbound: Arc<str>,
    /// As selected.
    pub(crate) selected: Way,
    /// Where a rival of the selected leaf serves.
    pub(crate) moved: OnceLock<Way>,
    pub(crate) rule: u16,
    pub(crate) must: bool,
    /// The name it was routed or dialed by, and where that comes from.
    pub(crate) host: Option<(Arc<str>, HostSource)>,
    pub(crate) generation: u64,
    /// Unix time, milliseconds.
    pub(crate) started_ms: u64,
    pub(crate) counters: FlowCounters,
    /// Index in [`CARRIERS`], set by the relay.
    pub(crate) carrier: std::sync::atomic::AtomicU8,
    /// Whoever learns from it.
    pub(crate) witness: Option<Box<dyn Witness>>,
    /// Closes the flow from outside.
    pub(crate) cancel: Cancel,
}

impl FlowEntry {
    /// The member of a group that the flow went through, if it came through the group.
    pub(crate) fn member_of(&self, group: GroupId) -> Option<MemberId> {
        let way = self.way();
        let at = way.groups.iter().position(|id| *id == group)?;
        let nested = way.groups.get(at + 1).copied().map(MemberId::Group);
        Some(nested.unwrap_or(MemberId::Node(way.leaf)))
    }

    /// How it leaves.
    pub(crate) fn way(&self) -> &Way {
        self.moved.get().unwrap_or(&self.selected)
    }

    /// A rival serves it; told once.
    pub(crate) fn served_by(&self, rival: &Rival) {
        if rival.leaf.id != self.selected.leaf {
            // At most one race is run for a flow.
            let _ = self.moved.set(rival.into());
        }
    }
}

impl NewFlow {
    /// Address family of the target.
    pub(crate) fn family(&self) -> Family {
        match self.target.0.ip().to_canonical() {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
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
