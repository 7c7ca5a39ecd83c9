//! What is legal and does nothing, or something else than its author meant: warnings with a
//! place and a remedy. And what looks like it and is fine.

use honk_grammar::{diag::Severity, parse_text};
use honk_policy::config::{self, NOT_BUILT};

use super::geodata;

/// Slug and place of the warnings of a text.
fn warned(text: &str) -> Vec<String> {
    let parsed = parse_text("test.dae", text);
    let (_, findings) = config::lower(&parsed, &mut geodata::files());
    let told = findings.iter().filter(|f| f.slug != NOT_BUILT);
    let told = told.filter(|f| f.number != "W210");
    told.map(|finding| {
        assert_eq!(finding.severity, Severity::Warning, "{text}: {finding:?}");
        assert!(finding.help.is_some(), "{text}: {finding:?}");
        let place = finding.span.and_then(|span| parsed.sources.start(span));
        let place = place.unwrap_or_else(|| panic!("{text}: {finding:?} has no place"));
        format!("{} {}:{}", finding.slug, place.line, place.column)
    })
    .collect()
}

fn rules(lines: &str) -> Vec<String> {
    let nodes = "node { p: 'socks5://192.0.2.1:1' } group { g { filter: name(p) } }\n";
    warned(&format!("{nodes}routing {{\n{lines}\nfallback: direct }}"))
}

#[test]
fn conditions_that_exclude_each_other() {
    for (rule, column) in [
        ("l4proto(tcp) && l4proto(udp)", 1),
        ("!l4proto(tcp, udp)", 1),
        ("!ipversion(4, 6)", 1),
        ("ipversion(4) && dip(2001:db8::/32)", 1),
        ("dip('::/0') && ipversion(4)", 1),
        ("dport(80) && dip(10.0.0.0/8) && sip(fd00::/8)", 14),
        ("!dip(0.0.0.0/0) && ipversion(4)", 1),
        ("!dip(0.0.0.0/0, '::/0')", 1),
        ("!dport(0-1023, 1000-65535)", 1),
        ("l4proto(tcp) && dport(80) && dport(443)", 17),
        ("dport(80) && !dport(1-100)", 1),
        ("dip(10.1.0.0/16) && !dip(10.0.0.0/8)", 1),
        ("dip(10.1.0.0/16) && dip(10.2.0.0/16)", 1),
        ("mac(02:00:00:00:00:01) && mac(02:00:00:00:00:02)", 1),
        ("dscp(4) && !dscp(0x4)", 1),
        ("pname(curl) && pname(wget)", 1),
        ("domain(a.example) && domain(b.example)", 1),
        ("domain(x.a.example) && !domain(a.example)", 1),
        ("!domain(geosite: youtube) && domain(geosite: youtube)", 1),
    ] {
        let want = format!("rule-unreachable 3:{column}");
        assert_eq!(rules(&format!("{rule} -> g")), [want], "{rule}");
    }
    for rule in [
        "l4proto(tcp) && l4proto(tcp, udp)",
        "!l4proto(tcp)",
        "ipversion(6) && dip('::/0')",
        "ipversion(4) && dip(10.0.0.0/8, '2001:db8::/32')",
        "ipversion(4) && !dip(10.0.0.0/8)",
        "dport(80-90) && dport(90-100)",
        "dip(10.0.0.0/8) && !dip(10.1.0.0/16)",
        "dip(10.0.0.0/8) && sip(10.0.0.0/8)",
        "!pname(curl) && !pname(wget)",
        "!mac(02:00:00:00:00:01)",
        "domain(a.example) && domain(x.a.example)",
        "domain(a.example) && !domain(x.a.example)",
        "domain(keyword: a) && domain(keyword: b)",
        "domain(geosite: youtube) && !domain(a.example)",
        "!domain(a.example) && !domain(b.example)",
    ] {
        assert_eq!(rules(&format!("{rule} -> g")), [""; 0], "{rule}");
    }
}

