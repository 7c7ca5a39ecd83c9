//! Texts that are accepted, and what they mean.

use std::time::{Duration, Instant};

use honk_policy::{
    config::{
        DnsAction, DnsTest, FilterLine, InternalName, OnCrash, Policy, TextTest, Transport,
        refuse_unbuilt,
    },
    id::Ordinal,
    node::{Host, Protocol},
    routing::rule::{Action, DomainTest, Test},
};

use super::{accepted, lowered, unbuilt};

/// Snippet and the findings it may have.
pub(super) const CASES: &[(&str, &str, &[&str])] = &[
    ("V01", "global {} routing {}", &[]),
    ("V02", "global { log_level: warn tproxy_port: 12346 }", &[]),
    ("V03", "node { a: \"socks5://u:it's@192.0.2.1:1080\" }", &[]),
    ("V04", r"group { g { filter: name('it\'s') } }", &[]),
    (
        "V05",
        r"routing { domain(regex: '\.goo.*\.com$') -> direct }",
        &[],
    ),
    (
        "V06",
        "node {⏎  socks5://192.0.2.1:1080#home   # note⏎}",
        &[],
    ),
    (
        "V07",
        "subscription {⏎  s: 'https://sub.example/x?a=1#f' # note⏎}",
        &[],
    ),
    (
        "V08",
        "routing { dport(80, 443,) -> block }",
        &["W212 1:24"],
    ),
    ("V09", "node {} group {} subscription { # none⏎}", &[]),
    (
        "V10",
        "global { log_level: info }⏎global { log_level: debug mptcp: true }",
        &["W211 2:10"],
    ),
    ("V11", "global {␍⏎⇥log_level: info␍⏎}␍⏎", &[]),
    ("V12", "\u{FEFF}global {}", &[]),
    (
        "V13",
        "group { '🇭🇰 HK' { filter: name(keyword: '🇭🇰') policy: urltest } 日本 { policy: select } }⏎\
             routing { dport(22) -> '🇭🇰 HK' fallback: 日本 }",
        &[],
    ),
    (
        "V15",
        "routing { dport(1-1023, 8443) && sport(0-65535) -> block }",
        &[],
    ),
    ("V16", "dns { client_subnet: auto(9.9.9.9) }", &[]),
    (
        "V17",
        "routing {⏎  domain(geosite: geolocation-!cn) &&⏎    !domain(geosite: a-!cn,⏎            geosite: b)⏎    -> direct⏎}",
        &[],
    ),
    (
        "V18",
        "routing { dip(2001:db8::/32, ::1, fe80::/10, 'ff00::/8') -> direct }",
        &[],
    ),
    (
        "V19",
        "routing { mac(aa:bb:cc:dd:ee:ff, '02-42-ac-11-00-02') && ipversion(4) -> direct }",
        &[],
    ),
    (
        "V20",
        "group { proxy { } }⏎routing {⏎  pname(mosdns) -> must_rules⏎  dscp(0x4) -> direct(mark: 0x800, must)⏎  dport(443) -> must_proxy⏎  fallback: proxy(must)⏎}",
        &[],
    ),
    (
        "V21",
        "group { g {⏎  filter: name(hk)⏎  filter: name(us) [add_latency: -500ms]⏎  policy: min_moving_avg⏎} }",
        &[],
    ),
    (
        "V24",
        "/* block⏎   comment */ include { config.d/*.dae } global { /* x */ log_level: info /* y */ }",
        &[],
    ),
    (
        "V25",
        "group { g { filter: group() policy: select final: direct } }",
        &["W906 1:21"],
    ),
    ("V26", "group { g { policy: random } }", &["W903 1:21"]),
    (
        "V27",
        "global { check_interval: 1m30s check_tolerance: 50 sniffing_timeout: 0 }",
        &[],
    ),
    (
        "V28",
        "global {⏎  lan_interface:⏎  wan_interface: auto⏎}",
        &[],
    ),
    ("V29", "routing{domain(geosite:cn)->direct}", &[]),
    (
        "V30",
        "global {⏎  lan_interface: eth0,⏎                 eth1⏎  wan_interface: 'eth2,eth3'⏎}",
        &[],
    ),
    ("V31", "global { store_subscribe: YES mptcp: off }", &[]),
    (
        "V33",
        "routing { domain(contains: ads, domain: example.com, full: a.example.org) -> block⏎ ip(geoip: private) && port(53) -> direct }",
        &[],
    ),
    (
        "V34",
        "group { hk {} jp {} tw {} g { filter: subtag(regex: '^p') && !name(keyword: 'ExpireAt-') filter: name(a, b) filter: group('hk|jp', tw) } }",
        &[],
    ),
    ("V37", "'global' { 'log_level': 'info' }", &[]),
    (
        "V39",
        "node { chain: 'socks5://192.0.2.1:1080 -> ss://YWVzLTI1Ni1nY206cA@192.0.2.2:8388' }",
        &[],
    ),
    ("V40", "# only a comment", &[]),
    ("V40b", "", &[]),
    (
        "V41",
        "routing { dip(geoip:private) -> direct⏎  l4proto(udp)&&dport(443)->block⏎  default:direct }",
        &[],
    ),
    (
        "V42",
        "global { tcp_check_url: 'http://cp.example,192.0.2.1,2001:db8::1' udp_check_dns: dns.example:53, 192.0.2.53 }",
        &[],
    ),
    (
        "V43",
        "group { g { filter: name(keyword: 'x') [add_latency: 100ms] policy: score } }",
        &["W214 1:41"],
    ),
    ("V44", "node { a: socks5://192.0.2.1:1080}", &[]),
    (
        "V45",
        "node { hk: 'ss://YWVzLTI1Ni1nY206cA@192.0.2.2:8388' [detour: 'group:up', enabled: yes] }",
        &[],
    ),
    (
        "V22",
        "group { proxy { } }⏎dns { upstream {⏎  a: 'https://dns.example/dns-query' -> proxy⏎  b: 'tcp://192.0.2.53:53' outbound: proxy⏎  c: udp://192.0.2.54:53 -> direct⏎  d: 192.0.2.55⏎} }",
        &["W713 2:7", "W213 4:28"],
    ),
    (
        "V23",
        "dns { fixed_domain_ttl {⏎  123.example.com: 10⏎  '124.example.com': 0⏎  '125.example.com: 3600'⏎} }",
        &[],
    ),
    (
        "V32",
        "subscription {⏎  'file://subs/a.sub'⏎  p: 'https-file://sub.example/x'⏎  https://sub.example/y?token=1&k=v⏎  'q:https://sub.example/z'⏎}",
        &[],
    ),
    (
        "V36",
        "dns { upstream { x: 'udp://192.0.2.1' } routing { request {⏎  sip(192.168.50.0/24) && qtype(a, aaaa, 65) -> asis⏎  sub() -> x⏎  node(name_keyword: hk) -> x⏎  default: asis⏎} response { upstream(x) -> accept fallback: accept } } }",
        &[],
    ),
    (
        "V38",
        "subscription { s: 'https://sub.example/x' [type: clash, update_interval: 6h] }",
        &[],
    ),
    (
        "V46",
        "group { proxy { } }⏎dns { upstream { a: 'quic://dns.example' -> proxy } }⏎experimental { clash_apy {} }",
        &["W713 2:7", "W711 2:45", "W216 3:16"],
    ),
    ("worked example", WORKED, &["W907 39:9"]),
    (
        "chains and more",
        "chain { us { hops: a, b idle_timeout: 10m strip: tls_fragment, '-utls' rewrite { vless { flow: '' } } } }⏎bypass { yt { ports: 443,80 protocols: tls,http quic: drop split: 1, midsld disorder: true tlsrec: 'sniext+1' fake: decoy(ttl: 6, md5sig: true) escalate { to: direct remember: 1h } } }⏎watch { enabled: true check_interval: 300s video { targets: domain(geosite: youtube) outbound: yt addresses: 'https://www.example/' keep_working: true } }⏎speedtest { server: x streams: 10 x { ping_url: 'https://x.example/' } }⏎routing { dport(1) -> us fallback: yt }",
        &[],
    ),
    (
        "health keys",
        "global { ping_url: preset(cloudflare) ping_timeout: 5s auto_ping: true test_thresholds: 250,500,700 passive_check: true }⏎group { p { policy: urltest test_interval: 15m ping_url: 'https://www.example.org/' ping_timeout: 3s sticky: source_ip, domain pool: 3 auto_options { pool: 2 } } }",
        &[],
    ),
    (
        "experimental",
        "experimental { clash_api { external_controller: '127.0.0.1:9090', '[::1]:9090' secret: 's3cret' default_mode: Global } cache_file { store_dns: true path: 'x.db' } metrics { listen: '127.0.0.1:9091' node_series: off } datapath { udp_sockets: 4 } log { rate_limit: off } }",
        &[],
    ),
];

