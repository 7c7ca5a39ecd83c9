//! A small world for tests: an admission that answers as told, a sink that remembers, and
//! servers that play a script on loopback.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use honk_policy::{
    group::{Rival, Rivals},
    id::{GroupId, Network, NodeId, Secret, Uuid},
    node::{Host, Node, Protocol, Server},
};

pub(crate) use crate::testkit::{PATIENCE, soon, until};
use crate::{
    dns::{self, Dns},
    flow::{
        Admission, Answer, Back, Cancel, ClientAddr, CloseReason, Finding, FlowCounters, FlowEntry,
        FlowGuard, FlowSink, NewFlow, OrigDst, Refusal, Route, Undecided, Wake, Way, Why,
    },
    outbound::{Dialer, Settings},
};

/// What the kernel heard of flows, with their targets.
type Heard = Vec<(&'static str, SocketAddr)>;

/// Remembers flows.
#[derive(Default)]
pub(crate) struct World {
    answer: Mutex<Option<Result<Arc<Node>, Refusal>>>,
    live: Mutex<Vec<Arc<FlowEntry>>>,
    closed: Mutex<Vec<(Arc<FlowEntry>, CloseReason)>>,
    changed: Condvar,
    admitted: AtomicU64,
    /// The next admission panics.
    pub(crate) bug: AtomicBool,
    /// Flows are sniffed, and their first bytes awaited this long.
    patience: Mutex<Option<Duration>>,
    /// Names are checked, which may take this long.
    check: Mutex<Option<Duration>>,
    findings: Mutex<Vec<Finding>>,
    wakes: Mutex<Vec<Wake>>,
    /// Other leaves for flows; with the name of why they are used.
    rivals: Mutex<Option<(Why, Vec<Arc<Node>>)>>,
    /// Leaves that may not serve any more.
    dead: Mutex<Vec<NodeId>>,
    races: Mutex<Vec<(Network, Why, bool)>>,
    /// Flows may go back to the kernel; whether it takes them, and what it heard.
    back: Mutex<Option<(bool, Heard)>>,
}

impl World {
    /// Flows leave through `node`.
    pub(crate) fn through(node: Arc<Node>) -> Arc<Self> {
        let world = Self::default();
        *world.answer.lock().unwrap() = Some(Ok(node));
        Arc::new(world)
    }

    /// Flows may also leave through these.
    pub(crate) fn rivals(&self, why: Why, leaves: &[&Arc<Node>]) {
        let leaves = leaves.iter().map(|&leaf| Arc::clone(leaf)).collect();
        *self.rivals.lock().unwrap() = Some((why, leaves));
    }

    /// This leaf may not serve any more.
    pub(crate) fn die(&self, leaf: &Node) {
        self.dead.lock().unwrap().push(leaf.id);
    }

    /// Races that have ended.
    pub(crate) fn races(&self) -> Vec<(Network, Why, bool)> {
        self.races.lock().unwrap().clone()
    }

    fn rivals_for(&self, why: Why) -> Option<Rivals> {
        let known = self.rivals.lock().unwrap();
        let (_, leaves) = known.as_ref().filter(|(wanted, _)| *wanted == why)?;
        let rival = |leaf: &Arc<Node>| Rival {
            leaf: Arc::clone(leaf),
            path: Arc::new(["fast".into()]),
            groups: Arc::new([GroupId(Uuid::nil())]),
        };
        Some(Rivals {
            group: "fast".into(),
            leaves: leaves.iter().map(rival).collect(),
        })
    }

    pub(crate) fn refusing(refusal: Refusal) -> Arc<Self> {
        let world = Self::default();
        *world.answer.lock().unwrap() = Some(Err(refusal));
        Arc::new(world)
    }

    pub(crate) fn set(&self, answer: Result<Arc<Node>, Refusal>) {
        *self.answer.lock().unwrap() = Some(answer);
    }

    /// Flows are sniffed from now on.
    pub(crate) fn sniff(&self, patience: Duration) {
        *self.patience.lock().unwrap() = Some(patience);
    }

    /// Names are checked from now on; the check never ends by itself.
    pub(crate) fn check(&self, longest: Duration) {
        *self.check.lock().unwrap() = Some(longest);
    }

    /// Flows may go back to the kernel from now on, which takes them or not.
    pub(crate) fn hand_back(&self, takes: bool) {
        *self.back.lock().unwrap() = Some((takes, Vec::new()));
    }

    /// What the kernel heard of flows that go back, with their targets.
    pub(crate) fn kernel_heard(&self) -> Heard {
        let back = self.back.lock().unwrap();
        back.as_ref().map(|b| b.1.clone()).unwrap_or_default()
    }

    fn tell_kernel(&self, what: &'static str, flow: &NewFlow) -> bool {
        let mut back = self.back.lock().unwrap();
        let (takes, heard) = back.as_mut().expect("flows may go back");
        heard.push((what, flow.target.0));
        *takes
    }

    /// What sniffing found so far.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.findings.lock().unwrap().clone()
    }

    /// Ends all checks.
    pub(crate) fn wake(&self) {
        for wake in std::mem::take(&mut *self.wakes.lock().unwrap()) {
            wake();
        }
    }

    /// Calls of `admit`.
    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::SeqCst)
    }

    pub(crate) fn live(&self) -> Vec<Arc<FlowEntry>> {
        self.live.lock().unwrap().clone()
    }

    /// Waits until `n` flows have closed and returns them.
    pub(crate) fn wait_closed(&self, n: usize) -> Vec<(Arc<FlowEntry>, CloseReason)> {
        let closed = self.closed.lock().unwrap();
        let wait = |c: &mut Vec<_>| c.len() < n;
        let waited = self
            .changed
            .wait_timeout_while(closed, PATIENCE, wait)
            .unwrap();
        assert!(
            !waited.1.timed_out(),
            "only {} of {n} flows closed",
            waited.0.len()
        );
        waited.0.clone()
    }

    /// A route for a flow that arrives by hand.
    pub(crate) fn route(self: &Arc<Self>, flow: &NewFlow, leaf: Arc<Node>) -> Route {
        let entry = Arc::new(FlowEntry {
            witness: None,
            id: self.admitted.fetch_add(1, Ordering::SeqCst),
            flow: *flow,
            outbound: "test".into(),
            selected: Way {
                path: Arc::new(["fast".into()]),
                groups: Arc::new([GroupId(Uuid::nil())]),
                leaf: leaf.id,
                leaf_name: leaf.name.as_str().into(),
            },
            moved: OnceLock::new(),
            rule: 0,
            must: false,
            host: None,
            generation: 1,
            started_ms: 0,
            counters: FlowCounters::default(),
            carrier: 0.into(),
            cancel: Cancel::default(),
        });
        self.live.lock().unwrap().push(Arc::clone(&entry));
        Route {
            leaf,
            mark: 0,
            name: None,
            cold: self.rivals_for(Why::Cold),
            back: self.back.lock().unwrap().as_ref().map(|_| Back { dscp: 0 }),
            guard: FlowGuard::new(entry, Arc::clone(self) as Arc<dyn FlowSink>),
        }
    }
}

