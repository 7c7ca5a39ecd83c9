//! The start sequence. Every step before the gate can be undone, and a failure undoes them.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    sync::{Arc, Mutex, mpsc::sync_channel},
};

use arc_swap::ArcSwap;
use honk_common::{
    outbound::CONTROL,
    param::{FEATURE_REDIRECT_PEER, OFFLOAD_DIRECT, Param},
    tables::RouteTables,
};

use super::{
    Datapath, Inner, RedirectPeer, Settings, Shared, TARGET,
    bank::Banks,
    carry,
    claims::Claims,
    domains::Domains,
    error::Error,
    events::{Events, Seen},
    hooks::Hooks,
    host::Host,
    janitor::Tally,
    keeper::Keeper,
    lan::Patterns,
    listeners, local,
    map::Map,
    object::{self, Maps, Object},
    owner, pair, peer_test,
    pins::{self, Mounted, Pins},
    probe, process, status,
    sysctl::Sysctls,
    wake::Wake,
};
use crate::{
    flow::Listeners,
    netlink::Rtnl,
    netns::{self, Netns},
};

/// Requests waiting for the host thread.
const QUEUE: usize = 16;

pub(super) fn start(settings: Settings) -> Result<(Datapath, Listeners), Error> {
    probe::capabilities()?;
    probe::platform()?;
    let inode = netns::current_inode()?;
    let mut rtnl = Rtnl::open()?;
    let owner = owner::claim(&mut rtnl)?;
    pair::remove_stale(&mut rtnl)?;
    let netns = Netns::spawn(inode)?;
    let redirect_peer = match settings.redirect_peer {
        RedirectPeer::Auto => peer_test::works(),
        RedirectPeer::On => true,
        RedirectPeer::Off => false,
    };
    let features = probe::features(&netns, redirect_peer)?;
    let Object {
        maps,
        programs,
        events,
    } = object::load(settings.flow_entries, settings.xdp_guard)?;
    let programs = Arc::new(programs);
    let (pins, mounted) = find_pins(&settings, inode)?;
    if let Some(pins) = &pins {
        carry_over(pins, &maps);
    }
    let hooks = Hooks::new(
        Arc::clone(&programs),
        features.method,
        settings.tcx_first,
        pins,
    );
    let shared = Arc::new(Shared {
        maps,
        programs,
        netns,
        features,
        cpus: status::possible_cpus()?,
        claims: Claims::default(),
        local: local::Local::default(),
        banks: Mutex::new(Banks::new(settings.xdp_guard)),
        domains: Domains::default(),
        groups: Mutex::new(HashMap::new()),
        interfaces: ArcSwap::default(),
        tally: Tally::default(),
        events: Seen::default(),
        flags: Mutex::default(),
    });
    // Until real rules come, everything is the daemon's to decide.
    {
        let mut banks = super::lock(&shared.banks);
        let first = RouteTables::fallback_only(CONTROL);
        let generation = banks.stage(&shared.maps, &shared.domains, &first)?;
        banks.activate(&shared.maps, &shared.domains, generation)?;
    }
    let flags = shared.maps.flags.put(&0, &OFFLOAD_DIRECT);
    flags.map_err(Error::io("write the flags"))?;

    if !features.jit {
        tracing::warn!(target: TARGET, "net.core.bpf_jit_enable is 0: every packet costs many times more");
    }
    let mut param = Param {
        own_mark: settings.own_mark,
        own_tgid: std::process::id(),
        features: if redirect_peer {
            FEATURE_REDIRECT_PEER
        } else {
            0
        },
        nonce: nonce()?,
        ..Param::default()
    };
    process::locate(&mut param);
    let mut host = Host::new(Arc::clone(&shared), rtnl, hooks, param)?;
    host.patterns = Patterns {
        lan: settings.lan.clone(),
        wan: settings.wan.clone(),
    };
    host.block = settings.on_crash_block;
    host.owner = owner;
    host.mounted = mounted;
    let sysctls = Sysctls::open(&settings.runtime_dir)?;
    if settings.sysctls {
        host.sysctls = Some(sysctls);
    } else if let Some(warning) = sysctls.check() {
        tracing::warn!(target: TARGET, "{warning}");
    }
    let built = host
        .build()
        .and_then(|()| open_listeners(&shared, &settings));
    let listeners = match built {
        Ok(listeners) => listeners,
        Err(e) => {
            undo(&mut host);
            return Err(e);
        }
    };
    let datapath = match spawn(shared, host, Events::new(events)) {
        Ok(datapath) => datapath,
        Err((mut host, e)) => {
            if let Some(host) = &mut host {
                undo(host);
            }
            return Err(e);
        }
    };
    let list = datapath.0.shared.features.list();
    tracing::info!(target: TARGET, features = ?list, "datapath ready, gate closed");
    Ok((datapath, listeners))
}

