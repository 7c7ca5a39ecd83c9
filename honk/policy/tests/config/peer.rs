//! The language as the peer documents it, feature by feature: each is accepted with the meaning it
//! has there, or refused with a reason. The texts are our own.

use honk_policy::{
    config::{
        Config, DialMode, DnsAction, DnsTest, Field, FilterLine, InternalName, Policy, Source,
        TextTest, Transport,
    },
    node::Host,
    routing::rule::{DomainTest, RuleLine, Test},
};

use super::{accepted, lowered};

fn rules(body: &str) -> Vec<RuleLine> {
    let text = format!("group {{ proxy {{ }} ipv6 {{ }} }}\nrouting {{\n{body}\n}}");
    accepted(&text).rules.lines
}

/// The first condition of the only rule.
fn test(body: &str) -> Test {
    rules(body)[0].conds[0].test.clone()
}

fn names(body: &str) -> Vec<DomainTest> {
    match test(body) {
        Test::Domain(names) => names,
        other => panic!("{other:?}"),
    }
}

#[test]
fn comments_stand_wherever_a_word_may_begin() {
    let text = "#first line\n\
        global { # behind a brace\n  log_level: warn # behind a value\n\
        ### between\n  #tproxy_port: 1\n}\n\
        /* a block\n   # over lines */\n\
        routing {\n  dport(1, # behind a comma\n    2) # behind a call\n    -> # behind an arrow\n    block\n\
        fallback: direct # the end";
    let text = format!("{text}\n}}");
    let config = accepted(&text);
    assert_eq!(config.global.log_level, "warn");
    assert_eq!(
        config.rules.lines[0].conds[0].test,
        Test::DestPort(vec![(1, 1), (2, 2)])
    );
    assert_eq!(config.rules.lines.len(), 2);
}

#[test]
fn quotes_of_both_kinds_and_none_mean_the_same() {
    let want = names("domain(suffix: a.example) -> proxy");
    for text in [
        "domain(suffix: 'a.example') -> proxy",
        "domain(suffix:\"a.example\") -> 'proxy'",
        "domain(a.example)->proxy",
        "domain(domain: a.example) -> \"proxy\"",
    ] {
        assert_eq!(names(text), want, "{text}");
    }
    let regex = names(r"domain(regex: '\.a[0-9]+\.example$') -> proxy");
    assert_eq!(regex, [DomainTest::Regex(r"\.a[0-9]+\.example$".into())]);
}

#[test]
fn every_matcher_of_rules() {
    let full = names("domain(full: A.example, keyword: Ads, contains: x) -> block");
    assert_eq!(
        full,
        [
            DomainTest::Full("a.example".into()),
            DomainTest::Keyword("ads".into()),
            DomainTest::Keyword("x".into()),
        ]
    );
    assert_eq!(
        test("dport(80, 8000-8999) -> proxy"),
        Test::DestPort(vec![(80, 80), (8000, 8999)])
    );
    assert_eq!(test("port(443) -> proxy"), Test::DestPort(vec![(443, 443)]));
    assert_eq!(
        test("sport(10080-30000) -> direct"),
        Test::SourcePort(vec![(10080, 30000)])
    );
    assert_eq!(
        test("l4proto(udp) -> direct"),
        Test::L4Proto {
            tcp: false,
            udp: true
        }
    );
    assert_eq!(
        test("ipversion(6) -> ipv6"),
        Test::IpVersion {
            v4: false,
            v6: true
        }
    );
    assert_eq!(test("dscp(0x4, 8) -> direct"), Test::Dscp(vec![4, 8]));
    let mac = Test::Mac(vec![[2, 0x42, 0xac, 0x11, 0, 2]]);
    assert_eq!(test("mac('02:42:ac:11:00:02') -> direct"), mac);
    assert_eq!(test("mac(02:42:ac:11:00:02) -> direct"), mac);
    let mut curl = [0; 16];
    curl[..4].copy_from_slice(b"curl");
    assert_eq!(test("pname(curl) -> direct"), Test::ProcessName(vec![curl]));
    for text in [
        "dip(geoip:private) -> direct",
        "ip(geoip: private, 9.9.9.9) -> direct",
    ] {
        assert!(
            matches!(test(text), Test::Dest(list) if list.len() >= 18),
            "{text}"
        );
    }
    let Test::Source(list) = test("sip(192.168.0.0/24, 10.0.0.1, 'fd00::/8') -> proxy") else {
        panic!("no source");
    };
    assert_eq!(
        list.iter().map(|p| p.len).collect::<Vec<_>>(),
        [120, 128, 8]
    );
}

