//! Host network state and hook order (sections 9.1 and 9.2).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::netns::Netns;
use honk_tests::scene::{DIRECT, PROXIED, PROXIED_V6, at, config_of, play};
use honk_tests::serve::ECHO;
use honk_tests::tcx::{Counter, Filter, Place, xdp_pass};
use honk_tests::{client, tool, wait};

use super::verdicts_hold;

fn ip(ns: &Netns, args: &str) -> Result<String> {
    tool::run(ns.command("ip").args(args.split(' ')))
}

#[test]
fn t01_private_namespace_sets_every_switch_itself() {
    play("t01_private_namespace_sets_every_switch_itself", |scene| {
        let honk = scene.honk()?;
        let private = honk.private_ns()?;
        for link in ["all", "honk0p"] {
            for (key, value) in [
                ("rp_filter", "0"),
                ("src_valid_mark", "0"),
                ("accept_local", "1"),
                ("send_redirects", "0"),
                ("arp_ignore", "8"),
            ] {
                let key = format!("net.ipv4.conf.{link}.{key}");
                let found = private.sysctl(&key)?;
                ensure!(found == value, "{key} is {found}, not {value}");
            }
        }
        for (key, value) in [
            ("net.ipv4.ip_early_demux", "1"),
            ("net.ipv4.tcp_early_demux", "1"),
            ("net.ipv4.tcp_syncookies", "1"),
            ("net.ipv4.tcp_mtu_probing", "1"),
            ("net.core.somaxconn", "4096"),
            ("net.ipv4.tcp_max_syn_backlog", "4096"),
            ("net.ipv6.conf.honk0p.accept_ra", "0"),
            ("net.ipv6.conf.honk0p.accept_dad", "0"),
            ("net.ipv6.conf.honk0p.autoconf", "0"),
        ] {
            let found = private.sysctl(key)?;
            ensure!(found == value, "{key} is {found}, not {value}");
        }
        private.set_sysctl("net.ipv4.conf.all.rp_filter", "1")?;
        wait::ok(
            "flows with strict reverse path",
            Duration::from_secs(60),
            || verdicts_hold(&scene.lab.hc1),
        )
    });
}

#[test]
fn t03_src_valid_mark_and_rp_filter_of_the_host_do_not_matter() {
    play(
        "t03_src_valid_mark_and_rp_filter_of_the_host_do_not_matter",
        |scene| {
            scene
                .lab
                .hg
                .set_sysctl("net.ipv4.conf.all.src_valid_mark", "1")?;
            scene
                .lab
                .hg
                .set_sysctl("net.ipv4.conf.all.rp_filter", "1")?;
            let _honk = scene.honk()?;
            verdicts_hold(&scene.lab.hc1)
        },
    );
}

#[test]
fn t04_a_pair_that_receives_through_napi_loses_no_hand_off() {
    play(
        "t04_a_pair_that_receives_through_napi_loses_no_hand_off",
        |scene| {
            let honk = scene.honk()?;
            let private = honk.private_ns()?;
            let flows = || -> Result<()> {
                for n in 0..250 {
                    for to in [PROXIED, PROXIED_V6] {
                        let seen = scene.lab.hc1.run(|| client::whoami_tcp(to));
                        let seen = seen.with_context(|| format!("TCP flow {n} to {to}"))?;
                        ensure!(seen.ip() == addr::HP || seen.ip() == addr::HP_V6);
                        let seen = scene.lab.hc2.run(|| client::whoami_udp(to));
                        seen.with_context(|| format!("UDP flow {n} to {to}"))?;
                    }
                }
                let dropped = honk.stat("magic_drop")?;
                ensure!(dropped == 0.0, "{dropped} packets lost their proof");
                Ok(())
            };
            let _xdp = xdp_pass(&private, "honk0p")?;
            flows().context("with an XDP program on the pair")?;
            let mut ethtool = private.command("ethtool");
            tool::run(ethtool.args(["-K", "honk0p", "gro", "on"]))?;
            let mut ethtool = scene.lab.hg.command("ethtool");
            tool::run(ethtool.args(["-K", "honk0", "tso", "off"]))?;
            flows().context("with GRO, without TSO")
        },
    );
}

