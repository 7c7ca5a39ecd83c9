//! The reload transaction, and the record of the last one.
//!
//! A candidate is built completely before anything changes. Userspace learns the new
//! generation first, keeping the old slots usable; then the kernel's rules flip with one
//! store; then group slots take their final values. Whatever fails leaves the old generation
//! in charge.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Instant,
};

use honk_grammar::diag::{Diagnostic, Severity};
use honk_policy::{
    config::{self, Config},
    id::NodeId,
};
use tokio::sync::watch;

use super::{
    admission::is_builtin,
    diag::Findings,
    engine::{Engine, Phase},
    kernel::KernelError,
    notify,
    select::affected,
    snapshot::Snapshot,
    source::{self, Outcome, Purpose},
};
use crate::{
    api::{
        doc::{Diag, ReloadState},
        time,
    },
    cli::plural,
    flow::{CloseReason, FlowEntry},
    metrics::histogram::Histograms,
    state::progress::Progress,
};

/// Who asked, as label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    Signal,
    Api,
}

/// Label values of `trigger` and `result`.
pub(crate) const TRIGGERS: [&str; 2] = ["signal", "api"];
pub(crate) const RESULTS: [&str; 3] = ["applied", "rejected", "failed"];

/// Reloads that may run or wait: one of each.
const IN_FLIGHT: u8 = 2;

/// The last reload and the counters of all.
#[derive(Debug)]
pub(crate) struct ReloadLog {
    state: watch::Sender<ReloadState>,
    in_flight: AtomicU8,
    /// By trigger and result.
    counts: [[AtomicU64; RESULTS.len()]; TRIGGERS.len()],
    /// Reloads that were not begun because one waited already.
    pub(crate) dropped: AtomicU64,
    /// End of the last attempt and whether it was accepted.
    last: Mutex<(u64, bool)>,
    progress: Option<PathBuf>,
    histograms: Arc<Histograms>,
}

/// A reload that was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl ReloadLog {
    pub(super) fn new(
        first: &Snapshot,
        progress: Option<PathBuf>,
        histograms: Arc<Histograms>,
    ) -> Self {
        let state = ReloadState {
            state: "idle".to_owned(),
            phase: None,
            generation: first.generation,
            config_revision: first.revision.to_string(),
            sequence: 0,
            started_at: None,
            duration_ms: None,
            age_ms: None,
            changed: Vec::new(),
            diagnostics: Vec::new(),
            message: String::new(),
        };
        Self {
            state: watch::Sender::new(state),
            in_flight: AtomicU8::new(0),
            counts: Default::default(),
            dropped: AtomicU64::new(0),
            last: Mutex::new((time::now_ms(), true)),
            progress,
            histograms,
        }
    }

    pub(crate) fn state(&self) -> ReloadState {
        self.aged(self.state.borrow().clone())
    }

    /// Fills in how long ago the last one ended.
    pub(crate) fn aged(&self, mut state: ReloadState) -> ReloadState {
        let (ended_ms, _) = self.last();
        state.age_ms = (state.sequence > 0 && state.state != "running")
            .then(|| time::now_ms().saturating_sub(ended_ms));
        state
    }

    /// For those who wait for the end of one.
    pub(crate) fn watch(&self) -> watch::Receiver<ReloadState> {
        self.state.subscribe()
    }

    pub(crate) fn count(&self, trigger: usize, result: usize) -> u64 {
        let row = self.counts.get(trigger).and_then(|row| row.get(result));
        row.map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// Unix milliseconds of the end of the last attempt, and whether it was accepted.
    pub(crate) fn last(&self) -> (u64, bool) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn phase(&self, phase: &str) {
        self.state.send_modify(|s| s.phase = Some(phase.to_owned()));
    }

    fn begin(&self) {
        self.state.send_modify(|s| {
            s.state = "running".to_owned();
            s.sequence += 1;
            s.started_at = Some(time::now());
            s.duration_ms = None;
            s.changed.clear();
            s.diagnostics.clear();
            s.message.clear();
        });
        self.save(None);
    }

    fn finish(&self, trigger: Trigger, end: &End, took: std::time::Duration) {
        let counts = &self.counts[trigger as usize][end.result as usize];
        counts.fetch_add(1, Ordering::Relaxed);
        let applied = end.result == Ended::Applied;
        let last = (time::now_ms(), applied);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
        self.state.send_modify(|s| {
            let name = if applied { "done" } else { "rejected" };
            s.state = name.to_owned();
            s.phase = None;
            s.generation = end.generation;
            s.config_revision = end.revision.to_string();
            s.duration_ms = u64::try_from(took.as_millis()).ok();
            s.changed = end.changed.clone();
            s.diagnostics = end.diagnostics.clone();
            s.message = end.message.clone();
        });
        self.save(Some(time::now()));
    }

    fn save(&self, finished_at: Option<String>) {
        let Some(path) = &self.progress else { return };
        let state = self.state();
        let progress = Progress {
            state: &state.state,
            generation: state.generation,
            started_at: state.started_at.clone(),
            finished_at,
            message: &state.message,
            diagnostics: serde_json::to_value(&state.diagnostics).unwrap_or_default(),
        };
        if let Err(error) = progress.write(path) {
            tracing::warn!(target: "honk::reload", %error, path = %path.display(), "progress file");
        }
    }
}

