//! UDP (section 9.4).

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context as _, Result, ensure};
use honk_tests::lab::addr;
use honk_tests::scene::{DIRECT, PROXIED, PROXIED_V6, at, play};
use honk_tests::serve::{DNS, ECHO, WHOAMI};
use honk_tests::{client, tool};

#[test]
fn t15_fragmented_datagrams_are_proxied_whole() {
    play("t15_fragmented_datagrams_are_proxied_whole", |scene| {
        let _honk = scene.honk()?;
        let payload: Vec<u8> = (0..4000_u32).map(|n| (n % 251) as u8).collect();
        for ip in [PROXIED, PROXIED_V6] {
            let back = scene.lab.hc1.run(|| -> Result<_> {
                let socket = client::udp(ip)?;
                client::ask_udp(&socket, at(ip, ECHO), &payload)
            })?;
            ensure!(back == payload, "{ip}: {} of 4000 bytes", back.len());
        }
        let leaks = scene
            .wan
            .seen(|t| t.touches(PROXIED) || t.touches(PROXIED_V6))?;
        ensure!(leaks.is_empty(), "on the WAN: {leaks:?}");
        Ok(())
    });
}

#[test]
fn t16_a_udp_server_on_the_gateway_answers_from_its_port() {
    play(
        "t16_a_udp_server_on_the_gateway_answers_from_its_port",
        |scene| {
            let _honk = scene.honk_with("l4proto(udp) -> proxy")?;
            let server = scene.lab.hg.run(|| UdpSocket::bind("0.0.0.0:5353"))?;
            server.set_read_timeout(Some(client::PATIENCE))?;
            for (ns, to) in [
                (&scene.lab.ho, addr::HG_WAN),
                (&scene.lab.hc1, addr::HG_LAN),
            ] {
                let asker = ns.run(|| client::udp(to))?;
                asker.send_to(b"ask", at(to, 5353))?;
                let mut buffer = [0; 16];
                let (length, from) = server
                    .recv_from(&mut buffer)
                    .context("the server saw nothing")?;
                server.send_to(&buffer[..length], from)?;
                let (_, source) = asker.recv_from(&mut buffer).context("no answer")?;
                ensure!(source == at(to, 5353), "the answer came from {source}");
            }
            Ok(())
        },
    );
}

#[test]
fn t17_a_wildcard_socket_on_the_gateway_swallows_nothing() {
    play(
        "t17_a_wildcard_socket_on_the_gateway_swallows_nothing",
        |scene| {
            let _honk = scene.honk()?;
            let swallow = scene.lab.hg.run(|| UdpSocket::bind(("0.0.0.0", WHOAMI)))?;
            ensure!(scene.lab.hc1.run(|| client::whoami_udp(PROXIED))?.ip() == addr::HP);
            swallow.set_nonblocking(true)?;
            ensure!(
                swallow.recv_from(&mut [0; 8]).is_err(),
                "the local server saw the datagram"
            );
            Ok(())
        },
    );
}

