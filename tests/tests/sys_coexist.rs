//! honk beside firewalls, NAT and containers, as their tools set them up.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::Honk;
use honk_tests::lab::{Profile, addr};
use honk_tests::netns::Netns;
use honk_tests::scene::{
    DIRECT, DIRECT_V6, PROXIED, PROXIED_V6, Scene, at, config_of, play, play_with,
};
use honk_tests::serve::HTTP;
use honk_tests::{client, tcx, wait};

const PATIENCE: Duration = Duration::from_secs(15);

/// What each origin sees of a client; `direct` is where direct IPv4 comes from.
fn served(ns: &Netns, direct: IpAddr) -> Result<()> {
    for (to, from) in [
        (PROXIED, addr::HP),
        (PROXIED_V6, addr::HP_V6),
        (DIRECT, direct),
    ] {
        let seen = ns.run(|| client::whoami_tcp(to));
        let seen = seen
            .with_context(|| format!("TCP of {} to {to}", ns.name()))?
            .ip();
        ensure!(seen == from, "TCP of {} to {to}: {seen}", ns.name());
        let seen = ns.run(|| client::whoami_udp(to));
        let seen = seen
            .with_context(|| format!("UDP of {} to {to}", ns.name()))?
            .ip();
        ensure!(seen == from, "UDP of {} to {to}: {seen}", ns.name());
    }
    let seen = ns.run(|| client::whoami_tcp(DIRECT_V6))?.ip();
    ensure!(seen != addr::HP_V6, "direct IPv6 was proxied");
    Ok(())
}

/// Clients and the gateway itself.
fn all_served(scene: &Scene) -> Result<()> {
    scene.wan.reset()?;
    served(&scene.lab.hc1, addr::HG_WAN)?;
    served(&scene.lab.hg, addr::HG_WAN)?;
    let leaks = scene
        .wan
        .seen(|t| t.touches(PROXIED) || t.touches(PROXIED_V6))?;
    ensure!(leaks.is_empty(), "past the proxy: {leaks:?}");
    Ok(())
}

fn start(scene: &Scene) -> Result<Honk> {
    Honk::start(&scene.lab, &config_of("lan", "wan_interface: wan", ""))
}

#[test]
fn reverse_path_filters_of_the_host_do_not_matter() {
    play("reverse_path_filters_of_the_host_do_not_matter", |scene| {
        let _honk = start(scene)?;
        for mode in ["0", "1", "2"] {
            for link in ["all", "lan", "wan", "honk0"] {
                let key = format!("net.ipv4.conf.{link}.rp_filter");
                scene.lab.hg.set_sysctl(&key, mode)?;
            }
            all_served(scene).with_context(|| format!("rp_filter {mode}"))?;
        }
        Ok(())
    });
}

#[test]
fn proxied_flows_need_no_forwarding() {
    play("proxied_flows_need_no_forwarding", |scene| {
        let _honk = start(scene)?;
        scene.lab.hg.set_sysctl("net.ipv4.ip_forward", "0")?;
        let hc1 = &scene.lab.hc1;
        ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        ensure!(hc1.run(|| client::whoami_udp(PROXIED))?.ip() == addr::HP);
        let direct = hc1.run(|| client::briefly(|| client::whoami_tcp(DIRECT)));
        ensure!(direct.is_err(), "nobody forwards: {direct:?}");
        Ok(())
    });
}

