use serde_json::{Value, json};

use super::{
    facts::{Alive, Loaded},
    *,
};
use crate::{
    datapath::inspect::{Hooks, Look, Pair, Seen, Wanted},
    netlink::firewall::{BaseChain, FORWARD, OUTPUT},
};

fn facts() -> Facts {
    let lan = Seen {
        name: "lan".to_owned(),
        up: true,
        kind: 1,
        supported: true,
        master: None,
        v4: true,
        v6: false,
        hooks: Some(Hooks {
            ours: vec!["lan_ingress_l2".to_owned()],
            ..Hooks::default()
        }),
    };
    let settings = [("net/ipv4/ip_forward", "1")];
    Facts {
        release: "6.8.0-45-generic".to_owned(),
        btf: true,
        attachment: Some(Ok("tcx")),
        bpffs: true,
        config: Loaded {
            revision: Some("c-1".to_owned()),
            own_mark: 0x100,
            ..Loaded::default()
        },
        daemon: Some(alive()),
        look: Some(Look {
            interfaces: vec![Wanted {
                pattern: "lan".to_owned(),
                role: "lan",
                link: Some(lan),
            }],
            defaults: vec!["wan".to_owned()],
            pair: Pair::Up,
        }),
        private: Some(None),
        settings: settings.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        now_ms: 1_800_000_000_000,
        free: Some(1 << 30),
        cpus: 1,
        ..Facts::default()
    }
}

fn alive() -> Alive {
    let status = json!({
        "state": "running", "reasons": [], "version": "1", "pid": 7, "uptime_s": 1,
        "mode": "Rule", "generation": 1, "config_revision": "c-1",
        "last_reload": {
            "state": "idle", "phase": null, "generation": 1, "config_revision": "c-1",
            "sequence": 0, "started_at": null, "duration_ms": null, "age_ms": null,
            "changed": [], "diagnostics": [], "message": "",
        },
        "datapath": {"backend": "ebpf", "gate": "open", "interfaces": [], "on_crash": "block"},
        "counts": {
            "groups": 0, "nodes": 1, "connections_tcp": 0, "connections_udp": 0, "rules": 1,
        },
        "rates": {"up_bps": 0, "down_bps": 0},
        "totals": {"up_bytes": 0, "down_bytes": 0},
        "memory": {"rss_bytes": 0},
        "warnings": [],
    });
    let datapath = json!({
        "gate": "open", "interfaces": [], "features": [], "outbounds": [], "counters": {},
        "maps": [{"name": "flow", "entries": 1, "capacity": 100}],
    });
    Alive {
        status: read(status),
        datapath: read(datapath),
        groups: Vec::new(),
        nodes: vec![read(node("alive"))],
        subscriptions: Vec::new(),
    }
}

