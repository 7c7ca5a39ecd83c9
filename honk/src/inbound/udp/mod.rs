//! Transparent UDP: receive loops, flows, tunnels, replies with foreign source addresses.
//!
//! A receive loop takes batches, finds or admits the flow of each datagram and hands runs of
//! datagrams to their tunnel without ever waiting. Tunnels are tasks that open the way out
//! and bring replies back. Any source that answers reaches the client (full cone).

mod back;
mod carrier;
mod dns;
mod hold;
mod reply;
mod service;
mod shares;
mod table;
mod tunnel;
mod tunnels;
mod upstream;

use std::{
    io, panic,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{io::Interest, net::UdpSocket, runtime::Handle};

pub(crate) use self::back::LINGER;
use self::{
    reply::ReplyPool,
    service::Service,
    shares::Shares,
    table::{Table, lock},
    tunnel::Backlog,
    tunnels::Tunnels,
};
use super::counters::{Cap, UdpCounters, UdpSnapshot};
use crate::{
    dns::Dns,
    flow::{Admission, CloseReason, ReplySockets},
    outbound::Dialer,
    socket::mmsg::{BATCH, Joining, RecvBatch, V6, want_joined, want_original_dst},
};

/// How often idle flows and sockets are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Value of `FlowEntry::carrier`, see `flow::CARRIERS`.
const CARRIER: u8 = 3;

/// Sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Flows at once; no client gets more than a quarter of them.
    pub(crate) flows: usize,
    /// Tunnels at once; no client gets more than a quarter of them.
    pub(crate) tunnels: usize,
    /// Reply sockets kept open.
    pub(crate) replies: usize,
    /// Flows that go back to the kernel at once, one socket each.
    pub(crate) backs: usize,
    /// How long such a flow is remembered, for datagrams that were on their way up.
    pub(crate) linger: Duration,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) counts: UdpSnapshot,
    pub(crate) flows: usize,
    pub(crate) tunnels: usize,
    pub(crate) reply_sockets: usize,
    /// Reply sockets closed before their time to make room.
    pub(crate) replies_evicted: u64,
    /// Bytes that wait for tunnels to open.
    pub(crate) queued_bytes: usize,
    /// Flows whose first datagrams are held now.
    pub(crate) held: usize,
}

/// The UDP side while it runs.
#[derive(Debug)]
pub(crate) struct Udp(Arc<Service>);

impl Udp {
    /// Starts one receive loop per socket. Must be called inside a tokio runtime.
    pub(crate) fn start(
        sockets: Vec<std::net::UdpSocket>,
        admission: Arc<dyn Admission>,
        dialer: Arc<Dialer>,
        dns: Arc<Dns>,
        replies: Arc<dyn ReplySockets>,
        tproxy_port: u16,
        limits: Limits,
    ) -> io::Result<Self> {
        let own = dns.outgoing();
        let service = Arc::new(Service {
            admission,
            dialer,
            dns,
            counters: UdpCounters::default(),
            table: Table::new(),
            tunnels: Mutex::new(Tunnels::new(limits.tunnels)),
            shares: Shares::new(limits.flows),
            holds: Cap::new(hold::MAX_HOLDS),
            backs: Cap::new(limits.backs),
            linger: limits.linger,
            backlog: Backlog::default(),
            replies: ReplyPool::new(replies, tproxy_port, limits.replies),
            joining: Joining::default(),
            accepting: AtomicBool::new(true),
            runtime: Handle::current(),
            tasks: Mutex::default(),
        });
        let prepare = |socket: std::net::UdpSocket| {
            socket.set_nonblocking(true)?;
            want_original_dst(&socket, V6::of(socket.local_addr()?))?;
            // Where the kernel cannot, datagrams come one by one.
            let _ = want_joined(&socket);
            UdpSocket::from_std(socket)
        };
        let sockets: Vec<_> = sockets
            .into_iter()
            .map(prepare)
            .collect::<io::Result<_>>()?;
        for socket in sockets {
            service.spawn(receive(Arc::clone(&service), socket));
        }
        service.spawn(sweep(Arc::clone(&service)));
        if let Some(own) = own {
            service.spawn(dns::answer(Arc::clone(&service), own));
        }
        Ok(Self(service))
    }

    /// Admits no new flows; those that live go on.
    pub(crate) fn stop_accepting(&self) {
        self.0.accepting.store(false, Relaxed);
    }

    /// Ends all flows and joins all tasks.
    pub(crate) async fn finish(&self) {
        self.stop_accepting();
        let mut tasks = std::mem::take(&mut *lock(&self.0.tasks));
        tasks.shutdown().await;
        self.0.table.drop_undecided();
        for flow in self.0.table.all() {
            self.0.end_flow(&flow, CloseReason::Shutdown);
        }
    }

    pub(crate) fn counters(&self) -> Snapshot {
        Snapshot {
            counts: self.0.counters.snapshot(),
            flows: self.0.shares.used(),
            tunnels: lock(&self.0.tunnels).len(),
            reply_sockets: self.0.replies.len(),
            replies_evicted: self.0.replies.evicted(),
            queued_bytes: self.0.backlog.bytes(),
            held: self.0.holds.used(),
        }
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        lock(&self.0.tasks).abort_all();
    }
}

/// Takes batches from one listener socket for ever.
async fn receive(service: Arc<Service>, socket: UdpSocket) {
    let mut batch = RecvBatch::new();
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        match recv_batch(&socket, &mut batch) {
            Ok(()) => {
                // A panic is a bug that costs this batch, not the socket.
                let take = panic::AssertUnwindSafe(|| service.take_batch(&batch));
                if panic::catch_unwind(take).is_err() {
                    tracing::error!("udp_batch_panicked");
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => service.counters.receive_errors.inc(),
        }
    }
}

/// Receives a batch. A batch that is not full has emptied the socket, so its readiness is
/// cleared without another call just to be told.
fn recv_batch(socket: &UdpSocket, batch: &mut RecvBatch) -> io::Result<()> {
    let mut got = Err(io::ErrorKind::WouldBlock.into());
    let _ = socket.try_io(Interest::READABLE, || {
        got = batch.recv(socket).map(|n| n == BATCH);
        match got {
            Ok(true) => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::WouldBlock)),
        }
    });
    got.map(|_| ())
}

async fn sweep(service: Arc<Service>) {
    let mut ticks = tokio::time::interval(SWEEP);
    loop {
        ticks.tick().await;
        service.expire(Instant::now());
    }
}

#[cfg(test)]
mod tests;
