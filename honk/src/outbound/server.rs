//! What is known about the server of one node: its addresses, the one that worked last, and
//! whether it takes a pipelined handshake.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use arc_swap::ArcSwapOption;
use honk_policy::{
    id::Family,
    node::{Host, Node, Protocol, Server},
};
use honk_wire::socks5::Mode;

use super::{feed::Told, open::family_of};

/// Addresses tried for one flow.
const MAX_ATTEMPTS: usize = 6;

/// Addresses of a server.
#[derive(Debug)]
pub(crate) struct AddrList {
    addrs: Vec<SocketAddr>,
    /// When to look the name up again; `None` for a literal address.
    fresh_until: Option<Instant>,
    /// Index of the address that worked last.
    first: AtomicUsize,
}

/// The addresses one dial walks through, the one that worked last first.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    list: Arc<AddrList>,
    start: usize,
    tried: usize,
}

impl Candidates {
    /// The next address to try.
    pub(crate) fn advance(&mut self) -> Option<SocketAddr> {
        if self.tried >= self.list.addrs.len().min(MAX_ATTEMPTS) {
            return None;
        }
        let index = (self.start + self.tried) % self.list.addrs.len();
        self.tried += 1;
        self.list.addrs.get(index).copied()
    }

    /// Family of the address tried last.
    pub(crate) fn family(&self) -> Family {
        let index = (self.start + self.tried.saturating_sub(1)) % self.list.addrs.len().max(1);
        let addr = self.list.addrs.get(index);
        addr.map_or(Family::V4, |addr| family_of(addr.ip()))
    }

    /// Whether the server has an address in the family.
    pub(crate) fn has(&self, family: Family) -> bool {
        let v4 = family == Family::V4;
        self.list.addrs.iter().any(|addr| addr.is_ipv4() == v4)
    }

    /// Whether [`advance`](Self::advance) has another one.
    pub(crate) fn more(&self) -> bool {
        self.tried < self.list.addrs.len().min(MAX_ATTEMPTS)
    }

    /// The address tried last worked.
    pub(crate) fn worked(&self) {
        let index = (self.start + self.tried.saturating_sub(1)) % self.list.addrs.len().max(1);
        if self.list.first.load(Relaxed) != index {
            self.list.first.store(index, Relaxed);
        }
    }
}

const UNKNOWN: u8 = 0;
const TESTING: u8 = 1;
const REFUSED: u8 = 2;
const PROVEN: u8 = 3;
const PROVEN_HOLDS_BACK: u8 = 4;

/// What the test of a server found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipelining {
    /// It does not read the greeting exactly.
    Refused,
    /// It takes all messages at once.
    Accepted,
    /// So, but it holds its second answer back until the first is acknowledged (Nagle).
    AcceptedHoldsBack,
}

/// State of one node's server, shared by all flows through it.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) node: Arc<Node>,
    list: ArcSwapOption<AddrList>,
    refreshing: AtomicU8,
    pipelining: AtomicU8,
    doubted: AtomicU8,
    udp_refused: AtomicBool,
    /// What the health engine was told.
    pub(super) told: Told,
}

/// What [`ServerState::candidates`] knows.
#[derive(Debug)]
pub(crate) enum Known {
    /// Go ahead.
    Fresh(Candidates),
    /// Go ahead, but look the name up again meanwhile.
    Stale(Candidates),
    /// Look the name up first.
    Nothing,
}

