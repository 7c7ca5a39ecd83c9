//! Rules and reload (section 9.6).

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, Result, ensure};
use honk_tests::client;
use honk_tests::lab::addr;
use honk_tests::load::Load;
use honk_tests::meter::Meter;
use honk_tests::scene::{DIRECT, PROXIED, at, config_with, play};
use honk_tests::serve::{DISCARD, ECHO};

#[test]
fn t21_every_packet_of_a_marked_direct_flow_carries_the_mark() {
    play(
        "t21_every_packet_of_a_marked_direct_flow_carries_the_mark",
        |scene| {
            scene.lab.ip(
                &scene.lab.hg,
                "rule add fwmark 0x10 lookup 200\nroute add default via 192.0.2.1 table 200\n",
            )?;
            let second = Meter::start(&scene.lab.hw, "w2")?;
            let _honk = scene.honk_with(&format!("dip({DIRECT}) -> direct(mark: 0x10)"))?;
            scene.lab.hc1.run(|| -> Result<()> {
                let mut stream = client::connect(at(DIRECT, DISCARD))?;
                stream.write_all(&vec![7; 1 << 20])?;
                stream.shutdown(std::net::Shutdown::Write)?;
                let mut rest = Vec::new();
                stream
                    .read_to_end(&mut rest)
                    .context("the upload did not end")?;
                Ok(())
            })?;
            let sent = |t: &honk_tests::meter::Tuple| t.dst == DIRECT && t.dport == DISCARD;
            ensure!(second.count(sent)? > 10, "nothing took the marked route");
            ensure!(scene.wan.count(sent)? == 0, "packets without the mark");
            Ok(())
        },
    );
}

#[test]
fn t45_live_flows_keep_their_group_when_groups_are_reordered() {
    play(
        "t45_live_flows_keep_their_group_when_groups_are_reordered",
        |scene| {
            let honk = scene.honk()?;
            let hc1 = scene.lab.hc1.clone();
            let mut stream = hc1.run(|| client::connect(at(PROXIED, ECHO)))?;
            let more = |names: &[&str]| {
                let groups: String = names
                    .iter()
                    .map(|name| format!("group {{ {name} {{ filter: name(up2) }} }}\n"))
                    .collect();
                let rules: String = names
                    .iter()
                    .enumerate()
                    .map(|(n, name)| format!("dip(203.0.113.{}) -> {name}\n", n + 50))
                    .collect();
                format!("{groups}{}", config_with(&rules))
            };
            for names in [&["a"][..], &["b", "a"], &["c", "b", "a"], &["a", "c"], &[]] {
                honk.reload(&more(names))?;
                stream.write_all(b"live")?;
                let mut back = [0; 4];
                stream
                    .read_exact(&mut back)
                    .with_context(|| format!("after {names:?}"))?;
                ensure!(
                    hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP,
                    "{names:?}"
                );
                ensure!(
                    hc1.run(|| client::whoami_udp(PROXIED))?.ip() == addr::HP,
                    "{names:?}"
                );
            }
            Ok(())
        },
    );
}

#[test]
fn t23_the_first_rule_wins_whatever_the_prefix_length() {
    play(
        "t23_the_first_rule_wins_whatever_the_prefix_length",
        |scene| {
            let rules = "dip(198.51.0.0/16) && dport(7777) -> up2\ndip(198.51.100.128/25) -> block";
            let _honk = scene.honk_with(rules)?;
            let hc1 = &scene.lab.hc1;
            ensure!(hc1.run(|| client::whoami_tcp(DIRECT))?.ip() == addr::HP2);
            let blocked = || client::briefly(|| client::connect(at(DIRECT, ECHO)));
            ensure!(hc1.run(blocked).is_err());
            Ok(())
        },
    );
}

#[test]
fn t71_the_last_of_1024_lines_counts_and_1025_are_refused() {
    play(
        "t71_the_last_of_1024_lines_counts_and_1025_are_refused",
        |scene| {
            let lines = |count: usize| {
                let mut text = String::new();
                for n in 0..count {
                    text.push_str(&format!(
                        "dip(203.0.{}.{}) -> block\n",
                        n / 250,
                        n % 250 + 1
                    ));
                }
                // The scene adds two rules and the fallback after these.
                text
            };
            let honk = scene.honk_with(&lines(1021))?;
            ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
            honk.home.write(&config_with(&lines(1022)))?;
            let output = honk.home.cli(&["reload"])?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.code() == Some(3), "{}: {text}", output.status);
            ensure!(text.contains("rule-too-many"), "{text}");
            ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
            Ok(())
        },
    );
}

#[test]
fn t69_no_flow_sees_half_of_a_rule_set() {
    play("t69_no_flow_sees_half_of_a_rule_set", |scene| {
        // Two sets that differ in every field; both send the destination to a known upstream.
        let one = format!("l4proto(tcp) && dport(7777) && dip({PROXIED}) -> up1");
        let two = "sip(10.66.0.0/24) && !dport(1-7776) -> up2";
        let honk = scene.honk_with(&one)?;
        let load = Load::start(&scene.lab.hc1, PROXIED, 150, &[addr::HP, addr::HP2]);
        for round in 0..30 {
            honk.reload(&config_with(if round % 2 == 0 { two } else { &one }))?;
        }
        let (done, failed) = load.finish();
        ensure!(
            failed.is_empty(),
            "{} of {done}: {:?}",
            failed.len(),
            failed.first()
        );
        ensure!(done > 50, "only {done} flows");
        let lost = honk.stat("route_nomatch")?;
        ensure!(lost == 0.0, "{lost} flows matched no rule");
        Ok(())
    });
}
