//! The parts of a running daemon: started in one order, stopped in the other.
//!
//! A step of the start that fails undoes the ones before it, because each is owned by a value
//! whose drop undoes it.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use honk_common::{param::GATE_CLOSED, tables::RouteTables};
use honk_policy::{
    config::{OnCrash, Typed},
    group::GroupTable,
    id::Uuid,
};
use tokio::{sync::watch, task::JoinSet};

use super::{
    ask, autoping,
    bridge::{Rooms, dialer_settings, exit_of},
    changes, choices,
    diag::Findings,
    engine::{Engine, Parts},
    kernel::{Kernel, KernelError, flags},
    listeners::{self, Listeners},
    notify,
    overrides::Overrides,
    pings::Pings,
    rules,
    run::Plan,
    sampler,
    score::switches,
    signals::Signals,
    snapshot::Snapshot,
    source::Candidate,
    subscriptions,
    verdicts::{Judge, Refused, Wish},
};
use crate::{
    api::server::{ApiSocket, Peers},
    cli::exit::{Exit, Failure},
    datapath::{self, Datapath, RedirectPeer},
    dns::Dns,
    flow::CloseReason,
    inbound::{self, Inbound},
    netns,
    outbound::{Dialer, tls},
    probe::{self, Prober},
    state::{self, choices::Choices, dirs::Dirs},
    subscription::{Hub, Net, Store},
};

/// How the daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Flows may finish.
    Drain,
    /// At once.
    Now,
}

/// Everything that runs, in the order in which it is stopped.
pub(super) struct Daemon {
    pub(super) engine: Arc<Engine>,
    inbound: Arc<Inbound>,
    dialer: Arc<Dialer>,
    /// API listener and sampler.
    tasks: JoinSet<()>,
    stop_tasks: watch::Sender<bool>,
    kernel: Teardown,
}

