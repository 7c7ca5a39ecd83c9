//! Names of node servers to addresses, through the bootstrap resolvers only.
//!
//! `/etc/resolv.conf` is never read: it may point back to this gateway. Answers are cached
//! for their TTL within limits; a failed refresh keeps the last good addresses. Names under
//! `localhost` are this machine and are never asked for (RFC 6761).

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use honk_wire::dns::{self, Addresses, Kind};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UdpSocket,
    time::timeout,
};

use super::{stream, stream::udp};
use crate::socket::Mark;

/// Names kept; more than any configuration holds, a guard against a bug.
const CACHE: usize = 8192;
/// Time for one server, UDP and TCP each.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
const MIN_TTL: Duration = Duration::from_secs(60);
const MAX_TTL: Duration = Duration::from_secs(3600);
/// After a failed refresh the old addresses serve this long before the next attempt.
const RETRY: Duration = Duration::from_secs(15);
/// Largest answer read from a resolver over UDP.
const MAX_UDP: usize = 4096;

/// Why a name has no address.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("no bootstrap resolver is configured; set global.bootstrap_resolver")]
    NoResolver,
    #[error("the name has no address")]
    NoAddress,
    #[error(transparent)]
    Dns(#[from] dns::Error),
    /// One resolver was silent.
    #[error("no answer in time")]
    Timeout,
    /// One resolver cannot be reached.
    #[error(transparent)]
    Io(Arc<io::Error>),
    /// None of them answered; the cause is that of the last one.
    #[error("no resolver answered ({cause}); asked {asked}; set global.bootstrap_resolver")]
    Unanswered { asked: String, cause: Box<Self> },
}

impl ResolveError {
    /// Whether waiting was all that went wrong.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Timeout => true,
            Self::Unanswered { cause, .. } => cause.is_timeout(),
            Self::NoResolver | Self::NoAddress | Self::Dns(_) | Self::Io(_) => false,
        }
    }
}

/// Addresses of a name, IPv4 and IPv6 in turn, and when to ask again.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) ips: Arc<[IpAddr]>,
    pub(crate) fresh_until: Instant,
}

/// The cache. Concurrent lookups of one name share one query.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    names: Mutex<HashMap<String, Arc<Slot>>>,
}

type Slot = tokio::sync::Mutex<Option<Resolved>>;

impl Resolver {
    /// Looks a name up.
    pub(crate) async fn lookup(
        &self,
        name: &str,
        servers: &[SocketAddr],
        mark: Mark,
    ) -> Result<Resolved, ResolveError> {
        if is_localhost(name) {
            return Ok(loopback());
        }
        let slot = self.slot(name);
        let mut cached = slot.lock().await;
        let now = Instant::now();
        if let Some(fresh) = cached.as_ref().filter(|r| r.fresh_until > now) {
            return Ok(fresh.clone());
        }
        match query_all(name, servers, mark).await {
            Ok(found) => Ok(cached.insert(found).clone()),
            Err(error) => match cached.as_mut() {
                Some(stale) => {
                    stale.fresh_until = now + RETRY;
                    Ok(stale.clone())
                }
                None => Err(error),
            },
        }
    }

    fn slot(&self, name: &str) -> Arc<Slot> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = names.get(name) {
            return Arc::clone(slot);
        }
        if names.len() >= CACHE {
            names.clear();
        }
        let slot = Arc::new(Slot::default());
        names.insert(name.to_owned(), Arc::clone(&slot));
        slot
    }
}

/// `localhost` and everything below it, with or without the final dot.
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next();
    last.is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
}

fn loopback() -> Resolved {
    Resolved {
        ips: [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].into(),
        fresh_until: Instant::now() + MAX_TTL,
    }
}

/// Asks the servers in order until one answers; an answer without addresses is final.
async fn query_all(
    name: &str,
    servers: &[SocketAddr],
    mark: Mark,
) -> Result<Resolved, ResolveError> {
    let mut last = ResolveError::NoResolver;
    for &server in servers {
        let (v4, v6) = tokio::join!(
            query(name, Kind::A, server, mark),
            query(name, Kind::Aaaa, server, mark)
        );
        match (v4, v6) {
            (Err(error @ ResolveError::Dns(dns::Error::NoSuchName)), _) => return Err(error),
            (Err(error), Err(_)) => last = error,
            (v4, v6) => return merge(v4.ok(), v6.ok()),
        }
    }
    match last {
        cause @ (ResolveError::Timeout | ResolveError::Io(_)) => {
            let asked: Vec<_> = servers.iter().map(ToString::to_string).collect();
            Err(ResolveError::Unanswered {
                asked: asked.join(", "),
                cause: Box::new(cause),
            })
        }
        answered => Err(answered),
    }
}

