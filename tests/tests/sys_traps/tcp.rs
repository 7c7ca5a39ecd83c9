//! TCP (section 9.3).

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::client::{self, PATIENCE};
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::scene::{DIRECT, PROXIED, PROXIED_V6, at, config, config_of, config_with, play};
use honk_tests::serve::{CHARGEN, ECHO, WHOAMI};
use honk_tests::wait;

#[test]
fn t11_a_reused_port_gets_the_verdict_of_today() {
    play("t11_a_reused_port_gets_the_verdict_of_today", |scene| {
        let honk = scene.honk()?;
        let hc1 = scene.lab.hc1.clone();
        let ask = || -> Result<IpAddr> {
            let stream = hc1.run(|| client::connect_from(40001, at(PROXIED, WHOAMI)))?;
            client::read_whoami(stream).map(|seen| seen.ip())
        };
        let direct = config_with(&format!("dip({PROXIED}) -> direct"));
        ensure!(ask()? == addr::HP);
        honk.reload(&direct)?;
        ensure!(ask()? == addr::HG_WAN, "after the reload to direct");
        honk.reload(&config())?;
        ensure!(ask()? == addr::HP, "after the reload back");
        Ok(())
    });
}

#[test]
fn t13_a_tuple_in_time_wait_connects_again_at_once() {
    play("t13_a_tuple_in_time_wait_connects_again_at_once", |scene| {
        let _honk = scene.honk()?;
        let hc1 = scene.lab.hc1.clone();
        for to in [PROXIED, PROXIED_V6] {
            for round in 0..4 {
                // The whoami origin closes first, so the daemon's side holds the TIME_WAIT.
                let stream = hc1.run(|| client::connect_from(41_000, at(to, WHOAMI)))?;
                let again = client::sent_again(&stream)?;
                client::read_whoami(stream).with_context(|| format!("{to}, round {round}"))?;
                ensure!(
                    again == 0,
                    "{to}, round {round}: {again} segments sent again"
                );
            }
        }
        Ok(())
    });
}

#[test]
fn t14_syn_cookies_do_not_break_the_listener() {
    play("t14_syn_cookies_do_not_break_the_listener", |scene| {
        let honk = scene.honk()?;
        honk.private_ns()?
            .set_sysctl("net.ipv4.tcp_syncookies", "2")?;
        for n in 0..100 {
            let to = if n % 2 == 0 { PROXIED } else { PROXIED_V6 };
            scene
                .lab
                .hc1
                .run(|| client::whoami_tcp(to))
                .with_context(|| format!("flow {n}"))?;
        }
        Ok(())
    });
}

#[test]
fn t58_a_client_that_changes_its_mac_goes_on() {
    play("t58_a_client_that_changes_its_mac_goes_on", |scene| {
        let _honk = scene.honk()?;
        let hc1 = scene.lab.hc1.clone();
        let mut stream = hc1.run(|| client::connect(at(PROXIED, CHARGEN)))?;
        let mut buffer = vec![0; 1 << 16];
        let mut read = |bytes: usize| -> Result<()> {
            let mut left = bytes;
            while left > 0 {
                let now = stream
                    .read(&mut buffer[..left.min(1 << 16)])
                    .context("it stalled")?;
                ensure!(now > 0, "the download ended");
                left -= now;
            }
            Ok(())
        };
        read(4 << 20)?;
        scene
            .lab
            .ip(&hc1, "link set eth0 address 02:66:00:00:00:77\n")?;
        read(64 << 20)
    });
}

#[test]
fn t63_the_accepted_address_is_the_one_the_client_dialed() {
    play(
        "t63_the_accepted_address_is_the_one_the_client_dialed",
        |scene| {
            let _honk = scene.honk()?;
            for to in [PROXIED, PROXIED_V6] {
                let target: SocketAddr = at(to, ECHO);
                scene.lab.hc1.run(|| client::echo_tcp(target, b"who"))?;
                let opened = scene.up1.as_ref().context("up1")?.opened();
                ensure!(
                    opened.contains(&target.to_string()),
                    "{target} is not in {opened:?}"
                );
            }
            Ok(())
        },
    );
}

#[test]
fn t64_a_burst_of_connects_loses_no_syn() {
    play("t64_a_burst_of_connects_loses_no_syn", |scene| {
        let _honk = scene.honk()?;
        scene.lab.hc1.run(|| -> Result<()> {
            let sockets: Vec<socket2::Socket> = (0..1000)
                .map(|_| -> Result<_> {
                    let domain = socket2::Domain::IPV4;
                    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
                    socket.set_nonblocking(true)?;
                    let _ = socket.connect(&at(PROXIED, ECHO).into());
                    Ok(socket)
                })
                .collect::<Result<_>>()?;
            for (n, socket) in sockets.iter().enumerate() {
                wait_connected(socket).with_context(|| format!("connect {n}"))?;
            }
            // A listener with the usual 128 places would refuse most of them at first. The
            // machine itself may drop a few when nobody else gets to run.
            let mut again = 0;
            for socket in &sockets {
                again += client::sent_again(socket)?.min(1);
            }
            ensure!(again <= 100, "{again} of 1000 SYNs were sent again");
            Ok(())
        })
    });
}

