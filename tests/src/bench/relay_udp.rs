//! Datagrams through a relay: an upstream that answers each with itself, and a client that keeps
//! some of them on the way.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::UPSTREAM;
use super::compare::Pace;
use crate::client;
use crate::netns::Netns;

/// Sockets of the client.
const SOCKETS: usize = 2;
/// Datagrams each of them has on the way.
const WINDOW: usize = 32;
/// Payload of one.
const BYTES: usize = 200;
/// Silence after which what is on the way counts as lost.
const LOST: Duration = Duration::from_millis(50);

/// Stands for the relay of the upstream and for every target behind it: the header of a datagram
/// names the target on the way there and the source on the way back, so it may stay as it is.
pub(super) fn mirror(ns: &Netns, ip: IpAddr, stop: &Arc<AtomicBool>) -> Result<()> {
    let at = SocketAddr::new(ip, UPSTREAM);
    let socket = ns
        .run(|| UdpSocket::bind(at))
        .with_context(|| format!("cannot receive at {at}"))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let stop = Arc::clone(stop);
    ns.spawn(move || {
        let mut buffer = vec![0; 65_536];
        while !stop.load(Ordering::Relaxed) {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        }
    });
    Ok(())
}

/// Waits until a datagram comes back.
pub(super) fn first(ns: &Netns, to: SocketAddr) -> Result<()> {
    let socket = connected(ns, to)?;
    socket.send(b"first")?;
    socket
        .recv(&mut [0; 16])
        .context("no datagram came back")
        .map(drop)
}

/// Datagrams that came back per second, and how many were given up.
pub(super) fn echoes(ns: &Netns, to: SocketAddr, pace: Pace) -> Result<(f64, u64)> {
    let (back, lost, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..SOCKETS)
            .map(|_| {
                let (back, lost, stop) = (&back, &lost, &stop);
                scope.spawn(move || keep_on_the_way(&connected(ns, to)?, back, lost, stop))
            })
            .collect();
        std::thread::sleep(pace.warm);
        let count = || (back.load(Ordering::Relaxed), lost.load(Ordering::Relaxed));
        let (start, before) = (Instant::now(), count());
        std::thread::sleep(pace.measure);
        let after = count();
        let seconds = start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        let rate = (after.0 - before.0) as f64 / seconds;
        if rate < 1.0 {
            bail!("no datagram came back");
        }
        Ok((rate, after.1 - before.1))
    })
}

fn connected(ns: &Netns, to: SocketAddr) -> Result<UdpSocket> {
    let socket = ns.run(|| client::udp(to.ip()))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(LOST))?;
    Ok(socket)
}

fn keep_on_the_way(
    socket: &UdpSocket,
    back: &AtomicU64,
    lost: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let (payload, mut buffer) = ([7; BYTES], [0; 2 * BYTES]);
    let mut on_the_way = 0;
    while !stop.load(Ordering::Relaxed) {
        while on_the_way < WINDOW {
            socket.send(&payload).context("cannot send")?;
            on_the_way += 1;
        }
        match socket.recv(&mut buffer) {
            Ok(_) => {
                on_the_way = on_the_way.saturating_sub(1);
                back.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                lost.fetch_add(on_the_way as u64, Ordering::Relaxed);
                on_the_way = 0;
            }
            Err(e) => return Err(e).context("cannot receive"),
        }
    }
    Ok(())
}
