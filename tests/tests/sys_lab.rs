//! The lab proves itself: plain forwarding works, faults fault, the meter counts, nothing stays.

use std::net::SocketAddr;
use std::path::Path;

use honk_tests::client;
use honk_tests::lab::{Lab, Profile, addr, origin_addresses};
use honk_tests::meter::Meter;
use honk_tests::serve::{DNS, ECHO, Fault, HTTP, Origin, Proxy, ProxySettings, SOCKS, WHOAMI};
use honk_tests::skip;
use honk_tests::snapshot::Snapshot;

#[test]
fn plain_forwarding_reaches_every_origin() {
    if skip::without_root("plain_forwarding_reaches_every_origin") {
        return;
    }
    let lab = Lab::new(Profile::Bridge).expect("a lab");
    let _origin = Origin::start(&lab.ho, &origin_addresses()).expect("origins");
    for ns in [&lab.hc1, &lab.hc2] {
        for ip in origin_addresses() {
            let seen = ns.run(|| client::whoami_tcp(ip)).expect("TCP");
            let seen_udp = ns.run(|| client::whoami_udp(ip)).expect("UDP");
            if ip.is_ipv4() {
                assert_eq!(seen.ip(), addr::HG_WAN, "v4 is masqueraded");
                assert_eq!(seen_udp.ip(), addr::HG_WAN);
            } else {
                let own = if ns.name() == lab.hc1.name() {
                    addr::HC1_V6
                } else {
                    addr::HC2_V6
                };
                assert_eq!((seen.ip(), seen_udp.ip()), (own, own));
            }
        }
    }
    let server = SocketAddr::new(addr::HO[0], DNS);
    let found = lab
        .hc1
        .run(|| client::dns(server, "www.test", false))
        .expect("DNS");
    assert_eq!(found, [addr::HO[0]]);
    let found = lab
        .hc1
        .run(|| client::dns_tcp(server, "www.test", true))
        .expect("DNS over TCP");
    assert_eq!(found, [addr::HO_V6[0]]);
    let payload: Vec<u8> = (0..1_000_000).map(|n| (n * 7 % 251) as u8).collect();
    let echo = SocketAddr::new(addr::HO[1], ECHO);
    assert!(
        lab.hc1
            .run(|| client::echo_tcp(echo, &payload))
            .expect("echo")
            == payload
    );
}

#[test]
fn meter_counts_what_crosses_the_wire_and_nothing_else() {
    if skip::without_root("meter_counts_what_crosses_the_wire_and_nothing_else") {
        return;
    }
    let lab = Lab::new(Profile::Bridge).expect("a lab");
    let _origin = Origin::start(&lab.ho, &origin_addresses()).expect("origins");
    let wan = Meter::start(&lab.hw, "w1").expect("a meter");
    let upstream = Meter::start(&lab.hw, "wp").expect("a meter");
    for ip in [addr::HO[0], addr::HO_V6[0]] {
        lab.hc1.run(|| client::whoami_udp(ip)).expect("UDP");
        assert_eq!(
            wan.count(|t| t.touches(ip) && t.port(WHOAMI))
                .expect("counts"),
            2,
            "{ip}"
        );
    }
    assert_eq!(upstream.count(|t| t.port(WHOAMI)).expect("counts"), 0);
    wan.reset().expect("reset");
    assert_eq!(wan.count(|t| t.port(WHOAMI)).expect("counts"), 0);
}

#[test]
fn upstreams_relay_log_and_fault() {
    if skip::without_root("upstreams_relay_log_and_fault") {
        return;
    }
    let lab = Lab::new(Profile::Flat).expect("a lab");
    let _origin = Origin::start(&lab.ho, &origin_addresses()).expect("origins");
    let login = Some(("ann".to_owned(), "secret".to_owned()));
    let settings = ProxySettings {
        login,
        seed: 1,
        log: Some(lab.dir().join("hp.jsonl")),
    };
    let proxy = Proxy::start(&lab.hp, &[addr::HP], settings).expect("an upstream");
    let fetch = |scheme: &str, login: &str, port: u16| {
        let via = format!("{scheme}://{login}{}:{port}", addr::HP);
        let url = format!("http://{}:{HTTP}/whoami", addr::HO[0]);
        let mut curl = lab.hc1.command("curl");
        curl.args(["-sS", "--max-time", "3", "--proxytunnel", "-x", &via, &url]);
        honk_tests::tool::output(&mut curl).expect("curl")
    };
    for (scheme, port) in [("socks5", SOCKS), ("http", 8080)] {
        let output = fetch(scheme, "ann:secret@", port);
        let body = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            body.starts_with("198.51.100.10:"),
            "{scheme}: {body} {output:?}"
        );
        assert!(
            !fetch(scheme, "ann:wrong@", port).status.success(),
            "{scheme}"
        );
    }
    for fault in [Fault::Drop, Fault::Rst, Fault::Refuse, Fault::Blackhole] {
        proxy.faults().set(fault);
        assert!(
            !fetch("socks5", "ann:secret@", SOCKS).status.success(),
            "{fault:?}"
        );
    }
    assert_eq!(proxy.entries().len(), 2);
    let log = std::fs::read_to_string(lab.dir().join("hp.jsonl")).expect("the log");
    assert!(
        log.lines().all(|line| line.contains("\"user\":\"ann\"")),
        "{log}"
    );
}

#[test]
fn a_lab_leaves_nothing_behind() {
    if skip::without_root("a_lab_leaves_nothing_behind") {
        return;
    }
    let lab = Lab::new(Profile::Flat).expect("a lab");
    let (dir, path) = (lab.dir().to_path_buf(), lab.hg.path());
    let mut sleeper = lab
        .hg
        .command("sleep")
        .arg("1000")
        .spawn()
        .expect("a process");
    let before = Snapshot::take(&lab.hg, &lab.bpffs()).expect("a snapshot");
    let after = Snapshot::take(&lab.hg, &lab.bpffs()).expect("a snapshot");
    after.must_equal(&before).expect("nothing changed");
    lab.ip(&lab.hg, "address add 10.99.0.1/24 dev lan\n")
        .expect("ip");
    let after = Snapshot::take(&lab.hg, &lab.bpffs()).expect("a snapshot");
    assert!(
        after.must_equal(&before).is_err(),
        "an added address is seen"
    );
    drop(lab);
    assert!(!dir.exists() && !path.exists());
    assert!(
        !sleeper.wait().expect("the process").success(),
        "processes inside are ended"
    );
    assert!(
        !Path::new("/proc/self/mounts").exists() || {
            let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
            !mounts.contains(&dir.display().to_string())
        }
    );
}