impl Daemon {
    /// Starts all parts and opens the gate as the last step that can fail.
    pub(super) async fn start(
        plan: &Plan,
        mut candidate: Candidate,
        findings: &Findings,
        dirs: &Dirs,
        signals: &mut Signals,
    ) -> Result<Self, Failure> {
        let hub = Arc::new(hub(plan, &candidate, dirs));
        let mut subscriptions = std::mem::take(&mut candidate.subscriptions);
        hub.fill(&mut subscriptions);
        let nodes = subscriptions.nodes();
        let groups = &candidate.groups;
        // Findings that differ are those about members; they are told below.
        let (groups, _) =
            GroupTable::build_with(&candidate.config, nodes, Some(groups), &mut Uuid::new_v4);
        let (groups, late) = remembered(groups, &candidate.revision, dirs);
        let judge = Judge::load(dirs.verdicts(), plan.keep_checking);
        let waits = subscriptions.waits();
        let find = || {
            judge.judge(&candidate.config, groups.nodes(), Wish::Operator, |node| {
                waits && node.source.is_some()
            })
        };
        let mut off = find();
        let asks = matches!(off, Err(Refused::Limit(_))) && ask::possible();
        if asks && ask::whether_more(signals).await {
            judge.keep_checking();
            off = find();
        }
        let off = off.map_err(|e| Failure::new(e.exit(), e.code(), e.to_string()))?;
        candidate.groups = groups.without(off);
        let late = if subscriptions.waits() {
            late
        } else {
            choices::given_up(&late)
        };
        let (datapath, listeners) = Datapath::start(settings(plan, &candidate, dirs))
            .map_err(|e| Failure::new(exit_of(e.blame()), "datapath", e.to_string()))?;
        let kernel = Teardown(Some(datapath.clone()));
        // Everything that needs it exists; the threads started from here on never have it.
        netns::give_up_admin();
        let dns = Dns::new(Arc::new(datapath.clone()));
        let global = candidate.config.global.clone();
        let tables = candidate.tables.clone();
        let first = Snapshot::new(candidate, findings, 1);
        let committed =
            publish(&datapath, &dns, &first, &tables).map_err(|e| kernel_failure(&e))?;
        let engine = Arc::new(Engine::new(Parts {
            kernel: Arc::new(datapath.clone()),
            dns: Arc::clone(&dns),
            first,
            spec: plan.spec.clone(),
            log: plan.log.clone(),
            capacity: usize::try_from(global.flow_entries).unwrap_or(usize::MAX),
            progress: dirs.progress(),
            choices: dirs.choices(),
            late,
            subscriptions: Arc::clone(&hub),
            judge,
        }));
        let waits = subscriptions.waits();
        hub.adopt(subscriptions, &engine.snapshot().config.nodes);
        engine.gatekeeper.committed(committed, 1);
        let traces = Arc::downgrade(&engine.gatekeeper.traces);
        datapath.tap(Box::new(move |event| {
            if let Some(traces) = traces.upgrade() {
                traces.told(event);
            }
        }));
        let runtime = tokio::runtime::Handle::current();
        engine.gatekeeper.know(dns.clone(), runtime);
        engine.tell_groups(&engine.snapshot(), waits);
        engine.tell_nodes();
        let dialer = Dialer::new(dialer_settings(&global));
        let inbound = inbound::serve(
            listeners,
            engine.gatekeeper.clone(),
            Arc::clone(&dialer),
            dns,
            Arc::new(datapath),
            inbound::Settings::new(global.tproxy_port),
        );
        let inbound = Arc::new(inbound.map_err(|e| {
            let text = format!("cannot serve the transparent listeners: {e}");
            Failure::new(Exit::Failure, "inbound", text)
        })?);
        engine.attach(Arc::new(Rooms {
            inbound: Arc::clone(&inbound),
            dialer: Arc::clone(&dialer),
        }));
        let peers = Peers::system();
        let config = Arc::clone(&engine.snapshot().config);
        let socket = listeners::socket_path(&config, dirs).filter(|_| plan.api);
        let socket = socket.map(|path| bind(&path, peers)).transpose()?;
        let listeners = plan
            .api
            .then(|| Listeners::open(&config, dirs, &|name| std::env::var_os(name)));
        let (stop_tasks, stop) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let net = net(&engine, &dialer).await?;
        tasks.spawn(subscriptions::run(Arc::clone(&engine), net, stop.clone()));
        hub.first(subscriptions::FIRST).await;
        engine.open().map_err(|e| kernel_failure(&e))?;

        if let Some(listeners) = listeners {
            let socket = socket.map(|socket| (socket, peers));
            listeners.serve(&engine, socket, &mut tasks, &stop);
        }
        tasks.spawn(sampler::run(Arc::clone(&engine), stop.clone()));
        tasks.spawn(switches::run(Arc::clone(&engine), stop.clone()));
        let (prober, orders) = Prober::new();
        engine.watch(prober);
        engine.measure_with(Pings {
            dialer: Arc::clone(&dialer),
            runs: Arc::default(),
            overrides: Arc::new(Overrides::load(dirs.pings())),
        });
        let seed = Uuid::new_v4().as_u64_pair().0;
        let watched = (Arc::clone(&engine), Arc::clone(&dialer));
        tasks.spawn(probe::run(orders, watched.0, watched.1, seed, stop.clone()));
        let pinged = Arc::clone(&engine);
        tasks.spawn(autoping::run(pinged, autoping::online, stop.clone()));
        tasks.spawn(changes::run(Arc::clone(&engine), stop));
        Ok(Self {
            engine,
            inbound,
            dialer,
            tasks,
            stop_tasks,
            kernel,
        })
    }

    pub(super) async fn stop(mut self, end: End, signals: &mut Signals) -> Result<Exit, Failure> {
        notify::stopping();
        tracing::info!(target: "honk", "stopping");
        if let Err(error) = self.engine.begin_stop() {
            tracing::error!(target: "honk", %error, "the gate could not be set");
        }
        let drain = self.engine.snapshot().config.global.drain_timeout_ms;
        let wait = match end {
            End::Drain => Duration::from_millis(drain),
            End::Now => Duration::ZERO,
        };
        drained(&self.engine, &self.inbound, signals, wait).await;
        if let Some(pings) = self.engine.pings() {
            pings.runs.stop().await;
        }
        self.dialer.stop().await;
        self.engine.finish_jobs().await;
        self.stop_tasks.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        self.engine.save_choices().await;
        self.kernel.stop(&self.engine)?;
        self.engine.reloads.forget();
        tracing::info!(target: "honk", "stopped");
        Ok(Exit::Success)
    }
}

