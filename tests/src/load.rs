//! A steady stream of short TCP flows beside a test: so many per second, every failure kept.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client;
use crate::netns::Netns;

const THREADS: u32 = 8;

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    failed: Mutex<Vec<String>>,
}

/// Running load; every flow asks the whoami origin and must be seen from a wanted address.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts `per_second` flows from `ns` to `to`, on absolute deadlines. A flow fails when it
    /// breaks or when the origin saw an address that is not in `wanted`.
    pub fn start(ns: &Netns, to: IpAddr, per_second: u32, wanted: &[IpAddr]) -> Self {
        let shared = Arc::new(Shared::default());
        let step = Duration::from_secs(1) * THREADS / per_second.max(1);
        let threads = (0..THREADS)
            .map(|n| {
                let (shared, wanted) = (Arc::clone(&shared), wanted.to_vec());
                ns.spawn(move || flows(&shared, to, step, step * n / THREADS, &wanted))
            })
            .collect();
        Self { shared, threads }
    }

    /// Flows that went well so far.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// Ends the load: flows that went well, and the failures.
    pub fn finish(mut self) -> (u64, Vec<String>) {
        self.join();
        let failed = self
            .shared
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        (self.done(), failed)
    }

    fn join(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.join();
    }
}

fn flows(shared: &Shared, to: IpAddr, step: Duration, offset: Duration, wanted: &[IpAddr]) {
    let mut next = Instant::now() + offset;
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += step;
        let failure = match client::whoami_tcp(to) {
            Ok(seen) if wanted.contains(&seen.ip()) => {
                shared.done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Ok(seen) => format!("the origin saw {}", seen.ip()),
            Err(error) => format!("{error:#}"),
        };
        let mut failed = shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() < 1000 {
            failed.push(failure);
        }
    }
}
