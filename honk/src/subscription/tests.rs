//! The hub: what is in use, what is due, what is told.

use std::fs;

use honk_grammar::LoadError;
use honk_policy::id::Secret;

use super::{plan::identity, *};
use crate::subscription::store::tests::scratch;

/// A declaration of a web subscription.
pub(crate) fn web(tag: &str, url: &str) -> Subscription {
    Subscription {
        tag: tag.to_owned(),
        url: Secret::new(url),
        source: Source::Web,
        format: "auto".to_owned(),
        update_interval: None,
        user_agent: None,
        enabled: true,
        allow_private: false,
    }
}

/// A list of SOCKS5 links with these names; the name decides the address.
pub(crate) fn list(names: &[&str]) -> Vec<u8> {
    let link = |name: &&str| {
        let last: u32 = name.bytes().map(u32::from).sum();
        format!("socks5://192.0.2.{}:1080#{name}\n", last % 250 + 1)
    };
    names.iter().map(link).collect::<String>().into_bytes()
}

fn stored(names: &[&str]) -> Stored {
    Stored {
        bytes: list(names),
        fetched_ms: 1_000,
        ..Stored::default()
    }
}

fn good(decl: &Subscription, names: &[&str]) -> Good {
    Good::read(decl, identity(decl, 0), &stored(names), Via::Network).unwrap()
}

fn no_file(_: &Subscription) -> Result<Vec<u8>, LoadError> {
    Err(LoadError::NotFound)
}

fn hub(decls: &[Subscription]) -> Hub {
    let hub = Hub::new(None, Path::new("/nonexistent"));
    hub.adopt(Plan::new(decls, Some(&hub), &no_file), &[]);
    hub
}

fn names(nodes: &[Node]) -> Vec<&str> {
    nodes.iter().map(|n| n.name.as_str()).collect()
}

fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn a_new_subscription_is_due_at_once_and_only_once() {
    let decl = web("a", "https://h.example/a");
    let hub = hub(std::slice::from_ref(&decl));
    let job = hub.take_due(now()).unwrap();
    assert_eq!(job.decl, decl);
    assert!(hub.take_due(now()).is_none());
    assert_eq!(hub.views()[0].progress, Some(("resolve", 0)));
    let changes = hub.accept(job.id, good(&decl, &["x", "y"]), &[]).unwrap();
    assert_eq!((changes.added.len(), changes.kept), (2, 0));
    let view = hub.views().remove(0);
    assert_eq!((view.state, view.nodes, view.attempts), ("ok", 2, 1));
    assert_eq!((view.interval_s, view.counts), (Some(86_400), [1, 0, 0, 0]));
    let due = hub.next_due().unwrap();
    assert!(due > now() + Duration::from_secs(70_000));
    assert!(hub.take_due(now()).is_none());
}

#[tokio::test]
async fn what_fails_changes_nothing_but_the_report() {
    let decl = web("a", "https://h.example/a");
    let hub = hub(std::slice::from_ref(&decl));
    let id = hub.take_due(now()).unwrap().id;
    hub.accept(id, good(&decl, &["x"]), &[]);
    let error = || FetchError::Redirects(3);
    assert!(hub.failed(id, &error()), "the first failure is news");
    assert!(!hub.failed(id, &error()), "the same again is not");
    assert!(hub.failed(id, &FetchError::Damaged));
    let view = hub.views().remove(0);
    assert_eq!((view.state, view.nodes, view.failures), ("stale", 1, 3));
    assert_eq!(view.counts, [1, 2, 1, 0]);
    assert_eq!(view.problem.unwrap().code, "damaged");
    let due = hub.next_due().unwrap().saturating_duration_since(now());
    assert!(
        due > Duration::from_secs(100) && due < Duration::from_secs(300),
        "{due:?}"
    );
    hub.accept(id, good(&decl, &["x"]), &[]);
    let view = hub.views().remove(0);
    assert_eq!((view.state, view.failures), ("ok", 0));
}

#[tokio::test]
async fn identity_and_nodes_follow_the_url() {
    let (a, b) = (
        web("a", "https://h.example/a"),
        web("b", "https://h.example/b"),
    );
    let hub = hub(&[a.clone(), b.clone()]);
    let job = hub.take_due(now()).unwrap();
    hub.accept(job.id, good(&a, &["x"]), &[]);
    let renamed = Subscription {
        tag: "A".to_owned(),
        ..a.clone()
    };
    let plan = Plan::new(&[b.clone(), renamed.clone()], Some(&hub), &no_file);
    let nodes = plan.nodes();
    assert_eq!(names(&nodes), ["x"]);
    assert_eq!(nodes[0].origin.as_ref().unwrap().tag, "A");
    hub.adopt(plan, &[]);
    let views = hub.views();
    assert_eq!((views[1].id, views[1].nodes), (job.id, 1));
    assert!(hub.nodes_with(job.id, &good(&renamed, &["y"])).is_some());
    // Switched off, its nodes are gone.
    let off = Subscription {
        enabled: false,
        ..a.clone()
    };
    assert!(Plan::new(&[off], Some(&hub), &no_file).nodes().is_empty());
    hub.adopt(Plan::new(&[b], Some(&hub), &no_file), &[]);
    assert!(hub.nodes_with(job.id, &good(&a, &["x"])).is_none());
    assert!(hub.request(job.id).is_none());
}

