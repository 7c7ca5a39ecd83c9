//! Measures the groups that rules send flows to, a while after each start, reload and resume, so
//! that whoever looks finds numbers.
//!
//! One task owns the timer and the run. What happens to the daemon or to its way out meanwhile
//! calls both off.

use std::{collections::BTreeSet, future::pending, sync::Arc, time::Duration};

use honk_policy::{
    config::Typed,
    group::{Group, Member},
    id::GroupId,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    engine::{Engine, Phase},
    pings::{PingError, Shared, What, Wish},
    snapshot::Snapshot,
};
use crate::netlink::Rtnl;

/// How the gateway is told whether it has a way out.
pub(super) type Online = fn() -> bool;

/// Whether there is a default route in any family. What cannot be asked is taken for a yes.
pub(super) fn online() -> bool {
    let links = Rtnl::open().and_then(|mut netlink| netlink.default_links());
    !links.is_ok_and(|links| links.is_empty())
}

/// Runs until told to stop.
pub(super) async fn run(engine: Arc<Engine>, online: Online, mut stop: watch::Receiver<bool>) {
    let mut moved = engine.moved.subscribe();
    let mut way_out = true;
    loop {
        let mut seen = *moved.borrow_and_update();
        let at = delay(&engine)
            .filter(|_| way_out)
            .map(|delay| Instant::now() + delay);
        if let Some(at) = at {
            let seconds = at.saturating_duration_since(Instant::now()).as_secs();
            tracing::debug!(target: "honk::health", seconds, "ping_scheduled");
        }
        let measure = async {
            match at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
            all(&engine).await;
            // Once is enough, until something happens.
            pending::<()>().await;
        };
        tokio::pin!(measure);
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = &mut measure => {}
                changed = moved.changed() => match changed {
                    Ok(()) => {}
                    Err(_) => return,
                },
            }
            let now = *moved.borrow_and_update();
            if now.activations != seen.activations {
                break;
            }
            if now.networks == seen.networks {
                continue;
            }
            seen = now;
            let before = way_out;
            let asked = tokio::task::spawn_blocking(online).await;
            way_out = asked.unwrap_or(true);
            if before != way_out {
                break;
            }
        }
    }
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// To the daemon: a configuration became active, the gate was closed or opened.
    pub(super) activations: u64,
    /// To links, addresses or default routes around it.
    pub(super) networks: u64,
}

/// How long to wait, if groups are to be measured at all.
fn delay(engine: &Engine) -> Option<Duration> {
    let snapshot = engine.snapshot();
    let settings = &snapshot.config.settings;
    let wanted = settings.global("auto_ping") != Some(Typed::Bool(false));
    let delay = match settings.global("auto_ping_delay") {
        Some(Typed::Millis(ms)) => Duration::from_millis(ms.unsigned_abs()),
        _ => Duration::from_secs(5),
    };
    (wanted && engine.phase() == Phase::Running).then_some(delay)
}

/// Measures one group after the other; dropping it ends the run under way.
async fn all(engine: &Arc<Engine>) {
    let shared = Arc::new(Shared::default());
    for group in targets(&engine.snapshot()) {
        let wish = Wish {
            shared: Some(Arc::clone(&shared)),
            ..Wish::default()
        };
        let run = match engine.ping(&What::Group(group), wish) {
            Ok(run) => run,
            // Somebody measures it already, or it is gone.
            Err(PingError::Busy(_) | PingError::NoGroup) => continue,
            Err(_) => return,
        };
        let Some(pings) = engine.pings() else {
            return;
        };
        let guard = pings.runs.guard(run);
        pings.runs.ended(run).await;
        guard.done();
    }
}

