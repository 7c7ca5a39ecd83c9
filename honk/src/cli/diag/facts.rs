//! Everything the checks want to know, read once.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use honk_policy::{
    config::DialMode,
    node::{Host, Node as Declared},
    routing::rule::Test,
};

use super::host;
use crate::{
    api::doc::{Datapath, Group, Node, Status, Subscription},
    app::{diag::short, source},
    cli::{
        Invocation,
        client::Client,
        exit::{Exit, Failure},
        lookup,
    },
    clock,
    datapath::{self, inspect},
    netlink::firewall::{self, BaseChain},
    state::lock,
};

/// How long the daemon gets for each answer.
const ANSWER: Duration = Duration::from_secs(5);

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Of the kernel, such as `6.8.0-45-generic`.
    pub(super) release: String,
    pub(super) realtime: bool,
    pub(super) btf: bool,
    /// How programs can be attached; `None` without the rights to try.
    pub(super) attachment: Option<Result<&'static str, String>>,
    /// A capability that we lack.
    pub(super) lacking: Option<&'static str>,
    pub(super) pin_root: PathBuf,
    pub(super) bpffs: bool,
    pub(super) lock: PathBuf,
    /// The process that holds the lock.
    pub(super) holder: Option<u32>,
    /// Hooks of a dead daemon keep blocking.
    pub(super) blocking: bool,
    pub(super) config: Loaded,
    pub(super) daemon: Option<Alive>,
    /// Why nobody answered.
    pub(super) silence: String,
    pub(super) look: Option<inspect::Look>,
    /// `None` where there is no daemon, or no right to look.
    pub(super) private: Option<Option<String>>,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) chains: Vec<BaseChain>,
    pub(super) serves_dns: bool,
    /// A name server, and what came of asking it.
    pub(super) resolver: Option<(SocketAddr, Result<(), String>)>,
    /// LAN interfaces with their receive queues, and whether packets are spread in software.
    pub(super) queues: Vec<(String, usize, bool)>,
    pub(super) cpus: usize,
    pub(super) now_ms: u64,
    /// When this program was installed: the clock cannot be before that.
    pub(super) installed_ms: u64,
    pub(super) state: PathBuf,
    pub(super) free: Option<u64>,
}

/// What the configuration says.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) path: PathBuf,
    /// Places and sentences of what is wrong.
    pub(super) errors: Vec<String>,
    /// One of them is about the permissions of a file.
    pub(super) too_open: bool,
    pub(super) warnings: usize,
    pub(super) revision: Option<String>,
    pub(super) lan: Vec<String>,
    pub(super) wan: Vec<String>,
    pub(super) own_mark: u32,
    pub(super) sets_host: bool,
    /// Rules that only hold for names.
    pub(super) domain_rules: bool,
    /// `dial_mode` is not `ip`.
    pub(super) sniffs: bool,
    /// Name of a server, if one has to be resolved.
    pub(super) name: Option<String>,
    pub(super) bootstrap: Option<SocketAddr>,
    pub(super) data_dir: Option<String>,
}

/// What a running daemon told.
#[derive(Debug)]
pub(super) struct Alive {
    pub(super) status: Status,
    pub(super) datapath: Datapath,
    pub(super) groups: Vec<Group>,
    pub(super) nodes: Vec<Node>,
    pub(super) subscriptions: Vec<Subscription>,
}

