//! Selection changes: published in userspace first, then in the kernel, then felt by flows.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use honk_common::outbound::STATE_DIRECT;
use honk_policy::{
    group::{Changed, Choice, ChooseError, GroupTable, Scope},
    id::{GroupId, MemberId, Network},
    routing::compile,
};

use super::{engine::Engine, kernel::KernelError, registry::Closing, snapshot::Snapshot};
use crate::{
    cli::exit::Exit,
    flow::{CloseReason, FlowEntry},
};

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
        self.unsaved.store(true, Ordering::Relaxed);
        self.kernel.write_groups(&after.groups.slots())?;
        let interrupt = interrupts(&after, change);
        if interrupt && changed.udp && leaves_direct(&before.groups, &after.groups) {
            self.forget_direct(&after).await?;
        }
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

impl Engine {
    /// UDP flows that the kernel passes as direct are bound to a generation: publishing the
    /// same rules again makes their next packets be decided anew.
    async fn forget_direct(&self, snapshot: &Snapshot) -> Result<(), KernelError> {
        let (kernel, rules) = (Arc::clone(&self.kernel), Arc::clone(&snapshot.rules));
        let done = tokio::task::spawn_blocking(move || match compile(&rules) {
            Ok(tables) => kernel.commit(&tables).map(|_| ()),
            Err(e) => Err(broken(&e)),
        });
        done.await.unwrap_or_else(|e| Err(broken(&e)))
    }
}

/// These rules have been compiled before, so this is a defect rather than an answer.
fn broken(e: &dyn std::fmt::Display) -> KernelError {
    KernelError {
        exit: Exit::Failure,
        message: format!("the rules were not published again: {e}"),
    }
}

fn interrupts(snapshot: &Snapshot, change: Change) -> bool {
    let group = snapshot.groups.group(change.group);
    let configured = group.is_some_and(|g| g.def.interrupt_connections);
    change.interrupt.unwrap_or(configured)
}

/// Whether some group whose flows the kernel passed directly now needs them in userspace.
fn leaves_direct(before: &GroupTable, after: &GroupTable) -> bool {
    let direct = |table: &GroupTable| -> BTreeSet<u32> {
        let slots = table.slots().into_iter();
        slots
            .filter(|(_, bits)| bits & STATE_DIRECT != 0)
            .map(|(index, _)| index)
            .collect()
    };
    !direct(before).is_subset(&direct(after))
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
        changed && leaf != Some(flow.leaf) && flow.path.contains(&group.name)
    };
    flows.iter().filter(moved).cloned().collect()
}

