//! Texts that parse but are refused or warned about: code, line and column of every finding.

use super::lowered;

/// Text, findings in source order, and a piece of help that must appear.
const CASES: &[(&str, &str, &[&str], &str)] = &[
    ("X21", "gloabl {}", &["E201 1:1"], "`global`"),
    (
        "X22",
        "global { tproxy_prot: 1 }",
        &["E204 1:10"],
        "`tproxy_port`",
    ),
    (
        "X23",
        "global {⏎  log_level info⏎}",
        &["E203 2:3"],
        "missing `:` after `log_level`",
    ),
    (
        "X24",
        "global {⏎  tproxy_port:⏎    12345⏎}",
        &["E206 2:3", "E203 3:5"],
        "on the line of",
    ),
    ("X25", "global { dport(80) -> direct }", &["E203 1:10"], ""),
    (
        "X26",
        "global { lan_interface: [eth0, eth1] }",
        &["E207 1:25"],
        "without brackets",
    ),
    (
        "X27",
        "global { log_level: 'info' 'debug' }",
        &["E203 1:28"],
        "",
    ),
    (
        "X28",
        "routing { dport(80) -> direct block }",
        &["E203 1:31"],
        "",
    ),
    ("X29", "routing { dport() -> direct }", &["E603 1:11"], ""),
    (
        "X30",
        "routing { dommain(a.example) -> direct }",
        &["E601 1:11"],
        "`domain`",
    ),
    (
        "X31",
        "routing { dport(70000) -> direct }",
        &["E604 1:17"],
        "",
    ),
    (
        "X31b",
        "routing { dport(443-80) -> direct }",
        &["E604 1:17"],
        "",
    ),
    (
        "X32",
        "routing { dip(10.0.0.0/33) -> direct }",
        &["E604 1:15"],
        "",
    ),
    (
        "X33",
        "routing { dip(geosite: cn) -> direct }",
        &["E602 1:15"],
        "belongs to `domain`",
    ),
    (
        "X34",
        "group { proxy { policy: select } }⏎routing { dport(80) -> prxy }",
        &["E501 2:24"],
        "`proxy`",
    ),
    (
        "X35",
        "routing { dport(80) -> direct(musst) }",
        &["E606 1:31"],
        "`must`",
    ),
    (
        "X35b",
        "routing { dport(80) -> direct(mark: 0x80000000) }",
        &["E411 1:31"],
        "",
    ),
    (
        "X36",
        "routing { fallback: must_rules }",
        &["E607 1:21"],
        "",
    ),
    (
        "X37",
        "routing { qname(a.example) -> direct }",
        &["E605 1:11"],
        "domain(...)",
    ),
    (
        "X38",
        "group { direct { policy: select } must_x { } }",
        &["E502 1:9", "E502 1:35"],
        "",
    ),
    (
        "X39",
        "group { g { policy: select } g { policy: urltest } }",
        &["E208 1:30"],
        "",
    ),
    (
        "X41",
        "group { g { policy: honk } }",
        &["E902 1:21"],
        "score",
    ),
    (
        "X42",
        "group { g { tolerance: -5 policy: urltest } }",
        &["E403 1:24"],
        "",
    ),
    (
        "X42b",
        "group { g { idle_timeout: 30x policy: urltest } }",
        &["E403 1:27"],
        "",
    ),
    ("X43", "group { g { icon: 'ftp://x' } }", &["E908 1:19"], ""),
    (
        "X44",
        "group { g { filter: name(a) [latency: 1ms] } }",
        &["E207 1:30"],
        "`add_latency`",
    ),
    ("X45", "global { check_interval: 30x }", &["E403 1:26"], ""),
    ("X45b", "global { mptcp: maybe }", &["E401 1:17"], ""),
    (
        "X45c",
        "global { dial_mode: domain+++ }",
        &["E405 1:21"],
        "`domain++`",
    ),
    ("X45d", "routing { dscp(08) -> direct }", &["E604 1:16"], ""),
    (
        "X46",
        "global { data_dir: relative/dir }",
        &["E408 1:20"],
        "",
    ),
    ("X55", "node { 'sss://abc' }", &["E801 1:8"], "`ss`"),
    ("X55b", "node { 'ssr://abc' }", &["W810 1:8"], ""),
    ("X55c", "node { mux: true }", &["E803 1:8"], "vless_mode="),
    (
        "X55d",
        "node { block: 'socks5://192.0.2.1:1080' }",
        &["E502 1:8"],
        "",
    ),
    (
        "X56",
        "node { a: 'trojan://s@host.example:443' b: 'trojan://s@host.example:443' }",
        &["E804 1:41"],
        "",
    ),
    (
        "X58",
        "routing { domain(regex: '(?!x)') -> direct }",
        &["E409 1:18"],
        "",
    ),
    (
        "X58b",
        "group { g { filter: name(regex: '(?!x)') } }",
        &["W904 1:26"],
        "",
    ),
    (
        "X59",
        "group { g { filter: nme(a) } }",
        &["W904 1:21"],
        "`name`",
    ),
    // Beyond the numbered snippets.
    ("quoted link section", "'node' { }", &["E202 1:1"], ""),
    ("mux with equals", "node { mux = true }", &["E803 1:8"], ""),
    (
        "via on a node",
        "node { a: socks5://192.0.2.1:1 -> b }",
        &["E203 1:32"],
        "quote the whole",
    ),
    (
        "malformed link",
        "node { a: 'socks5://192.0.2.1:0' }",
        &["W802 1:11"],
        "",
    ),
    (
        "skipped node as target",
        "node { a: 'ssr://x' }⏎routing { fallback: a }",
        &["W810 1:11", "E501 2:21"],
        "",
    ),
    (
        "duplicate node name",
        "node { a: socks5://192.0.2.1:1 a: socks5://192.0.2.2:1 }",
        &["W805 1:32"],
        "",
    ),
    (
        "unknown node note",
        "node { a: socks5://192.0.2.1:1 [detuor: x] }",
        &["E207 1:33"],
        "`detour`",
    ),
    (
        "repeated scalar",
        "global { log_level: info log_level: warn }",
        &["W211 1:26"],
        "",
    ),
    (
        "deprecated",
        "global { auto_config_firewall_rule: true }",
        &["W213 1:10"],
        "",
    ),
    (
        "no effect",
        "global { nfqueue_enable: false pprof_port: 6060 }",
        &["W214 1:10", "W214 1:32"],
        "",
    ),
    (
        "empty element",
        "global { lan_interface: 'a,,b' }",
        &["W215 1:25"],
        "",
    ),
    (
        "auto as LAN",
        "global { lan_interface: auto }",
        &["E410 1:25"],
        "",
    ),
    ("port zero", "global { tproxy_port: 0 }", &["E402 1:23"], ""),
    (
        "call as value",
        "global { log_level: info(x) }",
        &["E205 1:21"],
        "",
    ),
    (
        "resolver by name",
        "global { bootstrap_resolver: dns.example }",
        &["E407 1:30"],
        "",
    ),
    (
        "dials",
        "global { max_concurrent_dials: 0 }",
        &["W214 1:32"],
        "",
    ),
    (
        "section in global",
        "global { sub { } }",
        &["E201 1:10"],
        "",
    ),
    (
        "declaration in group",
        "group { policy: select }",
        &["E203 1:9"],
        "",
    ),
    (
        "unknown group key",
        "group { g { polcy: select } }",
        &["E204 1:13"],
        "`policy`",
    ),
    (
        "two policies",
        "group { g { policy: select policy: fixed } }",
        &["W211 1:28"],
        "",
    ),
    (
        "policy with calls",
        "group { g { policy: a() && b() } }",
        &["E205 1:21"],
        "",
    ),
    (
        "policy index",
        "group { g { policy: fixed(3) } }",
        &["W910 1:21"],
        "`default:`",
    ),
    (
        "policy index quoted",
        "group { g { policy: 'fixed(3)' } }",
        &["W910 1:21"],
        "",
    ),
    (
        "policy min",
        "group { g { policy: min } }",
        &["W903 1:21"],
        "min_last_delay",
    ),
    (
        "selector check keys",
        "group { g { check_url: 'http://x.example/' tolerance: 5 idle_timeout: 1 } }",
        &["W907 1:13", "W907 1:44", "W907 1:57"],
        "",
    ),
    (
        "default of urltest",
        "group { g { policy: urltest default: direct } }",
        &["W907 1:29"],
        "",
    ),
    (
        "clamped",
        "group { g { policy: urltest tolerance: 70s } }",
        &["W911 1:40"],
        "",
    ),
    (
        "unknown default",
        "node { a: socks5://192.0.2.1:1 }⏎group { g { default: aa } }",
        &["W503 2:22"],
        "`a`",
    ),
    (
        "unknown final",
        "group { g { final: nowhere } }",
        &["W503 1:20"],
        "",
    ),
    (
        "unknown nested",
        "group { g { filter: group(x) } }",
        &["W503 1:27"],
        "",
    ),
    (
        "mixed filter",
        "group { g { filter: group(g) && name(a) } }",
        &["W905 1:21"],
        "",
    ),
    (
        "negated group",
        "group { g { filter: !group(g) } }",
        &["W905 1:21"],
        "",
    ),
    (
        "group and text",
        "group { g { filter: group(g) x } }",
        &["W905 1:21"],
        "",
    ),
    (
        "text behind a filter",
        "group { g { filter: name(a) x } }",
        &["W904 1:21"],
        "",
    ),
    (
        "empty filter",
        "group { g { filter: } }",
        &["W904 1:13"],
        "",
    ),
    (
        "filter of words",
        "group { g { filter: all } }",
        &["W904 1:21"],
        "",
    ),
    (
        "filter key",
        "group { g { filter: name(kewyord: x) } }",
        &["W904 1:26"],
        "`keyword`",
    ),
    (
        "filter without argument",
        "group { g { filter: name('') } }",
        &["W904 1:21"],
        "",
    ),
    (
        "latency elsewhere",
        "group { g { filter: name(a) [add_latency: 1ms] } }",
        &["W214 1:30"],
        "",
    ),
    (
        "bad latency",
        "group { g { filter: name(a) [add_latency: x] } }",
        &["E403 1:30"],
        "",
    ),
    ("GLOBAL", "group { GLOBAL { } }", &["E502 1:9"], ""),
    (
        "unknown key in routing",
        "routing { falback: direct }",
        &["E204 1:11"],
        "`fallback`",
    ),
    (
        "section in routing",
        "routing { request { } }",
        &["E203 1:11"],
        "",
    ),
    (
        "fallback twice",
        "routing { fallback: direct default: block }",
        &["W211 1:28"],
        "",
    ),
    (
        "fallback empty",
        "routing { fallback: }",
        &["E206 1:11"],
        "",
    ),
    (
        "fallback list",
        "routing { fallback: direct, block }",
        &["E205 1:21"],
        "",
    ),
    (
        "fallback negated",
        "routing { fallback: !direct(must) }",
        &["E205 1:21"],
        "",
    ),
    (
        "must twice",
        "routing { fallback: direct(must, must) }",
        &["E606 1:34"],
        "",
    ),
    (
        "must with value",
        "routing { dport(1) -> direct(must: 1) }",
        &["E606 1:30"],
        "",
    ),
    (
        "own mark",
        "routing { dport(1) -> direct(mark: 0x900) }",
        &["W613 1:30"],
        "",
    ),
    (
        "must_rules with parameters",
        "routing { dport(1) -> must_rules(must) }",
        &["E607 1:23"],
        "",
    ),
    (
        "reserved target",
        "routing { fallback: control_plane_routing }",
        &["E501 1:21"],
        "",
    ),
    (
        "l4proto",
        "routing { l4proto(icmp) -> direct }",
        &["E604 1:19"],
        "",
    ),
    (
        "ipversion",
        "routing { ipversion(5) -> direct }",
        &["E604 1:21"],
        "",
    ),
    (
        "mac",
        "routing { mac(aa:bb) -> direct }",
        &["E604 1:15"],
        "",
    ),
    (
        "ext in sip",
        "routing { sip(ext: 'a:b') -> direct }",
        &["E602 1:15"],
        "",
    ),
    (
        "unknown argument key",
        "routing { domain(foo: x) -> direct }",
        &["E602 1:18"],
        "",
    ),
    (
        "colon in a positional value",
        "routing { domain(foo:x) -> direct }",
        &["E604 1:18"],
        "",
    ),
    (
        "long process name",
        "routing { pname(a, seventeen-letters) -> direct }",
        &["W611 1:20"],
        "",
    ),
    (
        "two bad conditions",
        "routing { dport(x) && l4proto(y) -> nowhere }",
        &["E604 1:17", "E604 1:31", "E501 1:37"],
        "",
    ),
    ("X48", "dns { bind: localhost:53 }", &["E707 1:13"], ""),
    (
        "X49",
        "dns { upstream { 'udp://192.0.2.1' } }",
        &["E701 1:18"],
        "",
    ),
    (
        "X49b",
        "dns { upstream { accept: 'udp://192.0.2.1' } }",
        &["E502 1:18"],
        "",
    ),
    (
        "X49c",
        "dns { upstream { 192.0.2.1:53 } }",
        &["E701 1:18"],
        "",
    ),
    (
        "X50",
        "dns { routing { request { qname(a.example) -> nosuch } } }",
        &["E703 1:47"],
        "",
    ),
    (
        "X50b",
        "dns { routing { request { qtype(aaaaa) -> reject } } }",
        &["E604 1:33"],
        "`AAAA`",
    ),
    (
        "X50c",
        "dns { routing { request { qtype(a) -> accept } } }",
        &["E704 1:39"],
        "",
    ),
    (
        "X51",
        "dns { routing { response { sip(192.0.2.1) -> reject } } }",
        &["E605 1:28"],
        "",
    ),
    (
        "X52",
        "dns { upstream { x: 'udp://192.0.2.1' } routing { request { sub(a) && qname(b.example) -> x } } }",
        &["W713 1:7", "E706 1:61"],
        "",
    ),
    (
        "X53",
        "dns { fixed_domain_ttl { a.example: } }",
        &["E710 1:26"],
        "",
    ),
    (
        "X53b",
        "dns { fixed_domain_ttl { a.example: -1 } }",
        &["E710 1:37"],
        "",
    ),
    (
        "X54",
        "dns { hosts_file: 'x' }",
        &["E709 1:7"],
        "use `use_host`",
    ),
    (
        "X54b",
        "dns { client_subnet: auto(dns.example) }",
        &["E708 1:22"],
        "",
    ),
    ("X54c", "dns { ipversion_prefer: 9 }", &["E405 1:25"], ""),
    (
        "X57",
        "subscription { 'file:///etc/passwd' }",
        &["E807 1:16"],
        "",
    ),
    (
        "X57b",
        "subscription { 'https-file://sub.example/x' }",
        &["E808 1:16"],
        "",
    ),
    (
        "X57c",
        "subscription { s: 'ftp://sub.example' }",
        &["E806 1:19"],
        "",
    ),
    ("X60", "experimental { secret: 'x' }", &["E203 1:16"], ""),
    (
        "X60b",
        "experimental { clash_api { secrt: 'x' } }",
        &["E204 1:28"],
        "`secret`",
    ),
    (
        "subscription tags",
        "subscription { a: 'https://s.example' a: 'https://t.example' }",
        &["W805 1:39"],
        "",
    ),
    (
        "subscription via",
        "subscription { a: 'https://s.example' -> b }",
        &["E203 1:39"],
        "",
    ),
    (
        "subscription note",
        "subscription { a: 'https://s.example' [typ: clash] }",
        &["E207 1:40"],
        "`type`",
    ),
    (
        "subscription type",
        "subscription { a: 'https://s.example' [type: yaml] }",
        &["E405 1:40"],
        "",
    ),
    (
        "subscription interval",
        "subscription { a: 'https://s.example' [update_interval: 5s] }",
        &["E403 1:40"],
        "",
    ),
    (
        "subscription path",
        "subscription { 'file://a/../../b' }",
        &["E807 1:16"],
        "",
    ),
    (
        "subscription host",
        "subscription { 'https://' 'x.example/y' }",
        &["E806 1:16", "E806 1:27"],
        "",
    ),
    (
        "dns section",
        "dns { upstreams { } }",
        &["E201 1:7"],
        "`upstream`",
    ),
    (
        "dns quoted section",
        "dns { 'upstream' { } }",
        &["E202 1:7"],
        "",
    ),
    (
        "dns key",
        "dns { optimistic_cahe: true }",
        &["E204 1:7"],
        "`optimistic_cache`",
    ),
    (
        "dns ttl order",
        "dns { min_cache_ttl: 100 max_cache_ttl: 10 }",
        &["E402 1:22"],
        "",
    ),
    (
        "upstream twice",
        "dns { upstream { a: udp://x.example a: udp://y.example } routing { request { fallback: a } } }",
        &["E208 1:37"],
        "",
    ),
    (
        "upstream uri",
        "dns { upstream { a: 'ftp://x' } routing { request { fallback: asis } } }",
        &["E702 1:21"],
        "",
    ),
    (
        "upstream via",
        "dns { upstream { a: udp://x.example -> nowhere } routing { request { fallback: a } } }",
        &["E501 1:40"],
        "",
    ),
    (
        "dns fallback",
        "dns { routing { request { fallback: } } }",
        &["E206 1:27"],
        "",
    ),
    (
        "dns parameter",
        "dns { routing { request { fallback: asis(must) } } }",
        &["E606 1:42"],
        "",
    ),
    (
        "dns reject word",
        "dns { routing { request { fallback: reject(servfail) } } }",
        &["E606 1:44"],
        "",
    ),
    (
        "dns reject in response",
        "dns { routing { response { fallback: reject(refused) } } }",
        &["E606 1:45"],
        "",
    ),
    (
        "dns domain",
        "dns { routing { request { domain(a.b) -> reject } } }",
        &["E605 1:27"],
        "qname(...)",
    ),
    (
        "dns function",
        "dns { routing { request { qnam(a.b) -> reject } } }",
        &["E601 1:27"],
        "`qname`",
    ),
    (
        "dns no argument",
        "dns { routing { request { qname() -> reject } } }",
        &["E603 1:27"],
        "",
    ),
    (
        "dns upstream()",
        "dns { routing { response { upstream(x) -> reject } } }",
        &["E703 1:37"],
        "",
    ),
    (
        "internal action",
        "dns { routing { request { sub() -> reject } } }",
        &["E704 1:36"],
        "",
    ),
    (
        "bind and asis",
        "dns { bind: '192.0.2.1:53' routing { request { fallback: asis } } }",
        &["W712 1:58"],
        "",
    ),
    (
        "ttl twice",
        "dns { fixed_domain_ttl { a.example: 1 a.example: 2 } }",
        &["W211 1:39"],
        "",
    ),
    (
        "ttl via",
        "dns { fixed_domain_ttl { a.example: 1 -> b } }",
        &["E710 1:39"],
        "",
    ),
    (
        "hosts",
        "dns { hosts { 'a.example': 'x' } }",
        &["E407 1:28"],
        "",
    ),
    (
        "open listener",
        "experimental { clash_api { external_controller: '0.0.0.0:9090' secret: 'short' } }",
        &["N714 1:49"],
        "add `secret:",
    ),
    (
        "listener address",
        "experimental { clash_api { external_controller: nonsense } }",
        &["N715 1:49"],
        "",
    ),
    (
        "mode",
        "experimental { clash_api { default_mode: rule } }",
        &["E405 1:42"],
        "`Rule`",
    ),
    (
        "nfqueue",
        "experimental { udp_nfqueue { } }",
        &["W213 1:16"],
        "",
    ),
    (
        "sticky",
        "group { g { sticky: source } }",
        &["E405 1:21"],
        "",
    ),
    (
        "ping preset",
        "global { ping_url: preset(bing) }",
        &["E406 1:20"],
        "",
    ),
    (
        "thresholds",
        "global { test_thresholds: 1, x }",
        &["E402 1:30"],
        "",
    ),
    (
        "chain twice",
        "chain { a { hops: x, y } a { } }",
        &["E208 1:26"],
        "",
    ),
    ("chain reserved", "chain { direct { } }", &["E502 1:9"], ""),
    (
        "chain key",
        "chain { a { hop: x } }",
        &["E204 1:13"],
        "`hops`",
    ),
    (
        "bypass word",
        "bypass { b { protocols: tcp } }",
        &["E405 1:25"],
        "",
    ),
    (
        "bypass section",
        "bypass { b { escalte { } } }",
        &["E201 1:14"],
        "`escalate`",
    ),
    (
        "watch targets",
        "watch { w { targets: domain(geosit: x) } }",
        &["E602 1:29"],
        "`geosite`",
    ),
    (
        "watch key",
        "watch { enabledd: true }",
        &["E204 1:9"],
        "`enabled`",
    ),
    ("speedtest", "speedtest { streams: 3 }", &["E405 1:22"], ""),
    (
        "empty link",
        "node { a: } subscription { b: } dns { upstream { c: } }",
        &["E206 1:8", "E206 1:28", "E206 1:50"],
        "on the line of the name",
    ),
];

