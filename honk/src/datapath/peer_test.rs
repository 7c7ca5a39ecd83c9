//! The test behind `redirect_peer: auto`: one datagram through `bpf_redirect_peer`.
//!
//! Two scratch namespaces are joined by a veth pair. In the first, a program on the loopback
//! sends everything to the other end of the pair; a datagram to an address both namespaces
//! have must then arrive at a socket in the second. A kernel whose helper leaves the packet
//! unusable, or that has no such helper, fails this and does without.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use super::{bpf, error::Error};
use crate::{
    netlink::{End, Pair, Rtnl, Side},
    netns::{self, Netns},
};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// Delivery happens within the sending system call; this only bounds a failure.
const PATIENCE: Duration = Duration::from_millis(200);
const NEAR: &str = "near";
const FAR: &str = "far";

/// Whether the helper works. Anything that goes wrong means no.
pub(super) fn works() -> bool {
    match attempt(bpf::load_redirect_peer) {
        Ok(()) => true,
        Err(e) => {
            tracing::debug!(target: super::TARGET, error = %e, "bpf_redirect_peer is not used");
            false
        }
    }
}

/// Sends one datagram through the program `load` makes for the near end of the pair.
fn attempt(load: fn(u32) -> io::Result<OwnedFd>) -> Result<(), Error> {
    let host = netns::current_inode()?;
    let near = Netns::spawn(host)?;
    let far = Arc::new(Netns::spawn(host)?);
    let inner = Arc::clone(&far);
    near.run(move || join(&inner))??;
    let receiver = far.run(|| receiver(FAR))??;
    let target = receiver
        .local_addr()
        .map_err(Error::io("read the port of a trial socket"))?;
    near.run(move || send(target, load))??;
    let mut byte = [0];
    receiver
        .recv_from(&mut byte)
        .map(drop)
        .map_err(Error::io("receive a redirected datagram"))
}

/// Creates the pair; run in the near namespace.
fn join(far: &Netns) -> Result<(), Error> {
    Ok(Rtnl::open()?.create_pair(&Pair {
        host: End {
            name: NEAR,
            mac: [2, 0, 0, 0, 0, 1],
        },
        peer: End {
            name: FAR,
            mac: [2, 0, 0, 0, 0, 2],
        },
        peer_netns: far.fd(),
        mtu: 1500,
        alias: super::pair::ALIAS,
    })?)
}

/// Brings up the link and a socket on [`ADDRESS`].
fn receiver(link: &str) -> Result<UdpSocket, Error> {
    let mut rtnl = Rtnl::open()?;
    for name in ["lo", link] {
        let found = rtnl.link(name)?;
        let index = found.map(|l| l.index).ok_or_else(missing)?;
        rtnl.set_up(index)?;
        if name == "lo" {
            rtnl.add_address(index, ADDRESS, 32)?;
        }
    }
    for (key, value) in [("accept_local", "1"), ("rp_filter", "0")] {
        for scope in ["all", link] {
            let path = format!("/proc/sys/net/ipv4/conf/{scope}/{key}");
            let written = std::fs::write(&path, value);
            written.map_err(Error::io(format!("write {path}")))?;
        }
    }
    let socket = UdpSocket::bind(SocketAddr::new(ADDRESS, 0));
    socket
        .and_then(|s| s.set_read_timeout(Some(PATIENCE)).map(|()| s))
        .map_err(Error::io("open a trial socket"))
}

/// Sends a datagram that the loopback's program redirects; run in the near namespace.
fn send(target: SocketAddr, load: fn(u32) -> io::Result<OwnedFd>) -> Result<(), Error> {
    // Also brings everything up on this side. Its own socket would get the datagram if the
    // program let it pass.
    let socket = receiver(NEAR)?;
    let mut rtnl = Rtnl::open()?;
    let lo = rtnl.link("lo")?.ok_or_else(missing)?.index;
    let near = rtnl.link(NEAR)?.ok_or_else(missing)?.index;
    let program = load(near).map_err(Error::io("load a trial program"))?;
    let _link = bpf::attach_tcx(program.as_fd(), lo, Side::Ingress, bpf::Order::Last)
        .map_err(Error::io("attach a trial program"))?;
    socket
        .send_to(&[1], target)
        .map(drop)
        .map_err(Error::io("send a trial datagram"))
}

fn missing() -> Error {
    Error::io("find a trial link")(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_does_not_arrive_is_a_no() {
        if let Err(e) = Netns::spawn(netns::current_inode().unwrap()) {
            return eprintln!("skipped: {e}");
        }
        let e = attempt(|_| bpf::load_pass()).unwrap_err();
        assert!(
            e.to_string().contains("receive a redirected datagram"),
            "{e}"
        );
        let e = attempt(|_| Err(io::ErrorKind::Unsupported.into())).unwrap_err();
        assert!(e.to_string().contains("load a trial program"), "{e}");
    }
}
