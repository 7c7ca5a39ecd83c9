//! DNS over TCP: messages of one connection in both directions, answers in any order.

use std::{
    any::Any,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use honk_wire::dns::{Explanation, Query, rcode, read_answer, refuse};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::Notify,
    time::timeout,
};

use super::{Dns, asked::Waiting, frame::Frames, lock};
use crate::{
    flow::{CancelHook, CloseReason, End, FlowEntry, FlowGuard},
    socket,
};

/// Unanswered queries of one connection; beyond it nothing more is read.
const PIPELINE: usize = 64;
/// One message to a peer that does not read.
const WRITE: Duration = Duration::from_secs(30);
/// A connection of another protocol without a byte.
const IDLE_OPAQUE: Duration = Duration::from_secs(300);
/// The rest of the first header.
const HEAD: Duration = Duration::from_secs(2);

/// An admitted and dialed connection to port 53.
pub(crate) struct Carried {
    pub(crate) client: OwnedFd,
    pub(crate) server: OwnedFd,
    /// What the server has sent already.
    pub(crate) early: Vec<u8>,
    pub(crate) guard: FlowGuard,
    /// Given back with the connection.
    pub(crate) seat: Box<dyn Any + Send>,
}

impl Dns {
    /// Carries a connection until it ends.
    pub(crate) fn carry(self: &Arc<Self>, carried: Carried) {
        let entry = Arc::clone(&carried.guard.entry);
        let Some(place) = self.streams.take(entry.flow.client.0.ip()) else {
            self.counters.refused[0].fetch_add(1, Relaxed);
            socket::reset_on_close(&carried.client);
            socket::reset_on_close(&carried.server);
            carried.guard.close(CloseReason::Refused);
            return;
        };
        let dns = Arc::clone(self);
        let Carried {
            client,
            server,
            early,
            guard,
            seat,
        } = carried;
        // A task that is aborted ends its flow all the same.
        let mut ending = Ending(Some(guard));
        let task = async move {
            let reason = run(&dns, client, server, early, &entry).await;
            ending.close(reason);
            drop((seat, place));
        };
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &self.runtime);
    }
}

struct Ending(Option<FlowGuard>);

impl Ending {
    fn close(&mut self, reason: CloseReason) {
        if let Some(guard) = self.0.take() {
            guard.close(reason);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.close(CloseReason::Shutdown);
    }
}

#[derive(Default)]
struct Cancelled(Notify);

impl CancelHook for Cancelled {
    fn cancelled(&self, _token: u64, _reason: CloseReason) {
        self.0.notify_one();
    }
}

async fn run(
    dns: &Arc<Dns>,
    client: OwnedFd,
    server: OwnedFd,
    early: Vec<u8>,
    entry: &Arc<FlowEntry>,
) -> CloseReason {
    let hook = Arc::new(Cancelled::default());
    entry.cancel.register(hook.clone(), 0);
    let streams = || {
        let stream = |fd: OwnedFd| TcpStream::from_std(std::net::TcpStream::from(fd));
        io::Result::Ok((stream(client)?, stream(server)?))
    };
    let Ok((mut client, mut server)) = streams() else {
        return CloseReason::Reset;
    };
    let ended = tokio::select! {
        ended = talk(dns, &mut client, &mut server, early, entry) => ended,
        () = hook.0.notified() => Ok(entry.cancel.reason().unwrap_or(CloseReason::Api)),
    };
    let reason = ended.unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::TimedOut => CloseReason::Timeout,
        _ => CloseReason::Reset,
    });
    if reason != CloseReason::Eof {
        socket::reset_on_close(&client);
        socket::reset_on_close(&server);
    }
    reason
}

async fn talk(
    dns: &Arc<Dns>,
    client: &mut TcpStream,
    server: &mut TcpStream,
    early: Vec<u8>,
    entry: &Arc<FlowEntry>,
) -> io::Result<CloseReason> {
    let ((client_read, client_write), (server_read, server_write)) =
        (client.split(), server.split());
    let mut from_client = Frames::new(client_read, Vec::new());
    // The first to speak is the client, with a query; anything else is not DNS.
    let dialog = early.is_empty()
        && tokio::select! {
            dialog = first(&mut from_client, dns.caps.idle) => dialog?,
            ready = server_read.readable() => ready.map(|()| false)?,
        };
    if !dialog {
        dns.counters.opaque.fetch_add(1, Relaxed);
        let (client_read, said) = from_client.into_parts();
        let pairs = [(client_read, said), (server_read, early)];
        return opaque(pairs, [server_write, client_write], entry).await;
    }
    let talk = Talk {
        dns,
        entry,
        asked: Mutex::default(),
        refusals: Mutex::default(),
        opaque: AtomicBool::new(false),
        over: AtomicBool::new(false),
        changed: Notify::new(),
        room: Notify::new(),
        began: Instant::now(),
        last: AtomicU64::new(0),
    };
    let from_server = Frames::new(server_read, Vec::new());
    tokio::select! {
        ended = talk.up(from_client, server_write) => match ended {
            Ok(never) => match never {},
            Err(error) => Err(error),
        },
        ended = talk.down(from_server, client_write) => ended,
    }
}

