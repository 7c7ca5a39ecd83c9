//! What people write who know another program, or this one not yet, and what they are told: each
//! message has a place, and words that lead on.

use honk_grammar::{diag, parse_text};
use honk_policy::config::{self, NOT_BUILT};

/// A text, the line of its first finding, and words that must be in the message or the help.
const CASES: &[(&str, u32, &[&str])] = &[
    // Settings.
    (
        "global {\n lan_interface = eth0\n}",
        2,
        &["with a colon", "`lan_interface: value`"],
    ),
    (
        "global {\n log_level: INFO\n}",
        2,
        &["not one of", "did you mean `info`"],
    ),
    (
        "global {\n dial_mode: domian\n}",
        2,
        &["did you mean `domain`"],
    ),
    (
        "global {\n check_interval: 30 s\n}",
        2,
        &["write `30s` without a blank"],
    ),
    (
        "global {\n bandwidth_max_tx: 200 mbps\n}",
        2,
        &["`bandwidth_max_tx: '200 mbps'`"],
    ),
    (
        "global {\n wan_interface: [eth0]\n}",
        2,
        &["without brackets"],
    ),
    ("global {\n mptcp: enabled\n}", 2, &["`true` or `false`"]),
    (
        "global {\n log_level: info,\n mptcp: on\n}",
        3,
        &["trailing comma on line 2"],
    ),
    (
        "global {\n log_level: info;\n}",
        2,
        &["no separator is needed"],
    ),
    (
        "global {\n ping_url: preset(googel)\n}",
        2,
        &[
            "no such preset: `googel` is not one of `google`, `cloudflare`, `apple`",
            "did you mean `google`",
        ],
    ),
    (
        "global {\n log_level(info)\n}",
        2,
        &["stands alone", "write `log_level: info`"],
    ),
    (
        "global {\n log_level: info // why\n}",
        2,
        &["`//` is no comment", "begin with `#`"],
    ),
    (
        "routing {\n domain(full: *.a.example) -> direct\n}",
        2,
        &["`suffix: .a.example`"],
    ),
    (
        "routing {\n domain(full: a*.example) -> direct\n}",
        2,
        &["no domain name"],
    ),
    (
        "routing {\n fallback: direct || block\n}",
        2,
        &["takes one value"],
    ),
    ("Global { }", 1, &["did you mean `global`"]),
    (
        "logging { }",
        1,
        &["unknown section", "`global`, `subscription`, `node`"],
    ),
    ("log_level: info", 1, &["inside a section"]),
    (
        "global {\n log_level: info\n",
        3,
        &["missing `}` for section `global` opened at 1:8"],
    ),
    (
        "experimental {\n clash_api: on\n}",
        2,
        &["`clash_api { ... }`"],
    ),
    // Nodes and subscriptions.
    (
        "node {\n a = 'socks5://192.0.2.1:1'\n}",
        2,
        &["`a: 'link'`"],
    ),
    (
        "node {\n - a: socks5://192.0.2.1:1\n}",
        2,
        &["no `-` is needed"],
    ),
    (
        "node {\n a: socks5://192.0.2.1:1,\n}",
        2,
        &["remove the `,`"],
    ),
    (
        "node {\n a: 192.0.2.1:1080\n}",
        2,
        &["no `scheme://`", "share link"],
    ),
    (
        "node {\n a: 'socks5://192.0.2.1:1' -> b\n}",
        2,
        &["quote the whole chain"],
    ),
    (
        "node {\n a: sss://x\n}",
        2,
        &["unknown link scheme `sss`", "did you mean `ss`"],
    ),
    ("node {\n a: ss://x@h\n}", 2, &["malformed `ss` link"]),
    (
        "node {\n a: 'socks5://192.0.2.1:1' [enable: yes]\n}",
        2,
        &["did you mean `enabled`"],
    ),
    (
        "node {\n a: 'socks5://192.0.2.1:1'\n b: 'socks5://192.0.2.1:1'\n}",
        3,
        &["same server", "remove one of them"],
    ),
    ("subscription {\n a: s.example/x\n}", 2, &["absolute URL"]),
    (
        "subscription {\n 'https-file://s.example/x'\n}",
        2,
        &["needs a tag", "`tag: 'url'`"],
    ),
    ("subscriptions { }", 1, &["did you mean `subscription`"]),
    // Groups.
    (
        "group {\n a: {\n }\n}",
        2,
        &["a section has no colon: `a { ... }`"],
    ),
    ("group {\n a = { }\n}", 2, &["`a { ... }`"]),
    ("group {\n a [ policy: select ]\n}", 2, &["in braces"]),
    ("group {\n policy: select\n}", 2, &["bodies with a name"]),
    ("group {\n a { policy: url-test }\n}", 2, &["`urltest`"]),
    (
        "group {\n a { policy: fastest }\n}",
        2,
        &["`selector`, `urltest`, `loadbalance`"],
    ),
    (
        "group {\n a { filter: \"name(keyword: HK)\" }\n}",
        2,
        &["remove the quotes"],
    ),
    ("group {\n a { filter: all }\n}", 2, &["filters are calls"]),
    (
        "group {\n a { filter: name(keyword HK) }\n}",
        2,
        &["missing `:` after `keyword`"],
    ),
    (
        "group {\n a { filter: name(regex: '^(?!x)') }\n}",
        2,
        &[
            "not supported",
            "`name(regex: '...') && !name(keyword: '...')`",
        ],
    ),
    (
        "group {\n a { filter: name(regex: '(a)\\1') }\n}",
        2,
        &["back-references"],
    ),
    (
        "group {\n direct { }\n}",
        2,
        &["reserved", "choose another"],
    ),
    (
        "group {\n a { filter: name(x\n  policy: select }\n}",
        3,
        &["add `)` at the end of line 2"],
    ),
    // Rules.
    (
        "routing {\n geosite(cn) -> direct\n}",
        2,
        &["write `domain(geosite: code)`"],
    ),
    (
        "routing {\n geosite:cn -> direct\n}",
        2,
        &["write `domain(geosite: cn)`"],
    ),
    ("routing {\n tos(0x4) -> direct\n}", 2, &["write `dscp(n)`"]),
    (
        "routing {\n ip-cidr(10.0.0.0/8) -> direct\n}",
        2,
        &["letters, digits and `_`"],
    ),
    (
        "routing {\n domain(*.a.example) -> direct\n}",
        2,
        &["write `a.example`"],
    ),
    (
        "routing {\n domain(192.0.2.0/24) -> direct\n}",
        2,
        &["`dip(...)`"],
    ),
    (
        "routing {\n dip(a.example) -> direct\n}",
        2,
        &["`domain(...)`"],
    ),
    (
        "routing {\n dport(http) -> direct\n}",
        2,
        &["a port or a range"],
    ),
    (
        "routing {\n l4proto(TCP) -> direct\n}",
        2,
        &["not one of `tcp`, `udp`"],
    ),
    (
        "routing {\n dport(1) -> drect\n}",
        2,
        &["did you mean `direct`"],
    ),
    (
        "routing {\n dport(1) -> !direct\n}",
        2,
        &["cannot be negated"],
    ),
    ("routing {\n dport(1) => direct\n}", 2, &["write `->`"]),
    (
        "routing {\n dport(1) || dport(2) -> direct\n}",
        2,
        &["repeat the rule"],
    ),
    (
        "routing {\n dport(1) and dport(2) -> direct\n}",
        2,
        &["joined with `&&`"],
    ),
    (
        "routing {\n dport(1) ->\n dport(2) -> block\n}",
        2,
        &["expected an outbound behind `->`"],
    ),
    (
        "routing {\n dport(1)\n dport(2) -> block\n}",
        3,
        &["ends in line 2 has no outbound", "at the end of line 2"],
    ),
    ("routing {\n final: direct\n}", 2, &["one `fallback:`"]),
    (
        "routing {\n domain('a) -> direct\n}",
        2,
        &["not closed", "closing `'`"],
    ),
    ("routing {\n domain(‘a) -> direct\n}", 2, &["`'`"]),
    (
        "routing {\n domain(regex: '(?<=x)') -> direct\n}",
        2,
        &["&& !domain(keyword: '...')`"],
    ),
    // DNS.
    (
        "dns { upstream {\n google 'udp://192.0.2.1'\n} }",
        2,
        &["missing `:` after `google`"],
    ),
    (
        "dns { upstream {\n a: https//dns.example\n} }",
        2,
        &["`://` is missing"],
    ),
    (
        "dns { upstream {\n a: 'dot://dns.example'\n} }",
        2,
        &["unknown scheme", "tls"],
    ),
    (
        "dns { routing { request {\n domain(a.example) -> asis\n} } }",
        2,
        &["write `qname(...)`"],
    ),
    (
        "dns { routing { request {\n qname(a.example) -> direct\n} } }",
        2,
        &["declare it"],
    ),
    (
        "dns { routing { response {\n sip(192.0.2.1) -> reject\n} } }",
        2,
        &["`dns.routing.request`"],
    ),
];

