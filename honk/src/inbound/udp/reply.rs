//! Sockets that answer clients with the address the answer came from.
//!
//! One transparent socket per family and source port serves every client; the source address
//! is chosen per datagram. The sockets are made by the private namespace's thread, so making
//! one is slow and the pool keeps them: least recently used out, idle ones closed.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{flow::ReplySockets, socket::mmsg::V6};

const IDLE: Duration = Duration::from_secs(120);
const IDLE_DNS: Duration = Duration::from_secs(30);
/// How long a failed bind is not tried again.
const FAILED: Duration = Duration::from_secs(2);
/// Failures remembered; beyond it the oldest knowledge is dropped.
const MAX_FAILED: usize = 1024;

/// What a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReplyKey {
    v6: V6,
    port: u16,
    /// Given only for the port of the listeners: there a wildcard socket would take part in
    /// their load balancing.
    addr: Option<IpAddr>,
}

#[derive(Debug)]
struct Slot {
    socket: Arc<UdpSocket>,
    /// Milliseconds since the pool began.
    used: AtomicU64,
}

/// The pool.
pub(super) struct ReplyPool {
    maker: Arc<dyn ReplySockets>,
    tproxy_port: u16,
    /// Sockets kept open.
    capacity: usize,
    /// Sockets closed before their time to make room.
    evicted: AtomicU64,
    began: Instant,
    slots: Mutex<HashMap<ReplyKey, Slot>>,
    failed: Mutex<HashMap<ReplyKey, Instant>>,
    /// Held while a socket is made, so that two replies do not make two.
    making: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for ReplyPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyPool")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl ReplyPool {
    pub(super) fn new(maker: Arc<dyn ReplySockets>, tproxy_port: u16, capacity: usize) -> Self {
        Self {
            maker,
            tproxy_port,
            capacity,
            evicted: AtomicU64::new(0),
            began: Instant::now(),
            slots: Mutex::default(),
            failed: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn key(&self, source: SocketAddr) -> ReplyKey {
        ReplyKey {
            v6: V6::of(source),
            port: source.port(),
            addr: (source.port() == self.tproxy_port).then_some(source.ip()),
        }
    }

    /// The socket, if it is there.
    pub(super) fn find(&self, key: ReplyKey, now: Instant) -> Option<Arc<UdpSocket>> {
        let slots = self.lock();
        let slot = slots.get(&key)?;
        slot.used.store(self.millis(now), Relaxed);
        Some(Arc::clone(&slot.socket))
    }

    /// The socket, made when it is not there.
    pub(super) async fn make(&self, key: ReplyKey, now: Instant) -> io::Result<Arc<UdpSocket>> {
        let _one = self.making.lock().await;
        if let Some(socket) = self.find(key, now) {
            return Ok(socket);
        }
        if self.failed_lately(key, now) {
            return Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
        }
        let maker = Arc::clone(&self.maker);
        let bind = move || maker.bind(key.v6 == V6::Yes, key.port, key.addr);
        let made = tokio::task::spawn_blocking(bind).await;
        match made.map_err(io::Error::other).and_then(|made| made) {
            Ok(socket) => {
                let socket = Arc::new(socket);
                self.insert(key, Arc::clone(&socket), now);
                Ok(socket)
            }
            Err(error) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.len() >= MAX_FAILED {
                    failed.clear();
                }
                failed.insert(key, now);
                tracing::debug!(port = key.port, %error, "reply_socket_failed");
                Err(error)
            }
        }
    }

    /// Makes sockets that are not kept here.
    pub(super) fn maker(&self) -> Arc<dyn ReplySockets> {
        Arc::clone(&self.maker)
    }

    /// Closes sockets nobody used lately.
    pub(super) fn sweep(&self, now: Instant) {
        let millis = self.millis(now);
        self.lock().retain(|key, slot| {
            let limit = if key.port == 53 { IDLE_DNS } else { IDLE };
            millis.saturating_sub(slot.used.load(Relaxed)) < limit.as_millis() as u64
        });
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, at| now.saturating_duration_since(*at) < FAILED);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    fn insert(&self, key: ReplyKey, socket: Arc<UdpSocket>, now: Instant) {
        let mut slots = self.lock();
        if slots.len() >= self.capacity {
            let oldest = slots.iter().min_by_key(|(_, slot)| slot.used.load(Relaxed));
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                slots.remove(&oldest);
                self.evicted.fetch_add(1, Relaxed);
            }
        }
        let used = AtomicU64::new(self.millis(now));
        slots.insert(key, Slot { socket, used });
    }

