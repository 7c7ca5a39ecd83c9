//! Refreshes over a fake kernel: what changes, what stays, what is told.

use std::sync::Mutex;

use honk_policy::{
    group::Scope,
    id::{Family, Network},
    subscription::BodyError,
};
use rustls::RootCertStore;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    app::{
        select::Change,
        testkit::{Asked, World, flow},
    },
    flow::{Admission as _, Route},
    outbound::{Dialer, Settings, tls},
    subscription::{Plan, tests::list},
};

/// A group over a subscription at `url`, one over everything.
fn config(url: &str) -> String {
    format!(
        "global {{ lan_interface: lan0 }}
         node {{ own: 'socks5://203.0.113.9:1080' }}
         subscription {{ air: '{url}' [allow_private: true] }}
         group {{ proxy {{ policy: select
                           filter: subtag(air)
                           default: b }}
                  all {{ policy: select }} }}
         routing {{ dport(81) -> all  fallback: proxy }}"
    )
}

const URL: &str = "http://192.0.2.9/canary";

fn body(world: &World, names: &[&str]) -> Good {
    body_of(world, &list(names))
}

fn body_of(world: &World, text: &[u8]) -> Good {
    let declared = world.engine.snapshot().config.subscriptions.clone();
    let id = world.engine.subscriptions.views()[0].id;
    let stored = crate::subscription::Stored {
        bytes: text.to_vec(),
        fetched_ms: 1,
        ..Default::default()
    };
    Good::read(&declared[0], id, &stored, crate::subscription::Via::Network).unwrap()
}

async fn take(world: &World, names: &[&str]) {
    let id = world.engine.subscriptions.views()[0].id;
    world.engine.take_nodes("air", id, body(world, names)).await;
}

fn admit(world: &World, target: &str) -> Option<Route> {
    let route = world.engine.gatekeeper.admit(&flow(Network::Tcp, target));
    route.ok()
}

fn leaf(world: &World, target: &str) -> Option<String> {
    admit(world, target).map(|route| route.leaf.name.clone())
}

#[tokio::test]
async fn nodes_arrive_as_a_generation_of_their_own() {
    let world = World::new(&config(URL));
    assert_eq!(leaf(&world, "203.0.113.1:80"), None, "the group is empty");
    assert_eq!(leaf(&world, "203.0.113.1:81").as_deref(), Some("own"));
    take(&world, &["a", "b"]).await;
    let snapshot = world.engine.snapshot();
    assert_eq!((snapshot.generation, snapshot.groups.nodes().len()), (2, 3));
    assert_eq!(
        leaf(&world, "203.0.113.1:80").as_deref(),
        Some("b"),
        "the default"
    );
    let asked = world.kernel.take();
    let groups = |a: &Asked| matches!(a, Asked::Groups(_));
    assert!(
        asked.iter().any(groups),
        "the kernel knows that the group is alive"
    );
    assert!(
        !asked.iter().any(|a| matches!(a, Asked::Commit(_))),
        "rules stay"
    );
    // The same body again is no activation.
    take(&world, &["a", "b"]).await;
    assert_eq!(world.engine.snapshot().generation, 2);
    let applied = world
        .engine
        .reloads
        .count(Trigger::Subscription as usize, 0);
    assert_eq!(applied, 1);
    let view = world.engine.subscriptions.views().remove(0);
    assert_eq!(view.attempts, 2);
    assert_eq!(view.changes.unwrap().1.added, ["a", "b"]);
}

#[tokio::test]
async fn flows_of_nodes_that_stay_go_on_and_those_of_gone_ones_end() {
    let world = World::new(&config(URL));
    take(&world, &["a", "b", "c"]).await;
    let slot = world.slot("proxy");
    let kept = admit(&world, "203.0.113.1:80").unwrap();
    choose(&world, "c").await;
    let gone = admit(&world, "203.0.113.1:80").unwrap();
    let own = admit(&world, "203.0.113.1:81").unwrap();
    assert_eq!((&*kept.leaf.name, &*gone.leaf.name), ("b", "c"));
    take(&world, &["b", "d"]).await;
    let ended = |route: &Route| route.guard.entry.cancel.reason();
    assert!(ended(&gone).is_some());
    assert!(ended(&kept).is_none() && ended(&own).is_none());
    assert_eq!(world.slot("proxy"), slot);
    // The choice went with its member.
    assert_eq!(leaf(&world, "203.0.113.1:80").as_deref(), Some("b"));
    let changes = world
        .engine
        .subscriptions
        .views()
        .remove(0)
        .changes
        .unwrap()
        .1;
    assert_eq!(
        (&changes.added, &changes.removed),
        (&vec!["d".to_owned()], &vec!["a".to_owned(), "c".to_owned()])
    );
}

