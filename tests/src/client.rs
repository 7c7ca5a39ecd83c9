//! What a LAN client does: blocking calls made inside its namespace.
//!
//! Every function opens its sockets on the calling thread; use them within `Netns::run`.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use socket2::{Domain, Protocol, Socket, Type};

/// Deadline of every client step that should succeed.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The same where silence is what is expected.
const BRIEF: Duration = Duration::from_secs(3);

thread_local! {
    static LIMIT: Cell<Duration> = const { Cell::new(PATIENCE) };
}

/// Runs `ask`, which should fail, without waiting long for an answer.
pub fn briefly<T>(ask: impl FnOnce() -> T) -> T {
    LIMIT.set(BRIEF);
    let answer = ask();
    LIMIT.set(PATIENCE);
    answer
}

/// Connects with the usual deadline and timeouts.
pub fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, LIMIT.get())
        .with_context(|| format!("cannot connect to {to}"))?;
    stream.set_read_timeout(Some(LIMIT.get()))?;
    stream.set_write_timeout(Some(LIMIT.get()))?;
    Ok(stream)
}

/// Connects from a fixed source port, which may be in TIME_WAIT or in use by nobody else.
pub fn connect_from(port: u16, to: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(any(to.ip()), port).into())?;
    socket
        .connect_timeout(&to.into(), LIMIT.get())
        .with_context(|| format!("cannot connect from port {port} to {to}"))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT.get()))?;
    stream.set_write_timeout(Some(LIMIT.get()))?;
    Ok(stream)
}

/// How many segments of an open connection were sent again, its SYN included.
pub fn sent_again(stream: &impl AsRawFd) -> Result<u32> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the structure.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        bail!("no TCP_INFO: {}", std::io::Error::last_os_error());
    }
    Ok(info.tcpi_total_retrans)
}

/// Asks the TCP whoami origin which source address it sees.
pub fn whoami_tcp(to: IpAddr) -> Result<SocketAddr> {
    read_whoami(connect(SocketAddr::new(to, super::serve::WHOAMI))?)
}

/// Reads the answer of the TCP whoami origin from an open stream.
pub fn read_whoami(mut stream: TcpStream) -> Result<SocketAddr> {
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .context("no answer from the TCP whoami origin")?;
    text.trim()
        .parse()
        .with_context(|| format!("whoami answered {text:?}"))
}

/// Asks the UDP whoami origin which source address it sees.
pub fn whoami_udp(to: IpAddr) -> Result<SocketAddr> {
    let socket = udp(to)?;
    let answer = ask_udp(&socket, SocketAddr::new(to, super::serve::WHOAMI), b"who")?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.trim()
        .parse()
        .with_context(|| format!("whoami answered {text:?}"))
}

/// A UDP socket of the target's family with the usual deadline.
pub fn udp(to: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(any(to), 0))?;
    socket.set_read_timeout(Some(LIMIT.get()))?;
    Ok(socket)
}

/// From now on what is sent leaves as datagrams of `size` bytes, cut by the kernel (`UDP_SEGMENT`).
pub fn cut_into(socket: &UdpSocket, size: u16) -> Result<()> {
    let size = libc::c_int::from(size);
    // SAFETY: the option value is a live c_int and its size is passed along.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    if done != 0 {
        bail!("no UDP_SEGMENT: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

/// Sends a datagram and waits for one from exactly that address.
pub fn ask_udp(socket: &UdpSocket, to: SocketAddr, payload: &[u8]) -> Result<Vec<u8>> {
    let mut buffer = vec![0; 65536];
    socket
        .send_to(payload, to)
        .with_context(|| format!("cannot send to {to}"))?;
    let (length, from) = socket
        .recv_from(&mut buffer)
        .with_context(|| format!("no UDP answer from {to} to {} bytes", payload.len()))?;
    if from != to {
        bail!("asked {to}, the answer came from {from}");
    }
    buffer.truncate(length);
    Ok(buffer)
}

/// Sends `payload` to a TCP echo origin, half-closes and returns what came back.
pub fn echo_tcp(to: SocketAddr, payload: &[u8]) -> Result<Vec<u8>> {
    let mut stream = connect(to)?;
    let mut writer = stream.try_clone()?;
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || -> Result<()> {
            writer.write_all(payload)?;
            writer.shutdown(std::net::Shutdown::Write)?;
            Ok(())
        });
        let mut back = Vec::with_capacity(payload.len());
        let read = stream.read_to_end(&mut back);
        sent.join()
            .map_err(|_| anyhow::anyhow!("the sending side panicked"))??;
        read.context("the echo broke off")?;
        Ok(back)
    })
}

/// One address query (A or AAAA) for `name` at `server`; the addresses of the answer.
pub fn dns(server: SocketAddr, name: &str, v6: bool) -> Result<Vec<IpAddr>> {
    let socket = udp(server.ip())?;
    let query = dns_query(0x4242, name, if v6 { 28 } else { 1 });
    let answer = ask_udp(&socket, server, &query)?;
    dns_addresses(&answer)
}

/// The same over TCP.
pub fn dns_tcp(server: SocketAddr, name: &str, v6: bool) -> Result<Vec<IpAddr>> {
    let mut stream = connect(server)?;
    let query = dns_query(0x4243, name, if v6 { 28 } else { 1 });
    stream.write_all(&u16::try_from(query.len())?.to_be_bytes())?;
    stream.write_all(&query)?;
    let mut length = [0; 2];
    stream
        .read_exact(&mut length)
        .context("no DNS answer over TCP")?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    dns_addresses(&answer)
}

/// One A query over UDP; the answer as it came.
pub fn dns_raw(server: SocketAddr, name: &str) -> Result<Vec<u8>> {
    let socket = udp(server.ip())?;
    // An error about a silent server takes its time.
    socket.set_read_timeout(Some(3 * PATIENCE))?;
    ask_udp(&socket, server, &dns_query(0x4244, name, 1))
}

/// A query as it goes over the wire.
pub fn dns_query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut query = Vec::with_capacity(64);
    query.extend(id.to_be_bytes());
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.trim_end_matches('.').split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(kind.to_be_bytes());
    query.extend([0, 1]);
    query
}

/// Reads the addresses of an answer of our own server: one question, compressed owner names.
fn dns_addresses(answer: &[u8]) -> Result<Vec<IpAddr>> {
    let count = answer
        .get(6..8)
        .map(|b| u16::from_be_bytes([b[0], b[1]]))
        .context("short")?;
    let mut at = 12;
    while *answer.get(at).context("short question")? != 0 {
        at += usize::from(answer[at]) + 1;
    }
    at += 5;
    let mut found = Vec::new();
    for _ in 0..count {
        let length = answer.get(at + 10..at + 12).context("short answer")?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let data = answer
            .get(at + 12..at + 12 + length)
            .context("short data")?;
        if let Ok(four) = <[u8; 4]>::try_from(data) {
            found.push(Ipv4Addr::from(four).into());
        } else if let Ok(sixteen) = <[u8; 16]>::try_from(data) {
            found.push(Ipv6Addr::from(sixteen).into());
        }
        at += 12 + length;
    }
    Ok(found)
}

fn any(family: IpAddr) -> IpAddr {
    if family.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}