#[test]
fn conditions_are_joined_negated_and_broken_over_lines() {
    let lines = rules(
        "!domain(suffix: a.example,\n    suffix: b.example\n  ) &&\n  l4proto(tcp) && !dport(1-1023,\n8443)\n  -> proxy\n\
         dip(1.1.1.1)&&!sip(10.0.0.1, 172.20.0.0/16)->direct",
    );
    let not: Vec<Vec<bool>> = lines
        .iter()
        .map(|line| line.conds.iter().map(|cond| cond.not).collect())
        .collect();
    assert_eq!(not, [vec![true, false, true], vec![false, true], vec![]]);
}

#[test]
fn targets_with_must_and_mark() {
    let of = |body: &str| {
        let action = rules(body)[0].action;
        (action.ordinal.0, action.must, action.mark)
    };
    assert_eq!(of("dport(1) -> direct"), (0, false, 0));
    assert_eq!(of("dport(1) -> block"), (1, false, 0));
    assert_eq!(of("dport(1) -> proxy"), (2, false, 0));
    assert_eq!(of("dport(1) -> must_direct"), (0, true, 0));
    assert_eq!(of("dport(1) -> direct(must)"), (0, true, 0));
    assert_eq!(of("dport(1) -> must_proxy"), (2, true, 0));
    assert_eq!(of("dport(1) -> proxy(must)"), (2, true, 0));
    assert_eq!(of("dport(1) -> direct(mark: 0x800)"), (0, false, 0x800));
    assert_eq!(of("dport(1) -> direct(must, mark: 2048)"), (0, true, 0x800));
    assert_eq!(of("pname(mosdns) -> must_rules").0, 252);
}

#[test]
fn fallback_stands_anywhere_under_either_name() {
    for body in [
        "fallback: proxy\ndport(1) -> direct",
        "dport(1) -> direct\nfallback: proxy",
        "dport(1) -> direct default: 'proxy'",
        "dport(1) -> direct\nfallback:proxy",
    ] {
        let lines = rules(body);
        let ordinals: Vec<u8> = lines.iter().map(|line| line.action.ordinal.0).collect();
        assert_eq!(ordinals, [0, 2], "{body}");
    }
    assert!(rules("fallback: must_proxy")[0].action.must);
}

#[test]
fn geodata_by_code_attribute_and_file() {
    for (text, want) in [
        ("domain(geosite:cn) -> direct", ("geosite.dat", "cn", None)),
        (
            "domain(geosite: geolocation-!cn) -> direct",
            ("geosite.dat", "geolocation-!cn", None),
        ),
        (
            "domain(geosite:google@cn) -> direct",
            ("geosite.dat", "google", Some("cn")),
        ),
        (
            "domain(ext:\"mine.dat:tag\") -> direct",
            ("mine.dat", "tag", None),
        ),
    ] {
        // The files of the test have no such codes: what counts is that they are asked for.
        let (_, found, _) = lowered(&format!("routing {{ {text} }}"));
        let message = found
            .iter()
            .find(|f| f.slug == "geo-missing")
            .map(|f| f.message.clone());
        let (file, code, _) = want;
        if let Some(message) = message {
            assert!(
                message.contains(file) && message.contains(code),
                "{text}: {message}"
            );
        } else {
            assert!(names(text).iter().any(|name| matches!(
                name,
                DomainTest::Geosite { file: f, code: c, .. } if f == file && c == code
            )));
        }
    }
}

fn group(body: &str) -> (Config, Vec<FilterLine>) {
    let config = accepted(&format!("group {{ g {{ {body} }} }}"));
    let lines = config.groups[0].filters.clone().unwrap_or_default();
    (config, lines)
}

#[test]
fn filters_by_name_and_subscription_with_offsets() {
    let (config, lines) = group(
        "filter: subtag(regex: '^my_', other) && !name(keyword: 'ExpireAt')\n\
         filter: name(a, b) [add_latency: -500ms]\n policy: min_avg10",
    );
    let FilterLine::Nodes(first) = &lines[0] else {
        panic!("{lines:?}");
    };
    assert_eq!((first[0].field, first[0].not), (Field::Subtag, false));
    assert_eq!(
        first[0].tests,
        [
            TextTest::Regex("^my_".into()),
            TextTest::Exact("other".into())
        ]
    );
    assert_eq!((first[1].field, first[1].not), (Field::Name, true));
    assert_eq!(config.groups[0].add_latency, [(1, -500)]);
    let (config, lines) = group("policy: fixed(0)");
    assert!(lines.is_empty() && config.groups[0].filters.is_none());
}