fn undo(host: &mut Host) {
    if let Err(e) = host.teardown() {
        tracing::error!(target: TARGET, error = %e, "start failed, and so did its undoing");
    }
    host.shared.netns.stop();
}

/// Where links of a dead daemon may be, and ours go. Blocking needs a bpffs; otherwise one is
/// only looked at.
fn find_pins(settings: &Settings, inode: u64) -> Result<(Option<Pins>, Option<Mounted>), Error> {
    let pins = Pins::new(&settings.pin_root, inode);
    if settings.on_crash_block {
        let mounted = pins::ensure_bpffs(&settings.pin_root)?;
        Ok((Some(pins), mounted))
    } else {
        Ok((pins::is_bpffs(&settings.pin_root).then_some(pins), None))
    }
}

/// Takes over what a dead daemon knew. A table that cannot be read costs its idle connections
/// their reset, no more, so it does not stop a start.
fn carry_over(pins: &Pins, maps: &Maps) {
    let Some(old) = pins.flows() else { return };
    match Map::new(old).and_then(|old| carry::adopt(&old, &maps.flow)) {
        Ok(adopted) => {
            let (flows, full) = (adopted.flows, adopted.full);
            tracing::info!(target: TARGET, flows, full, "connections of a dead daemon will be reset");
        }
        Err(e) => tracing::warn!(target: TARGET, error = %e, "cannot read a dead daemon's flows"),
    }
}

fn open_listeners(shared: &Shared, settings: &Settings) -> Result<Listeners, Error> {
    let port = settings.tproxy_port;
    let v6 = shared.features.v6;
    let udp = match settings.udp_sockets {
        0 => listeners::auto_udp(),
        n => n,
    };
    let listeners = shared.netns.run(move || listeners::open(port, udp, v6))??;
    listeners::publish(&shared.maps.socks, &listeners, udp)?;
    Ok(listeners)
}

type SpawnError = (Option<Box<Host>>, Error);

fn spawn(shared: Arc<Shared>, host: Host, events: Events) -> Result<Datapath, SpawnError> {
    let fail = |what: &str, host, e: io::Error| (host, Error::io(what)(e));
    let mut host = Some(Box::new(host));
    let wake = match Wake::new() {
        Ok(wake) => Arc::new(wake),
        Err(e) => return Err(fail("create an event descriptor", host, e)),
    };
    let keeper = match Keeper::spawn(Arc::clone(&shared), events) {
        Ok(keeper) => keeper,
        Err(e) => return Err(fail("start the keeper thread", host, e)),
    };
    let (asks, queue) = sync_channel(QUEUE);
    let slot = Arc::new(Mutex::new(host.take()));
    let thread = std::thread::Builder::new()
        .name("honk-host".to_owned())
        .spawn({
            let (slot, wake) = (Arc::clone(&slot), Arc::clone(&wake));
            move || {
                if let Some(host) = super::lock(&slot).take() {
                    host.run(&queue, &wake);
                }
            }
        });
    match thread {
        Ok(thread) => Ok(Datapath(Arc::new(Inner {
            shared,
            asks,
            wake,
            host: Mutex::new(Some(thread)),
            keeper,
        }))),
        Err(e) => {
            keeper.stop();
            let host = super::lock(&slot).take();
            Err(fail("start the host thread", host, e))
        }
    }
}

/// A byte that tells this load's hand-offs from an earlier one's.
fn nonce() -> Result<u8, Error> {
    let mut byte = [0];
    File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut byte))
        .map_err(Error::io("read /dev/urandom"))?;
    Ok(byte[0])
}