async fn choose(world: &World, member: &str) {
    let snapshot = world.engine.snapshot();
    let group = snapshot.groups.group_named("proxy").unwrap();
    let change = Change {
        group: group.id,
        scope: Scope::Both,
        member: Some(group.member_named(member).unwrap().id()),
        interrupt: None,
    };
    world.engine.select(change).await.unwrap();
}

#[tokio::test]
async fn choices_stay_over_a_refresh_and_follow_a_renamed_node() {
    let world = World::new(&config(URL));
    take(&world, &["a", "b"]).await;
    choose(&world, "a").await;
    take(&world, &["c", "b", "a"]).await;
    assert_eq!(leaf(&world, "203.0.113.1:80").as_deref(), Some("a"));
    let renamed = String::from_utf8(list(&["b", "a"]))
        .unwrap()
        .replace("#a", "#A");
    let id = world.engine.subscriptions.views()[0].id;
    let good = body_of(&world, renamed.as_bytes());
    world.engine.take_nodes("air", id, good).await;
    assert_eq!(leaf(&world, "203.0.113.1:80").as_deref(), Some("A"));
}

#[tokio::test]
async fn a_stored_choice_waits_for_its_node() {
    let world = World::new(&config(URL));
    take(&world, &["a", "b"]).await;
    choose(&world, "a").await;
    let stored = choices::stored(&world.engine.snapshot().groups, "r");
    let later = World::new(&config(URL));
    *later.engine.late.lock().unwrap() = stored.clone();
    take(&later, &["b", "a"]).await;
    assert_eq!(leaf(&later, "203.0.113.1:80").as_deref(), Some("a"));
    assert!(later.engine.late.lock().unwrap().is_empty());
    // Nothing that waits is lost when something else is saved, and nothing waits for ever.
    let third = World::new(&config(URL));
    *third.engine.late.lock().unwrap() = stored;
    third
        .engine
        .unsaved
        .store(true, std::sync::atomic::Ordering::Relaxed);
    third.engine.save_choices().await;
    let saved = crate::state::choices::load(&third.choices()).unwrap();
    assert!(saved["proxy"].tcp.is_some());
    take(&third, &["b"]).await;
    assert!(third.engine.late.lock().unwrap().is_empty());
}

// G-157, G-165
#[tokio::test]
async fn a_choice_that_waits_gives_way_to_a_new_wish_on_its_network() {
    let world = World::new(&config(URL));
    take(&world, &["a", "b"]).await;
    choose(&world, "a").await;
    let stored = choices::stored(&world.engine.snapshot().groups, "r");
    for (scope, tcp, udp) in [
        (Scope::Both, "b", "b"),
        (Scope::Tcp, "b", "a"),
        (Scope::Udp, "a", "b"),
    ] {
        let later = World::new(&config(URL));
        *later.engine.late.lock().unwrap() = stored.clone();
        let group = later.group("proxy");
        let dropped = Change {
            group,
            scope,
            member: None,
            interrupt: None,
        };
        later.engine.select(dropped).await.unwrap();
        take(&later, &["b", "a"]).await;
        let snapshot = later.engine.snapshot();
        let slot = snapshot.groups.group(group).unwrap().slot;
        let leaf = |network| {
            let selected = snapshot.groups.select(slot, network, Family::V4);
            selected.unwrap().leaf.name.as_str()
        };
        let leaves = (leaf(Network::Tcp), leaf(Network::Udp));
        assert_eq!(leaves, (tcp, udp), "{scope:?}");
    }
}

#[tokio::test]
async fn a_kernel_that_refuses_leaves_the_nodes_as_they_were() {
    let world = World::new(&config(URL));
    take(&world, &["a"]).await;
    world
        .kernel
        .refuse_groups
        .store(true, std::sync::atomic::Ordering::SeqCst);
    take(&world, &["b"]).await;
    world
        .kernel
        .refuse_groups
        .store(false, std::sync::atomic::Ordering::SeqCst);
    let snapshot = world.engine.snapshot();
    assert_eq!(
        (
            snapshot.generation,
            snapshot.groups.nodes()[1].name.as_str()
        ),
        (2, "a")
    );
    assert_eq!(world.engine.subscriptions.views()[0].nodes, 1);
    let failed = world
        .engine
        .reloads
        .count(Trigger::Subscription as usize, 2);
    assert_eq!(failed, 1);
}

#[tokio::test]
async fn a_reload_keeps_nodes_and_one_without_the_entry_drops_them() {
    let world = World::new(&config(URL));
    take(&world, &["a", "b"]).await;
    world.edit(
        &config(URL)
            .replace("air:", "sea:")
            .replace("subtag(air)", "subtag(sea)"),
    );
    let state = world.engine.reload(Trigger::Api, false).await.unwrap();
    assert_eq!(
        (state.state.as_str(), &*state.changed),
        ("done", &["subscription".to_owned(), "group".to_owned()][..])
    );
    assert_eq!(leaf(&world, "203.0.113.1:80").as_deref(), Some("b"));
    world.edit(&config(URL).replace("subscription {", "subscription { #"));
    let state = world.engine.reload(Trigger::Api, false).await.unwrap();
    assert_eq!(state.state, "rejected", "a broken file changes nothing");
    assert_eq!(leaf(&world, "203.0.113.1:80").as_deref(), Some("b"));
    world.edit(&config("http://192.0.2.9/other"));
    world.engine.reload(Trigger::Api, false).await.unwrap();
    assert_eq!(
        leaf(&world, "203.0.113.1:80"),
        None,
        "another URL is another subscription"
    );
}

