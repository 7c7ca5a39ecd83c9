//! A client: requests at fixed times, whatever became of those before.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::Plan;
use crate::netns::Netns;
use crate::serve::HTTP;
use crate::sim::score::chance::Chance;

/// Targets, the most popular first.
const TARGETS: u8 = 8;
/// What a target sends.
const BYTES: usize = 2_000;
/// When a client gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Address of a target.
pub(super) fn target(n: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, 140 + n).into()
}

pub(super) fn targets() -> impl Iterator<Item = IpAddr> {
    (0..TARGETS).map(target)
}

/// Lines for `ip -batch`.
pub(super) fn addresses() -> String {
    let lines = targets().map(|ip| format!("address add {ip}/25 dev eth0\n"));
    lines.collect()
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    at: Duration,
    to: SocketAddr,
}

impl Request {
    /// All of them: independent arrivals, and half as many for the second target as for the first.
    pub(super) fn schedule(plan: &Plan) -> Arc<[Self]> {
        let mut chance = Chance::of(&[plan.seed]);
        let weights: Vec<f64> = (1..=TARGETS).map(|n| 1.0 / f64::from(n)).collect();
        let mut requests = Vec::new();
        let mut at = 0.0;
        loop {
            at += chance.wait(1.0 / plan.per_second);
            if at >= plan.length.as_secs_f64() {
                return requests.into();
            }
            let mut mark = chance.unit() * weights.iter().sum::<f64>();
            let past = |weight: &&f64| {
                mark -= **weight;
                mark >= 0.0
            };
            let n = weights.iter().take_while(past).count();
            let n = n.min(weights.len() - 1);
            requests.push(Self {
                at: Duration::from_secs_f64(at),
                to: SocketAddr::new(target(n as u8), HTTP),
            });
        }
    }
}

/// What a client saw.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests without a whole answer within five seconds.
    pub failed: usize,
    /// Milliseconds from connect to the end of each whole answer, in order.
    pub millis: Vec<f64>,
}

impl Tally {
    /// Requests made.
    pub fn asked(&self) -> usize {
        self.failed + self.millis.len()
    }

    /// Mean milliseconds of the answers.
    pub fn mean(&self) -> f64 {
        self.millis.iter().sum::<f64>() / self.millis.len().max(1) as f64
    }

    /// Milliseconds that this share of the answers did not take longer than.
    pub fn percentile(&self, share: f64) -> f64 {
        let at = (self.millis.len() as f64 * share) as usize;
        let at = at.min(self.millis.len().saturating_sub(1));
        self.millis.get(at).copied().unwrap_or(0.0)
    }
}

/// A client at work.
pub(super) struct Client {
    runtime: Runtime,
    work: Option<JoinHandle<Tally>>,
}

impl Client {
    pub(super) fn start(ns: &Netns, requests: &Arc<[Request]>) -> Result<Self> {
        let runtime = ns.runtime()?;
        let work = runtime.spawn(all(Arc::clone(requests)));
        Ok(Self {
            runtime,
            work: Some(work),
        })
    }

    /// Waits for the last answer.
    pub(super) fn end(&mut self) -> Result<Tally> {
        let work = self.work.take().context("the client has ended")?;
        Ok(self.runtime.block_on(work)?)
    }
}

async fn all(requests: Arc<[Request]>) -> Tally {
    let begin = Instant::now();
    let mut open = JoinSet::new();
    for request in requests.iter().copied() {
        tokio::time::sleep_until(begin + request.at).await;
        open.spawn(async move {
            let start = Instant::now();
            let answer = timeout(PATIENCE, ask(request.to)).await;
            let whole = matches!(answer, Ok(Ok(())));
            whole.then(|| start.elapsed().as_secs_f64() * 1e3)
        });
    }
    let mut tally = Tally::default();
    while let Some(done) = open.join_next().await {
        match done {
            Ok(Some(millis)) => tally.millis.push(millis),
            Ok(None) | Err(_) => tally.failed += 1,
        }
    }
    tally.millis.sort_by(f64::total_cmp);
    tally
}

async fn ask(to: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(asking(to).as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    whole(&answer)
}

/// One request on the calling thread.
pub(super) fn once() -> Result<()> {
    let to = SocketAddr::new(target(1), HTTP);
    let mut stream = crate::client::connect(to)?;
    stream.write_all(asking(to).as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    whole(&answer)
}

fn asking(to: SocketAddr) -> String {
    let host = to.ip();
    format!("GET /bytes/{BYTES} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
}

fn whole(answer: &[u8]) -> Result<()> {
    ensure!(answer.len() > BYTES, "{} bytes only", answer.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_requests() {
        let plan = |seed| Plan {
            seed,
            length: Duration::from_secs(100),
            per_second: 10.0,
        };
        let of = |seed| -> Vec<(Duration, SocketAddr)> {
            let all = Request::schedule(&plan(seed));
            all.iter().map(|r| (r.at, r.to)).collect()
        };
        let all = of(1);
        assert_eq!(all, of(1));
        assert_ne!(all, of(2));
        assert!((800..1200).contains(&all.len()), "{}", all.len());
        let to = |n: u8| all.iter().filter(|(_, to)| to.ip() == target(n)).count();
        assert!(to(0) > to(3) && to(3) > 0 && to(TARGETS - 1) > 0);
    }

    #[test]
    fn percentiles_are_of_what_was_served() {
        let tally = Tally {
            failed: 3,
            millis: (1..=100).map(f64::from).collect(),
        };
        assert_eq!(tally.asked(), 103);
        assert!((tally.mean() - 50.5).abs() < 1e-9);
        assert!((tally.percentile(0.5) - 51.0).abs() < 1e-9);
        assert!((tally.percentile(0.99) - 100.0).abs() < 1e-9);
        assert!(Tally::default().percentile(0.5).abs() < 1e-9);
    }
}
