//! The veth pair between the host and the private namespace, and everything configured inside.
//!
//! `honk0` (host) has no address; `honk0p` (private) has one per family so that ICMP errors
//! have a source. What is inside is written explicitly: a new namespace inherits IPv4 settings
//! from the initial one.

use std::{fs, io, net::IpAddr, path::PathBuf};

use super::error::Error;
use crate::{
    netlink::{self, End, Family, Link, Pair, Rtnl},
    netns::Netns,
};

pub(super) const HOST: &str = "honk0";
pub(super) const PEER: &str = "honk0p";
/// Marks a link as made by honk; one of the same name without it is somebody else's.
pub(super) const ALIAS: &str = "honk-owned";
/// Neither address may look like the hand-off address, which starts 02:68:6e.
const HOST_MAC: [u8; 6] = [0x02, 0x68, 0x6f, 0x6e, 0x6b, 0x00];
const PEER_MAC: [u8; 6] = [0x02, 0x68, 0x6f, 0x6e, 0x6b, 0x01];
/// Lets jumbo and coalesced frames in; the route's MTU keeps what leaves small.
pub(super) const MTU: u32 = 65_535;

pub(super) const TABLE: u8 = 100;
const PRIORITY: u32 = 100;
const OWN4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 0, 11));
const GATEWAY4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 0, 1));
const OWN6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2));
const GATEWAY6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

/// Settings inside, below `net/`. Written again at every reconciliation.
const INSIDE4: &[(&str, &str)] = &[
    ("rp_filter", "0"),
    ("src_valid_mark", "0"),
    ("accept_local", "1"),
    ("send_redirects", "0"),
    ("arp_ignore", "8"),
];
const INSIDE: &[(&str, &str)] = &[
    ("ipv4/ip_early_demux", "1"),
    ("ipv4/tcp_early_demux", "1"),
    ("ipv4/tcp_syncookies", "1"),
    ("ipv4/tcp_mtu_probing", "1"),
    ("ipv4/tcp_max_syn_backlog", "4096"),
    ("core/somaxconn", "4096"),
];
const INSIDE6: &[(&str, &str)] = &[
    ("accept_ra", "0"),
    ("accept_dad", "0"),
    ("autoconf", "0"),
    ("router_solicitations", "0"),
    ("forwarding", "0"),
    ("disable_ipv6", "0"),
];
/// On the host side of the pair.
const OUTSIDE: &[(&str, &str)] = &[
    ("ipv6/conf/honk0/disable_ipv6", "1"),
    ("ipv4/conf/honk0/rp_filter", "0"),
    ("ipv4/conf/honk0/arp_ignore", "8"),
];

/// The pair as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) host: u32,
    pub(super) host_mac: [u8; 6],
    pub(super) peer: u32,
    pub(super) peer_mac: [u8; 6],
}

/// Deletes a pair an earlier daemon left (whether it is alive is the question of `owner`). A foreign link of that name is refused.
pub(super) fn remove_stale(rtnl: &mut Rtnl) -> Result<bool, Error> {
    let Some(link) = rtnl.link(HOST)? else {
        return Ok(false);
    };
    if !is_ours(&link) {
        return Err(Error::ForeignLink(HOST));
    }
    delete(rtnl, link.index)?;
    Ok(true)
}

pub(super) fn is_ours(link: &Link) -> bool {
    link.alias.as_deref() == Some(ALIAS)
}

/// Deletes the host end and with it the pair; already gone is fine.
pub(super) fn delete(rtnl: &mut Rtnl, index: u32) -> Result<(), Error> {
    match rtnl.delete_link(index) {
        Err(e) if e.is_gone() => Ok(()),
        other => Ok(other?),
    }
}

/// Creates the pair and configures both sides.
pub(super) fn create(rtnl: &mut Rtnl, netns: &Netns, mtu: u32, v6: bool) -> Result<State, Error> {
    let created = rtnl.create_pair(&Pair {
        host: End {
            name: HOST,
            mac: HOST_MAC,
        },
        peer: End {
            name: PEER,
            mac: PEER_MAC,
        },
        peer_netns: netns.fd(),
        mtu: MTU,
        alias: ALIAS,
    });
    match created {
        Err(e) if e.errno() == Some(libc::EEXIST) => {
            // Somebody made one since the stale one was looked for.
            let ours = rtnl.link(HOST)?.is_some_and(|l| is_ours(&l));
            return Err(if ours {
                Error::InUse(HOST)
            } else {
                Error::ForeignLink(HOST)
            });
        }
        other => other.map_err(|e| unsupported(e, "veth links", "load the module veth"))?,
    }
    let host = rtnl
        .link(HOST)?
        .ok_or_else(|| Error::io("find the new link honk0")(io::ErrorKind::NotFound.into()))?;
    let finish = || {
        for (key, value) in OUTSIDE {
            put(key, value)?;
        }
        let host_mac = host.mac.unwrap_or(HOST_MAC);
        let (peer, peer_mac) = netns.run(move || configure(host_mac, mtu, v6))??;
        Ok(State {
            host: host.index,
            host_mac,
            peer,
            peer_mac,
        })
    };
    let done = finish().and_then(|state| {
        rtnl.set_up(state.host)?;
        Ok(state)
    });
    if done.is_err() {
        // The error that matters is the one above.
        let _ = delete(rtnl, host.index);
    }
    done
}