#[test]
fn rules_behind_others_that_take_all_they_could() {
    for (lines, want) in [
        (
            "dport(0-65535) -> g\ndport(80) -> direct\ndport(81) -> g",
            "rule-unreachable 4:1",
        ),
        (
            "dip(0.0.0.0/0, '::/0') -> g\ndomain(a.example) -> block",
            "rule-unreachable 4:1",
        ),
        (
            "l4proto(tcp, udp) && !dscp(1) -> g\n!dscp(1) -> block",
            "rule-shadowed 4:1",
        ),
        (
            "dport(80) -> g\ndport(443) -> g\ndport(80) -> g",
            "rule-shadowed 5:1",
        ),
        (
            "dip(10.0.0.0/8) -> g\ndip(10.1.0.0/16) && l4proto(tcp) -> block",
            "rule-shadowed 4:1",
        ),
        (
            "domain(a.example) -> g\ndomain(x.a.example, full: a.example) -> block",
            "rule-shadowed 4:1",
        ),
        (
            "domain(geosite: youtube) -> g\ndport(1) && domain(geosite: youtube) -> block",
            "rule-shadowed 4:1",
        ),
        (
            "dip(geoip: private) -> g\ndip(10.1.0.0/16) -> block",
            "rule-shadowed 4:1",
        ),
        (
            "domain(keyword: ads) -> g\ndomain(myads.example) -> block",
            "rule-shadowed 4:1",
        ),
        (
            "!domain(a.example) -> g\n!domain(a.example, b.example) -> block",
            "rule-shadowed 4:1",
        ),
        (
            "ipversion(4) -> g\nsip(10.0.0.0/8) -> block",
            "rule-shadowed 4:1",
        ),
        (
            "mac(02:00:00:00:00:01) -> g\nmac('02-00-00-00-00-01') -> must_rules",
            "rule-shadowed 4:1",
        ),
    ] {
        assert_eq!(rules(lines), [want], "{lines}");
    }
    for lines in [
        "dport(0-65535) -> g",
        "dport(0-65535) -> must_rules\ndport(80) -> g",
        "dport(80) -> must_rules\ndport(80) -> g",
        "dip(10.1.0.0/16) -> g\ndip(10.0.0.0/8) -> block",
        "dip(0.0.0.0/0) -> g\ndip('::/0') -> block",
        "domain(x.a.example) -> g\ndomain(a.example) -> block",
        "domain(a.example, b.example) && dport(1) -> g\ndomain(a.example) -> block",
        "!domain(a.example, b.example) -> g\n!domain(a.example) -> block",
        "domain(regex: '^a') -> g\ndomain(a.example) -> block",
        "pname(curl) -> g\n!pname(curl) -> block",
        // What is wrong in one rule says nothing about another.
        "dport(80) -> g\ndport(81) && dport(80) -> must_rules\ndport(82) -> g",
    ] {
        let found = rules(lines);
        assert!(
            !found.iter().any(|f| f.starts_with("rule-shadowed")),
            "{lines}: {found:?}"
        );
        assert!(found.len() <= 1, "{lines}: {found:?}");
    }
}

#[test]
fn a_broken_condition_does_not_make_a_rule_wider() {
    let text = "routing { dport(80) && dprt(1) -> direct\ndport(80) -> block }";
    let parsed = parse_text("test.dae", text);
    let (_, findings) = config::lower(&parsed, &mut geodata::files());
    let slugs: Vec<&str> = findings.iter().map(|f| f.slug).collect();
    assert_eq!(slugs, ["function-unknown", "section-missing"]);
}

#[test]
fn values_that_mean_something_else() {
    for (text, want) in [
        (
            "routing {\ndip(10.0.0.1/8) -> direct }",
            "prefix-host-bits 2:5",
        ),
        (
            "routing {\nsip(10.0.0.0/8, 'fd00::1/8') -> direct }",
            "prefix-host-bits 2:17",
        ),
        (
            "routing {\npname(/usr/bin/curl) -> direct }",
            "pname-path 2:7",
        ),
        (
            "routing {\ndomain(regex: '') -> direct }",
            "pattern-wide 2:8",
        ),
        (
            "routing {\n!domain(a, regex: '.*') -> direct }",
            "pattern-wide 2:12",
        ),
        ("global {\nlan_interface: 'eth*' }", "interface-name 2:16"),
        (
            "global {\nlan_interface: 'x*' wan_interface: x0 }",
            "interface-name 2:16",
        ),
        ("global {\nlan_interface: lo }", "interface-name 2:16"),
        (
            "global {\nlan_interface: a\nwan_interface: auto, lo }",
            "interface-name 3:16",
        ),
        (
            "global {\nlan_interface: a, b, a }",
            "duplicate-element 2:22",
        ),
        (
            "group { p { filter: name(p) } }\nnode { p: 'socks5://192.0.2.1:1' }",
            "name-duplicate 2:8",
        ),
        (
            "subscription {\na: 'http://192.168.1.1/s?t=1' }",
            "subscription-private 2:4",
        ),
        (
            "subscription {\na: 'https://u@LOCALHOST.:8443/s' }",
            "subscription-private 2:4",
        ),
        (
            "subscription {\na: 'https://[fd00::1]/s' }",
            "subscription-private 2:4",
        ),
    ] {
        assert_eq!(warned(text), [want], "{text}");
    }
    for text in [
        "routing { dip(10.0.0.0/8, 10.0.0.1, 10.0.0.1/32, '::1/128') -> direct }",
        "routing { pname(curl) && domain(regex: '^$', regex: 'a.*') -> direct }",
        "global { lan_interface: 'br-*', 'lan?' }",
        "global { lan_interface: eth0 wan_interface: eth0 }",
        "global { lan_interface: 'eth1*' wan_interface: eth0 }",
        "subscription { a: 'http://192.168.1.1/s' [allow_private: yes] }",
        "subscription { a: 'https://1.1.1.1/s' b: 'file://localhost' }",
    ] {
        assert_eq!(warned(text), [""; 0], "{text}");
    }
}