#[tokio::test]
async fn the_same_url_twice_is_two_subscriptions() {
    let a = web("a", "https://h.example/a");
    let hub = hub(&[a.clone(), a.clone()]);
    let views = hub.views();
    assert_ne!(views[0].id, views[1].id);
    for view in &views {
        let good = Good::read(&a, view.id, &stored(&["x", "z"]), Via::Network).unwrap();
        hub.accept(view.id, good, &[]);
    }
    let statics = good(&a, &["z"]).nodes;
    let plan = Plan::new(&[a.clone(), a], Some(&hub), &no_file);
    hub.adopt(plan, &statics);
    let shadowed: Vec<usize> = hub.views().iter().map(|v| v.shadowed).collect();
    assert_eq!(shadowed, [1, 2]);
}

#[tokio::test]
async fn requests_and_reloads_make_it_due() {
    let by_hand = Subscription {
        update_interval: Some(0),
        ..web("a", "https://h.example/a")
    };
    let hub = hub(std::slice::from_ref(&by_hand));
    let id = hub.take_due(now()).unwrap().id;
    hub.accept(id, good(&by_hand, &["x"]), &[]);
    assert_eq!(hub.next_due(), None, "only the owner asks");
    assert_eq!(hub.request(id), Some(2));
    assert!(hub.take_due(now()).is_some());
    assert_eq!(
        hub.request(id),
        Some(2),
        "the fetch under way is the one that is meant"
    );
    assert!(hub.take_due(now()).is_none());
    hub.dropped(id);
    hub.request_all();
    assert_eq!(hub.next_due(), None, "it was fetched a moment ago");
    // Without nodes it is tried again all the same.
    let other = Hub::new(None, Path::new("/nonexistent"));
    other.adopt(Plan::new(&[by_hand], None, &no_file), &[]);
    let id = other.take_due(now()).unwrap().id;
    other.failed(id, &FetchError::Damaged);
    assert!(other.next_due().is_some());
}

#[tokio::test]
async fn the_wish_of_the_provider_counts_where_nothing_is_written() {
    let decl = web("a", "https://h.example/a");
    let hub = hub(std::slice::from_ref(&decl));
    let id = hub.take_due(now()).unwrap().id;
    let mut good = good(&decl, &["x"]);
    good.info.header("profile-update-interval", "2");
    hub.accept(id, good, &[]);
    assert_eq!(hub.views()[0].interval_s, Some(7200));
}

#[tokio::test]
async fn files_are_read_with_every_plan() {
    let decl = Subscription {
        source: Source::File,
        url: Secret::new("file://subs/a.txt"),
        ..web("f", "")
    };
    let hub = Hub::new(None, Path::new("/nonexistent"));
    let read = |_: &Subscription| {
        let mut text = b"@ a line for other programs\n".to_vec();
        text.extend(list(&["x", "y"]));
        Ok(text)
    };
    let plan = Plan::new(std::slice::from_ref(&decl), Some(&hub), &read);
    assert!(plan.problems().next().is_none() && !plan.waits());
    hub.adopt(plan, &[]);
    let view = hub.views().remove(0);
    assert_eq!((view.state, view.nodes, view.via), ("ok", 2, Some("file")));
    assert_eq!(hub.next_due(), None);
    let plan = Plan::new(std::slice::from_ref(&decl), Some(&hub), &no_file);
    assert_eq!(plan.problems().count(), 1);
    assert_eq!(plan.nodes().len(), 2, "the nodes of before stay");
    hub.adopt(plan, &[]);
    assert_eq!(hub.views()[0].state, "stale");
}

