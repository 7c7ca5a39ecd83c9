//! What domain rules promise: names that clients resolve through the gateway decide where the
//! flows to their addresses go, in the kernel, from the first packet on.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::client;
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::netns::Netns;
use honk_tests::scene::{DIRECT, DIRECT_V6, PROXIED, at, config_with, play};
use honk_tests::serve::DNS;

/// Names below it lead to `DIRECT`; their rule says proxy.
const RULE: &str = "domain(suffix: a.o1.test) -> proxy";

const SERVFAIL: u8 = 2;
const REFUSED: u8 = 5;

/// Source addresses that the origin sees, over TCP and UDP.
fn seen(ns: &Netns, ip: IpAddr) -> Result<[IpAddr; 2]> {
    let tcp = ns.run(|| client::whoami_tcp(ip))?.ip();
    let udp = ns.run(|| client::whoami_udp(ip))?.ip();
    Ok([tcp, udp])
}

/// Resolves a name at a server.
fn ask(ns: &Netns, server: IpAddr, name: &str) -> Result<Vec<IpAddr>> {
    ns.run(|| client::dns(at(server, DNS), name, false))
        .with_context(|| format!("{name} at {server}"))
}

fn code(answer: &[u8]) -> Result<u8> {
    Ok(answer.get(3).context("a short answer")? & 15)
}

/// Names of an address as the daemon tells them.
fn names(honk: &Honk, ip: IpAddr) -> Result<Vec<String>> {
    let map = honk.home.json(&["dns", "map", "--ip", &ip.to_string()])?;
    let items = map["items"].as_array().context("items")?.clone();
    let names = items.iter().filter_map(|i| i["names"].as_array()).flatten();
    Ok(names
        .filter_map(|n| Some(n["name"].as_str()?.to_owned()))
        .collect())
}

#[test]
fn a_resolved_name_decides_tcp_and_udp_from_the_first_packet() {
    play(
        "a_resolved_name_decides_tcp_and_udp_from_the_first_packet",
        |scene| {
            let honk = scene.honk_with(RULE)?;
            let hc1 = scene.lab.hc1.clone();
            ensure!(seen(&hc1, DIRECT)? == [addr::HG_WAN; 2], "no name yet");
            // Nobody's rule is about this one.
            ensure!(ask(&hc1, DIRECT, "b.o1.test")? == [DIRECT]);
            ensure!(seen(&hc1, DIRECT)? == [addr::HG_WAN; 2]);
            ensure!(names(&honk, DIRECT)? == ["b.o1.test"]);
            let decided = honk.metric("honk_route_decisions_total", "")?;
            ensure!(decided > 0.0, "no metric");
            drop(honk);

            // Through the proxy as through the direct way, over UDP as over TCP.
            for (server, tcp) in [
                (DIRECT, false),
                (DIRECT, true),
                (PROXIED, false),
                (PROXIED, true),
            ] {
                let honk = scene.honk_with(RULE)?;
                let resolve = if tcp { client::dns_tcp } else { client::dns };
                let found = hc1.run(|| resolve(at(server, DNS), "www.A.o1.test", false))?;
                ensure!(found == [DIRECT], "{found:?}");
                ensure!(seen(&hc1, DIRECT)? == [addr::HP; 2], "{server} tcp={tcp}");
                ensure!(names(&honk, DIRECT)? == ["www.a.o1.test"]);
            }
            Ok(())
        },
    );
}

#[test]
fn names_of_ipv6_addresses_count_as_well() {
    play("names_of_ipv6_addresses_count_as_well", |scene| {
        let _honk = scene.honk_with(RULE)?;
        let hc1 = scene.lab.hc1.clone();
        ensure!(seen(&hc1, DIRECT_V6)? == [addr::HC1_V6; 2]);
        let found = hc1.run(|| client::dns(at(DIRECT_V6, DNS), "a.o1.test", true))?;
        ensure!(found == [DIRECT_V6], "{found:?}");
        ensure!(seen(&hc1, DIRECT_V6)? == [addr::HP_V6; 2]);
        // Of the other family nothing was asked.
        ensure!(seen(&hc1, DIRECT)? == [addr::HG_WAN; 2]);
        Ok(())
    });
}

