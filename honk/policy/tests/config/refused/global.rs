//! Mistakes in `global`, and sections as such.

use super::Case;

pub(super) const CASES: &[Case] = &[
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
    ("X45", "global { check_interval: 30x }", &["E403 1:26"], ""),
    (
        "below a bound that is above the unit",
        "global { check_interval: 1ms drain_timeout: 1ms }",
        &["E403 1:26"],
        "",
    ),
    ("X45b", "global { mptcp: maybe }", &["E401 1:17"], ""),
    (
        "X45c",
        "global { dial_mode: domain+++ }",
        &["E405 1:21"],
        "`domain++`",
    ),
    (
        "X46",
        "global { data_dir: relative/dir }",
        &["E408 1:20"],
        "",
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
        "global { disable_waiting_network: true pprof_port: 6060 }",
        &["W214 1:10", "W214 1:40"],
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
];
