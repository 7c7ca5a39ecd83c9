//! A Score group under way: it serves TCP and UDP, leaves a node that breaks without losing a
//! connection, and leaks nothing.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::client;
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::scene::{PROXIED, Scene, one_group, play};
use honk_tests::wait;

/// Longest wait for something to be learned; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(40);
/// Connections in a row that tell where a group goes.
const ROW: usize = 24;

/// Both upstreams in a Score group. Checks come too seldom to decide anything.
fn config() -> String {
    one_group("check_interval: 15m", "policy: score")
}

fn tcp(scene: &Scene) -> Result<IpAddr> {
    let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
    Ok(seen.ip())
}

fn udp(scene: &Scene) -> Result<IpAddr> {
    let seen = scene.lab.hc1.run(|| client::whoami_udp(PROXIED))?;
    Ok(seen.ip())
}

/// Connections that a group made again through another node, by outcome.
fn retries(honk: &Honk, outcome: &str) -> Result<u64> {
    let wanted = [
        "reason=\"retry\"".to_owned(),
        format!("outcome=\"{outcome}\""),
    ];
    let text = honk.metrics()?;
    let line = text.lines().find(|line| {
        line.starts_with("honk_group_races_total{") && wanted.iter().all(|w| line.contains(w))
    });
    let value = line.and_then(|line| line.rsplit(' ').next());
    Ok(value.map_or(Ok(0), str::parse)?)
}

#[test]
fn a_score_group_leaves_a_broken_node_and_loses_no_connection() {
    let name = "a_score_group_leaves_a_broken_node_and_loses_no_connection";
    play(name, |scene| {
        let honk = Honk::start(&scene.lab, &config())?;
        let known = [addr::HP, addr::HP2];
        let mut first = 0;
        for _ in 0..ROW {
            let seen = tcp(scene).context("a connection before anything broke")?;
            ensure!(known.contains(&seen), "{seen}");
            first += usize::from(seen == addr::HP);
        }
        ensure!(known.contains(&udp(scene)?));
        // The one that most connections took is gone, and nobody told the daemon.
        let left = if first > ROW / 2 {
            scene.up1 = None;
            addr::HP2
        } else {
            scene.up2 = None;
            addr::HP
        };
        scene.wan.reset()?;
        for _ in 0..ROW {
            let seen = tcp(scene).context("a connection after the node broke")?;
            ensure!(seen == left, "served by {seen}, which is gone");
        }
        ensure!(retries(&honk, "won")? >= 1, "no connection was made again");
        let before = retries(&honk, "won")?;
        // Where it fails for everybody it is not asked again for minutes.
        for _ in 0..ROW {
            tcp(scene).context("a connection after it was learned")?;
        }
        ensure!(
            retries(&honk, "won")? == before,
            "the broken node is asked on"
        );
        wait::until("UDP to leave by the other node", PATIENCE, || {
            (udp(scene).ok()? == left).then_some(())
        })?;
        ensure!(scene.leaked(PROXIED)? == 0);
        Ok(())
    });
}