/// Whether a connection begins with a query. The whole header gets only a moment: a protocol
/// that waits after fewer bytes would wait for ever.
async fn first<R: AsyncRead + Unpin>(frames: &mut Frames<R>, idle: Duration) -> io::Result<bool> {
    match timeout(idle, frames.filled()).await {
        Ok(filled) => filled?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    }
    match timeout(HEAD, frames.begins_with_query()).await {
        Ok(answer) => answer,
        Err(_) => Ok(false),
    }
}

/// One connection that speaks DNS.
struct Talk<'a> {
    dns: &'a Arc<Dns>,
    entry: &'a Arc<FlowEntry>,
    asked: Mutex<Vec<Waiting>>,
    /// Replies of honk's own to queries it has no room for.
    refusals: Mutex<Vec<Vec<u8>>>,
    /// The client also sent something that is no query honk looks at.
    opaque: AtomicBool,
    /// The client sends no more.
    over: AtomicBool,
    /// A query was sent or the client has ended.
    changed: Notify,
    /// A query was answered.
    room: Notify,
    began: Instant,
    /// Milliseconds after which the last message came.
    last: AtomicU64,
}

/// What cannot be.
enum Never {}

impl Talk<'_> {
    /// Brings queries to the server; ends only by an error.
    async fn up(
        &self,
        mut frames: Frames<ReadHalf<'_>>,
        mut server: WriteHalf<'_>,
    ) -> io::Result<Never> {
        let client = self.entry.flow.client.0;
        loop {
            while lock(&self.asked).len() + lock(&self.refusals).len() >= PIPELINE {
                self.room.notified().await;
            }
            let Some(frame) = frames.next().await? else {
                break;
            };
            self.touch();
            let message = frame.get(2..).unwrap_or(&[]);
            if !self.ask(client, message) {
                continue;
            }
            self.entry.counters.add_up(frame.len() as u64);
            let sent = send(&mut server, &frame).await;
            sent.inspect_err(|_| self.entry.ended(End::Broken))?;
            self.entry.progressed();
        }
        self.over.store(true, Relaxed);
        // The server may have closed already.
        let _ = server.shutdown().await;
        self.changed.notify_one();
        std::future::pending().await
    }

    /// Notes a query; false when there is no room for it.
    fn ask(&self, client: SocketAddr, message: &[u8]) -> bool {
        let counters = &self.dns.counters;
        let Some(query) = Query::read(message) else {
            counters.opaque.fetch_add(1, Relaxed);
            self.opaque.store(true, Relaxed);
            return true;
        };
        counters.query(1, query.kind);
        let Some(place) = self.dns.load.take(client.ip()) else {
            counters.refused[0].fetch_add(1, Relaxed);
            let mut reply = Vec::new();
            refuse(
                &query,
                rcode::REFUSED,
                Explanation::NetworkError,
                &mut reply,
            );
            lock(&self.refusals).push(reply);
            self.changed.notify_one();
            return false;
        };
        let waiting = Waiting::new(&query, message, Instant::now(), place);
        lock(&self.asked).push(waiting);
        self.changed.notify_one();
        true
    }

    /// Brings answers to the client until the connection is over.
    async fn down(
        &self,
        mut frames: Frames<ReadHalf<'_>>,
        mut client: WriteHalf<'_>,
    ) -> io::Result<CloseReason> {
        loop {
            self.refuse(&mut client).await?;
            if self.over.load(Relaxed) && lock(&self.asked).is_empty() {
                return Ok(CloseReason::Eof);
            }
            let frame = tokio::select! {
                frame = frames.next() => frame.inspect_err(|_| self.entry.ended(End::Broken))?,
                () = self.changed.notified() => continue,
                () = tokio::time::sleep_until(self.wake().into()) => {
                    self.fail_overdue(&mut client).await?;
                    if self.idle() >= self.dns.caps.idle {
                        return Ok(CloseReason::Timeout);
                    }
                    continue;
                }
            };
            let Some(frame) = frame else {
                return Ok(CloseReason::Eof);
            };
            self.touch();
            if self.answer(frame.get(2..).unwrap_or(&[])).await {
                self.entry.counters.add_down(frame.len() as u64);
                self.entry.progressed();
                send(&mut client, &frame).await?;
            }
        }
    }

    /// Learns from a message of the server; false when it must not reach the client.
    async fn answer(&self, message: &[u8]) -> bool {
        let counters = &self.dns.counters;
        let id = message.first_chunk::<2>().map(|b| u16::from_be_bytes(*b));
        let found = {
            let asked = lock(&self.asked);
            let of = asked.iter().filter(|w| Some(w.id) == id);
            let mut tried = of.map(|w| read_answer(w.id, &w.name, w.kind, message));
            // The same number may stand for several questions.
            let first = tried.next();
            match first {
                Some(Err(_)) => tried.find(Result::is_ok).or(first),
                first => first,
            }
        };
        let answer = match found {
            None if self.opaque.load(Relaxed) => return true,
            None => {
                counters.mismatch.fetch_add(1, Relaxed);
                return false;
            }
            Some(Err(rejected)) => {
                self.dns.rejected(rejected);
                return false;
            }
            Some(Ok(answer)) => answer,
        };
        let waiting = {
            let mut asked = lock(&self.asked);
            let answered = |w: &Waiting| {
                Some(w.id) == id && read_answer(w.id, &w.name, w.kind, message).is_ok()
            };
            let at = asked.iter().position(answered);
            at.map(|at| asked.remove(at))
        };
        self.room.notify_one();
        let Some(waiting) = waiting else {
            return false;
        };
        let client = self.entry.flow.client.0.ip();
        let name = waiting.name.text();
        match self
            .dns
            .lesson(client, &name, waiting.kind, answer, message)
        {
            Some(lesson) => self.dns.learn(lesson).await,
            None => true,
        }
    }

    /// Tells the client which queries nobody answered in time.
    async fn fail_overdue(&self, client: &mut WriteHalf<'_>) -> io::Result<()> {
        let late: Vec<Waiting> = {
            let mut asked = lock(&self.asked);
            let deadline = self.dns.caps.deadline;
            let due = |w: &mut Waiting| w.since.elapsed() >= deadline;
            asked.extract_if(.., due).collect()
        };
        for waiting in late {
            self.room.notify_one();
            self.dns.counters.timeouts.fetch_add(1, Relaxed);
            if let Some(reply) = waiting.failure(Explanation::NoReachableAuthority) {
                self.own(client, &reply).await?;
            }
        }
        Ok(())
    }

    /// Tells the client which queries there was no room for.
    async fn refuse(&self, client: &mut WriteHalf<'_>) -> io::Result<()> {
        let refusals = std::mem::take(&mut *lock(&self.refusals));
        for reply in refusals {
            self.room.notify_one();
            self.own(client, &reply).await?;
        }
        Ok(())
    }

    async fn own(&self, client: &mut WriteHalf<'_>, reply: &[u8]) -> io::Result<()> {
        self.dns.counters.own(reply);
        let frame = [&(reply.len() as u16).to_be_bytes()[..], reply].concat();
        send(client, &frame).await
    }

    fn wake(&self) -> Instant {
        let caps = &self.dns.caps;
        let quiet = self.began + Duration::from_millis(self.last.load(Relaxed)) + caps.idle;
        let asked = lock(&self.asked);
        let due = asked.iter().map(|w| w.since + caps.deadline).min();
        due.map_or(quiet, |due| due.min(quiet))
    }

    fn touch(&self) {
        let millis = self.began.elapsed().as_millis() as u64;
        self.last.store(millis, Relaxed);
    }

    fn idle(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Relaxed));
        self.began.elapsed().saturating_sub(last)
    }
}

