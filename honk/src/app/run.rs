//! `honk run`: start, serve, stop, in the order that never loses a packet.
//!
//! Start: configuration, directories, lock, kernel side with the gate closed, rules, groups,
//! listeners, API socket; then the gate opens. Stop runs the same way backwards. A step that
//! fails undoes the ones before it, because each is owned by a value whose drop undoes it.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use honk_common::param::{GATE_CLOSED, OFFLOAD_DIRECT};
use honk_policy::config::OnCrash;
use tokio::{sync::watch, task::JoinSet};

use super::{
    bridge::{Rooms, dialer_settings, exit_of},
    diag::{self, Findings},
    engine::{Engine, Parts},
    kernel::{Kernel, KernelError},
    notify::{self, Task},
    reload::Trigger,
    sampler,
    signals::{Event, Signals},
    snapshot::Snapshot,
    source::{self, Candidate, Outcome, Purpose, Spec},
};
use crate::{
    api::server::{ApiSocket, Peers},
    cli::{
        exit::{Exit, Failure},
        plural, version,
    },
    datapath::{self, Datapath, RedirectPeer},
    flow::{CloseReason, Listeners},
    inbound::{self, Inbound},
    log,
    outbound::Dialer,
    state::{
        dirs::Dirs,
        lock::{Lock, LockError, PidFile},
    },
};

/// How often the control loop shows that it lives.
const CONTROL_BEAT: Duration = Duration::from_secs(5);

/// What the command line decided.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) spec: Spec,
    pub(crate) log: log::Handle,
    pub(crate) pin_root: PathBuf,
    pub(crate) api: bool,
    pub(crate) pidfile: bool,
    /// Start everything, then stop.
    pub(crate) check: bool,
}

/// How the daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Flows may finish.
    Drain,
    /// At once.
    Now,
}

/// Runs the daemon until it is told to stop. `dirs` resolves directories once the
/// configuration is known.
pub(crate) fn run(
    plan: Plan,
    dirs: impl FnOnce(Option<&str>) -> Result<Dirs, Failure>,
) -> Result<Exit, Failure> {
    let Outcome {
        candidate,
        findings,
    } = source::load(&plan.spec, Purpose::Run, None);
    let Some(candidate) = candidate else {
        return Err(refused(&plan.spec, &findings));
    };
    warn(&findings);
    plan.log.apply(&candidate.config.global.log_level);
    let dirs = dirs(candidate.config.global.data_dir.as_deref())?;
    dirs.create().map_err(|(path, e)| {
        let text = format!(
            "cannot make {}: {e}; run as root or name other directories",
            path.display()
        );
        Failure::new(Exit::Permission, "directory", text)
    })?;
    let _lock = Lock::take(&dirs.lock()).map_err(|e| lock_failure(&e))?;
    let _pid = plan
        .pidfile
        .then(|| PidFile::write(dirs.pid()))
        .transpose()
        .map_err(|e| {
            let text = format!("cannot write {}: {e}", dirs.pid().display());
            Failure::new(Exit::Permission, "pid_file", text)
        })?;
    prepare(&candidate);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("honk-worker")
        .build()
        .map_err(|e| {
            Failure::new(
                Exit::Failure,
                "runtime",
                format!("cannot start threads: {e}"),
            )
        })?;
    runtime.block_on(serve(plan, candidate, findings, dirs))
}

fn refused(spec: &Spec, findings: &Findings) -> Failure {
    let documents = findings.documents();
    for d in documents.iter().filter(|d| d.severity == "error") {
        eprintln!("{}", diag::short(d));
    }
    let errors = plural(findings.tally().errors, "error");
    let text = format!(
        "{} is refused ({errors}); `honk validate -c {0}` explains each",
        spec.entry.display()
    );
    let details = serde_json::json!({ "diagnostics": documents });
    Failure::new(Exit::Config, "invalid", text).details(details)
}

fn warn(findings: &Findings) {
    for d in findings
        .documents()
        .iter()
        .filter(|d| d.severity == "warning")
    {
        tracing::warn!(target: "honk::config", "{}", diag::short(d));
    }
}

fn lock_failure(e: &LockError) -> Failure {
    match e {
        LockError::Held { .. } => Failure::new(Exit::Conflict, "already_running", e.to_string()),
        LockError::Io { .. } => Failure::new(Exit::Permission, "lock", e.to_string()),
    }
}

/// Limits and settings of the process that need no kernel side.
fn prepare(candidate: &Candidate) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(target: "honk", %error, "the limit of open files stays as it is");
    }
    if candidate.config.global.disable_thp
        && let Err(error) = rustix::thread::disable_transparent_huge_pages(true)
    {
        tracing::debug!(target: "honk", %error, "transparent huge pages stay on");
    }
}

