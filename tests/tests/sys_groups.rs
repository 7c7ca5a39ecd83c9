//! Groups under way: a switch moves new flows and leaves old ones, a dead upstream leaks nothing.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use honk_tests::client;
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::load::Load;
use honk_tests::scene::{DIRECT, PROXIED, PROXIED_V6, at, config, play};
use honk_tests::serve::{ECHO, Fault};
use honk_tests::wait;

#[test]
fn a_switch_moves_new_flows_and_leaves_old_ones() {
    play("a_switch_moves_new_flows_and_leaves_old_ones", |scene| {
        let honk = scene.honk()?;
        let hc1 = &scene.lab.hc1;
        let mut old = hc1.run(|| client::connect(at(PROXIED, ECHO)))?;
        let mut say = |word: &[u8; 4]| -> Result<()> {
            old.write_all(word)?;
            let mut back = [0; 4];
            old.read_exact(&mut back).context("the old flow broke")?;
            ensure!(&back == word);
            Ok(())
        };
        say(b"one!")?;
        honk.home.must(&["group", "select", "proxy", "up2"])?;
        let via2 = addr::HP2;
        ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == via2);
        ensure!(hc1.run(|| client::whoami_udp(PROXIED))?.ip() == via2);
        say(b"two!")?;
        honk.home.must(&["group", "select", "proxy", "up1"])?;
        ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        say(b"tri!")
    });
}

#[test]
fn tcp_and_udp_can_be_switched_apart() {
    play("tcp_and_udp_can_be_switched_apart", |scene| {
        let honk = scene.honk()?;
        let hc1 = &scene.lab.hc1;
        honk.home
            .must(&["group", "select", "proxy", "up2", "--network", "udp"])?;
        ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        ensure!(hc1.run(|| client::whoami_udp(PROXIED))?.ip() == addr::HP2);
        Ok(())
    });
}

#[test]
fn t70_switching_under_load_fails_no_flow() {
    play("t70_switching_under_load_fails_no_flow", |scene| {
        let honk = scene.honk()?;
        let wanted = [addr::HP, addr::HP2];
        let load = Load::start(&scene.lab.hc1, PROXIED, 200, &wanted);
        // A switch takes milliseconds; enough of them to meet a few hundred flows.
        for round in 0..200 {
            let member = if round % 2 == 0 { "up2" } else { "up1" };
            honk.home.must(&["group", "select", "proxy", member])?;
        }
        let (done, failed) = load.finish();
        ensure!(
            failed.is_empty(),
            "{} of {done}: {:?}",
            failed.len(),
            failed.first()
        );
        ensure!(done > 50, "only {done} flows");
        Ok(())
    });
}

#[test]
fn loadbalance_takes_the_upstreams_in_turn() {
    play("loadbalance_takes_the_upstreams_in_turn", |scene| {
        let _honk = Honk::start(&scene.lab, &automatic("loadbalance"))?;
        let hc1 = &scene.lab.hc1;
        let mut seen = Vec::new();
        for _ in 0..8 {
            seen.push(hc1.run(|| client::whoami_tcp(PROXIED))?.ip());
        }
        let via = |upstream| seen.iter().filter(|ip| **ip == upstream).count();
        ensure!((via(addr::HP), via(addr::HP2)) == (4, 4), "{seen:?}");
        Ok(())
    });
}

#[test]
fn a_pin_of_an_automatic_group_ends_with_the_next_activation() {
    play(
        "a_pin_of_an_automatic_group_ends_with_the_next_activation",
        |scene| {
            let honk = Honk::start(&scene.lab, &automatic("fallback"))?;
            let hc1 = &scene.lab.hc1;
            let upstream = || Ok::<_, anyhow::Error>(hc1.run(|| client::whoami_tcp(PROXIED))?.ip());
            ensure!(upstream()? == addr::HP);
            honk.home.must(&["group", "select", "proxy", "up2"])?;
            for _ in 0..3 {
                ensure!(upstream()? == addr::HP2);
            }
            honk.home.must(&["reload"])?;
            ensure!(upstream()? == addr::HP);
            Ok(())
        },
    );
}

#[test]
fn the_flow_that_finds_its_node_dead_is_served_by_another_one() {
    play(
        "the_flow_that_finds_its_node_dead_is_served_by_another_one",
        |scene| {
            let config = automatic("urltest")
                .replace("name(up1, up2)", "name(up1)")
                .replace(
                    "policy: urltest",
                    "filter: name(up2) [add_latency: 5s]\n policy: urltest",
                );
            let honk = Honk::start(&scene.lab, &config)?;
            let hc1 = &scene.lab.hc1;
            wait::until(
                "the first node to be measured",
                Duration::from_secs(40),
                || {
                    let cold = honk
                        .metric("honk_node_delay_seconds", "node=\"up1\"")
                        .unwrap_or(0.0);
                    (cold > 0.0).then_some(())
                },
            )?;
            // Measured is not published yet: a flow that comes too early races all members.
            wait::until(
                "flows to leave by it alone",
                Duration::from_secs(40),
                || {
                    let races = || honk.metric("honk_group_races_total", "").ok();
                    let before = races()?;
                    let seen = hc1.run(|| client::whoami_tcp(PROXIED)).ok()?;
                    (seen.ip() == addr::HP && races()? <= before).then_some(())
                },
            )?;
            scene.wan.reset()?;
            scene.up1 = None;
            // One failure is not the end of a node: the next flow still goes there first.
            let seen = hc1.run(|| client::whoami_tcp(PROXIED))?.ip();
            ensure!(seen == addr::HP2, "the origin saw {seen}");
            let races = honk.metric("honk_group_races_total", "reason=\"retry\"")?;
            ensure!(races >= 1.0, "{races} retries");
            ensure!(scene.leaked(PROXIED)? == 0);
            Ok(())
        },
    );
}

