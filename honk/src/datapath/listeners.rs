//! Sockets of the private namespace: the transparent listeners and the sockets replies leave
//! from. All functions run in the namespace thread; the sockets work from any thread.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
};

use honk_common::param::{SOCK_TCP4, SOCK_TCP6, SOCK_UDP4, SOCK_UDP6};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{error::Error, object::Socks};
use crate::flow::Listeners;

const BACKLOG: i32 = 4096;
/// Receive buffer of a UDP listener; bursts are absorbed here.
const RECEIVE_BYTES: libc::c_int = 8 << 20;
const IPV6_TRANSPARENT: libc::c_int = 75;
const IPV6_RECVORIGDSTADDR: libc::c_int = 74;

/// UDP sockets per family when the configuration leaves it open.
pub(super) fn auto_udp() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(4))
}

/// Opens all listeners: TCP per family, then `udp` sockets per family.
pub(super) fn open(port: u16, udp: usize, v6: bool) -> Result<Listeners, Error> {
    let fail = Error::io(format!("open the transparent listeners on port {port}"));
    let make = || -> io::Result<Listeners> {
        let mut listeners = Listeners {
            tcp: vec![tcp(Domain::IPV4, port)?],
            udp: Vec::with_capacity(udp * 2),
        };
        for _ in 0..udp {
            listeners.udp.push(datagram(Domain::IPV4, port)?);
        }
        if v6 {
            listeners.tcp.push(tcp(Domain::IPV6, port)?);
            for _ in 0..udp {
                listeners.udp.push(datagram(Domain::IPV6, port)?);
            }
        }
        Ok(listeners)
    };
    make().map_err(fail)
}

/// Tells the kernel which sockets take new flows. One UDP socket per family is enough: the
/// kernel chooses again inside its group.
pub(super) fn publish(socks: &Socks, listeners: &Listeners, udp: usize) -> Result<(), Error> {
    let put = |slot, socket| {
        socks
            .publish(slot, socket)
            .map_err(Error::io("publish a listener"))
    };
    for (slot, socket) in [SOCK_TCP4, SOCK_TCP6].into_iter().zip(&listeners.tcp) {
        put(slot, socket.as_fd())?;
    }
    let firsts = listeners.udp.iter().step_by(udp.max(1));
    for (slot, socket) in [SOCK_UDP4, SOCK_UDP6].into_iter().zip(firsts) {
        put(slot, socket.as_fd())?;
    }
    Ok(())
}

/// A socket that can send with any source address and port `port`.
pub(super) fn reply(v6: bool, port: u16, addr: Option<IpAddr>) -> io::Result<std::net::UdpSocket> {
    let domain = domain(v6);
    let socket = transparent(domain, Type::DGRAM, Protocol::UDP)?;
    let local = addr.unwrap_or_else(|| any(domain));
    socket.bind(&SockAddr::from(SocketAddr::new(local, port)))?;
    Ok(socket.into())
}

fn tcp(domain: Domain, port: u16) -> io::Result<std::net::TcpListener> {
    let socket = transparent(domain, Type::STREAM, Protocol::TCP)?;
    socket.bind(&SockAddr::from(SocketAddr::new(any(domain), port)))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn datagram(domain: Domain, port: u16) -> io::Result<std::net::UdpSocket> {
    let socket = transparent(domain, Type::DGRAM, Protocol::UDP)?;
    socket.set_reuse_port(true)?;
    if domain == Domain::IPV6 {
        option(&socket, libc::SOL_IPV6, IPV6_RECVORIGDSTADDR, 1)?;
    } else {
        option(&socket, libc::SOL_IP, libc::IP_RECVORIGDSTADDR, 1)?;
    }
    option(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_RCVBUFFORCE,
        RECEIVE_BYTES,
    )?;
    socket.bind(&SockAddr::from(SocketAddr::new(any(domain), port)))?;
    Ok(socket.into())
}

fn transparent(domain: Domain, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(domain, kind.nonblocking().cloexec(), Some(protocol))?;
    socket.set_reuse_address(true)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true)?;
        option(&socket, libc::SOL_IPV6, IPV6_TRANSPARENT, 1)?;
    } else {
        option(&socket, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?;
    }
    Ok(socket)
}

fn option(
    socket: &Socket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option value is a live c_int and its size is passed along.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn domain(v6: bool) -> Domain {
    if v6 { Domain::IPV6 } else { Domain::IPV4 }
}

fn any(domain: Domain) -> IpAddr {
    if domain == Domain::IPV6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}
