//! Subscriptions: nodes arrive, are used, change under live flows, and survive what providers do.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::{Home, Honk};
use honk_tests::lab::addr;
use honk_tests::scene::{DIRECT, LOGIN, PROXIED, Scene, at, play};
use honk_tests::serve::{ECHO, Provider, Reply};
use honk_tests::{client, wait};
use serde_json::Value;

/// Port of the provider.
const PORT: u16 = 8088;
/// Path and query that must never be shown.
const SECRET: &str = "/canary-path?token=canary-token";

/// A share link to an upstream under a name.
fn link(ip: IpAddr, name: &str) -> String {
    let (user, password) = LOGIN;
    format!("socks5://{user}:{password}@{ip}:1080#{name}\n")
}

fn up1() -> String {
    link(addr::HP, "up1")
}

fn up2() -> String {
    link(addr::HP2, "up2")
}

fn both() -> String {
    up1() + &up2()
}

/// One subscription in one group; everything to the proxied origin goes there.
fn config(url: &str, notes: &str) -> String {
    config_with(url, notes, "")
}

fn config_with(url: &str, notes: &str, global: &str) -> String {
    format!(
        "global {{ lan_interface: lan  log_level: debug  {global} }}
subscription {{ air: '{url}' {notes} }}
group {{ proxy {{ filter: subtag(air)  policy: selector }} }}
routing {{ dip({PROXIED}) -> proxy  fallback: direct }}
"
    )
}

fn provider(scene: &Scene, body: String) -> Result<Provider> {
    Provider::start(&scene.lab.ho, (PROXIED, PORT), Reply::body(body))
}

/// The address through which a client reaches the proxied origin.
fn seen(scene: &Scene) -> Result<IpAddr> {
    let hc1 = &scene.lab.hc1;
    Ok(hc1.run(|| client::whoami_tcp(PROXIED))?.ip())
}

fn shown(home: &Home) -> Result<Value> {
    home.json(&["sub", "show", "air"])
}

/// `honk sub refresh` and the exit code it ends with.
fn refresh(home: &Home) -> Result<(Option<i32>, String)> {
    let output = home.cli(&["sub", "refresh", "air"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.code(), text))
}

/// One word there and back.
fn echo(flow: &mut TcpStream, word: &[u8; 4]) -> Result<()> {
    flow.write_all(word)?;
    let mut back = [0; 4];
    flow.read_exact(&mut back).context("the flow broke")?;
    ensure!(&back == word);
    Ok(())
}

#[test]
fn nodes_arrive_before_the_gate_opens_and_are_used() {
    play("nodes_arrive_before_the_gate_opens_and_are_used", |scene| {
        let air = provider(scene, up1())?;
        let info = "upload=1; download=2; total=1073741824; expire=4102444800";
        air.set(Reply::body(up1()).header("Subscription-Userinfo", info));
        let honk = Honk::start(&scene.lab, &config(&air.url(SECRET), ""))?;
        ensure!(seen(scene)? == addr::HP, "the only node is used");
        let udp = scene.lab.hc1.run(|| client::whoami_udp(PROXIED))?;
        ensure!(udp.ip() == addr::HP, "also for UDP");
        let head = air.heads().first().cloned().context("no request")?;
        ensure!(
            head.starts_with("GET /canary-path?token=canary-token "),
            "{head}"
        );
        ensure!(head.contains("user-agent: honk/"), "{head}");
        let sub = shown(&honk.home)?;
        ensure!(sub["state"] == "ok" && sub["nodes"] == 1, "{sub}");
        ensure!(
            sub["user_info"]["total_bytes"] == 1_073_741_824_u64,
            "{sub}"
        );
        let list = honk.home.must(&["sub", "list"])?;
        ensure!(
            list.contains("air") && list.contains("3 B of 1.0 GiB"),
            "{list}"
        );
        let nodes = honk.home.json(&["node", "list", "--sub", "air"])?;
        ensure!(nodes[0]["subscription"]["tag"] == "air", "{nodes}");
        ensure!(honk.metric("honk_subscription_nodes", "air")? == 1.0);
        ensure!(honk.metric("honk_subscription_fetches_total", "result=\"ok\"")? == 1.0);
        ensure!(honk.metric("honk_subscription_quota_bytes", "kind=\"download\"")? == 2.0);
        Ok(())
    });
}