/// A server on loopback that answers with what stands in the slot, until the runtime ends.
async fn server(answer: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else {
                    break;
                };
                head.push(byte);
            }
            let answer = answer.lock().unwrap().clone();
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{at}/canary")
}

fn ok(names: &[&str]) -> String {
    let body = String::from_utf8(list(names)).unwrap();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn net() -> Net {
    let dialer = Dialer::new(Settings {
        own_mark: 0,
        bootstrap: Vec::new(),
        max_concurrent_dials: 4,
        connect_timeout: Duration::from_secs(3),
    });
    let tls = Arc::new(tls::with_roots(RootCertStore::empty()));
    Net::new(dialer, tls, Arc::new(|_| false))
}

/// Asks for a fetch and waits for its end.
async fn refresh(world: &World) -> View {
    let hub = &world.engine.subscriptions;
    let id = hub.views()[0].id;
    let mut watch = hub.watch();
    let after = hub.request(id).unwrap();
    let ended = |_: &u64| hub.views()[0].attempts >= after;
    let waited = tokio::time::timeout(Duration::from_secs(30), watch.wait_for(ended)).await;
    waited.unwrap().unwrap();
    hub.views().remove(0)
}

#[tokio::test]
async fn what_the_fetcher_brings_is_used_and_what_is_broken_is_not() {
    let answer = Arc::new(Mutex::new(ok(&["a", "b"])));
    let url = server(Arc::clone(&answer)).await;
    let world = World::new(&config(&url));
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(run(Arc::clone(&world.engine), net(), stopped));
    // The first fetch needs nobody to ask for it.
    world
        .engine
        .subscriptions
        .first(Duration::from_secs(30))
        .await;
    assert_eq!(leaf(&world, "203.0.113.1:80").as_deref(), Some("b"));
    for (broken, code) in [
        ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "status"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "empty"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\nsocks5://192.0.2.1:1080#cut",
            "http",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>",
            "format",
        ),
        ("nonsense", "http"),
    ] {
        *answer.lock().unwrap() = broken.to_owned();
        let view = refresh(&world).await;
        assert_eq!((view.state, view.nodes), ("stale", 2), "{broken}");
        let problem = view.problem.unwrap();
        assert_eq!(problem.code, code, "{broken}");
        assert!(!problem.message.contains("canary"), "{}", problem.message);
        assert_eq!(leaf(&world, "203.0.113.1:80").as_deref(), Some("b"));
    }
    *answer.lock().unwrap() = ok(&["b", "c"]);
    let view = refresh(&world).await;
    assert_eq!((view.state, view.nodes, view.failures), ("ok", 2, 0));
    assert_eq!(world.engine.snapshot().generation, 3);
    stop.send(true).unwrap();
    tokio::time::timeout(Duration::from_secs(30), task)
        .await
        .unwrap()
        .unwrap();
    // A start without network has the last good answer.
    let declared = world.engine.snapshot().config.subscriptions.clone();
    let reader = |_: &honk_policy::config::Subscription| Err(honk_grammar::LoadError::NotFound);
    let hub = world.hub_again();
    let nodes = Plan::new(&declared, Some(&hub), &reader).nodes();
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["b", "c"]);
}

#[test]
fn the_log_line_tells_what_changed() {
    let name = |n: usize| format!("n{n}");
    let changes = Changes {
        added: (0..25).map(name).collect(),
        removed: vec!["x".to_owned()],
        changed: Vec::new(),
        kept: 3,
    };
    let text = summary(&changes);
    assert!(text.starts_with("28 nodes in use, 25 came (n0, "), "{text}");
    assert!(text.contains("n19 and 5 more), 1 went (x)"), "{text}");
    assert_eq!(FetchError::Body(BodyError::Empty).code(), "empty");
}

#[tokio::test]
async fn names_that_nobody_brought_are_told_once_and_only_when_all_are_there() {
    let world = World::new(&config(URL));
    let told = || world.engine.told.lock().unwrap().clone();
    let snapshot = world.engine.snapshot();
    world.engine.tell_groups(&snapshot, true);
    assert!(told().is_empty(), "nodes are awaited");
    take(&world, &["a"]).await;
    let found: Vec<String> = told().into_iter().collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("default `b` of group `proxy`"),
        "{}",
        found[0]
    );
    take(&world, &["b"]).await;
    assert!(told().is_empty(), "it is settled");
}