/// The admission of a [`World`]; a type of its own because routes hold the world as an `Arc`.
pub(crate) struct Gate(pub(crate) Arc<World>);

impl Admission for Gate {
    fn rivals(&self, _: &FlowEntry) -> Option<Rivals> {
        self.0.rivals_for(Why::Retry)
    }

    fn eligible(&self, _: &FlowEntry, rival: &Rival) -> bool {
        !self.0.dead.lock().unwrap().contains(&rival.leaf.id)
    }

    fn raced(&self, _: &Arc<str>, network: Network, why: Why, won: bool) {
        self.0.races.lock().unwrap().push((network, why, won));
    }

    fn ask(&self, flow: &NewFlow) -> Result<Answer, Refusal> {
        assert!(
            !self.0.bug.swap(false, Ordering::SeqCst),
            "a bug in the admission"
        );
        let answer = self.0.answer.lock().unwrap().clone();
        match answer.unwrap_or(Err(Refusal::Blocked)) {
            Ok(leaf) => Ok(match *self.0.patience.lock().unwrap() {
                Some(patience) => Answer::Sniff(Box::new(Sniffed {
                    world: Arc::clone(&self.0),
                    flow: *flow,
                    leaf,
                    patience,
                    name: None,
                })),
                None => Answer::Go(self.0.route(flow, leaf)),
            }),
            Err(refusal) => {
                self.0.admitted.fetch_add(1, Ordering::SeqCst);
                Err(refusal)
            }
        }
    }

    fn hand_back(&self, flow: &NewFlow, _: u32) -> bool {
        self.0.tell_kernel("hand_back", flow)
    }

    fn handed_back(&self, flow: &NewFlow) {
        self.0.tell_kernel("handed_back", flow);
    }
}

/// A flow of a world that is sniffed; it goes on with whatever name was found. A flow with the
/// name `blocked.example` is refused.
struct Sniffed {
    world: Arc<World>,
    flow: NewFlow,
    leaf: Arc<Node>,
    patience: Duration,
    name: Option<Arc<str>>,
}

impl std::fmt::Debug for Sniffed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sniffed").finish_non_exhaustive()
    }
}

impl Undecided for Sniffed {
    fn patience(&self) -> Duration {
        self.patience
    }