#[test]
fn a_choice_is_kept_though_its_node_fails() {
    play("a_choice_is_kept_though_its_node_fails", |scene| {
        let honk = scene.honk()?;
        scene.up1 = None;
        let hc1 = &scene.lab.hc1;
        for _ in 0..3 {
            ensure!(hc1.run(|| client::whoami_tcp(PROXIED)).is_err());
        }
        let text = honk.metrics()?;
        ensure!(!text.contains("honk_group_races_total{"), "{text}");
        Ok(())
    });
}

#[test]
fn the_first_flows_after_a_start_find_the_node_that_works() {
    play(
        "the_first_flows_after_a_start_find_the_node_that_works",
        |scene| {
            scene.up1 = None;
            let _honk = Honk::start(&scene.lab, &automatic("urltest"))?;
            // Measured or not yet: both networks are served from the first flow on.
            let hc1 = &scene.lab.hc1;
            ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP2);
            ensure!(hc1.run(|| client::whoami_udp(PROXIED))?.ip() == addr::HP2);
            Ok(())
        },
    );
}

/// The scene's group with two members and another policy.
fn automatic(policy: &str) -> String {
    config()
        .replace("name(up1, up2, up3)", "name(up1, up2)")
        .replace(
            "policy: selector\n        default: up1",
            &format!("policy: {policy}"),
        )
}

#[test]
fn a_dead_upstream_leaks_nothing_and_direct_goes_on() {
    play(
        "a_dead_upstream_leaks_nothing_and_direct_goes_on",
        |scene| {
            let _honk = scene.honk()?;
            scene.up1 = None;
            scene.wan.reset()?;
            let hc1 = scene.lab.hc1.clone();
            for ip in [PROXIED, PROXIED_V6] {
                let start = Instant::now();
                ensure!(
                    hc1.run(|| client::whoami_tcp(ip)).is_err(),
                    "{ip} was served"
                );
                ensure!(
                    start.elapsed() < client::PATIENCE,
                    "took {:?}",
                    start.elapsed()
                );
                ensure!(
                    hc1.run(|| client::briefly(|| client::whoami_udp(ip)))
                        .is_err(),
                    "{ip} was served over UDP"
                );
                // Silence, or an error that says so at once; never an address.
                let found =
                    hc1.run(|| client::briefly(|| client::dns(at(ip, 53), "www.test", false)));
                ensure!(found.unwrap_or_default().is_empty(), "{ip} was served");
                let found = hc1.run(|| client::dns_tcp(at(ip, 53), "www.test", false));
                ensure!(found.unwrap_or_default().is_empty(), "{ip} was served");
            }
            ensure!(hc1.run(|| client::whoami_tcp(DIRECT))?.ip() == addr::HG_WAN);
            let leaks = scene
                .wan
                .seen(|t| t.touches(PROXIED) || t.touches(PROXIED_V6))?;
            ensure!(leaks.is_empty(), "on the WAN: {leaks:?}");
            scene.revive_up1()?;
            // The node may have been found dead meanwhile; it comes back with its next checks.
            wait::until("the node to serve again", Duration::from_secs(40), || {
                let seen = hc1.run(|| client::whoami_tcp(PROXIED)).ok()?;
                (seen.ip() == addr::HP).then_some(())
            })
        },
    );
}

#[test]
fn t44_a_dead_upstream_takes_neither_gateway_nor_direct_dns_down() {
    play(
        "t44_a_dead_upstream_takes_neither_gateway_nor_direct_dns_down",
        |scene| {
            let _honk = scene.honk()?;
            scene.up1 = None;
            let page = std::thread::spawn({
                let hg = scene.lab.hg.clone();
                move || hg.run(|| std::net::TcpListener::bind("0.0.0.0:80"))
            });
            let listener = page.join().map_err(|_| anyhow::anyhow!("no listener"))??;
            scene
                .lab
                .hc1
                .run(|| client::connect(at(addr::HG_LAN, 80)))?;
            drop(listener);
            scene
                .lab
                .hc1
                .run(|| client::dns(at(DIRECT, 53), "www.test", false))?;
            Ok(())
        },
    );
}

#[test]
fn every_upstream_fault_is_contained() {
    play("every_upstream_fault_is_contained", |scene| {
        let _honk = scene.honk()?;
        let hc1 = scene.lab.hc1.clone();
        let up1 = scene.up1.as_ref().context("up1")?;
        scene.wan.reset()?;
        for fault in [Fault::Drop, Fault::Rst, Fault::Refuse] {
            up1.faults().set(fault);
            ensure!(
                hc1.run(|| client::whoami_tcp(PROXIED)).is_err(),
                "{fault:?} was served"
            );
        }
        up1.faults().set(Fault::Blackhole);
        ensure!(
            hc1.run(|| client::briefly(|| client::whoami_tcp(PROXIED)))
                .is_err()
        );
        up1.faults().set(Fault::Delay(Duration::from_millis(300)));
        ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        up1.faults().set(Fault::None);
        ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        ensure!(scene.leaked(PROXIED)? == 0);
        Ok(())
    });
}

#[test]
fn a_choice_survives_a_restart() {
    play("a_choice_survives_a_restart", |scene| {
        let honk = scene.honk()?;
        honk.home.must(&["group", "select", "proxy", "up2"])?;
        let home = honk.home.clone();
        ensure!(honk.stop()?.success());
        let _honk = Honk::start_in(home)?;
        let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip();
        ensure!(seen == addr::HP2, "after the restart the origin saw {seen}");
        Ok(())
    });
}
