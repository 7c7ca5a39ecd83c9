//! Interfaces that are no Ethernet, change their addresses, or are bridges.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::netns::Netns;
use honk_tests::scene::{DIRECT, PROXIED, PROXIED_V6, at, config_of, play};
use honk_tests::serve::ECHO;
use honk_tests::tun::Cable;
use honk_tests::{client, wait};

const PATIENCE: Duration = Duration::from_secs(20);

/// Demands what an origin sees of TCP, UDP and a longer stream.
fn seen(ns: &Netns, to: IpAddr, from: IpAddr) -> Result<()> {
    let place = || format!("{} to {to}", ns.name());
    let tcp = ns.run(|| client::whoami_tcp(to)).with_context(place)?.ip();
    ensure!(tcp == from, "TCP of {}: {tcp}", place());
    let udp = ns.run(|| client::whoami_udp(to)).with_context(place)?.ip();
    ensure!(udp == from, "UDP of {}: {udp}", place());
    let payload = vec![5u8; 200_000];
    let echoed = ns.run(|| client::echo_tcp(at(to, ECHO), &payload));
    ensure!(
        echoed.with_context(place)? == payload,
        "{}: other bytes",
        place()
    );
    Ok(())
}

#[test]
fn t06_a_wan_without_link_header_serves_gateway_and_clients() {
    play(
        "t06_a_wan_without_link_header_serves_gateway_and_clients",
        |scene| {
            let lab = &scene.lab;
            let _cable = Cable::lay((&lab.hg, "tun0"), (&lab.hw, "tun1"))?;
            lab.ip(
                &lab.hw,
                "address add 192.0.2.65 peer 192.0.2.66 dev tun1\nlink set tun1 up\n",
            )?;
            lab.ip(
                &lab.hg,
                "address add 192.0.2.66 peer 192.0.2.65 dev tun0\nlink set tun0 up\n\
             route replace default dev tun0\n",
            )?;
            lab.nft(
                &lab.hg,
                "table ip tunnat {\nchain post {\n\
             type nat hook postrouting priority srcnat\noifname \"tun0\" masquerade\n}\n}\n",
            )?;
            let own: IpAddr = "192.0.2.66".parse()?;
            for wan in ["tun0", "auto"] {
                let config = config_of("lan", &format!("wan_interface: {wan}"), "");
                let honk = Honk::start(lab, &config)?;
                for ns in [&lab.hg, &lab.hc1] {
                    seen(ns, PROXIED, addr::HP)?;
                    seen(ns, DIRECT, own)?;
                }
                let judged = honk.counts("pkts_wan");
                judged.with_context(|| format!("nothing was judged on {wan}"))?;
                ensure!(honk.stat("change_head_fail")? == 0.0);
                ensure!(honk.stop()?.success());
            }
            Ok(())
        },
    );
}

#[test]
fn t06_a_lan_without_link_header_is_judged_like_any_other() {
    play(
        "t06_a_lan_without_link_header_is_judged_like_any_other",
        |scene| {
            let lab = &scene.lab;
            let _cable = Cable::lay((&lab.hg, "ltun"), (&lab.hc1, "ctun"))?;
            lab.ip(
                &lab.hg,
                "address add 10.88.0.1 peer 10.88.0.2 dev ltun\nlink set ltun up\n\
             address add fd88::1/64 dev ltun nodad\n",
            )?;
            lab.ip(
                &lab.hc1,
                "address add 10.88.0.2 peer 10.88.0.1 dev ctun\nlink set ctun up\n\
             address add fd88::2/64 dev ctun nodad\n\
             route replace default dev ctun\n\
             route delete default via fd66::1\nroute add default via fd88::1\n",
            )?;
            let honk = Honk::start(lab, &config_of("ltun", "", ""))?;
            seen(&lab.hc1, PROXIED, addr::HP)?;
            seen(&lab.hc1, PROXIED_V6, addr::HP_V6)?;
            seen(&lab.hc1, DIRECT, addr::HG_WAN)?;
            let status = honk.home.json(&["status"])?.to_string();
            ensure!(status.contains("lan_ingress_l3"), "{status}");
            ensure!(honk.stop()?.success());
            Ok(())
        },
    );
}

#[test]
fn addresses_that_come_and_go_are_followed() {
    play("addresses_that_come_and_go_are_followed", |scene| {
        let lab = &scene.lab;
        // Everything to the gateway's future address is blocked, unless it is the gateway's own.
        let rules = "dip(10.66.0.250) -> block";
        let config = config_of("lan", "wan_interface: wan", rules);
        let honk = Honk::start(lab, &config)?;
        let listener = lab.hg.run(|| std::net::TcpListener::bind("0.0.0.0:2222"))?;
        let knock = || {
            let to = at("10.66.0.250".parse()?, 2222);
            lab.hc1
                .run(|| client::briefly(|| client::connect(to)))
                .map(drop)
        };
        lab.ip(&lab.hg, "address add 10.66.0.250/24 dev lan\n")?;
        wait::ok("the new address to be local", PATIENCE, knock)?;
        lab.ip(&lab.hg, "address delete 10.66.0.250/24 dev lan\n")?;
        // The neighbour entry still leads here; the rule decides now.
        wait::ok("the old address to be judged", PATIENCE, || {
            let before = honk.stat("block")?;
            ensure!(knock().is_err(), "it is still local");
            ensure!(honk.stat("block")? > before, "it was not judged");
            Ok(())
        })?;
        drop(listener);
        // The WAN gets another address.
        lab.ip(
            &lab.hg,
            "address delete 203.0.113.2/24 dev wan\naddress add 203.0.113.7/24 dev wan\n\
             route replace default via 203.0.113.1\n",
        )?;
        let own: IpAddr = "203.0.113.7".parse()?;
        for ns in [&lab.hg, &lab.hc1] {
            seen(ns, PROXIED, addr::HP)?;
            seen(ns, DIRECT, own)?;
        }
        ensure!(honk.stop()?.success());
        Ok(())
    });
}

#[test]
fn frames_between_ports_of_a_bridge_are_not_judged() {
    play("frames_between_ports_of_a_bridge_are_not_judged", |scene| {
        let lab = &scene.lab;
        let honk = Honk::start(lab, &config_of("lan", "", "dip(10.66.0.0/24) -> block"))?;
        let listener = lab
            .hc2
            .run(|| std::net::TcpListener::bind("0.0.0.0:2323"))?;
        listener.set_nonblocking(true)?;
        let before = honk.stat("block")?;
        let _stream = lab.hc1.run(|| client::connect(at(addr::HC2, 2323)))?;
        let (_, peer) = wait::ok("the neighbour", PATIENCE, || Ok(listener.accept()?))?;
        ensure!(peer.ip() == addr::HC1, "{peer}");
        // What is routed over the same bridge is judged.
        seen(&lab.hc1, PROXIED, addr::HP)?;
        ensure!(honk.stat("block")? == before, "bridged frames were judged");
        // A port that joins later serves as the others do.
        lab.ip(
            &lab.hg,
            "link set lp2 nomaster\nlink set lp2 master lan up\n",
        )?;
        wait::ok("the client behind the port", PATIENCE, || {
            seen(&lab.hc2, PROXIED, addr::HP)
        })?;
        ensure!(honk.stop()?.success());
        Ok(())
    });
}
