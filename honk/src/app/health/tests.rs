//! What a configuration asks to be watched.

use super::*;
use crate::app::testkit::World;

const GROUPS: &str = "
    hand { policy: select filter: name(a, b) check_url: 'http://own.test/' }
    fast { policy: urltest filter: name(a, b) check_url: 'http://own.test/' final: c
           test_interval: 45m idle_timeout: 30m passive_check: off }
    back { policy: fallback filter: name(a, t, direct) filter: group(fast)
           passive_check: on }
    turn { policy: loadbalance filter: name(a) }";

fn planned(global: &str) -> (World, Plan) {
    let world = World::new(&format!(
        "global {{ lan_interface: lan0 check_interval: 40s {global} }}
         node {{ a: 'socks5://192.0.2.1:1080' b: 'socks5://192.0.2.2:1080'
                 c: 'socks5://proxy.test:1080' t: 'http://192.0.2.4:8080' }}
         group {{ {GROUPS} }}
         routing {{ fallback: hand }}"
    ));
    let plan = plan(&world.engine.snapshot());
    (world, plan)
}

fn of<'p>(world: &World, plan: &'p Plan, group: &str) -> &'p GroupFacts {
    let id = world.group(group);
    let mut groups = plan.setup.groups.iter();
    groups.find(|g| g.id == id).expect("a group")
}

fn ids(world: &World, names: &[&str]) -> BTreeSet<NodeId> {
    let snapshot = world.engine.snapshot();
    let nodes = snapshot.groups.nodes().iter();
    let named = nodes.filter(|n| names.contains(&n.name.as_str()));
    named.map(|n| n.id).collect()
}

fn set(nodes: &[NodeId]) -> BTreeSet<NodeId> {
    nodes.iter().copied().collect()
}

// G-018, G-105, G-175
#[test]
fn only_groups_that_choose_by_themselves_have_members_judged_by_their_url() {
    let (world, plan) = planned("");
    let fast = of(&world, &plan, "fast");
    let url = &plan.group_urls[&fast.id];
    assert_eq!((&*url.text, plan.group_urls.len()), ("http://own.test/", 1));
    assert_eq!(fast.check_url.as_deref(), Some("http://own.test/"));
    let members: BTreeSet<NodeId> = fast
        .members
        .iter()
        .filter_map(|m| match m {
            MemberId::Node(node) => Some(*node),
            MemberId::Group(_) => None,
        })
        .collect();
    assert_eq!(members, ids(&world, &["a", "b"]));
    let hand = of(&world, &plan, "hand");
    assert!(hand.members.is_empty() && hand.check_url.is_none() && !hand.automatic);
    assert_eq!(set(&hand.tcp), ids(&world, &["a", "b"]));
}

// G-076, G-091, G-107
#[test]
fn finals_are_watched_and_what_carries_no_datagrams_is_not_asked_for_them() {
    let (world, plan) = planned("");
    let fast = of(&world, &plan, "fast");
    assert_eq!(set(&fast.tcp), ids(&world, &["c"]), "members have the URL");
    assert_eq!(set(&fast.udp), ids(&world, &["a", "b", "c"]));
    let back = of(&world, &plan, "back");
    assert_eq!(
        set(&back.tcp),
        ids(&world, &["a", "t"]),
        "nobody asks `direct`"
    );
    assert_eq!(set(&back.udp), ids(&world, &["a"]));
    let families = |name| {
        let id = ids(&world, &[name]);
        let mut nodes = plan.setup.nodes.iter();
        nodes.find(|n| id.contains(&n.id)).unwrap().families.clone()
    };
    assert_eq!(families("a"), [Family::V4]);
    assert_eq!(families("c"), Family::ALL, "a name may lead to both");
}

// H-014, H-017, H-026, H-031, H-074
#[test]
fn keys_of_a_group_come_before_those_for_all() {
    for (global, inherited, parallel) in [
        ("", true, 10),
        ("passive_check: false ping_concurrency: 3", false, 3),
    ] {
        let (world, plan) = planned(global);
        assert_eq!(plan.setup.parallel, parallel);
        let passive = |name| of(&world, &plan, name).passive;
        assert!(!passive("fast") && passive("back"), "as they say");
        assert_eq!(passive("turn"), inherited);
        assert!(!passive("hand"), "nobody selects for it");
        let fast = of(&world, &plan, "fast");
        let long = Duration::from_secs(45 * 60);
        assert_eq!(
            (fast.interval, fast.idle),
            (long, Some(long)),
            "idle is raised"
        );
        let turn = of(&world, &plan, "turn");
        assert_eq!((turn.interval, turn.idle), (Duration::from_secs(40), None));
    }
}
