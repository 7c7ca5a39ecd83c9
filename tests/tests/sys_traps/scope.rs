//! Interception scope (section 9.5).

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::scene::{DIRECT, PROXIED, at, config_of, play};
use honk_tests::serve::{DNS, HTTP};
use honk_tests::{client, tool, wait};

#[test]
fn t18_port_53_runs_the_rules() {
    play("t18_port_53_runs_the_rules", |scene| {
        scene.lab.without_nat()?;
        let honk = scene.honk_with("dip(198.51.100.131) && dport(53) -> must_direct")?;
        let ask = |ip| {
            scene
                .lab
                .hc1
                .run(|| client::dns(at(ip, DNS), "whoami.test", false))
        };
        let before = honk.stat("dns_redirect")?;
        ensure!(
            ask(DIRECT)? == [addr::HC1],
            "must_direct: the client itself asked"
        );
        ensure!(
            honk.stat("dns_redirect")? == before,
            "must_direct went through the daemon"
        );
        ensure!(
            ask(PROXIED)? == [addr::HP],
            "others are relayed by their rule"
        );
        Ok(())
    });
}

#[test]
fn t19_broadcast_and_multicast_are_left_alone() {
    play("t19_broadcast_and_multicast_are_left_alone", |scene| {
        let honk = scene.honk_with("l4proto(udp) -> proxy")?;
        for (to, group) in [("10.66.0.255:9", ""), ("224.0.0.251:5353", "224.0.0.251")] {
            let port = to.rsplit(':').next().unwrap_or_default();
            let server = scene.lab.hg.run(|| -> Result<UdpSocket> {
                let server = UdpSocket::bind(format!("0.0.0.0:{port}"))?;
                if !group.is_empty() {
                    server.join_multicast_v4(&group.parse()?, &"10.66.0.1".parse()?)?;
                }
                Ok(server)
            })?;
            server.set_read_timeout(Some(client::PATIENCE))?;
            scene.lab.hc1.run(|| -> Result<()> {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.set_broadcast(true)?;
                socket.send_to(b"hello", to)?;
                Ok(())
            })?;
            server
                .recv_from(&mut [0; 16])
                .with_context(|| format!("{to} did not arrive"))?;
        }
        let flows = honk.metric("honk_bpf_map_entries", "FLOW\"")?;
        ensure!(flows == 0.0, "{flows} flow entries");
        Ok(())
    });
}

#[test]
fn t36_the_kind_of_an_interface_is_not_read_from_its_name() {
    play(
        "t36_the_kind_of_an_interface_is_not_read_from_its_name",
        |scene| {
            scene.lab.ip(
                &scene.lab.hg,
                "link set lan down\nlink set lan name ppp0\nlink set ppp0 up\n",
            )?;
            // Going down removed the v6 address.
            scene
                .lab
                .ip(&scene.lab.hg, "address replace fd66::1/64 dev ppp0 nodad\n")?;
            let _honk = Honk::start(&scene.lab, &config_of("ppp0", "", ""))?;
            super::verdicts_hold(&scene.lab.hc1)
        },
    );
}

#[test]
fn t61_published_ports_work_from_everywhere() {
    play("t61_published_ports_work_from_everywhere", |scene| {
        scene.lab.nft(
            &scene.lab.hg,
            "table ip publish {\nchain pre {\ntype nat hook prerouting priority dstnat\n\
             ip daddr 203.0.113.2 tcp dport 8080 dnat to 10.66.0.12:80\n}\n\
             chain post {\ntype nat hook postrouting priority srcnat\n\
             ip saddr 10.66.0.0/24 ip daddr 10.66.0.12 masquerade\n}\n}\n",
        )?;
        let _honk = scene.honk_with("l4proto(tcp) -> proxy")?;
        let listener = scene
            .lab
            .hc2
            .run(|| std::net::TcpListener::bind(("0.0.0.0", HTTP)))?;
        listener.set_nonblocking(true)?;
        for ns in [&scene.lab.ho, &scene.lab.hc1] {
            let stream = ns
                .run(|| client::connect(at(addr::HG_WAN, 8080)))
                .with_context(|| format!("from {}", ns.name()))?;
            let (_, peer) = wait::ok("the published server", Duration::from_secs(5), || {
                Ok(listener.accept()?)
            })?;
            ensure!(
                peer.ip() != addr::HP && peer.ip() != addr::HP2,
                "it was proxied"
            );
            drop(stream);
        }
        Ok(())
    });
}

