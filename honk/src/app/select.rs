//! Selection changes: published in userspace first, then in the kernel, then felt by flows.

use std::{sync::Arc, time::Duration};

use honk_policy::{
    group::{Changed, Choice, ChooseError, GroupTable, Scope},
    id::{GroupId, MemberId, Network},
};

use super::{engine::Engine, kernel::KernelError, registry::Closing, snapshot::Snapshot};
use crate::flow::{CloseReason, FlowEntry};

/// Longest wait for flows to end before a change is answered.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// A published change.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) changed: Changed,
    pub(crate) closing: Closing,
}

impl Applied {
    /// Nothing happened.
    pub(crate) fn unchanged(snapshot: Arc<Snapshot>) -> Self {
        Self {
            snapshot,
            changed: Changed::default(),
            closing: Closing::default(),
        }
    }
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SelectError {
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// Userspace follows the new selection; the kernel could not be told.
    #[error("the selection is changed, but the kernel was not told: {0}")]
    Kernel(#[from] KernelError),
}

/// What to choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) group: GroupId,
    pub(crate) scope: Scope,
    /// `None` drops the choice.
    pub(crate) member: Option<MemberId>,
    /// Overrides `interrupt_connections` of the group.
    pub(crate) interrupt: Option<bool>,
}

impl Engine {
    /// Makes a change and waits for the flows it closes.
    pub(crate) async fn select(&self, change: Change) -> Result<Applied, SelectError> {
        let writer = self.writer.lock().await;
        let before = self.snapshot();
        let Choice {
            table,
            changed,
            stored,
        } = match change.member {
            Some(member) => before.groups.choose(change.group, change.scope, member)?,
            None => before.groups.unchoose(change.group, change.scope)?,
        };
        if !stored {
            return Ok(Applied {
                snapshot: before,
                changed,
                closing: Closing::default(),
            });
        }
        let after = Arc::new(before.with_groups(table));
        self.current.store(Arc::clone(&after));
        self.kernel.write_groups(&after.groups.slots())?;
        drop(writer);
        let Some(group) = after.groups.group(change.group) else {
            return Err(ChooseError::UnknownGroup.into());
        };
        for (network, changed) in [(Network::Tcp, changed.tcp), (Network::Udp, changed.udp)] {
            if changed {
                self.count_change(&group.name, network.name(), "user");
                tracing::info!(
                    target: "honk::group",
                    group = &*group.name,
                    network = network.name(),
                    leaf = leaf_name(&after.groups, change.group, network),
                    "selection changed",
                );
            }
        }
        let interrupt = change.interrupt.unwrap_or(group.def.interrupt_connections);
        let closing = if interrupt && changed.any() {
            let flows = affected(&self.registry.list(), &after, change.group, changed);
            self.registry
                .close(&flows, CloseReason::SelectionChanged, CLOSE_WAIT)
                .await
        } else {
            Closing::default()
        };
        Ok(Applied {
            snapshot: after,
            changed,
            closing,
        })
    }
}

/// Flows that came through the group and would now leave through another node.
pub(super) fn affected(
    flows: &[Arc<FlowEntry>],
    after: &Snapshot,
    group: GroupId,
    changed: Changed,
) -> Vec<Arc<FlowEntry>> {
    let Some(group) = after.groups.group(group) else {
        return Vec::new();
    };
    let leaf = |network| {
        let selected = after.groups.select(group.slot, network).ok();
        selected.map(|s| s.leaf.id)
    };
    let (tcp, udp) = (leaf(Network::Tcp), leaf(Network::Udp));
    let moved = |flow: &&Arc<FlowEntry>| {
        let (changed, leaf) = match flow.flow.network {
            Network::Tcp => (changed.tcp, tcp),
            Network::Udp => (changed.udp, udp),
        };
        changed && leaf != Some(flow.leaf) && flow.path.iter().any(|name| *name == group.name)
    };
    flows.iter().filter(moved).cloned().collect()
}

fn leaf_name(groups: &GroupTable, id: GroupId, network: Network) -> &str {
    groups
        .group(id)
        .and_then(|g| groups.select(g.slot, network).ok())
        .map_or("-", |s| s.leaf.name.as_str())
}
