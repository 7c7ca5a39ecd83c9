//! The host thread: owner of everything in the host namespace.
//!
//! It holds the pair, the hooks and the host settings, compares them with what the kernel
//! reports when links or addresses change (and every minute), and repairs the difference. All
//! requests about them come through one bounded queue, so nothing here is shared or locked.

mod ends;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TryRecvError},
    },
    time::{Duration, Instant},
};

use honk_common::{
    limits::MAX_LAN_PARAM,
    param::{
        FEATURE_ONE_ARMED, GATE_CLOSED, GATE_OPEN, Param, SOCK_TCP4, SOCK_TCP6, SOCK_UDP4,
        SOCK_UDP6,
    },
};

use super::{
    Shared, TARGET, bpf,
    error::Error,
    guard::Guards,
    hooks::Hooks,
    lan::{self, Patterns, Resolved},
    owner::Owner,
    pair,
    pins::Mounted,
    process,
    status::InterfaceStatus,
    sysctl::Sysctls,
    wake::Wake,
};
use crate::netlink::{Address, Link, Rtnl, Watch};

/// Everything is compared at least this often.
const RECONCILE: Duration = Duration::from_secs(60);
/// Changes come in bursts; one comparison serves a burst.
const SETTLE: Duration = Duration::from_millis(20);

/// Time between attempts to repair the pair.
const PAIR_PAUSE: Duration = Duration::from_secs(5);

type Reply = SyncSender<Result<(), Error>>;

/// What others ask of the host thread.
#[derive(Debug)]
pub(super) enum Ask {
    Interfaces(Patterns, Reply),
    Gate(u32, Reply),
    Stop(Reply),
    /// Ends the thread as a killed process would: descriptors close, nothing is undone.
    #[cfg(test)]
    Crash,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) shared: Arc<Shared>,
    pub(super) rtnl: Rtnl,
    pub(super) hooks: Hooks,
    guards: Guards,
    pub(super) patterns: Patterns,
    pub(super) sysctls: Option<Sysctls>,
    pub(super) block: bool,
    /// Says to other daemons that this namespace is taken.
    pub(super) owner: Option<Owner>,
    pub(super) mounted: Option<Mounted>,
    pub(super) param: Param,
    /// Links of the process hooks; empty where they cannot be had.
    process: Option<Vec<OwnedFd>>,
    /// Changes of routes wake this thread.
    follows: bool,
    pair: Option<pair::State>,
    pair_hooks: ends::PairHooks,
    pair_pause: Option<Instant>,
    mtu: u32,
    watch: Watch,
    inside: Watch,
}

impl Host {
    /// Subscribes before anything is read, so that no change is missed.
    pub(super) fn new(
        shared: Arc<Shared>,
        rtnl: Rtnl,
        hooks: Hooks,
        param: Param,
    ) -> Result<Self, Error> {
        let watch = Watch::open()?;
        let inside = shared.netns.run(Watch::open)??;
        let guards = Guards::new(Arc::clone(&shared.programs));
        Ok(Self {
            shared,
            rtnl,
            hooks,
            guards,
            patterns: Patterns::default(),
            process: None,
            follows: false,
            sysctls: None,
            block: false,
            owner: None,
            mounted: None,
            param,
            pair: None,
            pair_hooks: ends::PairHooks::default(),
            pair_pause: None,
            mtu: 1500,
            watch,
            inside,
        })
    }

    /// Makes and hooks everything, gate closed. What fails on a named interface is fatal.
    pub(super) fn build(&mut self) -> Result<(), Error> {
        self.build_pair()?;
        let lookup = bpf::attach_sk_lookup(
            self.shared.programs.listener.as_fd(),
            self.shared.netns.fd(),
        );
        self.pair_hooks.lookup =
            Some(lookup.map_err(Error::io("attach listener_lookup to the private namespace"))?);
        self.reconcile_lan(true)
    }

