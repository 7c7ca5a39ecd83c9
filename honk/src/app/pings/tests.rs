//! What follows from measurements that people ask for, with servers on loopback.

use std::{fmt::Write as _, sync::atomic::Ordering::SeqCst};

use honk_policy::id::{Domain, NodeId};

use super::*;
use crate::{
    app::{
        reload::Trigger,
        testkit::{Probing, World},
    },
    probe::{
        runs::State,
        testkit::{Does, Upstream},
    },
    testkit::{PATIENCE, soon},
};

/// Servers `a` and `b` with a daemon that probes them once in a quarter of an hour.
struct Bed {
    a: Upstream,
    b: Upstream,
    world: World,
    _probing: Probing,
}

impl Bed {
    async fn new(groups: &str, more_nodes: &str) -> Self {
        let (a, b) = (Upstream::start("a").await, Upstream::start("b").await);
        let mut nodes = more_nodes.to_owned();
        for (name, upstream) in [("a", &a), ("b", &b)] {
            let _ = writeln!(nodes, "{name}: 'socks5://{}'", upstream.at);
        }
        let world = World::new(&format!(
            "global {{ lan_interface: lan0 check_interval: 15m auto_ping: false
                       tcp_check_url: 'http://check.test/' udp_check_dns: '192.0.2.53' }}
             node {{ {nodes} }}
             group {{ {groups} }}
             routing {{ fallback: direct }}"
        ));
        let bed = Self {
            _probing: world.probe(),
            a,
            b,
            world,
        };
        bed.measured().await;
        bed
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.world.engine
    }

    /// Waits until the tests that follow a start have ended.
    async fn measured(&self) {
        let ids = [self.id("a"), self.id("b")];
        soon("a first health view", async || {
            let view = &self.engine().prober().unwrap().report().view;
            let known = |id| {
                [Domain::Tcp, Domain::DnsUdp].into_iter().all(|domain| {
                    let seen = view.node(id, domain, Family::V4);
                    seen.is_some_and(|s| s.latency_ms.is_some())
                })
            };
            ids.into_iter().all(known)
        })
        .await;
    }

    fn id(&self, node: &str) -> NodeId {
        let snapshot = self.engine().snapshot();
        let mut nodes = snapshot.groups.nodes().iter();
        nodes.find(|n| n.name == node).expect("a node").id
    }

    fn leaf(&self, group: &str) -> String {
        let snapshot = self.engine().snapshot();
        let slot = snapshot.groups.group_named(group).unwrap().slot;
        let selected = snapshot.groups.select(slot, Network::Tcp, Family::V4);
        selected.map_or_else(|e| e.to_string(), |s| s.leaf.name.clone())
    }

    async fn ping(&self, node: &str) -> Result<Duration, Failure> {
        let wish = Wish {
            timeout: Some(Duration::from_secs(20)),
            ..Wish::default()
        };
        let (_, result) = self
            .engine()
            .ping_node(self.id(node), None, wish)
            .await
            .unwrap();
        result
    }

    /// Runs a measurement of a group to its end.
    async fn run(&self, group: &str) -> Run {
        let what = What::Group(self.world.group(group));
        let run = self.engine().ping(&what, Wish::default()).unwrap();
        let runs = &self.engine().pings().unwrap().runs;
        let run = tokio::time::timeout(PATIENCE, runs.ended(run)).await;
        run.expect("it never ended").expect("nobody called it off")
    }

    /// Groups that were tested since the start, as told to listeners, each as often as that.
    async fn tested(&self) -> Vec<String> {
        self.engine().finish_jobs().await;
        let events = self.engine().events.listen(Some(0)).missed.unwrap();
        let snapshot = self.engine().snapshot();
        let name = |id: &str| {
            let mut groups = snapshot.groups.groups();
            groups
                .find(|g| g.id.0.to_string() == id)
                .unwrap()
                .name
                .to_string()
        };
        let tests = events.iter().filter(|e| e.kind == "group.test");
        tests.filter_map(|e| e.group.as_deref().map(name)).collect()
    }
}

/// A urltest group that prefers `a`.
const FAST: &str = "fast { policy: urltest filter: name(a) filter: name(b) [add_latency: 60s] }\n";

// Case 12, H-071
#[tokio::test]
async fn the_failed_ping_of_what_is_selected_moves_the_group_and_that_of_others_does_not() {
    let bed = Bed::new(FAST, "").await;
    soon("a is fast", async || bed.leaf("fast") == "a").await;
    // Another member fails: nobody looks.
    bed.b.does(Does::Refuse);
    assert!(bed.ping("b").await.is_err());
    assert!(bed.tested().await.is_empty());
    bed.b.does(Does::Serve);
    bed.a.does(Does::Refuse);
    assert!(bed.ping("a").await.is_err());
    soon("b took over", async || bed.leaf("fast") == "b").await;
    assert_eq!(bed.tested().await, ["fast"]);
    // It is selected no more.
    assert!(bed.ping("a").await.is_err());
    assert_eq!(bed.tested().await, ["fast"]);
}

