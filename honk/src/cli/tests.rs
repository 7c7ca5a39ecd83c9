//! Commands against a served API over a daemon without a kernel: what the daemon writes, the
//! command line must be able to read.

use std::{path::PathBuf, time::Duration};

use clap::Parser as _;
use honk_policy::id::{Family, Network};
use tokio::{sync::watch, task::JoinHandle};

use super::*;
use crate::{
    api::server::{ApiSocket, Peers},
    app::{
        kernel::Interface,
        testkit::{CONFIG, World, flow, subscribed},
    },
    flow::{Admission as _, Route},
    state::file::tests::scratch,
};

/// `honk version` without flags.
pub(crate) fn invocation() -> Invocation {
    parsed(&["version"]).0
}

fn parsed(words: &[&str]) -> (Invocation, Command) {
    let words = ["honk"].iter().chain(words);
    let cli = Cli::try_parse_from(words).unwrap();
    let out = Output::new(&cli.global, &|_| None);
    let global = cli.global;
    (Invocation { global, out }, cli.command)
}

/// A served daemon.
struct Served {
    world: World,
    dir: PathBuf,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Served {
    fn new() -> Self {
        Self::of(CONFIG)
    }

    fn of(config: &str) -> Self {
        let (world, dir) = (World::new(config), scratch("served"));
        let peers = Peers::system();
        let socket = ApiSocket::bind(&dir.join("api.sock"), peers).unwrap();
        let (stop, stopped) = watch::channel(false);
        let router = crate::api::router(world.engine.clone());
        let server = tokio::spawn(socket.serve(router, peers, stopped));
        Self {
            world,
            dir,
            stop,
            server,
        }
    }

    async fn honk(&self, words: &[&str]) -> Result<Exit, Failure> {
        let dir = self.dir.to_str().unwrap();
        let words = [words, &["--runtime-dir", dir]].concat();
        let (invocation, command) = parsed(&words);
        ask(&invocation.session().unwrap(), command).await
    }

    async fn code(&self, words: &[&str]) -> u8 {
        let exit = match self.honk(words).await {
            Ok(exit) => exit,
            Err(failure) => failure.exit,
        };
        exit.code()
    }

    fn admit(&self, target: &str) -> Route {
        let flow = flow(Network::Tcp, target);
        self.world.engine.gatekeeper.admit(&flow).unwrap()
    }

    async fn end(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(10), self.server)
            .await
            .unwrap()
            .unwrap();
        assert!(!self.dir.join("api.sock").exists());
        std::fs::remove_dir_all(self.dir).unwrap();
    }
}

#[tokio::test]
async fn every_reading_command_understands_the_daemon() {
    let served = Served::new();
    let _route = served.admit("203.0.113.1:80");
    let dns = &served.world.engine.dns;
    crate::dns::testkit::teach(dns, "10.0.0.1:4000", "a.test", &[[192, 0, 2, 1]]);
    for words in [
        &["status"][..],
        &["group", "list"],
        &["group", "show", "proxy"],
        &["node", "list"],
        &["node", "list", "--group", "proxy"],
        &["node", "show", "a"],
        &["node", "list", "--state", "unknown", "--sort", "delay"],
        &["conn", "list"],
        &[
            "conn",
            "list",
            "--network",
            "tcp",
            "--src",
            "192.168.0.0/16",
        ],
        &["conn", "list", "--closed"],
        &["dns", "map"],
        &["dns", "map", "--ip", "192.0.2.1"],
        &["dns", "map", "--name", "a.test"],
    ] {
        assert_eq!(served.code(words).await, 0, "{words:?}");
        assert_eq!(
            served.code(&[words, &["--json"]].concat()).await,
            0,
            "{words:?}"
        );
    }
    served.end().await;
}

