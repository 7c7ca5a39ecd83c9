//! Decisions about new flows, told to those who watch (`honk trace flow`).
//!
//! Two places decide: the kernel programs, whose ring tells while somebody watches, and the accept
//! path. Nobody watching costs one load per flow here and one bit test per new flow there. Watchers
//! and their queues are bounded; what finds no room is counted and told.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use honk_common::{
    event::{
        EVENT_EXT_CHAIN, EVENT_FLOW_OVERFLOW, EVENT_GROUP_DEAD, EVENT_LISTENER_MISSING,
        EVENT_RETURN_OVERFLOW, EVENT_TRACE, Event, flags_of, kind_of,
    },
    flow::{FLAG_AMBIGUOUS, FLAG_MUST, FLAG_PRELIM, FLAG_WAN},
    key::{PROTO_TCP, from_bytes},
    outbound,
};
use honk_policy::{group::Source, id::Network, routing::rule::Verdict};
use tokio::sync::mpsc;

use super::{kernel::Kernel, refusal::name, snapshot::Snapshot};
use crate::{
    clock,
    dns::Dns,
    flow::{FlowEntry, HostSource, NewFlow, Refusal},
};

/// Those who watch at a time.
pub(crate) const WATCHERS: usize = 8;
/// Decisions that wait for one of them.
pub(crate) const QUEUE: usize = 256;

const DNS: u16 = 53;

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) at_ms: u64,
    /// `kernel` or `userspace`.
    pub(crate) stage: &'static str,
    pub(crate) network: Network,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) host: Option<Arc<str>>,
    /// Where the name comes from.
    pub(crate) host_source: &'static str,
    /// Of the gateway's own flows, where it is known.
    pub(crate) process: Option<(u32, String)>,
    /// The gateway's own.
    pub(crate) own: bool,
    /// Index of the line, and its text, file and line.
    pub(crate) rule: Option<(u16, Line)>,
    pub(crate) must: bool,
    pub(crate) ordinal: u8,
    pub(crate) outbound: Option<Arc<str>>,
    /// Groups from the outermost to the innermost, then the node.
    pub(crate) chain: Vec<Arc<str>>,
    /// `direct`, `block`, `proxy`, `userspace` (it decides) or `drop`.
    pub(crate) verdict: &'static str,
    pub(crate) reason: &'static str,
}

/// A rule line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// Which decisions are wanted; nothing set is all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) network: Option<Network>,
    pub(crate) src: Option<(IpAddr, u8)>,
    pub(crate) dst: Option<(IpAddr, u8)>,
    /// A name, or `.suffix`.
    pub(crate) host: Option<String>,
    pub(crate) outbound: Option<String>,
    pub(crate) rule: Option<u64>,
}

/// Whether a name is the one wanted, or with `.suffix` that or one below it.
pub(crate) fn is_named(name: &str, wanted: &str) -> bool {
    let suffix = wanted.strip_prefix('.');
    name == wanted || suffix.is_some_and(|s| name == s || name.ends_with(wanted))
}

impl Filter {
    fn takes(&self, d: &Decision) -> bool {
        let host = |wanted: &String| {
            let host = d.host.as_ref();
            host.is_some_and(|name| is_named(name, wanted))
        };
        let outbound = |wanted: &String| {
            let on_way = |name: &Arc<str>| **name == **wanted;
            d.outbound.as_ref().is_some_and(on_way) || d.chain.iter().any(on_way)
        };
        let rule = |wanted: u64| {
            d.rule
                .as_ref()
                .is_some_and(|(i, _)| u64::from(*i) == wanted)
        };
        self.network.is_none_or(|n| n == d.network)
            && self.src.is_none_or(|p| within(p, d.src.ip()))
            && self.dst.is_none_or(|p| within(p, d.dst.ip()))
            && self.host.as_ref().is_none_or(host)
            && self.outbound.as_ref().is_none_or(outbound)
            && self.rule.is_none_or(rule)
    }
}

/// All who watch.
#[derive(Debug)]
pub(crate) struct Traces {
    watched: AtomicBool,
    watchers: Mutex<Vec<Watcher>>,
    next: AtomicU64,
    lost: AtomicU64,
    kernel: Arc<dyn Kernel>,
    current: Arc<ArcSwap<Snapshot>>,
    dns: Arc<Dns>,
    me: Weak<Self>,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    filter: Filter,
    queue: mpsc::Sender<Arc<Decision>>,
    lost: Arc<AtomicU64>,
}

