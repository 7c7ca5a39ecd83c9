//! Flows whose first bytes have a say: which they are, and what a name changes.
//!
//! | `dial_mode` | sniffed | check | routed again with the name | a proxy is given |
//! |---|---|---|---|---|
//! | `ip` | no | - | no | the address |
//! | `domain` | yes | [`reality`] | once the name is verified | the verified name |
//! | `domain+` | yes | none | where the verdict is provisional | the name |
//! | `domain++` | yes | none | yes | the name |
//!
//! Verdicts that are final (`must`; `direct` and `block` unless provisional) are not sniffed
//! at all. `direct` always dials the address.

mod misses;
mod reality;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use honk_common::{
    flow::{FlowVal, FlowWord},
    key::FlowKey,
    outbound,
};
use honk_policy::{config::DialMode, id::Network, routing::rule::Verdict};
use honk_wire::sniff::Kind;
use tokio::runtime::Handle;

use self::{
    misses::{Misses, Place},
    reality::{Check, Pending, Reality},
};
use super::{
    admission::{Gatekeeper, Host, Settled, facts},
    snapshot::Snapshot,
};
use crate::flow::{Finding, HostSource, Names, NewFlow, Refusal, Route, Undecided, Wake};

/// Ports of protocols in which the server speaks first or no name is sent.
const SILENT_PORTS: [u16; 14] = [
    20, 21, 22, 25, 53, 119, 123, 161, 3306, 5432, 6379, 9200, 11_211, 27_017,
];
/// Longest time a flow waits for the check of its name.
const CHECK_WAIT: Duration = Duration::from_millis(100);

/// Label values of `kind` of sniffed flows.
pub(crate) const KINDS: [&str; 4] = ["tls", "http", "quic", "other"];
/// Label values of `result` of sniffed flows.
pub(crate) const RESULTS: [&str; 3] = ["ok", "none", "timeout"];
/// Label values of `reason` of flows that were not sniffed.
pub(crate) const SKIPS: [&str; 2] = ["port", "paused"];
/// Label values of `resolved` of ambiguous flows.
pub(crate) const RESOLVED: [&str; 3] = ["sniff", "client", "provisional"];
/// Label values of `result` of checked names.
pub(crate) const CHECKS: [&str; 3] = ["verified", "unverified", "late"];

/// What sniffing counts, by the labels above.
#[derive(Debug, Default)]
pub(crate) struct SniffCounters {
    pub(crate) sniffed: [[AtomicU64; RESULTS.len()]; KINDS.len()],
    pub(crate) skipped: [AtomicU64; SKIPS.len()],
    pub(crate) ambiguous: [AtomicU64; RESOLVED.len()],
    pub(crate) checks: [AtomicU64; CHECKS.len()],
}

/// What could still change a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing, or only `dial_mode`.
    None,
    /// The kernel knows no name of the address, and one could change the verdict.
    Provisional,
    /// The names of the address disagree about the verdict.
    Ambiguous,
}

/// What the gatekeeper keeps for sniffing.
#[derive(Debug, Default)]
pub(super) struct Sniffer {
    pub(super) counters: SniffCounters,
    misses: Misses,
    reality: OnceLock<Reality>,
}

impl Sniffer {
    /// Connects what is known about names; once.
    pub(super) fn know(&self, names: Arc<dyn Names>, runtime: Handle) {
        let _ = self.reality.set(Reality::new(names, runtime));
    }

    pub(super) fn names(&self) -> Option<&Arc<dyn Names>> {
        self.reality.get().map(|r| &r.names)
    }

    /// Places remembered, and how often half of them was displaced.
    pub(super) fn places(&self) -> (usize, u64) {
        self.misses.stats()
    }

    /// How long the first bytes of a flow are worth waiting for.
    pub(super) fn patience(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        seen: Option<&FlowVal>,
        verdict: &Verdict,
        doubt: Doubt,
    ) -> Option<Duration> {
        let global = &snapshot.config.global;
        if global.dial_mode == DialMode::Ip || global.sniffing_timeout_ms == 0 {
            return None;
        }
        let open = doubt != Doubt::None || outbound::is_user(verdict.ordinal.0);
        if verdict.must || !open {
            return None;
        }
        let port = flow.target.0.port();
        if port == 53 || flow.network == Network::Tcp && SILENT_PORTS.contains(&port) {
            self.counters.skipped[0].fetch_add(1, Relaxed);
            return None;
        }
        if self.misses.paused(&place(flow, seen), Instant::now()) {
            self.counters.skipped[1].fetch_add(1, Relaxed);
            return None;
        }
        Some(Duration::from_millis(global.sniffing_timeout_ms.into()))
    }

    /// The verdict on an ambiguous flow that showed no name: what the client heard last.
    pub(super) fn unnamed(
        &self,
        snapshot: &Snapshot,
        flow: &NewFlow,
        seen: Option<&FlowVal>,
        verdict: Verdict,
    ) -> (Verdict, Option<Host>) {
        let client = flow.client.0.ip().to_canonical();
        let address = flow.target.0.ip().to_canonical();
        match self.names().and_then(|n| n.meant(client, address)) {
            Some(name) => {
                self.counters.ambiguous[1].fetch_add(1, Relaxed);
                let verdict = named(snapshot, flow, seen, &name);
                (verdict, Some((name, HostSource::Dns)))
            }
            None => {
                self.counters.ambiguous[2].fetch_add(1, Relaxed);
                (verdict, None)
            }
        }
    }