/// How a reload ended, in the order of [`RESULTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Applied,
    /// The configuration was refused.
    Rejected,
    /// The kernel refused; the old generation was restored.
    Failed,
}

/// What is told about it.
struct End {
    result: Ended,
    generation: u64,
    revision: Arc<str>,
    changed: Vec<String>,
    diagnostics: Vec<Diag>,
    message: String,
}

impl Engine {
    /// Reloads and waits. While one runs, one more may wait; further ones are refused.
    pub(crate) async fn reload(
        self: &Arc<Self>,
        trigger: Trigger,
        abort: bool,
    ) -> Result<ReloadState, Busy> {
        let taken = self.reloads.in_flight.fetch_add(1, Ordering::Relaxed);
        let _place = Place(&self.reloads.in_flight);
        if taken >= IN_FLIGHT {
            self.reloads.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::info!(target: "honk::reload", "a reload is already waiting");
            return Err(Busy);
        }
        let writer = self.writer.lock().await;
        if self.phase() == Phase::Stopping {
            return Err(Busy);
        }
        let begun = Instant::now();
        self.reloads.begin();
        notify::reloading();
        let engine = Arc::clone(self);
        // Reading files, compiling and writing maps block.
        let end = tokio::task::spawn_blocking(move || engine.transaction(abort))
            .await
            .unwrap_or_else(|e| self.failed(format!("the reload stopped unexpectedly: {e}")));
        self.reloads.finish(trigger, &end, begun.elapsed());
        drop(writer);
        match end.result {
            Ended::Applied => {
                tracing::info!(target: "honk::reload", generation = end.generation, "{}", end.message);
            }
            Ended::Rejected | Ended::Failed => {
                tracing::error!(target: "honk::reload", generation = end.generation, "{}", end.message);
                for diag in end.diagnostics.iter().filter(|d| d.severity == "error") {
                    tracing::error!(target: "honk::config", "{}", super::diag::short(diag));
                }
            }
        }
        // Ready again also after a rejection: the old generation serves.
        notify::ready(&end.message);
        Ok(self.reloads.state())
    }

    /// Whether a reload runs now.
    pub(crate) fn reloading(&self) -> bool {
        self.reloads.in_flight.load(Ordering::Relaxed) > 0
    }

    fn transaction(&self, abort: bool) -> End {
        let before = self.snapshot();
        let started = Instant::now();
        self.reloads.phase("parse");
        let Outcome {
            candidate,
            mut findings,
        } = source::load(&self.spec, Purpose::Run, Some(&before.groups));
        let Some(candidate) = candidate else {
            return self.rejected(&findings, "configuration refused");
        };
        self.reloads.phase("validate");
        let restart = restart_required(&before.config, &candidate.config);
        if !restart.is_empty() {
            let message = format!(
                "{} changed: restart honk to apply; nothing was changed now",
                restart.join(", ")
            );
            let finding = Diagnostic::new(
                Severity::Error,
                "",
                "restart-required",
                None,
                message.clone(),
            );
            findings.add(finding);
            return self.rejected(&findings, &message);
        }
        self.reloads.phase("build");
        let tables = candidate.tables.clone();
        let next = Snapshot::new(candidate, &findings, before.generation + 1).after(&before);
        let changed = changed(&before, &next);
        self.reloads
            .histograms
            .reload(0, started.elapsed().as_secs_f64());

        self.reloads.phase("commit");
        let committing = Instant::now();
        let next = Arc::new(next);
        self.current.store(Arc::clone(&next));
        if let Err(e) = self.commit(&before, &next, &tables) {
            self.current.store(Arc::clone(&before));
            self.restore(&before);
            return self.failed(format!("the kernel refused the new rules: {e}"));
        }
        self.reloads
            .histograms
            .reload(1, committing.elapsed().as_secs_f64());
        if self.phase() == Phase::Suspended
            && let Err(e) = self.open()
        {
            tracing::error!(target: "honk::reload", error = %e, "the gate stays closed");
        }

        self.reloads.phase("drain");
        let draining = Instant::now();
        self.settle(&before, &next, abort);
        self.reloads
            .histograms
            .reload(2, draining.elapsed().as_secs_f64());
        let warnings = plural(next.tally.warnings, "warning");
        End {
            result: Ended::Applied,
            generation: next.generation,
            revision: Arc::clone(&next.revision),
            diagnostics: findings.documents(),
            message: format!(
                "generation {} active, {} changed, {warnings}",
                next.generation,
                if changed.is_empty() {
                    "nothing".to_owned()
                } else {
                    changed.join(", ")
                },
            ),
            changed,
        }
    }