async fn serve(
    plan: Plan,
    candidate: Candidate,
    findings: Findings,
    dirs: Dirs,
) -> Result<Exit, Failure> {
    // First of all: a signal during the start is kept and acted on right after.
    let mut signals = Signals::new().map_err(|e| {
        Failure::new(
            Exit::Failure,
            "signals",
            format!("cannot watch signals: {e}"),
        )
    })?;
    let peers = Peers::system();
    let started = Instant::now();
    let settings = settings(&plan, &candidate, &dirs);
    let (datapath, listeners) = Datapath::start(settings)
        .map_err(|e| Failure::new(exit_of(e.blame()), "datapath", e.to_string()))?;
    let mut kernel = Teardown(Some(datapath));
    let daemon = kernel.start(&plan, candidate, &findings, &dirs, listeners)?;
    let (engine, inbound, dialer) = (daemon.engine, daemon.inbound, daemon.dialer);
    let socket = plan
        .api
        .then(|| ApiSocket::bind(&dirs.socket(), peers))
        .transpose()
        .map_err(|e| {
            let path = dirs.socket();
            let text = format!(
                "cannot listen on {}: {e}; --no-api runs without",
                path.display()
            );
            Failure::new(Exit::Conflict, "api_socket", text)
        })?;
    engine.open().map_err(|e| kernel_failure(&e))?;

    let (stop_api, stop_api_seen) = watch::channel(false);
    let mut tasks = JoinSet::new();
    if let Some(socket) = socket {
        let router = crate::api::router(Arc::clone(&engine));
        tasks.spawn(socket.serve(router, peers, stop_api_seen));
    }
    let (stop_sampler, stop_sampler_seen) = watch::channel(false);
    tasks.spawn(sampler::run(Arc::clone(&engine), stop_sampler_seen));
    let status = format!("generation {} active", engine.snapshot().generation);
    notify::ready(&status);
    tracing::info!(
        target: "honk",
        version = version::VERSION,
        pid = std::process::id(),
        millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "ready"
    );
    let end = if plan.check {
        End::Now
    } else {
        control(&engine, &mut signals).await
    };
    notify::stopping();
    tracing::info!(target: "honk", "stopping");
    if let Err(error) = engine.begin_stop() {
        tracing::error!(target: "honk", %error, "the gate could not be set");
    }
    let drain = engine.snapshot().config.global.drain_timeout_ms;
    let wait = match end {
        End::Drain => Duration::from_millis(drain),
        End::Now => Duration::ZERO,
    };
    drained(&engine, &inbound, &mut signals, wait).await;
    dialer.stop().await;
    stop_sampler.send_replace(true);
    stop_api.send_replace(true);
    while tasks.join_next().await.is_some() {}
    kernel.stop(&engine)?;
    tracing::info!(target: "honk", "stopped");
    Ok(Exit::Success)
}

fn settings(plan: &Plan, candidate: &Candidate, dirs: &Dirs) -> datapath::Settings {
    let global = &candidate.config.global;
    datapath::Settings {
        own_mark: global.own_mark,
        tproxy_port: global.tproxy_port,
        flow_entries: global.flow_entries,
        lan: global.lan_interface.clone(),
        udp_sockets: 0,
        tcx_first: false,
        redirect_peer: RedirectPeer::Auto,
        pin_root: plan.pin_root.clone(),
        runtime_dir: dirs.runtime.clone(),
        sysctls: global.auto_config_kernel_parameter,
        on_crash_block: global.on_crash == OnCrash::Block,
    }
}

/// Removes the kernel side when the start fails half-way, and at the end.
struct Teardown(Option<Datapath>);

/// The parts that the stop needs again.
struct Daemon {
    engine: Arc<Engine>,
    inbound: Arc<Inbound>,
    dialer: Arc<Dialer>,
}