#[tokio::test]
async fn names_that_mean_nothing_are_code_7() {
    let served = Served::new();
    for words in [
        &["group", "show", "nope"][..],
        &["group", "select", "nope", "a"],
        &["group", "select", "proxy", "c"],
        &["conn", "list", "--group", "nope"],
        &["conn", "list", "--node", "nope"],
        &["conn", "close", "--node", "nope"],
        &["node", "show", "nope"],
        &["node", "list", "--group", "nope"],
        &["conn", "close", "00000000-0000-4000-8000-000000000000"],
        &["reload", "1"],
    ] {
        assert_eq!(served.code(words).await, 7, "{words:?}");
    }
    served.end().await;
}

#[tokio::test]
async fn wrong_names_are_told_with_the_nearest_ones() {
    let served = Served::new();
    for words in [
        &["group", "select", "prxy", "a"][..],
        &["node", "list", "--group", "prxy"],
        &["conn", "list", "--group", "prxy"],
    ] {
        let failure = served.honk(words).await.unwrap_err();
        let text = "no such group: prxy; did you mean proxy?";
        assert_eq!(failure.message, text, "{words:?}");
        assert_eq!(failure.details.unwrap()["name"], "prxy", "{words:?}");
    }
    assert_eq!(served.code(&["conn", "list", "--src", "zz"]).await, 2);
    for known in ["proxy", "c", "direct"] {
        assert_eq!(served.code(&["conn", "list", "--group", known]).await, 0);
    }
    served.end().await;
}

#[tokio::test]
async fn two_nodes_of_one_name_are_a_conflict_with_both_ids() {
    let served = Served::new();
    let twin = CONFIG.replace("node { a:", "node { a: 'socks5://192.0.2.9:1080'\n a:");
    served.world.edit(&twin);
    assert_eq!(served.code(&["reload"]).await, 0);
    let failure = served.honk(&["node", "show", "a"]).await.unwrap_err();
    assert_eq!(failure.exit, Exit::Conflict);
    let ids = failure.details.unwrap()["ids"].clone();
    assert_eq!(ids.as_array().unwrap().len(), 2);
    let first = ids[0].as_str().unwrap();
    assert_eq!(served.code(&["node", "show", first]).await, 0);
    served.end().await;
}

#[tokio::test]
async fn a_daemon_without_an_interface_says_that_it_intercepts_nothing() {
    let served = Served::new();
    assert_eq!(served.code(&["status", "--wait", "0"]).await, 0);
    for none in ["", "lan_interface: ''"] {
        served
            .world
            .edit(&CONFIG.replace("lan_interface: lan0", none));
        assert_eq!(served.code(&["reload"]).await, 0);
        let failure = served.honk(&["status", "--wait", "0"]).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Timeout);
        assert!(
            failure.message.contains("neither lan_interface"),
            "{failure}"
        );
    }
    served.end().await;
}

#[test]
fn suggested_commands_are_no_aliases() {
    let error = Cli::try_parse_from(["honk", "gruop", "list"]).unwrap_err();
    let text = said(&named(error).to_string());
    assert!(text.contains("'group'"), "{text}");
    assert!(
        !text.contains("'g'") && !text.contains("'groups'"),
        "{text}"
    );
}

#[test]
fn usage_errors_in_json_keep_what_is_missing() {
    let error = Cli::try_parse_from(["honk", "group", "select", "g"]).unwrap_err();
    let text = said(&error.to_string());
    assert!(
        text.contains("<MEMBER>") && !text.contains("Usage"),
        "{text}"
    );
}

#[tokio::test]
async fn selecting_by_name_moves_the_group_and_unpin_moves_it_back() {
    let served = Served::new();
    let leaf = |network| {
        let snapshot = served.world.engine.snapshot();
        let slot = snapshot.groups.group_named("proxy").unwrap().slot;
        snapshot
            .groups
            .select(slot, network, Family::V4)
            .unwrap()
            .leaf
            .name
            .clone()
    };
    let udp = ["group", "select", "proxy", "b", "--network", "udp"];
    assert_eq!(served.code(&udp).await, 0);
    assert_eq!(
        (leaf(Network::Tcp), leaf(Network::Udp)),
        ("a".into(), "b".into())
    );
    assert_eq!(served.code(&["group", "unpin", "proxy"]).await, 0);
    assert_eq!(
        (leaf(Network::Tcp), leaf(Network::Udp)),
        ("a".into(), "a".into())
    );
    served.end().await;
}