    fn commit(
        &self,
        before: &Snapshot,
        next: &Snapshot,
        tables: &honk_common::tables::RouteTables,
    ) -> Result<(), KernelError> {
        let lan = &next.config.global.lan_interface;
        if *lan != before.config.global.lan_interface {
            self.kernel.set_lan(lan.clone())?;
        }
        // Slots of both generations accept flows while rules change: nothing is dropped for a
        // state that belongs to the other one.
        let mut alive: Vec<(u32, u32)> = before.groups.slots();
        alive.extend(next.groups.slots());
        alive.iter_mut().for_each(|slot| slot.1 = 0);
        alive.sort_unstable();
        alive.dedup();
        self.kernel.write_groups(&alive)?;
        self.kernel.commit(tables)?;
        self.kernel.write_groups(&next.groups.slots())
    }

    /// Puts the old generation's state back after a failed commit.
    fn restore(&self, before: &Snapshot) {
        let lan = before.config.global.lan_interface.clone();
        let restored = self
            .kernel
            .set_lan(lan)
            .and_then(|()| self.kernel.write_groups(&before.groups.slots()));
        if let Err(error) = restored {
            tracing::error!(target: "honk::reload", %error, "the old generation is not fully restored");
        }
    }

    /// What follows an activation: names, settings, flows that must end.
    fn settle(&self, before: &Snapshot, next: &Snapshot, abort: bool) {
        let names = next.outbounds();
        self.registry.retain(&names);
        self.gatekeeper.retain(&names);
        self.retain_changes(&names);
        self.log.apply(&next.config.global.log_level);
        if let Some(carriers) = self.carriers() {
            carriers.update(&next.config.global);
        }
        let flows = self.registry.list();
        if abort {
            let old = |f: &&Arc<FlowEntry>| f.generation < next.generation;
            let old: Vec<_> = flows.iter().filter(old).cloned().collect();
            self.registry.cancel(&old, CloseReason::Reload);
            return;
        }
        let gone = |f: &&Arc<FlowEntry>| !is_builtin(f.leaf) && !has_node(next, f.leaf);
        let gone: Vec<_> = flows.iter().filter(gone).cloned().collect();
        self.registry.cancel(&gone, CloseReason::Reload);
        for (id, changed) in before.groups.changes(&next.groups) {
            let Some(group) = next.groups.group(id) else {
                continue;
            };
            for (network, changed) in [("tcp", changed.tcp), ("udp", changed.udp)] {
                if changed {
                    self.count_change(&group.name, network, "reload");
                }
            }
            if group.def.interrupt_connections {
                let moved = affected(&flows, next, id, changed);
                self.registry.cancel(&moved, CloseReason::SelectionChanged);
            }
        }
    }

    fn rejected(&self, findings: &Findings, message: &str) -> End {
        let current = self.snapshot();
        let errors = plural(findings.tally().errors, "error");
        End {
            result: Ended::Rejected,
            generation: current.generation,
            revision: Arc::clone(&current.revision),
            changed: Vec::new(),
            diagnostics: findings.documents(),
            message: format!(
                "reload rejected ({errors}): {message}; generation {} goes on",
                current.generation
            ),
        }
    }

    fn failed(&self, message: String) -> End {
        let current = self.snapshot();
        let cause = Diagnostic::new(Severity::Error, "", "kernel", None, message.clone());
        let findings = Findings::one(cause);
        End {
            result: Ended::Failed,
            generation: current.generation,
            revision: Arc::clone(&current.revision),
            changed: Vec::new(),
            diagnostics: findings.documents(),
            message: format!(
                "reload failed: {message}; generation {} goes on",
                current.generation
            ),
        }
    }
}