    fn found(&mut self, finding: Finding, wake: Wake) -> Option<Duration> {
        self.world.findings.lock().unwrap().push(finding.clone());
        let Finding::Hello(_, hello) = finding else {
            return None;
        };
        self.name = hello.name.map(|name| String::from(name).into());
        let check = *self.world.check.lock().unwrap();
        if check.is_some() {
            self.world.wakes.lock().unwrap().push(wake);
        }
        check
    }

    fn decide(self: Box<Self>) -> Result<Route, Refusal> {
        if self.name.as_deref() == Some("blocked.example") {
            return Err(Refusal::Blocked);
        }
        let route = self.world.route(&self.flow, self.leaf);
        Ok(Route {
            name: self.name,
            ..route
        })
    }
}

impl FlowSink for World {
    fn closed(&self, entry: &FlowEntry, reason: CloseReason) {
        let mut live = self.live.lock().unwrap();
        let at = live
            .iter()
            .position(|e| e.id == entry.id)
            .expect("closed once");
        let entry = live.remove(at);
        drop(live);
        self.closed.lock().unwrap().push((entry, reason));
        self.changed.notify_all();
    }
}

pub(crate) fn new_flow(network: Network, client: SocketAddr, target: SocketAddr) -> NewFlow {
    NewFlow {
        network,
        client: ClientAddr(client),
        target: OrigDst(target),
    }
}

pub(crate) fn node(protocol: Protocol) -> Arc<Node> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::SeqCst);
    Arc::new(Node {
        id: NodeId(Uuid::from_u128(id.into())),
        name: format!("node{id}"),
        protocol,
        origin: None,
    })
}

pub(crate) fn direct() -> Arc<Node> {
    node(Protocol::Direct)
}

fn server(addr: SocketAddr, auth: Option<(&str, &str)>) -> Server {
    Server {
        host: Host::Ip(addr.ip()),
        port: addr.port(),
        auth: auth.map(|(u, p)| (Secret::new(u), Secret::new(p))),
    }
}

pub(crate) fn socks5(addr: SocketAddr, auth: Option<(&str, &str)>) -> Arc<Node> {
    node(Protocol::Socks5(server(addr, auth)))
}

pub(crate) fn http(addr: SocketAddr, auth: Option<(&str, &str)>) -> Arc<Node> {
    node(Protocol::Http(server(addr, auth)))
}

pub(crate) fn dialer_settings() -> Settings {
    Settings {
        own_mark: 0,
        bootstrap: Vec::new(),
        max_concurrent_dials: 64,
        connect_timeout: Duration::from_secs(3),
    }
}

/// A dialer on the runtime that is current.
pub(crate) fn dialer() -> Arc<Dialer> {
    Dialer::new(dialer_settings())
}

/// DNS whose kernel map takes everything.
pub(crate) fn idle_dns() -> Arc<Dns> {
    dns::testkit::dns()
}

/// A server on loopback; every connection is played by `script` on a thread of its own.
pub(crate) fn play(script: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let script = Arc::clone(&script);
            std::thread::spawn(move || script(stream));
        }
    });
    addr
}

/// An address that refuses connections; nobody else gets its port while the socket lives.
pub(crate) fn closed() -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, addr)
}

/// Reads exactly `n` bytes; empty when the peer closed first.
pub(crate) fn take(stream: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut buffer = vec![0; n];
    match stream.read_exact(&mut buffer) {
        Ok(()) => buffer,
        Err(_) => Vec::new(),
    }
}

/// Plays the server side of a SOCKS5 handshake up to the reply and returns the request.
pub(crate) fn greet(stream: &mut TcpStream, auth: Option<(&str, &str)>) -> Vec<u8> {
    let head = take(stream, 2);
    if head.is_empty() {
        return head;
    }
    let methods = take(stream, head[1].into());
    let method = if auth.is_some() { 2 } else { 0 };
    assert!(
        methods.contains(&method),
        "method {method} not among {methods:?}"
    );
    let _ = stream.write_all(&[5, method]);
    if let Some((user, password)) = auth {
        let mut want = vec![1, user.len() as u8];
        want.extend_from_slice(user.as_bytes());
        want.push(password.len() as u8);
        want.extend_from_slice(password.as_bytes());
        let got = take(stream, want.len());
        let status = u8::from(got != want);
        let _ = stream.write_all(&[1, status]);
        if status != 0 {
            return Vec::new();
        }
    }
    let mut request = take(stream, 4);
    let rest = match request.get(3) {
        Some(1) => 6,
        Some(3) => {
            request.extend(take(stream, 1));
            usize::from(request.get(4).copied().unwrap_or(0)) + 2
        }
        Some(4) => 18,
        _ => return Vec::new(),
    };
    request.extend(take(stream, rest));
    request
}

pub(crate) const OK_REPLY: [u8; 10] = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
