//! What the main job promises for single flows: where they go and what the origin sees.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use honk_tests::lab::addr;
use honk_tests::netns::Netns;
use honk_tests::scene::{BLOCKED, DIRECT, DIRECT_V6, PROXIED, PROXIED_V6, at, config_of, play};
use honk_tests::serve::{DNS, ECHO, ELSEWHERE, HTTP};
use honk_tests::{client, honk::Honk, tool};

/// Source addresses that the origin saw, over TCP and UDP.
fn seen(ns: &Netns, ip: IpAddr) -> Result<[IpAddr; 2]> {
    let tcp = ns.run(|| client::whoami_tcp(ip))?.ip();
    let udp = ns.run(|| client::whoami_udp(ip))?.ip();
    Ok([tcp, udp])
}

#[test]
fn direct_keeps_the_client_address_and_costs_no_cpu() {
    play(
        "direct_keeps_the_client_address_and_costs_no_cpu",
        |scene| {
            scene.lab.without_nat()?;
            let honk = scene.honk()?;
            ensure!(seen(&scene.lab.hc1, DIRECT)? == [addr::HC1; 2]);
            ensure!(seen(&scene.lab.hc1, DIRECT_V6)? == [addr::HC1_V6; 2]);
            ensure!(seen(&scene.lab.hc2, DIRECT)? == [addr::HC2; 2]);
            let (start, before) = (Instant::now(), honk.cpu_seconds()?);
            let payload = vec![42; 32 << 20];
            let back = scene
                .lab
                .hc1
                .run(|| client::echo_tcp(at(DIRECT, ECHO), &payload))?;
            ensure!(back == payload, "{} bytes came back", back.len());
            let used = honk.cpu_seconds()? - before;
            // What it does every second without any traffic is not the traffic's price.
            let idle = 0.02 * start.elapsed().as_secs_f64();
            ensure!(
                used <= 0.05 + idle,
                "the daemon used {used} s for 64 MiB of direct traffic"
            );
            Ok(())
        },
    );
}

#[test]
fn masquerade_of_the_host_still_works_for_direct() {
    play("masquerade_of_the_host_still_works_for_direct", |scene| {
        let _honk = scene.honk()?;
        ensure!(seen(&scene.lab.hc1, DIRECT)? == [addr::HG_WAN; 2]);
        Ok(())
    });
}

#[test]
fn proxied_flows_come_from_the_upstream() {
    play("proxied_flows_come_from_the_upstream", |scene| {
        let _honk = scene.honk()?;
        for ns in [&scene.lab.hc1, &scene.lab.hc2] {
            ensure!(seen(ns, PROXIED)? == [addr::HP; 2]);
            ensure!(seen(ns, PROXIED_V6)? == [addr::HP_V6; 2]);
        }
        ensure!(scene.leaked(PROXIED)? == 0 && scene.leaked(PROXIED_V6)? == 0);
        Ok(())
    });
}

#[test]
fn proxied_bytes_arrive_unchanged_both_ways() {
    play("proxied_bytes_arrive_unchanged_both_ways", |scene| {
        let _honk = scene.honk()?;
        let payload: Vec<u8> = (0..16_000_000_u32)
            .map(|n| (n.wrapping_mul(31) >> 7) as u8)
            .collect();
        for ip in [PROXIED, PROXIED_V6] {
            let back = scene
                .lab
                .hc1
                .run(|| client::echo_tcp(at(ip, ECHO), &payload))?;
            ensure!(
                back == payload,
                "{ip}: {} of {} bytes",
                back.len(),
                payload.len()
            );
        }
        Ok(())
    });
}

#[test]
fn http_connect_upstream_carries_tcp() {
    play("http_connect_upstream_carries_tcp", |scene| {
        let honk = scene.honk()?;
        honk.home.must(&["group", "select", "proxy", "up3"])?;
        for (ip, upstream) in [(PROXIED, addr::HP), (PROXIED_V6, addr::HP_V6)] {
            ensure!(scene.lab.hc1.run(|| client::whoami_tcp(ip))?.ip() == upstream);
        }
        let mut entries = scene.up1.as_ref().context("up1")?.opened();
        // The daemon's own checks go elsewhere.
        entries.retain(|target| !target.starts_with(&BLOCKED.to_string()));
        ensure!(entries.len() == 2, "{entries:?}");
        Ok(())
    });
}

#[test]
fn block_fails_fast_in_both_protocols() {
    play("block_fails_fast_in_both_protocols", |scene| {
        let _honk = scene.honk()?;
        let start = Instant::now();
        let url = format!("http://{}/whoami", at(BLOCKED, HTTP));
        let mut curl = scene.lab.hc1.command("curl");
        let output = tool::output(curl.args(["-sS", "--max-time", "60", &url]))?;
        let took = start.elapsed();
        // curl's 7 is a refused connection, 28 a time-out. A second SYN goes out after 1 s.
        ensure!(
            output.status.code() == Some(7),
            "a blocked flow ended with {}",
            output.status
        );
        ensure!(took < Duration::from_secs(10), "it took {took:?} to fail");
        let blocked = || client::briefly(|| client::whoami_udp(BLOCKED));
        let udp = scene.lab.hc1.run(blocked);
        ensure!(udp.is_err(), "a blocked datagram was answered");
        ensure!(scene.leaked(BLOCKED)? == 0);
        Ok(())
    });
}

