//! UDP flows that userspace looks at first and finds direct (sections 6.4 and 9.4).

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::scene::{DIRECT, DIRECT_V6, Scene, at, config_of, play};
use honk_tests::serve::{ECHO, WHOAMI};
use honk_tests::{client, wait};
use honk_wire::sniff::craft::client_hello;
use honk_wire::sniff::quic::{Version, craft};

/// A name could overrule every direct verdict, so the kernel asks for each.
const RULE: &str = "domain(full: up.test) -> proxy";
const MODE: &str = "dial_mode: 'domain++'\n    sniffing_timeout: 10s";

fn honk(scene: &Scene, further: &str) -> Result<Honk> {
    let global = format!("{MODE}\n    {further}");
    Honk::start(&scene.lab, &config_of("lan", &global, RULE))
}

/// A QUIC hello with a name, in two Initial packets.
fn hello(name: &str) -> Result<[Vec<u8>; 2]> {
    let message = client_hello(Some(name), false, 1200);
    let (a, b) = message.split_at(700);
    let packet = |number, at, data| {
        let frames = craft::crypto_frame(at, data);
        craft::initial(Version::V1, &[6; 8], number, &frames).context("an Initial packet")
    };
    Ok([packet(0, 0, a)?, packet(1, 700, b)?])
}

fn received(socket: &UdpSocket, from: SocketAddr) -> Result<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let (length, source) = socket.recv_from(&mut buffer).context("no echo")?;
    ensure!(source == from, "answered from {source}");
    buffer.truncate(length);
    Ok(buffer)
}

/// Datagrams of clients that userspace has seen.
fn seen_by_userspace(honk: &Honk) -> Result<f64> {
    honk.metric("honk_udp_datagrams_total", "received")
}

fn handed_back(honk: &Honk) -> Result<f64> {
    honk.metric("honk_relay_stat_total", "udp_handed_back")
}

#[test]
fn t68_direct_flows_go_back_to_the_kernel_with_their_first_datagrams() {
    play(
        "t68_direct_flows_go_back_to_the_kernel_with_their_first_datagrams",
        |scene| {
            let honk = honk(scene, "")?;
            let origin_saw = scene.origin.datagrams();
            let client_of = |ip: IpAddr| match ip {
                IpAddr::V4(_) => addr::HG_WAN,
                IpAddr::V6(_) => addr::HC1_V6,
            };
            for ip in [DIRECT, DIRECT_V6] {
                let socket = scene.lab.hc1.run(|| client::udp(ip))?;
                let port = socket.local_addr()?.port();
                let to = at(ip, ECHO);
                let packets = hello("plain.test")?;
                for packet in &packets {
                    socket.send_to(packet, to)?;
                }
                for packet in &packets {
                    ensure!(received(&socket, to)? == *packet, "{ip}: order or bytes");
                }
                let before = seen_by_userspace(&honk)?;
                ensure!(before >= 2.0, "userspace never saw the flow: {before}");
                for n in 0..50_u8 {
                    let back = client::ask_udp(&socket, to, &[n; 600])?;
                    ensure!(back == [n; 600], "{ip}: datagram {n}");
                }
                let after = seen_by_userspace(&honk)?;
                ensure!(after == before, "{ip}: {} more came up", after - before);
                // Only the client itself was seen outside, with its own port.
                let out = scene.wan.seen(|t| t.dst == ip && t.dport == ECHO)?;
                let sources: Vec<_> = out.iter().map(|(t, n)| (t.src, t.sport, *n)).collect();
                ensure!(sources == [(client_of(ip), port, 52)], "{ip}: {sources:?}");
            }
            ensure!(scene.origin.datagrams() - origin_saw == 104);
            let kernel = || honk.stat("reinject").is_ok_and(|n| n == 4.0).then_some(());
            wait::until("the kernel's count", Duration::from_secs(20), kernel)?;
            ensure!(handed_back(&honk)? == 2.0);
            ensure!(honk.metric("honk_udp_tunnels", "")? == 0.0, "relayed");
            Ok(())
        },
    );
}