impl Facts {
    /// Reads everything; what cannot be read is left out.
    pub(super) fn gather(invocation: &Invocation, pin_root: &Path) -> Result<Self, Failure> {
        let config = load(invocation);
        let dirs = invocation.dirs(config.data_dir.as_deref())?;
        let wait = invocation.global.timeout.unwrap_or(ANSWER);
        let client = invocation.session()?.client.waiting(wait);
        let (daemon, silence) = match ask(&client) {
            Ok(alive) => (Some(alive), String::new()),
            Err(failure) => (None, failure.message),
        };
        let lacking = inspect::lacking();
        let privileged = lacking.is_none();
        let look = inspect::look(&config.lan, &config.wan).ok();
        let names = |role: &str| -> Vec<String> {
            let found = look.iter().flat_map(|l| &l.interfaces);
            found
                .filter(|w| w.role == role)
                .filter_map(|w| Some(w.link.as_ref()?.name.clone()))
                .collect()
        };
        let (lan, wan) = (names("lan"), names("wan"));
        let pid = daemon.as_ref().map(|d| d.status.pid);
        let queues = lan.iter().map(|name| {
            let (count, spread) = host::queues(name);
            (name.clone(), count, spread)
        });
        Ok(Self {
            release: host::text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            realtime: host::text("/sys/kernel/realtime").as_deref() == Some("1"),
            btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            attachment: privileged.then(|| inspect::attachment().map_err(|e| e.to_string())),
            lacking,
            bpffs: inspect::is_bpffs(pin_root),
            blocking: datapath::is_blocking(pin_root),
            pin_root: pin_root.to_owned(),
            holder: lock::holder(&dirs.lock()).ok().flatten(),
            lock: dirs.lock(),
            private: pid
                .filter(|_| privileged)
                .and_then(|pid| inspect::private_problem(pid).ok()),
            settings: host::settings(&lan, &wan),
            chains: firewall::base_chains().unwrap_or_default(),
            serves_dns: host::serves_dns(),
            resolver: resolver(&config),
            queues: queues.collect(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            now_ms: clock::now_ms(),
            installed_ms: installed().unwrap_or(0),
            free: host::free(&dirs.state),
            state: dirs.state,
            daemon,
            silence,
            look,
            config,
        })
    }
}

fn resolver(config: &Loaded) -> Option<(SocketAddr, Result<(), String>)> {
    let (server, name) = (config.bootstrap?, config.name.as_ref()?);
    Some((server, host::ask(server, name, config.own_mark)))
}

fn installed() -> Option<u64> {
    let modified = std::env::current_exe().ok()?.metadata().ok()?.modified();
    let since = modified.ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn load(invocation: &Invocation) -> Loaded {
    let spec = match invocation.spec() {
        Ok(spec) => spec,
        Err(failure) => {
            return Loaded {
                errors: vec![failure.message],
                ..Loaded::default()
            };
        }
    };
    let outcome = source::load(&spec, source::Purpose::Run, None);
    let documents = outcome.findings.documents();
    let errors = documents.iter().filter(|d| d.severity == "error");
    let mut loaded = Loaded {
        path: spec.entry,
        too_open: errors.clone().any(|d| d.code == "perm-open"),
        errors: errors.map(short).collect(),
        warnings: outcome.findings.tally().warnings,
        ..Loaded::default()
    };
    let Some(candidate) = outcome.candidate else {
        return loaded;
    };
    loaded.errors.clear();
    let global = &candidate.config.global;
    let host = |node: &Declared| match &node.protocol.proxy()?.host {
        Host::Name(name) => Some(name.clone()),
        Host::Ip(_) => None,
    };
    loaded.revision = Some(candidate.revision);
    loaded.lan.clone_from(&global.lan_interface);
    loaded.wan.clone_from(&global.wan_interface);
    loaded.own_mark = global.own_mark;
    loaded.sets_host = global.auto_config_kernel_parameter;
    loaded.name = candidate.config.nodes.iter().find_map(host);
    loaded.bootstrap = global.bootstrap.first().copied();
    loaded.data_dir.clone_from(&global.data_dir);
    let lines = &candidate.config.rules.lines;
    let conds = lines.iter().flat_map(|line| &line.conds);
    loaded.domain_rules = conds.into_iter().any(|c| matches!(c.test, Test::Domain(_)));
    loaded.sniffs = global.dial_mode != DialMode::Ip;
    loaded
}

fn ask(client: &Client) -> Result<Alive, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Exit::Failure, "runtime", e.to_string()))?;
    runtime.block_on(async {
        Ok(Alive {
            status: client.get("/api/v1/status").await?,
            datapath: client.get("/api/v1/datapath").await?,
            groups: lookup::all(client, "/api/v1/groups").await?,
            nodes: lookup::all(client, "/api/v1/nodes").await?,
            subscriptions: lookup::all(client, "/api/v1/subscriptions").await?,
        })
    })
}
