//! An upstream proxy: SOCKS5 (TCP and UDP) and HTTP CONNECT, with a log and a fault plan.

use std::io::Result as IoResult;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::{CONNECT, Fault, Faults, SOCKS, dns, http, origin, socks};
use crate::netns::Netns;

/// How an upstream is started.
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    /// User and password that clients must give; none means no authentication.
    pub login: Option<(String, String)>,
    /// Seed of the fault plan.
    pub seed: u64,
    /// File that gets one JSON line per finished relay.
    pub log: Option<PathBuf>,
}

/// One relay of an upstream: the target as the client named it, and bytes both ways.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// `socks5`, `socks5-udp` or `http`.
    pub protocol: &'static str,
    /// Authenticated user, empty without login.
    pub user: String,
    /// `address:port` asked for.
    pub target: String,
    /// Bytes from client to target.
    pub up: u64,
    /// Bytes from target to client.
    pub down: u64,
}

/// State that all connections of an upstream share.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) login: Option<(String, String)>,
    pub(super) faults: Faults,
    log: Option<Mutex<std::fs::File>>,
    entries: Mutex<Vec<Entry>>,
    opened: Mutex<Vec<String>>,
}

impl Upstream {
    /// Notes that a relay to `target` has begun.
    pub(super) fn open(&self, target: &str) {
        self.opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(target.to_owned());
    }

    /// Notes a finished relay.
    pub(super) fn finish(&self, entry: Entry) {
        if let Some(log) = &self.log {
            let line = serde_json::to_string(&entry).unwrap_or_default();
            let _ = writeln!(log.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
        }
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(entry);
    }
}

/// A running upstream; dropping it closes its listeners and all relays.
#[derive(Debug)]
pub struct Proxy {
    runtime: Option<Runtime>,
    upstream: Arc<Upstream>,
}

impl Proxy {
    /// Listens on the given addresses: SOCKS5 on 1080, HTTP CONNECT on 8080.
    pub fn start(ns: &Netns, addresses: &[IpAddr], settings: ProxySettings) -> Result<Self> {
        let log = match &settings.log {
            Some(path) => {
                let file = std::fs::File::create(path)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                Some(Mutex::new(file))
            }
            None => None,
        };
        let upstream = Arc::new(Upstream {
            login: settings.login,
            faults: Faults::new(settings.seed),
            log,
            entries: Mutex::default(),
            opened: Mutex::default(),
        });
        let runtime = ns.runtime()?;
        for &ip in addresses {
            let shared = Arc::clone(&upstream);
            let start = runtime.spawn(async move {
                for port in [SOCKS, CONNECT] {
                    let listener = origin::listen(SocketAddr::new(ip, port))?;
                    tokio::spawn(accept(listener, port, Arc::clone(&shared)));
                }
                IoResult::Ok(())
            });
            runtime
                .block_on(start)?
                .with_context(|| format!("cannot listen on {ip} in {}", ns.name()))?;
        }
        Ok(Self {
            runtime: Some(runtime),
            upstream,
        })
    }

    /// The fault plan.
    pub fn faults(&self) -> &Faults {
        &self.upstream.faults
    }

    /// Finished relays so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.upstream
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Targets of all relays begun so far, finished or not.
    pub fn opened(&self) -> Vec<String> {
        self.upstream
            .opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

async fn accept(listener: TcpListener, port: u16, upstream: Arc<Upstream>) {
    while let Ok((stream, _)) = listener.accept().await {
        let upstream = Arc::clone(&upstream);
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let fault = upstream.faults.next();
            // Broken relays are the subject of tests, which look at the client's side.
            let _ = serve(stream, port, fault, &upstream).await;
        });
    }
}

async fn serve(stream: TcpStream, port: u16, fault: Fault, upstream: &Upstream) -> IoResult<()> {
    let distance = upstream.faults.distance();
    if !distance.is_zero() {
        tokio::time::sleep(distance).await;
    }
    match fault {
        Fault::Drop => return Ok(()),
        Fault::Rst => return reset(stream),
        Fault::Blackhole => return swallow(stream).await,
        Fault::Delay(time) => tokio::time::sleep(time).await,
        Fault::None | Fault::Refuse | Fault::SlowRead(_) | Fault::Cut => {}
    }
    if port == SOCKS {
        socks::serve(stream, fault, upstream).await
    } else {
        connect_method(stream, fault, upstream).await
    }
}

/// Closes with a reset instead of an orderly end.
fn reset(stream: TcpStream) -> IoResult<()> {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
}

async fn swallow(mut stream: TcpStream) -> IoResult<()> {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

async fn connect_method(mut stream: TcpStream, fault: Fault, upstream: &Upstream) -> IoResult<()> {
    let Some(head) = http::read_head(&mut stream).await? else {
        return Ok(());
    };
    let mut words = head.split(' ');
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    if method != "CONNECT" {
        return stream
            .write_all(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
            .await;
    }
    if let Some((user, password)) = &upstream.login {
        let expected = base64(format!("{user}:{password}").as_bytes());
        if !head.contains(&format!("Basic {expected}\r\n")) {
            let text = "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
            return stream.write_all(text.as_bytes()).await;
        }
    }
    let address: Option<SocketAddr> = target.parse().ok().or_else(|| named(target));
    let fault = address.map_or(fault, |to| upstream.faults.towards(to.ip(), fault));
    let dialed = match address {
        Some(address) if fault != Fault::Refuse => TcpStream::connect(address).await.ok(),
        _ => None,
    };
    let Some(far) = dialed else {
        return stream
            .write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            .await;
    };
    stream
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await?;
    let user = upstream
        .login
        .as_ref()
        .map(|(user, _)| user.clone())
        .unwrap_or_default();
    relay(
        "http",
        user,
        target.to_owned(),
        stream,
        far,
        fault,
        upstream,
    )
    .await
}

/// The address of a target with a name.
fn named(target: &str) -> Option<SocketAddr> {
    let (name, port) = target.rsplit_once(':')?;
    Some(SocketAddr::new(dns::resolve(name)?, port.parse().ok()?))
}

/// Copies both ways until both sides have ended; logs the bytes.
pub(super) async fn relay(
    protocol: &'static str,
    user: String,
    target: String,
    near: TcpStream,
    far: TcpStream,
    fault: Fault,
    upstream: &Upstream,
) -> IoResult<()> {
    upstream.open(&target);
    if fault == Fault::Cut {
        near.peek(&mut [0]).await?;
        return reset(near);
    }
    let _ = far.set_nodelay(true);
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let limit = if let Fault::SlowRead(rate) = fault {
        Some(rate)
    } else {
        None
    };
    let (up, down) = tokio::join!(
        copy(near_read, far_write, limit),
        copy(far_read, near_write, None)
    );
    upstream.finish(Entry {
        protocol,
        user,
        target,
        up,
        down,
    });
    Ok(())
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    limit: Option<u32>,
) -> u64 {
    let mut total = 0;
    let mut buffer = vec![0; limit.map_or(1 << 16, |rate| (rate as usize / 10).clamp(1, 1 << 16))];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..length]).await.is_err() {
            return total;
        }
        total += length as u64;
        if limit.is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let _ = to.shutdown().await;
    total
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = 0;
        for n in 0..3 {
            word = word << 8 | u32::from(chunk.get(n).copied().unwrap_or(0));
        }
        for n in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * n)) as usize & 63] as char;
            text.push(if n <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        assert_eq!(base64(b"a:b"), "YTpi");
        assert_eq!(base64(b"a:bc"), "YTpiYw==");
        assert_eq!(base64(b"a:bcd"), "YTpiY2Q=");
    }
}