impl Teardown {
    /// Rules, groups and listeners; the gate stays closed.
    fn start(
        &self,
        plan: &Plan,
        candidate: Candidate,
        findings: &Findings,
        dirs: &Dirs,
        listeners: Listeners,
    ) -> Result<Daemon, Failure> {
        let Some(datapath) = &self.0 else {
            return Err(Failure::new(
                Exit::Failure,
                "datapath",
                "the kernel side is gone",
            ));
        };
        datapath
            .commit(&candidate.tables)
            .map_err(|e| kernel_failure(&e.into()))?;
        datapath
            .write_groups(&candidate.groups.slots())
            .map_err(|e| kernel_failure(&e.into()))?;
        datapath
            .set_flags(OFFLOAD_DIRECT)
            .map_err(|e| kernel_failure(&e.into()))?;
        let global = candidate.config.global.clone();
        let engine = Engine::new(Parts {
            kernel: Arc::new(datapath.clone()),
            first: Snapshot::new(candidate, findings, 1),
            spec: plan.spec.clone(),
            log: plan.log.clone(),
            capacity: usize::try_from(global.flow_entries).unwrap_or(usize::MAX),
            progress: Some(dirs.progress()),
        });
        let engine = Arc::new(engine);
        let dialer = Dialer::new(dialer_settings(&global));
        let inbound = inbound::serve(
            listeners,
            engine.gatekeeper.clone(),
            Arc::clone(&dialer),
            Arc::new(datapath.clone()),
            inbound::Settings::new(global.tproxy_port),
        )
        .map_err(|e| {
            let text = format!("cannot serve the transparent listeners: {e}");
            Failure::new(Exit::Failure, "inbound", text)
        })?;
        let inbound = Arc::new(inbound);
        engine.attach(Arc::new(Rooms {
            inbound: Arc::clone(&inbound),
            dialer: Arc::clone(&dialer),
        }));
        Ok(Daemon {
            engine,
            inbound,
            dialer,
        })
    }

    fn stop(&mut self, engine: &Engine) -> Result<(), Failure> {
        if let Err(error) = engine.set_gate(GATE_CLOSED) {
            tracing::error!(target: "honk", %error, "the gate could not be closed");
        }
        match self.0.take() {
            Some(datapath) => Kernel::stop(&datapath).map_err(|e| {
                let text = format!("not everything could be removed: {e}; run `honk cleanup`");
                Failure::new(e.exit, "datapath", text)
            }),
            None => Ok(()),
        }
    }
}

impl Drop for Teardown {
    fn drop(&mut self) {
        if let Some(datapath) = self.0.take()
            && let Err(error) = datapath.stop()
        {
            tracing::error!(target: "honk", %error, "not everything could be removed; run `honk cleanup`");
        }
    }
}

fn kernel_failure(e: &KernelError) -> Failure {
    Failure::new(e.exit, "datapath", e.to_string())
}

/// Waits for flows, unless another signal says that it is enough.
async fn drained(engine: &Engine, inbound: &Inbound, signals: &mut Signals, wait: Duration) {
    inbound.stop_accepting();
    let draining = inbound.drain(Instant::now() + wait);
    let hurried = tokio::select! {
        () = draining => false,
        () = signals.stop_again() => true,
    };
    if hurried {
        tracing::info!(target: "honk", "stopping at once");
        inbound.drain(Instant::now()).await;
    }
    let left = engine.registry.list();
    engine
        .registry
        .close(&left, CloseReason::Shutdown, Duration::from_secs(1))
        .await;
}

/// Acts on signals until one of them ends the daemon.
async fn control(engine: &Arc<Engine>, signals: &mut Signals) -> End {
    let mut reloads = JoinSet::new();
    let mut beat = tokio::time::interval(CONTROL_BEAT);
    loop {
        let event = tokio::select! {
            event = signals.next() => event,
            Some(_) = reloads.join_next() => continue,
            _ = beat.tick() => {
                engine.beats.beat(Task::Control, Instant::now());
                continue;
            }
        };
        match event {
            Event::Reload => {
                let engine = Arc::clone(engine);
                // A refusal is logged by the engine: one that waits already covers this one.
                reloads.spawn(async move { engine.reload(Trigger::Signal, false).await.is_ok() });
            }
            Event::Suspend => {
                if let Err(error) = engine.suspend() {
                    tracing::error!(target: "honk", %error, "not suspended");
                }
            }
            Event::Stop => return End::Drain,
            Event::Dump => {
                dump(engine);
                return End::Now;
            }
        }
    }
}

/// What a stuck daemon is asked for before it goes.
fn dump(engine: &Engine) {
    let snapshot = engine.snapshot();
    let reload = engine.reloads.state();
    let now = Instant::now();
    for (task, name) in Task::ALL {
        let age = engine.beats.age(task, now).as_secs();
        tracing::error!(target: "honk", task = name, age_s = age, "state dump: task");
    }
    tracing::error!(
        target: "honk",
        generation = snapshot.generation,
        revision = &*snapshot.revision,
        phase = ?engine.phase(),
        gate = engine.gate(),
        flows = engine.registry.open(),
        reload = reload.state,
        "state dump"
    );
}