#[test]
fn a_foreign_generic_xdp_program_hides_nothing() {
    play("a_foreign_generic_xdp_program_hides_nothing", |scene| {
        let hg = &scene.lab.hg;
        let honk = start(scene)?;
        let foreign = hg.run(|| {
            Ok::<_, anyhow::Error>((tcx::xdp_generic_here("lan")?, tcx::xdp_generic_here("wan")?))
        })?;
        all_served(scene)?;
        // The daemon counts anew once a second.
        wait::ok("the status tells", PATIENCE, || {
            let status = honk.api("/api/v1/status")?;
            ensure!(status.contains("frames-cut"), "{status}");
            ensure!(honk.stat("frame_mended")? > 0.0, "no frame was mended");
            Ok(())
        })?;
        let unclear = honk.stat("malformed")?;
        ensure!(unclear == 0.0, "packets were not understood: {unclear}");
        let (config, pins) = (&honk.home.config, &honk.home.bpffs);
        let args = [
            "diag",
            "-c",
            &config.display().to_string(),
            "--bpf-pin-root",
            &pins.display().to_string(),
        ];
        let text = String::from_utf8(honk.home.cli(&args)?.stdout)?;
        ensure!(text.contains("(generic) on lan"), "{text}");
        drop(foreign);
        all_served(scene).context("when it is gone")
    });
}

/// Policies drop; what belongs to known connections and the usual ICMP is let in.
const UFW: &str = "table inet ufw {
    chain before_input {
        iif lo accept
        ct state established,related accept
        ct state invalid counter drop
        icmp type { destination-unreachable, time-exceeded, echo-request } accept
        meta l4proto ipv6-icmp accept
        udp sport 67 udp dport 68 accept
        ip daddr 224.0.0.251 udp dport 5353 accept
    }
    chain user_input {
        tcp dport 22 accept
    }
    chain input {
        type filter hook input priority filter; policy drop;
        jump before_input
        jump user_input
    }
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        icmp type { destination-unreachable, time-exceeded, echo-request } accept
        iifname \"lan\" oifname \"wan\" accept
    }
    chain output {
        type filter hook output priority filter; policy accept;
        oif lo accept
        ct state established,related accept
    }
}
";

/// Zones for `lan` and `wan`, a reverse path filter for IPv6, masquerade by zone.
const FIREWALLD: &str = "table inet firewalld {
    chain mangle_PREROUTING {
        type filter hook prerouting priority -140; policy accept;
        icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
        meta nfproto ipv6 fib saddr . mark . iif oif missing drop
    }
    chain nat_POSTROUTING {
        type nat hook postrouting priority 110; policy accept;
        meta nfproto ipv4 oifname \"wan\" masquerade
    }
    chain zone_external {
        tcp dport 22 accept
    }
    chain zone_trusted {
        accept
    }
    chain filter_INPUT {
        type filter hook input priority 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname \"lo\" accept
        ct state invalid drop
        iifname \"lan\" goto zone_trusted
        iifname \"wan\" jump zone_external
        meta l4proto ipv6-icmp accept
        reject with icmpx type admin-prohibited
    }
    chain filter_FORWARD {
        type filter hook forward priority 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname \"lo\" accept
        ct state invalid drop
        iifname \"lan\" oifname \"wan\" accept
        reject with icmpx type admin-prohibited
    }
    chain filter_OUTPUT {
        type filter hook output priority 10; policy accept;
        oifname \"lo\" accept
    }
}
";

#[test]
fn rule_sets_of_firewall_tools_need_no_hole() {
    play("rule_sets_of_firewall_tools_need_no_hole", |scene| {
        let hg = &scene.lab.hg;
        scene.lab.nft(hg, UFW)?;
        let honk = start(scene)?;
        all_served(scene).context("ufw, there first")?;
        scene.lab.nft(hg, "delete table inet ufw\n")?;
        scene.lab.nft(hg, FIREWALLD)?;
        all_served(scene).context("firewalld, later")?;
        // The wall is no decoration: an unasked connection does not come in.
        let outside = &scene.lab.ho;
        let knock = outside.run(|| client::briefly(|| client::connect(at(addr::HG_WAN, 4444))));
        ensure!(knock.is_err(), "unasked input came in");
        ensure!(honk.stop()?.success());
        let rules = honk_tests::tool::run(hg.command("nft").args(["list", "tables"]))?;
        ensure!(
            rules.contains("firewalld") && rules.contains("labnat"),
            "{rules}"
        );
        Ok(())
    });
}

