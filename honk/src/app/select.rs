//! Selection changes, by hand or by health: published in userspace first, then in the kernel,
//! then felt by flows.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use honk_common::outbound::STATE_DIRECT;
use honk_policy::{
    group::{Change as Moved, Changed, Choice, ChooseError, GroupTable, Health, Scope, Update},
    health::Touched,
    id::{Family, GroupId, MemberId, Network},
    routing::compile,
};

use super::{engine::Engine, kernel::KernelError, registry::Closing, rules, snapshot::Snapshot};
use crate::{
    cli::exit::Exit,
    clock,
    flow::{CloseReason, FlowEntry, Way},
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
        let (group, scope, now) = (change.group, change.scope, clock::now_ms());
        let Choice {
            table,
            changed,
            changes,
            stored,
        } = match change.member {
            Some(member) => before.groups.choose(group, scope, member, now)?,
            None => before.groups.unchoose(group, scope, now)?,
        };
        let declared = before.groups.group(group);
        if declared.is_some_and(|g| self.forget_late(&g.name, scope)) {
            self.unsaved.store(true, Ordering::Relaxed);
        }
        if !stored {
            return Ok(Applied::unchanged(before));
        }
        let override_ = change.interrupt.map(|interrupt| (group, interrupt));
        self.unsaved.store(true, Ordering::Relaxed);
        let after = self.publish(&before, table, &changes, override_).await?;
        drop(writer);
        self.announce(&before, &changes);
        let flows = affected(&self.registry.list(), &after.groups, &changes, override_);
        let closing = match flows.is_empty() {
            true => Closing::default(),
            false => {
                self.registry
                    .close(&flows, CloseReason::SelectionChanged, CLOSE_WAIT)
                    .await
            }
        };
        Ok(Applied {
            snapshot: after,
            changed,
            closing,
        })
    }

    /// Takes over what health checks found: selections move, the kernel follows, and flows of
    /// groups that want it are closed. One caller, one call at a time.
    pub(crate) async fn health_changed(
        &self,
        health: Arc<dyn Health>,
        touched: &Touched,
    ) -> Result<Vec<Moved>, KernelError> {
        let writer = self.writer.lock().await;
        let before = self.snapshot();
        let Update { table, changes } = before.groups.judged(health, touched, clock::now_ms());
        let published = self.publish(&before, table, &changes, None).await;
        drop(writer);
        self.announce(&before, &changes);
        let after = self.snapshot();
        let flows = affected(&self.registry.list(), &after.groups, &changes, None);
        self.registry.cancel(&flows, CloseReason::SelectionChanged);
        published.map(|_| changes)
    }

    /// Userspace first: it must accept whatever the kernel may still hand over.
    pub(super) async fn publish(
        &self,
        before: &Snapshot,
        table: GroupTable,
        changes: &[Moved],
        override_: Option<(GroupId, bool)>,
    ) -> Result<Arc<Snapshot>, KernelError> {
        let after = Arc::new(before.with_groups(table));
        self.current.store(Arc::clone(&after));
        self.kernel.write_groups(&after.groups.slots())?;
        let udp = |c: &&Moved| c.network == Network::Udp && interrupts(c, override_);
        if changes.iter().any(|c| udp(&c)) && leaves_direct(&before.groups, &after.groups) {
            self.forget_direct(&after).await?;
        }
        Ok(after)
    }

    /// Counts and logs changes.
    pub(super) fn announce(&self, before: &Snapshot, changes: &[Moved]) {
        let snapshot = self.snapshot();
        for change in changes {
            let (network, cause) = (change.network, change.cause.name());
            self.count_change(&change.name, network.name(), cause);
            tracing::info!(
                target: "honk::group",
                group = &*change.name,
                network = network.name(),
                cause,
                leaf = leaf_name(&snapshot.groups, change),
                "selection changed",
            );
            let data = serde_json::json!({
                "group_id": change.group.0.to_string(),
                "group": &*change.name,
                "network": network.name(),
                "from": leaf_name(&before.groups, change),
                "to": leaf_name(&snapshot.groups, change),
                "cause": cause,
            });
            self.tell("selection", Some(change.group), data);
        }
    }
}

impl Engine {
    /// UDP flows that the kernel passes as direct are bound to a generation: publishing the
    /// same rules again makes their next packets be decided anew.
    async fn forget_direct(&self, snapshot: &Snapshot) -> Result<(), KernelError> {
        let (kernel, dns) = (Arc::clone(&self.kernel), Arc::clone(&self.dns));
        let (lines, oracle) = (Arc::clone(&snapshot.rules), Arc::clone(&snapshot.oracle));
        let done = tokio::task::spawn_blocking(move || match compile(&lines) {
            Ok(tables) => rules::publish(&*kernel, &dns, &tables, &oracle),
            Err(e) => Err(broken(&e)),
        });
        let kernel = done.await.unwrap_or_else(|e| Err(broken(&e)))?;
        self.gatekeeper.committed(kernel, snapshot.generation);
        Ok(())
    }
}

/// These rules have been compiled before, so this is a defect rather than an answer.
fn broken(e: &dyn std::fmt::Display) -> KernelError {
    KernelError {
        exit: Exit::Failure,
        message: format!("the rules were not published again: {e}"),
    }
}

