//! Lists of names and networks: what rules hold once files are read, and what is said when a
//! file or code is not there.

use std::collections::HashMap;

use honk_policy::{
    config::{Config, DnsTest},
    geo::Kind,
    routing::{
        compile, eval_tables,
        oracle::Oracle,
        rule::{DomainTest, FlowFacts, Test},
    },
};

use super::{accepted, lowered};

/// A length-delimited protobuf field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 0x4000);
    let len = [content.len() as u8 | 0x80, (content.len() >> 7) as u8];
    [&[number << 3 | 2], &len[..], content].concat()
}

fn entry(code: &str, items: &[Vec<u8>]) -> Vec<u8> {
    field(1, &[field(1, code.as_bytes()), items.concat()].concat())
}

/// A name of kind 2, the name itself and below.
fn site(name: &str, attrs: &[&str]) -> Vec<u8> {
    let attrs = attrs.iter().flat_map(|a| field(3, &field(1, a.as_bytes())));
    let message = [vec![8, 2], field(2, name.as_bytes()), attrs.collect()].concat();
    field(2, &message)
}

fn net(ip: [u8; 4], len: u8) -> Vec<u8> {
    field(2, &[field(1, &ip), vec![16, len]].concat())
}

/// What the snippets name, and a little more.
pub(crate) fn files() -> HashMap<String, Vec<u8>> {
    let mut sites = vec![entry(
        "GOOGLE",
        &[
            site("google.example", &[]),
            site("ads.google.example", &["ADS"]),
        ],
    )];
    for code in ["cn", "geolocation-!cn", "a-!cn", "b", "youtube", "x"] {
        sites.push(entry(
            code,
            &[site(&format!("{}.example", code.replace('!', "")), &[])],
        ));
    }
    sites.push(entry("odd", &[site("a b", &[]), site("c.example", &[])]));
    let nets = [
        entry("CN", &[net([1, 0, 0, 0], 9), net([1, 128, 0, 0], 9)]),
        entry("private", &[net([9, 9, 9, 9], 32)]),
        entry("inverse", &[net([2, 0, 0, 0], 8), vec![24, 1]]),
        entry("empty", &[]),
    ];
    let cut = entry("cut", &[])[..4].to_vec();
    [
        ("geosite.dat", sites.concat()),
        ("geoip.dat", nets.concat()),
        ("mine.dat", entry("lab", &[site("lab.example", &[])])),
        ("nets.dat", entry("lab", &[net([192, 0, 2, 0], 24)])),
        ("cut.dat", cut),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

fn to(config: &Config, dst: [u8; 4], domain: Option<&str>) -> u16 {
    let mut flow = FlowFacts {
        src: honk_common::key::v4_mapped([192, 168, 0, 2]),
        dst: honk_common::key::v4_mapped(dst),
        sport: 40_000,
        dport: 443,
        tcp: true,
        mac: [2; 6],
        dscp: 0,
        pname: [0; 16],
        domain: domain.map(str::to_owned),
    };
    let meant = Oracle::new(&config.rules).eval(&flow).rule;
    if domain.is_none() {
        flow.domain = None;
        let tables = compile(&config.rules).expect("rules within the limits");
        assert_eq!(eval_tables(&tables, &flow, None).rule, meant);
    }
    meant
}

#[test]
fn networks_of_a_code_match_in_both_evaluators() {
    let config = accepted("routing { dip(geoip: CN, 8.8.8.8) -> block fallback: direct }");
    assert_eq!(to(&config, [1, 2, 3, 4], None), 0);
    assert_eq!(to(&config, [1, 200, 3, 4], None), 0);
    assert_eq!(to(&config, [8, 8, 8, 8], None), 0);
    assert_eq!(to(&config, [2, 0, 0, 1], None), 1);
    // Halves come as one network.
    assert!(matches!(&config.rules.lines[0].conds[0].test, Test::Dest(p) if p.len() == 2));
    let config = accepted("routing { !dip(ext: 'nets:lab') -> block }");
    assert_eq!(to(&config, [192, 0, 2, 7], None), 1);
    assert_eq!(to(&config, [192, 0, 3, 7], None), 0);
}

#[test]
fn private_networks_come_from_no_file() {
    let config = accepted("routing { dip(geoip: private) -> block }");
    assert_eq!(to(&config, [10, 0, 0, 1], None), 0);
    assert_eq!(to(&config, [9, 9, 9, 9], None), 1);
}

#[test]
fn names_of_a_code_match() {
    let text = "routing { domain(geosite: google@ads) -> block domain(geosite: google, ext: 'mine.dat:lab') -> direct fallback: block }";
    let config = accepted(text);
    let rule = |name| to(&config, [8, 8, 8, 8], Some(name));
    assert_eq!(rule("x.ads.google.example"), 0);
    assert_eq!(rule("google.example"), 1);
    assert_eq!(rule("www.lab.example"), 1);
    assert_eq!(rule("other.example"), 2);
    assert_eq!(to(&config, [8, 8, 8, 8], None), 2);
    let Test::Domain(tests) = &config.rules.lines[0].conds[0].test else {
        panic!("a name test");
    };
    let [DomainTest::Geosite { list, .. }] = &tests[..] else {
        panic!("{tests:?}");
    };
    assert_eq!(
        list.iter().collect::<Vec<_>>(),
        [(Kind::Suffix, "ads.google.example")]
    );
}

#[test]
fn dns_rules_hold_their_lists() {
    let text = "dns { routing { request { qname(geosite: cn) -> asis sip(geoip: cn) -> reject fallback: asis } response { ip(ext: 'nets:lab') -> reject } } }";
    let dns = accepted(text).dns;
    assert!(matches!(
        &dns.request[0].conds[0].test,
        DnsTest::Name(tests) if matches!(&tests[..], [DomainTest::Geosite { list, .. }] if list.len() == 1)
    ));
    for rule in [&dns.request[1], &dns.response[0]] {
        let (DnsTest::Source(list, codes) | DnsTest::Address(list, codes)) = &rule.conds[0].test
        else {
            panic!("{rule:?}");
        };
        assert_eq!((list.len(), codes.len()), (1, 0));
    }
}

/// Message and help of the findings about geodata.
fn said(text: &str) -> Vec<(String, Option<String>)> {
    let (_, findings, _) = lowered(text);
    let geo = findings.into_iter().filter(|f| f.slug.starts_with("geo-"));
    geo.map(|f| (f.message, f.help)).collect()
}

#[test]
fn what_is_missing_is_an_error_at_its_place() {
    for (text, want) in [
        ("routing { dip(geoip: zz) -> direct }", "E609 1:15"),
        (
            "routing { sip(10.0.0.1, geoip: zz) -> direct }",
            "E609 1:25",
        ),
        ("routing { domain(geosite: nope) -> direct }", "E609 1:18"),
        (
            "routing { domain(a.b, ext: 'no:x') -> direct }",
            "E609 1:23",
        ),
        ("routing { domain(ext: 'cut:cut') -> direct }", "E609 1:18"),
        ("routing { dip(geoip: inverse) -> direct }", "E609 1:15"),
        ("routing { dip(geoip: empty) -> direct }", "W610 1:15"),
        (
            "routing { domain(geosite: google@no) -> direct }",
            "W610 1:18",
        ),
        ("routing { domain(geosite: odd) -> direct }", "W610 1:18"),
        (
            "watch { w { targets: domain(geosite: nope) } }",
            "E609 1:29",
        ),
        (
            "dns { routing { request { qname(geosite: nope) -> asis } } }",
            "E609 1:33",
        ),
    ] {
        assert_eq!(lowered(text).2, [want], "{text}");
    }
    let near = said("routing { domain(geosite: gogle) -> direct }");
    assert_eq!(near[0].0, "geodata `gogle`: `geosite.dat` has no such code");
    assert_eq!(near[0].1.as_deref(), Some("did you mean `google`?"));
    let none = said("routing { domain(ext: 'no:x') -> direct }");
    assert_eq!(none[0].0, "geodata `x`: `no.dat` is in none of memory");
    assert!(
        none[0]
            .1
            .as_deref()
            .unwrap()
            .contains("missing_geodata: skip")
    );
}

#[test]
fn a_rule_with_a_missing_list_can_be_skipped_as_a_whole() {
    let skip = |rules: &str| format!("global {{ missing_geodata: skip }} {rules}");
    // Without its list the negation would always hold.
    let text = skip(
        "routing { !domain(geosite: nope) -> block !dip(geoip: zz, 1.1.1.1) -> block domain(ext: 'no:x', a.b) && dport(443) -> block }",
    );
    assert_eq!(lowered(&text).2, ["W609 1:52", "W609 1:81", "W609 1:117"]);
    let config = accepted(&text);
    assert_eq!(config.rules.lines.len(), 4);
    assert_eq!(to(&config, [8, 8, 8, 8], None), 3);
    assert_eq!(to(&config, [8, 8, 8, 8], Some("a.b")), 3);
    let dns =
        skip("dns { routing { request { !qname(geosite: nope) -> reject fallback: asis } } }");
    assert_eq!(accepted(&dns).dns.request.len(), 1);
    // The list is there, but cannot be expressed.
    let inverse = skip("routing { dip(geoip: inverse) -> direct }");
    assert_eq!(lowered(&inverse).2, ["E609 1:48"]);
}

#[test]
fn files_are_not_read_unless_a_rule_names_a_code() {
    struct Never;
    impl honk_policy::geo::GeoSource for Never {
        fn read(
            &mut self,
            file: &str,
            _: Option<&str>,
        ) -> Result<Vec<u8>, honk_policy::geo::Unreadable> {
            panic!("{file} is read");
        }
    }
    let text = "routing { dip(geoip: private, 10.0.0.1) && domain(a.b) -> direct }";
    let parsed = honk_grammar::parse_text("test.dae", text);
    assert!(honk_policy::config::lower(&parsed, &mut Never).0.is_some());
}
