//! Carries out what the health engine asks for, and measurements that people ask for.
//!
//! One task owns the [`Monitor`](honk_policy::health::Monitor): it brings it the outcomes of
//! probes, what flows found out, and changes of the network, and publishes what follows.
//! Knows dialers and nodes; what groups are it learns through [`Groups`].

pub(crate) mod counts;
pub(crate) mod measure;
pub(crate) mod runs;
mod task;
#[cfg(test)]
pub(crate) mod testkit;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};

use honk_policy::{
    config::{CheckDns, CheckUrl},
    health::{Counts, Outcome, Sample, Selection, Setup, Subject, TestStart, Touched, View},
    id::{Family, GroupId, MemberId, NodeId},
    node::Node,
    time::Moment,
};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use self::counts::ProbeCounts;
use crate::clock;

/// Deadline of one probe of the health loop.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that wait for the task.
const COMMANDS: usize = 64;

/// What the task needs of the daemon.
pub(crate) trait Groups: fmt::Debug + Send + Sync + 'static {
    /// What is to be watched now.
    fn plan(&self) -> Plan;
    /// What the groups select.
    fn selections(&self) -> Vec<Selection>;
    /// Groups that served a flow since the last call.
    fn used(&self) -> Vec<GroupId>;
    /// Completes when a group has served a flow for the first time since that call.
    fn woken(&self) -> impl Future<Output = ()> + Send;
    /// A node of the active configuration.
    fn node(&self, id: NodeId) -> Option<Arc<Node>>;
    /// The leaf that a member stands for now.
    fn leaf(&self, group: GroupId, member: MemberId) -> Option<Arc<Node>>;
    /// A node answers no more, or again: over which path.
    fn shifted(&self, node: &Node, what: &'static str, family: Family, alive: bool);
    /// How long the machine has slept since it started.
    fn slept(&self) -> Duration {
        clock::slept()
    }
    /// A check that was begun under a generation has ended.
    fn probed(&self, _generation: u64, _: Subject, _: Outcome) {}
    /// Health has changed.
    fn judge(&self, view: Arc<View>, touched: Touched) -> impl Future<Output = ()> + Send;
}

/// A configuration as the task sees it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) setup: Setup,
    /// Nodes that are switched off.
    pub(crate) off: BTreeSet<NodeId>,
    /// Number of the configuration.
    pub(crate) generation: u64,
    /// What nodes are asked over HTTP.
    pub(crate) url: Arc<CheckUrl>,
    pub(crate) method: Arc<str>,
    /// What nodes are asked over UDP.
    pub(crate) dns: Arc<CheckDns>,
    /// URLs of groups that have their own.
    pub(crate) group_urls: HashMap<GroupId, Arc<CheckUrl>>,
}

impl Plan {
    fn speaks_tls(&self) -> bool {
        let mut urls = self.group_urls.values().chain([&self.url]);
        urls.any(|url| url.tls)
    }
}

/// Something for the task to do.
enum Command {
    /// A new configuration is active.
    Configure,
    /// Links, addresses or routes changed.
    Network,
    /// Test a group.
    Test(GroupId, oneshot::Sender<TestStart>),
}

/// What readers may know of the task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// The last published view.
    pub(crate) view: Arc<View>,
    pub(crate) counts: Counts,
    /// Cycles that traffic made unnecessary.
    pub(crate) skips: Vec<(GroupId, u64)>,
    pub(crate) history: HashMap<NodeId, Vec<Sample>>,
}

/// Handle of the task.
#[derive(Debug)]
pub(crate) struct Prober {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

/// What the task and its readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) counts: ProbeCounts,
    pub(super) start: Instant,
    pub(super) transitions: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) events_lost: AtomicU64,
    missed: Missed,
    report: Mutex<Arc<Report>>,
}

/// Orders that found the line full.
#[derive(Debug, Default)]
struct Missed {
    configure: AtomicBool,
    network: AtomicBool,
}

impl Missed {
    /// The one to be obeyed next.
    fn take(&self) -> Option<Command> {
        if self.configure.swap(false, Acquire) {
            return Some(Command::Configure);
        }
        self.network
            .swap(false, Acquire)
            .then_some(Command::Network)
    }
}

impl Shared {
    fn new() -> Self {
        Self {
            counts: ProbeCounts::default(),
            start: Instant::now(),
            transitions: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            events_lost: AtomicU64::new(0),
            missed: Missed::default(),
            report: Mutex::default(),
        }
    }

    /// The present, for the engine.
    fn now(&self) -> Moment {
        Moment::after_start(self.start.elapsed())
    }

    fn publish(&self, report: Report) {
        let mut shown = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Arc::new(report);
    }
}

impl Prober {
    /// The handle, and the task to be run.
    pub(crate) fn new() -> (Self, Orders) {
        let (commands, orders) = mpsc::channel(COMMANDS);
        let shared = Arc::new(Shared::new());
        let handle = Self {
            commands,
            shared: Arc::clone(&shared),
        };
        (handle, Orders { orders, shared })
    }

    /// A new configuration is active.
    pub(crate) fn configure(&self) {
        self.order(Command::Configure);
    }

    /// Links, addresses or routes changed.
    pub(crate) fn network_changed(&self) {
        self.order(Command::Network);
    }

    /// Tests all members of a group; the selections follow the outcome. Returns at once.
    pub(crate) async fn test_group(&self, group: GroupId) -> TestStart {
        let (tell, told) = oneshot::channel();
        if self
            .commands
            .send(Command::Test(group, tell))
            .await
            .is_err()
        {
            return TestStart::Nothing;
        }
        told.await.unwrap_or(TestStart::Nothing)
    }

    /// Numbers for metrics.
    pub(crate) fn counts(&self) -> &ProbeCounts {
        &self.shared.counts
    }

    /// The last report of the task, at most a second old.
    pub(crate) fn report(&self) -> Arc<Report> {
        let shown = self.shared.report.lock();
        Arc::clone(&shown.unwrap_or_else(PoisonError::into_inner))
    }

    /// A point in time of the task in milliseconds since 1970.
    pub(crate) fn wall_ms(&self, at: Moment) -> u64 {
        let ago = self.shared.now().since(at).as_millis();
        clock::now_ms().saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX))
    }

    /// Changes of life and death since the start.
    pub(crate) fn transitions(&self) -> u64 {
        self.shared.transitions.load(Relaxed)
    }

    /// Events of flows that found the queue full.
    pub(crate) fn events_lost(&self) -> u64 {
        self.shared.events_lost.load(Relaxed)
    }

    /// Orders that found the line full.
    pub(crate) fn orders_lost(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// A full line may hold tests alone, so what finds no room is noted beside it: the task
    /// looks there at every turn, which comes within [`NAP`](task::NAP) in any case.
    fn order(&self, command: Command) {
        let missed = match command {
            Command::Configure => &self.shared.missed.configure,
            Command::Network => &self.shared.missed.network,
            Command::Test(..) => return,
        };
        if let Err(TrySendError::Full(_)) = self.commands.try_send(command) {
            missed.store(true, Release);
            self.shared.dropped.fetch_add(1, Relaxed);
        }
    }
}

/// The receiving end of the handle.
#[derive(Debug)]
pub(crate) struct Orders {
    orders: mpsc::Receiver<Command>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configure => "Configure",
            Self::Network => "Network",
            Self::Test(..) => "Test",
        })
    }
}

pub(crate) use self::task::run;
