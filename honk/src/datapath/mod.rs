//! The datapath: loads the kernel programs, hooks them to the interfaces, moves proxied
//! flows into the private namespace, and takes everything back at the end.
//!
//! It executes; it decides nothing about flows. `app` starts it, commits rule tables and group
//! states, opens the gate and stops it; `inbound` gets its listeners and reply sockets. Three
//! threads do the work: the namespace thread ([`crate::netns`]), the host thread ([`host`]) and
//! the keeper ([`keeper`]).

mod bank;
mod bpf;
mod btf;
mod carry;
mod cascade;
mod claims;
mod cleanup;
mod domains;
mod error;
mod events;
mod guard;
mod hooks;
mod host;
pub(crate) mod inspect;
mod janitor;
mod keeper;
mod lan;
mod listeners;
mod local;
mod map;
mod memory;
mod object;
mod owner;
mod pair;
mod pattern;
mod peer_test;
mod pins;
mod probe;
mod process;
mod start;
mod status;
mod sysctl;
mod wake;

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::Ordering,
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use arc_swap::ArcSwap;
use honk_common::{
    flow::FlowVal, key::FlowKey, param::TRACE, route::DomainVal, tables::RouteTables,
};

pub(crate) use cleanup::{CleanupReport, cleanup, is_blocking};
pub(crate) use domains::Applied;
pub(crate) use error::{Blame, Error};
pub(crate) use memory::give_back_memory;
pub(crate) use status::{Counters, Fill, InterfaceStatus};

use crate::{
    flow::{Listeners, ReplySockets},
    netns::Netns,
};

/// Target of log lines.
const TARGET: &str = "honk::datapath";

/// Whether packets may skip one hop with `bpf_redirect_peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedirectPeer {
    /// When the start-up test passes.
    Auto,
    On,
    Off,
}

/// What `start` needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Mark of the daemon's own sockets.
    pub(crate) own_mark: u32,
    pub(crate) tproxy_port: u16,
    /// Capacity of the flow table.
    pub(crate) flow_entries: u32,
    /// LAN interfaces; `*` and `?` are wildcards.
    pub(crate) lan: Vec<String>,
    /// Interfaces the gateway's own traffic leaves through; `auto` follows the default routes.
    pub(crate) wan: Vec<String>,
    /// UDP listeners per family; 0 chooses.
    pub(crate) udp_sockets: usize,
    /// Run before other TCX programs on ingress.
    pub(crate) tcx_first: bool,
    pub(crate) redirect_peer: RedirectPeer,
    /// LAN interfaces get an early drop program.
    pub(crate) xdp_guard: bool,
    /// A bpffs, or where one is to be mounted.
    pub(crate) pin_root: PathBuf,
    pub(crate) runtime_dir: PathBuf,
    /// May host settings be changed?
    pub(crate) sysctls: bool,
    /// `on_crash: block`: the hooks outlive the process.
    pub(crate) on_crash_block: bool,
}

/// The running datapath. Clones are handles on the same one.
#[derive(Clone, Debug)]
pub(crate) struct Datapath(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    asks: SyncSender<host::Ask>,
    wake: Arc<wake::Wake>,
    host: Mutex<Option<JoinHandle<()>>>,
    keeper: keeper::Keeper,
}

/// What the threads and the handle share.
#[derive(Debug)]
struct Shared {
    maps: object::Maps,
    programs: Arc<object::Programs>,
    netns: Netns,
    features: probe::Features,
    cpus: usize,
    claims: claims::Claims,
    local: local::Local,
    banks: Mutex<bank::Banks>,
    domains: domains::Domains,
    /// `GROUP_STATE` as it should be.
    groups: Mutex<HashMap<u32, u32>>,
    interfaces: ArcSwap<Vec<InterfaceStatus>>,
    tally: janitor::Tally,
    events: events::Seen,
    /// `FLAGS` as asked for, and whether somebody watches.
    flags: Mutex<(u32, bool)>,
}

impl Datapath {
    /// Builds everything with the gate closed: traffic is untouched until it opens. On failure
    /// the network is as before.
    pub(crate) fn start(settings: Settings) -> Result<(Self, Listeners), Error> {
        start::start(settings)
    }

