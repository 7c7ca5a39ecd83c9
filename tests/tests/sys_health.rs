//! Nodes that die, fall silent, slow down or flap, and groups that must follow in time.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use honk_tests::client;
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::scene::{BLOCKED, PROXIED, Scene, one_group, play};
use honk_tests::serve::Fault;
use honk_tests::wait;

/// Longest wait for a switch; what is promised is shorter, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(40);

/// Both upstreams in one automatic group; `up1` first.
fn config(policy: &str, global: &str, group: &str) -> String {
    one_group(global, &format!("policy: {policy}\n{group}"))
}

/// Waits until new flows leave through an upstream.
fn leaves_by(scene: &Scene, upstream: IpAddr) -> Result<()> {
    let hc1 = &scene.lab.hc1;
    wait::until("flows to leave by the other upstream", PATIENCE, || {
        let seen = hc1.run(|| client::whoami_tcp(PROXIED)).ok()?;
        (seen.ip() == upstream).then_some(())
    })
}

/// Waits until a node is alive, or dead, on its path for TCP.
fn becomes(honk: &Honk, node: &str, alive: bool) -> Result<()> {
    let label = format!("node=\"{node}\",node_id");
    let seen = || -> Option<()> {
        let text = honk.metrics().ok()?;
        let line = text.lines().find(|line| {
            line.starts_with("honk_node_up{")
                && line.contains(&format!("node=\"{node}\""))
                && line.contains("path=\"tcp_v4\"")
        })?;
        line.ends_with(if alive { " 1" } else { " 0" })
            .then_some(())
    };
    wait::until(&format!("{label} to be alive={alive}"), PATIENCE, seen)
}

/// The node that the group selects for TCP.
fn selected(honk: &Honk) -> Result<String> {
    let group = honk.home.json(&["group", "show", "proxy"])?;
    let name = group["now"]["tcp"]["selected_name"].as_str();
    let name = name.or_else(|| group["selection"]["tcp"]["leaf_name"].as_str());
    name.map(str::to_owned)
        .with_context(|| format!("no selection in {group}"))
}

#[test]
fn a_killed_node_is_left_and_nothing_leaks() {
    play("a_killed_node_is_left_and_nothing_leaks", |scene| {
        let config = config("fallback", "check_interval: 2s", "");
        let honk = Honk::start(&scene.lab, &config)?;
        becomes(&honk, "up1", true)?;
        leaves_by(scene, addr::HP)?;
        scene.wan.reset()?;
        scene.up1 = None;
        leaves_by(scene, addr::HP2)?;
        becomes(&honk, "up1", false)?;
        ensure!(scene.leaked(PROXIED)? == 0);
        // The first member is back, and the group stays where it is.
        scene.revive_up1()?;
        becomes(&honk, "up1", true)?;
        let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
        ensure!(seen.ip() == addr::HP2, "it went back to {seen}");
        ensure!(scene.leaked(PROXIED)? == 0);
        Ok(())
    });
}

#[test]
fn failed_flows_alone_make_urltest_switch() {
    play("failed_flows_alone_make_urltest_switch", |scene| {
        // Periodic probes would take a quarter of an hour.
        let config = config("urltest", "check_interval: 15m", "tolerance: 10000");
        let honk = Honk::start(&scene.lab, &config)?;
        becomes(&honk, "up1", true)?;
        becomes(&honk, "up2", true)?;
        let first = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip();
        let (fallen, other) = if first == addr::HP {
            (&mut scene.up1, "up2")
        } else {
            (&mut scene.up2, "up1")
        };
        *fallen = None;
        // Each flow is served all the same; two that fail first make the group leave the node.
        wait::until("the selection to follow", PATIENCE, || {
            scene.lab.hc1.run(|| client::whoami_tcp(PROXIED)).ok()?;
            (selected(&honk).ok()? == other).then_some(())
        })
    });
}

#[test]
fn a_silent_node_is_left() {
    play("a_silent_node_is_left", |scene| {
        let config = config("fallback", "check_interval: 2s", "");
        let honk = Honk::start(&scene.lab, &config)?;
        becomes(&honk, "up1", true)?;
        scene.wan.reset()?;
        let up1 = scene.up1.as_ref().context("up1")?;
        up1.faults().set(Fault::Blackhole);
        becomes(&honk, "up1", false)?;
        leaves_by(scene, addr::HP2)?;
        ensure!(scene.leaked(PROXIED)? == 0);
        Ok(())
    });
}

#[test]
fn a_slow_node_loses_to_a_fast_one() {
    play("a_slow_node_loses_to_a_fast_one", |scene| {
        let config = config(
            "urltest",
            "check_interval: 1s",
            "tolerance: 100\n passive_check: off",
        );
        let honk = Honk::start(&scene.lab, &config)?;
        becomes(&honk, "up1", true)?;
        becomes(&honk, "up2", true)?;
        for (slow, fast) in [(addr::HP, addr::HP2), (addr::HP2, addr::HP)] {
            let late = Fault::Delay(Duration::from_millis(1500));
            for (upstream, ip) in [(&scene.up1, addr::HP), (&scene.up2, addr::HP2)] {
                let upstream = upstream.as_ref().context("upstream")?;
                let fault = if ip == slow { late } else { Fault::None };
                upstream.faults().set(fault);
            }
            leaves_by(scene, fast)?;
        }
        Ok(())
    });
}