fn leaf_name(groups: &GroupTable, id: GroupId, network: Network) -> &str {
    groups
        .group(id)
        .and_then(|g| groups.select(g.slot, network).ok())
        .map_or("-", |s| s.leaf.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        app::testkit::{Asked, CONFIG, World, flow},
        flow::{Admission as _, CancelHook, Route},
    };

    fn change(world: &World, group: &str, member: Option<&str>, scope: Scope) -> Change {
        let snapshot = world.engine.snapshot();
        let group = snapshot.groups.group_named(group).unwrap();
        Change {
            group: group.id,
            scope,
            member: member.map(|name| group.member_named(name).unwrap().id()),
            interrupt: None,
        }
    }

    /// Ends its flow as soon as it is asked to, like a relay.
    struct Relay(Mutex<Option<Route>>);

    impl CancelHook for Relay {
        fn cancelled(&self, _: u64, _: CloseReason) {
            drop(self.0.lock().unwrap().take());
        }
    }

    fn relayed(world: &World, network: Network, target: &str) -> Arc<Relay> {
        let route = world
            .engine
            .gatekeeper
            .admit(&flow(network, target))
            .unwrap();
        let entry = Arc::clone(&route.guard.entry);
        let relay = Arc::new(Relay(Mutex::new(Some(route))));
        entry.cancel.register(relay.clone(), 0);
        relay
    }

    fn alive(relay: &Relay) -> bool {
        relay.0.lock().unwrap().is_some()
    }

    #[tokio::test]
    async fn userspace_follows_before_the_kernel_is_told() {
        let world = World::new(CONFIG);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (engine, log) = (Arc::downgrade(&world.engine), Arc::clone(&seen));
        *world.kernel.hook.lock().unwrap() = Some(Box::new(move |asked| {
            if matches!(asked, Asked::Groups(_)) {
                let engine = engine.upgrade().unwrap();
                let groups = &engine.snapshot().groups;
                let slot = groups.group_named("proxy").unwrap().slot;
                let leaf = groups.select(slot, Network::Tcp).unwrap().leaf.name.clone();
                log.lock().unwrap().push(leaf);
            }
        }));
        let wanted = change(&world, "proxy", Some("b"), Scope::Both);
        world.engine.select(wanted).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), ["b"]);
    }

    #[tokio::test]
    async fn only_flows_of_the_group_and_network_that_moved_are_closed() {
        let world = World::new(CONFIG);
        let tcp = relayed(&world, Network::Tcp, "203.0.113.1:80");
        let udp = relayed(&world, Network::Udp, "203.0.113.1:9000");
        let other = relayed(&world, Network::Tcp, "203.0.113.1:8443");
        let direct = relayed(&world, Network::Tcp, "10.0.0.1:80");

        let wanted = change(&world, "proxy", Some("b"), Scope::Tcp);
        let applied = world.engine.select(wanted).await.unwrap();
        assert_eq!((applied.closing.closed, applied.closing.pending), (1, 0));
        assert_eq!(
            [&tcp, &udp, &other, &direct].map(|r| alive(r)),
            [false, true, true, true]
        );
        let ended = world.engine.registry.ended();
        assert_eq!(ended[0].reason, CloseReason::SelectionChanged);

        let again = world.engine.select(wanted).await.unwrap();
        assert!(!again.changed.any());
        assert_eq!(again.closing, Closing::default());
    }

    #[tokio::test]
    async fn the_request_may_overrule_interrupt_connections() {
        let world = World::new(CONFIG);
        let tcp = relayed(&world, Network::Tcp, "203.0.113.1:80");
        let wanted = Change {
            interrupt: Some(false),
            ..change(&world, "proxy", Some("b"), Scope::Both)
        };
        world.engine.select(wanted).await.unwrap();
        assert!(alive(&tcp));
        // Dropping the choice leads back to `a`, where the flow still is.
        let back = change(&world, "proxy", None, Scope::Both);
        let applied = world.engine.select(back).await.unwrap();
        assert!(applied.changed.tcp && alive(&tcp));
    }

    #[tokio::test]
    async fn leaving_direct_makes_the_kernel_forget_its_direct_udp_flows() {
        let config = CONFIG.replace("filter: name(a, b)", "filter: name(a, direct)");
        let world = World::new(&config);
        let commits = |world: &World| {
            let asked = world.kernel.take();
            asked
                .iter()
                .filter(|a| matches!(a, Asked::Commit(_)))
                .count()
        };
        let to_direct = change(&world, "proxy", Some("direct"), Scope::Both);
        world.engine.select(to_direct).await.unwrap();
        assert_eq!(commits(&world), 0);
        let tcp_back = change(&world, "proxy", Some("a"), Scope::Tcp);
        world.engine.select(tcp_back).await.unwrap();
        assert_eq!(commits(&world), 0, "only UDP has direct entries");
        let udp_back = change(&world, "proxy", Some("a"), Scope::Udp);
        world.engine.select(udp_back).await.unwrap();
        assert_eq!(commits(&world), 1);
    }

    #[tokio::test]
    async fn a_member_of_another_group_changes_nothing() {
        let world = World::new(CONFIG);
        let mut wanted = change(&world, "proxy", Some("b"), Scope::Both);
        wanted.member = change(&world, "c", Some("c"), Scope::Both).member;
        let error = world.engine.select(wanted).await.unwrap_err();
        assert!(matches!(
            error,
            SelectError::Choose(ChooseError::NotAMember)
        ));
        assert_eq!(world.kernel.take(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn flows_that_do_not_end_are_reported_as_pending() {
        let world = World::new(CONFIG);
        let held = world
            .engine
            .gatekeeper
            .admit(&flow(Network::Tcp, "203.0.113.1:80"));
        let wanted = change(&world, "proxy", Some("b"), Scope::Both);
        let applied = world.engine.select(wanted).await.unwrap();
        assert_eq!((applied.closing.closed, applied.closing.pending), (0, 1));
        drop(held);
    }
}
