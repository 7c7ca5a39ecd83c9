//! Traffic of the gateway itself: by rule, by process, without loops.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use honk_tests::honk::Honk;
use honk_tests::lab::addr;
use honk_tests::meter::Meter;
use honk_tests::scene::{
    BLOCKED, DIRECT, DIRECT_V6, PROXIED, PROXIED_V6, Scene, at, config_of, play,
};
use honk_tests::serve::{DNS, ECHO, HTTP, WHOAMI};
use honk_tests::snapshot::Snapshot;
use honk_tests::{client, wait};
use socket2::{Domain, Socket, Type};

const LIMIT: Duration = Duration::from_secs(15);

fn start(scene: &Scene, wan: &str, rules: &str) -> Result<Honk> {
    start_on(scene, "lan", wan, rules)
}

fn start_on(scene: &Scene, lan: &str, wan: &str, rules: &str) -> Result<Honk> {
    let global = format!("wan_interface: {wan}");
    Honk::start(&scene.lab, &config_of(lan, &global, rules))
}

/// Who the origin thinks a TCP connection of the gateway comes from.
fn tcp(scene: &Scene, to: IpAddr) -> Result<IpAddr> {
    Ok(scene.lab.hg.run(|| client::whoami_tcp(to))?.ip())
}

fn udp(scene: &Scene, to: IpAddr) -> Result<IpAddr> {
    Ok(scene.lab.hg.run(|| client::whoami_udp(to))?.ip())
}

/// A blocked connection of the gateway fails at once, not after its own timeout.
fn refused(scene: &Scene) -> Result<()> {
    let to = at(BLOCKED, HTTP);
    let error = scene.lab.hg.run(|| std::net::TcpStream::connect(to));
    let kind = error.map_err(|e| e.kind()).err();
    ensure!(
        kind == Some(ErrorKind::ConnectionRefused),
        "a blocked connection: {kind:?}"
    );
    Ok(())
}

#[test]
fn the_gateways_own_traffic_follows_the_rules() {
    play("the_gateways_own_traffic_follows_the_rules", |scene| {
        let before = Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?;
        let honk = start(scene, "wan", "")?;
        scene.wan.reset()?;
        for (to, from) in [(PROXIED, addr::HP), (DIRECT, addr::HG_WAN)] {
            ensure!(tcp(scene, to)? == from, "TCP to {to}");
            ensure!(udp(scene, to)? == from, "UDP to {to}");
        }
        ensure!(tcp(scene, PROXIED_V6)? != tcp(scene, DIRECT_V6)?, "IPv6");
        refused(scene)?;
        // Large answers and long streams.
        let payload = vec![7u8; 300_000];
        let echoed = scene
            .lab
            .hg
            .run(|| client::echo_tcp(at(PROXIED, ECHO), &payload))?;
        ensure!(echoed == payload, "{} bytes came back", echoed.len());
        let leaks = scene
            .wan
            .seen(|t| t.touches(PROXIED) || t.touches(PROXIED_V6))?;
        ensure!(leaks.is_empty(), "past the proxy: {leaks:?}");
        // Clients behind the gateway are served as before.
        let seen = scene.lab.hc1.run(|| client::whoami_tcp(PROXIED))?.ip();
        ensure!(seen == addr::HP, "a client: {seen}");
        honk.counts("pkts_wan")?;
        ensure!(honk.stop()?.success());
        Snapshot::take(&scene.lab.hg, &scene.lab.bpffs())?.must_equal(&before)?;
        ensure!(tcp(scene, PROXIED)? == addr::HG_WAN, "after the stop");
        Ok(())
    });
}

#[test]
fn the_gateways_queries_are_relayed_and_name_its_flows() {
    play(
        "the_gateways_queries_are_relayed_and_name_its_flows",
        |scene| {
            let honk = start(scene, "wan", "domain(suffix: a.o1.test) -> proxy")?;
            let ask = |server, name: &str| {
                let hg = &scene.lab.hg;
                hg.run(|| client::dns(at(server, DNS), name, false))
                    .with_context(|| format!("{name} at {server}"))
            };
            for (server, asker) in [(PROXIED, addr::HP), (DIRECT, addr::HG_WAN)] {
                let found = ask(server, "whoami.test")?;
                ensure!(found == [asker], "{server} was asked by {found:?}");
            }
            ensure!(tcp(scene, DIRECT)? == addr::HG_WAN, "no name yet");
            ensure!(ask(DIRECT, "www.a.o1.test")? == [DIRECT]);
            ensure!(tcp(scene, DIRECT)? == addr::HP, "by name");
            // Datagrams of a flow that was direct stay so; this one is new.
            ensure!(udp(scene, DIRECT)? == addr::HP, "by name");
            ensure!(honk.stop()?.success());
            Ok(())
        },
    );
}