#[tokio::test]
async fn copies_and_seeds_serve_before_the_first_fetch() {
    let state = scratch("subhub");
    fs::create_dir(state.join("persist.d")).unwrap();
    fs::write(state.join("persist.d/kept.sub"), list(&["s"])).unwrap();
    let kept = Subscription {
        source: Source::StoredWeb,
        ..web("kept", "https-file://h.example/k")
    };
    let web = web("web", "https://h.example/w");
    let store = Store::new(&state, true);
    store.save(&web, &stored(&["w"])).unwrap();
    let decls = [kept.clone(), web];
    let hub = Hub::new(Some(store.clone()), &state);
    let plan = Plan::new(&decls, Some(&hub), &no_file);
    assert!(!plan.waits());
    assert_eq!(names(&plan.nodes()), ["s", "w"]);
    hub.adopt(plan, &[]);
    let via: Vec<_> = hub.views().iter().map(|v| v.via).collect();
    assert_eq!(via, [Some("seed"), Some("store")]);
    assert!(hub.take_due(now()).is_some() && hub.take_due(now()).is_some());
    // Our own copy wins over the seed, and a broken one is as good as none.
    store.save(&kept, &stored(&["own"])).unwrap();
    let plan = Plan::new(&decls, None, &no_file);
    assert!(plan.waits(), "without a hub nothing is looked up");
    let again = Hub::new(Some(store.clone()), &state);
    assert_eq!(
        names(&Plan::new(&decls, Some(&again), &no_file).nodes()),
        ["own", "w"]
    );
    let broken = Stored {
        bytes: b"<html>".to_vec(),
        ..Stored::default()
    };
    store.save(&kept, &broken).unwrap();
    let again = Hub::new(Some(store), &state);
    assert_eq!(
        names(&Plan::new(&decls, Some(&again), &no_file).nodes()),
        ["w"]
    );
    fs::remove_dir_all(state).unwrap();
}

#[tokio::test]
async fn the_first_fetch_is_awaited_for_a_while() {
    let decl = web("a", "https://h.example/a");
    let hub = Arc::new(hub(std::slice::from_ref(&decl)));
    hub.first(Duration::from_millis(10)).await;
    let id = hub.take_due(now()).unwrap().id;
    let other = Arc::clone(&hub);
    let failing = tokio::spawn(async move { other.failed(id, &FetchError::Damaged) });
    let first = hub.first(Duration::from_secs(60));
    tokio::time::timeout(Duration::from_secs(30), first)
        .await
        .unwrap();
    assert!(failing.await.unwrap());
}

#[test]
fn bodies_without_usable_nodes_are_failures_and_say_why() {
    let decl = web("a", "https://h.example/a");
    let read = |bytes: &[u8]| {
        let stored = Stored {
            bytes: bytes.to_vec(),
            ..Stored::default()
        };
        Good::read(&decl, identity(&decl, 0), &stored, Via::Network)
    };
    for (bytes, code, result) in [
        (&b""[..], "empty", FetchResult::Empty),
        (b"<html>sorry</html>", "format", FetchResult::Parse),
        (b"{\"outbounds\": [", "format", FetchResult::Parse),
        (b"\xff\xfe\x00", "format", FetchResult::Parse),
        (b"{\"servers\": []}", "no_nodes", FetchResult::Empty),
        (b"http://x.example/", "no_nodes", FetchResult::Empty),
    ] {
        let error = read(bytes).unwrap_err();
        assert_eq!((error.code(), error.result()), (code, result), "{error}");
    }
    let mixed = b"socks5://192.0.2.1:1080#a\nfoo://x\nsocks5://192.0.2.1:1080#again\n";
    let good = read(mixed).unwrap();
    assert_eq!(
        (
            good.nodes.len(),
            good.counts.malformed,
            good.counts.duplicate
        ),
        (1, 1, 1)
    );
    assert_eq!(good.findings.len(), 1, "{:?}", good.findings);
}

#[test]
fn urls_are_shown_masked() {
    let decl = web(
        "a",
        "https://u:canary@h.example:8443/canary?token=canary#canary",
    );
    let hub = hub(std::slice::from_ref(&decl));
    let view = hub.views().remove(0);
    assert!(
        view.url.starts_with("https://h.example:8443/***#"),
        "{}",
        view.url
    );
    assert_eq!(view.url.rsplit('#').next().unwrap().len(), 12);
    assert!(!format!("{view:?} {hub:?}").contains("canary"));
}

#[tokio::test]
async fn another_user_agent_keeps_the_nodes_and_asks_for_all_of_it() {
    let a = web("a", "https://h.example/a");
    let hub = hub(std::slice::from_ref(&a));
    let id = hub.take_due(now()).unwrap().id;
    let mut body = good(&a, &["x"]);
    body.validators.etag = Some("v1".to_owned());
    hub.accept(id, body, &[]);
    let other = Subscription {
        user_agent: Some("v2rayN".to_owned()),
        ..a
    };
    let plan = Plan::new(&[other], Some(&hub), &no_file);
    assert_eq!(names(&plan.nodes()), ["x"]);
    hub.adopt(plan, &[]);
    let job = hub.take_due(now()).expect("it is due at once");
    assert_eq!(job.active(), 1);
    assert_eq!(job.had.unwrap().validators, Validators::default());
}