    /// Makes a compiled rule set the one packets see; returns its generation. A failure leaves
    /// the old one in force.
    #[cfg(test)]
    pub(crate) fn commit(&self, tables: &RouteTables) -> Result<u32, Error> {
        let generation = self.stage(tables)?;
        self.activate(generation)?;
        Ok(generation)
    }

    /// Writes a compiled rule set beside the one in force and returns its generation: from now
    /// on [`write_domains`](Self::write_domains) takes entries of both.
    pub(crate) fn stage(&self, tables: &RouteTables) -> Result<u32, Error> {
        let shared = &self.0.shared;
        lock(&shared.banks).stage(&shared.maps, &shared.domains, tables)
    }

    /// Makes the staged generation the one packets see.
    pub(crate) fn activate(&self, generation: u32) -> Result<(), Error> {
        let shared = &self.0.shared;
        lock(&shared.banks).activate(&shared.maps, &shared.domains, generation)
    }

    /// Tells the kernel what the names of addresses say about the lines of a generation
    /// (`Oracle::domain_value`). Packets see it when the call returns.
    pub(crate) fn write_domains(
        &self,
        generation: u32,
        set: &[(IpAddr, DomainVal)],
    ) -> Result<Applied, Error> {
        let written = self.0.shared.domains.write(generation, set);
        written.map_err(Error::io("write names of addresses"))
    }

    /// Makes the names of addresses unknown again.
    pub(crate) fn delete_domains(
        &self,
        generation: u32,
        gone: &[IpAddr],
    ) -> Result<Applied, Error> {
        let deleted = self.0.shared.domains.delete(generation, gone);
        deleted.map_err(Error::io("delete names of addresses"))
    }

    /// Writes group states (`index` from `outbound::group_slot`): what becomes better first,
    /// what becomes worse last, equal ones not at all.
    pub(crate) fn write_groups(&self, slots: &[(u32, u32)]) -> Result<(), Error> {
        let shared = &self.0.shared;
        let mut groups = lock(&shared.groups);
        for (index, bits) in keeper::ordered(&groups, slots) {
            shared
                .maps
                .group_state
                .put(&index, &bits)
                .map_err(Error::io("write a group state"))?;
            groups.insert(index, bits);
        }
        Ok(())
    }

    /// Writes the `FLAGS` bits.
    pub(crate) fn set_flags(&self, bits: u32) -> Result<(), Error> {
        let mut flags = lock(&self.0.shared.flags);
        flags.0 = bits;
        self.put_flags(*flags)
    }

    /// Tells the tap about new flows, or no longer.
    pub(crate) fn watch(&self, on: bool) -> Result<(), Error> {
        let mut flags = lock(&self.0.shared.flags);
        flags.1 = on;
        self.put_flags(*flags)
    }

    fn put_flags(&self, (bits, watched): (u32, bool)) -> Result<(), Error> {
        let bits = if watched { bits | TRACE } else { bits & !TRACE };
        let written = self.0.shared.maps.flags.put(&0, &bits);
        written.map_err(Error::io("write the flags"))
    }

    /// Hears records of the kernel programs, on the keeper's thread; once.
    pub(crate) fn tap(&self, tap: events::Tap) {
        // A second one would be a mistake in `app`; the first goes on.
        let _ = self.0.shared.events.tap.set(tap);
    }

    /// Sets the gate (`GATE_*`). Opening requires all listeners.
    pub(crate) fn set_gate(&self, gate: u32) -> Result<(), Error> {
        self.ask(|reply| host::Ask::Gate(gate, reply))
    }

    /// The entry of a flow.
    pub(crate) fn lookup(&self, key: &FlowKey) -> Option<FlowVal> {
        self.0.shared.maps.flow.lookup(key).ok().flatten()
    }

    /// Takes an entry over for a relay: it will not expire until released.
    pub(crate) fn claim(&self, key: &FlowKey, seen: &FlowVal) {
        let shared = &self.0.shared;
        shared.claims.claim(key, seen);
    }

