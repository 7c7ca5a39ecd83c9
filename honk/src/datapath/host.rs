//! The host thread: owner of everything in the host namespace.
//!
//! It holds the pair, the hooks and the host settings, compares them with what the kernel
//! reports when links or addresses change (and every minute), and repairs the difference. All
//! requests about them come through one bounded queue, so nothing here is shared or locked.

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
    param::{GATE_CLOSED, GATE_OPEN, Param, SOCK_TCP4, SOCK_TCP6, SOCK_UDP4, SOCK_UDP6},
};

use super::{
    Shared, TARGET, bpf,
    error::Error,
    hooks::{self, Hooks, Method},
    lan::{self, Resolved},
    pair::{self, HostEnd},
    status::InterfaceStatus,
    sysctl::Sysctls,
    wake::Wake,
};
use crate::netlink::{Address, Link, Rtnl, Side, Watch};

/// Everything is compared at least this often.
const RECONCILE: Duration = Duration::from_secs(60);
/// Changes come in bursts; one comparison serves a burst.
const SETTLE: Duration = Duration::from_millis(20);

type Reply = SyncSender<Result<(), Error>>;

/// What others ask of the host thread.
#[derive(Debug)]
pub(super) enum Ask {
    Lan(Vec<String>, Reply),
    Gate(u32, Reply),
    Stop(Reply),
    /// Ends the thread as a killed process would: descriptors close, nothing is undone.
    #[cfg(test)]
    Crash,
}

