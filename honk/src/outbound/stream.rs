//! Marked sockets as tokio streams, for the slow paths: resolvers, associations, probes.

use std::{io, net::SocketAddr};

use tokio::net::{TcpStream, UdpSocket};

use crate::socket::{self, Kind, Mark};

/// Connects a stream.
pub(crate) async fn connect(peer: SocketAddr, mark: Mark) -> io::Result<TcpStream> {
    let fd = socket::open(peer, Kind::Stream, mark)?;
    let done = socket::connect(&fd, peer)?;
    let stream = TcpStream::from_std(fd.into())?;
    if !done {
        stream.writable().await?;
        socket::take_error(&stream)?;
    }
    Ok(stream)
}

/// A datagram socket of the family of `peer`, not connected.
pub(crate) fn udp(peer: SocketAddr, mark: Mark) -> io::Result<UdpSocket> {
    let fd = socket::open(peer, Kind::Datagram, mark)?;
    UdpSocket::from_std(fd.into())
}