#[test]
fn mistakes_of_newcomers_are_told_with_their_place_and_a_way_on() {
    let mut bad = Vec::new();
    for (text, line, words) in CASES {
        let parsed = parse_text("test.dae", text);
        let (_, found) = config::lower(&parsed, &mut ());
        let (found, _) = diag::arrange(
            found
                .into_iter()
                .filter(|f| f.number != "W210" && f.slug != NOT_BUILT)
                .collect(),
        );
        let Some(first) = found.first() else {
            bad.push(format!("{text}\nnothing is told"));
            continue;
        };
        let shown = diag::human(first, &parsed.sources);
        let place = first.span.and_then(|span| parsed.sources.start(span));
        let complete = words.iter().all(|word| shown.contains(word));
        if place.map(|place| place.line) != Some(*line) || !complete {
            bad.push(format!("{text}\n{words:?}\n{shown}"));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}

/// One mistake is told once.
#[test]
fn one_mistake_is_one_error() {
    for (text, ..) in CASES {
        let parsed = parse_text("test.dae", text);
        let (_, found) = config::lower(&parsed, &mut ());
        let errors = found.iter().filter(|f| f.number.starts_with('E'));
        let errors: Vec<_> = errors.map(|f| &f.message).collect();
        assert!(errors.len() <= 1, "{text}\n{errors:#?}");
    }
}