#[test]
fn a_refresh_adds_and_removes_under_live_flows() {
    play("a_refresh_adds_and_removes_under_live_flows", |scene| {
        let air = provider(scene, up1())?;
        let honk = Honk::start(&scene.lab, &config(&air.url("/"), ""))?;
        let hc1 = scene.lab.hc1.clone();
        let connect = || hc1.run(|| client::connect(at(PROXIED, ECHO)));
        let mut first = connect()?;
        echo(&mut first, b"one!")?;
        air.set(Reply::body(both()));
        let (code, text) = refresh(&honk.home)?;
        ensure!(
            code == Some(0) && text.contains("2 nodes, 1 came (up2), 1 stayed"),
            "{text}"
        );
        ensure!(seen(scene)? == addr::HP, "the selection stays");
        honk.home.must(&["group", "select", "proxy", "up2"])?;
        let mut second = connect()?;
        echo(&mut second, b"two!")?;
        ensure!(seen(scene)? == addr::HP2);
        // The first one goes, with its flows; the chosen one and its flows stay.
        air.set(Reply::body(up2()));
        let (code, text) = refresh(&honk.home)?;
        ensure!(code == Some(0) && text.contains("1 went (up1)"), "{text}");
        wait::until(
            "the flow of the gone node to end",
            Duration::from_secs(10),
            || echo(&mut first, b"gone").err(),
        )?;
        echo(&mut second, b"tri!")?;
        ensure!(seen(scene)? == addr::HP2);
        // Renamed, it is the same node: the choice and the flow stay.
        air.set(Reply::body(up1() + &link(addr::HP2, "other")));
        refresh(&honk.home)?;
        echo(&mut second, b"four")?;
        ensure!(seen(scene)? == addr::HP2);
        let group = honk.home.json(&["group", "show", "proxy"])?;
        ensure!(group["selection"]["tcp"]["leaf_name"] == "other", "{group}");
        let activations = honk.metric("honk_config_reloads_total", "trigger=\"subscription\"")?;
        ensure!(activations == 4.0, "{activations} activations");
        Ok(())
    });
}

#[test]
fn a_broken_answer_keeps_the_last_good_one() {
    play("a_broken_answer_keeps_the_last_good_one", |scene| {
        let air = provider(scene, up2())?;
        let honk = Honk::start(&scene.lab, &config(&air.url(SECRET), ""))?;
        ensure!(seen(scene)? == addr::HP2);
        let cases = [
            (
                Reply::body("").status("500 Internal Server Error"),
                "status",
            ),
            (Reply::body("not here").status("404 Not Found"), "status"),
            (Reply::body(""), "empty"),
            (Reply::body("<html>login</html>"), "format"),
            (Reply::body("{\"outbounds\":["), "format"),
            (Reply::body("foo://x\nbar://y\n"), "no_nodes"),
            (Reply::body(both()).cut(), "http"),
            (
                Reply::body("x").header("Content-Encoding", "gzip"),
                "damaged",
            ),
            (
                Reply::body("")
                    .status("302 Found")
                    .header("Location", "http://10.66.0.1/"),
                "private_address",
            ),
            (
                Reply::body("")
                    .status("302 Found")
                    .header("Location", "/again"),
                "redirect",
            ),
        ];
        for (reply, code) in cases {
            air.set(reply.clone());
            let (exit, text) = refresh(&honk.home)?;
            ensure!(exit == Some(1), "{code}: exit {exit:?}: {text}");
            let sub = shown(&honk.home)?;
            ensure!(sub["error"]["code"] == code, "{reply:?}: {}", sub["error"]);
            ensure!(sub["state"] == "stale" && sub["nodes"] == 1, "{sub}");
            ensure!(seen(scene)? == addr::HP2, "{code}: the nodes were lost");
        }
        air.set(Reply::body(up1()));
        ensure!(refresh(&honk.home)?.0 == Some(0));
        ensure!(seen(scene)? == addr::HP && shown(&honk.home)?["state"] == "ok");
        no_secret(&honk.home)
    });
}

