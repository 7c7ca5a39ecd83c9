//! The reload transaction.
//!
//! A candidate is built completely before anything changes. Userspace learns the new
//! generation first, keeping the old slots usable; then the kernel's rules flip with one
//! store; then group slots take their final values. Whatever fails leaves the old generation
//! in charge.

mod log;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Instant,
};

use honk_grammar::diag::{Diagnostic, Severity};
use honk_policy::{config, id::NodeId};
use serde_json::json;
use tokio::sync::oneshot;

pub(crate) use self::log::{Busy, RESULTS, ReloadLog, TRIGGERS, Trigger};
use self::log::{End, Ended, IN_FLIGHT};
use super::{
    admission::is_builtin,
    choices,
    diag::Findings,
    engine::{Engine, Phase},
    kernel::{KernelError, flags},
    notify, rules,
    select::{affected, leaving},
    snapshot::Snapshot,
    source::{self, Outcome, Purpose, Running},
    verdicts::Wish,
};
use crate::{
    api::doc::ReloadState,
    datapath::give_back_memory,
    flow::{CloseReason, FlowEntry},
    words::plural,
};

/// What follows an applied reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Subscriptions are fetched, in the background.
    Refresh,
    Nothing,
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
        self.tell(
            "reload.started",
            None,
            json!({ "trigger": TRIGGERS[trigger as usize] }),
        );
        notify::reloading();
        let engine = Arc::clone(self);
        // Reading files, compiling and writing maps block.
        let work = move || {
            let end = engine.transaction(abort);
            give_back_memory();
            end
        };
        let end = tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|e| self.failed(format!("the reload stopped unexpectedly: {e}")));
        self.reloads.finish(trigger, &end, begun.elapsed());
        drop(writer);
        let state = self.reloads.state();
        let data = json!({ "state": state.state, "message": state.message });
        self.tell("reload.finished", None, data);
        match end.result {
            Ended::Applied => {
                tracing::info!(target: "honk::reload", generation = end.generation, "{}", end.message);
                for diag in end.diagnostics.iter().filter(|d| d.severity == "warning") {
                    tracing::warn!(target: "honk::config", "{}", super::diag::short(diag));
                }
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

    /// Begins a reload that goes on whatever becomes of the one who asked.
    pub(crate) fn begin_reload(
        self: &Arc<Self>,
        trigger: Trigger,
        abort: bool,
        after: After,
    ) -> oneshot::Receiver<Result<ReloadState, Busy>> {
        let (tell, told) = oneshot::channel();
        let engine = Arc::clone(self);
        self.spawn(async move {
            let outcome = engine.reload(trigger, abort).await;
            let applied = outcome.as_ref().is_ok_and(|state| state.state == "done");
            if applied && after == After::Refresh {
                engine.subscriptions.request_all();
            }
            // Nobody may be listening any more.
            let _ = tell.send(outcome);
        });
        told
    }

    /// Whether a reload runs now.
    pub(crate) fn reloading(&self) -> bool {
        self.reloads.in_flight.load(Ordering::Relaxed) > 0
    }

    fn transaction(&self, abort: bool) -> End {
        let before = self.snapshot();
        let started = Instant::now();
        self.reloads.phase("parse");
        let running = Running {
            groups: &before.groups,
            subscriptions: &self.subscriptions,
        };
        let Outcome {
            candidate,
            mut findings,
            ..
        } = source::load(&self.spec, Purpose::Run, Some(running));
        let Some(mut candidate) = candidate else {
            return self.rejected(&findings, "configuration refused");
        };
        candidate.groups = candidate.groups.unpinned();
        self.reloads.phase("validate");
        let restart = config::restart_required(&before.config, &candidate.config);
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
        let subscriptions = std::mem::take(&mut candidate.subscriptions);
        candidate.groups =
            self.late_choices(candidate.groups, &candidate.revision, subscriptions.waits());
        let waits = subscriptions.waits();
        let nodes = candidate.groups.nodes();
        let off = self
            .judge
            .judge(&candidate.config, nodes, Wish::Operator, |node| {
                waits && node.source.is_some()
            });
        self.tell_nodes();
        candidate.groups = match off {
            Ok(off) => candidate.groups.without(off),
            Err(refused) => {
                let message = refused.to_string();
                let code = refused.code();
                let finding = Diagnostic::new(Severity::Error, "", code, None, message.clone());
                findings.add(finding);
                return self.rejected(&findings, &message);
            }
        };
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
        self.changed();
        let waits = subscriptions.waits();
        self.subscriptions.adopt(subscriptions, &next.config.nodes);
        self.tell_groups(&next, waits);
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
        if interfaces(next) != interfaces(before) {
            let (lan, wan) = interfaces(next);
            self.kernel.set_interfaces(lan, wan)?;
        }
        // Slots of both generations accept flows while rules change: nothing is dropped for a
        // state that belongs to the other one.
        let mut alive: Vec<(u32, u32)> = before.groups.slots();
        alive.extend(next.groups.slots());
        alive.iter_mut().for_each(|slot| slot.1 = 0);
        alive.sort_unstable();
        alive.dedup();
        self.kernel.write_groups(&alive)?;
        let kernel = rules::publish(&*self.kernel, &self.dns, tables, &next.oracle)?;
        self.gatekeeper.committed(kernel, next.generation);
        let switches = flags(&next.config.global);
        if switches != flags(&before.config.global) {
            self.kernel.set_flags(switches)?;
        }
        self.kernel.write_groups(&next.groups.slots())
    }

    /// Puts the old generation's state back after a failed commit.
    pub(super) fn restore(&self, before: &Snapshot) {
        let (lan, wan) = interfaces(before);
        let restored = self
            .kernel
            .set_interfaces(lan, wan)
            .and_then(|()| self.kernel.set_flags(flags(&before.config.global)))
            .and_then(|()| self.kernel.write_groups(&before.groups.slots()));
        if let Err(error) = restored {
            tracing::error!(target: "honk::reload", %error, "the old generation is not fully restored");
        }
    }

    /// What follows an activation: names, settings, flows that must end.
    pub(super) fn settle(&self, before: &Snapshot, next: &Snapshot, abort: bool) {
        self.score.activate(next);
        let names = next.outbounds();
        self.registry.retain(&names);
        self.gatekeeper.retain(&names);
        self.retain_changes(&names);
        let stored = |s: &Snapshot| choices::stored(&s.groups, &s.revision);
        if stored(before) != stored(next) {
            self.unsaved.store(true, Ordering::Relaxed);
        }
        self.log.apply(&next.config.global.log_level);
        if let Some(carriers) = self.carriers() {
            carriers.update(&next.config.global);
        }
        if let Some(prober) = self.prober() {
            prober.configure();
        }
        self.keep_pings(next);
        let flows = self.registry.list();
        if abort {
            let old = |f: &&Arc<FlowEntry>| f.generation < next.generation;
            let old: Vec<_> = flows.iter().filter(old).cloned().collect();
            self.registry.cancel(&old, CloseReason::Reload);
            return;
        }
        let nodes: HashSet<NodeId> = next.groups.nodes().iter().map(|n| n.id).collect();
        let gone = leaving(&flows, |way| {
            !is_builtin(way.leaf) && !nodes.contains(&way.leaf)
        });
        self.registry.cancel(&gone, CloseReason::Reload);
        let changes = before.groups.changes(&next.groups);
        self.announce(before, &changes);
        let moved = affected(&flows, &next.groups, &changes, None);
        self.registry.cancel(&moved, CloseReason::SelectionChanged);
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

/// LAN and WAN patterns of a generation.
fn interfaces(snapshot: &Snapshot) -> (Vec<String>, Vec<String>) {
    let global = &snapshot.config.global;
    (global.lan_interface.clone(), global.wan_interface.clone())
}

/// Sections whose meaning differs.
fn changed(before: &Snapshot, next: &Snapshot) -> Vec<String> {
    let (old, new) = (&before.config, &next.config);
    [
        ("global", old.global != new.global),
        ("node", old.nodes != new.nodes),
        ("subscription", old.subscriptions != new.subscriptions),
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
mod tests;
