//! Nodes that people switch off and on while the daemon runs.

use std::{collections::HashSet, sync::Arc};

use honk_policy::{
    group::{GroupTable, Update},
    id::{GroupId, NodeId},
};
use tokio::sync::oneshot;

use super::{
    engine::Engine,
    kernel::KernelError,
    select::{affected, leaving},
    verdicts::Unswitched,
};
use crate::{clock, flow::CloseReason};

/// Why a node was not switched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SwitchError {
    #[error("no such node")]
    NoNode,
    #[error(transparent)]
    Unswitched(#[from] Unswitched),
    /// Userspace follows; the kernel could not be told.
    #[error("the node is switched, but the kernel was not told: {0}")]
    Kernel(#[from] KernelError),
    #[error("the work stopped unexpectedly")]
    Broken,
}

impl Engine {
    /// Switches a node off, with a word why, or on again, and publishes what follows. Flows of
    /// groups that want it are closed; probes of the node end, or begin. What was begun goes on
    /// whatever becomes of the one who asked.
    pub(crate) async fn switch_node(
        self: &Arc<Self>,
        node: NodeId,
        off: Option<String>,
    ) -> Result<(), SwitchError> {
        let (tell, told) = oneshot::channel();
        let engine = Arc::clone(self);
        self.spawn(async move {
            // Nobody may be listening any more.
            let _ = tell.send(engine.switch(node, off).await);
        });
        told.await.unwrap_or(Err(SwitchError::Broken))
    }

    /// Asked for what is so already, it brings to everybody what may have failed to reach them.
    async fn switch(
        self: &Arc<Self>,
        node: NodeId,
        off: Option<String>,
    ) -> Result<(), SwitchError> {
        let writer = self.writer.lock().await;
        let before = self.snapshot();
        let mut nodes = before.groups.nodes().iter();
        let declared = nodes.find(|n| n.id == node).cloned();
        let declared = declared.ok_or(SwitchError::NoNode)?;
        let (engine, table) = (Arc::clone(self), Arc::clone(&before));
        let closes = off.is_some();
        // Writes files.
        let switched = tokio::task::spawn_blocking(move || {
            let waits = engine.subscriptions.waits();
            let nodes = table.groups.nodes();
            engine.judge.switch(&declared, off, nodes, waits)
        });
        switched.await.map_err(|_| SwitchError::Broken)??;
        let off = self.judge.off();
        let Update { table, changes } = before.groups.switched(off, clock::now_ms());
        let published = self.publish(&before, table, &changes, None).await;
        drop(writer);
        self.tell_nodes();
        self.announce(&before, &changes);
        if let Some(prober) = self.prober() {
            prober.configure();
        }
        let after = self.snapshot();
        let listed = self.registry.list();
        let mut flows = affected(&listed, &after.groups, &changes, None);
        if closes {
            // A fixed choice does not move, and who spreads flows has none.
            let wants = interrupting(&after.groups);
            let through = |group: &GroupId| wants.contains(group);
            flows.extend(leaving(&listed, |way| {
                way.leaf == node && way.groups.iter().any(through)
            }));
        }
        self.registry.cancel(&flows, CloseReason::SelectionChanged);
        published?;
        Ok(())
    }

    /// Tells those who listen which nodes are off or on.
    pub(super) fn tell_nodes(&self) {
        for (kind, data) in self.judge.news() {
            self.tell(kind, None, data);
        }
    }
}

/// The groups with `interrupt_connections`.
fn interrupting(table: &GroupTable) -> HashSet<GroupId> {
    let wants = table.groups().filter(|g| g.def.interrupt_connections);
    wants.map(|g| g.id).collect()
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::atomic::Ordering::SeqCst, task::Poll};

    use honk_policy::{
        group::Refuse,
        id::{Family, Network},
    };

    use super::*;
    use crate::app::{
        reload::Trigger,
        testkit::{Asked, CONFIG, World, relayed},
        verdicts::Judge,
    };
    use crate::testkit::soon;

    fn selected(world: &World) -> Result<String, Refuse> {
        let snapshot = world.engine.snapshot();
        let slot = snapshot.groups.group_named("proxy").unwrap().slot;
        let selected = snapshot.groups.select(slot, Network::Tcp, Family::V4)?;
        Ok(selected.leaf.name.clone())
    }

    async fn switch(world: &World, name: &str, off: Option<&str>) -> Result<(), SwitchError> {
        let snapshot = world.engine.snapshot();
        let mut nodes = snapshot.groups.nodes().iter();
        let node = nodes.find(|n| n.name == name).unwrap().id;
        let off = off.map(str::to_owned);
        world.engine.switch_node(node, off).await
    }

    fn told(world: &World) -> Vec<(&'static str, String)> {
        let events = world.engine.events.listen(Some(0)).missed.unwrap();
        let nodes = events.iter().filter(|e| e.kind.starts_with("node."));
        let text = |key: &serde_json::Value| key.as_str().unwrap_or_default().to_owned();
        nodes
            .map(|e| (e.kind, text(&e.body["data"]["node"])))
            .collect()
    }

    #[tokio::test]
    async fn a_node_that_is_off_is_selected_no_more_until_it_is_on_again() {
        let world = World::new(CONFIG);
        let relay = relayed(&world, Network::Tcp, "203.0.113.1:80");
        assert_eq!(selected(&world).unwrap(), "a");
        switch(&world, "a", Some("slow")).await.unwrap();
        assert_eq!(
            selected(&world).unwrap_err(),
            Refuse::AllDead,
            "a selector keeps its member"
        );
        assert_eq!(told(&world), [("node.disabled", "a".to_owned())]);
        assert!(!relay.is_alive(), "its flows are closed");
        let snapshot = world.engine.snapshot();
        let a = snapshot
            .groups
            .nodes()
            .iter()
            .find(|n| n.name == "a")
            .unwrap();
        let why = world.engine.judge.why_off(a).unwrap();
        assert_eq!((why.by, &*why.reason, why.body), ("user", "slow", None));
        // The same again is no news; another word is.
        switch(&world, "a", Some("slow")).await.unwrap();
        assert_eq!(told(&world).len(), 1);
        // Neither a reload nor a start nor a changed body switches it on.
        let state = world.engine.reload(Trigger::Api, false).await.unwrap();
        assert_eq!(state.state, "done");
        assert_eq!(selected(&world).unwrap_err(), Refuse::AllDead);
        assert_eq!(world.judge_again().off(), world.engine.judge.off());
        switch(&world, "a", None).await.unwrap();
        assert_eq!(selected(&world).unwrap(), "a");
        assert_eq!(
            told(&world).last().unwrap(),
            &("node.enabled", "a".to_owned())
        );
        switch(&world, "a", None).await.unwrap();
        assert_eq!(told(&world).len(), 2);
        assert!(world.judge_again().off().is_empty());
    }

    #[tokio::test]
    async fn flows_end_where_their_group_wants_it_whatever_its_policy() {
        for (policy, closed) in [
            ("loadbalance\n interrupt_connections: true", true),
            ("loadbalance\n interrupt_connections: false", false),
            ("urltest\n interrupt_connections: true", true),
            ("select\n interrupt_connections: false", false),
        ] {
            let config = CONFIG
                .replace("interrupt_connections: true", "")
                .replace("policy: select", &format!("policy: {policy}"));
            let world = World::new(&config);
            let relays: Vec<_> = (1..5)
                .map(|n| relayed(&world, Network::Tcp, &format!("203.0.113.{n}:80")))
                .collect();
            let through = |name: &str| {
                let flows = world.engine.registry.list();
                flows.iter().filter(|f| &*f.way().leaf_name == name).count()
            };
            let before = (through("a"), through("b"));
            assert!(before.0 > 0, "{policy}: {before:?}");
            switch(&world, "a", Some("")).await.unwrap();
            let left = if closed { 0 } else { before.0 };
            assert_eq!((through("a"), through("b")), (left, before.1), "{policy}");
            drop(relays);
        }
    }

    #[tokio::test]
    async fn who_breaks_off_leaves_nothing_half_done() {
        let world = World::new(CONFIG);
        let busy = world.engine.hold().await;
        {
            let mut asked = std::pin::pin!(switch(&world, "a", Some("slow")));
            let begun = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
            assert!(begun.is_pending(), "another one writes");
        }
        drop(busy);
        soon("the node is off", async || selected(&world).is_err()).await;
    }

    #[tokio::test]
    async fn asking_again_mends_what_the_kernel_was_not_told() {
        let world = World::new(CONFIG);
        world.kernel.refuse_groups.store(true, SeqCst);
        let refused = switch(&world, "a", Some("slow")).await.unwrap_err();
        assert!(matches!(refused, SwitchError::Kernel(_)), "{refused}");
        world.kernel.refuse_groups.store(false, SeqCst);
        world.kernel.take();
        switch(&world, "a", Some("slow")).await.unwrap();
        let slots = world.engine.snapshot().groups.slots();
        assert_eq!(world.kernel.take(), [Asked::Groups(slots)]);
        assert_eq!(told(&world).len(), 1, "that is no news");
    }

    #[tokio::test]
    async fn what_cannot_be_built_is_not_switched_on() {
        let bad = CONFIG.replace("node {", "node { bad: 'socks5://0.0.0.0:2000'");
        let world = World::new(CONFIG);
        world.edit(&bad);
        world.engine.reload(Trigger::Api, false).await.unwrap();
        assert_eq!(told(&world), [("node.disabled", "bad".to_owned())]);
        let refused = switch(&world, "bad", None).await.unwrap_err();
        assert!(
            matches!(refused, SwitchError::Unswitched(Unswitched::Broken(_))),
            "{refused}"
        );
        // By hand it is off in its own right.
        switch(&world, "bad", Some("")).await.unwrap();
        world.edit(&bad.replace("//0.0.0.0", "//192.0.2.9"));
        world.engine.reload(Trigger::Api, false).await.unwrap();
        assert_eq!(
            told(&world).last().unwrap(),
            &("node.enabled", "bad".to_owned())
        );
        let snapshot = world.engine.snapshot();
        let off = |judge: &Judge| {
            let nodes = snapshot.groups.nodes().iter();
            nodes.filter(|n| judge.why_off(n).is_some()).count()
        };
        // Another address is another node.
        assert_eq!(off(&world.engine.judge), 0);
    }
}