/// Nothing that people or programs read holds the URL or a credential.
fn no_secret(home: &Home) -> Result<()> {
    let mut texts = vec![std::fs::read_to_string(&home.log)?];
    for args in [
        &["sub", "list"][..],
        &["sub", "show", "air"],
        &["--json", "sub", "list"],
        &["--json", "status"],
        &["--json", "node", "list"],
    ] {
        texts.push(home.must(args)?);
    }
    for entry in std::fs::read_dir(home.state.join(".sub"))? {
        texts.push(entry?.file_name().to_string_lossy().into_owned());
    }
    for text in &texts {
        for secret in ["canary", LOGIN.1] {
            ensure!(!text.contains(secret), "{secret} is shown: {text}");
        }
    }
    Ok(())
}

#[test]
fn a_start_without_the_provider_uses_the_copy() {
    play("a_start_without_the_provider_uses_the_copy", |scene| {
        let air = provider(scene, both())?;
        let config = config(&air.url(SECRET), "");
        let honk = Honk::start(&scene.lab, &config)?;
        honk.home.must(&["group", "select", "proxy", "up2"])?;
        ensure!(seen(scene)? == addr::HP2);
        let home = honk.home.clone();
        ensure!(honk.stop()?.success());
        drop(air);
        for entry in std::fs::read_dir(home.state.join(".sub"))? {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = entry?.metadata()?.permissions().mode() & 0o777;
            ensure!(mode == 0o600, "{mode:o}");
        }
        let honk = Honk::start_in(home)?;
        ensure!(seen(scene)? == addr::HP2, "nodes and choice of before");
        let stale = wait::until("the fetch to fail", Duration::from_secs(30), || {
            shown(&honk.home).ok().filter(|sub| sub["state"] == "stale")
        })?;
        ensure!(
            stale["nodes_from"] == "store" && stale["nodes"] == 2,
            "{stale}"
        );
        let status = honk.home.must(&["--json", "status"])?;
        ensure!(status.contains("subscription-failed"), "{status}");
        // The provider is back, and says that nothing changed since.
        let air = provider(scene, up1())?;
        ensure!(refresh(&honk.home)?.0 == Some(0));
        ensure!(shown(&honk.home)?["nodes_from"] == "network");
        drop(air);
        no_secret(&honk.home)
    });
}

#[test]
fn an_unchanged_body_is_not_fetched_again() {
    play("an_unchanged_body_is_not_fetched_again", |scene| {
        let air = provider(scene, up1())?;
        air.set(Reply::body(up1()).header("ETag", "\"v1\""));
        let honk = Honk::start(
            &scene.lab,
            &config(&air.url("/"), "[user_agent: 'v2rayN/7']"),
        )?;
        let (code, text) = refresh(&honk.home)?;
        ensure!(
            code == Some(0) && text.contains("1 node, unchanged"),
            "{text}"
        );
        let heads = air.heads();
        let last = heads.last().context("no request")?;
        ensure!(
            heads.len() == 2 && last.contains("if-none-match: \"v1\""),
            "{heads:?}"
        );
        ensure!(last.contains("user-agent: v2rayN/7\r\n"), "{last}");
        ensure!(
            honk.home.json(&["status"])?["generation"] == 2,
            "one activation"
        );
        // A reload asks too, after the file is active. It was asked a moment ago, so it waits.
        honk.home.must(&["reload"])?;
        ensure!(seen(scene)? == addr::HP);
        Ok(())
    });
}

#[test]
fn an_unreachable_provider_delays_the_start_and_nothing_more() {
    play(
        "an_unreachable_provider_delays_the_start_and_nothing_more",
        |scene| {
            let url = format!("http://{DIRECT}:{PORT}/");
            let honk = Honk::start(&scene.lab, &config(&url, ""))?;
            let hc1 = scene.lab.hc1.clone();
            ensure!(
                hc1.run(|| client::whoami_tcp(PROXIED)).is_err(),
                "no node, no flow"
            );
            let leaks = scene.wan.seen(|t| t.touches(PROXIED))?;
            ensure!(leaks.is_empty(), "on the WAN: {leaks:?}");
            let sub = shown(&honk.home)?;
            ensure!(
                sub["state"] == "failed" && !sub["next_at"].is_null(),
                "{sub}"
            );
            let _air = Provider::start(&scene.lab.ho, (DIRECT, PORT), Reply::body(up1()))?;
            ensure!(refresh(&honk.home)?.0 == Some(0));
            ensure!(seen(scene)? == addr::HP);
            Ok(())
        },
    );
}