#[test]
fn t02_every_own_address_is_proxied() {
    play("t02_every_own_address_is_proxied", |scene| {
        let more =
            "address add 203.0.113.77/24 dev wan\naddress add 2001:db8:113::77/64 dev wan nodad\n";
        scene.lab.ip(&scene.lab.hg, more)?;
        let honk = start(scene, "wan", "")?;
        scene.wan.reset()?;
        for (from, to) in [
            ("203.0.113.2", PROXIED),
            ("203.0.113.77", PROXIED),
            ("10.66.0.1", PROXIED),
            ("2001:db8:113::77", PROXIED_V6),
            ("fd66::1", PROXIED_V6),
        ] {
            let from = SocketAddr::new(from.parse()?, 0);
            let seen = scene.lab.hg.run(|| -> Result<_> {
                let socket = Socket::new(Domain::for_address(from), Type::STREAM, None)?;
                socket.bind(&from.into())?;
                socket.set_read_timeout(Some(client::PATIENCE))?;
                socket.connect_timeout(&at(to, WHOAMI).into(), LIMIT)?;
                client::read_whoami(socket.into())
            });
            let seen = seen.with_context(|| format!("from {from}"))?.ip();
            ensure!(
                seen == addr::HP || seen == addr::HP_V6,
                "{from} came as {seen}"
            );
        }
        ensure!(
            scene.leaked(PROXIED)? + scene.leaked(PROXIED_V6)? == 0,
            "past the proxy"
        );
        ensure!(honk.stop()?.success());
        Ok(())
    });
}

#[test]
fn t22_a_marked_direct_flow_of_the_gateway_takes_the_marked_route() {
    play(
        "t22_a_marked_direct_flow_of_the_gateway_takes_the_marked_route",
        |scene| {
            // The daemon's own mark is set beside that of the rule.
            scene.lab.ip(
                &scene.lab.hg,
                "rule add fwmark 0x10/0x10 lookup 200\nroute add default via 192.0.2.1 table 200\n",
            )?;
            let second = Meter::start(&scene.lab.hw, "w2")?;
            let rules = format!("dip({DIRECT}) -> direct(mark: 0x10)");
            let _honk = start(scene, "wan", &rules)?;
            scene.wan.reset()?;
            tcp(scene, DIRECT)?;
            udp(scene, DIRECT)?;
            ensure!(
                second.count(|t| t.touches(DIRECT))? > 4,
                "nothing took the marked route"
            );
            // The first hop of a packet that is handed over is not on this wire.
            ensure!(scene.leaked(DIRECT)? == 0, "packets without the mark");
            Ok(())
        },
    );
}

/// What the kernel calls this test's process.
fn own_name() -> Result<String> {
    let path = std::env::args().next().context("argv[0]")?;
    let file = path.rsplit('/').next().context("a file name")?;
    Ok(file.chars().take(16).collect())
}

#[test]
fn processes_are_told_apart_by_name() {
    play("processes_are_told_apart_by_name", |scene| {
        let name = own_name()?;
        let rules = format!(
            "pname(nobody) -> block\npname('{name}') && dip({DIRECT}, '{DIRECT_V6}') -> proxy"
        );
        let honk = start(scene, "wan", &rules)?;
        ensure!(tcp(scene, DIRECT)? == addr::HP, "TCP of {name}");
        ensure!(udp(scene, DIRECT)? == addr::HP, "UDP of {name}");
        // Clients have no process.
        let seen = scene.lab.hc1.run(|| client::whoami_tcp(DIRECT))?.ip();
        ensure!(seen == addr::HG_WAN, "a client: {seen}");
        let other = format!("pname(other) && dip({DIRECT}) -> proxy");
        honk.reload(&config_of("lan", "wan_interface: wan", &other))?;
        ensure!(tcp(scene, DIRECT)? == addr::HG_WAN, "another name");
        ensure!(honk.stop()?.success());
        Ok(())
    });
}

/// Everything goes through the proxy, and yet the daemon reaches the proxy directly.
#[test]
fn t51_own_traffic_does_not_loop() {
    play("t51_own_traffic_does_not_loop", |scene| {
        let honk = start(scene, "wan", "dip(0.0.0.0/0, '::/0') -> proxy")?;
        for _ in 0..5 {
            ensure!(tcp(scene, DIRECT)? == addr::HP);
            ensure!(udp(scene, DIRECT)? == addr::HP);
            let seen = scene.lab.hc1.run(|| client::whoami_tcp(DIRECT))?.ip();
            ensure!(seen == addr::HP, "a client: {seen}");
        }
        honk.counts("own_bypass")?;
        let up1 = scene.up1.as_ref().context("the upstream")?;
        let looped = up1.opened().into_iter().filter(|t| t.contains(":1080"));
        let looped: Vec<String> = looped.collect();
        ensure!(looped.is_empty(), "dialed through itself: {looped:?}");
        ensure!(honk.stop()?.success());
        Ok(())
    });
}