#[test]
fn t05_a_foreign_mark_neither_disturbs_nor_is_lost() {
    play("t05_a_foreign_mark_neither_disturbs_nor_is_lost", |scene| {
        let _honk = scene.honk()?;
        let _first = Counter::attach(&scene.lab.hg, "lan", Place::First, Some(0xdead))?;
        scene.lab.nft(
            &scene.lab.hg,
            "table inet marks {\ncounter kept { }\nchain pre {\n\
             type filter hook prerouting priority -300\n\
             ip daddr 198.51.100.131 meta mark 0xdead counter name kept\n}\n}\n",
        )?;
        verdicts_hold(&scene.lab.hc1)?;
        let mut nft = scene.lab.hg.command("nft");
        let text = tool::run(nft.args(["list", "counter", "inet", "marks", "kept"]))?;
        ensure!(
            !text.contains("packets 0 "),
            "direct packets lost the foreign mark: {text}"
        );
        Ok(())
    });
}

#[test]
fn t07_the_gateways_own_services_stay_reachable() {
    play("t07_the_gateways_own_services_stay_reachable", |scene| {
        let _honk = scene.honk()?;
        let listener = scene
            .lab
            .hg
            .run(|| std::net::TcpListener::bind("0.0.0.0:22"))?;
        for (ns, to) in [
            (&scene.lab.hc1, addr::HG_LAN),
            (&scene.lab.ho, addr::HG_WAN),
        ] {
            let from = ns.run(|| client::connect(at(to, 22)))?.local_addr()?;
            listener.set_nonblocking(true)?;
            let (_, peer) = wait::ok("the connection at port 22", Duration::from_secs(5), || {
                Ok(listener.accept()?)
            })?;
            ensure!(peer == from, "port 22 saw {peer}, the client is {from}");
        }
        Ok(())
    });
}

#[test]
fn t08_private_rules_and_routes_are_exact() {
    play("t08_private_rules_and_routes_are_exact", |scene| {
        let honk = scene.honk()?;
        let private = honk.private_ns()?;
        for family in ["-4", "-6"] {
            let rules = ip(&private, &format!("{family} rule show"))?;
            ensure!(
                rules.lines().any(|line| {
                    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
                    line == "100: from all iif honk0p lookup 100"
                }),
                "{family} rules:\n{rules}"
            );
            let routes = ip(&private, &format!("{family} route show table 100"))?;
            let route = routes.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(
                route.starts_with("local default dev lo"),
                "{family} table 100:\n{routes}"
            );
            ensure!(routes.lines().count() == 1, "{family} table 100:\n{routes}");
        }
        Ok(())
    });
}

#[test]
fn t09_every_hand_off_is_found() {
    play("t09_every_hand_off_is_found", |scene| {
        let honk = scene.honk()?;
        for _ in 0..125 {
            for to in [PROXIED, PROXIED_V6] {
                scene.lab.hc1.run(|| client::whoami_tcp(to))?;
                scene.lab.hc2.run(|| client::whoami_udp(to))?;
            }
        }
        let missed = honk.metric("honk_handoff_miss_total", "")?;
        ensure!(missed == 0.0, "{missed} hand-offs found no flow");
        Ok(())
    });
}

#[test]
fn t20_other_programs_still_see_the_packets() {
    play("t20_other_programs_still_see_the_packets", |scene| {
        let _honk = scene.honk()?;
        let before = Counter::attach(&scene.lab.hg, "lan", Place::First, None)?;
        let after = Counter::attach(&scene.lab.hg, "lan", Place::Last, None)?;
        let filter = Filter::attach(&scene.lab.hg, "lan", &scene.lab.bpffs().join("foreign"))?;
        let first = before.count()?;
        let second = after.count()?;
        scene
            .lab
            .hc1
            .run(|| client::echo_tcp(at(DIRECT, ECHO), &[1; 100_000]))?;
        let (seen, passed) = (before.count()? - first, after.count()? - second);
        ensure!(
            passed >= 5,
            "only {passed} of {seen} direct packets reached the next program"
        );
        ensure!(
            filter.count()? >= 5,
            "the clsact filter saw {} packets",
            filter.count()?
        );
        Ok(())
    });
}

