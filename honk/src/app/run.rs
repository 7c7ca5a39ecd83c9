//! `honk run`: configuration, directories, lock; then the daemon and its control loop.
//!
//! What is checked here needs no kernel: a mistake in a file or a second instance ends before
//! anything is touched. [`Daemon`] does the rest.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    daemon::{Daemon, End},
    diag::{self, Findings},
    engine::Engine,
    notify::{self, Task},
    reload::{After, Trigger},
    signals::{Event, Signals},
    source::{self, Candidate, Outcome, Purpose, Spec},
};
use crate::{
    cli::{
        exit::{Exit, Failure},
        version,
    },
    log, netns,
    state::{
        dirs::Dirs,
        lock::{Lock, LockError, PidFile},
    },
    words::plural,
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
    /// Leave out nodes that cannot be built, however many there are.
    pub(crate) keep_checking: bool,
    /// Start everything, then stop.
    pub(crate) check: bool,
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
        ..
    } = source::load(&plan.spec, Purpose::Run, None);
    let Some(candidate) = candidate else {
        return Err(refused(&plan.spec, &findings));
    };
    warn(&findings);
    plan.log.apply(&candidate.config.global.log_level);
    let dirs = dirs(candidate.config.global.data_dir.as_deref())?;
    dirs.create()
        .map_err(|(path, e)| directory_failure(&path, &e))?;
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
        .on_thread_start(netns::give_up_admin)
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

/// Being root does not help against a file that stands where a directory should be.
fn directory_failure(path: &Path, e: &io::Error) -> Failure {
    let (exit, remedy) = match e.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => (
            Exit::Conflict,
            "a file is in the way; name a directory with --state-dir or --runtime-dir",
        ),
        _ => (Exit::Permission, "run as root or name other directories"),
    };
    let text = format!("cannot make {}: {e}; {remedy}", path.display());
    Failure::new(exit, "directory", text)
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
        let text = format!("cannot watch signals: {e}");
        Failure::new(Exit::Failure, "signals", text)
    })?;
    let started = Instant::now();
    let daemon = Daemon::start(&plan, candidate, &findings, &dirs, &mut signals).await?;
    let status = format!("generation {} active", daemon.engine.snapshot().generation);
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
        control(&daemon.engine, &mut signals).await
    };
    daemon.stop(end, &mut signals).await
}

/// Acts on signals until one of them ends the daemon.
async fn control(engine: &Arc<Engine>, signals: &mut Signals) -> End {
    let mut beat = tokio::time::interval(CONTROL_BEAT);
    loop {
        let event = tokio::select! {
            event = signals.next() => event,
            _ = beat.tick() => {
                engine.beats.beat(Task::Control, Instant::now());
                continue;
            }
        };
        match event {
            Event::Reload => {
                // The engine logs the outcome; nobody waits for it.
                drop(engine.begin_reload(Trigger::Signal, false, After::Refresh));
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
        reloading = engine.reloading(),
        threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count),
        "state dump"
    );
    for group in snapshot.groups.views() {
        for (network, sel) in [("tcp", &group.tcp), ("udp", &group.udp)] {
            let leaf = sel.leaf.as_ref().map(|(_, name)| name.as_str());
            let source = sel.source.map(|source| source.name());
            tracing::error!(target: "honk", group = group.name, network, leaf, source, "state dump: group");
        }
    }
    for i in engine.kernel.interfaces() {
        tracing::error!(
            target: "honk",
            interface = i.name,
            attached = i.attached,
            pending = i.pending,
            problem = i.problem,
            "state dump: interface"
        );
    }
    if let Some(carriers) = engine.carriers() {
        let (udp, dials) = (carriers.datagrams(), carriers.dials());
        tracing::error!(
            target: "honk",
            pipes = carriers.pipes(),
            dials = dials.permits,
            dials_waiting = dials.waiting,
            udp_flows = udp.flows,
            udp_tunnels = udp.tunnels,
            udp_queued_bytes = udp.queued_bytes,
            reply_sockets = udp.reply_sockets,
            "state dump: queues"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_the_way_of_a_directory_is_not_a_matter_of_rights() {
        let base = crate::state::file::tests::scratch("runfile");
        let file = base.join("f");
        std::fs::write(&file, "").unwrap();
        for runtime in [file.clone(), file.join("below")] {
            let state = base.join("s");
            let (path, e) = Dirs { state, runtime }.create().unwrap_err();
            let failure = directory_failure(&path, &e);
            assert_eq!(failure.exit, Exit::Conflict, "{failure}");
            assert!(failure.message.contains("name a directory"), "{failure}");
        }
        std::fs::remove_dir_all(base).unwrap();
    }
}
