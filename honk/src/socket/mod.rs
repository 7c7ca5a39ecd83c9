//! Sockets of the flow path: the one place that opens them, their options, batches of
//! datagrams, pipes.
//!
//! Every socket the daemon sends from carries the own mark, or the kernel programs would
//! intercept it again and the flow would loop. That is why [`open`] is the only constructor;
//! a test below looks for others. The private namespace makes its own sockets elsewhere.

pub(crate) mod mmsg;
pub(crate) mod origdst;
pub(crate) mod pipe;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        self, AddressFamily, SocketAddrAny, SocketFlags, SocketType,
        sockopt::{
            self, set_socket_keepalive, set_socket_linger, set_socket_recv_buffer_size,
            set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
            set_socket_send_buffer_size_force, set_tcp_congestion, set_tcp_keepcnt,
            set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay, set_tcp_quickack,
            set_tcp_user_timeout,
        },
    },
};

/// `SO_MARK` of a socket: the own mark, with the mark of the rule ORed in. Zero sets none,
/// which only tests want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mark(pub(crate) u32);

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Datagram,
}

/// Receive and send buffers asked for on datagram sockets (outbounds.md 8.1).
const UDP_BUFFER: usize = 8 << 20;

/// Congestion control of connections to clients.
const LAN_CONGESTION: &str = "cubic";

const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Unacknowledged data may age this long before the connection counts as dead, ms.
const USER_TIMEOUT_MS: u32 = 30_000;