#[test]
fn a_flapping_node_does_not_make_the_group_flap() {
    play("a_flapping_node_does_not_make_the_group_flap", |scene| {
        let config = config("fallback", "check_interval: 1s", "");
        let honk = Honk::start(&scene.lab, &config)?;
        becomes(&honk, "up1", true)?;
        let changes =
            |honk: &Honk| honk.metric("honk_group_selection_changes_total", "network=\"tcp\"");
        let before = changes(&honk)?;
        let start = Instant::now();
        for _ in 0..2 {
            let up1 = scene.up1.as_ref().context("up1")?;
            up1.faults().set(Fault::Refuse);
            becomes(&honk, "up1", false)?;
            scene.up1.as_ref().context("up1")?.faults().set(Fault::None);
            becomes(&honk, "up1", true)?;
        }
        let (switches, time) = (changes(&honk)? - before, start.elapsed());
        // Away from the one that flaps, once; at most one more for every ten seconds.
        let most = 1.0 + time.as_secs_f64() / 10.0;
        ensure!((1.0..=most).contains(&switches), "{switches} in {time:?}");
        Ok(())
    });
}

#[test]
fn a_check_url_of_a_group_decides_for_it() {
    play("a_check_url_of_a_group_decides_for_it", |scene| {
        // Nobody listens there: the group's own check fails, the nodes are fine.
        let url = format!("check_url: 'http://{PROXIED}:9/'\n final: direct");
        let config = config("fallback", "check_interval: 1s", &url);
        let honk = Honk::start(&scene.lab, &config)?;
        leaves_by(scene, addr::HG_WAN)?;
        drop(honk);
        let url = format!("check_url: 'http://{BLOCKED}/'\n final: direct");
        let config = self::config("fallback", "check_interval: 1s", &url);
        let _honk = Honk::start(&scene.lab, &config)?;
        leaves_by(scene, addr::HP)
    });
}

#[test]
fn a_reload_keeps_what_is_known() {
    play("a_reload_keeps_what_is_known", |scene| {
        let config = config("fallback", "check_interval: 1s", "");
        scene.up1 = None;
        let honk = Honk::start(&scene.lab, &config)?;
        becomes(&honk, "up1", false)?;
        honk.reload(&config.replace("check_interval: 1s", "check_interval: 15m"))?;
        ensure!(selected(&honk)? == "up2");
        becomes(&honk, "up1", false)?;
        let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
        ensure!(seen.ip() == addr::HP2);
        Ok(())
    });
}

#[test]
fn nodes_that_cannot_be_built_are_left_out() {
    play("nodes_that_cannot_be_built_are_left_out", |scene| {
        let bad = |count: u16| -> String {
            let lines = (1..=count).map(|n| format!("bad{n}: 'socks5://0.0.0.0:{n}'\n"));
            let nodes = format!("node {{\n{}", lines.collect::<String>());
            config("fallback", "", "").replace("node {", &nodes)
        };
        let honk = Honk::start(&scene.lab, &bad(1))?;
        ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        let status = honk.home.json(&["status"])?;
        let banner = status["banner"]["text"].as_str();
        ensure!(banner == Some("1 node disabled: bad1"), "{status}");
        ensure!(honk.metric("honk_node_rejections_total", "")? == 1.0);
        let nodes = honk.home.json(&["node", "list"])?.to_string();
        ensure!(nodes.contains("no server's"), "{nodes}");
        let home = honk.home.clone();
        let verdicts = home.state.join("state/verdicts.json");
        ensure!(std::fs::metadata(&verdicts)?.permissions().mode() & 0o777 == 0o600);
        ensure!(honk.stop()?.success());
        // The word stands: the next start has nothing to find.
        let honk = Honk::start_in(home.clone())?;
        ensure!(honk.metric("honk_node_rejections_total", "")? == 0.0);
        ensure!(honk.home.json(&["status"])?["banner"].is_null());
        ensure!(honk.metric("honk_node_disabled", "node=\"bad1\"")? == 1.0);
        ensure!(honk.stop()?.success());
        // Eleven more are too many at once.
        home.write(&bad(12))?;
        let (status, text) = home.run_refused()?;
        ensure!(status.code() == Some(3), "{status}: {text}");
        ensure!(text.contains("--keep-checking"), "{text}");
        Ok(())
    });
}

#[test]
fn ctrl_c_calls_a_measurement_off_at_the_daemon() {
    play("ctrl_c_calls_a_measurement_off_at_the_daemon", |scene| {
        let honk = Honk::start(&scene.lab, &config("fallback", "check_interval: 15m", ""))?;
        becomes(&honk, "up1", true)?;
        let up1 = scene.up1.as_ref().context("up1")?;
        up1.faults().set(Fault::Blackhole);
        let args = ["--json", "node", "ping", "up1", "--timeout", "30s"];
        let mut command = honk.home.command(&args)?;
        command.stdout(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        let states = || -> Option<Vec<String>> {
            let text = honk.api("/api/v1/tests").ok()?;
            let list: serde_json::Value = serde_json::from_str(&text).ok()?;
            let items = list["items"].as_array()?.iter();
            Some(
                items
                    .filter_map(|t| t["state"].as_str().map(str::to_owned))
                    .collect(),
            )
        };
        let began = wait::until("the run to begin", PATIENCE, || {
            states()?.iter().any(|s| s == "running").then_some(())
        });
        let pid = i32::try_from(child.id()).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        let signal = rustix::process::Signal::INT;
        rustix::process::kill_process(pid.context("pid")?, signal)?;
        let ended = wait::until("the client to end", PATIENCE, || {
            child.try_wait().ok().flatten()
        });
        if ended.is_err() {
            let _ = child.kill();
        }
        let output = child.wait_with_output()?;
        began?;
        let status = ended?;
        ensure!(status.code() == Some(130), "{status}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(text.contains("cancelled"), "{text}");
        let states = states().context("no list of tests")?;
        ensure!(states == ["cancelled"], "{states:?}");
        Ok(())
    });
}
