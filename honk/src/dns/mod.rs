//! DNS on its way through the gateway: queries to port 53 that no `must` rule sends elsewhere.
//!
//! A query goes on to the server the client asked, byte for byte, through the outbound that
//! the rules choose. Its answer is checked, the addresses in it are remembered as leases of
//! the name, and the kernel knows what they mean for the rules before the client gets the
//! answer: the flow that follows is judged by its name from the first packet on.
//!
//! `inbound` moves the messages and asks here about each of them. What is no query passes
//! untouched, so other protocols on the port go on working.

mod asked;
mod book;
mod counters;
mod frame;
mod load;
mod names;
mod stream;
#[cfg(test)]
pub(crate) mod testkit;
#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use honk_common::route::DomainVal;
use honk_policy::{
    dns::{Leases, Lesson, Limits, OwnerView},
    routing::oracle::Oracle,
};
use honk_wire::dns::{Answer, Explanation, Query, Rejected, rcode, read_answer, refuse};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use self::{
    asked::{Asked, Key, Waiting},
    book::Book,
    load::Load,
};
pub(crate) use self::{
    book::{DomainMap, MapFault},
    counters::{Counters, Snapshot},
    stream::Carried,
};
use crate::flow::FlowEntry;

/// Where queries go.
pub(crate) const PORT: u16 = 53;
/// Time for an answer; stub resolvers give up after 5 s and learn more from an error.
const DEADLINE: Duration = Duration::from_millis(4800);
/// Time an answer waits for the kernel map before it is sent anyway.
const LATE: Duration = Duration::from_millis(2);
/// Replies of honk's own that wait to be sent.
const REPLIES: usize = 1024;
/// Answers that wait for the memory at the same time.
const LEARNERS: usize = 256;
/// Portions of entries that the slow clock writes at most.
const PORTIONS: usize = 16;

/// Places and times.
#[derive(Clone, Copy, Debug)]
struct Caps {
    /// Unanswered queries of all clients, and of one.
    queries: usize,
    queries_per_client: usize,
    /// TCP connections of all clients, and of one.
    streams: usize,
    streams_per_client: usize,
    /// Time for an answer.
    deadline: Duration,
    /// Time of a TCP connection without a message.
    idle: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            queries: 2048,
            queries_per_client: 256,
            streams: 1024,
            streams_per_client: 256,
            deadline: DEADLINE,
            idle: Duration::from_secs(30),
        }
    }
}

/// Whether a flow carries queries that are looked at.
pub(crate) fn concerns(entry: &FlowEntry) -> bool {
    entry.flow.target.0.port() == PORT && !entry.must
}

/// What to do with a datagram of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A query: its answer will be looked at.
    Forward,
    /// Something else: passes, and so does what comes back.
    Opaque,
    /// Too many are unanswered; the client is told.
    Refused,
}

/// What to do with a datagram of a server.
#[derive(Debug)]
pub(crate) enum Reply {
    Pass,
    /// Nobody asked, or it is no answer to what was asked.
    Drop,
    /// Passes once [`Dns::learn`] returns true.
    Learn(Lesson),
}

/// A reply of honk's own, to be sent to `client` as if from `server`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnReply {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// Everything about DNS that lives as long as the daemon.
#[derive(Debug)]
pub(crate) struct Dns {
    asked: Asked,
    load: Arc<Load>,
    streams: Arc<Load>,
    caps: Caps,
    book: Mutex<Book>,
    counters: Counters,
    began: Instant,
    learners: Arc<Semaphore>,
    replies: mpsc::Sender<OwnReply>,
    /// Taken by whoever sends them.
    outgoing: Mutex<Option<mpsc::Receiver<OwnReply>>>,
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
}

impl Dns {
    /// Must be called inside a tokio runtime.
    pub(crate) fn new(map: Arc<dyn DomainMap>) -> Arc<Self> {
        Self::with_limits(map, Limits::default(), Caps::default())
    }

    fn with_limits(map: Arc<dyn DomainMap>, leases: Limits, caps: Caps) -> Arc<Self> {
        let (replies, outgoing) = mpsc::channel(REPLIES);
        Arc::new(Self {
            asked: Asked::default(),
            load: Load::new(caps.queries, caps.queries_per_client),
            streams: Load::new(caps.streams, caps.streams_per_client),
            caps,
            book: Mutex::new(Book::new(map, Leases::new(leases))),
            counters: Counters::default(),
            began: Instant::now(),
            learners: Arc::new(Semaphore::new(LEARNERS)),
            replies,
            outgoing: Mutex::new(Some(outgoing)),
            tasks: Mutex::default(),
            runtime: Handle::current(),
        })
    }