#[test]
fn policies_of_the_peer_have_their_meaning_or_a_word_about_it() {
    for (word, policy, number) in [
        ("min_moving_avg", Policy::UrlTest, None),
        ("min_avg10", Policy::UrlTest, None),
        ("fixed(0)", Policy::Selector, None),
        ("fixed(2)", Policy::Selector, Some("W910")),
        ("min", Policy::Selector, Some("W903")),
        ("random", Policy::Selector, Some("W903")),
    ] {
        let text = format!("group {{ g {{ policy: {word} }} }}");
        let (config, found, _) = lowered(&text);
        assert_eq!(config.unwrap().groups[0].policy, policy, "{word}");
        let told = found.iter().find(|f| f.section.as_deref() == Some("group"));
        assert_eq!(told.map(|f| f.number), number, "{word}");
    }
}

#[test]
fn checks_of_a_group_override_those_of_global() {
    let (config, _) =
        group("policy: min_moving_avg tcp_check_url: 'http://cp.example' check_tolerance: 80ms");
    assert_eq!(
        config.groups[0].check_url.as_deref(),
        Some("http://cp.example")
    );
    assert_eq!(config.groups[0].tolerance_ms, Some(80));
    for key in [
        "check_interval: 60s",
        "tcp_check_http_method: GET",
        "udp_check_dns: 'dns.example:53'",
    ] {
        let (config, _, short) = lowered(&format!("group {{ g {{ policy: min_avg10 {key} }} }}"));
        assert!(config.is_some());
        assert_eq!(short.len(), 1, "{key}: {short:?}");
        assert!(short[0].starts_with("W214"), "{key}: {short:?}");
    }
}

#[test]
fn subscriptions_with_and_without_tag() {
    let config = accepted(
        "subscription {\n my_sub: 'https://s.example/link?token=1#x'\n 'https://s.example/none'\n \
         https://s.example/bare?a=1\n local: 'file://sub/dir/mine.sub' # kept here\n \
         kept: 'https-file://s.example/kept'\n 'quoted: https://s.example/q'\n}",
    );
    let got: Vec<(&str, Source)> = config
        .subscriptions
        .iter()
        .map(|s| (s.tag.as_str(), s.source))
        .collect();
    assert_eq!(
        got,
        [
            ("my_sub", Source::Web),
            ("", Source::Web),
            ("", Source::Web),
            ("local", Source::File),
            ("kept", Source::StoredWeb),
            ("quoted", Source::Web),
        ]
    );
}

#[test]
fn nodes_by_link_and_by_tag_and_placeholders_are_told() {
    let (config, found, _) = lowered(
        "node {\n 'socks5://localhost:1080'\n mine: 'ss://LINK'\n n1: 'vmess://LINK'\n \
         chains: 'tuic://LINK -> vmess://LINK'\n h: 'hysteria2://password@h.example:443/?sni=s.example'\n \
         old: 'ssr://LINK'\n http://u:p@192.0.2.1:3128#name\n}",
    );
    let config = config.expect("placeholders are no errors");
    let nodes: Vec<&str> = config.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(nodes, ["socks5-localhost", "h", "name"]);
    let told: Vec<&str> = found
        .iter()
        .filter(|f| f.section.as_deref() == Some("node") && !f.number.is_empty())
        .map(|f| f.number)
        .collect();
    assert_eq!(told, ["W802", "W802", "W809", "W810"]);
    assert!(matches!(
        config.nodes[0].protocol.proxy().unwrap().host,
        Host::Name(_)
    ));
}