/// A whole configuration of a gateway.
const WORKED: &str = r#"include { config.d/*.dae }

global {
    lan_interface: br-lan
    wan_interface: auto
    log_level: info
    log_file: 'honk.log'
    dial_mode: domain++
    check_interval: 30s
    bootstrap_resolver: '192.0.2.53:53'
}

subscription {
    paid: 'https://sub.example/list?token=t#x' [update_interval: 12h]
    'file://subs/local.sub'
}

node {
    backup: 'socks5://192.0.2.2:1080'
    'trojan://secret@host.example:443?sni=host.example#tr1'
}

group {
    hk {
        filter: subtag(paid) && name(keyword: 'HK') && !name(keyword: 'ExpireAt-')
        policy: min_moving_avg
        tolerance: 30ms
        final: block
    }

    # A selector with a nested group.
    proxy {
        filter: group('hk')
        filter: name(backup)
        policy: select
        default: hk

        # Ignored by a selector.
        check_url: 'https://www.gstatic.com/generate_204'
        interrupt_connections: true
    }
    smart { policy: score }
}

dns {
    ipversion_prefer: 4
    upstream {
        lan: 'udp://192.0.2.53:53' -> direct
        doh: 'https://dns.example/dns-query' -> proxy
    }
    routing {
        request {
            qtype(https) -> reject
            qname(geosite: cn) -> lan
            fallback: doh
        }
        response { upstream(doh) -> accept  ip(geoip: private) && !qname(geosite: cn) -> doh  fallback: accept }
    }
}