#[test]
fn private_addresses_need_a_word_of_the_owner() {
    play("private_addresses_need_a_word_of_the_owner", |scene| {
        let inside = (addr::HC2, PORT);
        let air = Provider::start(&scene.lab.hc2, inside, Reply::body(up1()))?;
        let honk = Honk::start(&scene.lab, &config(&air.url("/"), ""))?;
        let sub = shown(&honk.home)?;
        ensure!(sub["error"]["code"] == "private_address", "{sub}");
        ensure!(air.heads().is_empty(), "it was asked all the same");
        honk.reload(&config(&air.url("/"), "[allow_private: true]"))?;
        wait::until("the nodes", Duration::from_secs(30), || {
            shown(&honk.home).ok().filter(|sub| sub["nodes"] == 1)
        })?;
        ensure!(seen(scene)? == addr::HP);
        Ok(())
    });
}

#[test]
fn names_are_resolved_by_the_bootstrap_resolvers() {
    play("names_are_resolved_by_the_bootstrap_resolvers", |scene| {
        let air = provider(scene, up1())?;
        let global = format!(
            "bootstrap_resolver: '{}:53'  fallback_resolver: ''",
            addr::HO[1]
        );
        let url = format!("http://air.test:{PORT}/x");
        let honk = Honk::start(&scene.lab, &config_with(&url, "", &global))?;
        ensure!(seen(scene)? == addr::HP);
        let heads = air.heads();
        ensure!(
            heads[0].contains(&format!("host: air.test:{PORT}\r\n")),
            "{heads:?}"
        );
        ensure!(shown(&honk.home)?["state"] == "ok");
        Ok(())
    });
}

#[test]
fn files_are_read_at_start_and_with_every_reload() {
    play("files_are_read_at_start_and_with_every_reload", |scene| {
        let home = Home::new(&scene.lab);
        let config = config("file://subs/air.txt", "");
        home.write(&config)?;
        let dir = home.config.parent().context("no directory")?.join("subs");
        std::fs::create_dir_all(&dir)?;
        let file = dir.join("air.txt");
        let put = |text: &str, mode: u32| -> Result<()> {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::write(&file, text)?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode))?;
            Ok(())
        };
        put(&format!("@ for others\n{}", up1()), 0o600)?;
        let honk = Honk::start_in(home)?;
        ensure!(seen(scene)? == addr::HP);
        put(&up2(), 0o600)?;
        honk.reload(&config)?;
        ensure!(seen(scene)? == addr::HP2, "after the reload");
        put(&up1(), 0o600)?;
        ensure!(refresh(&honk.home)?.0 == Some(0));
        ensure!(seen(scene)? == addr::HP, "after the refresh");
        put(&up2(), 0o644)?;
        let refused = honk.home.cli(&["reload"])?;
        ensure!(refused.status.code() == Some(3), "anybody may read it");
        put("<html>", 0o600)?;
        honk.reload(&config)?;
        ensure!(seen(scene)? == addr::HP, "a broken file keeps the nodes");
        ensure!(shown(&honk.home)?["error"]["code"] == "format");
        Ok(())
    });
}

#[test]
fn what_is_left_out_is_told() {
    play("what_is_left_out_is_told", |scene| {
        let trojan = "trojan://canary@192.0.2.1:443#later\n";
        let body = format!("{}foo://canary@x\nss://canary\n{trojan}{}", up1(), up1());
        let air = provider(scene, body.clone())?;
        let honk = Honk::start(&scene.lab, &config(&air.url("/"), ""))?;
        let sub = shown(&honk.home)?;
        let entries = &sub["entries"];
        ensure!(entries["total"] == 5 && entries["malformed"] == 2, "{sub}");
        ensure!(entries["duplicate"] == 1, "{sub}");
        let findings = sub["findings"].as_array().context("no findings")?;
        ensure!(findings.iter().any(|f| f["code"] == "node-link"), "{sub}");
        let text = honk.home.must(&["sub", "show", "air"])?;
        ensure!(text.contains("entries skipped"), "{text}");
        ensure!(!text.contains("canary"), "{text}");
        // The same without a daemon.
        let file = honk.home.state.join("body.txt");
        std::fs::write(&file, body)?;
        let path = file.to_str().context("odd path")?;
        let output = honk.home.cli(&["sub", "test", path])?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.code() == Some(10), "{text}");
        ensure!(text.contains("up1") && text.contains("node-link"), "{text}");
        ensure!(!text.contains("canary"), "{text}");
        Ok(())
    });
}