/// Groups that rules lead to: that of the fallback first, then as declared.
fn targets(snapshot: &Snapshot) -> Vec<GroupId> {
    let table = &snapshot.groups;
    let outbounds = snapshot.rules.lines.iter().rev();
    let used = outbounds.filter_map(|line| table.group_in(line.action.ordinal));
    let mut used = used.map(|group| group.id);
    let first = used.next();
    let mut reached: BTreeSet<GroupId> = first.into_iter().chain(used).collect();
    let mut open: Vec<GroupId> = reached.iter().copied().collect();
    while let Some(group) = open.pop().and_then(|id| table.group(id)) {
        for member in group.members.iter() {
            if let Member::Group { id, .. } = member
                && reached.insert(*id)
            {
                open.push(*id);
            }
        }
    }
    let declared = |group: &&Group| !group.def.implicit && reached.contains(&group.id);
    let mut targets: Vec<GroupId> = table.groups().filter(declared).map(|g| g.id).collect();
    targets.sort_by_key(|id| Some(*id) != first);
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        app::{
            reload::Trigger,
            testkit::{CONFIG, World},
        },
        probe::runs::State,
    };

    const NAMES: &str = "
        group { other { policy: select filter: name(c) }
                below { policy: urltest filter: name(a) }
                above { policy: select filter: group(below) } }
        routing { dport(1) -> above dport(2) -> other }";

    fn named(world: &World) -> Vec<String> {
        let snapshot = world.engine.snapshot();
        let name = |id| snapshot.groups.group(id).unwrap().name.to_string();
        targets(&snapshot).into_iter().map(name).collect()
    }

    // H-060
    #[test]
    fn the_fallback_is_measured_first_and_what_no_rule_reaches_not_at_all() {
        let world = World::new(&CONFIG.replacen("routing {", &format!("{NAMES} routing {{"), 1));
        // `c` is a node that a rule names.
        assert_eq!(named(&world), ["proxy", "other", "below", "above"]);
    }

    struct Bed {
        world: World,
        stop: watch::Sender<bool>,
        task: tokio::task::JoinHandle<()>,
    }

    fn bed(config: &str, online: Online) -> Bed {
        let world = World::new(config);
        world.measure();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(Arc::clone(&world.engine), online, stopped));
        Bed { world, stop, task }
    }

    impl Bed {
        fn runs(&self) -> usize {
            self.world.engine.pings().unwrap().runs.list().len()
        }

        async fn after(&self, seconds: u64) -> usize {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            self.runs()
        }

        async fn end(self) {
            self.stop.send_replace(true);
            self.task.await.unwrap();
        }
    }

    // Case 10
    #[tokio::test(start_paused = true)]
    async fn each_transition_is_followed_by_one_measurement() {
        let bed = bed(CONFIG, || true);
        assert_eq!(bed.after(4).await, 0);
        assert_eq!(bed.after(3).await, 1);
        bed.world.engine.reload(Trigger::Api, false).await.unwrap();
        assert_eq!(bed.after(3).await, 1);
        // A newer one puts the older off.
        bed.world.engine.reload(Trigger::Api, false).await.unwrap();
        assert_eq!(bed.after(4).await, 1);
        assert_eq!(bed.after(3).await, 2);
        assert_eq!(bed.after(600).await, 2);
        bed.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn switched_off_or_suspended_nothing_is_measured() {
        let off = bed(
            &CONFIG.replacen("global {", "global { auto_ping: false ", 1),
            || true,
        );
        assert_eq!(off.after(600).await, 0);
        off.end().await;
        let bed = bed(
            &CONFIG.replacen("global {", "global { auto_ping_delay: 20s ", 1),
            || true,
        );
        assert_eq!(bed.after(19).await, 0);
        bed.world.engine.suspend().unwrap();
        assert_eq!(bed.after(600).await, 0);
        bed.world.engine.open().unwrap();
        assert_eq!(bed.after(19).await, 0);
        assert_eq!(bed.after(3).await, 1);
        bed.end().await;
    }

    // Case 9
    #[tokio::test(start_paused = true)]
    async fn without_a_way_out_it_waits_for_one() {
        use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
        static ROUTE: AtomicBool = AtomicBool::new(true);
        let bed = bed(CONFIG, || ROUTE.load(SeqCst));
        assert_eq!(bed.after(4).await, 0);
        ROUTE.store(false, SeqCst);
        bed.world.engine.network_changed();
        assert_eq!(bed.after(600).await, 0);
        ROUTE.store(true, SeqCst);
        bed.world.engine.network_changed();
        assert_eq!(bed.after(4).await, 0);
        assert_eq!(bed.after(3).await, 1);
        // A change that leaves a way out changes nothing.
        bed.world.engine.network_changed();
        assert_eq!(bed.after(60).await, 1);
        bed.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_ends_the_run_under_way() {
        let slow = CONFIG.replacen("global {", "global { ping_timeout: 30s ", 1);
        let bed = bed(&slow, || true);
        while bed.runs() == 0 {
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bed.world.engine.reload(Trigger::Api, false).await.unwrap();
        bed.after(60).await;
        let runs = bed.world.engine.pings().unwrap().runs.list();
        assert!(runs.iter().all(|run| run.state != State::Running));
        bed.end().await;
    }
}