routing {
    pname(dnsmasq, systemd-resolved) && dport(53) -> must_direct
    dip(224.0.0.0/3, 'ff00::/8') -> direct
    dip(geoip: private) -> direct
    l4proto(udp) && dport(443) -> block
    domain(geosite: geolocation-!cn, suffix: example.org) -> smart
    dscp(0x8) -> direct(mark: 0x800)
    fallback: proxy
}

experimental {
    clash_api { external_controller: '127.0.0.1:9090' secret: 's3cret' }
    cache_file { store_dns: true }
    metrics { listen: '127.0.0.1:9091' }
}
"#;

#[test]
fn snippets_are_accepted() {
    let mut wrong = Vec::new();
    for (id, text, want) in CASES {
        let (config, _, got) = lowered(text);
        if config.is_none() || got != *want {
            wrong.push(format!("{id}: {text}\n  want {want:?}\n  got  {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn text_of(id: &str) -> &'static str {
    CASES
        .iter()
        .find(|(name, ..)| *name == id)
        .map(|(_, text, _)| *text)
        .expect("the snippet is in the table")
}

fn action(ordinal: u8, must: bool, mark: u32) -> Action {
    Action {
        ordinal: Ordinal(ordinal),
        must,
        mark,
    }
}

#[test]
fn global_settings() {
    let global = accepted(
        "global { tproxy_port: 0x3039 so_mark_from_dae: 0x200 lan_interface: eth0, 'br*'
         lan_interface: eth0 bootstrap_resolver: '192.0.2.53', 'udp://[2001:db8::1]:5353'
         fallback_resolver: '' on_crash: direct drain_timeout: 1500ms log_flows: yes
         max_concurrent_dials: 0 data_dir: /tmp/x log_level: warning }",
    )
    .global;
    assert_eq!(global.tproxy_port, 12345);
    assert_eq!(global.own_mark, 0x200);
    assert_eq!(global.lan_interface, ["eth0", "br*"]);
    let bootstrap: Vec<String> = global.bootstrap.iter().map(ToString::to_string).collect();
    assert_eq!(bootstrap, ["192.0.2.53:53", "[2001:db8::1]:5353"]);
    assert_eq!(global.fallback_resolver, None);
    assert_eq!(global.on_crash, OnCrash::Direct);
    assert_eq!(global.drain_timeout_ms, 2000);
    assert!(global.log_flows && global.disable_thp);
    assert_eq!(global.max_concurrent_dials, 1);
    assert_eq!(global.data_dir.as_deref(), Some("/tmp/x"));
    assert_eq!(global.log_level, "warn");
    assert_eq!(accepted("").global, Default::default());
    assert_eq!(accepted(text_of("V10")).global.log_level, "debug");
    assert_eq!(accepted(text_of("V11")).global.log_level, "info");
    assert_eq!(
        accepted(text_of("V30")).global.lan_interface,
        ["eth0", "eth1"]
    );
}

#[test]
fn nodes() {
    let node = accepted(text_of("V03")).nodes.remove(0);
    assert_eq!(node.name, "a");
    let Protocol::Socks5(server) = node.protocol else {
        panic!()
    };
    assert_eq!(server.host, Host::Ip([192, 0, 2, 1].into()));
    assert_eq!(server.port, 1080);
    let (user, password) = server.auth.unwrap();
    assert_eq!((user.reveal(), password.reveal()), ("u", "it's"));
    assert_eq!(accepted(text_of("V06")).nodes[0].name, "home");
    assert_eq!(accepted(text_of("V44")).nodes.len(), 1);
    assert_eq!(
        accepted("node { a: socks5://192.0.2.1:1 [enabled: no] }")
            .nodes
            .len(),
        0
    );
}

#[test]
fn groups_and_ordinals() {
    let config = accepted(text_of("V13"));
    let named: Vec<_> = config
        .groups
        .iter()
        .map(|g| (g.name.as_str(), g.ordinal.0))
        .collect();
    assert_eq!(named, [("🇭🇰 HK", 2), ("日本", 3)]);
    assert_eq!(config.groups[0].policy, Policy::UrlTest);
    let actions: Vec<_> = config.rules.lines.iter().map(|line| line.action).collect();
    assert_eq!(actions, [action(2, false, 0), action(3, false, 0)]);

    let filters = accepted(text_of("V34")).groups.remove(3).filters.unwrap();
    assert!(matches!(&filters[0], FilterLine::Nodes(p) if p.len() == 2 && p[1].not));
    assert!(matches!(&filters[1], FilterLine::Nodes(p) if p[0].tests.len() == 2));
    assert_eq!(
        filters[2],
        FilterLine::Groups(vec!["hk".into(), "jp".into(), "tw".into()])
    );

    let filters = accepted(text_of("V04")).groups.remove(0).filters.unwrap();
    let FilterLine::Nodes(line) = &filters[0] else {
        panic!()
    };
    assert_eq!(line[0].tests, [TextTest::Exact("it's".into())]);

    assert_eq!(accepted("group { g { } }").groups[0].filters, None);
    assert_eq!(
        accepted(text_of("V25")).groups[0].filters,
        Some(vec![FilterLine::Groups(vec![])])
    );
    let ignored = accepted("group { g { filter: nme(a) } }").groups.remove(0);
    assert_eq!(ignored.filters, Some(vec![FilterLine::Ignored]));

    let groups: String = (0..250)
        .map(|n| format!("g{n} {{ policy: select }} "))
        .collect();
    let last = accepted(&format!("group {{ {groups} }}"))
        .groups
        .pop()
        .unwrap();
    assert_eq!(last.ordinal, Ordinal(251));
}

#[test]
fn filters_are_numbered_without_group_lines() {
    let (_, findings, _) = lowered(
        "group { g { filter: group(g) filter: name(regex: '(') filter: group() filter: nme(x) } }",
    );
    let of = |number| {
        let found = findings.iter().filter(move |f| f.number == number);
        found.map(|f| f.message.as_str()).collect::<Vec<_>>()
    };
    assert!(of("W904")[0].contains("filter #1"), "{findings:?}");
    assert!(of("W904")[1].contains("filter #3"), "{findings:?}");
}

#[test]
fn rules() {
    let config = accepted(text_of("V20"));
    let actions: Vec<_> = config.rules.lines.iter().map(|line| line.action).collect();
    let want = [
        action(252, false, 0),
        action(0, true, 0x800),
        action(2, true, 0),
        action(2, true, 0),
    ];
    assert_eq!(actions, want);
    assert_eq!(
        config.rules.lines[1].text,
        "dscp(0x4) -> direct(mark: 0x800, must)"
    );
    assert_eq!(
        (
            config.rules.lines[1].file.as_str(),
            config.rules.lines[1].line
        ),
        ("test.dae", 4)
    );

    let first = |id| accepted(text_of(id)).rules.lines.remove(0);
    assert_eq!(
        first("V08").conds[0].test,
        Test::DestPort(vec![(80, 80), (443, 443)])
    );
    assert_eq!(
        first("V15").conds[1].test,
        Test::SourcePort(vec![(0, 65535)])
    );
    let Test::Dest(prefixes) = first("V18").conds.remove(0).test else {
        panic!()
    };
    assert_eq!(
        prefixes.iter().map(|p| p.len).collect::<Vec<_>>(),
        [32, 128, 10, 8]
    );
    let Test::Mac(macs) = first("V19").conds.remove(0).test else {
        panic!()
    };
    assert_eq!(
        macs,
        [
            [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff],
            [2, 0x42, 0xac, 0x11, 0, 2]
        ]
    );
    let line = first("V17");
    assert_eq!(line.conds.len(), 2);
    assert!(!line.conds[0].not && line.conds[1].not);
    let Test::Domain(tests) = first("V33").conds.remove(0).test else {
        panic!()
    };
    assert_eq!(tests[0], DomainTest::Keyword("ads".into()));
    assert_eq!(tests[2], DomainTest::Full("a.example.org".into()));
    let Test::Dest(private) = first("V41").conds.remove(0).test else {
        panic!()
    };
    assert_eq!(private.len(), 18);

    let none = accepted("routing {}").rules.lines;
    assert_eq!((none.len(), none[0].action), (1, action(0, false, 0)));
}

#[test]
fn nodes_named_by_rules_get_a_group_each() {
    let config = accepted(
        "node { a: socks5://192.0.2.1:1 b: socks5://192.0.2.1:2 g: socks5://192.0.2.1:3 }
         group { g { } }
         routing { dport(1) -> b dport(2) -> must_a dport(3) -> b(mark: 2) fallback: g }",
    );
    let named: Vec<_> = config
        .groups
        .iter()
        .map(|g| (g.name.as_str(), g.ordinal.0, g.implicit))
        .collect();
    assert_eq!(named, [("g", 2, false), ("b", 3, true), ("a", 4, true)]);
    let actions: Vec<_> = config.rules.lines.iter().map(|line| line.action).collect();
    assert_eq!(actions[1], action(4, true, 0));
    assert_eq!(actions[2], action(3, false, 2));
    assert_eq!(actions[3], action(2, false, 0));
}

#[test]
fn what_is_not_served_is_said() {
    for (text, want) in [
        (
            "global { dial_mode: ip sniffing_timeout: 0 mptcp: off check_interval: 30 }",
            &[][..],
        ),
        (
            "global { nfqueue_enable: true udp_check_dns: 'dns.google:53,8.8.8.8', 2001:4860:4860::8888 }",
            &[],
        ),
        ("global { dial_mode: domain }", &[]),
        ("global { dial_mode: Domain++ sniffing_timeout: 30ms }", &[]),
        ("global { wan_interface: auto mptcp: yes }", &["mptcp"]),
        ("global { test_concurrency: 3 }", &["test_concurrency"]),
        (
            "global { bootstrap_resolver: tcp://192.0.2.1 }",
            &["bootstrap_resolver"],
        ),
        ("group { g { policy: score } h { policy: score } }", &[]),
        ("group { g { pool: 4 } }", &["pool"]),
        ("routing { domain(a.b) -> direct pname(x) -> direct }", &[]),
        (
            "routing { dip(geoip: cn) -> direct dip(geoip: private) -> direct }",
            &[],
        ),
        ("node { a: trojan://x@h.example }", &["trojan"]),
        (
            "node { 'socks5://192.0.2.1:1 -> socks5://192.0.2.2:1' }",
            &["socks5"],
        ),
        ("node { a: socks5://h.example [detour: b] }", &["detour"]),
        ("subscription {} dns {} watch {}", &[]),
        (
            "subscription { 'https://s.example/x' } dns { bind: '192.0.2.1:53' }",
            &["dns"],
        ),
    ] {
        assert_eq!(unbuilt(text), want, "{text}");
    }
    let (config, mut findings, _) = lowered("global { mptcp: on }");
    assert!(config.is_some() && !honk_policy::config::is_fatal(&findings));
    refuse_unbuilt(&mut findings);
    assert!(honk_policy::config::is_fatal(&findings));
}

#[test]
fn names_may_still_come_from_a_subscription() {
    let text = "subscription { s: 'https://s.example/x' } group { g { default: later } }";
    assert_eq!(lowered(text).2, Vec::<String>::new());
}

/// V14: a long list is one rule line and takes no noticeable time.
#[test]
#[allow(clippy::disallowed_methods)] // the time it takes is what is tested
fn twenty_thousand_prefixes() {
    let list: Vec<String> = (0..20_000)
        .map(|n| format!("10.{}.{}.0/24", n / 250 % 250, n % 250))
        .collect();
    let text = format!("routing {{ dip({}) -> direct }}", list.join(", "));
    let parsed = honk_grammar::parse_text("test.dae", &text);
    let start = Instant::now();
    let (config, _) = honk_policy::config::lower(&parsed, &mut ());
    let lines = config.unwrap().rules.lines;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(lines.len(), 2);
    assert!(matches!(&lines[0].conds[0].test, Test::Dest(p) if p.len() == 20_000));
    assert!(lines[0].text.len() < 600);
}

#[test]
fn changed_restart_keys() {
    let old = accepted("global { tproxy_port: 12345 log_level: info }");
    let new = accepted("global { tproxy_port: 0x3039 log_level: warn lan_interface: eth0 }");
    assert_eq!(
        honk_policy::config::restart_required(&old, &new),
        ["global.log_level"]
    );
    // Values are compared, not texts.
    for (one, other, same) in [
        ("127.0.0.1:53", "udp://127.0.0.1:53", true),
        ("'[::1]:53'", "'udp://[0:0::1]:53'", true),
        (
            "udp+tcp://LAN.example:53",
            "tcp+udp://lan.example.:53",
            true,
        ),
        ("127.0.0.1:53", "tcp://127.0.0.1:53", false),
        ("127.0.0.1:53", "127.0.0.1:54", false),
    ] {
        let config = |bind: &str| accepted(&format!("dns {{ bind: {bind} }}"));
        let changed = honk_policy::config::restart_required(&config(one), &config(other));
        assert_eq!(changed.is_empty(), same, "{one} {other}: {changed:?}");
    }
    let config = |text: &str| accepted(&format!("global {{ {text} }}"));
    let changed = |one, other| honk_policy::config::restart_required(&config(one), &config(other));
    assert_eq!(changed("store_subscribe: yes", ""), [""; 0]);
    assert_eq!(
        changed("store_subscribe: no", "store_subscribe: off"),
        [""; 0]
    );
}

/// Corner cases of links that are about the section they stand in; the others are in the tests
/// of links and subscriptions.
#[test]
fn links_of_the_section() {
    let ss = "ss://YWVzLTI1Ni1nY206cGFzc3dvcmQ@h.example:1";
    let told = |items: &str| {
        let (config, findings, short) = lowered(&format!("node {{⏎{items}⏎}}"));
        for finding in findings {
            assert!(!finding.message.contains("YWVz"), "{}", finding.message);
        }
        let names = config.map(|c| c.nodes.into_iter().map(|n| n.name).collect::<Vec<_>>());
        (names, short)
    };
    let names = |list: &[&str]| Some(list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
    // 54: the tag is the name, whatever the fragment says.
    assert_eq!(told(&format!("hk:{ss}#x")), (names(&["hk"]), vec![]));
    // 52: no hop is left out.
    let chain = format!("'{ss}#A -> ssr://xxxx'⏎b: socks5://192.0.2.1:1");
    assert_eq!(told(&chain), (names(&["b"]), vec!["W809 2:1".to_owned()]));
    // 73
    assert_eq!(
        told("foo://x@h.example:1"),
        (None, vec!["E801 2:1".to_owned()])
    );
    // 84 and 85: what is only shown makes no other node.
    let link = "trojan://pw@h.example:443?allowInsecure=";
    let same = format!("{link}0#a⏎{link}1#b");
    assert_eq!(told(&same), (None, vec!["E804 3:1".to_owned()]));
    let other = format!("{link}0&sni=x.example#a⏎{link}0&sni=y.example#b");
    assert_eq!(told(&other), (names(&["a", "b"]), vec![]));
}

#[test]
fn subscriptions() {
    let config = accepted(text_of("V32"));
    let tags: Vec<&str> = config
        .subscriptions
        .iter()
        .map(|s| s.tag.as_str())
        .collect();
    assert_eq!(tags, ["", "p", "", "q"]);
    assert_eq!(
        config.subscriptions[3].url.reveal(),
        "https://sub.example/z"
    );
    let typed = accepted(text_of("V38")).subscriptions.remove(0);
    assert_eq!(
        (typed.format.as_str(), typed.update_interval),
        ("clash", Some(21_600))
    );
    assert!(typed.enabled && !typed.allow_private);
    let first = accepted(text_of("V07")).subscriptions.remove(0);
    assert_eq!(first.url.reveal(), "https://sub.example/x?a=1#f");
}

#[test]
fn dns_sections() {
    let upstreams = accepted(text_of("V22")).dns.upstreams;
    let named: Vec<_> = upstreams
        .iter()
        .map(|u| (u.name.as_str(), u.via.as_deref()))
        .collect();
    assert_eq!(
        named,
        [
            ("a", Some("proxy")),
            ("b", Some("proxy")),
            ("c", Some("direct")),
            ("d", None)
        ]
    );
    assert_eq!(upstreams[3].transport, Transport::Udp);

    let ttls = accepted(text_of("V23")).dns.fixed_ttl;
    let want = [
        ("123.example.com", 10),
        ("124.example.com", 0),
        ("125.example.com", 3600),
    ];
    assert_eq!(ttls, want.map(|(name, ttl)| (name.to_owned(), ttl)));

    let dns = accepted(text_of("V36")).dns;
    assert_eq!(dns.request.len(), 4);
    assert_eq!(dns.request[0].conds[1].test, DnsTest::Type(vec![1, 28, 65]));
    assert_eq!(dns.request[1].action, DnsAction::Upstream("x".into()));
    let none = DnsTest::Internal(InternalName::Subscription, vec![]);
    assert_eq!(dns.request[1].conds[0].test, none);
    assert_eq!(dns.request[3].action, DnsAction::Asis);
    assert_eq!(dns.response[0].action, DnsAction::Accept);
}

#[test]
fn the_first_of_two_nodes_of_a_name_is_meant() {
    let text = "node { a: socks5://192.0.2.1:1 a: 'trojan://s@h.example' } routing { fallback: a }";
    assert_eq!(unbuilt(text), ["trojan"]);
}

#[test]
fn process_names_have_sixteen_bytes() {
    let lines = accepted("routing { pname(sixteen-letters-, a) -> direct }")
        .rules
        .lines;
    let mut short = [0; 16];
    short[0] = b'a';
    let want = Test::ProcessName(vec![*b"sixteen-letters-", short]);
    assert_eq!(lines[0].conds[0].test, want);
}

#[test]
fn what_a_link_says_twice_is_noted() {
    let (config, findings, _) = lowered("node { a: 'socks5://h.example?secret=1&secret=2' }");
    assert_eq!(config.map(|c| c.nodes.len()), Some(1));
    let notes = findings.iter().filter(|f| f.slug == "node-link");
    let notes: Vec<&str> = notes.map(|f| f.message.as_str()).collect();
    assert_eq!(
        notes,
        ["node `a`: a key is repeated: the last value counts"]
    );
}