    fn failed_lately(&self, key: ReplyKey, now: Instant) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |at: &Instant| now.saturating_duration_since(*at) < FAILED;
        failed.get(&key).is_some_and(fresh)
    }

    fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_millis() as u64
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ReplyKey, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Maker {
        calls: AtomicUsize,
        refuse: std::sync::atomic::AtomicBool,
        asked: Mutex<Vec<(bool, u16, Option<IpAddr>)>>,
    }

    impl ReplySockets for Maker {
        fn bind(&self, v6: bool, port: u16, addr: Option<IpAddr>) -> io::Result<UdpSocket> {
            self.calls.fetch_add(1, Relaxed);
            self.asked.lock().unwrap().push((v6, port, addr));
            if self.refuse.load(Relaxed) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            UdpSocket::bind("127.0.0.1:0")
        }
    }

    const CAPACITY: usize = 8;

    fn pool() -> (Arc<Maker>, ReplyPool) {
        let maker = Arc::new(Maker::default());
        (Arc::clone(&maker), ReplyPool::new(maker, 12345, CAPACITY))
    }

    fn source(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn one_socket_serves_all_addresses_of_a_port() {
        let (maker, pool) = pool();
        let now = Instant::now();
        let a = pool.key(source("192.0.2.1:53"));
        assert_eq!(a, pool.key(source("192.0.2.2:53")));
        assert_ne!(a, pool.key(source("[2001:db8::1]:53")));
        assert!(pool.find(a, now).is_none());
        pool.make(a, now).await.unwrap();
        pool.make(a, now).await.unwrap();
        assert!(pool.find(a, now).is_some());
        assert_eq!(maker.calls.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn the_listeners_port_is_bound_per_address() {
        let (maker, pool) = pool();
        for text in ["192.0.2.1:12345", "192.0.2.2:12345"] {
            let key = pool.key(source(text));
            pool.make(key, Instant::now()).await.unwrap();
        }
        let asked = maker.asked.lock().unwrap();
        let addrs: Vec<_> = asked
            .iter()
            .map(|(_, _, addr)| addr.unwrap().to_string())
            .collect();
        assert_eq!(addrs, ["192.0.2.1", "192.0.2.2"]);
    }

    #[tokio::test]
    async fn a_failed_bind_is_not_repeated_for_a_while() {
        let (maker, pool) = pool();
        maker.refuse.store(true, Relaxed);
        let (key, now) = (pool.key(source("192.0.2.1:5000")), Instant::now());
        assert!(pool.make(key, now).await.is_err());
        assert!(pool.make(key, now).await.is_err());
        assert_eq!(maker.calls.load(Relaxed), 1);
        maker.refuse.store(false, Relaxed);
        assert!(pool.make(key, now + FAILED).await.is_ok());
    }

    #[tokio::test]
    async fn idle_sockets_are_closed_dns_sooner() {
        let (_, pool) = pool();
        let now = Instant::now();
        for text in ["192.0.2.1:53", "192.0.2.1:443"] {
            pool.make(pool.key(source(text)), now).await.unwrap();
        }
        pool.sweep(now + IDLE_DNS);
        assert_eq!(pool.len(), 1);
        pool.find(
            pool.key(source("192.0.2.9:443")),
            now + Duration::from_secs(100),
        );
        pool.sweep(now + IDLE);
        assert_eq!(pool.len(), 1, "used 20 s ago");
        pool.sweep(now + IDLE + IDLE);
        assert_eq!(pool.len(), 0);
    }

    #[test]
    fn the_least_recently_used_makes_room() {
        let (_, pool) = pool();
        let now = Instant::now();
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let key = |port: usize| ReplyKey {
            v6: V6::No,
            port: port as u16,
            addr: None,
        };
        for port in 1..=CAPACITY {
            let at = now + Duration::from_millis(port as u64);
            pool.insert(key(port), Arc::clone(&socket), at);
        }
        let later = now + Duration::from_secs(10);
        assert!(pool.find(key(1), later).is_some());
        pool.insert(key(2000), socket, later);
        assert_eq!((pool.len(), pool.evicted()), (CAPACITY, 1));
        assert!(pool.find(key(2), later).is_none(), "the oldest is gone");
        assert!(
            pool.find(key(1), later).is_some(),
            "the one used again is not"
        );
    }
}
