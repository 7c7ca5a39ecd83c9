//! Notice that the network around the gateway changed: links, addresses, default routes. What
//! goes wrong with nodes before such a change may be right after it.

use std::{io, os::fd::AsFd as _};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use tokio::net::UdpSocket;

use super::Error;

const GROUPS: [u32; 5] = [
    1,  // RTNLGRP_LINK
    5,  // RTNLGRP_IPV4_IFADDR
    7,  // RTNLGRP_IPV4_ROUTE
    9,  // RTNLGRP_IPV6_IFADDR
    11, // RTNLGRP_IPV6_ROUTE
];

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
/// Length of a message header; the body of a route follows.
const HEADER: usize = 16;

/// A subscription of the namespace it was opened in.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Any datagram socket can be waited for as one; this one is read only.
    socket: UdpSocket,
}

impl Changes {
    /// Must be called inside a tokio runtime.
    pub(crate) fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            socket.set_non_blocking(true)?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            let socket = socket.as_fd().try_clone_to_owned()?;
            let socket = UdpSocket::from_std(socket.into())?;
            Ok(Self { socket })
        };
        open().map_err(|e| Error::new("subscribe to changes", e))
    }

    /// Waits for a change that matters. What was lost in an overflow might have.
    pub(crate) async fn next(&self) -> io::Result<()> {
        let mut buffer = [0u8; 16384];
        loop {
            match self.socket.recv(&mut buffer).await {
                Ok(n) if matters(&buffer[..n]) => return Ok(()),
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }
}

/// Whether a datagram holds a message about something else than a route that is no default.
fn matters(mut messages: &[u8]) -> bool {
    while let Some(header) = messages.get(..HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let prefix = messages.get(HEADER + 1).copied();
        let route = matches!(kind, RTM_NEWROUTE | RTM_DELROUTE);
        if !route || prefix == Some(0) {
            return true;
        }
        let next = length.max(HEADER).next_multiple_of(4);
        messages = messages.get(next..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, prefix: u8) -> Vec<u8> {
        let mut out = vec![0; 28];
        out[..4].copy_from_slice(&28u32.to_ne_bytes());
        out[4..6].copy_from_slice(&kind.to_ne_bytes());
        out[17] = prefix;
        out
    }

    #[test]
    fn of_routes_only_defaults_matter() {
        for (kind, prefix, want) in [
            (RTM_NEWROUTE, 0, true),
            (RTM_DELROUTE, 0, true),
            (RTM_NEWROUTE, 24, false),
            (RTM_DELROUTE, 64, false),
            (16, 24, true),
            (20, 24, true),
        ] {
            assert_eq!(matters(&message(kind, prefix)), want, "{kind} /{prefix}");
        }
        let two = [message(RTM_NEWROUTE, 24), message(RTM_NEWROUTE, 0)].concat();
        assert!(matters(&two));
        for cut in 0..two.len() {
            let _ = matters(&two[..cut]);
        }
        assert!(!matters(&[]));
    }
}