/// Everything inside, run by the namespace thread.
fn configure(host_mac: [u8; 6], mtu: u32, v6: bool) -> Result<(u32, [u8; 6]), Error> {
    let mut rtnl = Rtnl::open()?;
    let lo = find(&mut rtnl, "lo")?;
    let peer = find(&mut rtnl, PEER)?;
    rtnl.set_up(lo.index)?;
    put_inside(v6)?;
    rtnl.set_up(peer.index)?;
    rtnl.add_address(peer.index, OWN4, 32)?;
    rtnl.add_link_route(peer.index, GATEWAY4)?;
    if v6 {
        rtnl.add_address(peer.index, OWN6, 64)?;
    }
    put_neighbours(&mut rtnl, peer.index, host_mac, v6)?;
    put_default(&mut rtnl, peer.index, mtu, v6)?;
    for family in families(v6) {
        rtnl.add_local_default(family, lo.index, TABLE)?;
        match rtnl.add_iif_rule(family, PEER, TABLE, PRIORITY) {
            // The rule survives the deletion of the link it names.
            Err(e) if e.errno() == Some(libc::EEXIST) => {}
            other => other.map_err(|e| {
                let remedy = "boot a kernel built with CONFIG_IP_MULTIPLE_TABLES=y";
                unsupported(e, "policy routing", remedy)
            })?,
        }
    }
    Ok((peer.index, peer.mac.unwrap_or(PEER_MAC)))
}

/// Sets the MTU of what leaves the namespace. Run inside.
pub(super) fn set_mtu(peer: u32, mtu: u32, v6: bool) -> Result<(), Error> {
    put_default(&mut Rtnl::open()?, peer, mtu, v6)
}

/// Reads the inner end and repairs settings; gives its index and MAC. Run inside.
pub(super) fn inspect(host_mac: [u8; 6], v6: bool) -> Result<Option<(u32, [u8; 6])>, Error> {
    let mut rtnl = Rtnl::open()?;
    let Some(peer) = rtnl.link(PEER)? else {
        return Ok(None);
    };
    put_inside(v6)?;
    if !peer.up {
        // Without its addresses and routes it is of no use: the caller makes a new pair.
        return Ok(None);
    }
    put_neighbours(&mut rtnl, peer.index, host_mac, v6)?;
    Ok(peer.mac.map(|mac| (peer.index, mac)))
}

fn put_default(rtnl: &mut Rtnl, peer: u32, mtu: u32, v6: bool) -> Result<(), Error> {
    rtnl.set_default(peer, GATEWAY4, mtu)?;
    if v6 {
        rtnl.set_default(peer, GATEWAY6, mtu.max(1280))?;
    }
    Ok(())
}

fn put_neighbours(rtnl: &mut Rtnl, peer: u32, mac: [u8; 6], v6: bool) -> Result<(), Error> {
    rtnl.set_neighbour(peer, GATEWAY4, mac)?;
    if v6 {
        rtnl.set_neighbour(peer, GATEWAY6, mac)?;
    }
    Ok(())
}

fn families(v6: bool) -> impl Iterator<Item = Family> {
    std::iter::once(Family::V4).chain(v6.then_some(Family::V6))
}

fn put_inside(v6: bool) -> Result<(), Error> {
    for scope in ["all", PEER] {
        for (key, value) in INSIDE4 {
            put(&format!("ipv4/conf/{scope}/{key}"), value)?;
        }
    }
    for (key, value) in INSIDE {
        put(key, value)?;
    }
    if v6 {
        for (key, value) in INSIDE6 {
            put(&format!("ipv6/conf/{PEER}/{key}"), value)?;
        }
    }
    Ok(())
}

/// Writes a setting of the calling thread's namespace unless it has the value already. A key
/// the kernel does not know is one it does not need.
fn put(key: &str, value: &str) -> Result<(), Error> {
    let path = PathBuf::from("/proc/sys/net").join(key);
    match fs::read_to_string(&path) {
        Ok(now) if now.trim() == value => return Ok(()),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Error::Sysctl { path, source }),
    }
    fs::write(&path, value).map_err(|source| Error::Sysctl { path, source })
}

fn unsupported(e: netlink::Error, feature: &str, remedy: &'static str) -> Error {
    match e.errno() {
        Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT) => Error::Unsupported {
            feature: feature.to_owned(),
            remedy,
        },
        _ => e.into(),
    }
}

fn find(rtnl: &mut Rtnl, name: &str) -> Result<Link, Error> {
    rtnl.link(name)?
        .ok_or_else(|| Error::io(format!("find link {name}"))(io::ErrorKind::NotFound.into()))
}

/// Whether the kernel speaks IPv6 at all.
pub(super) fn has_v6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6/conf").is_dir()
}

/// What of the host end needs attention: gone or foreign, or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostEnd {
    Missing,
    Down,
    Fine([u8; 6]),
}

/// Looks at the host end.
pub(super) fn host_end(links: &[Link], state: &State) -> HostEnd {
    match links.iter().find(|l| l.index == state.host) {
        Some(l) if !l.up || l.mtu != MTU => HostEnd::Down,
        Some(l) => HostEnd::Fine(l.mac.unwrap_or(state.host_mac)),
        None => HostEnd::Missing,
    }
}

/// Restores what is fixed about the host end.
pub(super) fn repair_host(rtnl: &mut Rtnl, state: &State) -> Result<(), netlink::Error> {
    rtnl.set_mac_mtu(state.host, state.host_mac, MTU)?;
    rtnl.set_up(state.host)
}