fn node(state: &str) -> Value {
    json!({
        "id": "x", "name": "n", "protocol": "socks5", "network": "tcp+udp",
        "subscription": null, "groups": [], "builtin": false, "state": state,
        "duplicate_name": false, "active": 0,
    })
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The check `id` after the world was changed, and the exit code.
fn after(id: &str, change: impl FnOnce(&mut Facts)) -> (Check, Exit) {
    let mut facts = facts();
    change(&mut facts);
    let checks = checks::all(&facts);
    let found = checks.iter().find(|c| c.id == id).unwrap().clone();
    (found, exit(&checks))
}

#[track_caller]
fn expect(id: &str, status: Verdict, says: &str, change: impl FnOnce(&mut Facts)) {
    let (check, exit) = after(id, change);
    assert_eq!(check.status, status, "{check:?}");
    let text = format!("{} {}", check.message, check.fix.unwrap_or_default());
    assert!(text.contains(says), "{text}");
    if status == Verdict::Fail {
        assert_ne!(exit, Exit::Success, "{text}");
    }
}

#[test]
fn a_sound_gateway_passes_and_says_so() {
    let checks = checks::all(&facts());
    let bad: Vec<_> = checks.iter().filter(|c| c.status != Verdict::Ok).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(exit(&checks), Exit::Success);
    let out = Output {
        json: false,
        color: false,
        quiet: false,
        width: None,
    };
    assert!(report(&out, &checks).ends_with("\ndiag: all checks passed\n"));
}

#[test]
fn a_kernel_that_cannot_do_it_is_code_9_and_the_rest_is_10() {
    let code = |change: fn(&mut Facts)| after("kernel", change).1;
    assert_eq!(code(|f| f.btf = false), Exit::Unsupported);
    assert_eq!(code(|f| f.realtime = true), Exit::Unsupported);
    assert_eq!(code(|f| f.release = "4.19.0".to_owned()), Exit::Unsupported);
    assert_eq!(
        code(|f| f.attachment = Some(Err("no".to_owned()))),
        Exit::Unsupported
    );
    assert_eq!(code(|f| f.free = Some(0)), Exit::Found);
    assert_eq!(
        code(|f| f.release = "6.1.0".to_owned()),
        Exit::Success,
        "a warning"
    );
}

#[test]
fn a_daemon_that_is_not_there_or_dumb_or_dead_is_told_apart() {
    expect("daemon", Verdict::Fail, "does not run", |f| f.daemon = None);
    expect("daemon", Verdict::Fail, "does not answer", |f| {
        f.daemon = None;
        f.holder = Some(9);
    });
    expect("daemon", Verdict::Fail, "keep blocking", |f| {
        f.daemon = None;
        f.blocking = true;
    });
}

#[test]
fn what_the_daemon_tells_is_judged() {
    let told = |change: fn(&mut Alive)| move |f: &mut Facts| change(f.daemon.as_mut().unwrap());
    expect(
        "gate",
        Verdict::Warn,
        "honk resume",
        told(|d| d.status.state = "suspended".to_owned()),
    );
    expect(
        "gate",
        Verdict::Fail,
        "gate is closed",
        told(|d| d.datapath.gate = "closed".to_owned()),
    );
    expect(
        "maps",
        Verdict::Fail,
        "90 of 100",
        told(|d| d.datapath.maps[0].entries = 90),
    );
    expect(
        "maps",
        Verdict::Ok,
        "89/100",
        told(|d| d.datapath.maps[0].entries = 89),
    );
    expect(
        "drops",
        Verdict::Warn,
        "flow_overflow is 3",
        told(|d| {
            d.datapath
                .counters
                .extend([("flow_overflow".to_owned(), 3)])
        }),
    );
    expect(
        "nodes",
        Verdict::Fail,
        "no node answers",
        told(|d| d.nodes = vec![read(node("dead"))]),
    );
    let cut = |f: &mut Facts| {
        let counters = [("frame_mended".to_owned(), 5), ("frame_drop".to_owned(), 2)];
        f.daemon
            .as_mut()
            .unwrap()
            .datapath
            .counters
            .extend(counters);
    };
    expect("frames", Verdict::Warn, "7 packets", cut);
    expect("frames", Verdict::Warn, "in front of the stack", cut);
    expect("frames", Verdict::Warn, "xdp pass (generic) on lan", |f| {
        cut(f);
        let link = f.look.as_mut().unwrap().interfaces[0].link.as_mut();
        let hooks = link.unwrap().hooks.as_mut().unwrap();
        hooks.foreign = vec!["xdp pass (generic)".to_owned()];
    });
    expect(
        "nodes",
        Verdict::Warn,
        "no nodes",
        told(|d| d.nodes.clear()),
    );
    expect(
        "config",
        Verdict::Warn,
        "honk reload",
        told(|d| d.status.config_revision = "c-2".to_owned()),
    );
}

#[test]
fn interfaces_are_judged_by_what_they_are() {
    let link = |change: fn(&mut Seen)| {
        move |f: &mut Facts| {
            let interfaces = &mut f.look.as_mut().unwrap().interfaces;
            change(interfaces[0].link.as_mut().unwrap());
        }
    };
    expect(
        "interface",
        Verdict::Warn,
        "list br0 instead",
        link(|l| l.master = Some("br0".to_owned())),
    );
    expect(
        "interface",
        Verdict::Warn,
        "is down",
        link(|l| l.up = false),
    );
    expect(
        "interface",
        Verdict::Warn,
        "no address",
        link(|l| l.v4 = false),
    );
    expect(
        "interface",
        Verdict::Fail,
        "type 801",
        link(|l| {
            l.supported = false;
            l.kind = 801;
        }),
    );
    expect(
        "interface",
        Verdict::Fail,
        "lan_egress_l2",
        link(|l| {
            l.hooks
                .as_mut()
                .unwrap()
                .missing
                .push("lan_egress_l2".to_owned());
        }),
    );
    expect(
        "interface",
        Verdict::Ok,
        "ingress shaper",
        link(|l| {
            l.hooks
                .as_mut()
                .unwrap()
                .foreign
                .push("ingress shaper".to_owned());
        }),
    );
    expect("interface", Verdict::Fail, "no such interface", |f| {
        f.look.as_mut().unwrap().interfaces[0].link = None;
    });
    expect("interface", Verdict::Fail, "nothing is intercepted", |f| {
        f.look.as_mut().unwrap().interfaces.clear();
    });
}

#[test]
fn the_host_around_it_is_judged() {
    let set = |key: &'static str, value: &'static str| {
        move |f: &mut Facts| f.settings.extend([(key.to_owned(), value.to_owned())])
    };
    expect(
        "forwarding",
        Verdict::Fail,
        "ip_forward is 0",
        set("net/ipv4/ip_forward", "0"),
    );
    expect(
        "forwarding",
        Verdict::Fail,
        "conf.lan.forwarding",
        set("net/ipv4/conf/lan/forwarding", "0"),
    );
    expect(
        "redirects",
        Verdict::Warn,
        "send_redirects",
        set("net/ipv4/conf/lan/send_redirects", "1"),
    );
    expect(
        "redirects",
        Verdict::Warn,
        "send_redirects",
        set("net/ipv4/conf/all/send_redirects", "1"),
    );
    expect(
        "kernel-hooks",
        Verdict::Warn,
        "bpf_jit_enable=1",
        set("net/core/bpf_jit_enable", "0"),
    );
    let chain = |hook| {
        move |f: &mut Facts| {
            f.chains.push(BaseChain {
                family: 1,
                table: "wall".to_owned(),
                name: "out".to_owned(),
                hook,
                drops: true,
            });
        }
    };
    expect(
        "firewall",
        Verdict::Warn,
        "meta mark and 0x100 == 0x100 accept",
        chain(OUTPUT),
    );
    expect(
        "firewall",
        Verdict::Warn,
        "direct ones may not",
        chain(FORWARD),
    );
    expect("firewall", Verdict::Fail, "no node answers", |f| {
        chain(OUTPUT)(f);
        f.daemon.as_mut().unwrap().nodes = vec![read(node("dead"))];
    });
    expect("default-route", Verdict::Fail, "bring up the WAN", |f| {
        f.look.as_mut().unwrap().defaults.clear();
    });
    expect("private-namespace", Verdict::Fail, "did not make", |f| {
        f.look.as_mut().unwrap().pair = Pair::Foreign;
    });
    expect("private-namespace", Verdict::Fail, "rule", |f| {
        f.private = Some(Some("the V4 rule is gone".to_owned()));
    });
    expect("clock", Verdict::Fail, "certificates", |f| {
        f.installed_ms = f.now_ms + 90_000_000
    });
    expect("disk", Verdict::Warn, "free some space", |f| {
        f.free = Some(64 << 20)
    });
    expect("server-names", Verdict::Warn, "bootstrap_resolver", |f| {
        f.config.name = Some("node.test".to_owned());
        f.resolver = Some(([192, 0, 2, 1], 53).into()).map(|s| (s, Err("no answer".to_owned())));
    });
    expect("dns-path", Verdict::Warn, "wan_interface", |f| {
        f.config.domain_rules = true;
        f.serves_dns = true;
    });
    expect("queues", Verdict::Ok, "rps_cpus", |f| {
        f.queues = vec![("lan".to_owned(), 1, false)];
        f.cpus = 4;
    });
}

#[test]
fn a_configuration_that_cannot_run_is_named_with_its_first_error() {
    expect(
        "config",
        Verdict::Fail,
        "a.dae:1:1: bad (and 1 more)",
        |f| {
            f.config.errors = vec!["a.dae:1:1: bad".to_owned(), "b".to_owned()];
        },
    );
    expect("config", Verdict::Fail, "chmod 0600", |f| {
        f.config.errors = vec!["open".to_owned()];
        f.config.too_open = true;
    });
}

#[test]
fn sockets_of_resolvers_are_recognised() {
    let line = |local: &str, remote: &str| {
        host::listens_on_53(&format!("  12: {local} {remote} 07 00000000:00000000"))
    };
    assert!(line("00000000:0035", "00000000:0000"));
    assert!(line("0142000A:0035", "00000000:0000"));
    assert!(!line("0100007F:0035", "00000000:0000"), "loopback only");
    assert!(!line("00000000:0035", "0142000A:9C40"), "a client's");
    assert!(!line("00000000:14E9", "00000000:0000"), "another port");
}