async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    match timeout(WRITE, to.write_all(bytes)).await {
        Ok(sent) => sent,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Moves the bytes of another protocol: client to server first, then the other way.
async fn opaque(
    from: [(ReadHalf<'_>, Vec<u8>); 2],
    to: [WriteHalf<'_>; 2],
    entry: &FlowEntry,
) -> io::Result<CloseReason> {
    let [(client_read, said), (server_read, early)] = from;
    let [server_write, client_write] = to;
    let moved = AtomicU64::new(0);
    tokio::try_join!(
        pump(client_read, said, server_write, &moved, |n| {
            entry.counters.add_up(n);
            entry.progressed();
        }),
        pump(server_read, early, client_write, &moved, |n| {
            entry.counters.add_down(n);
            entry.progressed();
        }),
    )?;
    Ok(CloseReason::Eof)
}

/// One direction until its end. It is idle only when the other one is as well.
async fn pump(
    mut from: ReadHalf<'_>,
    said: Vec<u8>,
    mut to: WriteHalf<'_>,
    moved: &AtomicU64,
    count: impl Fn(u64),
) -> io::Result<()> {
    let mut buffer = said;
    loop {
        if !buffer.is_empty() {
            send(&mut to, &buffer).await?;
            count(buffer.len() as u64);
            moved.fetch_add(1, Relaxed);
        }
        buffer.clear();
        buffer.reserve(16 << 10);
        let before = moved.load(Relaxed);
        match timeout(IDLE_OPAQUE, from.read_buf(&mut buffer)).await {
            Ok(Ok(0)) => break,
            Ok(read) => {
                read?;
            }
            Err(_) if moved.load(Relaxed) != before => {}
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    to.shutdown().await
}

#[cfg(test)]
mod tests;