    /// Serves until asked to stop.
    pub(super) fn run(mut self, asks: &Receiver<Ask>, wake: &Wake) {
        let mut due = Instant::now() + RECONCILE;
        let mut changed = None;
        loop {
            let next = changed.map_or(due, |at: Instant| due.min(at + SETTLE));
            if let Err(e) = wake.wait(&[self.watch.fd(), self.inside.fd()], Some(next)) {
                tracing::error!(target: TARGET, error = %e, "cannot wait for changes");
                break;
            }
            let news = self.watch.drain() | self.inside.drain();
            let now = Instant::now();
            if news {
                changed.get_or_insert(now);
            }
            loop {
                match asks.try_recv() {
                    Ok(ask) => {
                        if self.answer(ask) {
                            return;
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        self.give_up();
                        return;
                    }
                }
            }
            if now >= due || changed.is_some_and(|at| now >= at + SETTLE) {
                due = self.reconcile();
                changed = None;
            }
        }
        self.give_up();
    }

    fn give_up(&mut self) {
        if let Err(e) = self.teardown() {
            tracing::error!(target: TARGET, error = %e, "cannot take everything back");
        }
    }

    /// True when this was the last request.
    fn answer(&mut self, ask: Ask) -> bool {
        // Whoever asked may have given up waiting; that changes nothing.
        match ask {
            Ask::Interfaces(patterns, reply) => {
                let _ = reply.send(self.set_interfaces(patterns));
            }
            Ask::Gate(gate, reply) => {
                let _ = reply.send(self.set_gate(gate));
            }
            Ask::Stop(reply) => {
                let _ = reply.send(self.teardown());
                return true;
            }
            #[cfg(test)]
            Ask::Crash => {
                std::mem::forget(self.mounted.take());
                return true;
            }
        }
        false
    }

    /// Takes other interface lists. If a named interface fails, the old lists stay.
    fn set_interfaces(&mut self, patterns: Patterns) -> Result<(), Error> {
        let old = std::mem::replace(&mut self.patterns, patterns);
        let result = self.reconcile_lan(true);
        if result.is_err() {
            self.patterns = old;
            self.reconcile();
        }
        result
    }

    fn set_gate(&mut self, gate: u32) -> Result<(), Error> {
        if gate == GATE_OPEN {
            self.check_listeners()?;
        }
        // The gate first: until an inherited link is updated, its old program keeps blocking.
        self.write_gate(gate)?;
        if gate == GATE_OPEN
            && let Err(e) =
                self.hooks
                    .go_live(&mut self.rtnl, self.block, self.shared.maps.flow.as_fd())
        {
            self.write_gate(GATE_CLOSED)?;
            return Err(e);
        }
        Ok(())
    }

    fn write_gate(&self, gate: u32) -> Result<(), Error> {
        let written = self.shared.maps.gate.put(&0, &gate);
        written.map_err(Error::io("write the gate"))
    }

    fn check_listeners(&self) -> Result<(), Error> {
        let v6 = self.shared.features.v6;
        let slots = [SOCK_TCP4, SOCK_UDP4]
            .into_iter()
            .chain(v6.then_some([SOCK_TCP6, SOCK_UDP6]).into_iter().flatten());
        for slot in slots {
            let present = self.shared.maps.socks.present(slot);
            if !present.map_err(Error::io("read map SOCKS"))? {
                return Err(Error::NoListener(slot));
            }
        }
        Ok(())
    }

    /// Compares and repairs everything; problems are shown and tried again later. Returns when
    /// to look again at the latest.
    fn reconcile(&mut self) -> Instant {
        let now = Instant::now();
        let mut next = now + RECONCILE;
        // Attempts to make the pair cause events themselves; they must not chase each other.
        if self.pair_pause.is_none_or(|until| now >= until) {
            self.pair_pause = None;
            if let Err(e) = self.reconcile_pair() {
                tracing::error!(target: TARGET, error = %e, "the pair needs repair");
                next = now + PAIR_PAUSE;
                self.pair_pause = Some(next);
            }
        }
        if let Err(e) = self.reconcile_lan(false) {
            tracing::error!(target: TARGET, error = %e, "cannot compare interfaces");
        }
        self.pair_pause.map_or(next, |until| next.min(until))
    }

    /// Hooks, local addresses, MTU and host settings. With `strict`, a named interface that
    /// cannot be hooked is an error.
    fn reconcile_lan(&mut self, strict: bool) -> Result<(), Error> {
        let links = self.rtnl.links()?;
        let addresses = self.rtnl.addresses()?;
        let shared = Arc::clone(&self.shared);
        shared
            .local
            .sync(&shared.maps.local_addr, &addresses)
            .map_err(Error::io("write the local addresses"))?;
        let defaults = self.defaults()?;
        let mut resolved = lan::resolve(&self.patterns, &links, &defaults);
        self.watch_processes();
        self.write_lan(&resolved, &links)?;
        self.apply_settings(&resolved, &addresses, strict)?;
        let failed = self.hooks.reconcile(&mut self.rtnl, &resolved.targets);
        resolved.note(failed);
        if strict && let Some(e) = resolved.take_failure() {
            return Err(e);
        }
        let macs = &self.shared.maps.xdp_mac;
        self.guards.reconcile(macs, &resolved.targets, &links);
        let hooks = |link| {
            let guard = self.guards.hook(link);
            self.hooks.sides(link).chain(guard).collect()
        };
        self.publish(resolved.statuses(hooks));
        Ok(())
    }

    /// Links of the default routes, while somebody follows them.
    fn defaults(&mut self) -> Result<Vec<u32>, Error> {
        if !self.patterns.follows_routes() {
            return Ok(Vec::new());
        }
        if !self.follows {
            self.watch.follow_routes()?;
            self.follows = true;
        }
        Ok(self.rtnl.default_links()?)
    }

    /// Process hooks exist as long as the gateway's own traffic is judged.
    fn watch_processes(&mut self) {
        if self.patterns.wan.is_empty() {
            self.process = None;
        } else if self.process.is_none() {
            let programs = self.shared.programs.process.as_deref().unwrap_or_default();
            let attached = process::attach(programs).unwrap_or_else(|e| {
                tracing::warn!(
                    target: TARGET, error = %e,
                    "process names stay unknown: pname rules match nothing",
                );
                Vec::new()
            });
            self.process = Some(attached);
        }
    }

    /// Tells the kernel side about interfaces and MTU.
    fn write_lan(&mut self, resolved: &Resolved, links: &[Link]) -> Result<(), Error> {
        let mut listed = [0; MAX_LAN_PARAM];
        for (slot, index) in listed.iter_mut().zip(resolved.lan_links()) {
            *slot = index;
        }
        let mut features = self.param.features & !FEATURE_ONE_ARMED;
        if resolved.one_armed() {
            features |= FEATURE_ONE_ARMED;
        }
        if self.param.lan_ifindex != listed || self.param.features != features {
            self.param.lan_ifindex = listed;
            self.param.features = features;
            self.write_param()?;
        }
        let mtu = resolved.mtu(links);
        if let Some(state) = self.pair
            && self.mtu != mtu
        {
            let (peer, v6) = (state.peer, self.shared.features.v6);
            self.shared
                .netns
                .run(move || pair::set_mtu(peer, mtu, v6))??;
            self.mtu = mtu;
        }
        Ok(())
    }

    fn apply_settings(
        &mut self,
        resolved: &Resolved,
        addresses: &[Address],
        strict: bool,
    ) -> Result<(), Error> {
        let Some(sysctls) = &mut self.sysctls else {
            return Ok(());
        };
        match sysctls.apply(&resolved.lan(addresses), Instant::now()) {
            Err(e) if strict => Err(e),
            Err(e) => {
                tracing::warn!(target: TARGET, error = %e, "host settings are not as needed");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn publish(&self, now: Vec<InterfaceStatus>) {
        let before = self.shared.interfaces.load();
        if **before == now {
            return;
        }
        for status in now.iter().filter(|s| !before.contains(s)) {
            tracing::info!(
                target: TARGET,
                interface = status.name,
                pattern = status.pattern,
                attached = status.attached,
                pending = status.pending,
                problem = status.problem,
                "interface"
            );
        }
        for status in before
            .iter()
            .filter(|s| now.iter().all(|n| n.name != s.name))
        {
            tracing::info!(target: TARGET, interface = status.name, "interface left");
        }
        self.shared.interfaces.store(Arc::new(now));
    }

    fn write_param(&self) -> Result<(), Error> {
        let written = self.shared.maps.param.put(&0, &self.param);
        written.map_err(Error::io("write map PARAM"))
    }

    /// Takes everything back, in reverse order. Goes on over failures; the first is returned.
    pub(super) fn teardown(&mut self) -> Result<(), Error> {
        let gate = self.write_gate(GATE_CLOSED);
        self.guards.detach_all();
        self.hooks.detach_all(&mut self.rtnl);
        self.process = None;
        for link in [
            self.pair_hooks.dev0.take(),
            self.pair_hooks.peer.take(),
            self.pair_hooks.lookup.take(),
        ]
        .into_iter()
        .flatten()
        {
            let detached: io::Result<()> = bpf::detach_link(link.as_fd());
            if let Err(e) = detached {
                tracing::debug!(target: TARGET, error = %e, "a link was gone already");
            }
        }
        // After the pins, which are gone with the hooks.
        self.mounted = None;
        let pair = match self.pair.take() {
            Some(state) => pair::delete(&mut self.rtnl, state.host),
            None => Ok(()),
        };
        let settings = match self.sysctls.take() {
            Some(mut sysctls) => sysctls.restore().map(drop),
            None => Ok(()),
        };
        self.shared.interfaces.store(Arc::default());
        gate.and(pair).and(settings)
    }
}