// Case 13, H-072, H-073
#[tokio::test]
async fn the_end_of_a_run_tests_its_automatic_groups_and_all_that_go_by_latency() {
    let groups = "
        far { policy: urltest filter: name(b) }
        back { policy: fallback filter: name(a, b) }
        turn { policy: loadbalance filter: name(b) }
        hand { policy: select filter: name(a) }
        near { policy: fallback filter: name(a) }";
    let bed = Bed::new(&format!("{FAST}{groups}"), "").await;
    bed.run("hand").await;
    let mut tested = bed.tested().await;
    tested.sort_unstable();
    assert_eq!(tested, ["back", "far", "fast", "near"]);
    let hand = bed.world.group("hand");
    assert_eq!(bed.engine().test_group(hand).await, Ok(None));
}

// Cases 14 and 35, H-047, H-059, H-073
#[tokio::test]
async fn nested_groups_are_measured_by_their_leaf_and_block_not_at_all() {
    let groups = "mixed { policy: select filter: name(b, block) filter: group(fast) default: b }\n";
    let bed = Bed::new(&format!("{groups}{FAST}"), "").await;
    soon("a is fast", async || bed.leaf("fast") == "a").await;
    let before = bed.engine().snapshot();
    let fast = bed.world.group("fast");
    let asked = bed.a.accepted.load(SeqCst);
    let run = bed.run("mixed").await;
    assert_eq!(run.total, 2, "block is no server");
    let members: Vec<MemberId> = run.results.iter().map(|(m, _)| *m).collect();
    assert!(members.contains(&MemberId::Group(fast)), "{members:?}");
    assert!(members.contains(&MemberId::Node(bed.id("b"))));
    assert!(bed.a.accepted.load(SeqCst) > asked);
    bed.engine().finish_jobs().await;
    let after = bed.engine().snapshot();
    for group in before.groups.groups() {
        let now = after.groups.group(group.id).unwrap();
        assert_eq!(now.selection_revision, group.selection_revision);
    }
    let block = bed
        .engine()
        .ping_node(builtin::BLOCK, None, Wish::default());
    assert_eq!(block.await.err(), Some(PingError::NoExit));
}

// Case 35, H-047
#[tokio::test]
async fn a_node_that_is_switched_off_is_not_dialed() {
    let groups = "all { policy: fallback filter: name(a, b, bad) }";
    let bed = Bed::new(groups, "bad: 'socks5://0.0.0.0:9'\n").await;
    let state = bed.engine().reload(Trigger::Api, false).await.unwrap();
    assert_eq!(state.state, "done");
    let ping = bed.engine().ping_node(bed.id("bad"), None, Wish::default());
    assert_eq!(ping.await.err(), Some(PingError::NoExit));
    assert_eq!(bed.run("all").await.total, 2);
}

// H-052
#[tokio::test]
async fn a_run_ends_with_its_group_and_outlives_a_reload_that_keeps_it() {
    let bed = Bed::new("one { policy: fallback filter: name(a, b) }", "").await;
    bed.a.does(Does::Silence);
    let what = What::Group(bed.world.group("one"));
    let wish = Wish {
        timeout: Some(Duration::from_secs(300)),
        ..Wish::default()
    };
    let run = bed.engine().ping(&what, wish).unwrap();
    soon("the ping is under way", async || {
        bed.a.open.load(SeqCst) == 1
    })
    .await;
    let state = || {
        let runs = &bed.engine().pings().unwrap().runs;
        runs.run(run).unwrap().state
    };
    bed.engine().reload(Trigger::Api, false).await.unwrap();
    assert_eq!((state(), bed.a.open.load(SeqCst)), (State::Running, 1));
    let text = std::fs::read_to_string(&bed.engine().spec.entry).unwrap();
    bed.world.edit(&text.replace("one {", "two {"));
    bed.engine().reload(Trigger::Api, false).await.unwrap();
    assert_eq!(state(), State::Cancelled);
    soon("the ping is closed", async || bed.a.open.load(SeqCst) == 0).await;
}

// H-054
#[tokio::test]
async fn suspension_ends_all_runs() {
    let bed = Bed::new(FAST, "").await;
    bed.a.does(Does::Silence);
    let what = What::Group(bed.world.group("fast"));
    let run = bed.engine().ping(&what, Wish::default()).unwrap();
    bed.engine().suspend().unwrap();
    let runs = &bed.engine().pings().unwrap().runs;
    assert_eq!(runs.run(run).unwrap().state, State::Cancelled);
}

// G-112: long before their time.
#[tokio::test]
async fn a_change_of_the_network_is_looked_at_through_what_is_selected() {
    let bed = Bed::new(FAST, "").await;
    soon("a is fast", async || bed.leaf("fast") == "a").await;
    let asked = bed.a.accepted.load(SeqCst);
    bed.engine().network_changed();
    soon("a is asked again", async || {
        bed.a.accepted.load(SeqCst) > asked
    })
    .await;
}