fn has_node(snapshot: &Snapshot, id: NodeId) -> bool {
    snapshot.groups.nodes().iter().any(|n| n.id == id)
}

/// Keys that only a restart applies.
fn restart_required(old: &Config, new: &Config) -> Vec<String> {
    let mut keys = config::restart_required(old, new);
    // The pinned links are made at the start; changing them under live hooks is not built.
    if old.global.on_crash != new.global.on_crash {
        keys.push("global.on_crash".to_owned());
    }
    keys
}

/// Sections whose meaning differs.
fn changed(before: &Snapshot, next: &Snapshot) -> Vec<String> {
    let (old, new) = (&before.config, &next.config);
    [
        ("global", old.global != new.global),
        ("node", old.nodes != new.nodes),
        ("group", old.groups != new.groups),
        ("routing", old.rules != new.rules),
    ]
    .into_iter()
    .filter(|(_, differs)| *differs)
    .map(|(name, _)| name.to_owned())
    .collect()
}

/// A place among the reloads in flight, given back on drop.
struct Place<'a>(&'a AtomicU8);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use honk_policy::id::Network;

    use super::*;
    use crate::{
        app::testkit::{Asked, CONFIG, World, flow},
        flow::Admission as _,
    };

    async fn reload(world: &World) -> ReloadState {
        world.engine.reload(Trigger::Api, false).await.unwrap()
    }

    fn leaf(world: &World, target: &str) -> String {
        let route = world.engine.gatekeeper.admit(&flow(Network::Tcp, target));
        route.unwrap().leaf.name.clone()
    }

    #[tokio::test]
    async fn an_accepted_file_becomes_the_next_generation() {
        let world = World::new(CONFIG);
        world.edit(&CONFIG.replace("fallback: proxy", "fallback: c"));
        let state = reload(&world).await;
        assert_eq!((state.state.as_str(), state.generation), ("done", 2));
        assert_eq!(state.changed, ["routing"]);
        assert_eq!(leaf(&world, "203.0.113.1:80"), "c");
        let commits = |a: &Asked| matches!(a, Asked::Commit(_));
        assert_eq!(world.kernel.take().iter().filter(|a| commits(a)).count(), 1);
        assert!(world.progress().contains("\"state\":\"done\""));
    }

    #[tokio::test]
    async fn slots_are_alive_while_rules_change_and_exact_afterwards() {
        let config = CONFIG.replace("filter: name(a, b)", "filter: name(direct)");
        let world = World::new(&config);
        reload(&world).await;
        let asked = world.kernel.take();
        let [Asked::Groups(alive), Asked::Commit(_), Asked::Groups(exact)] = asked.as_slice()
        else {
            panic!("{asked:?}");
        };
        assert!(alive.iter().all(|(_, bits)| *bits == 0));
        assert!(exact.iter().any(|(_, bits)| *bits != 0));
    }

    #[tokio::test]
    async fn a_refused_file_changes_nothing_and_says_why() {
        let world = World::new(CONFIG);
        world.edit("global { tproxy_prot: 1 }");
        let state = reload(&world).await;
        assert_eq!((state.state.as_str(), state.generation), ("rejected", 1));
        let unknown = |d: &Diag| d.code == "unknown-key" && d.severity == "error";
        assert!(state.diagnostics.iter().any(unknown), "{state:?}");
        assert_eq!(world.kernel.take(), []);
        assert_eq!(leaf(&world, "203.0.113.1:80"), "a");
        assert!(!world.engine.reloads.last().1);
        assert!(world.progress().contains("\"state\":\"rejected\""));
    }

    #[tokio::test]
    async fn keys_that_need_a_restart_are_named_and_nothing_else_is_applied() {
        let world = World::new(CONFIG);
        let config = CONFIG
            .replace("lan0 }", "lan0\n tproxy_port: 23456\n on_crash: direct }")
            .replace("fallback: proxy", "fallback: c");
        world.edit(&config);
        let state = reload(&world).await;
        assert_eq!(state.state, "rejected");
        let diag = &state.diagnostics[0];
        assert_eq!(diag.code, "restart-required");
        assert!(
            diag.message.contains("global.tproxy_port"),
            "{}",
            diag.message
        );
        assert!(diag.message.contains("global.on_crash"), "{}", diag.message);
        assert_eq!(leaf(&world, "203.0.113.1:80"), "a");
    }

    #[tokio::test]
    async fn a_kernel_that_refuses_leaves_the_old_generation_in_charge() {
        let world = World::new(CONFIG);
        *world.kernel.refuse_commit.lock().unwrap() = true;
        world.edit(&CONFIG.replace("fallback: proxy", "fallback: c"));
        let state = reload(&world).await;
        assert_eq!((state.state.as_str(), state.generation), ("rejected", 1));
        assert!(state.message.contains("no memory"), "{}", state.message);
        let last = world.kernel.take().pop();
        let slots = world.engine.snapshot().groups.slots();
        assert_eq!(last, Some(Asked::Groups(slots)));
        assert_eq!(leaf(&world, "203.0.113.1:80"), "a");
    }

    #[tokio::test]
    async fn flows_decided_under_the_old_rules_still_find_a_group_that_is_gone() {
        let world = World::new(CONFIG);
        let slot = world.slot("proxy");
        let config = "global { lan_interface: lan0 }\nrouting { fallback: direct }\n\
                      node { a: 'socks5://192.0.2.1:1080' }";
        world.edit(config);
        assert_eq!(reload(&world).await.state, "done");
        let late = flow(Network::Tcp, "203.0.113.1:80");
        world.kernel.decide(&late, slot, 3);
        let route = world.engine.gatekeeper.admit(&late).unwrap();
        assert_eq!((&*route.outbound, route.leaf.name.as_str()), ("proxy", "a"));
    }

    #[tokio::test]
    async fn flows_through_nodes_that_are_gone_are_ended_and_others_are_not() {
        let world = World::new(CONFIG);
        let admit = |target| {
            world
                .engine
                .gatekeeper
                .admit(&flow(Network::Tcp, target))
                .unwrap()
        };
        let (gone, kept) = (admit("203.0.113.1:8443"), admit("203.0.113.1:80"));
        let direct = admit("10.0.0.1:80");
        let without = CONFIG
            .replace("c: 'http://192.0.2.3:8080'", "")
            .replace("l4proto(tcp) && dport(8443) -> c", "");
        world.edit(&without);
        assert_eq!(reload(&world).await.state, "done");
        let reason = |r: &crate::flow::Route| r.guard.entry.cancel.reason();
        assert_eq!(reason(&gone), Some(CloseReason::Reload));
        assert_eq!((reason(&kept), reason(&direct)), (None, None));
        // And with `--abort` all of them.
        world.engine.reload(Trigger::Api, true).await.unwrap();
        assert_eq!(reason(&kept), Some(CloseReason::Reload));
    }

    #[tokio::test]
    async fn choices_ids_and_slots_survive_reordered_groups() {
        let world = World::new(CONFIG);
        let before = world.engine.snapshot();
        let proxy = before.groups.group_named("proxy").unwrap();
        let b = proxy.member_named("b").unwrap().id();
        let change = crate::app::select::Change {
            group: proxy.id,
            scope: honk_policy::group::Scope::Both,
            member: Some(b),
            interrupt: None,
        };
        world.engine.select(change).await.unwrap();
        world.edit(&CONFIG.replace("group {", "group { first { policy: select }"));
        assert_eq!(reload(&world).await.state, "done");
        let after = world.engine.snapshot();
        let same = after.groups.group_named("proxy").unwrap();
        assert_eq!((same.id, same.slot), (proxy.id, proxy.slot));
        assert_ne!(same.def.ordinal, proxy.def.ordinal);
        assert_eq!(leaf(&world, "203.0.113.1:80"), "b");
    }

    #[tokio::test]
    async fn one_reload_runs_one_waits_and_the_third_is_dropped() {
        let world = World::new(CONFIG);
        let writer = world.engine.writer.lock().await;
        let begin = || {
            let engine = Arc::clone(&world.engine);
            tokio::spawn(async move { engine.reload(Trigger::Signal, false).await.map(|_| ()) })
        };
        let (first, second) = (begin(), begin());
        while world.engine.reloads.in_flight.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(begin().await.unwrap(), Err(Busy));
        drop(writer);
        assert_eq!(first.await.unwrap(), Ok(()));
        assert_eq!(second.await.unwrap(), Ok(()));
        assert_eq!(world.engine.snapshot().generation, 3);
        assert_eq!(world.engine.reloads.dropped.load(Ordering::Relaxed), 1);
    }
}
