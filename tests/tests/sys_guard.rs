//! The early drop program in the lab: in the driver of a veth and in front of the stack of a
//! bridge, beside a foreign XDP program, over reload, crash and stop.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::{Home, Honk};
use honk_tests::lab::{Profile, addr};
use honk_tests::scene::{BLOCKED, DIRECT, PROXIED, Scene, at, config_of, play_with};
use honk_tests::{client, tcx, tool, wait};

const PATIENCE: Duration = Duration::from_secs(30);

fn config(rules: &str) -> String {
    let scene = config_of("lan", "", rules);
    format!("{scene}\nexperimental {{\n    datapath {{\n        xdp_guard: true\n    }}\n}}\n")
}

/// Programs on the LAN interface, as `honk status` shows them.
fn hooks(home: &Home) -> Result<Vec<String>> {
    let status = home.json(&["status"])?;
    let interfaces = status["datapath"]["interfaces"]
        .as_array()
        .context("no interfaces")?;
    let lan = interfaces.iter().find(|i| i["name"] == "lan");
    let hooks = lan.context("lan is not listed")?["hooks"].as_array();
    let name = |h: &serde_json::Value| h.as_str().unwrap_or_default().to_owned();
    Ok(hooks.context("no hooks")?.iter().map(name).collect())
}

/// The kernel's own account of XDP on an interface.
fn has_xdp(scene: &Scene) -> Result<bool> {
    let shown = scene.lab.hg.run(|| tool::ip("-d link show dev lan"))?;
    Ok(shown.contains("xdp"))
}

fn datagrams(scene: &Scene, count: usize) -> Result<()> {
    scene.lab.hc1.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for _ in 0..count {
            socket.send_to(b"to nobody", at(BLOCKED, 9))?;
        }
        Ok(())
    })
}

/// Sends until a counter has grown.
fn until_grown(scene: &Scene, honk: &Honk, stat: &str) -> Result<()> {
    let before = honk.stat(stat)?;
    wait::ok(stat, PATIENCE, || {
        datagrams(scene, 5)?;
        ensure!(honk.stat(stat)? > before, "{stat} does not grow");
        Ok(())
    })
}

/// What passes goes where the rules say.
fn ways_are_open(scene: &Scene) -> Result<()> {
    for (to, from) in [(PROXIED, addr::HP), (DIRECT, addr::HG_WAN)] {
        let tcp = scene.lab.hc1.run(|| client::whoami_tcp(to));
        let udp = scene.lab.hc1.run(|| client::whoami_udp(to));
        for (kind, seen) in [("TCP", tcp), ("UDP", udp)] {
            let seen = seen.with_context(|| format!("{kind} to {to}"))?.ip();
            ensure!(seen == from, "{kind} to {to} came from {seen}");
        }
    }
    Ok(())
}

fn drops_early(scene: &Scene, mode: &str) -> Result<()> {
    let honk = Honk::start(&scene.lab, &config(""))?;
    let home = Home::new(&scene.lab);
    let shown = hooks(&home)?;
    ensure!(
        shown.iter().any(|h| h == mode),
        "hooks are {shown:?}, not {mode}"
    );
    ensure!(shown.len() == 3, "{shown:?}");
    until_grown(scene, &honk, "xdp_drop")?;
    ensure!(honk.stat("block")? == 0.0, "lan_ingress saw some, too");
    ways_are_open(scene)?;
    // A connection is refused, not swallowed.
    let refused = scene.lab.hc1.run(|| client::connect(at(BLOCKED, 9)));
    let error = refused.err().context("a blocked connection was opened")?;
    ensure!(format!("{error:#}").contains("refused"), "{error:#}");
    // Rules that do not block any more count at once.
    honk.reload(&config("dip(198.51.100.132) -> direct"))?;
    scene
        .lab
        .hc1
        .run(|| client::whoami_udp(BLOCKED))
        .context("after the reload")?;
    honk.reload(&config(""))?;
    until_grown(scene, &honk, "xdp_drop")?;
    ensure!(honk.stop()?.success(), "stop failed");
    ensure!(!has_xdp(scene)?, "the program outlived the stop");
    Ok(())
}

#[test]
fn blocked_datagrams_end_in_the_driver() {
    play_with(
        "blocked_datagrams_end_in_the_driver",
        Profile::Flat,
        |scene| drops_early(scene, "xdp_guard"),
    );
}

#[test]
fn where_the_driver_cannot_the_stack_does() {
    play_with(
        "where_the_driver_cannot_the_stack_does",
        Profile::Bridge,
        |scene| drops_early(scene, "xdp_guard (generic)"),
    );
}

#[test]
fn a_foreign_program_keeps_its_place() {
    play_with(
        "a_foreign_program_keeps_its_place",
        Profile::Flat,
        |scene| {
            let _foreign = tcx::xdp_pass(&scene.lab.hg, "lan")?;
            let honk = Honk::start(&scene.lab, &config(""))?;
            let shown = hooks(&Home::new(&scene.lab))?;
            ensure!(shown.len() == 2, "{shown:?}");
            until_grown(scene, &honk, "block")?;
            ensure!(honk.stat("xdp_drop")? == 0.0, "somebody dropped early");
            ways_are_open(scene)?;
            ensure!(honk.stop()?.success(), "stop failed");
            ensure!(has_xdp(scene)?, "the foreign program is gone");
            Ok(())
        },
    );
}

#[test]
fn after_a_crash_the_rules_hold_without_it() {
    play_with(
        "after_a_crash_the_rules_hold_without_it",
        Profile::Flat,
        |scene| {
            let honk = Honk::start(&scene.lab, &config(""))?;
            until_grown(scene, &honk, "xdp_drop")?;
            honk.kill()?;
            wait::ok("the program goes", PATIENCE, || {
                ensure!(!has_xdp(scene)?, "it is still there");
                Ok(())
            })?;
            scene.wan.reset()?;
            datagrams(scene, 20)?;
            scene.wan.settle()?;
            ensure!(scene.leaked(BLOCKED)? == 0, "blocked datagrams left");
            let honk = Honk::start(&scene.lab, &config(""))?;
            until_grown(scene, &honk, "xdp_drop")?;
            ensure!(honk.stop()?.success(), "stop failed");
            Ok(())
        },
    );
}
