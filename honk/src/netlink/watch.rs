//! Notice that links or addresses changed. Events only wake; state is read by dump.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::Error;

/// Links and addresses. Routes only where somebody follows them: a full BGP table would wake the
/// host thread all day.
const GROUPS: [u32; 3] = [
    1, // RTNLGRP_LINK
    5, // RTNLGRP_IPV4_IFADDR
    9, // RTNLGRP_IPV6_IFADDR
];

const ROUTES: [u32; 2] = [
    7,  // RTNLGRP_IPV4_ROUTE
    11, // RTNLGRP_IPV6_ROUTE
];

/// A subscription of the namespace it was opened in.
#[derive(Debug)]
pub(crate) struct Watch {
    socket: Socket,
}

impl Watch {
    pub(crate) fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            socket.set_non_blocking(true)?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(|e| Error::new("subscribe to changes", e))?,
        })
    }

    /// Also notices changes of routes from now on.
    pub(crate) fn follow_routes(&self) -> Result<(), Error> {
        let join = || -> io::Result<()> {
            ROUTES
                .iter()
                .try_for_each(|group| self.socket.add_membership(*group))
        };
        join().map_err(|e| Error::new("subscribe to routes", e))
    }

    /// To be polled for reading.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads everything that is pending; says whether there was something. An overflow of the
    /// queue counts as an event: the dump that follows repairs it.
    pub(crate) fn drain(&self) -> bool {
        let mut buffer = [0u8; 8192];
        let mut any = false;
        loop {
            let mut room = &mut buffer[..];
            match self.socket.recv(&mut room, 0) {
                Ok(0) => return any,
                Ok(_) => any = true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(_) => return any,
            }
        }
    }
}