    /// The replies of honk's own, for whoever sends datagrams to clients; once.
    pub(crate) fn outgoing(&self) -> Option<mpsc::Receiver<OwnReply>> {
        lock(&self.outgoing).take()
    }

    /// A datagram of a client to a server.
    pub(crate) fn ask(
        &self,
        client: SocketAddr,
        server: SocketAddr,
        payload: &[u8],
        now: Instant,
    ) -> Ask {
        let Some(query) = Query::read(payload) else {
            self.counters.opaque.fetch_add(1, Relaxed);
            return Ask::Opaque;
        };
        self.counters.query(0, query.kind);
        let key = Key {
            client,
            server,
            id: query.id,
        };
        if self.asked.repeats(&key, &query) {
            return Ask::Forward;
        }
        let Some(place) = self.load.take(client.ip()) else {
            self.refuse(client, server, &query, 0, Explanation::NetworkError);
            return Ask::Refused;
        };
        let waiting = Waiting::new(&query, payload, now, place);
        self.asked.put(key, waiting);
        Ask::Forward
    }

    /// A datagram to port 53 whose flow was refused: tells the client if it was a query.
    pub(crate) fn turned_down(
        &self,
        client: SocketAddr,
        server: SocketAddr,
        payload: &[u8],
        why: Explanation,
    ) {
        if let Some(query) = Query::read(payload) {
            self.counters.query(0, query.kind);
            let reason = if why == Explanation::Blocked { 1 } else { 0 };
            self.refuse(client, server, &query, reason, why);
        }
    }

    /// A datagram of a server to a client that asked it. `opaque` tells whether the client
    /// also sent it something that was no query.
    pub(crate) fn reply(
        &self,
        client: SocketAddr,
        server: SocketAddr,
        payload: &[u8],
        opaque: bool,
    ) -> Reply {
        let id = payload.first_chunk::<2>().map(|b| u16::from_be_bytes(*b));
        let key = id.map(|id| Key { client, server, id });
        let Some((key, name, kind)) = key.and_then(|key| self.asked.find(key)) else {
            if opaque {
                return Reply::Pass;
            }
            self.counters.mismatch.fetch_add(1, Relaxed);
            return Reply::Drop;
        };
        match read_answer(key.id, &name, kind, payload) {
            Ok(answer) => {
                self.asked.take(&key);
                match self.lesson(client.ip(), &name.text(), kind, answer, payload) {
                    Some(lesson) if !self.try_learn(&lesson) => Reply::Learn(lesson),
                    _ => Reply::Pass,
                }
            }
            Err(rejected) => {
                self.rejected(rejected);
                Reply::Drop
            }
        }
    }

