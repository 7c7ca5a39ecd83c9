//! Origins: what clients want to reach. They report the source address they saw.

use std::io::Result as IoResult;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::runtime::Runtime;

use super::{CHARGEN, DISCARD, DNS, ECHO, ELSEWHERE, HTTP, WHOAMI, dns, http};
use crate::netns::Netns;

/// Running origins; they end when dropped.
#[derive(Debug)]
pub struct Origin {
    runtime: Option<Runtime>,
    accepted: Arc<AtomicU64>,
    datagrams: Arc<AtomicU64>,
}

impl Origin {
    /// Starts every server on every address.
    pub fn start(ns: &Netns, addresses: &[IpAddr]) -> Result<Self> {
        let runtime = ns.runtime()?;
        let (accepted, datagrams) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        for &ip in addresses {
            let elsewhere = addresses
                .iter()
                .copied()
                .find(|other| *other != ip && other.is_ipv4() == ip.is_ipv4())
                .unwrap_or(ip);
            let counters = (Arc::clone(&accepted), Arc::clone(&datagrams));
            let start = runtime.spawn(serve_address(ip, elsewhere, counters.0, counters.1));
            runtime
                .block_on(start)?
                .with_context(|| format!("cannot serve on {ip} in {}", ns.name()))?;
        }
        Ok(Self {
            runtime: Some(runtime),
            accepted,
            datagrams,
        })
    }

    /// TCP connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// UDP datagrams received so far by echo, whoami and elsewhere.
    pub fn datagrams(&self) -> u64 {
        self.datagrams.load(Ordering::Relaxed)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a TCP origin does with a connection.
#[derive(Clone, Copy)]
enum Kind {
    Echo,
    Discard,
    Chargen,
    Whoami,
    Http,
    Dns,
}

/// Opens all sockets of one address; an error means a port is taken.
async fn serve_address(
    ip: IpAddr,
    elsewhere: IpAddr,
    accepted: Arc<AtomicU64>,
    datagrams: Arc<AtomicU64>,
) -> Result<()> {
    for (port, kind) in [
        (ECHO, Kind::Echo),
        (DISCARD, Kind::Discard),
        (CHARGEN, Kind::Chargen),
        (WHOAMI, Kind::Whoami),
        (HTTP, Kind::Http),
        (DNS, Kind::Dns),
    ] {
        let listener = listen(SocketAddr::new(ip, port))?;
        tokio::spawn(accept(listener, kind, Arc::clone(&accepted)));
    }
    let echo = UdpSocket::bind((ip, ECHO)).await?;
    tokio::spawn(udp_echo(echo, Arc::clone(&datagrams)));
    let whoami = UdpSocket::bind((ip, WHOAMI)).await?;
    tokio::spawn(udp_whoami(whoami, Arc::clone(&datagrams)));
    let asked = UdpSocket::bind((ip, ELSEWHERE)).await?;
    let other = UdpSocket::bind((elsewhere, 0)).await?;
    tokio::spawn(udp_elsewhere(asked, other, datagrams));
    tokio::spawn(dns::serve_udp(UdpSocket::bind((ip, DNS)).await?));
    Ok(())
}

/// A listener with a deep backlog: load tests open hundreds of connections at once.
pub(super) fn listen(at: SocketAddr) -> IoResult<TcpListener> {
    let socket = if at.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(4096)
}

async fn accept(listener: TcpListener, kind: Kind, accepted: Arc<AtomicU64>) {
    while let Ok((stream, peer)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            // A broken connection is the client's business; the test sees it there.
            let _ = match kind {
                Kind::Echo => echo(stream).await,
                Kind::Discard => discard(stream).await,
                Kind::Chargen => chargen(stream).await,
                Kind::Whoami => whoami(stream, peer).await,
                Kind::Http => http::serve(stream, peer).await,
                Kind::Dns => dns::serve_tcp(stream, peer).await,
            };
        });
    }
}

async fn echo(mut stream: TcpStream) -> IoResult<()> {
    let (mut reader, mut writer) = stream.split();
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await
}

async fn discard(mut stream: TcpStream) -> IoResult<()> {
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).await? > 0 {}
    stream.shutdown().await
}

async fn chargen(mut stream: TcpStream) -> IoResult<()> {
    let block: Vec<u8> = (0..1 << 16).map(|n| b' ' + (n % 95) as u8).collect();
    loop {
        stream.write_all(&block).await?;
    }
}

async fn whoami(mut stream: TcpStream, peer: SocketAddr) -> IoResult<()> {
    stream.write_all(format!("{peer}\n").as_bytes()).await?;
    stream.shutdown().await
}

async fn udp_echo(socket: UdpSocket, seen: Arc<AtomicU64>) {
    let mut buffer = vec![0; 65536];
    loop {
        if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            seen.fetch_add(1, Ordering::Relaxed);
            let _ = socket.send_to(&buffer[..length], from).await;
        }
    }
}

async fn udp_whoami(socket: UdpSocket, seen: Arc<AtomicU64>) {
    let mut buffer = [0; 2048];
    loop {
        if let Ok((_, from)) = socket.recv_from(&mut buffer).await {
            seen.fetch_add(1, Ordering::Relaxed);
            let _ = socket.send_to(from.to_string().as_bytes(), from).await;
        }
    }
}

/// Answers twice, like a STUN server: from the asked address, then from another address and port.
async fn udp_elsewhere(asked: UdpSocket, other: UdpSocket, seen: Arc<AtomicU64>) {
    let mut buffer = [0; 2048];
    loop {
        if let Ok((_, from)) = asked.recv_from(&mut buffer).await {
            seen.fetch_add(1, Ordering::Relaxed);
            let _ = asked.send_to(b"here", from).await;
            let text = other
                .local_addr()
                .map(|at| at.to_string())
                .unwrap_or_default();
            let _ = other.send_to(text.as_bytes(), from).await;
        }
    }
}