/// What Docker writes for its default bridge with one published port, on a host that forwards
/// for a LAN, too.
const DOCKER: &str = "table ip nat {
    chain DOCKER {
        iifname \"docker0\" return
        tcp dport 8080 dnat to 172.17.0.2:80
    }
    chain PREROUTING {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local jump DOCKER
    }
    chain OUTPUT {
        type nat hook output priority -100; policy accept;
        ip daddr != 127.0.0.0/8 fib daddr type local jump DOCKER
    }
    chain POSTROUTING {
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr 172.17.0.0/16 oifname != \"docker0\" masquerade
    }
}
table ip filter {
    chain DOCKER {
        ip daddr 172.17.0.2 iifname != \"docker0\" oifname \"docker0\" tcp dport 80 accept
    }
    chain FORWARD {
        type filter hook forward priority filter; policy drop;
        oifname \"docker0\" ct state related,established accept
        oifname \"docker0\" jump DOCKER
        iifname \"docker0\" oifname != \"docker0\" accept
        iifname \"docker0\" oifname \"docker0\" accept
        iifname \"lan\" oifname \"wan\" accept
        iifname \"wan\" oifname \"lan\" ct state related,established accept
    }
}
";

#[test]
fn containers_behind_a_nat_bridge_are_clients_and_keep_their_ports() {
    let name = "containers_behind_a_nat_bridge_are_clients_and_keep_their_ports";
    play_with(name, Profile::Flat, |scene| {
        let lab = &scene.lab;
        // The second client, which has no cable in this profile, is the container.
        let container = lab.hc2.name();
        lab.ip(
            &lab.hg,
            &format!(
                "link add name docker0 type bridge forward_delay 0\n\
                 link add name veth1a2b type veth peer name eth0 netns {container}\n\
                 link set veth1a2b master docker0 up\nlink set docker0 up\n\
                 address add 172.17.0.1/16 dev docker0\n"
            ),
        )?;
        lab.ip(
            &lab.hc2,
            "link set eth0 up\naddress add 172.17.0.2/16 dev eth0\n\
             route add default via 172.17.0.1\n",
        )?;
        lab.nft(&lab.hg, DOCKER)?;
        let rules = "sip(172.17.0.0/16) && l4proto(tcp) && dip(198.51.100.131) -> proxy";
        let config = config_of("lan, docker0", "wan_interface: wan", rules);
        let honk = Honk::start(lab, &config)?;
        let seen = |to| Ok::<_, anyhow::Error>(lab.hc2.run(|| client::whoami_tcp(to))?.ip());
        ensure!(seen(PROXIED)? == addr::HP, "a container, proxied");
        ensure!(seen(DIRECT)? == addr::HP, "a container, by its own rule");
        let udp = lab.hc2.run(|| client::whoami_udp(DIRECT))?.ip();
        ensure!(udp == addr::HG_WAN, "a container, direct: {udp}");
        ensure!(lab.hc1.run(|| client::whoami_tcp(DIRECT))?.ip() == addr::HG_WAN);
        ensure!(lab.hg.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        published(scene)?;
        ensure!(honk.stop()?.success());
        Ok(())
    });
}

/// The published port answers everybody, and answers are not proxied.
fn published(scene: &Scene) -> Result<()> {
    let lab = &scene.lab;
    let listener = lab
        .hc2
        .run(|| std::net::TcpListener::bind(("0.0.0.0", HTTP)))?;
    listener.set_nonblocking(true)?;
    for ns in [&lab.ho, &lab.hc1, &lab.hg] {
        let stream = ns.run(|| client::connect(at(addr::HG_WAN, 8080)));
        let stream = stream.with_context(|| format!("from {}", ns.name()))?;
        let (_, peer) = wait::ok("the published server", PATIENCE, || Ok(listener.accept()?))?;
        ensure!(
            peer.ip() != addr::HP && peer.ip() != addr::HP2,
            "it was proxied"
        );
        drop(stream);
    }
    Ok(())
}
