//! Transparent inbound: accepts what the datapath delivers, asks the admission, carries the
//! admitted flows until they end.
//!
//! [`serve`] starts everything and [`Inbound`] owns it: threads and tasks end with it. It
//! decides nothing about routes and knows no groups.

pub(crate) mod counters;
pub(crate) mod tcp;
#[cfg(test)]
pub(crate) mod testkit;
pub(crate) mod udp;

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use self::{
    counters::{Cap, TcpCounters, TcpSnapshot},
    tcp::{Loops, Timeouts},
    udp::{Limits, Udp},
};
use crate::{
    dns::Dns,
    flow::{Admission, Listeners, ReplySockets},
    outbound::Dialer,
    socket::pipe::PipeBudget,
};

/// How often a drain looks whether flows are left.
const DRAIN_POLL: Duration = Duration::from_millis(20);
/// Descriptors left to the rest of the daemon.
const RESERVED_FDS: usize = 256;

/// UDP flows at once; they hold no descriptors of their own.
const MAX_UDP_FLOWS: usize = 1 << 16;

/// Sizes of the inbound side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Port of the listeners.
    pub(crate) tproxy_port: u16,
    /// TCP event loops.
    pub(crate) loops: usize,
    /// TCP flows at once.
    pub(crate) max_tcp: usize,
    /// Pipes at once, two descriptors each.
    pub(crate) max_pipes: usize,
    pub(crate) udp: Limits,
    pub(crate) timeouts: Timeouts,
}

impl Settings {
    /// Sizes for this machine: one loop per CPU, and caps that fit the limit of open files.
    pub(crate) fn new(tproxy_port: u16) -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = files.map_or(1 << 20, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Self::with_files(tproxy_port, files)
    }

    fn with_files(tproxy_port: u16, files: usize) -> Self {
        let budget = files.saturating_sub(RESERVED_FDS).clamp(64, 1 << 20);
        // One socket per port that answers come from; more would only spare making them again.
        let replies = (budget / 16).min(1024);
        let backs = (budget / 32).min(512);
        let max_tcp = budget / 4;
        let max_pipes = (budget / 16).min(4096);
        // A flow, a pipe and a tunnel hold two descriptors each. What the others cannot use is
        // left to tunnels: between a quarter and half of the budget.
        let tunnels = (budget - replies - backs) / 2 - max_tcp - max_pipes;
        Self {
            tproxy_port,
            loops: std::thread::available_parallelism().map_or(1, Into::into),
            max_tcp,
            max_pipes,
            udp: Limits {
                flows: MAX_UDP_FLOWS,
                tunnels,
                replies,
                backs,
                linger: udp::LINGER,
            },
            timeouts: Timeouts::default(),
        }
    }
}

/// Numbers for metrics and status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) tcp: TcpSnapshot,
    /// TCP flows now.
    pub(crate) tcp_flows: usize,
    /// Pipes now.
    pub(crate) pipes: usize,
    pub(crate) udp: udp::Snapshot,
}

/// The running inbound side.
#[derive(Debug)]
pub(crate) struct Inbound {
    loops: Mutex<Loops>,
    udp: Udp,
    /// Carries the TCP connections to port 53.
    dns: Arc<Dns>,
}

/// Starts accepting. Must be called on a thread in the host's network namespace and inside a
/// tokio runtime.
pub(crate) fn serve(
    listeners: Listeners,
    admission: Arc<dyn Admission>,
    dialer: Arc<Dialer>,
    dns: Arc<Dns>,
    replies: Arc<dyn ReplySockets>,
    settings: Settings,
) -> io::Result<Inbound> {
    let shared = tcp::Shared {
        admission: Arc::clone(&admission),
        dialer: Arc::clone(&dialer),
        dns: Arc::clone(&dns),
        listeners: listeners.tcp,
        counters: TcpCounters::default(),
        cap: Cap::new(settings.max_tcp),
        timeouts: settings.timeouts,
        accepting: true.into(),
    };
    let pipes = PipeBudget::new(settings.max_pipes);
    let loops = Loops::start(shared, pipes, settings.loops)?;
    let udp = Udp::start(
        listeners.udp,
        admission,
        dialer,
        Arc::clone(&dns),
        replies,
        settings.tproxy_port,
        settings.udp,
    )?;
    Ok(Inbound {
        loops: Mutex::new(loops),
        udp,
        dns,
    })
}

impl Inbound {
    /// Takes no new flows; those that live go on.
    pub(crate) fn stop_accepting(&self) {
        self.lock().stop_accepting();
        self.udp.stop_accepting();
    }

    /// Waits until the TCP flows have ended, at most until `deadline`, then closes what is
    /// left and joins every thread and task. UDP flows have no end to wait for.
    pub(crate) async fn drain(&self, deadline: Instant) {
        self.stop_accepting();
        while self.counters().tcp_flows > 0 && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_POLL).await;
        }
        // A loop ends within one turn, so this blocks for microseconds.
        self.lock().finish();
        self.dns.finish().await;
        self.udp.finish().await;
    }

    pub(crate) fn counters(&self) -> Snapshot {
        let loops = self.lock();
        Snapshot {
            tcp: loops.shared.counters.snapshot(),
            tcp_flows: loops.shared.cap.used(),
            pipes: loops.pipes.open(),
            udp: self.udp.counters(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Loops> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_shared_out_and_none_twice() {
        for files in [0, 1024, 20_000, 1 << 20, usize::MAX] {
            let s = Settings::with_files(1, files);
            let budget = files.saturating_sub(RESERVED_FDS).clamp(64, 1 << 20);
            let tunnels = 2 * s.udp.tunnels;
            assert!(
                tunnels >= budget / 4 && tunnels <= budget / 2 + 1,
                "{files}"
            );
            let tcp = 2 * (s.max_tcp + s.max_pipes);
            assert!(s.udp.replies > 0 && s.udp.backs > 0, "{files}");
            assert!(
                tcp + tunnels + s.udp.replies + s.udp.backs <= budget,
                "{files}"
            );
        }
        assert_eq!(Settings::with_files(1, 20_000).udp.tunnels, 2934);
    }
}