#[test]
fn clients_that_share_an_address_go_by_the_names_they_asked_for() {
    play(
        "clients_that_share_an_address_go_by_the_names_they_asked_for",
        |scene| {
            let honk = scene.honk_with(RULE)?;
            let (hc1, hc2) = (scene.lab.hc1.clone(), scene.lab.hc2.clone());
            ask(&hc1, DIRECT, "a.o1.test")?;
            ask(&hc2, DIRECT, "b.o1.test")?;
            ensure!(names(&honk, DIRECT)?.len() == 2);
            ensure!(honk.metric("honk_dns_map_ambiguous_ips", "")? == 1.0);
            ensure!(seen(&hc1, DIRECT)? == [addr::HP; 2]);
            ensure!(seen(&hc2, DIRECT)? == [addr::HG_WAN; 2]);
            // The last name counts.
            ask(&hc2, DIRECT, "a.o1.test")?;
            ensure!(seen(&hc2, DIRECT)? == [addr::HP; 2]);
            Ok(())
        },
    );
}

#[test]
fn a_must_rule_keeps_queries_out_of_it() {
    play("a_must_rule_keeps_queries_out_of_it", |scene| {
        let rules = format!("dip({DIRECT}) && dport(53) -> must_direct\n{RULE}");
        let honk = scene.honk_with(&rules)?;
        let hc1 = scene.lab.hc1.clone();
        ensure!(ask(&hc1, DIRECT, "a.o1.test")? == [DIRECT]);
        ensure!(names(&honk, DIRECT)?.is_empty(), "it was looked at");
        ensure!(seen(&hc1, DIRECT)? == [addr::HG_WAN; 2]);
        // Relayed, but not looked at.
        drop(honk);
        let rules = format!("dip({DIRECT}) && dport(53) -> must_proxy\n{RULE}");
        let honk = scene.honk_with(&rules)?;
        ensure!(ask(&hc1, DIRECT, "whoami.test")? == [addr::HP]);
        ask(&hc1, DIRECT, "a.o1.test")?;
        hc1.run(|| client::dns_tcp(at(DIRECT, DNS), "a.o1.test", false))?;
        ensure!(names(&honk, DIRECT)?.is_empty(), "it was looked at");
        Ok(())
    });
}

#[test]
fn hostile_answers_teach_nothing() {
    play("hostile_answers_teach_nothing", |scene| {
        let honk = scene.honk_with(RULE)?;
        let hc1 = scene.lab.hc1.clone();
        let found = ask(&hc1, DIRECT, "forged.a.o1.test")?;
        ensure!(found == [DIRECT], "a forgery came through: {found:?}");
        ensure!(honk.metric("honk_dns_spoof_mismatch_total", "")? == 2.0);
        ensure!(names(&honk, DIRECT)? == ["forged.a.o1.test"]);
        ensure!(names(&honk, addr::HO[2])?.is_empty());
        // What cannot be read is as good as no answer.
        let answer = hc1.run(|| client::dns_raw(at(DIRECT, DNS), "cut.a.o1.test"))?;
        ensure!(code(&answer)? == SERVFAIL, "{answer:?}");
        ensure!(honk.metric("honk_dns_timeouts_total", "")? == 1.0);
        ensure!(honk.metric("honk_dns_malformed_total", "")? == 1.0);
        ensure!(names(&honk, DIRECT)? == ["forged.a.o1.test"]);
        Ok(())
    });
}

#[test]
fn a_truncated_answer_reaches_the_client_and_tcp_teaches() {
    play(
        "a_truncated_answer_reaches_the_client_and_tcp_teaches",
        |scene| {
            let honk = scene.honk_with(RULE)?;
            let hc1 = scene.lab.hc1.clone();
            let answer = hc1.run(|| client::dns_raw(at(DIRECT, DNS), "tc.a.o1.test"))?;
            ensure!(answer[2] & 2 != 0, "not truncated: {answer:?}");
            ensure!(names(&honk, DIRECT)?.is_empty());
            let found = hc1.run(|| client::dns_tcp(at(DIRECT, DNS), "tc.a.o1.test", false))?;
            ensure!(found == [DIRECT]);
            ensure!(seen(&hc1, DIRECT)? == [addr::HP; 2]);
            Ok(())
        },
    );
}

