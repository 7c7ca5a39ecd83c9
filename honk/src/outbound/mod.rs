//! Dialers: how a flow leaves through a node.
//!
//! [`Dialer`] owns what all flows share: marks, permits, names, what is known about each
//! server. The TCP event loop asks it for addresses and runs [`handshake`] itself; slow
//! paths (associations, names, tests of a server) are tasks here. Knows nodes, not groups.

pub(crate) mod associate;
pub(crate) mod build;
pub(crate) mod counters;
pub(crate) mod error;
pub(crate) mod feed;
pub(crate) mod handshake;
pub(crate) mod open;
pub(crate) mod permits;
pub(crate) mod race;
pub(crate) mod resolve;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod tls;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use honk_policy::{
    id::NodeId,
    node::{Host, Node},
};
use tokio::{runtime::Handle, task::JoinSet};

use self::{
    counters::{DialCounters, DialRow},
    error::{Blame, Class, DialError, Stage},
    feed::Feed,
    permits::Permits,
    race::Running,
    resolve::{ResolveError, Resolved, Resolver},
    server::{Candidates, Known, ServerState},
};
use crate::socket::Mark;

/// Servers remembered; beyond it those without flows are forgotten.
const MAX_SERVERS: usize = 8192;
/// Background tasks at once; further ones are not started and come up again with later flows.
const MAX_TASKS: usize = 64;
/// Time for a whole dial, whatever its stages.
pub(crate) const TOTAL: Duration = Duration::from_secs(15);
/// Time for the answer to the greeting.
pub(crate) const GREETING: Duration = Duration::from_secs(5);
/// Time for the word about the target.
pub(crate) const REPLY: Duration = Duration::from_secs(10);
/// Time before the next address is tried while others are left.
pub(crate) const STAGGER: Duration = Duration::from_millis(750);

/// Failures of one node are logged this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Configuration of the dialer.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Mark of all own sockets; 0 (tests) sets none.
    pub(crate) own_mark: u32,
    /// Resolvers for server names, in order.
    pub(crate) bootstrap: Vec<SocketAddr>,
    /// Proxied dials at once.
    pub(crate) max_concurrent_dials: usize,
    /// Time for one TCP connect.
    pub(crate) connect_timeout: Duration,
}

/// Numbers for metrics.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) dials: Vec<DialRow>,
    pub(crate) permits_used: usize,
    pub(crate) permits_limit: usize,
    pub(crate) permits_waiting: usize,
}

/// Shared by all flows.
#[derive(Debug)]
pub(crate) struct Dialer {
    settings: ArcSwap<Settings>,
    pub(crate) permits: Permits,
    pub(crate) counts: DialCounters,
    pub(crate) feed: Feed,
    resolver: Resolver,
    servers: RwLock<HashMap<NodeId, Arc<ServerState>>>,
    runtime: Handle,
    tasks: Mutex<JoinSet<()>>,
    /// When the failures of a node were last logged.
    told: Mutex<HashMap<NodeId, Instant>>,
}