#[test]
fn t37_a_recreated_interface_is_hooked_again() {
    play("t37_a_recreated_interface_is_hooked_again", |scene| {
        let _honk = scene.honk()?;
        verdicts_hold(&scene.lab.hc1)?;
        scene.lab.ip(
            &scene.lab.hg,
            "link set lan down\nlink set lan up\n\
             address replace fd66::1/64 dev lan nodad\n",
        )?;
        wait::ok("flows after down and up", Duration::from_secs(10), || {
            verdicts_hold(&scene.lab.hc1)
        })?;
        scene.lab.ip(
            &scene.lab.hg,
            "link delete lan\n\
             link add name lan address 02:66:00:00:00:01 type bridge forward_delay 0 \
             mcast_snooping 0\n\
             link set lp1 master lan up\nlink set lp2 master lan up\nlink set lan up\n\
             address add 10.66.0.1/24 dev lan\naddress add fd66::1/64 dev lan nodad\n",
        )?;
        wait::ok(
            "flows over the new interface",
            Duration::from_secs(10),
            || verdicts_hold(&scene.lab.hc1),
        )
    });
}

#[test]
fn t40_firewall_policies_of_the_host_need_no_hole() {
    play("t40_firewall_policies_of_the_host_need_no_hole", |scene| {
        let _honk = scene.honk()?;
        scene.lab.nft(
            &scene.lab.hg,
            "table inet wall {\n\
             chain input {\ntype filter hook input priority 0; policy drop;\n\
             ct state established,related accept\niif lo accept\n\
             meta l4proto ipv6-icmp accept\n}\n\
             chain forward {\ntype filter hook forward priority 0; policy drop;\n}\n}\n",
        )?;
        let hc1 = &scene.lab.hc1;
        ensure!(hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        ensure!(hc1.run(|| client::whoami_udp(PROXIED))?.ip() == addr::HP);
        ensure!(hc1.run(|| client::whoami_tcp(PROXIED_V6))?.ip() == addr::HP_V6);
        ensure!(
            hc1.run(|| client::briefly(|| client::whoami_tcp(DIRECT)))
                .is_err(),
            "the admin blocked direct"
        );
        Ok(())
    });
}

#[test]
fn t41_a_changed_mac_of_the_pair_heals() {
    play("t41_a_changed_mac_of_the_pair_heals", |scene| {
        let honk = scene.honk()?;
        let private = honk.private_ns()?;
        ip(&private, "link set honk0p address 02:aa:bb:cc:dd:01")?;
        ip(&scene.lab.hg, "link set honk0 address 02:aa:bb:cc:dd:02")?;
        wait::ok("flows after the change", Duration::from_secs(10), || {
            verdicts_hold(&scene.lab.hc1)
        })
    });
}

#[test]
fn t66_proxied_flows_leave_no_conntrack_entry() {
    play("t66_proxied_flows_leave_no_conntrack_entry", |scene| {
        let _honk = scene.honk()?;
        scene.lab.nft(
            &scene.lab.hg,
            "table ip seen {\ncounter tracked { }\nchain pre {\n\
             type filter hook prerouting priority -100\n\
             iifname \"lan\" ip daddr 198.51.100.130 counter name tracked\n}\n}\n",
        )?;
        verdicts_hold(&scene.lab.hc1)?;
        let mut nft = scene.lab.hg.command("nft");
        let text = tool::run(nft.args(["list", "counter", "ip", "seen", "tracked"]))?;
        ensure!(
            text.contains("packets 0 "),
            "proxied packets reached prerouting: {text}"
        );
        Ok(())
    });
}

#[test]
fn t56_on_crash_direct_opens_the_way() {
    play("t56_on_crash_direct_opens_the_way", |scene| {
        let config = config_of("lan", "on_crash: direct", "");
        let honk = Honk::start(&scene.lab, &config)?;
        ensure!(scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip() == addr::HP);
        let home = honk.home.clone();
        honk.kill()?;
        wait::ok(
            "plain forwarding after the crash",
            Duration::from_secs(5),
            || {
                let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip();
                ensure!(seen == addr::HG_WAN, "the origin saw {seen}");
                Ok(())
            },
        )?;
        let pins = home.bpffs.display().to_string();
        home.must(&["cleanup", "--yes", "--bpf-pin-root", &pins])?;
        let mut left = honk_tests::honk::leftovers(&home.bpffs);
        // The kernel's own files of a fresh bpf file system.
        left.retain(|path| path.extension().is_none_or(|end| end != "debug"));
        ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(())
    });
}