#[test]
fn a_flow_that_is_no_quic_goes_back_at_once_and_a_long_datagram_is_relayed() {
    play(
        "a_flow_that_is_no_quic_goes_back_at_once_and_a_long_datagram_is_relayed",
        |scene| {
            let honk = honk(scene, "")?;
            let seen = scene.lab.hc1.run(|| client::whoami_udp(DIRECT_V6))?;
            ensure!(seen.ip() == addr::HC1_V6, "{seen}");
            ensure!(handed_back(&honk)? == 1.0);
            // Fragments would not find their way back: the daemon relays such a flow.
            let long: Vec<u8> = (0..4000_u32).map(|n| (n % 251) as u8).collect();
            let back = scene.lab.hc1.run(|| -> Result<_> {
                let socket = client::udp(DIRECT)?;
                client::ask_udp(&socket, at(DIRECT, ECHO), &long)
            })?;
            ensure!(back == long, "{} bytes", back.len());
            ensure!(handed_back(&honk)? == 1.0);
            let failed = honk.metric("honk_relay_stat_total", "udp_hand_backs_failed")?;
            ensure!(failed == 1.0, "{failed} flows relayed instead");
            Ok(())
        },
    );
}

#[test]
fn flows_by_name_still_go_to_the_proxy() {
    play("flows_by_name_still_go_to_the_proxy", |scene| {
        let honk = honk(scene, "")?;
        let [first, second] = hello("up.test")?;
        // The parts of a hello are awaited for 250 ms, which a busy machine may miss.
        let attempt = || -> Result<()> {
            let socket = scene.lab.hc1.run(|| client::udp(DIRECT))?;
            socket.send_to(&first, at(DIRECT, ECHO))?;
            socket.send_to(&second, at(DIRECT, ECHO))?;
            received(&socket, at(DIRECT, ECHO))?;
            let up1 = scene.up1.as_ref().context("up1")?;
            let target = format!("up.test:{ECHO}");
            ensure!(up1.opened().contains(&target), "{:?}", up1.opened());
            Ok(())
        };
        wait::ok("a QUIC flow by name", Duration::from_secs(20), attempt)?;
        ensure!(honk.metric("honk_udp_tunnels", "")? >= 1.0);
        Ok(())
    });
}

#[test]
fn without_hand_back_direct_flows_are_relayed() {
    play("without_hand_back_direct_flows_are_relayed", |scene| {
        let honk = honk(scene, "nfqueue_enable: false")?;
        let seen = scene.lab.hc1.run(|| client::whoami_udp(DIRECT_V6))?;
        ensure!(seen.ip() != addr::HC1_V6, "the daemon's own socket: {seen}");
        honk.counts("new_flows")?;
        ensure!(handed_back(&honk)? == 0.0 && honk.stat("reinject")? == 0.0);
        Ok(())
    });
}

#[test]
fn after_a_crash_what_went_back_goes_on_and_the_undecided_is_dropped() {
    play(
        "after_a_crash_what_went_back_goes_on_and_the_undecided_is_dropped",
        |scene| {
            let honk = honk(scene, "")?;
            let socket = scene.lab.hc1.run(|| client::udp(DIRECT))?;
            let to = at(DIRECT, ECHO);
            client::ask_udp(&socket, to, b"before")?;
            ensure!(handed_back(&honk)? == 1.0);
            let home = honk.home.clone();
            honk.kill()?;
            ensure!(client::ask_udp(&socket, to, b"after")? == b"after");
            scene.wan.reset()?;
            // Another flow would have to be looked at first: nobody is there to do it.
            let other = scene.lab.hc1.run(|| client::udp(DIRECT))?;
            for _ in 0..5 {
                other.send_to(&hello("up.test")?[0], at(DIRECT, WHOAMI))?;
            }
            ensure!(client::ask_udp(&socket, to, b"still")? == b"still");
            let leaks = scene.wan.seen(|t| t.port(WHOAMI))?;
            ensure!(leaks.is_empty(), "on the WAN: {leaks:?}");
            let honk = Honk::start_in(home)?;
            ensure!(client::ask_udp(&socket, to, b"again")? == b"again");
            ensure!(honk.stop()?.success());
            Ok(())
        },
    );
}