    fn rejected(&self, rejected: Rejected) {
        let counter = match rejected {
            Rejected::Foreign => &self.counters.mismatch,
            Rejected::Malformed => &self.counters.malformed,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// What there is to remember of an answer.
    fn lesson(
        &self,
        client: IpAddr,
        name: &str,
        kind: u16,
        answer: Answer,
        payload: &[u8],
    ) -> Option<Lesson> {
        self.counters.response(payload);
        let addresses = match answer {
            Answer::Addresses { list, more } => {
                self.counters.cut.fetch_add(more as u64, Relaxed);
                if list.is_empty() {
                    return None;
                }
                list.iter().map(|l| (l.address, l.ttl)).collect()
            }
            Answer::Negative => Vec::new(),
            Answer::Truncated | Answer::Nothing => return None,
        };
        Some(Lesson {
            client,
            name: name.to_owned(),
            kind,
            addresses,
        })
    }

    /// Learns at once, unless somebody else has the memory at the moment.
    fn try_learn(&self, lesson: &Lesson) -> bool {
        let Ok(mut book) = self.book.try_lock() else {
            return false;
        };
        book.learn(self.now(), lesson);
        true
    }

    /// Learns, and returns when the kernel knows or after [`LATE`]; false when there are too
    /// many answers to learn and this one must not be passed on.
    pub(crate) async fn learn(self: &Arc<Self>, lesson: Lesson) -> bool {
        if self.try_learn(&lesson) {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.learners).try_acquire_owned() else {
            self.counters.unlearned.fetch_add(1, Relaxed);
            return false;
        };
        let dns = Arc::clone(self);
        // Goes on when nobody waits for it any more.
        let job = self.runtime.spawn_blocking(move || {
            lock(&dns.book).learn(dns.now(), &lesson);
            drop(permit);
        });
        if tokio::time::timeout(LATE, job).await.is_err() {
            self.counters.late.fetch_add(1, Relaxed);
        }
        true
    }

    /// The way to a server is gone: its clients need not wait for the deadline.
    pub(crate) fn broken(&self, client: SocketAddr, server: SocketAddr) {
        for waiting in self.asked.take_all(client, server) {
            self.fail(client, server, &waiting, Explanation::NetworkError);
        }
    }

    /// Whether datagram queries wait for their answer.
    pub(crate) fn waits(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Tells clients whose queries nobody answered in time.
    pub(crate) fn expire(&self, now: Instant) {
        for (key, waiting) in self.asked.overdue(now, self.caps.deadline) {
            self.counters.timeouts.fetch_add(1, Relaxed);
            let why = Explanation::NoReachableAuthority;
            self.fail(key.client, key.server, &waiting, why);
        }
    }

    fn fail(&self, client: SocketAddr, server: SocketAddr, waiting: &Waiting, why: Explanation) {
        if let Some(bytes) = waiting.failure(why) {
            self.send(OwnReply {
                client,
                server,
                bytes,
            });
        }
    }

    fn refuse(
        &self,
        client: SocketAddr,
        server: SocketAddr,
        query: &Query<'_>,
        reason: usize,
        why: Explanation,
    ) {
        self.counters.refused[reason].fetch_add(1, Relaxed);
        let mut bytes = Vec::new();
        refuse(query, rcode::REFUSED, why, &mut bytes);
        self.send(OwnReply {
            client,
            server,
            bytes,
        });
    }

    fn send(&self, reply: OwnReply) {
        self.counters.own(&reply.bytes);
        if self.replies.try_send(reply).is_err() {
            self.counters.unsent.fetch_add(1, Relaxed);
        }
    }

    /// The slow clock: ends leases, brings the kernel up to date. Called about once a second.
    pub(crate) fn tick(&self) {
        lock(&self.book).sweep(self.now());
        for _ in 0..PORTIONS {
            if !lock(&self.book).flush() {
                return;
            }
        }
    }

    /// Brings all leases into the bank of a staged generation. From now on what is learned
    /// goes to both, until [`activated`](Self::activated) or [`unstage`](Self::unstage).
    pub(crate) fn stage(&self, generation: u32, oracle: Arc<Oracle>) -> Result<(), MapFault> {
        lock(&self.book).stage(generation, oracle);
        // In portions: answers are learned in between.
        while lock(&self.book).fill_staged()? {}
        Ok(())
    }

    /// The staged generation is the one packets see.
    pub(crate) fn activated(&self) {
        lock(&self.book).activated();
    }

    /// The staged generation came to nothing.
    pub(crate) fn unstage(&self) {
        lock(&self.book).unstage();
    }

    /// The name by which a flow of a client to an address goes: the one this client heard
    /// last for it, else the last that anybody heard.
    pub(crate) fn name_for(&self, client: IpAddr, address: IpAddr) -> Option<Arc<str>> {
        let book = lock(&self.book);
        book.leases.name_for(client, address).map(Arc::clone)
    }

    /// The name this client itself heard last for an address.
    pub(crate) fn heard(&self, client: IpAddr, address: IpAddr) -> Option<Arc<str>> {
        let book = lock(&self.book);
        book.leases.heard(client, address).map(Arc::clone)
    }

    /// What is known of an address, of the addresses of a name, or of all, at most `max` of
    /// them; also returns how many there are.
    pub(crate) fn known(&self, of: &Wanted, max: usize) -> (Vec<Known>, usize) {
        // In portions: answers are learned in between.
        let now = self.now();
        let mut addresses = lock(&self.book).addresses(now, of);
        let total = addresses.len();
        addresses.sort_unstable();
        addresses.truncate(max);
        let known = addresses
            .chunks(64)
            .flat_map(|some| lock(&self.book).known(now, some));
        (known.collect(), total)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.counters.snapshot();
        snapshot.waiting = self.load.used();
        snapshot.streams = self.streams.used();
        lock(&self.book).measure(&mut snapshot);
        snapshot
    }

    /// Ends the TCP connections; their flows are told as `Shutdown`.
    pub(crate) async fn finish(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
    }

    /// Seconds since the start.
    fn now(&self) -> u64 {
        self.began.elapsed().as_secs()
    }
}

/// An address with its names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) address: IpAddr,
    /// With the seconds left, the longest last.
    pub(crate) names: Vec<OwnerView>,
    /// What they say about the lines of the rules in force.
    pub(crate) value: Option<DomainVal>,
}

/// Whose leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Address(IpAddr),
    Name(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