fn wait_connected(socket: &socket2::Socket) -> Result<()> {
    wait::until("a connection", PATIENCE, || {
        socket.peer_addr().is_ok().then_some(())
    })
}

#[test]
fn t49_half_closed_and_reset_relays_keep_every_byte() {
    play(
        "t49_half_closed_and_reset_relays_keep_every_byte",
        |scene| {
            let _honk = scene.honk()?;
            let hc1 = scene.lab.hc1.clone();
            for round in 0..200_u32 {
                let length = (round * 7919 % 200_000) as usize;
                let payload: Vec<u8> = (0..length).map(|n| (n as u32 ^ round) as u8).collect();
                let to = at(if round % 2 == 0 { PROXIED } else { PROXIED_V6 }, ECHO);
                if round % 5 == 4 {
                    // Broken off in the middle: the next relays must not notice.
                    hc1.run(|| -> Result<()> {
                        let mut stream = client::connect(to)?;
                        stream.write_all(&payload)?;
                        reset(stream)
                    })?;
                    continue;
                }
                // echo_tcp half-closes after the last byte and reads to the end.
                let back = hc1.run(|| client::echo_tcp(to, &payload))?;
                ensure!(
                    back == payload,
                    "round {round}: {} of {length} bytes",
                    back.len()
                );
            }
            Ok(())
        },
    );
}

fn reset(stream: TcpStream) -> Result<()> {
    Ok(socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?)
}

#[test]
fn t52_the_syn_ack_follows_the_smallest_mtu() {
    play("t52_the_syn_ack_follows_the_smallest_mtu", |scene| {
        let honk = scene.honk()?;
        let mss = |to: IpAddr| -> Result<u32> {
            let stream = scene.lab.hc1.run(|| client::connect(at(to, ECHO)))?;
            Ok(socket2::SockRef::from(&stream).tcp_mss()?)
        };
        // Timestamps take 12 bytes of the 1460 and 1440 that the segment size leaves.
        ensure!(mss(PROXIED)? == 1448, "IPv4: {}", mss(PROXIED)?);
        ensure!(mss(PROXIED_V6)? == 1428, "IPv6: {}", mss(PROXIED_V6)?);
        // Later changes are followed, down and up again.
        for (mtu, v4, v6) in [(1400, 1348, 1328), (1500, 1448, 1428)] {
            scene
                .lab
                .ip(&scene.lab.hg, &format!("link set lan mtu {mtu}\n"))?;
            wait::ok("connections with the new size", PATIENCE, || {
                let (now4, now6) = (mss(PROXIED)?, mss(PROXIED_V6)?);
                ensure!((now4, now6) == (v4, v6), "mtu {mtu}: {now4} and {now6}");
                Ok(())
            })?;
        }
        drop(honk);
        Ok(())
    });
}

#[test]
fn t55_checksums_are_right_without_offload() {
    play("t55_checksums_are_right_without_offload", |scene| {
        let _honk = scene.honk()?;
        let hc1 = scene.lab.hc1.clone();
        let payload: Vec<u8> = (0..500_000_u32).map(|n| ((n * 13) >> 3) as u8).collect();
        for state in ["off", "on"] {
            let mut ethtool = hc1.command("ethtool");
            honk_tests::tool::run(ethtool.args(["-K", "eth0", "tx", state]))?;
            for to in [PROXIED, PROXIED_V6] {
                let back = hc1.run(|| client::echo_tcp(at(to, ECHO), &payload))?;
                ensure!(back == payload, "tx {state}, {to}");
                hc1.run(|| client::whoami_udp(to))
                    .with_context(|| format!("tx {state}"))?;
            }
        }
        let snmp = hc1.run(|| std::fs::read_to_string("/proc/net/snmp"))?;
        for line in snmp.lines().filter(|line| line.starts_with("Tcp:")).skip(1) {
            let errors = line.split_whitespace().last().unwrap_or_default();
            ensure!(errors == "0", "TCP checksum errors at the client: {line}");
        }
        Ok(())
    });
}

#[test]
fn t10_a_full_flow_table_keeps_the_live_flows() {
    play("t10_a_full_flow_table_keeps_the_live_flows", |scene| {
        let config = config_of("lan", "bpf_conn_state_map_size: 1024", "");
        let _honk = Honk::start(&scene.lab, &config)?;
        let hc1 = scene.lab.hc1.clone();
        let mut old: Vec<TcpStream> = hc1.run(|| {
            (0..200)
                .map(|_| client::connect(at(PROXIED, ECHO)))
                .collect::<Result<_>>()
        })?;
        // Far more new tuples than the table holds, none of which is ever finished.
        hc1.run(|| -> Result<()> {
            let socket = client::udp(PROXIED)?;
            for port in 20_000..23_000 {
                socket.send_to(b"x", at(PROXIED, port))?;
            }
            Ok(())
        })?;
        for (n, flow) in old.iter_mut().enumerate() {
            flow.write_all(b"live")?;
            let mut back = [0; 4];
            flow.read_exact(&mut back)
                .with_context(|| format!("old flow {n} broke"))?;
        }
        ensure!(
            hc1.run(|| client::whoami_tcp(DIRECT))?.ip() == addr::HG_WAN,
            "direct"
        );
        ensure!(
            scene.leaked(PROXIED)? == 0,
            "a flow without an entry went direct"
        );
        Ok(())
    });
}