impl ServerState {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let list = match server(&node.protocol) {
            Some(Server {
                host: Host::Ip(ip),
                port,
                ..
            }) => Some(Arc::new(AddrList {
                addrs: vec![SocketAddr::new(ip.to_canonical(), *port)],
                fresh_until: None,
                first: AtomicUsize::new(0),
            })),
            _ => None,
        };
        Self {
            node,
            list: ArcSwapOption::new(list),
            refreshing: AtomicU8::new(0),
            pipelining: AtomicU8::new(UNKNOWN),
            doubted: AtomicU8::new(0),
            udp_refused: AtomicBool::new(false),
            told: Told::default(),
        }
    }

    /// Addresses to dial. `Stale` is answered to one caller at a time.
    pub(crate) fn candidates(&self, now: Instant) -> Known {
        let Some(list) = self.list.load_full() else {
            return Known::Nothing;
        };
        let stale = list.fresh_until.is_some_and(|until| until <= now);
        let start = list.first.load(Relaxed);
        let candidates = Candidates {
            list,
            start,
            tried: 0,
        };
        if stale && self.refreshing.swap(1, Relaxed) == 0 {
            Known::Stale(candidates)
        } else {
            Known::Fresh(candidates)
        }
    }

    /// Stores the result of a lookup; keeps the preference if the address is still there.
    pub(crate) fn resolved(&self, ips: &[IpAddr], fresh_until: Instant) {
        let Some(port) = server(&self.node.protocol).map(|s| s.port) else {
            return;
        };
        let addrs: Vec<_> = ips.iter().map(|&ip| SocketAddr::new(ip, port)).collect();
        let before = self.list.load_full();
        let worked = before.and_then(|l| l.addrs.get(l.first.load(Relaxed)).copied());
        let first = addrs.iter().position(|a| Some(*a) == worked).unwrap_or(0);
        self.list.store(Some(Arc::new(AddrList {
            addrs,
            fresh_until: Some(fresh_until),
            first: AtomicUsize::new(first),
        })));
    }

    /// A refresh ended, with or without a result.
    pub(crate) fn refreshed(&self) {
        self.refreshing.store(0, Relaxed);
    }

    /// How to talk to this server now.
    pub(crate) fn mode(&self) -> Mode {
        match self.pipelining.load(Relaxed) {
            PROVEN | PROVEN_HOLDS_BACK => Mode::Pipelined,
            _ => Mode::Serial,
        }
    }

    /// Whether answers must be acknowledged at once.
    pub(crate) fn holds_back(&self) -> bool {
        self.pipelining.load(Relaxed) == PROVEN_HOLDS_BACK
    }

    /// Claims the one test of pipelining; the caller must report with
    /// [`tested`](Self::tested).
    pub(crate) fn claim_test(&self) -> bool {
        matches!(self.node.protocol, Protocol::Socks5(_))
            && self.pipelining.load(Relaxed) == UNKNOWN
            && self.pipelining.swap(TESTING, Relaxed) == UNKNOWN
    }

    /// The test's result; `None` when it could not be carried out.
    pub(crate) fn tested(&self, result: Option<Pipelining>) {
        let value = match result {
            Some(Pipelining::Refused) => REFUSED,
            Some(Pipelining::Accepted) => PROVEN,
            Some(Pipelining::AcceptedHoldsBack) => PROVEN_HOLDS_BACK,
            None => UNKNOWN,
        };
        self.pipelining.store(value, Relaxed);
    }

    /// Whether asking for a datagram relay is worth it.
    pub(crate) fn udp(&self) -> bool {
        !self.udp_refused.load(Relaxed)
    }

    /// The server does not know the command; it will not learn it while this node lives.
    pub(crate) fn no_udp(&self) {
        self.udp_refused.store(true, Relaxed);
    }

    /// A pipelined handshake was garbled: the server is not the one that was tested. Once
    /// that may be a replacement, twice it is a server whose test means nothing.
    pub(crate) fn doubt(&self) {
        let again = self.doubted.swap(1, Relaxed) == 1;
        self.pipelining
            .store(if again { REFUSED } else { UNKNOWN }, Relaxed);
    }

    /// A pipelined handshake got no reply in time: most likely the target's fault, but a new
    /// server that loses requests would look the same.
    pub(crate) fn test_again(&self) {
        self.pipelining.store(UNKNOWN, Relaxed);
    }
}

/// The server of a protocol that has one.
pub(crate) fn server(protocol: &Protocol) -> Option<&Server> {
    match protocol {
        Protocol::Direct | Protocol::Block | Protocol::Proxy(_) => None,
        Protocol::Socks5(server) | Protocol::Http(server) => Some(server),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use honk_policy::id::{NodeId, Uuid};

    use super::*;

    fn state(host: Host) -> ServerState {
        ServerState::new(Arc::new(Node {
            id: NodeId(Uuid::nil()),
            name: "n".into(),
            protocol: Protocol::Socks5(Server {
                host,
                port: 1080,
                auth: None,
            }),
            origin: None,
        }))
    }

    fn walk(mut candidates: Candidates) -> Vec<String> {
        std::iter::from_fn(|| candidates.advance())
            .map(|a| a.ip().to_string())
            .collect()
    }

    #[test]
    fn a_literal_needs_no_lookup() {
        let state = state(Host::Ip("192.0.2.1".parse().unwrap()));
        let Known::Fresh(mut candidates) = state.candidates(Instant::now()) else {
            panic!("a literal is always fresh");
        };
        assert_eq!(
            candidates.advance(),
            Some("192.0.2.1:1080".parse().unwrap())
        );
        assert!(!candidates.more());
        assert_eq!(candidates.advance(), None);
    }

    #[test]
    fn the_address_that_worked_is_tried_first_and_survives_a_lookup() {
        let state = state(Host::Name("n.example".into()));
        let now = Instant::now();
        assert!(matches!(state.candidates(now), Known::Nothing));
        let ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|s| s.parse().unwrap());
        state.resolved(&ips, now + Duration::from_secs(60));
        let Known::Fresh(mut candidates) = state.candidates(now) else {
            panic!("fresh after a lookup");
        };
        candidates.advance();
        candidates.advance();
        candidates.worked();
        let Known::Fresh(next) = state.candidates(now) else {
            panic!("still fresh");
        };
        assert_eq!(walk(next), ["10.0.0.2", "10.0.0.3", "10.0.0.1"]);
        state.resolved(&[ips[2], ips[1]], now);
        let Known::Stale(next) = state.candidates(now) else {
            panic!("the new list has expired");
        };
        assert_eq!(walk(next), ["10.0.0.2", "10.0.0.3"]);
        assert!(
            matches!(state.candidates(now), Known::Fresh(_)),
            "one refresh at a time"
        );
        state.refreshed();
        assert!(matches!(state.candidates(now), Known::Stale(_)));
    }

    #[test]
    fn pipelining_needs_proof_and_one_test() {
        let state = state(Host::Name("n.example".into()));
        assert_eq!(state.mode(), Mode::Serial);
        assert!(state.claim_test() && !state.claim_test());
        state.tested(Some(Pipelining::AcceptedHoldsBack));
        assert_eq!(state.mode(), Mode::Pipelined);
        assert!(state.holds_back());
        state.doubt();
        assert_eq!(state.mode(), Mode::Serial);
        assert!(state.claim_test());
        state.tested(Some(Pipelining::Accepted));
        state.doubt();
        assert!(!state.claim_test(), "twice is enough");
        state.test_again();
        assert!(state.claim_test());
        state.tested(Some(Pipelining::Refused));
        assert!(!state.claim_test(), "a refusal is final until doubted");
    }
}
