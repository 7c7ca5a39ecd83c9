//! Where the peer, an older honk and we differ: what we do, row by row.

use super::lowered;

/// A text, and the findings it has besides `not-built` and missing sections.
const CASES: &[(&str, &[&str])] = &[
    // Unknown words are errors, not silence; missing sections have their defaults.
    ("what { }", &["E201 1:1"]),
    ("global { what: 1 }", &["E204 1:10"]),
    ("", &[]),
    // Text: quotes stay on their line, values on that of their key.
    ("global { log_level: 'in\nfo' }", &["E104 1:21", "E104 2:3"]),
    ("global { log_level:\n info }", &["E206 1:10", "E203 2:2"]),
    ("global { lan_interface:\n log_file: '' mptcp: on }", &[]),
    ("global { mptcp: }", &["E206 1:10"]),
    (r"group { 'it\'s' { } } routing { fallback: 'it\'s' }", &[]),
    (
        "node { socks5://192.0.2.1:1#home } routing { fallback: home }",
        &[],
    ),
    ("group { a#b { } } routing { fallback: a#b }", &[]),
    ("/* a */ global { /* b */ mptcp: on /* c */ } /* d */", &[]),
    (
        "dns { routing { request { // a\n qname(a.example) -> asis } } }",
        &["E203 1:27"],
    ),
    (
        "routing { dip(::1, fe80::/10) && mac(00:11:22:33:44:55) -> direct }",
        &[],
    ),
    ("group { 1st { } } routing { fallback: 1st }", &[]),
    ("group { 香港 { } } routing { fallback: 香港 }", &[]),
    ("group { 香港：{ } }", &["E103 1:11"]),
    ("global { mptcp: on log_level: warn }", &[]),
    ("routing { dport(1,) -> direct }", &["W212 1:18"]),
    ("global { lan_interface: a, }", &["E110 1:28"]),
    // Merging.
    (
        "global { lan_interface: a } global { lan_interface: b, a }",
        &[],
    ),
    ("global { mptcp: on mptcp: off }", &["W211 1:20"]),
    (
        "routing { fallback: direct default: block }",
        &["W211 1:28"],
    ),
    ("group { a { } a { } }", &["E208 1:15"]),
    // Targets.
    ("routing { fallback: direct(must) }", &[]),
    (
        "routing { dport(1) -> must_rules dport(2) -> must_block }",
        &[],
    ),
    ("routing { dport(1) -> direct(mark: 1) }", &[]),
    (
        "routing { dport(1) -> direct(mark: 0x40000000) }",
        &["E411 1:30"],
    ),
    ("routing { dport(1) -> nowhere }", &["E501 1:23"]),
    (
        "node { a: 'socks5://192.0.2.1:1' } routing { dport(1) -> a }",
        &[],
    ),
    // Values.
    (
        "routing { domain(a.example) && domain(b.example) -> block }",
        &[" 1:11"],
    ),
    (
        "routing { domain(full: '*.a.example') -> block }",
        &["E604 1:18"],
    ),
    ("routing { l4proto(icmp) -> block }", &["E604 1:19"]),
    (
        "routing { dscp(0x3f) -> block dscp(0x40) -> block }",
        &["E604 1:36"],
    ),
    (
        "routing { domain(geosite: nowhere-at-all) -> block }",
        &["E609 1:18"],
    ),
    (
        "global { missing_geodata: skip } routing { domain(geosite: nowhere-at-all) -> block }",
        &["W609 1:51"],
    ),
    // Groups.
    ("group { a { policy: random } }", &["W903 1:21"]),
    ("group { a { policy: fixed(1) } }", &["W910 1:21"]),
    ("group { a { } }", &[]),
    (
        "group { a { policy: min_avg10 filter: name(x) [add_latency: 5ms] } }",
        &[],
    ),
    (
        "group { a { policy: urltest tcp_check_url: 'http://a.example' check_tolerance: 5ms } }",
        &[],
    ),
    ("global { tcp_check_http_method: BREW }", &["E405 1:33"]),
    // Names of upstreams keep their case.
    (
        "dns { upstream { A: 'udp://192.0.2.1' } routing { request { fallback: a } } }",
        &["E703 1:71"],
    ),
    (
        "dns { routing { request { qname(a.example) -> asis sub() -> asis } } }",
        &["E704 1:61"],
    ),
    // Links.
    ("node { 'what://x' }", &["E801 1:8"]),
    ("node { 'wireguard://x' }", &["W810 1:8"]),
    ("node { 'socks5://192.0.2.1:1 -> what://x' }", &["W809 1:8"]),
    (
        "subscription { 'https://s.example' 'file://a/b' t: 'http-file://s.example' }",
        &[],
    ),
];

#[test]
fn every_row_of_the_table_of_differences() {
    let mut bad = Vec::new();
    for (text, want) in CASES {
        let (_, found, short) = lowered(text);
        if short != *want {
            bad.push(format!("{text}\n{short:?}, not {want:?}\n{found:#?}"));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}