#[test]
fn a_flood_of_unanswered_queries_is_refused_and_others_go_on() {
    play(
        "a_flood_of_unanswered_queries_is_refused_and_others_go_on",
        |scene| {
            let honk = scene.honk_with(RULE)?;
            let (hc1, hc2) = (scene.lab.hc1.clone(), scene.lab.hc2.clone());
            let refused = hc1.run(|| -> Result<bool> {
                let socket = client::udp(DIRECT)?;
                socket.set_read_timeout(Some(Duration::from_millis(5)))?;
                let mut buffer = [0; 1232];
                for id in 0..4000_u16 {
                    let query = client::dns_query(id, &format!("mute.n{id}.o1.test"), 1);
                    socket.send_to(&query, at(DIRECT, DNS))?;
                    // Now and then: no faster than the sockets on the way take them.
                    if id % 16 == 15
                        && let Ok((length, _)) = socket.recv_from(&mut buffer)
                        && code(&buffer[..length])? == REFUSED
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            })?;
            ensure!(refused, "4,000 queries without an answer");
            ensure!(honk.metric("honk_dns_refused_total", "capacity")? >= 1.0);
            ensure!(ask(&hc2, DIRECT, "a.o1.test")? == [DIRECT]);
            ensure!(seen(&hc2, DIRECT)? == [addr::HP; 2]);
            Ok(())
        },
    );
}

#[test]
fn clients_are_told_when_the_way_to_the_server_is_down() {
    play(
        "clients_are_told_when_the_way_to_the_server_is_down",
        |scene| {
            let honk = scene.honk_with(&format!("dip({DIRECT}) && dport(53) -> block"))?;
            let hc1 = scene.lab.hc1.clone();
            ensure!(ask(&hc1, PROXIED, "a.o1.test")? == [DIRECT]);
            let blocked = hc1.run(|| client::dns_raw(at(DIRECT, DNS), "a.o1.test"))?;
            ensure!(code(&blocked)? == REFUSED, "{blocked:?}");
            scene.up1 = None;
            let answer = hc1.run(|| client::dns_raw(at(PROXIED, DNS), "b.o1.test"))?;
            ensure!(code(&answer)? == SERVFAIL, "{answer:?}");
            ensure!(
                honk.metric("honk_dns_timeouts_total", "")? == 0.0,
                "only the deadline told"
            );
            Ok(())
        },
    );
}

#[test]
fn a_reload_judges_known_names_by_the_new_rules_at_once() {
    play(
        "a_reload_judges_known_names_by_the_new_rules_at_once",
        |scene| {
            let honk = scene.honk_with(RULE)?;
            let hc1 = scene.lab.hc1.clone();
            ask(&hc1, DIRECT, "a.o1.test")?;
            ensure!(seen(&hc1, DIRECT)? == [addr::HP; 2]);
            // Other lines before it: the old bits would mean something else.
            let more = "domain(suffix: x.test, y.test) -> block\n\
                        !domain(keyword: o1) && dport(4) -> block\n\
                        domain(full: a.o1.test) -> direct\n";
            honk.reload(&config_with(&format!("{more}{RULE}")))?;
            ensure!(seen(&hc1, DIRECT)? == [addr::HG_WAN; 2]);
            honk.reload(&config_with(
                "!domain(suffix: b.o1.test) && dip(198.51.100.131) -> proxy",
            ))?;
            ensure!(seen(&hc1, DIRECT)? == [addr::HP; 2]);
            // Without conditions on names, and with them again.
            honk.reload(&config_with(""))?;
            ensure!(seen(&hc1, DIRECT)? == [addr::HG_WAN; 2]);
            honk.reload(&config_with(RULE))?;
            ensure!(seen(&hc1, DIRECT)? == [addr::HP; 2]);
            ensure!(names(&honk, DIRECT)? == ["a.o1.test"]);
            Ok(())
        },
    );
}

#[test]
fn other_protocols_on_port_53_go_on_working() {
    play("other_protocols_on_port_53_go_on_working", |scene| {
        let honk = scene.honk_with(RULE)?;
        let hc1 = scene.lab.hc1.clone();
        // The server closes what it does not understand, with a reset or not; honk must let it.
        hc1.run(|| -> Result<()> {
            let mut stream = client::connect(at(DIRECT, DNS))?;
            stream.write_all(b"\0\x15SSH-2.0-not-a-query\r\n")?;
            match stream.read_to_end(&mut Vec::new()) {
                Ok(length) => ensure!(length == 0, "{length} bytes from nowhere"),
                Err(e) => ensure!(e.kind() == ErrorKind::ConnectionReset, "{e}"),
            }
            Ok(())
        })?;
        ensure!(honk.metric("honk_dns_opaque_total", "")? >= 1.0);
        Ok(())
    });
}