/// Both families in turn, IPv4 first: a gateway whose IPv6 is broken is more common than one
/// without IPv4, and the address that worked is remembered anyway.
fn merge(v4: Option<Addresses>, v6: Option<Addresses>) -> Result<Resolved, ResolveError> {
    let ttl = [&v4, &v6]
        .into_iter()
        .flatten()
        .filter(|a| !a.addresses.is_empty())
        .map(|a| Duration::from_secs(a.ttl.into()))
        .min()
        .ok_or(ResolveError::NoAddress)?;
    let mut v4 = v4.unwrap_or_default().addresses.into_iter();
    let mut v6 = v6.unwrap_or_default().addresses.into_iter();
    let mut ips = Vec::new();
    loop {
        let before = ips.len();
        ips.extend(v4.next());
        ips.extend(v6.next());
        if ips.len() == before {
            break;
        }
    }
    Ok(Resolved {
        ips: ips.into(),
        fresh_until: Instant::now() + ttl.clamp(MIN_TTL, MAX_TTL),
    })
}

/// One question to one server: UDP, then TCP when the answer was cut.
async fn query(
    name: &str,
    kind: Kind,
    server: SocketAddr,
    mark: Mark,
) -> Result<Addresses, ResolveError> {
    let [a, b, ..] = *uuid::Uuid::new_v4().as_bytes();
    let mut question = Vec::new();
    dns::query(u16::from_be_bytes([a, b]), name, kind, &mut question)?;
    let over_udp = timeout(SERVER_TIMEOUT, query_udp(&question, server, mark)).await;
    match over_udp.map_err(|_| ResolveError::Timeout)? {
        Err(ResolveError::Dns(dns::Error::Truncated)) => {
            let over_tcp = timeout(SERVER_TIMEOUT, query_tcp(&question, server, mark)).await;
            over_tcp.map_err(|_| ResolveError::Timeout)?
        }
        other => other,
    }
}

async fn query_udp(
    question: &[u8],
    server: SocketAddr,
    mark: Mark,
) -> Result<Addresses, ResolveError> {
    let io = |e| ResolveError::Io(Arc::new(e));
    let socket: UdpSocket = udp(server, mark).map_err(io)?;
    socket.connect(server).await.map_err(io)?;
    socket.send(question).await.map_err(io)?;
    let mut buffer = vec![0; MAX_UDP];
    loop {
        let n = socket.recv(&mut buffer).await.map_err(io)?;
        match dns::answer(question, &buffer[..n]) {
            // Not ours or not DNS: somebody else's packet does not end the wait.
            Err(dns::Error::Foreign | dns::Error::Malformed) => {}
            other => return Ok(other?),
        }
    }
}