/// Subscriptions with their copies below the state directory.
fn hub(plan: &Plan, candidate: &Candidate, dirs: &Dirs) -> Hub {
    let setting = candidate.config.settings.get("global.store_subscribe");
    let all = setting != Some(&Typed::Bool(false));
    let config = plan.spec.entry.parent().unwrap_or_else(|| Path::new("."));
    Hub::new(Some(Store::new(&dirs.state, all)), config)
}

/// How subscriptions are fetched.
async fn net(engine: &Arc<Engine>, dialer: &Arc<Dialer>) -> Result<Net, Failure> {
    // Reads the root certificates of the system.
    let tls = tokio::task::spawn_blocking(tls::web).await;
    let tls = tls.map_err(|e| Failure::new(Exit::Failure, "tls", e.to_string()))?;
    let kernel = Arc::clone(&engine.kernel);
    let own = Arc::new(move |ip| kernel.is_local(ip));
    Ok(Net::new(Arc::clone(dialer), tls, own))
}

/// The groups with the choices of the process before, and those that could not be made.
fn remembered(groups: GroupTable, revision: &str, dirs: &Dirs) -> (GroupTable, Choices) {
    match state::choices::load(&dirs.choices()) {
        Ok(stored) => choices::restore(groups, &stored, revision),
        Err(error) => {
            let path = dirs.choices();
            let path = path.display();
            tracing::warn!(target: "honk::group", %error, %path, "stored choices are lost");
            (groups, Choices::new())
        }
    }
}

/// Rules, groups and flags of the first generation; the gate stays closed. Returns the
/// generation of the kernel.
fn publish(
    datapath: &Datapath,
    dns: &Dns,
    first: &Snapshot,
    tables: &RouteTables,
) -> Result<u32, KernelError> {
    let generation = rules::publish(datapath, dns, tables, &first.oracle)?;
    datapath.write_groups(&first.groups.slots())?;
    datapath.set_flags(flags(&first.config.global))?;
    Ok(generation)
}

fn bind(path: &Path, peers: Peers) -> Result<ApiSocket, Failure> {
    ApiSocket::bind(path, peers).map_err(|e| {
        let text = format!(
            "cannot listen on {}: {e}; remove what is there, or run with --no-api",
            path.display()
        );
        let exit = match e.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Conflict,
        };
        Failure::new(exit, "api_socket", text)
    })
}

fn settings(plan: &Plan, candidate: &Candidate, dirs: &Dirs) -> datapath::Settings {
    let global = &candidate.config.global;
    let declared = |key: &str| {
        let key = format!("experimental.datapath.{key}");
        candidate.config.settings.get(&key)
    };
    let text = |key: &str| match declared(key) {
        Some(Typed::Text(word)) => Some(word.as_str()),
        _ => None,
    };
    let sockets = match declared("udp_sockets") {
        Some(Typed::Int(n)) => *n as usize,
        _ => 0,
    };
    datapath::Settings {
        own_mark: global.own_mark,
        tproxy_port: global.tproxy_port,
        flow_entries: global.flow_entries,
        lan: global.lan_interface.clone(),
        wan: global.wan_interface.clone(),
        udp_sockets: sockets,
        tcx_first: text("tcx_order") == Some("first"),
        redirect_peer: match text("redirect_peer") {
            Some("on") => RedirectPeer::On,
            Some("off") => RedirectPeer::Off,
            _ => RedirectPeer::Auto,
        },
        xdp_guard: matches!(declared("xdp_guard"), Some(Typed::Bool(true))),
        pin_root: plan.pin_root.clone(),
        runtime_dir: dirs.runtime.clone(),
        sysctls: global.auto_config_kernel_parameter,
        on_crash_block: global.on_crash == OnCrash::Block,
    }
}

/// Removes the kernel side when the start fails half-way, and at the end.
struct Teardown(Option<Datapath>);

impl Teardown {
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