impl Dialer {
    /// Must be called inside a tokio runtime, which then runs the background tasks.
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            permits: Permits::new(settings.max_concurrent_dials),
            settings: ArcSwap::from_pointee(settings),
            counts: DialCounters::default(),
            feed: Feed::default(),
            resolver: Resolver::default(),
            servers: RwLock::default(),
            runtime: Handle::current(),
            tasks: Mutex::default(),
            told: Mutex::default(),
        })
    }

    /// Takes over a new configuration; flows under way keep what they have.
    pub(crate) fn update(&self, settings: Settings) {
        self.permits.set_limit(settings.max_concurrent_dials);
        self.settings.store(Arc::new(settings));
    }

    pub(crate) fn counters(&self) -> Snapshot {
        Snapshot {
            dials: self.counts.snapshot(),
            permits_used: self.permits.used(),
            permits_limit: self.permits.limit(),
            permits_waiting: self.permits.waiting(),
        }
    }

    /// The mark for a flow whose rule adds `rule_mark`.
    pub(crate) fn mark(&self, rule_mark: u32) -> Mark {
        Mark(self.settings.load().own_mark | rule_mark)
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.settings.load().connect_timeout
    }

    /// What is known about the server of a node.
    pub(crate) fn server(&self, node: &Arc<Node>) -> Arc<ServerState> {
        let known = {
            let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
            servers.get(&node.id).cloned()
        };
        known.unwrap_or_else(|| {
            let mut servers = self.servers.write().unwrap_or_else(PoisonError::into_inner);
            if servers.len() >= MAX_SERVERS {
                servers.retain(|_, state| Arc::strong_count(state) > 1);
            }
            let fresh = || Arc::new(ServerState::new(Arc::clone(node)));
            Arc::clone(servers.entry(node.id).or_insert_with(fresh))
        })
    }

    /// Addresses of a server if they are known. Starts a refresh when they are old.
    pub(crate) fn candidates(
        self: &Arc<Self>,
        server: &Arc<ServerState>,
        now: Instant,
    ) -> Option<Candidates> {
        match server.candidates(now) {
            Known::Fresh(candidates) => Some(candidates),
            Known::Stale(candidates) => {
                let (dialer, state) = (Arc::clone(self), Arc::clone(server));
                let started = self.spawn(async move {
                    // A failed refresh keeps the old addresses; the next flow asks again.
                    let _ = dialer.look_up(&state).await;
                    state.refreshed();
                });
                if !started {
                    server.refreshed();
                }
                Some(candidates)
            }
            Known::Nothing => None,
        }
    }

    /// Looks the name of a server up and calls `done` with the outcome.
    pub(crate) fn resolve(
        self: &Arc<Self>,
        server: &Arc<ServerState>,
        done: impl FnOnce(Result<Candidates, DialError>) + Send + 'static,
    ) {
        let (dialer, state) = (Arc::clone(self), Arc::clone(server));
        self.runtime
            .spawn(async move { done(dialer.look_up(&state).await) });
    }

    /// Addresses of any name, for a dial.
    pub(crate) async fn addresses_of(&self, name: &str) -> Result<Arc<[IpAddr]>, DialError> {
        match self.lookup(name).await {
            Ok(found) => Ok(found.ips),
            Err(error) if error.is_timeout() => {
                let class = Class::Timeout(Stage::Resolve);
                Err(DialError::new(class, error.to_string()))
            }
            Err(error) => Err(resolve_error(error.to_string())),
        }
    }

    async fn look_up(&self, server: &ServerState) -> Result<Candidates, DialError> {
        let settings = self.settings.load_full();
        let mark = self.mark(0);
        let Some(Host::Name(name)) = server::server(&server.node.protocol).map(|s| &s.host) else {
            return Err(DialError::new(
                Class::ConfigUnsupported,
                "the node has no server",
            ));
        };
        let found = self.resolver.lookup(name, &settings.bootstrap, mark).await;
        match found {
            Ok(found) => {
                server.resolved(&found.ips, found.fresh_until);
                match server.candidates(found.fresh_until) {
                    Known::Fresh(c) | Known::Stale(c) => Ok(c),
                    Known::Nothing => Err(resolve_error("the name has no address")),
                }
            }
            Err(error) if error.is_timeout() => {
                let class = Class::Timeout(Stage::Resolve);
                Err(DialError::new(class, error.to_string()))
            }
            Err(error) => Err(resolve_error(error.to_string())),
        }
    }

    /// Addresses of any name, through the same resolvers and cache.
    pub(crate) async fn lookup(&self, name: &str) -> Result<Resolved, ResolveError> {
        let settings = self.settings.load_full();
        let mark = self.mark(0);
        self.resolver.lookup(name, &settings.bootstrap, mark).await
    }

    /// Addresses of a server, looking them up when needed.
    async fn addresses(
        self: &Arc<Self>,
        server: &Arc<ServerState>,
    ) -> Result<Candidates, DialError> {
        match self.candidates(server, Instant::now()) {
            Some(candidates) => Ok(candidates),
            None => self.look_up(server).await,
        }
    }

    /// A flow through `server` went well with a serial handshake: find out in the background
    /// whether the server takes all messages at once.
    pub(crate) fn learn(self: &Arc<Self>, server: &Arc<ServerState>) {
        if !server.claim_test() {
            return;
        }
        let (dialer, state) = (Arc::clone(self), Arc::clone(server));
        let started = self.spawn(async move {
            let result = associate::test_pipelining(&dialer, &state).await;
            state.tested(result);
        });
        if !started {
            server.tested(None);
        }
    }

    /// Tells about a failed dial, at most once a minute per node.
    pub(crate) fn report(&self, node: &Node, error: &DialError) {
        let (blame, retry) = (error.blame(), error.retry());
        tracing::debug!(node = %node.name, %error, ?blame, ?retry, "dial_failed");
        if blame != Blame::Node {
            return;
        }
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = |at: &Instant| now.saturating_duration_since(*at) < REPORT_INTERVAL;
        if told.get(&node.id).is_some_and(quiet) {
            return;
        }
        if told.len() >= MAX_SERVERS {
            told.clear();
        }
        told.insert(node.id, now);
        tracing::warn!(node = %node.name, %error, "node_dial_failed");
    }

    /// Starts a background task, unless too many run.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= MAX_TASKS {
            return false;
        }
        tasks.spawn_on(task, &self.runtime);
        true
    }

    /// Starts a race that its owner may call off by dropping what is returned.
    pub(crate) fn run(&self, race: impl Future<Output = ()> + Send + 'static) -> Running {
        self.runtime.spawn(race).abort_handle().into()
    }

    /// Ends the background tasks.
    pub(crate) async fn stop(&self) {
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        tasks.shutdown().await;
    }
}

fn resolve_error(detail: impl Into<std::borrow::Cow<'static, str>>) -> DialError {
    DialError::new(Class::Carrier(Stage::Resolve), detail)
}