#[tokio::test]
async fn reload_tells_applied_from_rejected() {
    let served = Served::new();
    assert_eq!(served.code(&["reload"]).await, 0);
    // One that has just ended is the one that is meant.
    assert_eq!(served.code(&["reload", "--attach"]).await, 0);
    assert_eq!(served.world.engine.snapshot().generation, 2);
    served.world.edit("nonsense");
    let failure = served.honk(&["reload"]).await.unwrap_err();
    assert_eq!(
        (failure.exit, failure.code.as_str()),
        (Exit::Config, "invalid")
    );
    served
        .world
        .edit(&CONFIG.replace("lan0 }", "lan0\n tproxy_port: 23456 }"));
    let failure = served.honk(&["reload"]).await.unwrap_err();
    assert_eq!(failure.code, "restart-required");
    assert_eq!(
        served.code(&["reload", "--attach"]).await,
        3,
        "joins the rejected one"
    );
    assert_eq!(served.world.engine.snapshot().generation, 2);
    served.end().await;
}

#[tokio::test]
async fn a_reload_that_runs_is_a_conflict_or_joined() {
    let served = Served::new();
    let engine = served.world.engine.clone();
    let writer = engine.hold().await;
    let running = tokio::spawn({
        let engine = engine.clone();
        async move {
            engine
                .reload(crate::app::reload::Trigger::Signal, false)
                .await
                .is_ok()
        }
    });
    while !engine.reloading() {
        tokio::task::yield_now().await;
    }
    assert_eq!(served.code(&["reload"]).await, 6);
    drop(writer);
    assert_eq!(served.code(&["reload", "--attach"]).await, 0);
    assert!(running.await.unwrap());
    assert_eq!(engine.snapshot().generation, 2);
    served.end().await;
}

#[tokio::test]
async fn waiting_ends_when_every_interface_is_attached() {
    let served = Served::new();
    let interface = |name: &str, attached| Interface {
        name: name.to_owned(),
        role: "lan".to_owned(),
        attached,
        hooks: vec![],
        problem: None,
        pending: !attached,
    };
    let set = |attached: [bool; 2]| {
        let names = ["lan0", "lan1"].into_iter().zip(attached);
        let all = names.map(|(name, attached)| interface(name, attached));
        *served.world.kernel.interfaces.lock().unwrap() = all.collect();
    };
    for (attached, missing) in [
        ([false, false], "lan0"),
        ([false, true], "lan0"),
        ([true, false], "lan1"),
    ] {
        set(attached);
        let failure = served.honk(&["status", "--wait", "0"]).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Timeout);
        assert!(failure.message.contains(missing), "{}", failure.message);
    }
    set([true, true]);
    assert_eq!(served.code(&["status", "--wait", "5"]).await, 0);
    assert_eq!(served.code(&["suspend"]).await, 0);
    assert_eq!(served.code(&["status", "--wait", "0"]).await, 8);
    assert_eq!(served.code(&["resume"]).await, 0);
    assert_eq!(served.code(&["status", "--wait", "0"]).await, 0);
    served.end().await;
}

#[tokio::test]
async fn closing_reports_what_really_ended() {
    let served = Served::new();
    let route = served.admit("203.0.113.1:80");
    let entry = std::sync::Arc::clone(&route.guard.entry);
    let relay = tokio::spawn(async move {
        while entry.cancel.reason().is_none() {
            tokio::task::yield_now().await;
        }
        drop(route);
    });
    assert_eq!(served.code(&["conn", "close", "--group", "proxy"]).await, 0);
    relay.await.unwrap();
    assert_eq!(served.world.engine.registry.open(), 0);
    assert_eq!(served.code(&["conn", "close", "--all", "--yes"]).await, 0);
    assert_eq!(served.code(&["conn", "close"]).await, 2);
    served.end().await;
}

