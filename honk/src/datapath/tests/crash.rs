//! Failed starts, deaths and what is left of them.

use super::*;

/// A client's connection to the origin reaches a socket of the gateway itself: nothing
/// intercepts.
fn passes(lab: &Lab, port: u16) {
    assert!(arrives(lab, port, PATIENCE), "a connection must pass");
}

/// It does not: a SYN that passes is accepted at once; one that is dropped never.
fn is_blocked(lab: &Lab, port: u16) {
    let shortly = Duration::from_millis(400);
    assert!(
        !arrives(lab, port, shortly),
        "a proxied connection must not leave"
    );
}

/// The origin's address is put on the loopback, which a dead daemon's tables do not know.
fn arrives(lab: &Lab, port: u16, patience: Duration) -> bool {
    let mut rtnl = Rtnl::open().unwrap();
    let lo = rtnl.link("lo").unwrap().unwrap().index;
    rtnl.add_address(lo, ip(ORIGIN4), 32).unwrap();
    let own = std::net::TcpListener::bind(to(ORIGIN4, port)).unwrap();
    own.set_nonblocking(true).unwrap();
    let _client = connect(lab, to(ORIGIN4, port));
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if own.accept().is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn blocking(lab: &Lab) -> Settings {
    Settings {
        on_crash_block: true,
        ..lab.settings()
    }
}

fn live(settings: Settings) -> (Datapath, Listeners) {
    let (dp, listeners) = Datapath::start(settings).unwrap();
    dp.commit(&all_proxied()).unwrap();
    dp.set_gate(GATE_OPEN).unwrap();
    (dp, listeners)
}

/// The namespace of a killed daemon goes some time after its last descriptor.
fn pair_is_gone() {
    let mut rtnl = Rtnl::open().unwrap();
    until("the pair went", || rtnl.link(pair::HOST).unwrap().is_none());
}

fn pinned(lab: &Lab) -> usize {
    fn count(dir: &Path) -> usize {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .map(|e| match e.file_type().unwrap().is_dir() {
                true => 1 + count(&e.path()),
                false => 1,
            })
            .sum()
    }
    // The file system has files of its own at the top.
    let top = lab.dir.join("bpf/honk");
    usize::from(top.exists()) + count(&top)
}

#[test]
fn block_keeps_blocking_until_the_next_start_serves() {
    lab("block", |lab| {
        let before = snapshot();
        let (dp, listeners) = live(blocking(lab));
        assert!(is_blocking(&lab.dir.join("bpf")));
        drop(listeners);
        dp.crash();
        pair_is_gone();
        let lan = Rtnl::open().unwrap().link("lan").unwrap().unwrap().index;
        let left = links_of(lan);
        assert_eq!(left.len(), 2, "the hooks outlive the process");
        is_blocked(lab, 1);

        // A start that fails changes nothing about that.
        let bad = Settings {
            sysctls: true,
            runtime_dir: "/proc/nowhere".into(),
            ..blocking(lab)
        };
        assert!(Datapath::start(bad).is_err());
        assert_eq!(links_of(lan), left);
        is_blocked(lab, 2);

        // Nor does one whose gate is still closed.
        let (dp, listeners) = Datapath::start(blocking(lab)).unwrap();
        dp.commit(&all_proxied()).unwrap();
        is_blocked(lab, 3);
        // The origin is the gateway's own address by now; another one is not.
        dp.set_gate(GATE_OPEN).unwrap();
        assert_eq!(links_of(lan), left, "the same links, other programs");
        let target = to("198.51.100.99", 4);
        let _client = connect(lab, target);
        let (server, _) = accept(&listeners.tcp[0]);
        assert_eq!(server.local_addr().unwrap(), target);
        dp.stop().unwrap();
        drop(listeners);
        assert_eq!(pinned(lab), 0);
        assert!(links_of(lan).is_empty());
        assert_eq!(snapshot().links, before.links);
        passes(lab, 5);
    });
}

#[test]
fn cleanup_takes_the_rest_away() {
    lab("cleanup", |lab| {
        let before = snapshot();
        let settings = Settings {
            sysctls: true,
            ..blocking(lab)
        };
        let (dp, listeners) = live(settings);
        assert_ne!(snapshot().settings, before.settings);
        drop(listeners);
        dp.crash();
        pair_is_gone();
        let report = cleanup(&lab.dir.join("bpf"), &lab.dir.join("run")).unwrap();
        assert_eq!(report.links, 2);
        assert!(report.settings > 0);
        assert_eq!(snapshot(), before);
        assert_eq!(pinned(lab), 0);
        assert!(!is_blocking(&lab.dir.join("bpf")));
        let again = cleanup(&lab.dir.join("bpf"), &lab.dir.join("run")).unwrap();
        assert_eq!(again, CleanupReport::default());
        passes(lab, 1);
    });
}

#[test]
fn direct_leaves_nothing() {
    lab("direct", |lab| {
        let (dp, listeners) = live(lab.settings());
        let lan = Rtnl::open().unwrap().link("lan").unwrap().unwrap().index;
        assert_eq!(links_of(lan).len(), 2);
        drop(listeners);
        dp.crash();
        assert!(links_of(lan).is_empty());
        assert_eq!(pinned(lab), 0);
        passes(lab, 1);
    });
}

#[test]
fn direct_after_block_removes_the_pins() {
    lab("direct-after-block", |lab| {
        let (dp, listeners) = live(blocking(lab));
        drop(listeners);
        dp.crash();
        let (dp, listeners) = live(lab.settings());
        assert_eq!(pinned(lab), 0);
        let lan = Rtnl::open().unwrap().link("lan").unwrap().unwrap().index;
        assert_eq!(links_of(lan).len(), 2);
        drop(listeners);
        dp.crash();
        assert!(links_of(lan).is_empty());
    });
}

#[test]
fn links_of_interfaces_nobody_wants_end() {
    lab("unwanted", |lab| {
        let (dp, listeners) = live(blocking(lab));
        drop(listeners);
        dp.crash();
        let settings = Settings {
            lan: vec![],
            ..blocking(lab)
        };
        let (dp, _listeners) = Datapath::start(settings).unwrap();
        let lan = Rtnl::open().unwrap().link("lan").unwrap().unwrap().index;
        assert_eq!(links_of(lan).len(), 2, "still blocking");
        dp.set_gate(GATE_OPEN).unwrap();
        assert!(links_of(lan).is_empty());
        dp.stop().unwrap();
        assert_eq!(pinned(lab), 0);
    });
}

#[test]
fn foreign_things_are_respected() {
    lab("foreign", |lab| {
        let mut rtnl = Rtnl::open().unwrap();
        rtnl.create_pair(&Pair {
            host: End {
                name: pair::HOST,
                mac: [2, 0, 0, 0, 7, 1],
            },
            peer: End {
                name: "z0",
                mac: [2, 0, 0, 0, 7, 2],
            },
            peer_netns: lab.client.fd(),
            mtu: 1500,
            alias: "somebody else's",
        })
        .unwrap();
        let before = snapshot();
        let e = Datapath::start(lab.settings()).unwrap_err();
        assert_eq!(e.blame(), Blame::Conflict);
        assert!(e.to_string().contains("honk0"), "{e}");
        assert!(cleanup(&lab.dir.join("bpf"), &lab.dir.join("run")).is_err());
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn a_failed_start_leaves_the_network_as_found() {
    lab("failed", |lab| {
        let before = snapshot();
        // The runtime directory cannot be made: settings must not change either.
        std::fs::write(lab.dir.join("file"), "").unwrap();
        let settings = Settings {
            sysctls: true,
            runtime_dir: lab.dir.join("file/run"),
            ..blocking(lab)
        };
        let e = Datapath::start(settings).unwrap_err();
        assert_eq!(e.blame(), Blame::Other, "{e}");
        assert_eq!(snapshot(), before);
        assert_eq!(pinned(lab), 0);
    });
}

#[test]
fn many_cycles_leave_nothing() {
    lab("cycles", |lab| {
        let before = snapshot();
        for _ in 0..15 {
            let settings = Settings {
                sysctls: true,
                ..blocking(lab)
            };
            let (dp, listeners) = live(settings);
            dp.stop().unwrap();
            drop(listeners);
        }
        assert_eq!(snapshot(), before);
        assert_eq!(pinned(lab), 0);
    });
}

#[test]
fn without_tcx_filters_do_the_same() {
    lab("clsact", |lab| {
        probe::force_clsact();
        let before = snapshot();
        let (dp, listeners) = live(blocking(lab));
        let target = to(ORIGIN4, 4);
        let _client = connect(lab, target);
        let (server, _) = accept(&listeners.tcp[0]);
        assert_eq!(server.local_addr().unwrap(), target);
        drop(server);

        // A script takes the qdisc away.
        let mut rtnl = Rtnl::open().unwrap();
        let lan = rtnl.link("lan").unwrap().unwrap().index;
        assert_eq!(rtnl.filters(lan).unwrap().len(), 2);
        rtnl.delete_clsact(lan).unwrap();
        rtnl.set_up(lan).unwrap();
        dp.set_interfaces(vec!["lan".to_owned()], vec![]).unwrap();
        assert_eq!(rtnl.filters(lan).unwrap().len(), 2);

        dp.stop().unwrap();
        drop(listeners);
        assert_eq!(snapshot(), before);

        let (dp, listeners) = live(blocking(lab));
        drop(listeners);
        dp.crash();
        pair_is_gone();
        assert_eq!(rtnl.filters(lan).unwrap().len(), 2, "filters persist");
        is_blocked(lab, 1);
        let (dp, listeners) = live(blocking(lab));
        assert_eq!(rtnl.filters(lan).unwrap().len(), 2, "replaced");
        drop(listeners);
        dp.crash();
        pair_is_gone();
        let report = cleanup(&lab.dir.join("bpf"), &lab.dir.join("run")).unwrap();
        assert_eq!(report.filters, 2);
        assert!(rtnl.filters(lan).unwrap().is_empty());
        passes(lab, 2);
    });
}

#[test]
fn connections_of_a_dead_daemon_stay_known() {
    lab("carry", |lab| {
        let (dp, listeners) = live(blocking(lab));
        let key = |port, proto| FlowKey::new(to("10.66.0.11", port), to(ORIGIN4, 1), proto);
        let word = |ordinal, state| FlowWord {
            ordinal,
            flags: 0,
            dscp: 0,
            state,
            mark: 7,
        };
        let _client = connect(lab, to(ORIGIN4, 9));
        let (server, from) = accept(&listeners.tcp[0]);
        let seen = dp.lookup(&FlowKey::new(from, to(ORIGIN4, 9), PROTO_TCP));
        let mut value = seen.unwrap();
        for (port, proto, ordinal) in [
            (1, PROTO_TCP, USER_FIRST),
            (2, PROTO_TCP, honk_common::outbound::CONTROL),
            (3, PROTO_TCP, honk_common::outbound::DIRECT),
            (4, PROTO_UDP, USER_FIRST),
        ] {
            value.word = word(ordinal, FLOW_CLAIMED).pack();
            dp.0.shared
                .maps
                .flow
                .put(&key(port, proto), &value)
                .unwrap();
        }
        drop((server, listeners));
        dp.crash();
        pair_is_gone();
        // A start that never serves takes nothing away from the one after it.
        let (dp, listeners) = Datapath::start(blocking(lab)).unwrap();
        drop(listeners);
        dp.crash();
        pair_is_gone();

        let small = Settings {
            flow_entries: 1,
            ..blocking(lab)
        };
        let (dp, listeners) = Datapath::start(small).unwrap();
        let known = [key(1, PROTO_TCP), key(2, PROTO_TCP)];
        let known = known.iter().filter(|k| dp.lookup(k).is_some()).count();
        assert!(known <= 1, "more than there is room for");
        drop(listeners);
        dp.crash();
        pair_is_gone();

        let (dp, listeners) = live(blocking(lab));
        for port in [1, 2] {
            let word = FlowWord::unpack(dp.lookup(&key(port, PROTO_TCP)).unwrap().word);
            let expected = FlowWord {
                ordinal: honk_common::outbound::CONTROL,
                flags: 0,
                dscp: 0,
                state: honk_common::flow::FLOW_STALE,
                mark: 0,
            };
            assert_eq!(word, expected);
        }
        assert!(dp.lookup(&key(3, PROTO_TCP)).is_none());
        assert!(dp.lookup(&key(4, PROTO_UDP)).is_none());
        dp.stop().unwrap();
        drop(listeners);
        assert_eq!(pinned(lab), 0);
    });
}
