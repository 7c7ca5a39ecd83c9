//! The host thread's care for the pair: its two ends and the programs on them.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use super::{
    super::{
        TARGET, bpf,
        error::Error,
        hooks::{self, Method},
        pair::{self, HostEnd},
    },
    Host,
};
use crate::netlink::{Rtnl, Side};

/// Attachments to the pair; with `clsact` they have no descriptor and die with the link.
#[derive(Debug, Default)]
pub(super) struct PairHooks {
    pub(super) dev0: Option<OwnedFd>,
    pub(super) peer: Option<OwnedFd>,
    pub(super) lookup: Option<OwnedFd>,
}

impl Host {
    /// Makes the pair and attaches its programs.
    pub(super) fn build_pair(&mut self) -> Result<(), Error> {
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
                // What is left of an earlier attachment would run twice.
                let _ = self.rtnl.delete_clsact(state.host);
                let inner = self.shared.netns.run({
                    let programs = Arc::clone(&programs);
                    move || {
                        let mut rtnl = Rtnl::open()?;
                        let _ = rtnl.delete_clsact(peer);
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

    /// Compares the pair with what it should be, and repairs it.
    pub(super) fn reconcile_pair(&mut self) -> Result<(), Error> {
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
}