#[test]
fn settings_of_global_as_documented() {
    let config = accepted(
        "global {\n tproxy_port: 12345\n tproxy_port_protect: true\n pprof_port: 0\n so_mark_from_dae: 0\n \
         log_level: info\n disable_waiting_network: false\n enable_local_tcp_fast_redirect: false\n \
         lan_interface: docker0,br-lan\n wan_interface: auto\n auto_config_kernel_parameter: true\n \
         tcp_check_url: 'http://cp.example,1.1.1.1,2606:4700:4700::1111'\n tcp_check_http_method: HEAD\n \
         udp_check_dns: 'dns.example:53,8.8.8.8,2001:4860:4860::8888'\n check_interval: 30s\n \
         check_tolerance: 50ms\n dial_mode: domain++\n allow_insecure: false\n sniffing_timeout: 100ms\n \
         tls_implementation: tls\n utls_imitate: chrome_auto\n tls_fragment: false\n \
         tls_fragment_length: '50-100'\n tls_fragment_interval: '10-20'\n mptcp: false\n \
         bandwidth_max_tx: '200 mbps'\n bandwidth_max_rx: '1 gbps'\n fallback_resolver: '8.8.8.8:53'\n \
         bootstrap_resolver: '9.9.9.9:53'\n}",
    );
    let global = &config.global;
    assert_eq!(global.lan_interface, ["docker0", "br-lan"]);
    assert_eq!(global.wan_interface, ["auto"]);
    assert_eq!(global.dial_mode, DialMode::DomainPlusPlus);
    assert_eq!((global.own_mark, global.sniffing_timeout_ms), (0x100, 100));
    assert_eq!(global.bootstrap, ["9.9.9.9:53".parse().unwrap()]);
}

#[test]
fn dns_upstreams_rules_and_fixed_times() {
    let config = accepted(
        "dns {\n ipversion_prefer: 4\n fixed_domain_ttl {\n  ddns.example: 10\n  test.example: 3600\n }\n \
         bind: '127.0.0.1:5353'\n upstream {\n  ali: 'udp://dns.example:53' # near\n  far: 'tcp+udp://dns.example:53'\n  \
         h3: 'h3://dns.example:443/path'\n  http3: 'http3://dns.example:443'\n  doq: 'quic://dns.example:853'\n  \
         doh: 'https://dns.example:443/path'\n  dot: 'tls://dns.example'\n }\n routing {\n  request {\n   \
         qname(suffix: a.example, keyword: goo) -> far\n   qname(full: ok.example, regex: '^yes') -> far\n   \
         qtype(a, aaaa) -> ali\n   qtype(https) -> reject\n   sub(my_sub) -> far\n   node(name_keyword: hk) -> far\n   \
         subnode(subtag: my_sub) -> ali\n   fallback: asis\n  }\n  response {\n   upstream(far) -> accept\n   \
         ip(geoip: private) && !qname(suffix: cn) -> far\n   fallback: accept\n  }\n }\n}",
    );
    let dns = &config.dns;
    let transports: Vec<Transport> = dns.upstreams.iter().map(|u| u.transport).collect();
    assert_eq!(
        transports,
        [
            Transport::Udp,
            Transport::TcpUdp,
            Transport::H3,
            Transport::H3,
            Transport::Quic,
            Transport::Https,
            Transport::Tls,
        ]
    );
    assert_eq!(
        dns.fixed_ttl,
        [
            ("ddns.example".to_owned(), 10),
            ("test.example".to_owned(), 3600)
        ]
    );
    assert_eq!(dns.request.len(), 8);
    assert_eq!(dns.request[2].conds[0].test, DnsTest::Type(vec![1, 28]));
    assert_eq!(dns.request[3].action, DnsAction::Reject);
    let internal = |at: usize| match &dns.request[at].conds[0].test {
        DnsTest::Internal(kind, _) => *kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [internal(4), internal(5), internal(6)],
        [
            InternalName::Subscription,
            InternalName::Node,
            InternalName::SubscriptionNode
        ]
    );
    assert_eq!(dns.request[7].action, DnsAction::Asis);
    assert_eq!(dns.response[1].action, DnsAction::Upstream("far".into()));
    assert!(dns.response[1].conds[1].not);
}

#[test]
fn what_the_peer_has_and_we_do_not_is_refused_with_a_reason() {
    for (text, number) in [
        ("routing { tos(0x4) -> direct }", "E601"),
        ("global { check_url: 'https://x.example/' }", "E204"),
        ("global { dns_upstream: '1.1.1.1:53' }", "E204"),
        ("group { g { filter: link(lua: x.lua) } }", "W904"),
        ("group { g { filter: name(regex: '^(?!a)') } }", "W904"),
    ] {
        let (_, found, _) = lowered(text);
        let numbers: Vec<&str> = found.iter().map(|f| f.number).collect();
        assert!(numbers.contains(&number), "{text}: {numbers:?}");
    }
}