#[tokio::test]
async fn subscriptions_are_listed_and_refreshed() {
    let served = Served::of(&subscribed());
    let id = served.world.engine.subscriptions.views()[0].id.to_string();
    for words in [
        &["sub", "list"][..],
        &["subs", "list"],
        &["sub", "show", "air"],
        &["sub", "show", &id],
        &["sub", "refresh", "--no-wait"],
        &["sub", "update", "air", "--no-wait"],
        &["node", "list", "--sub", "air"],
    ] {
        for words in [words.to_vec(), [words, &["--json"]].concat()] {
            assert_eq!(served.code(&words).await, 0, "{words:?}");
        }
    }
    for (words, code) in [
        (&["sub", "show", "aire"][..], 7),
        (&["sub", "refresh", "nobody"], 7),
        (&["sub", "refresh", "off"], 6),
        (&["node", "list", "--sub", "nobody"], 7),
        // Nobody fetches here.
        (&["sub", "refresh", "air", "--timeout", "100ms"], 8),
    ] {
        assert_eq!(served.code(words).await, code, "{words:?}");
    }
    served.end().await;
    let none = Served::new();
    assert_eq!(none.code(&["sub", "list"]).await, 0);
    assert_eq!(none.code(&["sub", "refresh"]).await, 7);
    none.end().await;
}

#[test]
fn bodies_are_tested_without_a_daemon() {
    let dir = scratch("subtest");
    let file = dir.join("body.txt");
    let test = |text: &[u8], format: &str| {
        std::fs::write(&file, text).unwrap();
        let exit = match sub::test(&invocation().out, &file, format) {
            Ok(exit) => exit,
            Err(failure) => failure.exit,
        };
        exit.code()
    };
    let good = b"socks5://192.0.2.1:1080#a\n";
    assert_eq!(test(good, "auto"), 0);
    assert_eq!(test(good, "clash"), 10);
    assert_eq!(test(b"socks5://192.0.2.1:1080#a\nfoo://x\n", "auto"), 10);
    assert_eq!(test(b"<html>", "auto"), 10);
    let missing = sub::test(&invocation().out, &dir.join("nothing"), "auto");
    assert_eq!(missing.unwrap_err().exit.code(), 3);
    let url = sub::test(
        &invocation().out,
        "https://h.example/canary".as_ref(),
        "auto",
    );
    let failure = url.unwrap_err();
    assert_eq!(failure.exit.code(), 2);
    assert!(!failure.message.contains("canary"), "{}", failure.message);
    std::fs::remove_dir_all(dir).unwrap();
}

/// Two proxies that answer nothing: one refuses, one is silent until it is dropped.
async fn unanswered(served: &Served) -> tokio::net::TcpListener {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = closed.local_addr().unwrap();
    drop(closed);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = CONFIG
        .replace("192.0.2.1:1080", &refusing.to_string())
        .replace("192.0.2.2:1080", &silent.local_addr().unwrap().to_string());
    served
        .world
        .edit(&config.replace("filter: name(a, b)", "filter: name(a)"));
    silent
}

#[tokio::test]
async fn measurements_that_fail_are_code_11_and_wrong_names_7() {
    let served = Served::new();
    served.world.measure();
    let _silent = unanswered(&served).await;
    assert_eq!(served.code(&["reload"]).await, 0);
    for words in [
        &["node", "ping", "a"][..],
        &["node", "ping", "a", "--sort", "name", "--limit", "1"],
        &["node", "ping", "--group", "proxy", "--json"],
        &[
            "group",
            "test",
            "proxy",
            "--concurrency",
            "1",
            "--family",
            "v4",
        ],
    ] {
        assert_eq!(served.code(words).await, 11, "{words:?}");
    }
    assert_eq!(served.code(&["node", "ping", "nope"]).await, 7);
    assert_eq!(served.code(&["group", "test", "nope"]).await, 7);
    // `block` is not dialed, so nothing fails.
    assert_eq!(served.code(&["node", "ping", "block"]).await, 0);
    let bad = ["node", "ping", "a", "--concurrency", "65"];
    assert_eq!(served.code(&bad).await, 1);
    let selector = ["group", "test", "proxy", "--reselect"];
    assert_eq!(
        served.code(&selector).await,
        5,
        "no task watches nodes here"
    );
    assert!(Cli::try_parse_from(["honk", "node", "ping"]).is_err());
    assert!(Cli::try_parse_from(["honk", "node", "ping", "a", "--all"]).is_err());
    served.end().await;
}