/// Opens a non-blocking socket for the family of `peer`.
pub(crate) fn open(peer: SocketAddr, kind: Kind, mark: Mark) -> io::Result<OwnedFd> {
    let family = match peer {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let (kind, flags) = match kind {
        Kind::Stream => (SocketType::STREAM, SocketFlags::NONBLOCK),
        Kind::Datagram => (SocketType::DGRAM, SocketFlags::NONBLOCK),
    };
    let fd = net::socket_with(family, kind, flags | SocketFlags::CLOEXEC, None)?;
    if mark != Mark(0) {
        socket2::SockRef::from(&fd).set_mark(mark.0)?;
    }
    if kind == SocketType::STREAM {
        set_tcp_nodelay(&fd, true)?;
    } else {
        grow_buffers(&fd);
    }
    Ok(fd)
}

/// Makes a transparent datagram socket send to one target in the name of the client it is bound
/// to, with the client's service class. Returns the longest payload that fits into one packet.
pub(crate) fn speak_for(fd: &impl AsFd, target: SocketAddr, dscp: u8) -> io::Result<usize> {
    let class = dscp << 2;
    let (mtu, headers) = match target {
        SocketAddr::V4(_) => {
            sockopt::set_ip_tos(fd, class)?;
            net::connect(fd, &target)?;
            (sockopt::ip_mtu(fd)?, 20 + 8)
        }
        SocketAddr::V6(_) => {
            sockopt::set_ipv6_tclass(fd, class.into())?;
            net::connect(fd, &target)?;
            (sockopt::ipv6_mtu(fd)?, 40 + 8)
        }
    };
    Ok(usize::try_from(mtu).unwrap_or(0).saturating_sub(headers))
}

/// Starts a connect: true when it is complete already, false while it is under way.
pub(crate) fn connect(fd: &OwnedFd, peer: SocketAddr) -> io::Result<bool> {
    match net::connect(fd, &peer) {
        Ok(()) => Ok(true),
        Err(Errno::INPROGRESS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The error a socket holds, cleared by reading it.
pub(crate) fn take_error(fd: &impl AsFd) -> io::Result<()> {
    sockopt::socket_error(fd)??;
    Ok(())
}

/// A connection a client opened through us.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) fd: OwnedFd,
    pub(crate) client: SocketAddr,
    /// The local address of the connection is the address the client wanted: the datapath
    /// delivers to the listener without rewriting anything.
    pub(crate) target: SocketAddr,
}

/// Accepts one connection without blocking.
pub(crate) fn accept(listener: &impl AsFd) -> io::Result<Accepted> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, client) = net::acceptfrom_with(listener, flags)?;
    let client = client.map_or(Err(Errno::INVAL), ip_addr)?;
    let target = ip_addr(net::getsockname(&fd)?)?;
    Ok(Accepted { fd, client, target })
}

/// Opens a non-blocking listener for clients of ours. It has no mark: its packets belong to
/// connections that others began, and the kernel programs decide about first packets only.
pub(crate) fn listen(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = net::socket_with(family, SocketType::STREAM, flags, None)?;
    if address.is_ipv6() {
        // All of IPv4 and all of IPv6 may stand beside each other on one port.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    sockopt::set_socket_reuseaddr(&fd, true)?;
    net::bind(&fd, &address)?;
    net::listen(&fd, backlog)?;
    Ok(fd)
}

/// Connects to a name or address, for the command line: what it sends is anybody's traffic.
pub(crate) async fn connect_plain(authority: &str) -> io::Result<tokio::net::TcpStream> {
    tokio::net::TcpStream::connect(authority).await
}

fn ip_addr(addr: SocketAddrAny) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(addr)
}

/// Options accepted sockets inherit from their listener, so that they cost nothing per flow.
pub(crate) fn prepare_listener(listener: &impl AsFd) -> io::Result<()> {
    set_tcp_nodelay(listener, true)?;
    // Towards a client the gateway is a hop away. Pacing by a model of the path, which a system
    // may have as its default for the wide side, costs a timer per burst here and gains
    // nothing. Where the kernel lacks it, the default stays.
    let _ = set_tcp_congestion(listener, LAN_CONGESTION);
    // The answer can acknowledge a request. Who finds that a client has more to say than its
    // first segment takes this back.
    delay_acks(listener, true);
    Ok(())
}

/// Makes closing send RST instead of FIN.
pub(crate) fn reset_on_close(fd: &impl AsFd) {
    // A socket that cannot be told so closes with FIN, which ends the flow just as well.
    let _ = set_socket_linger(fd, Some(Duration::ZERO));
}

/// Lets acknowledgements wait for data of ours to travel with: for the connection set-up of
/// protocols where the client speaks first. `false` asks for immediate ones.
pub(crate) fn delay_acks(fd: &impl AsFd, delay: bool) {
    // Only a matter of packet counts.
    let _ = set_tcp_quickack(fd, !delay);
}

/// Detects peers that vanished. Set on connections that have lived a while: most are shorter
/// than the first probe, and five calls per connection are not free.
pub(crate) fn keepalive(fd: &impl AsFd) {
    let set = || -> Result<(), Errno> {
        set_tcp_keepidle(fd, KEEPALIVE_IDLE)?;
        set_tcp_keepintvl(fd, KEEPALIVE_INTERVAL)?;
        set_tcp_keepcnt(fd, KEEPALIVE_PROBES)?;
        set_tcp_user_timeout(fd, USER_TIMEOUT_MS)?;
        set_socket_keepalive(fd, true)
    };
    // Without keepalive the idle timeout of the relay still ends dead flows.
    let _ = set();
}

/// Asks for large buffers, beyond the system limit where we may.
fn grow_buffers(fd: &impl AsFd) {
    if set_socket_recv_buffer_size_force(fd, UDP_BUFFER).is_err() {
        let _ = set_socket_recv_buffer_size(fd, UDP_BUFFER);
    }
    if set_socket_send_buffer_size_force(fd, UDP_BUFFER).is_err() {
        let _ = set_socket_send_buffer_size(fd, UDP_BUFFER);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        path::Path,
    };

    use super::*;

    /// Calls that open a socket able to send to the network.
    const CONSTRUCTORS: [&str; 8] = [
        "TcpStream::connect",
        "TcpSocket::new",
        "UdpSocket::bind",
        "Socket::new(",
        "net::socket(",
        "socket_with(",
        "libc::socket(",
        "Socket::from(",
    ];

    /// Rooms whose sockets live in the private namespace or speak netlink.
    const EXEMPT: [&str; 4] = ["socket", "netns", "netlink", "datapath"];

    fn sources(dir: &Path, out: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push(path);
            }
        }
    }

    #[test]
    fn no_other_room_opens_network_sockets() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = Vec::new();
        sources(&root, &mut files);
        assert!(files.len() > 10);
        for file in files {
            let inner = file.strip_prefix(&root).unwrap();
            let room = inner.components().next().unwrap().as_os_str();
            let in_tests = inner.with_extension("").iter().any(|part| part == "tests");
            let test_file = in_tests || inner.ends_with("testkit.rs");
            if test_file || EXEMPT.iter().any(|exempt| room == *exempt) {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let daemon = text.split("#[cfg(test)]").next().unwrap();
            for line in daemon.lines().filter(|l| !l.trim_start().starts_with("//")) {
                let found = CONSTRUCTORS.iter().find(|c| line.contains(**c));
                assert_eq!(found, None, "{}: {line}", file.display());
            }
        }
    }

    #[test]
    fn accepted_sockets_name_both_ends_and_do_not_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        prepare_listener(&listener).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = accept(&listener).unwrap();
        assert_eq!(accepted.client, client.local_addr().unwrap());
        assert_eq!(accepted.target, listener.local_addr().unwrap());
        assert!(sockopt::tcp_nodelay(&accepted.fd).unwrap());
        drop(client);
    }

    #[test]
    fn the_mark_is_set() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        for kind in [Kind::Stream, Kind::Datagram] {
            for peer in ["127.0.0.1:1", "[::1]:1"] {
                let fd = open(peer.parse().unwrap(), kind, Mark(0x123)).unwrap();
                assert_eq!(socket2::SockRef::from(&fd).mark().unwrap(), 0x123);
            }
        }
    }
}