/// The gateway answers what comes from outside directly, whatever the rules say.
#[test]
fn answers_to_outside_peers_stay_direct() {
    play("answers_to_outside_peers_stay_direct", |scene| {
        for (lan, rules) in [
            ("lan", "dip(0.0.0.0/0) -> proxy"),
            ("'lan, wan'", "dip(0.0.0.0/0) -> proxy"),
        ] {
            let honk = start_on(scene, lan, "wan", rules)?;
            let service = scene.lab.hg.run(|| UdpSocket::bind((addr::HG_WAN, 6000)))?;
            service.set_read_timeout(Some(LIMIT))?;
            let asker = scene.lab.ho.run(|| UdpSocket::bind((DIRECT, 0)))?;
            asker.set_read_timeout(Some(LIMIT))?;
            for round in 0..3u8 {
                asker.send_to(&[round], SocketAddr::new(addr::HG_WAN, 6000))?;
                let mut buffer = [0; 8];
                let (_, peer) = service.recv_from(&mut buffer)?;
                service.send_to(&[round, 1], peer)?;
                let (n, from) = asker.recv_from(&mut buffer)?;
                ensure!(buffer[..n] == [round, 1]);
                ensure!(from == SocketAddr::new(addr::HG_WAN, 6000), "from {from}");
            }
            honk.counts("inbound_track")?;
            ensure!(honk.stop()?.success());
        }
        Ok(())
    });
}

#[test]
fn t62_one_interface_may_be_both() {
    play("t62_one_interface_may_be_both", |scene| {
        let honk = start_on(scene, "'lan, wan'", "'lan, wan'", "")?;
        for (to, from) in [(PROXIED, addr::HP), (DIRECT, addr::HG_WAN)] {
            ensure!(tcp(scene, to)? == from, "TCP to {to}");
            ensure!(udp(scene, to)? == from, "UDP to {to}");
            let seen = scene.lab.hc1.run(|| client::whoami_tcp(to))?.ip();
            ensure!(seen == from, "a client to {to}: {seen}");
            let seen = scene.lab.hc1.run(|| client::whoami_udp(to))?.ip();
            ensure!(seen == from, "a client's UDP to {to}: {seen}");
        }
        refused(scene)?;
        ensure!(honk.stop()?.success());
        Ok(())
    });
}

#[test]
fn auto_follows_the_default_route() {
    play("auto_follows_the_default_route", |scene| {
        let honk = start(scene, "auto", "")?;
        ensure!(tcp(scene, PROXIED)? == addr::HP);
        scene
            .lab
            .ip(&scene.lab.hg, "route replace default via 192.0.2.1\n")?;
        wait::until("the other interface is hooked", LIMIT, || {
            let list = honk.home.must(&["status", "--json"]).ok()?;
            list.contains("\"wan2\"").then_some(())
        })?;
        ensure!(tcp(scene, PROXIED)? == addr::HP, "by the other way");
        ensure!(honk.stop()?.success());
        Ok(())
    });
}

#[test]
fn an_interface_that_comes_and_goes_is_hooked_again() {
    play(
        "an_interface_that_comes_and_goes_is_hooked_again",
        |scene| {
            let honk = start(scene, "'wan*'", "")?;
            let hooked = |name: &'static str, yes: bool| {
                wait::until("hooks follow the name", LIMIT, || {
                    let list = honk.home.json(&["status", "--json"]).ok()?;
                    let text = list.to_string();
                    let entry = text
                        .split("{")
                        .find(|e| e.contains(&format!("\"{name}\"")))?;
                    (entry.contains("\"attached\":true") == yes).then_some(())
                })
            };
            hooked("wan", true)?;
            scene.lab.ip(
                &scene.lab.hg,
                "link set wan down\nlink set wan name wanx\nlink set wanx up mtu 1400\n\
             route replace default via 203.0.113.1\n",
            )?;
            hooked("wanx", true)?;
            ensure!(tcp(scene, PROXIED)? == addr::HP);
            scene.lab.ip(
                &scene.lab.hg,
                "link set wanx down\nlink set wanx name wan\nlink set wan up mtu 1500\n\
             route replace default via 203.0.113.1\n",
            )?;
            hooked("wan", true)?;
            ensure!(tcp(scene, PROXIED)? == addr::HP);
            ensure!(honk.stop()?.success());
            Ok(())
        },
    );
}
