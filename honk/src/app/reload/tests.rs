//! Reloads over a fake kernel.

use honk_policy::id::Network;

use super::*;
use crate::{
    app::testkit::{Asked, CONFIG, World, flow},
    flow::Admission as _,
};

async fn reload(world: &World) -> ReloadState {
    world.engine.reload(Trigger::Api, false).await.unwrap()
}

fn leaf(world: &World, target: &str) -> String {
    let route = world.engine.gatekeeper.admit(&flow(Network::Tcp, target));
    route.unwrap().leaf.name.clone()
}

#[tokio::test]
async fn an_accepted_file_becomes_the_next_generation() {
    let world = World::new(CONFIG);
    world.edit(&CONFIG.replace("fallback: proxy", "fallback: c"));
    let state = reload(&world).await;
    assert_eq!((state.state.as_str(), state.generation), ("done", 2));
    assert_eq!(state.changed, ["routing"]);
    assert_eq!(leaf(&world, "203.0.113.1:80"), "c");
    let commits = |a: &Asked| matches!(a, Asked::Commit(_));
    assert_eq!(world.kernel.take().iter().filter(|a| commits(a)).count(), 1);
    assert!(world.progress().contains("\"state\":\"done\""));
}

#[tokio::test]
async fn slots_are_alive_while_rules_change_and_exact_afterwards() {
    let config = CONFIG.replace("filter: name(a, b)", "filter: name(direct)");
    let world = World::new(&config);
    reload(&world).await;
    let asked = world.kernel.take();
    let [Asked::Groups(alive), Asked::Commit(_), Asked::Groups(exact)] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert!(alive.iter().all(|(_, bits)| *bits == 0));
    assert!(exact.iter().any(|(_, bits)| *bits != 0));
}

#[tokio::test]
async fn the_kernels_switches_follow_the_mode() {
    let world = World::new(CONFIG);
    for (mode, strict) in [("domain++", true), ("ip", false)] {
        let lan = format!("lan0 dial_mode: '{mode}' }}");
        world.edit(&CONFIG.replace("lan0 }", &lan));
        assert_eq!(reload(&world).await.state, "done");
        let asked = world.kernel.take();
        let flags = asked.iter().find_map(|a| match a {
            Asked::Flags(flags) => Some(*flags),
            _ => None,
        });
        let set = flags.map(|flags| flags & honk_common::param::SNI_STRICT != 0);
        assert_eq!(set, Some(strict), "{mode}");
    }
}

#[tokio::test]
async fn a_refused_file_changes_nothing_and_says_why() {
    let world = World::new(CONFIG);
    world.edit("global { tproxy_prot: 1 }");
    let state = reload(&world).await;
    assert_eq!((state.state.as_str(), state.generation), ("rejected", 1));
    let unknown = |d: &crate::api::doc::Diag| d.code == "unknown-key" && d.severity == "error";
    assert!(state.diagnostics.iter().any(unknown), "{state:?}");
    assert_eq!(world.kernel.take(), []);
    assert_eq!(leaf(&world, "203.0.113.1:80"), "a");
    assert!(!world.engine.reloads.last().1);
    assert!(world.progress().contains("\"state\":\"rejected\""));
}

#[tokio::test]
async fn keys_that_need_a_restart_are_named_and_nothing_else_is_applied() {
    let world = World::new(CONFIG);
    let config = CONFIG
        .replace("lan0 }", "lan0\n tproxy_port: 23456\n on_crash: direct }")
        .replace("fallback: proxy", "fallback: c");
    world.edit(&config);
    let state = reload(&world).await;
    assert_eq!(state.state, "rejected");
    let diag = &state.diagnostics[0];
    assert_eq!(diag.code, "restart-required");
    assert!(
        diag.message.contains("global.tproxy_port"),
        "{}",
        diag.message
    );
    assert!(diag.message.contains("global.on_crash"), "{}", diag.message);
    assert_eq!(leaf(&world, "203.0.113.1:80"), "a");
}

#[tokio::test]
async fn a_kernel_that_refuses_leaves_the_old_generation_in_charge() {
    let world = World::new(CONFIG);
    *world.kernel.refuse_commit.lock().unwrap() = true;
    world.edit(&CONFIG.replace("fallback: proxy", "fallback: c"));
    let state = reload(&world).await;
    assert_eq!((state.state.as_str(), state.generation), ("rejected", 1));
    assert!(state.message.contains("no memory"), "{}", state.message);
    let last = world.kernel.take().pop();
    let slots = world.engine.snapshot().groups.slots();
    assert_eq!(last, Some(Asked::Groups(slots)));
    assert_eq!(leaf(&world, "203.0.113.1:80"), "a");
}

#[tokio::test]
async fn flows_decided_under_the_old_rules_still_find_a_group_that_is_gone() {
    let world = World::new(CONFIG);
    let slot = world.slot("proxy");
    let config = "global { lan_interface: lan0 }\nrouting { fallback: direct }\n\
                  node { a: 'socks5://192.0.2.1:1080' }";
    world.edit(config);
    assert_eq!(reload(&world).await.state, "done");
    let late = flow(Network::Tcp, "203.0.113.1:80");
    world.kernel.decide(&late, slot, 3);
    let route = world.engine.gatekeeper.admit(&late).unwrap();
    assert_eq!(
        (&*route.guard.entry.outbound, route.leaf.name.as_str()),
        ("proxy", "a")
    );
}