#[tokio::test]
async fn a_measurement_somebody_else_calls_off_is_told() {
    let served = Served::new();
    served.world.measure();
    let silent = unanswered(&served).await;
    assert_eq!(served.code(&["reload"]).await, 0);
    let engine = std::sync::Arc::clone(&served.world.engine);
    let other = tokio::spawn(async move {
        let (stream, _) = silent.accept().await.unwrap();
        let runs = std::sync::Arc::clone(&engine.pings().unwrap().runs);
        let id = runs.list()[0].id;
        runs.cancel(id).await;
        drop(stream);
    });
    let ping = ["node", "ping", "b", "--timeout", "30s"];
    assert_eq!(served.code(&ping).await, 1);
    other.await.unwrap();
    served.end().await;
}

#[tokio::test]
async fn settings_of_measurements_are_shown_set_and_reset() {
    let served = Served::new();
    served.world.measure();
    let url = || {
        let engine = &served.world.engine;
        let snapshot = engine.snapshot();
        let id = snapshot.groups.group_named("proxy").unwrap().id;
        engine.usual_url(&snapshot, id).to_string()
    };
    let before = url();
    let group = ["--group", "proxy"];
    let set = [
        "ping-settings",
        "set",
        "--url",
        "http://x.test/",
        "--deadline",
        "2s",
    ];
    assert_eq!(served.code(&[&set[..], &group].concat()).await, 0);
    assert_eq!(url(), "http://x.test/");
    for words in [&["ping-settings", "get"][..], &["ping-settings", "reset"]] {
        assert_eq!(served.code(words).await, 0);
        assert_eq!(served.code(&[words, &["--json"]].concat()).await, 0);
    }
    assert_eq!(url(), "http://x.test/", "that of the group is its own");
    assert_eq!(
        served
            .code(&[&["ping-settings", "reset"][..], &group].concat())
            .await,
        0
    );
    assert_eq!(url(), before);
    assert_eq!(
        served
            .code(&["ping-settings", "get", "--group", "nope"])
            .await,
        7
    );
    assert_eq!(
        served
            .code(&["ping-settings", "set", "--deadline", "5ms"])
            .await,
        1
    );
    assert!(Cli::try_parse_from(["honk", "ping-settings", "set"]).is_err());
    served.end().await;
}

#[tokio::test]
async fn nodes_are_switched_by_name_with_a_word_why() {
    let served = Served::new();
    assert_eq!(
        served
            .code(&["node", "disable", "a", "--reason", "too slow"])
            .await,
        0
    );
    let snapshot = served.world.engine.snapshot();
    let a = snapshot
        .groups
        .nodes()
        .iter()
        .find(|n| n.name == "a")
        .unwrap();
    let why = || served.world.engine.judge.why_off(a).map(|off| off.reason);
    assert_eq!(why().as_deref(), Some("too slow"));
    for words in [
        &["node", "show", "a"][..],
        &["node", "list", "--state", "disabled"],
        &["node", "disable", "a", "--json"],
        &["node", "disable", "b"],
    ] {
        assert_eq!(served.code(words).await, 0, "{words:?}");
    }
    assert_eq!(why().as_deref(), Some(""), "the word of the last one");
    assert_eq!(served.code(&["node", "enable", "a"]).await, 0);
    assert_eq!(why(), None);
    assert_eq!(served.code(&["node", "enable", "nope"]).await, 7);
    assert_ne!(served.code(&["node", "disable", "direct"]).await, 0);
    served.end().await;
}