/// One who watches; ends with this.
#[derive(Debug)]
pub(crate) struct Watch {
    id: u64,
    hub: Arc<Traces>,
    pub(crate) queue: mpsc::Receiver<Arc<Decision>>,
    lost: Arc<AtomicU64>,
}

impl Watch {
    /// Decisions that found the queue full since this was asked last.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.leave(self.id);
    }
}

impl Traces {
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        current: Arc<ArcSwap<Snapshot>>,
        dns: Arc<Dns>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            watched: AtomicBool::new(false),
            watchers: Mutex::default(),
            next: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            kernel,
            current,
            dns,
            me: Weak::clone(me),
        })
    }

    /// Begins to watch; `None` when as many do as may.
    pub(crate) fn watch(&self, filter: Filter) -> Option<Watch> {
        let hub = self.me.upgrade()?;
        let mut watchers = self.lock();
        if watchers.len() >= WATCHERS {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, queue) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        watchers.push(Watcher {
            id,
            filter,
            queue: sender,
            lost: Arc::clone(&lost),
        });
        if watchers.len() == 1 {
            self.switch(true);
        }
        drop(watchers);
        Some(Watch {
            id,
            hub,
            queue,
            lost,
        })
    }

    fn leave(&self, id: u64) {
        let mut watchers = self.lock();
        watchers.retain(|w| w.id != id);
        if watchers.is_empty() {
            self.switch(false);
        }
    }

    /// Called with the list locked, so that the last word is right.
    fn switch(&self, on: bool) {
        self.watched.store(on, Ordering::Relaxed);
        if let Err(error) = self.kernel.watch(on) {
            tracing::warn!(target: "honk::trace", %error, on, "decisions of the kernel");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all watching: the daemon stops.
    pub(crate) fn end(&self) {
        let mut watchers = self.lock();
        if !watchers.is_empty() {
            watchers.clear();
            self.switch(false);
        }
    }

    pub(crate) fn watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// How many watch, and how many decisions found a queue full.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.lock().len(), self.lost.load(Ordering::Relaxed))
    }

    fn tell(&self, decision: Decision) {
        let decision = Arc::new(decision);
        for watcher in self.lock().iter() {
            if watcher.filter.takes(&decision)
                && watcher.queue.try_send(Arc::clone(&decision)).is_err()
            {
                watcher.lost.fetch_add(1, Ordering::Relaxed);
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A record of the kernel programs.
    pub(crate) fn told(&self, event: &Event) {
        if !self.watched() {
            return;
        }
        let dropped = match kind_of(event.kind) {
            EVENT_TRACE => None,
            EVENT_GROUP_DEAD => Some("group_dead"),
            EVENT_FLOW_OVERFLOW => Some("flow_overflow"),
            EVENT_RETURN_OVERFLOW => Some("return_overflow"),
            EVENT_EXT_CHAIN => Some("ext_chain"),
            EVENT_LISTENER_MISSING => Some("listener_missing"),
            // Told by the trace already.
            _ => return,
        };
        let snapshot = self.current.load();
        let flags = flags_of(event.kind);
        let src = SocketAddr::new(from_bytes(&event.src), event.sport);
        let dst = SocketAddr::new(from_bytes(&event.dst), event.dport);
        let rule = line(&snapshot, event.rule);
        let meant = snapshot.rules.lines.get(usize::from(event.rule));
        let meant = meant.map(|l| l.action.ordinal.0);
        let reason = dropped.unwrap_or_else(|| reason(flags, event, meant));
        let host = self.dns.name_for(src.ip(), dst.ip());
        let own = flags & FLAG_WAN != 0;
        self.tell(Decision {
            at_ms: clock::now_ms(),
            stage: "kernel",
            network: if event.proto == PROTO_TCP {
                Network::Tcp
            } else {
                Network::Udp
            },
            src,
            dst,
            host_source: if host.is_some() {
                HostSource::Dns.name()
            } else {
                "none"
            },
            host,
            process: (own && event.pid != 0).then(|| (event.pid, text(&event.pname))),
            own,
            rule,
            must: flags & FLAG_MUST != 0,
            ordinal: event.ordinal,
            outbound: snapshot.name_of(event.ordinal).cloned(),
            chain: Vec::new(),
            verdict: match (dropped, event.ordinal) {
                (Some(_), _) => "drop",
                (None, outbound::DIRECT) => "direct",
                (None, outbound::BLOCK) => "block",
                (None, outbound::CONTROL) => "userspace",
                (None, _) => "proxy",
            },
            reason,
        });
    }

    /// A flow that the accept path let go.
    pub(super) fn admitted(
        &self,
        snapshot: &Snapshot,
        entry: &FlowEntry,
        verdict: &Verdict,
        source: Source,
        direct: bool,
    ) {
        let way = entry.way();
        let mut chain: Vec<Arc<str>> = way.path.to_vec();
        chain.push(Arc::clone(&way.leaf_name));
        let mut decision = self.accepted(snapshot, &entry.flow, verdict);
        if let Some((name, source)) = &entry.host {
            decision.host = Some(Arc::clone(name));
            decision.host_source = source.name();
        }
        decision.outbound = Some(Arc::clone(&entry.outbound));
        decision.chain = chain;
        decision.verdict = if direct { "direct" } else { "proxy" };
        decision.reason = match source {
            Source::Final => "final",
            Source::LastResort => "last_resort",
            _ if entry.host.is_some() => "name",
            _ => "rule",
        };
        self.tell(decision);
    }

    /// A flow that it did not.
    pub(super) fn refused(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        verdict: &Verdict,
        host: Option<(Arc<str>, HostSource)>,
        refusal: Refusal,
    ) {
        let mut decision = self.accepted(snapshot, flow, verdict);
        if let Some((name, source)) = host {
            decision.host = Some(name);
            decision.host_source = source.name();
        }
        decision.outbound = snapshot.name_of(verdict.ordinal.0).cloned();
        decision.verdict = if refusal == Refusal::Blocked {
            "block"
        } else {
            "drop"
        };
        decision.reason = name(refusal);
        self.tell(decision);
    }

    fn accepted(&self, snapshot: &Snapshot, flow: &NewFlow, verdict: &Verdict) -> Decision {
        Decision {
            at_ms: clock::now_ms(),
            stage: "userspace",
            network: flow.network,
            src: flow.client.0,
            dst: flow.target.0,
            host: None,
            host_source: "none",
            process: None,
            own: self.kernel.is_local(flow.client.0.ip()),
            rule: line(snapshot, verdict.rule),
            must: verdict.must,
            ordinal: verdict.ordinal.0,
            outbound: None,
            chain: Vec::new(),
            verdict: "proxy",
            reason: "rule",
        }
    }
}

/// Why the kernel decided as it did; `meant` is what the line says.
fn reason(flags: u8, event: &Event, meant: Option<u8>) -> &'static str {
    let controlled = event.ordinal == outbound::CONTROL;
    if meant.is_none() {
        "no_rule"
    } else if controlled && event.dport == DNS {
        "dns"
    } else if flags & FLAG_AMBIGUOUS != 0 {
        "name_ambiguous"
    } else if flags & FLAG_PRELIM != 0 {
        "name_unknown"
    } else if meant == Some(event.ordinal) || controlled && meant == Some(outbound::DIRECT) {
        "rule"
    } else {
        // The group of the line is direct or blocked as a whole, or the mode is.
        "group"
    }
}

fn line(snapshot: &Snapshot, index: u16) -> Option<(u16, Line)> {
    let line = snapshot.rules.lines.get(usize::from(index))?;
    let line = Line {
        text: line.text.clone(),
        file: line.file.clone(),
        line: line.line,
    };
    Some((index, line))
}

fn text(name: &[u8; 16]) -> String {
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Whether an address lies in a prefix; the families are apart.
pub(crate) fn within((prefix, length): (IpAddr, u8), address: IpAddr) -> bool {
    let (a, b, bits) = match (prefix, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    // A prefix of length 0 shifts everything out.
    let shift = bits - u32::from(length);
    a.checked_shr(shift) == b.checked_shr(shift)
}

#[cfg(test)]
mod tests;
