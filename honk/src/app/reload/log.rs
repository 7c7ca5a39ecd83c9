//! The record of reloads: the last outcome, who waits, what is counted and told.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

use super::super::snapshot::Snapshot;
use crate::{
    api::doc::{Diag, ReloadState},
    clock,
    metrics::histogram::Histograms,
    state::progress::Progress,
};

/// Who asked, as label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    Signal,
    Api,
    /// A refresh: an activation without a file reload.
    Subscription,
    /// A change of a group through the API.
    Patch,
}

/// Label values of `trigger` and `result`.
pub(crate) const TRIGGERS: [&str; 4] = ["signal", "api", "subscription", "patch"];
pub(crate) const RESULTS: [&str; 3] = ["applied", "rejected", "failed"];

/// Reloads that may run or wait: one of each.
pub(super) const IN_FLIGHT: u8 = 2;

/// The last reload and the counters of all.
#[derive(Debug)]
pub(crate) struct ReloadLog {
    state: watch::Sender<ReloadState>,
    pub(super) in_flight: AtomicU8,
    /// By trigger and result.
    counts: [[AtomicU64; RESULTS.len()]; TRIGGERS.len()],
    /// Reloads that were not begun because one waited already.
    pub(crate) dropped: AtomicU64,
    /// End of the last attempt and whether it was accepted.
    last: Mutex<(u64, bool)>,
    progress: PathBuf,
    pub(super) histograms: Arc<Histograms>,
}

/// A reload that was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl ReloadLog {
    pub(in crate::app) fn new(
        first: &Snapshot,
        progress: PathBuf,
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
            last: Mutex::new((clock::now_ms(), true)),
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
            .then(|| clock::now_ms().saturating_sub(ended_ms));
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

    pub(super) fn phase(&self, phase: &str) {
        self.state.send_modify(|s| s.phase = Some(phase.to_owned()));
    }

    pub(super) fn begin(&self) {
        self.state.send_modify(|s| {
            s.state = "running".to_owned();
            s.sequence += 1;
            s.started_at = Some(clock::now());
            s.duration_ms = None;
            s.changed.clear();
            s.diagnostics.clear();
            s.message.clear();
        });
        self.save(None);
    }

    pub(super) fn finish(&self, trigger: Trigger, end: &End, took: std::time::Duration) {
        let counts = &self.counts[trigger as usize][end.result as usize];
        counts.fetch_add(1, Ordering::Relaxed);
        let applied = end.result == Ended::Applied;
        let last = (clock::now_ms(), applied);
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
        self.save(Some(clock::now()));
    }

    /// An activation that was no reload.
    pub(in crate::app) fn counted(&self, trigger: Trigger, applied: bool) {
        let end = if applied {
            Ended::Applied
        } else {
            Ended::Failed
        };
        let counts = &self.counts[trigger as usize][end as usize];
        counts.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the file: a daemon that has ended tells nothing about reloads.
    pub(in crate::app) fn forget(&self) {
        match std::fs::remove_file(&self.progress) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let path = self.progress.display();
                tracing::warn!(target: "honk::reload", %error, %path, "progress file stays");
            }
            _ => {}
        }
    }

    fn save(&self, finished_at: Option<String>) {
        let path = &self.progress;
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
pub(super) enum Ended {
    Applied,
    /// The configuration was refused.
    Rejected,
    /// The kernel refused; the old generation was restored.
    Failed,
}

/// What is told about it.
pub(super) struct End {
    pub(super) result: Ended,
    pub(super) generation: u64,
    pub(super) revision: Arc<str>,
    pub(super) changed: Vec<String>,
    pub(super) diagnostics: Vec<Diag>,
    pub(super) message: String,
}