#[test]
fn t31_answers_of_a_published_udp_server_stay_direct() {
    play(
        "t31_answers_of_a_published_udp_server_stay_direct",
        |scene| {
            scene.lab.nft(
                &scene.lab.hg,
                "table ip publish {\nchain pre {\ntype nat hook prerouting priority dstnat\n\
             ip daddr 203.0.113.2 udp dport 6000 dnat to 10.66.0.11:6000\n}\n}\n",
            )?;
            let honk = scene.honk_with("l4proto(udp) -> proxy")?;
            let server = scene.lab.hc1.run(|| UdpSocket::bind("0.0.0.0:6000"))?;
            server.set_read_timeout(Some(client::PATIENCE))?;
            let asker = scene.lab.ho.run(|| UdpSocket::bind((DIRECT, 0)))?;
            asker.set_read_timeout(Some(client::PATIENCE))?;
            let published = at(addr::HG_WAN, 6000);
            let mut buffer = [0; 8];
            for round in 0..10u8 {
                asker.send_to(&[round], published)?;
                let (_, peer) = server.recv_from(&mut buffer)?;
                server.send_to(&[round, 1], peer)?;
                let (n, from) = asker.recv_from(&mut buffer)?;
                ensure!(buffer[..n] == [round, 1] && from == published, "{from}");
            }
            honk.counts("inbound_track").context("nothing was noted")?;
            ensure!(honk.stat("proxy_new")? == 0.0, "an answer was proxied");
            let taken = honk.metric("honk_udp_datagrams_total", "received")?;
            ensure!(taken == 0.0, "{taken} answers went to the daemon");
            Ok(())
        },
    );
}

#[test]
fn icmp_passes_untouched() {
    play("icmp_passes_untouched", |scene| {
        let _honk = scene.honk()?;
        let unreachable = scene.lab.hc1.run(|| -> Result<std::io::Error> {
            // Nobody listens there; the origin's ICMP error must come back for direct flows.
            let socket = client::udp(DIRECT)?;
            socket.connect(at(DIRECT, 4999))?;
            socket.send(b"x")?;
            socket
                .recv(&mut [0; 8])
                .err()
                .context("an answer from nobody")
        })?;
        ensure!(
            unreachable.kind() == std::io::ErrorKind::ConnectionRefused,
            "the client saw {unreachable}"
        );
        Ok(())
    });
}

#[test]
fn t39_no_redirects_are_sent_to_clients() {
    play("t39_no_redirects_are_sent_to_clients", |scene| {
        let config = config_of("lan", "auto_config_kernel_parameter: true", "");
        let _honk = Honk::start(&scene.lab, &config)?;
        for key in ["all", "lan"] {
            let found = scene
                .lab
                .hg
                .sysctl(&format!("net.ipv4.conf.{key}.send_redirects"))?;
            ensure!(found == "0", "send_redirects of {key} is {found}");
        }
        Ok(())
    });
}

#[test]
fn clients_reach_each_other() {
    play("clients_reach_each_other", |scene| {
        let _honk = scene.honk_with("l4proto(tcp) -> block")?;
        let listener = scene
            .lab
            .hc2
            .run(|| std::net::TcpListener::bind(("0.0.0.0", 8000)))?;
        scene.lab.hc1.run(|| client::connect(at(addr::HC2, 8000)))?;
        drop(listener);
        let neighbours = tool::run(scene.lab.hc1.command("ip").args(["neigh", "show"]))?;
        ensure!(neighbours.contains("10.66.0.12"), "{neighbours}");
        Ok(())
    });
}
