//! Load from the client's namespace: bulk streams and short connections.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::compare::Pace;
use super::seat::{End, Seats};
use super::slab::Slab;
use super::sock::{self, Poll};
use crate::client;
use crate::netns::Netns;

/// Gbit/s that `streams` downloads reach together, measured at the client after warming up.
pub(super) fn download(
    ns: &Netns,
    from: SocketAddr,
    streams: usize,
    pace: Pace,
    seats: Seats,
) -> Result<f64> {
    let (bytes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..streams)
            .map(|n| {
                let (bytes, stop) = (&bytes, &stop);
                scope.spawn(move || -> Result<()> {
                    ns.enter()?;
                    seats.take(End::Reader(n));
                    let stream = client::connect(from)?;
                    // The bytes are counted, not copied out of the kernel.
                    let mut buffer = vec![0_u8; 1 << 20];
                    while !stop.load(Ordering::Relaxed) {
                        let (_, length) = recv(&stream, &mut buffer, RecvFlags::TRUNC)
                            .context("a download broke off")?;
                        if length == 0 {
                            bail!("a download ended early");
                        }
                        bytes.fetch_add(length as u64, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        std::thread::sleep(pace.warm);
        let (start, before) = (Instant::now(), bytes.load(Ordering::Relaxed));
        std::thread::sleep(pace.measure);
        let moved = bytes.load(Ordering::Relaxed) - before;
        let seconds = start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader
                .join()
                .map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        Ok(moved as f64 * 8.0 / seconds / 1e9)
    })
}

/// What a run of short connections gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// Complete request-response connections per second.
    pub(super) per_second: f64,
    /// Connections that failed or took longer than three seconds.
    pub(super) failed: u64,
    /// Median and 99th percentile from connect to end, in microseconds.
    pub(super) p50_us: u64,
    /// See above.
    pub(super) p99_us: u64,
}

struct Short {
    socket: OwnedFd,
    since: Instant,
    sent: bool,
    answered: bool,
}

const PATIENCE: Duration = Duration::from_secs(3);

/// Keeps `parallel` short connections in flight for the whole time.
pub(super) fn connections(
    ns: &Netns,
    to: SocketAddr,
    parallel: usize,
    warm: Duration,
    measure: Duration,
) -> Result<Rate> {
    ns.run(|| run_connections(to, parallel, warm, measure))
}

fn run_connections(
    to: SocketAddr,
    parallel: usize,
    warm: Duration,
    measure: Duration,
) -> Result<Rate> {
    let mut poll = Poll::new()?;
    let mut shorts: Slab<Short> = Slab::new();
    let (mut done, mut failed) = (0_u64, 0_u64);
    let mut times = Vec::with_capacity(1 << 18);
    let begin = Instant::now();
    let mut counting = None;
    let mut swept = begin;
    for _ in 0..parallel {
        open(&poll, &mut shorts, to)?;
    }
    loop {
        let ready = poll.wait(Duration::from_millis(20))?;
        let now = Instant::now();
        if counting.is_none() && now - begin >= warm {
            counting = Some(now);
            (done, failed) = (0, 0);
            times.clear();
        }
        if counting.is_some_and(|start| now - start >= measure) {
            break;
        }
        for token in ready {
            let Some(short) = shorts.get(token) else {
                continue;
            };
            match step(short) {
                Progress::Wait => continue,
                Progress::Done => {
                    done += 1;
                    times.push(short.since.elapsed().as_micros() as u64);
                }
                Progress::Failed => failed += 1,
            }
            shorts.remove(token);
            open(&poll, &mut shorts, to)?;
        }
        if now - swept > Duration::from_millis(500) {
            swept = now;
            let late: Vec<u64> = shorts
                .iter()
                .filter(|(_, short)| now.saturating_duration_since(short.since) > PATIENCE)
                .map(|(token, _)| token)
                .collect();
            for token in late {
                failed += 1;
                shorts.remove(token);
                open(&poll, &mut shorts, to)?;
            }
        }
    }
    let seconds = counting
        .map_or(measure, |start| start.elapsed())
        .as_secs_f64();
    times.sort_unstable();
    let at = |part: f64| {
        times
            .get((times.len() as f64 * part) as usize)
            .copied()
            .unwrap_or(0)
    };
    Ok(Rate {
        per_second: done as f64 / seconds,
        failed,
        p50_us: at(0.5),
        p99_us: at(0.99),
    })
}

fn open(poll: &Poll, shorts: &mut Slab<Short>, to: SocketAddr) -> Result<()> {
    let socket = sock::dial(to).with_context(|| format!("cannot open a socket to {to}"))?;
    let short = Short {
        socket,
        since: Instant::now(),
        sent: false,
        answered: false,
    };
    let token = shorts.insert(short);
    if let Some(short) = shorts.get(token) {
        poll.edge(&short.socket, token)?;
    }
    Ok(())
}

enum Progress {
    Wait,
    Done,
    Failed,
}

fn step(short: &mut Short) -> Progress {
    if !short.sent {
        match send(
            &short.socket,
            b"GET / HTTP/1.0\r\n\r\n",
            SendFlags::NOSIGNAL,
        ) {
            Ok(_) => short.sent = true,
            Err(Errno::AGAIN | Errno::NOTCONN) => return Progress::Wait,
            Err(_) => return Progress::Failed,
        }
    }
    let mut buffer = [0_u8; 256];
    loop {
        match recv(&short.socket, &mut buffer, RecvFlags::empty()) {
            Ok((0, _)) if short.answered => return Progress::Done,
            Ok((0, _)) => return Progress::Failed,
            Ok(_) => short.answered = true,
            Err(Errno::AGAIN) => return Progress::Wait,
            Err(_) => return Progress::Failed,
        }
    }
}