/// Whether flows that a change moves are to be closed; a request may overrule the group it is
/// about.
fn interrupts(change: &Moved, override_: Option<(GroupId, bool)>) -> bool {
    match override_ {
        Some((group, interrupt)) if group == change.group => interrupt,
        _ => change.interrupt,
    }
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

/// Flows to be closed: they came through a group that changed, by another member than the one
/// that is selected now. Judged by what was noted when the flow began (G-161).
pub(super) fn affected(
    flows: &[Arc<FlowEntry>],
    groups: &GroupTable,
    changes: &[Moved],
    override_: Option<(GroupId, bool)>,
) -> Vec<Arc<FlowEntry>> {
    let changes: Vec<&Moved> = changes
        .iter()
        .filter(|c| interrupts(c, override_))
        .collect();
    let left = |flow: &FlowEntry, change: &Moved| {
        let (network, family) = (flow.flow.network, flow.flow.family());
        let was = flow.member_of(change.group);
        let is = || groups.member_of(change.group, network, family);
        change.concerns(network, family) && was.is_some() && is().is_some_and(|is| Some(is) != was)
    };
    let moved = |flow: &&Arc<FlowEntry>| changes.iter().any(|change| left(flow, change));
    flows.iter().filter(moved).cloned().collect()
}

/// Flows that leave in a way that is closed to them.
pub(super) fn leaving(
    flows: &[Arc<FlowEntry>],
    closed: impl Fn(&Way) -> bool,
) -> Vec<Arc<FlowEntry>> {
    let flows = flows.iter().filter(|flow| closed(flow.way()));
    flows.cloned().collect()
}

fn leaf_name<'t>(groups: &'t GroupTable, change: &Moved) -> &'t str {
    let family = match change.families {
        [true, _] => Family::V4,
        [false, _] => Family::V6,
    };
    groups
        .group(change.group)
        .and_then(|g| groups.select(g.slot, change.network, family).ok())
        .map_or("-", |s| s.leaf.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use honk_common::outbound::STATE_DEAD;
    use honk_policy::group::Cause;

    use super::*;
    use crate::{
        app::testkit::{Asked, CONFIG, Relay, World, flow, relayed},
        flow::{Admission as _, CancelHook, Refusal, Route},
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

    fn alive(relay: &Relay) -> bool {
        relay.is_alive()
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
                let leaf = groups
                    .select(slot, Network::Tcp, Family::V4)
                    .unwrap()
                    .leaf
                    .name
                    .clone();
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

    // G-164: of a flow that stayed behind once, only a change of its own network speaks.
    #[tokio::test]
    async fn a_flow_that_was_left_alone_is_not_closed_by_the_other_network() {
        let world = World::new(CONFIG);
        let tcp = relayed(&world, Network::Tcp, "203.0.113.1:80");
        let away = Change {
            interrupt: Some(false),
            ..change(&world, "proxy", Some("b"), Scope::Tcp)
        };
        world.engine.select(away).await.unwrap();
        let udp = change(&world, "proxy", Some("b"), Scope::Udp);
        world.engine.select(udp).await.unwrap();
        assert!(alive(&tcp));
    }

    /// Ends its flow a while after it was asked to.
    struct Slow(Mutex<Option<Route>>, tokio::runtime::Handle);

    impl CancelHook for Slow {
        fn cancelled(&self, _: u64, _: CloseReason) {
            let route = self.0.lock().unwrap().take();
            self.1.spawn(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                drop(route);
            });
        }
    }

    // G-160
    #[tokio::test(start_paused = true)]
    async fn a_change_is_answered_when_flows_have_ended() {
        let world = World::new(CONFIG);
        let asked = flow(Network::Tcp, "203.0.113.1:80");
        let route = world.engine.gatekeeper.admit(&asked).unwrap();
        let entry = Arc::clone(&route.guard.entry);
        let runtime = tokio::runtime::Handle::current();
        let slow = Arc::new(Slow(Mutex::new(Some(route)), runtime));
        entry.cancel.register(slow, 0);
        let wanted = change(&world, "proxy", Some("b"), Scope::Both);
        let applied = world.engine.select(wanted).await.unwrap();
        assert_eq!((applied.closing.closed, applied.closing.pending), (1, 0));
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

    #[tokio::test]
    async fn a_dead_node_moves_its_group_tells_the_kernel_and_closes_what_it_carried() {
        let world = World::new(&CONFIG.replace("policy: select", "policy: fallback"));
        let tcp = relayed(&world, Network::Tcp, "203.0.113.1:80");
        let other = relayed(&world, Network::Tcp, "203.0.113.1:8443");
        let changes = world.kill(&["a"]).await;
        let seen: Vec<_> = changes.iter().map(|c| (&*c.name, c.network)).collect();
        assert_eq!(seen, [("proxy", Network::Tcp), ("proxy", Network::Udp)]);
        assert!(changes.iter().all(|c| c.cause == Cause::Health));
        assert_eq!([&tcp, &other].map(|r| alive(r)), [false, true]);
        let again = relayed(&world, Network::Tcp, "203.0.113.1:80");
        let count = ("proxy".into(), "tcp", "health");
        assert_eq!(world.engine.changes.lock().unwrap()[&count], 1);

        // Everything is dead: the kernel drops, and the flow on `b` is left to itself.
        world.kernel.take();
        assert!(world.kill(&["a", "b"]).await.is_empty());
        let asked = world.kernel.take();
        let Some(Asked::Groups(slots)) = asked.last() else {
            panic!("{asked:?}");
        };
        assert!(slots.iter().any(|(_, bits)| *bits == STATE_DEAD));
        assert!(alive(&again));
        let refused = flow(Network::Tcp, "203.0.113.1:80");
        let refused = world.engine.gatekeeper.admit(&refused);
        assert_eq!(refused.err(), Some(Refusal::AllDead));

        // The pin holds: `a` is back, and so is `b`.
        assert!(world.kill(&[]).await.is_empty());
        assert!(alive(&again));
    }
}
