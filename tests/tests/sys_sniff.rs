//! Names in the first bytes of flows: what they decide, and what the upstream is asked for.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::scene::{DIRECT, PROXIED, PROXIED_V6, Scene, at, config_of, play};
use honk_tests::serve::{DNS, ECHO, HTTP};
use honk_tests::{client, tool, wait};
use honk_wire::sniff::craft::{client_hello, records};
use honk_wire::sniff::quic::{Version, craft};

/// The daemon with a dial mode and rules before those of the scene. A long wait for first
/// bytes: a busy machine must not turn a name into none.
fn honk(scene: &Scene, mode: &str, rules: &str) -> Result<Honk> {
    let global = format!("dial_mode: '{mode}'\n    sniffing_timeout: 10s");
    Honk::start(&scene.lab, &config_of("lan", &global, rules))
}

fn upstream_was_asked(scene: &Scene, target: &str) -> Result<()> {
    let up1 = scene.up1.as_ref().context("up1")?;
    let asked = || up1.opened().iter().any(|t| t == target).then_some(());
    wait::until(target, Duration::from_secs(10), asked)
        .with_context(|| format!("the upstream was asked for {:?}", up1.opened()))
}

/// A hello as TLS records, as small as they get.
fn hello(name: &str) -> Vec<u8> {
    records(&client_hello(Some(name), false, 0), 16)
}

/// curl asks `ip` for a URL whose host is a name that only the upstream can look up.
fn curl(scene: &Scene, url: &str, host: &str, port: u16, ip: IpAddr) -> Result<(bool, String)> {
    let mut command = scene.lab.hc1.command("curl");
    command.args(["-sS", "-k", "--max-time", "10", "--resolve"]);
    command.arg(format!("{host}:{port}:{ip}")).arg(url);
    let output = tool::output(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.success(), text))
}

/// Who the HTTP origin saw.
fn seen(answer: &str) -> Result<IpAddr> {
    let line = answer.lines().next().unwrap_or_default();
    let address: std::net::SocketAddr = line
        .trim()
        .parse()
        .with_context(|| format!("whoami answered {answer:?}"))?;
    Ok(address.ip())
}

#[test]
fn the_upstream_is_asked_for_names_of_tls_and_http() {
    play("the_upstream_is_asked_for_names_of_tls_and_http", |scene| {
        let honk = honk(scene, "domain+", "")?;
        // The origin echoes the hello, which is no answer for curl; the name has done its work.
        let url = format!("https://secure.test:{ECHO}/");
        curl(scene, &url, "secure.test", ECHO, PROXIED)?;
        upstream_was_asked(scene, &format!("secure.test:{ECHO}"))?;
        for (upstream, source) in [("up1", addr::HP), ("up3", addr::HP)] {
            honk.home.must(&["group", "select", "proxy", upstream])?;
            let host = format!("{upstream}.test");
            let url = format!("http://{host}/whoami");
            let (_, answer) = curl(scene, &url, &host, HTTP, PROXIED)?;
            ensure!(seen(&answer)? == source, "{upstream}: {answer}");
            upstream_was_asked(scene, &format!("{host}:{HTTP}"))?;
        }
        let tls = honk.metric("honk_sniff_total", "kind=\"tls\",result=\"ok\"")?;
        let http = honk.metric("honk_sniff_total", "kind=\"http\",result=\"ok\"")?;
        ensure!((tls, http) == (1.0, 2.0), "{tls} TLS and {http} HTTP names");
        Ok(())
    });
}

