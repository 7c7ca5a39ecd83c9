//! Subscriptions at work: fetches when they are due, and what they bring as an activation.
//!
//! An activation of this kind changes members of groups and nothing else: rules, slots and ids
//! stay, choices stay with their member, flows of nodes that are still there go on. A body that
//! cannot be used changes nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use honk_grammar::diag::{Diagnostic, Severity};
use honk_policy::{
    group::{GroupTable, Scope},
    id::Uuid,
    node::Node,
    subscription::Changes,
};
use tokio::{
    sync::watch,
    task::{self, JoinSet},
    time::Instant,
};

use super::{
    choices,
    engine::{Engine, Phase},
    reload::Trigger,
    snapshot::Snapshot,
    verdicts::Wish,
};
pub(crate) use crate::subscription::{FetchResult, View};
use crate::{
    subscription::{FetchError, Fetched, Good, Job, Net, PARALLEL, perform, shown},
    words::plural,
};

/// How long the start waits for subscriptions that have no nodes yet.
pub(super) const FIRST: Duration = Duration::from_secs(5);
/// Names told in one log line.
const NAMES: usize = 20;

/// Fetches what is due until told to stop.
pub(super) async fn run(engine: Arc<Engine>, net: Net, mut stop: watch::Receiver<bool>) {
    let hub = Arc::clone(&engine.subscriptions);
    let mut changed = hub.watch();
    let mut fetches: JoinSet<(Job, Result<Fetched, FetchError>)> = JoinSet::new();
    let mut running: HashMap<task::Id, Uuid> = HashMap::new();
    loop {
        changed.borrow_and_update();
        while fetches.len() < PARALLEL {
            let Some(job) = hub.take_due(Instant::now()) else {
                break;
            };
            let (net, spec) = (net.clone(), engine.spec.clone());
            let id = job.id;
            let begun = fetches.spawn(async move {
                let fetched = perform(&net, &job, move |d| spec.subscription_file(d)).await;
                (job, fetched)
            });
            running.insert(begun.id(), id);
        }
        let next = hub.next_due().filter(|_| fetches.len() < PARALLEL);
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            () = told(&mut stop) => break,
            Some(done) = fetches.join_next_with_id() => done,
            // The hub lives as long as this task.
            _ = changed.changed() => continue,
            () = due => continue,
        };
        match done {
            Ok((task, (job, fetched))) => {
                running.remove(&task);
                deliver(&engine, &job, fetched).await;
            }
            Err(error) => {
                tracing::error!(target: "honk::subscription", %error, "a fetch ended unexpectedly");
                if let Some(id) = running.remove(&error.id()) {
                    hub.failed(id, &FetchError::Stopped(error));
                }
            }
        }
    }
    fetches.shutdown().await;
}