#[test]
fn findings_stand_where_the_mistake_is() {
    let mut wrong = Vec::new();
    for (id, text, want, help) in CASES {
        let (config, findings, got) = lowered(text);
        let helped = help.is_empty()
            || findings
                .iter()
                .any(|f| f.help.as_deref().is_some_and(|h| h.contains(help)));
        let helps: Vec<_> = findings.iter().filter_map(|f| f.help.as_deref()).collect();
        let refused = want.iter().any(|w| w.starts_with('E'));
        if got != *want || !helped || config.is_none() != refused {
            wrong.push(format!(
                "{id}: {text}\n  want {want:?}\n  got  {got:?}\n  help {helps:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn too_many_groups() {
    let groups: String = (0..251).map(|n| format!("g{n} {{ }}\n")).collect();
    let (config, findings, got) = lowered(&format!("group {{\n{groups}}}"));
    assert!(config.is_none());
    assert_eq!(got, ["E901 252:1"], "{findings:?}");
}

#[test]
fn implicit_groups_count_too() {
    let groups: String = (0..250).map(|n| format!("g{n} {{ }}\n")).collect();
    let text = format!(
        "node {{ a: socks5://192.0.2.1:1 }}\ngroup {{\n{groups}}}\nrouting {{ fallback: a }}"
    );
    assert_eq!(lowered(&text).2, ["E901 254:21"]);
}

#[test]
fn too_many_rules() {
    let rules = |n: usize| {
        let rules: String = (0..n).map(|n| format!("dport({n}) -> block\n")).collect();
        lowered(&format!("routing {{\n{rules}}}"))
    };
    assert_eq!(rules(1023).2, Vec::<String>::new());
    let (_, findings, got) = rules(1030);
    assert_eq!(got, ["E608 1025:1"]);
    assert!(
        findings.iter().any(|f| f.message.contains("1031")),
        "{findings:?}"
    );
}

#[test]
fn references_to_a_broken_section_are_not_reported() {
    let (config, _, got) = lowered("group { g { policy: [ } }\nrouting { fallback: g }");
    assert!(config.is_none());
    assert!(got.iter().all(|f| !f.starts_with("E501")), "{got:?}");
}