#[test]
fn udp_replies_carry_the_asked_address() {
    play("udp_replies_carry_the_asked_address", |scene| {
        let _honk = scene.honk()?;
        for ip in [PROXIED, PROXIED_V6, DIRECT, DIRECT_V6] {
            scene.lab.hc1.run(|| -> Result<()> {
                let socket = client::udp(ip)?;
                for length in [1, 100, 1200, 1400] {
                    // ask_udp fails when the answer comes from elsewhere.
                    let back = client::ask_udp(&socket, at(ip, ECHO), &vec![9; length])?;
                    ensure!(back == vec![9; length], "{ip}: {} of {length}", back.len());
                }
                Ok(())
            })?;
        }
        Ok(())
    });
}

#[test]
fn t32_replies_from_elsewhere_reach_the_client() {
    play("t32_replies_from_elsewhere_reach_the_client", |scene| {
        let _honk = scene.honk()?;
        for ip in [PROXIED, PROXIED_V6] {
            let sources = scene.lab.hc1.run(|| -> Result<Vec<(String, String)>> {
                let socket = client::udp(ip)?;
                socket.send_to(b"?", at(ip, ELSEWHERE))?;
                let mut seen = Vec::new();
                for _ in 0..2 {
                    let mut buffer = [0; 64];
                    let (length, from) = socket
                        .recv_from(&mut buffer)
                        .context("an answer is missing")?;
                    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    seen.push((text, from.to_string()));
                }
                Ok(seen)
            })?;
            // The second answer names its own sender; the client must see the same.
            for (text, from) in sources {
                let honest = if text == "here" {
                    at(ip, ELSEWHERE).to_string()
                } else {
                    text
                };
                ensure!(from == honest, "the client saw {from}, sent by {honest}");
            }
        }
        Ok(())
    });
}

#[test]
fn dns_is_relayed_to_the_asked_server_by_its_rule() {
    play("dns_is_relayed_to_the_asked_server_by_its_rule", |scene| {
        let _honk = scene.honk()?;
        for (server, asker) in [(PROXIED, addr::HP), (DIRECT, addr::HG_WAN)] {
            let found = scene
                .lab
                .hc1
                .run(|| client::dns(at(server, DNS), "whoami.test", false))?;
            ensure!(found == [asker], "{server} was asked by {found:?}");
            let found = scene
                .lab
                .hc1
                .run(|| client::dns_tcp(at(server, DNS), "whoami.test", false))?;
            ensure!(found == [asker], "{server} over TCP: {found:?}");
        }
        Ok(())
    });
}

#[test]
fn every_match_kind_decides() {
    play("every_match_kind_decides", |scene| {
        let rules = "sip(10.66.0.12) && dport(7777) -> up2\n\
                     mac('02:66:00:00:00:11') && l4proto(udp) && dport(7777) -> up2\n\
                     !ipversion(4) && dport(7777) -> block\n\
                     dip(198.51.100.131/32) && sport(40500) -> up2\n\
                     dscp(8) -> up2";
        let _honk = scene.honk_with(rules)?;
        let (hc1, hc2) = (&scene.lab.hc1, &scene.lab.hc2);
        let via2 = addr::HP2;
        ensure!(hc2.run(|| client::whoami_tcp(DIRECT))?.ip() == via2, "sip");
        ensure!(
            hc1.run(|| client::whoami_udp(DIRECT))?.ip() == via2,
            "mac and l4proto"
        );
        ensure!(hc1.run(|| client::whoami_tcp(DIRECT))?.ip() == addr::HG_WAN);
        ensure!(
            hc1.run(|| client::briefly(|| client::whoami_tcp(DIRECT_V6)))
                .is_err(),
            "ipversion, negated"
        );
        let target = at(DIRECT, 7777);
        let from = hc1.run(|| client::read_whoami(client::connect_from(40500, target)?))?;
        ensure!(from.ip() == via2, "sport");
        let marked = hc1.run(|| -> Result<_> {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            socket.set_tos_v4(8 << 2)?;
            socket.connect_timeout(&target.into(), client::PATIENCE)?;
            client::read_whoami(socket.into())
        })?;
        ensure!(marked.ip() == via2, "dscp");
        Ok(())
    });
}

#[test]
fn flat_lan_without_a_bridge_works_too() {
    honk_tests::scene::play_with(
        "flat_lan_without_a_bridge_works_too",
        honk_tests::lab::Profile::Flat,
        |scene| {
            let _honk = Honk::start(&scene.lab, &config_of("lan", "", ""))?;
            ensure!(seen(&scene.lab.hc1, PROXIED)? == [addr::HP; 2]);
            ensure!(seen(&scene.lab.hc1, DIRECT)? == [addr::HG_WAN; 2]);
            Ok(())
        },
    );
}