async fn told(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone says the same.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn deliver(engine: &Arc<Engine>, job: &Job, fetched: Result<Fetched, FetchError>) {
    let (hub, id, tag) = (&engine.subscriptions, job.id, shown(&job.decl.tag));
    match fetched {
        Ok(Fetched::New(good)) => engine.take_nodes(&tag, id, *good).await,
        Ok(Fetched::Same(good)) => {
            let statics = engine.snapshot().config.nodes.clone();
            hub.accept(id, *good, &statics);
            tracing::debug!(target: "honk::subscription", "{tag} is unchanged");
        }
        Err(error) => {
            let nodes = job.active();
            let rest = match nodes {
                0 => "it has no nodes yet".to_owned(),
                n => format!("the {} it had stay in use", plural(n, "node")),
            };
            if hub.failed(id, &error) {
                tracing::warn!(target: "honk::subscription", "{tag}: {error}; {rest}");
            } else {
                tracing::debug!(target: "honk::subscription", "{tag}: {error}; {rest}");
            }
        }
    }
}

impl Engine {
    /// Takes the nodes of a body into use.
    async fn take_nodes(self: &Arc<Self>, tag: &str, id: Uuid, good: Good) {
        let writer = self.writer.lock().await;
        let engine = Arc::clone(self);
        // Groups of thousands of nodes and the maps of the kernel take their time.
        let done = task::spawn_blocking(move || engine.refresh(id, good)).await;
        drop(writer);
        match done {
            Ok(Refreshed::Applied(changes, generation)) => {
                if let Some(generation) = generation {
                    self.reloads.counted(Trigger::Subscription, true);
                    tracing::info!(
                        target: "honk::subscription",
                        generation,
                        "{tag}: {}",
                        summary(&changes)
                    );
                }
            }
            Ok(Refreshed::Refused(why)) => {
                self.reloads.counted(Trigger::Subscription, false);
                self.subscriptions.dropped(id);
                tracing::error!(target: "honk::subscription", "{tag}: {why}; the nodes stay as they were");
            }
            Ok(Refreshed::Gone) => self.subscriptions.dropped(id),
            Err(error) => {
                self.subscriptions.dropped(id);
                tracing::error!(target: "honk::subscription", %error, "a refresh stopped unexpectedly");
            }
        }
    }

    fn refresh(&self, id: Uuid, good: Good) -> Refreshed {
        if self.phase() == Phase::Stopping {
            return Refreshed::Gone;
        }
        let before = self.snapshot();
        let statics = &before.config.nodes;
        let Some(nodes) = self.subscriptions.nodes_with(id, &good) else {
            return Refreshed::Gone;
        };
        let waits = self.subscriptions.waits_besides(id);
        let (groups, found) = self.with_nodes(&before, nodes, waits);
        if groups.nodes() == before.groups.nodes() {
            let changes = self.subscriptions.accept(id, good, statics);
            return Refreshed::Applied(changes.unwrap_or_default(), None);
        }
        if let Some(error) = found.iter().find(|d| d.severity == Severity::Error) {
            return Refreshed::Refused(error.message.clone());
        }
        // What the start waits for belongs to it.
        let wish = match self.phase() {
            Phase::Starting => Wish::Operator,
            Phase::Running | Phase::Suspended | Phase::Stopping => Wish::Background,
        };
        let judged = self
            .judge
            .judge(&before.config, groups.nodes(), wish, |node| {
                waits && node.source.is_some_and(|source| source != id)
            });
        self.tell_nodes();
        let groups = match judged {
            Ok(off) => groups.without(off),
            Err(refused) => return Refreshed::Refused(refused.to_string()),
        };
        let next = Arc::new(before.refreshed(groups));
        self.current.store(Arc::clone(&next));
        if let Err(error) = self.kernel.write_groups(&next.groups.slots()) {
            self.current.store(Arc::clone(&before));
            self.restore(&before);
            return Refreshed::Refused(format!("the kernel refused the group states: {error}"));
        }
        self.settle(&before, &next, false);
        self.tell_groups(&next, waits);
        let changes = self.subscriptions.accept(id, good, statics);
        Refreshed::Applied(changes.unwrap_or_default(), Some(next.generation))
    }

    /// The groups of a generation with other nodes of subscriptions.
    fn with_nodes(
        &self,
        before: &Snapshot,
        nodes: Vec<Node>,
        waits: bool,
    ) -> (GroupTable, Vec<Diagnostic>) {
        let previous = Some(&before.groups);
        let (groups, found) =
            GroupTable::build_with(&before.config, nodes, previous, &mut Uuid::new_v4);
        (self.late_choices(groups, &before.revision, waits), found)
    }

    /// Logs warnings about groups, each once for as long as it holds, unless the configuration
    /// told it already. While nodes are awaited they may still settle.
    pub(super) fn tell_groups(&self, snapshot: &Snapshot, waits: bool) {
        if waits {
            return;
        }
        let groups = snapshot.groups.groups();
        let holds: HashSet<String> = groups
            .flat_map(|g| g.warnings.iter().map(|w| w.message.clone()))
            .filter(|message| !snapshot.diagnostics.iter().any(|d| d.message == *message))
            .collect();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for message in holds.difference(&told) {
            tracing::warn!(target: "honk::group", "{message}");
        }
        *told = holds;
    }

    /// A stored choice that waits for its member is overtaken by what is wanted now, on these
    /// networks. True when there was one.
    pub(super) fn forget_late(&self, group: &str, scope: Scope) -> bool {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waits) = late.remove(group) else {
            return false;
        };
        let tcp = waits.tcp.clone().filter(|_| scope == Scope::Udp);
        let udp = waits.udp.clone().filter(|_| scope == Scope::Tcp);
        let left = waits.with(tcp, udp);
        late.extend(left.map(|record| (group.to_owned(), record)));
        true
    }

    /// Makes stored choices whose member was not there at the start. Those that are still
    /// without one are given up unless nodes are awaited.
    pub(super) fn late_choices(
        &self,
        groups: GroupTable,
        revision: &str,
        waits: bool,
    ) -> GroupTable {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if late.is_empty() {
            return groups;
        }
        let (groups, left) = choices::restore(groups, &late, revision);
        *late = if waits {
            left
        } else {
            choices::given_up(&left)
        };
        groups
    }
}

enum Refreshed {
    /// In use, with the generation it became unless nothing changed.
    Applied(Arc<Changes>, Option<u64>),
    Refused(String),
    /// The subscription is not configured any more, or the daemon stops.
    Gone,
}

/// `12 nodes in use, 2 came (a, b), 1 went (c)`
fn summary(changes: &Changes) -> String {
    let total = changes.kept + changes.added.len() + changes.changed.len();
    let mut text = format!("{} in use", plural(total, "node"));
    for (names, what) in [
        (&changes.added, "came"),
        (&changes.removed, "went"),
        (&changes.changed, "changed"),
    ] {
        if names.is_empty() {
            continue;
        }
        let shown: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
        let more = match names.len().saturating_sub(NAMES) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        text.push_str(&format!(
            ", {} {what} ({}{more})",
            names.len(),
            shown.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests;