async fn query_tcp(
    question: &[u8],
    server: SocketAddr,
    mark: Mark,
) -> Result<Addresses, ResolveError> {
    let io = |e| ResolveError::Io(Arc::new(e));
    let mut stream = stream::connect(server, mark).await.map_err(io)?;
    let mut framed = (question.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(question);
    stream.write_all(&framed).await.map_err(io)?;
    let len = stream.read_u16().await.map_err(io)?;
    let mut message = vec![0; usize::from(len)];
    stream.read_exact(&mut message).await.map_err(io)?;
    Ok(dns::answer(question, &message)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resolver on loopback that answers every question with `reply`.
    async fn server(
        reply: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static,
    ) -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
                seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                if let Some(answer) = reply(&buffer[..n]) {
                    let _ = socket.send_to(&answer, from).await;
                }
            }
        });
        (addr, count)
    }

    fn with_flags(question: &[u8], flags: u16, answers: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = question.to_vec();
        out[2..4].copy_from_slice(&(0x8000 | flags).to_be_bytes());
        out[6..8].copy_from_slice(&(answers.len() as u16).to_be_bytes());
        for (kind, data) in answers {
            out.extend_from_slice(&[0xc0, 12]);
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&[0, 1, 0, 0, 0, 30]);
            out.extend_from_slice(&(data.len() as u16).to_be_bytes());
            out.extend_from_slice(data);
        }
        out
    }

    fn is_a(question: &[u8]) -> bool {
        question[question.len() - 3] == 1
    }

    fn addresses(question: &[u8]) -> Vec<u8> {
        if is_a(question) {
            with_flags(question, 0, &[(1, &[10, 0, 0, 1]), (1, &[10, 0, 0, 2])])
        } else {
            with_flags(question, 0, &[(28, &[1; 16])])
        }
    }

    const NONE: Mark = Mark(0);

    #[tokio::test]
    async fn both_families_come_in_turn_and_are_cached() {
        let (addr, count) = server(|q| Some(addresses(q))).await;
        let resolver = Resolver::default();
        let got = resolver.lookup("n.example", &[addr], NONE).await.unwrap();
        let want: Vec<IpAddr> = ["10.0.0.1", "101:101:101:101:101:101:101:101", "10.0.0.2"]
            .iter()
            .map(|s| s.parse().unwrap())
            .collect();
        assert_eq!(*got.ips, want);
        resolver.lookup("n.example", &[addr], NONE).await.unwrap();
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn the_next_server_helps_out_but_a_missing_name_is_final() {
        let (broken, _) = server(|q| Some(with_flags(q, 2, &[]))).await;
        let (good, count) = server(|q| Some(addresses(q))).await;
        let (absent, _) = server(|q| Some(with_flags(q, 3, &[]))).await;
        let resolver = Resolver::default();
        let servers = [broken, good];
        assert!(resolver.lookup("a.example", &servers, NONE).await.is_ok());
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 2);
        let got = resolver.lookup("b.example", &[absent, good], NONE).await;
        assert!(matches!(
            got,
            Err(ResolveError::Dns(dns::Error::NoSuchName))
        ));
        assert!(matches!(
            resolver.lookup("c.example", &[], NONE).await,
            Err(ResolveError::NoResolver)
        ));
    }

    #[tokio::test]
    async fn a_cut_answer_is_asked_again_over_tcp() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let udp = UdpSocket::bind(addr).await.unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((n, from)) = udp.recv_from(&mut buffer).await {
                let cut = with_flags(&buffer[..n], 0x0200, &[]);
                let _ = udp.send_to(&cut, from).await;
            }
        });
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let len = stream.read_u16().await.unwrap();
                let mut question = vec![0; len.into()];
                stream.read_exact(&mut question).await.unwrap();
                let answer = addresses(&question);
                stream.write_u16(answer.len() as u16).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
        let got = Resolver::default().lookup("n.example", &[addr], NONE).await;
        assert_eq!(got.unwrap().ips.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_names_who_was_asked_and_the_key() {
        let silent = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let sockets = [silent(), silent()];
        let servers = sockets.each_ref().map(|s| s.local_addr().unwrap());
        let got = Resolver::default();
        let error = got.lookup("n.example", &servers, NONE).await.unwrap_err();
        assert!(error.is_timeout());
        let text = error.to_string();
        let [a, b] = servers.map(|s| s.to_string());
        for part in [&a, &b, "no answer in time", "global.bootstrap_resolver"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[tokio::test]
    async fn an_unreachable_resolver_is_named_too() {
        let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = gone.local_addr().unwrap();
        drop(gone);
        let resolver = Resolver::default();
        let error = resolver.lookup("n.example", &[server], NONE).await;
        let error = error.unwrap_err();
        assert!(!error.is_timeout());
        let text = error.to_string();
        assert!(text.contains(&server.to_string()), "{text}");
        assert!(text.contains("global.bootstrap_resolver"), "{text}");
    }

    #[tokio::test]
    async fn localhost_is_this_machine_and_nobody_is_asked() {
        let (addr, count) = server(|q| Some(addresses(q))).await;
        let resolver = Resolver::default();
        for name in ["localhost", "LocalHost", "localhost.", "a.b.localhost"] {
            let got = resolver.lookup(name, &[addr], NONE).await.unwrap();
            assert!(got.ips.iter().all(IpAddr::is_loopback), "{name}");
            assert_eq!(got.ips.len(), 2, "{name}");
            assert!(resolver.lookup(name, &[], NONE).await.is_ok(), "{name}");
        }
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 0);
        for name in ["notlocalhost", "localhost.example"] {
            let got = resolver.lookup(name, &[addr], NONE).await.unwrap();
            assert!(!got.ips.iter().any(IpAddr::is_loopback), "{name}");
        }
    }
}