    /// Ends a claim; the entry goes. `fin_seen` says that it is closing already.
    pub(crate) fn release(&self, key: &FlowKey, fin_seen: bool) {
        let shared = &self.0.shared;
        shared.claims.release(&shared.maps.flow, key, fin_seen);
    }

    /// Makes a claimed UDP flow direct in the kernel and ends the claim; the entry stays. False
    /// when that cannot be, and then nothing has changed.
    pub(crate) fn hand_back(&self, key: &FlowKey, mark: u32) -> bool {
        let shared = &self.0.shared;
        shared.claims.hand_back(&shared.maps.flow, key, mark)
    }

    /// From now on datagrams of the flow that leave the private namespace are dropped again.
    pub(crate) fn handed_back(&self, key: &FlowKey) {
        claims::handed_back(&self.0.shared.maps.flow, key);
    }

    /// Whether an address is the gateway's own, broadcast addresses included.
    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        self.0.shared.local.contains(ip)
    }

    /// Takes other lists of interfaces. On failure the old ones stay.
    pub(crate) fn set_interfaces(&self, lan: Vec<String>, wan: Vec<String>) -> Result<(), Error> {
        let patterns = lan::Patterns { lan, wan };
        self.ask(|reply| host::Ask::Interfaces(patterns, reply))
    }

    /// Interfaces and patterns as of the last comparison.
    pub(crate) fn interfaces(&self) -> Vec<InterfaceStatus> {
        self.0.shared.interfaces.load().to_vec()
    }

    /// All counters; a few hundred system calls.
    pub(crate) fn counters(&self) -> Counters {
        let shared = &self.0.shared;
        let fill = |map, entries: u64, capacity| Fill {
            map,
            entries,
            capacity,
        };
        let tally = &shared.tally;
        let mut stats = status::stats(&shared.maps, shared.cpus);
        stats.push(("flow_expired", tally.expired.load(Ordering::Relaxed)));
        stats.extend(shared.events.list());
        let flows = status::capacity(&shared.maps.flow);
        let returns = status::capacity(&shared.maps.ret);
        Counters {
            stats,
            outbounds: status::outbounds(&shared.maps, shared.cpus),
            maps: vec![
                fill("flow", tally.flows.load(Ordering::Relaxed), flows),
                fill("flow_claimed", shared.claims.len() as u64, flows),
                fill("return", tally.returns.load(Ordering::Relaxed), returns),
            ],
            features: shared.features.list(),
        }
    }

    #[cfg(test)]
    fn crash(self) {
        self.0.keeper.stop();
        let host = lock(&self.0.host).take();
        self.0.asks.send(host::Ask::Crash).unwrap();
        self.0.wake.notify();
        host.unwrap().join().unwrap();
        self.0.shared.netns.stop();
    }

    /// Takes everything back: hooks, pins, the pair, host settings. Listeners must be closed by
    /// their owner. A second call does nothing.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.0.stop()
    }

    fn ask(
        &self,
        request: impl FnOnce(SyncSender<Result<(), Error>>) -> host::Ask,
    ) -> Result<(), Error> {
        self.0.ask(request)
    }
}

impl Inner {
    fn stop(&self) -> Result<(), Error> {
        let Some(host) = lock(&self.host).take() else {
            return Ok(());
        };
        self.keeper.stop();
        let result = self.ask(host::Ask::Stop);
        // Its last act was the reply above.
        let _ = host.join();
        self.shared.netns.stop();
        result
    }

    fn ask(
        &self,
        request: impl FnOnce(SyncSender<Result<(), Error>>) -> host::Ask,
    ) -> Result<(), Error> {
        let (reply, answer) = sync_channel(1);
        self.asks.send(request(reply)).map_err(|_| Error::Stopped)?;
        self.wake.notify();
        answer.recv().map_err(|_| Error::Stopped)?
    }
}

impl ReplySockets for Datapath {
    fn bind(&self, v6: bool, port: u16, addr: Option<IpAddr>) -> io::Result<std::net::UdpSocket> {
        self.0
            .shared
            .netns
            .run(move || listeners::reply(v6, port, addr))
            .map_err(io::Error::other)?
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Only when the last handle went without `stop`.
        if let Err(e) = self.stop() {
            tracing::error!(target: TARGET, error = %e, "cannot take everything back");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