#[tokio::test]
async fn flows_through_nodes_that_are_gone_are_ended_and_others_are_not() {
    let world = World::new(CONFIG);
    let admit = |target| {
        world
            .engine
            .gatekeeper
            .admit(&flow(Network::Tcp, target))
            .unwrap()
    };
    let (gone, kept) = (admit("203.0.113.1:8443"), admit("203.0.113.1:80"));
    let direct = admit("10.0.0.1:80");
    let without = CONFIG
        .replace("c: 'http://192.0.2.3:8080'", "")
        .replace("l4proto(tcp) && dport(8443) -> c", "");
    world.edit(&without);
    assert_eq!(reload(&world).await.state, "done");
    let reason = |r: &crate::flow::Route| r.guard.entry.cancel.reason();
    assert_eq!(reason(&gone), Some(CloseReason::Reload));
    assert_eq!((reason(&kept), reason(&direct)), (None, None));
    // And with `--abort` all of them.
    world.engine.reload(Trigger::Api, true).await.unwrap();
    assert_eq!(reason(&kept), Some(CloseReason::Reload));
}

// G-186
#[tokio::test]
async fn flows_of_a_selection_that_a_reload_moves_are_closed_where_that_is_wanted() {
    for (interrupt, want) in [
        ("true", Some(CloseReason::SelectionChanged)),
        ("false", None),
    ] {
        let config = CONFIG.replace(
            "interrupt_connections: true",
            &format!("interrupt_connections: {interrupt}"),
        );
        let world = World::new(&config);
        let asked = flow(Network::Tcp, "203.0.113.1:80");
        let route = world.engine.gatekeeper.admit(&asked).unwrap();
        let reason = || route.guard.entry.cancel.reason();
        assert_eq!(reload(&world).await.state, "done");
        assert_eq!(reason(), None, "the same again moves nothing");
        world.edit(&config.replace("policy: select", "policy: select default: b"));
        assert_eq!(reload(&world).await.state, "done");
        assert_eq!(reason(), want);
    }
}

#[tokio::test]
async fn choices_ids_and_slots_survive_reordered_groups() {
    let world = World::new(CONFIG);
    let before = world.engine.snapshot();
    let proxy = before.groups.group_named("proxy").unwrap();
    let b = proxy.member_named("b").unwrap().id();
    let change = crate::app::select::Change {
        group: proxy.id,
        scope: honk_policy::group::Scope::Both,
        member: Some(b),
        interrupt: None,
    };
    world.engine.select(change).await.unwrap();
    world.edit(&CONFIG.replace("group {", "group { first { policy: select }"));
    assert_eq!(reload(&world).await.state, "done");
    let after = world.engine.snapshot();
    let same = after.groups.group_named("proxy").unwrap();
    assert_eq!((same.id, same.slot), (proxy.id, proxy.slot));
    assert_ne!(same.def.ordinal, proxy.def.ordinal);
    assert_eq!(leaf(&world, "203.0.113.1:80"), "b");
}

#[tokio::test]
async fn one_reload_runs_one_waits_and_the_third_is_dropped() {
    let world = World::new(CONFIG);
    let writer = world.engine.writer.lock().await;
    let begin = || {
        let engine = Arc::clone(&world.engine);
        tokio::spawn(async move { engine.reload(Trigger::Signal, false).await.map(|_| ()) })
    };
    let (first, second) = (begin(), begin());
    while world.engine.reloads.in_flight.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(begin().await.unwrap(), Err(Busy));
    drop(writer);
    assert_eq!(first.await.unwrap(), Ok(()));
    assert_eq!(second.await.unwrap(), Ok(()));
    assert_eq!(world.engine.snapshot().generation, 3);
    assert_eq!(world.engine.reloads.dropped.load(Ordering::Relaxed), 1);
}

// G-150
#[tokio::test]
async fn pins_are_stored_with_their_revision_and_end_with_a_reload() {
    let world = World::new(&CONFIG.replace("policy: select", "policy: fallback"));
    let proxy = world.engine.snapshot();
    let proxy = proxy.groups.group_named("proxy").unwrap();
    let change = crate::app::select::Change {
        group: proxy.id,
        scope: honk_policy::group::Scope::Both,
        member: Some(proxy.member_named("b").unwrap().id()),
        interrupt: None,
    };
    world.engine.select(change).await.unwrap();
    assert_eq!(leaf(&world, "203.0.113.1:80"), "b");
    world.engine.save_choices().await;
    let stored = || crate::state::choices::load(&world.choices()).unwrap();
    let revision = world.engine.snapshot().revision.to_string();
    assert_eq!(stored()["proxy"].pin_revision, Some(revision));
    assert_eq!(reload(&world).await.state, "done");
    assert_eq!(leaf(&world, "203.0.113.1:80"), "a");
    world.engine.save_choices().await;
    assert!(stored().is_empty());
}