#[test]
fn t33_a_resolver_on_the_gateway_does_not_disturb_queries() {
    play(
        "t33_a_resolver_on_the_gateway_does_not_disturb_queries",
        |scene| {
            let _honk = scene.honk()?;
            let resolver = scene.lab.hg.run(|| UdpSocket::bind("0.0.0.0:53"))?;
            resolver.set_nonblocking(true)?;
            let server = at(PROXIED, DNS);
            scene.lab.hc1.run(|| -> Result<()> {
                let socket = client::udp(PROXIED)?;
                let query = |id: u8| {
                    let mut text = vec![0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
                    text.extend(b"\x03www\x04test\x00\x00\x01\x00\x01");
                    text
                };
                socket.send_to(&query(1), server)?;
                socket.send_to(&query(2), server)?;
                let mut ids = Vec::new();
                for _ in 0..2 {
                    let mut buffer = [0; 512];
                    let (_, from) = socket
                        .recv_from(&mut buffer)
                        .context("an answer is missing")?;
                    ensure!(from == server, "answered from {from}");
                    ids.push(buffer[1]);
                }
                ids.sort_unstable();
                ensure!(ids == [1, 2], "{ids:?}");
                Ok(())
            })?;
            ensure!(
                resolver.recv_from(&mut [0; 512]).is_err(),
                "the local resolver was asked"
            );
            Ok(())
        },
    );
}

#[test]
fn t34_datagram_boundaries_are_kept() {
    play("t34_datagram_boundaries_are_kept", |scene| {
        let _honk = scene.honk()?;
        for sizes in [
            vec![1200; 1],
            vec![1200; 2],
            vec![1200; 10],
            vec![1200, 7, 1200, 900, 1],
        ] {
            let to: SocketAddr = at(PROXIED, ECHO);
            let mut back = scene.lab.hc1.run(|| -> Result<Vec<usize>> {
                let socket = client::udp(PROXIED)?;
                for &size in &sizes {
                    socket.send_to(&vec![5; size], to)?;
                }
                let mut buffer = vec![0; 65536];
                (0..sizes.len())
                    .map(|n| {
                        let (length, from) = socket
                            .recv_from(&mut buffer)
                            .with_context(|| format!("datagram {n} of {sizes:?}"))?;
                        ensure!(from == to);
                        Ok(length)
                    })
                    .collect()
            })?;
            let mut wanted = sizes.clone();
            wanted.sort_unstable();
            back.sort_unstable();
            ensure!(back == wanted, "{back:?} instead of {wanted:?}");
        }
        Ok(())
    });
}

#[test]
fn t34_a_burst_in_one_piece_arrives_datagram_by_datagram() {
    const SIZE: u16 = 1200;
    play(
        "t34_a_burst_in_one_piece_arrives_datagram_by_datagram",
        |scene| {
            let honk = scene.honk()?;
            for ip in [PROXIED, PROXIED_V6] {
                let to = at(ip, ECHO);
                // 29 equal ones and a shorter one, each with its number.
                let mut burst = Vec::new();
                for n in 0..30_u8 {
                    let size = if n < 29 { usize::from(SIZE) } else { 333 };
                    burst.resize(burst.len() + size, n);
                }
                let socket = scene.lab.hc1.run(|| client::udp(ip))?;
                // The way is open before the burst: what waits for it is bounded.
                client::ask_udp(&socket, to, b"first")?;
                client::cut_into(&socket, SIZE)?;
                socket.send_to(&burst, to)?;
                let mut buffer = vec![0; 65536];
                for (n, want) in burst.chunks(SIZE.into()).enumerate() {
                    let (length, from) = socket
                        .recv_from(&mut buffer)
                        .with_context(|| format!("{ip}: datagram {n}"))?;
                    ensure!(
                        from == to && buffer[..length] == *want,
                        "{ip}: datagram {n}"
                    );
                }
            }
            let joined = honk.metric("honk_relay_stat_total", "\"udp_joined\"")?;
            ensure!(joined >= 2.0, "{joined} bursts were taken in one piece");
            ensure!(scene.leaked(PROXIED)? == 0);
            Ok(())
        },
    );
}

#[test]
fn t34_datagrams_that_cannot_be_cut_are_sent_one_by_one() {
    play(
        "t34_datagrams_that_cannot_be_cut_are_sent_one_by_one",
        |scene| {
            let honk = scene.honk()?;
            // Without checksum offload the private end cannot cut datagrams.
            let mut ethtool = honk.private_ns()?.command("ethtool");
            tool::run(ethtool.args(["-K", "honk0p", "tx", "off"]))?;
            let to = at(PROXIED, ECHO);
            let socket = scene.lab.hc1.run(|| client::udp(PROXIED))?;
            client::ask_udp(&socket, to, b"first")?;
            client::cut_into(&socket, 1000)?;
            socket.send_to(&[7; 20_000], to)?;
            let mut buffer = vec![0; 65536];
            for n in 0..20 {
                let got = socket.recv_from(&mut buffer);
                let (length, _) = got.with_context(|| format!("datagram {n}"))?;
                ensure!(
                    buffer[..length] == [7; 1000],
                    "datagram {n}: {length} bytes"
                );
            }
            Ok(())
        },
    );
}

#[test]
fn many_clients_ports_do_not_mix() {
    play("many_clients_ports_do_not_mix", |scene| {
        let _honk = scene.honk()?;
        let to = at(PROXIED, ECHO);
        for ns in [&scene.lab.hc1, &scene.lab.hc2] {
            ns.run(|| -> Result<()> {
                let sockets: Vec<UdpSocket> = (0..100)
                    .map(|_| client::udp(PROXIED))
                    .collect::<Result<_>>()?;
                for (n, socket) in sockets.iter().enumerate() {
                    socket.send_to(&(n as u32).to_be_bytes(), to)?;
                }
                for (n, socket) in sockets.iter().enumerate() {
                    let mut buffer = [0; 8];
                    let (length, _) = socket
                        .recv_from(&mut buffer)
                        .with_context(|| format!("socket {n}"))?;
                    ensure!(buffer[..length] == (n as u32).to_be_bytes(), "socket {n}");
                }
                Ok(())
            })?;
        }
        Ok(())
    });
}

#[test]
fn t54_a_flood_of_direct_tuples_evicts_no_proxied_flow() {
    play(
        "t54_a_flood_of_direct_tuples_evicts_no_proxied_flow",
        |scene| {
            let honk = scene.honk()?;
            let hc1 = scene.lab.hc1.clone();
            let live: Vec<UdpSocket> =
                hc1.run(|| (0..50).map(|_| client::udp(PROXIED)).collect::<Result<_>>())?;
            let ask = |n: usize| client::ask_udp(&live[n], at(PROXIED, ECHO), &[n as u8; 32]);
            for n in 0..live.len() {
                ask(n)?;
            }
            scene.lab.hc2.run(|| -> Result<()> {
                let socket = client::udp(DIRECT)?;
                for port in 10_000..60_000 {
                    // An ICMP error of an earlier datagram may come back here; it does not matter.
                    let _ = socket.send_to(b"flood", at(DIRECT, port));
                }
                Ok(())
            })?;
            for n in 0..live.len() {
                ask(n).with_context(|| format!("live flow {n}"))?;
            }
            ensure!(honk.stat("flow_overflow")? == 0.0);
            ensure!(scene.leaked(PROXIED)? == 0);
            Ok(())
        },
    );
}