#[test]
fn a_hello_in_many_pieces_is_found_and_arrives_unchanged() {
    play(
        "a_hello_in_many_pieces_is_found_and_arrives_unchanged",
        |scene| {
            let honk = honk(scene, "domain+", "")?;
            let mut bytes = hello("pieces.test");
            let cut = bytes.len() / 2;
            bytes.extend_from_slice(&vec![42; 1 << 20]);
            let (first, rest) = bytes.split_at(cut);
            scene.lab.hc1.run(|| -> Result<()> {
                let mut stream = client::connect(at(PROXIED, ECHO))?;
                stream.set_nodelay(true)?;
                stream.write_all(first)?;
                let mut reader = stream.try_clone()?;
                std::thread::scope(|scope| {
                    let want = bytes.len();
                    let back = scope.spawn(move || {
                        let mut back = Vec::with_capacity(want);
                        reader.read_to_end(&mut back).map(|_| back)
                    });
                    stream.write_all(rest)?;
                    stream.shutdown(Shutdown::Write)?;
                    let back = back.join().map_err(|_| anyhow::anyhow!("the reader"))??;
                    ensure!(back == bytes, "{} of {} bytes", back.len(), bytes.len());
                    Ok(())
                })
            })?;
            upstream_was_asked(scene, &format!("pieces.test:{ECHO}"))?;
            ensure!(honk.metric("honk_sniff_total", "result=\"ok\"")? == 1.0);
            Ok(())
        },
    );
}

#[test]
fn rules_by_name_overrule_rules_by_address() {
    play("rules_by_name_overrule_rules_by_address", |scene| {
        let rules = "domain(full: blocked.test) -> block
    domain(full: plain.test) -> direct
    domain(suffix: up.test) -> proxy";
        let _honk = honk(scene, "domain++", rules)?;
        let ask = |host: &str, ip| curl(scene, &format!("http://{host}/whoami"), host, HTTP, ip);
        // By address proxied, by name blocked or direct.
        let (served, _) = ask("blocked.test", PROXIED)?;
        ensure!(!served, "a blocked name was served");
        ensure!(seen(&ask("plain.test", PROXIED)?.1)? == addr::HG_WAN);
        // By address direct in the kernel, by name proxied.
        ensure!(seen(&ask("www.up.test", DIRECT)?.1)? == addr::HP);
        upstream_was_asked(scene, &format!("www.up.test:{HTTP}"))?;
        ensure!(seen(&ask("other.test", DIRECT)?.1)? == addr::HG_WAN);
        Ok(())
    });
}

#[test]
fn mode_domain_believes_names_that_were_answered() {
    play("mode_domain_believes_names_that_were_answered", |scene| {
        let rules = "domain(full: invented.test) -> block";
        let honk = honk(scene, "domain", rules)?;
        // Answered by the origin on its way through the gateway.
        let ask = || client::dns(at(PROXIED, DNS), "known.test", false);
        let answer = scene.lab.hc1.run(ask)?;
        ensure!(answer == [PROXIED], "{answer:?}");
        for (host, target) in [
            ("known.test", format!("known.test:{HTTP}")),
            // Neither blocked nor given to the upstream.
            ("invented.test", format!("{PROXIED}:{HTTP}")),
        ] {
            let url = format!("http://{host}/whoami");
            let (_, answer) = curl(scene, &url, host, HTTP, PROXIED)?;
            ensure!(seen(&answer)? == addr::HP, "{host}: {answer}");
            upstream_was_asked(scene, &target)?;
        }
        let verified = honk.metric("honk_sniff_checks_total", "\"verified\"")?;
        let unverified = honk.metric("honk_sniff_checks_total", "unverified")?;
        ensure!(
            (verified, unverified) == (1.0, 1.0),
            "{verified}, {unverified}"
        );
        Ok(())
    });
}

#[test]
fn mode_ip_keeps_to_addresses() {
    play("mode_ip_keeps_to_addresses", |scene| {
        let honk = honk(scene, "ip", "")?;
        let url = "http://some.test/whoami";
        let (_, answer) = curl(scene, url, "some.test", HTTP, PROXIED)?;
        ensure!(seen(&answer)? == addr::HP);
        upstream_was_asked(scene, &format!("{PROXIED}:{HTTP}"))?;
        ensure!(honk.metric("honk_sniff_total", "")? == 0.0);
        Ok(())
    });
}

