//! Who owns the datapath of a network namespace.
//!
//! Run directories differ between daemons, the namespace does not: an abstract socket belongs
//! to it and goes with the process, however that ends. Anybody may take such a name, so it
//! counts only together with a pair, which takes privileges to make. Called by `start`.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

use super::{error::Error, pair};
use crate::netlink::Rtnl;

const NAME: &[u8] = b"honk-datapath";

/// Held as long as the datapath runs.
#[derive(Debug)]
pub(super) struct Owner {
    _socket: UnixDatagram,
}

/// Claims the calling thread's namespace; a pair that belongs to a running daemon is an error.
pub(super) fn claim(rtnl: &mut Rtnl) -> Result<Option<Owner>, Error> {
    let bound = SocketAddr::from_abstract_name(NAME).and_then(|a| UnixDatagram::bind_addr(&a));
    match bound {
        Ok(socket) => Ok(Some(Owner { _socket: socket })),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => match rtnl.link(pair::HOST)? {
            Some(link) if pair::is_ours(&link) => Err(Error::InUse(pair::HOST)),
            // Making the pair decides between daemons that start at the same moment.
            _ => Ok(None),
        },
        Err(e) => Err(Error::io("claim the network namespace")(e)),
    }
}