/// Attachments to the pair; with `clsact` they have no descriptor and die with the link.
#[derive(Debug, Default)]
struct PairHooks {
    dev0: Option<OwnedFd>,
    peer: Option<OwnedFd>,
    lookup: Option<OwnedFd>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) shared: Arc<Shared>,
    pub(super) rtnl: Rtnl,
    pub(super) hooks: Hooks,
    pub(super) patterns: Vec<String>,
    pub(super) sysctls: Option<Sysctls>,
    pub(super) block: bool,
    pub(super) param: Param,
    pair: Option<pair::State>,
    pair_hooks: PairHooks,
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
        Ok(Self {
            shared,
            rtnl,
            hooks,
            patterns: Vec::new(),
            sysctls: None,
            block: false,
            param,
            pair: None,
            pair_hooks: PairHooks::default(),
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

    fn build_pair(&mut self) -> Result<(), Error> {
        let v6 = self.shared.features.v6;
        let state = pair::create(&mut self.rtnl, &self.shared.netns, self.mtu, v6)?;
        self.pair = Some(state);
        self.param.honk0_ifindex = state.host;
        self.param.peer_mac = state.peer_mac;
        self.write_param()?;
        self.attach_pair(&state)
    }

    fn attach_pair(&mut self, state: &pair::State) -> Result<(), Error> {
        let programs = Arc::clone(&self.shared.programs);
        let peer = state.peer;
        let failed = |program| {
            move |source| Error::Attach {
                name: pair::HOST.to_owned(),
                program,
                source: Box::new(source),
            }
        };
        match self.shared.features.method {
            Method::Tcx => {
                let create = |fd: &OwnedFd, link| {
                    bpf::attach_tcx(fd.as_fd(), link, Side::Ingress, bpf::Order::Last)
                        .map_err(Error::io("create a TCX link"))
                };
                let inner = self.shared.netns.run({
                    let programs = Arc::clone(&programs);
                    move || create(&programs.peer, peer)
                })?;
                self.pair_hooks.peer = Some(inner.map_err(failed("peer_ingress"))?);
                let outer = create(&programs.dev0, state.host);
                self.pair_hooks.dev0 = Some(outer.map_err(failed("dev0_ingress"))?);
            }
            Method::Clsact => {
                let inner = self.shared.netns.run({
                    let programs = Arc::clone(&programs);
                    move || {
                        let mut rtnl = Rtnl::open()?;
                        let fd = programs.peer.as_fd();
                        hooks::attach_clsact(&mut rtnl, peer, Side::Ingress, "peer_ingress", fd)
                    }
                })?;
                inner.map_err(failed("peer_ingress"))?;
                let fd = programs.dev0.as_fd();
                let rtnl = &mut self.rtnl;
                hooks::attach_clsact(rtnl, state.host, Side::Ingress, "dev0_ingress", fd)
                    .map_err(failed("dev0_ingress"))?;
            }
        }
        Ok(())
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
                self.reconcile();
                due = Instant::now() + RECONCILE;
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
            Ask::Lan(patterns, reply) => {
                let _ = reply.send(self.set_lan(patterns));
            }
            Ask::Gate(gate, reply) => {
                let _ = reply.send(self.set_gate(gate));
            }
            Ask::Stop(reply) => {
                let _ = reply.send(self.teardown());
                return true;
            }
            #[cfg(test)]
            Ask::Crash => return true,
        }
        false
    }

    /// Takes another interface list. If a named interface fails, the old list stays.
    fn set_lan(&mut self, patterns: Vec<String>) -> Result<(), Error> {
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
            && let Err(e) = self.hooks.go_live(&mut self.rtnl, self.block)
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

    /// Compares and repairs everything; problems are shown and tried again next time.
    fn reconcile(&mut self) {
        if let Err(e) = self.reconcile_pair() {
            tracing::error!(target: TARGET, error = %e, "the pair needs repair");
        }
        if let Err(e) = self.reconcile_lan(false) {
            tracing::error!(target: TARGET, error = %e, "cannot compare interfaces");
        }
    }

    fn reconcile_pair(&mut self) -> Result<(), Error> {
        let links = self.rtnl.links()?;
        let Some(mut state) = self.pair else {
            return self.build_pair();
        };
        let host_mac = match pair::host_end(&links, &state) {
            HostEnd::Missing => return self.rebuild_pair(),
            HostEnd::Down => {
                pair::repair_host(&mut self.rtnl, &state)?;
                state.host_mac
            }
            HostEnd::Fine(mac) => mac,
        };
        let v6 = self.shared.features.v6;
        let inside = self
            .shared
            .netns
            .run(move || pair::inspect(host_mac, v6))??;
        let Some((peer, peer_mac)) = inside else {
            return self.rebuild_pair();
        };
        if !self.pair_is_hooked(&state) {
            tracing::warn!(target: TARGET, "programs of the pair were removed; attaching again");
            self.attach_pair(&state)?;
        }
        state.host_mac = host_mac;
        state.peer = peer;
        if state.peer_mac != peer_mac {
            state.peer_mac = peer_mac;
            self.param.peer_mac = peer_mac;
            self.write_param()?;
        }
        self.pair = Some(state);
        Ok(())
    }

    fn rebuild_pair(&mut self) -> Result<(), Error> {
        tracing::warn!(target: TARGET, "the pair is gone; making it again");
        if let Some(state) = self.pair.take() {
            pair::delete(&mut self.rtnl, state.host)?;
        }
        pair::remove_stale(&mut self.rtnl)?;
        self.build_pair()
    }

    fn pair_is_hooked(&mut self, state: &pair::State) -> bool {
        match self.shared.features.method {
            Method::Tcx => {
                let alive = |fd: &Option<OwnedFd>, link| {
                    fd.as_ref().is_some_and(|fd| {
                        bpf::tcx_link(fd.as_fd()).ok().flatten() == Some((link, Side::Ingress))
                    })
                };
                alive(&self.pair_hooks.dev0, state.host) && alive(&self.pair_hooks.peer, state.peer)
            }
            Method::Clsact => {
                let has = |rtnl: &mut Rtnl, link| rtnl.filters(link).is_ok_and(|f| !f.is_empty());
                let peer = state.peer;
                let inner = self.shared.netns.run(move || {
                    let mut rtnl = Rtnl::open().ok()?;
                    has(&mut rtnl, peer).then_some(())
                });
                has(&mut self.rtnl, state.host) && inner.is_ok_and(|found| found.is_some())
            }
        }
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
        let mut resolved = lan::resolve(&self.patterns, &links);
        self.write_lan(&resolved, &links)?;
        self.apply_settings(&resolved, &addresses, strict)?;
        let failed = self.hooks.reconcile(&mut self.rtnl, &resolved.targets);
        resolved.note(failed);
        if strict && let Some(e) = resolved.take_failure() {
            return Err(e);
        }
        self.publish(resolved.statuses(|link| self.hooks.sides(link).collect()));
        Ok(())
    }

    /// Tells the kernel side about interfaces and MTU.
    fn write_lan(&mut self, resolved: &Resolved, links: &[Link]) -> Result<(), Error> {
        let mut listed = [0; MAX_LAN_PARAM];
        for (slot, index) in listed.iter_mut().zip(resolved.targets.keys()) {
            *slot = *index;
        }
        if self.param.lan_ifindex != listed {
            self.param.lan_ifindex = listed;
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
        self.hooks.detach_all(&mut self.rtnl);
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