#[test]
fn a_server_that_speaks_first_is_served_and_soon_left_alone() {
    play(
        "a_server_that_speaks_first_is_served_and_soon_left_alone",
        |scene| {
            let global = "dial_mode: 'domain++'\n    sniffing_timeout: 30ms";
            let honk = Honk::start(&scene.lab, &config_of("lan", global, ""))?;
            for _ in 0..4 {
                let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?;
                ensure!(seen.ip() == addr::HP);
            }
            let waited = honk.metric("honk_sniff_total", "result=\"timeout\"")?;
            let paused = honk.metric("honk_sniff_skipped_total", "paused")?;
            ensure!(
                (waited, paused) == (3.0, 1.0),
                "{waited} waits, {paused} let pass"
            );
            Ok(())
        },
    );
}

#[test]
fn quic_flows_are_named_and_answered_from_the_asked_address() {
    play(
        "quic_flows_are_named_and_answered_from_the_asked_address",
        |scene| {
            let rules = format!("l4proto(udp) && dip({DIRECT}) -> proxy");
            let honk = honk(scene, "domain+", &rules)?;
            for (n, version) in [Version::V1, Version::V2].into_iter().enumerate() {
                let name = format!("quic{n}.test");
                let message = client_hello(Some(&name), false, 1200);
                let (a, b) = message.split_at(700);
                let packet = |number, at, data| {
                    let frames = craft::crypto_frame(at, data);
                    craft::initial(version, &[5; 8], number, &frames).context("an Initial packet")
                };
                let (first, second) = (packet(0, 0, a)?, packet(1, 700, b)?);
                // Behind the name is another address than the one the client asks; it must not see
                // that. The parts of a hello are awaited for 250 ms, which a busy machine may miss.
                let attempt = || {
                    scene.lab.hc1.run(|| -> Result<()> {
                        let socket = client::udp(DIRECT)?;
                        socket.send_to(&second, at(DIRECT, ECHO))?;
                        let back = client::ask_udp(&socket, at(DIRECT, ECHO), &first)?;
                        ensure!(back == second || back == first, "{} bytes", back.len());
                        Ok(())
                    })?;
                    let up1 = scene.up1.as_ref().context("up1")?;
                    let target = format!("{name}:{ECHO}");
                    ensure!(up1.opened().contains(&target), "{:?}", up1.opened());
                    Ok(())
                };
                wait::ok("a QUIC flow by name", Duration::from_secs(20), attempt)?;
            }
            ensure!(honk.metric("honk_sniff_total", "kind=\"quic\",result=\"ok\"")? >= 2.0);
            ensure!(scene.leaked(DIRECT)? == 0);
            Ok(())
        },
    );
}

#[test]
fn the_list_of_connections_shows_names() {
    play("the_list_of_connections_shows_names", |scene| {
        let honk = honk(scene, "domain+", "")?;
        let stream = scene.lab.hc1.run(|| -> Result<_> {
            let mut stream = client::connect(at(PROXIED_V6, ECHO))?;
            let bytes = hello("listed.test");
            stream.write_all(&bytes)?;
            let mut back = vec![0; bytes.len()];
            stream.read_exact(&mut back)?;
            ensure!(back == bytes);
            Ok(stream)
        })?;
        let list = honk.home.json(&["conn", "list", "--host", "Listed.test"])?;
        let conn = list.pointer("/0").context("no connection")?;
        ensure!(
            conn["host"] == "listed.test" && conn["host_source"] == "sni",
            "{conn}"
        );
        ensure!(
            conn["dst"]["ip"] == PROXIED_V6.to_string().as_str(),
            "{conn}"
        );
        let none = honk.home.json(&["conn", "list", "--host", "other.test"])?;
        ensure!(none.pointer("/0").is_none(), "{none}");
        drop(stream);
        Ok(())
    });
}