    fn count(&self, finding: &Finding) {
        let (kind, result) = match finding {
            Finding::Hello(kind, hello) => (Some(*kind), usize::from(hello.name.is_none())),
            Finding::Foreign => (None, 1),
            Finding::Timeout(kind) => (*kind, 2),
        };
        let kind = match kind {
            Some(Kind::Tls) => 0,
            Some(Kind::Http) => 1,
            Some(Kind::Quic) => 2,
            None => 3,
        };
        self.counters.sniffed[kind][result].fetch_add(1, Relaxed);
    }
}

fn place(flow: &NewFlow, seen: Option<&FlowVal>) -> Place {
    Place {
        target: flow.target.0,
        pname: seen.map_or([0; 16], |s| s.pname),
        mac: seen.map_or([0; 6], |s| s.mac),
        dscp: seen.map_or(0, |s| FlowWord::unpack(s.word).dscp),
    }
}

/// The rules with a name.
fn named(snapshot: &Snapshot, flow: &NewFlow, seen: Option<&FlowVal>, name: &str) -> Verdict {
    let mut facts = facts(flow, seen);
    facts.domain = Some(name.to_owned());
    snapshot.oracle.eval(&facts)
}

/// A flow whose first bytes are being looked at. It holds the claim on the kernel's entry.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) gate: Arc<Gatekeeper>,
    pub(super) flow: NewFlow,
    pub(super) key: FlowKey,
    pub(super) seen: Option<FlowVal>,
    pub(super) patience: Duration,
    pub(super) mode: DialMode,
    pub(super) host: Option<Host>,
    pub(super) check: Option<Pending>,
    /// The entry has gone to the flow, or was given up.
    pub(super) settled: bool,
}

impl Waiting {
    /// The name that may be used: the visible one, or the one behind it.
    fn usable(&self, finding: Finding) -> Option<Host> {
        let Finding::Hello(kind, hello) = finding else {
            return None;
        };
        let name: Arc<str> = String::from(hello.name?).into();
        let names = self.gate.sniffer.names();
        if let (true, Some(names)) = (hello.ech, names)
            && names.fronts(&name)
        {
            let client = self.flow.client.0.ip().to_canonical();
            let address = self.flow.target.0.ip().to_canonical();
            let meant = names.meant(client, address);
            return meant.map(|name| (name, HostSource::Dns));
        }
        Some((name, kind.into()))
    }
}

impl Undecided for Waiting {
    fn patience(&self) -> Duration {
        self.patience
    }

    fn found(&mut self, finding: Finding, wake: Wake) -> Option<Duration> {
        let sniffer = &self.gate.sniffer;
        sniffer.count(&finding);
        let place = place(&self.flow, self.seen.as_ref());
        if matches!(&finding, Finding::Hello(_, hello) if hello.name.is_some()) {
            sniffer.misses.hit(&place);
        } else {
            sniffer.misses.miss(place, Instant::now());
        }
        let host = self.usable(finding)?;
        if self.mode != DialMode::Domain || host.1 == HostSource::Dns {
            self.host = Some(host);
            return None;
        }
        let address = self.flow.target.0.ip().to_canonical();
        let reality = sniffer.reality.get()?;
        match reality.check(&host.0, address, self.flow.client, wake) {
            Check::Verified => {
                sniffer.counters.checks[0].fetch_add(1, Relaxed);
                self.host = Some(host);
                None
            }
            Check::Unverified => {
                sniffer.counters.checks[1].fetch_add(1, Relaxed);
                None
            }
            Check::Running(pending) => {
                (self.host, self.check) = (Some(host), Some(pending));
                Some(CHECK_WAIT.min(2 * self.patience))
            }
        }
    }

    fn decide(mut self: Box<Self>) -> Result<Route, Refusal> {
        let gate = Arc::clone(&self.gate);
        let sniffer = &gate.sniffer;
        if let Some(pending) = self.check.take() {
            let (result, verified) = match pending.get() {
                Some(true) => (0, true),
                Some(false) => (1, false),
                None => (2, false),
            };
            sniffer.counters.checks[result].fetch_add(1, Relaxed);
            self.host.take_if(|_| !verified);
        }
        let (flow, seen) = (self.flow, self.seen.as_ref());
        let snapshot = gate.snapshot();
        let (base, doubt) = gate.verdict(&snapshot, &flow, seen);
        let again = self.mode != DialMode::DomainPlus || doubt != Doubt::None;
        let mut host = self.host.take();
        let target = host.as_ref().map(|(name, _)| Arc::clone(name));
        let verdict = match &host {
            Some((name, _)) if again => named(&snapshot, &flow, seen, name),
            _ => base,
        };
        let verdict = match (doubt, &host) {
            (Doubt::Ambiguous, None) => {
                let (verdict, learned) = sniffer.unnamed(&snapshot, &flow, seen, base);
                host = learned;
                verdict
            }
            (Doubt::Ambiguous, Some(_)) => {
                sniffer.counters.ambiguous[0].fetch_add(1, Relaxed);
                verdict
            }
            _ => verdict,
        };
        if again && (host.is_some() || doubt != Doubt::None) {
            gate.count(&verdict);
        }
        let settled = Settled {
            verdict,
            host,
            target: target.filter(|_| !verdict.must),
        };
        self.settled = true;
        gate.settle(&snapshot, &flow, &self.key, seen, settled)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.settled {
            self.gate.give_up(&self.flow, &self.key);
        }
    }
}
