//! Whole configurations as people write them, with the corners of the language they rely on:
//! where comments stand, how lists are broken, what is quoted, and settings of other builds.

use super::lowered;

/// A text and the findings it must have, as number and place; `not-built` is left out.
fn check(text: &str, want: &[&str]) -> honk_policy::config::Config {
    let (config, findings, short) = lowered(text);
    assert_eq!(short, want, "{findings:#?}");
    config.unwrap_or_else(|| panic!("{findings:#?}"))
}

/// A household: comments everywhere, one-line sections, mixed quotes, dae's own policy words.
pub(crate) const HOUSEHOLD: &str = r#"# home gateway
global { # ports
  tproxy_port: 12345   # as in the manual
  lan_interface: br-lan, 'br-guest' ,
                 wg0
  wan_interface: auto /* follow the route */
  log_level:info allow_insecure:false
  check_interval: 30s check_tolerance: 50ms
  tcp_check_url: 'http://cp.example,192.0.2.1,2001:db8::1'
  udp_check_dns: 'dns.example:53,192.0.2.53'
  dial_mode: domain
}
node {
  # one by link, one by tag, one with everything in the link
  socks5://192.0.2.1:1080#home # the office
  tokyo: 'http://user:p%40ss@192.0.2.2:3128'
  "osaka: socks5://192.0.2.3:1080"
}
group {
  proxy {
    # nodes by place
    filter: name(keyword: 'tok', regex: '^osa[a-z]+$')
    filter: !name(keyword: 'home') && name(regex: '.*')
    policy: min_moving_avg
  }
  'media box' { filter: name(home) policy: fixed(0) }
}
routing {
  ### first match wins ###
  pname(NetworkManager, systemd-resolved) -> must_direct
  dip(224.0.0.0/3, 'ff00::/8') -> direct
  l4proto(udp) && dport(443) -> block # no QUIC
  dip(10.0.0.0/8,
      172.16.0.0/12, # inside
      192.168.0.0/16) -> direct
  sip(192.168.1.20) &&
    !dport(22, 8000-8999) -> 'media box'
  mac('02:42:ac:11:00:02') && ipversion(6) -> direct(mark: 0x800, must)
  dscp(0x4)->direct
  fallback: proxy
}
"#;

#[test]
fn a_household_of_comments_quotes_and_broken_lists() {
    let config = check(HOUSEHOLD, &[]);
    assert_eq!(config.global.lan_interface, ["br-lan", "br-guest", "wg0"]);
    let names: Vec<&str> = config.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["home", "tokyo", "osaka"]);
    let lines = &config.rules.lines;
    assert_eq!(lines.len(), 8);
    let places: Vec<u32> = lines.iter().map(|line| line.line).collect();
    assert_eq!(places, [30, 31, 32, 33, 36, 38, 39, 40]);
    let last = lines.iter().map(|line| line.action.ordinal.0);
    assert_eq!(last.collect::<Vec<_>>(), [0, 0, 1, 0, 3, 0, 0, 2]);
    assert!(lines[0].action.must && lines[5].action.must && !lines[6].action.must);
}

/// Written for another build: old spellings, policies that do not exist, aliases.
pub(crate) const MOVED: &str = r#"
global {
  lan_interface: lan0
  enable_local_tcp_fast_redirect: true
  tls_implementation: utls
  utls_imitate: firefox_auto
}
subscription { my_sub: 'https://sub.example/list?token=1#frag' }
node { 'ssr://abc' }
group {
  a { filter: subtag(my_sub) && !name(keyword: 'Expire', keyword: 'Traffic') policy: random }
  b { filter: subtag(regex: '^my_', other) [add_latency: -500ms] policy: min_avg10 }
  c { filter: nmae(x) policy: fixed(2) }
  d { policy: select default: b check_url: 'https://www.example/204' }
}
routing {
  ip(geoip: private) && port(53,) -> must_rules
  domain(geosite: cn) -> direct
  domain(suffix: example.org, keyword: ads, full: a.example, regex: '\.ads\.') -> block
  default: a
}
dns {
  upstream {
    local: 'udp://192.0.2.53:53'
    far: 'tcp+udp://dns.example:53' outbound: a
  }
  routing {
    request { qname(geosite: cn) -> local fallback: far }
    response { upstream(far) -> accept ip(geoip: private) && !qname(geosite: cn) -> far fallback: accept }
  }
}
"#;

#[test]
fn a_configuration_of_another_build_loads_with_a_word_on_each_difference() {
    let (config, findings, short) = lowered(MOVED);
    let errors = findings
        .iter()
        .filter(|f| f.severity == honk_grammar::diag::Severity::Error);
    assert_eq!(errors.count(), 0, "{findings:#?}");
    assert!(config.is_some());
    for (number, line) in [
        ("W213", 4),
        ("W214", 6),
        ("W810", 9),
        ("W903", 11),
        ("W904", 13),
        ("W910", 13),
        ("W907", 14),
        ("W212", 17),
        ("W213", 25),
    ] {
        let place = format!("{number} {line}:");
        assert!(
            short.iter().any(|s| s.starts_with(&place)),
            "{place} in {short:?}"
        );
    }
}

/// Mistakes that people make, all told in one run.
#[test]
fn every_mistake_of_a_file_is_told_in_one_run() {
    let text = "global { lan_interfce: lan0 log_level: verbose tproxy_port: 70000 }
group { direct { } g { policy: honk } }
routing {
  dport(80) -> prxy
  domian(a.example) -> direct
  dip(10.0.0.0/33) -> direct
  dip(geosite: cn) -> direct
  dport(90) -> direct(musst)
  fallback: must_rules
}
gloabl { }";
    let (config, _, short) = lowered(text);
    assert!(config.is_none());
    let want = [
        "E204 1:10",
        "E405 1:40",
        "E402 1:61",
        "E502 2:9",
        "E902 2:32",
        "E501 4:16",
        "E601 5:3",
        "E604 6:7",
        "E602 7:7",
        "E606 8:23",
        "E607 9:13",
        "E201 11:1",
    ];
    assert_eq!(short, want);
}

/// What the pre-scan finds in one section must not hide what is wrong in the others.
#[test]
fn a_broken_section_hides_nothing_of_the_others() {
    let text = "global { log_level：info }\nnode { a: socks5://192.0.2.1:1080 }\n\
                routing { dport(80) -> direct\n dport(81) block\n fallback: direct }\n\
                group { g { polcy: select } }";
    let (_, _, short) = lowered(text);
    assert_eq!(short, ["E103 1:19", "E113 4:12", "E204 6:13"]);
}

/// A large household: several subscriptions, comments in Chinese, tabs, long lists, and the habits
/// of someone who has edited it for years.
fn home() -> String {
    let domains: Vec<String> = (0..600)
        .map(|n| format!("\t\tsuffix: d{n}.example"))
        .collect();
    let networks: Vec<String> = (0..500)
        .map(|n| format!("10.{}.{}.0/24", n / 250, n % 250))
        .collect();
    let nodes: String = (0..40)
        .map(|n| format!("\t'节点 {n:02}': 'socks5://用户:密码@192.0.2.{n}:1080' # 第 {n} 个\n"))
        .collect();
    let groups: String = ["香港", "日本", "新加坡", "🇺🇸 美国"]
        .iter()
        .map(|place| {
            format!(
                "\t'{place}' {{\n\t\t# 按名称筛选\n\t\tfilter: name(keyword: '{place}', keyword: '节点 0',) && !name(keyword: '剩余流量', keyword: '到期')\n\t\tfilter: subtag(机场一, regex: '^机场') && name(regex: '{place}.*[0-9]+$')\n\t\tpolicy: min_moving_avg\n\t\tcheck_tolerance: 80ms\n\t}}\n"
            )
        })
        .collect();
    format!(
        "#\t家用网关 —— 请勿外传\nglobal {{\n\t##### 接口 #####\n\tlan_interface: br-lan,\n\t\tbr-guest , 'wg*'\n\twan_interface: auto\n\t#tproxy_port: 23456\n\tlog_level:info\n\tdial_mode: domain++   # 强制嗅探\n\tallow_insecure: false\n}}\n\n\
         subscription {{\n\t机场一: 'https://one.example/api/v1/client/subscribe?token=0123456789abcdef&flag=dae#名称' # 主力\n\t机场二 : \"https://two.example/link/abc?sub=3\"\n\t'机场三: https://three.example/s'\n\t# 旧的: 'https://old.example'\n\t'https://four.example/无标签'\n}}\n\
         node {{\n{nodes}}}\n\
         group {{\n{groups}\tproxy {{\n\t\tfilter: group('香港', '日本|新加坡', '🇺🇸 美国')\n\t\tpolicy: select\n\t\tdefault: 香港\n\t\tfinal: direct\n\t}}\n}}\n\
         routing {{\n\t### 直连 ###\n\tpname(NetworkManager, systemd-resolved, dnsmasq) -> must_direct\n\tdip(224.0.0.0/3, 'ff00::/8') -> direct\n\tdip({}) -> direct\n\tl4proto(udp)&&dport(443)->block\n\tdomain(\n{},\n\t) -> proxy\n\t!domain(suffix: cn, keyword: '淘宝') && dport(80,443,\n\t\t8000-8999) -> '🇺🇸 美国'\n\tfallback: proxy\n}}\n",
        networks.join(", "),
        domains.join(",\n"),
    )
}

#[test]
fn a_large_home_configuration_means_the_same_in_every_form_of_file() {
    let text = home();
    let config = check(
        &text,
        &[
            "W212 65:46",
            "W212 72:46",
            "W212 79:47",
            "W212 86:49",
            "W212 704:23",
        ],
    );
    assert_eq!((config.nodes.len(), config.groups.len()), (40, 5));
    let tags: Vec<&str> = config
        .subscriptions
        .iter()
        .map(|s| s.tag.as_str())
        .collect();
    assert_eq!(tags, ["机场一", "机场二", "机场三", ""]);
    assert_eq!(config.groups[4].default.as_deref(), Some("香港"));
    let lines = &config.rules.lines;
    assert_eq!(lines.len(), 7);
    let last: Vec<u8> = lines.iter().map(|line| line.action.ordinal.0).collect();
    assert_eq!(last, [0, 0, 0, 1, 6, 5, 6]);
    let plain = |text: &str| {
        let mut config = lowered(text).0.expect("no error");
        config.rules.lines.iter_mut().for_each(|line| {
            line.text.clear();
            line.line = 0;
        });
        config
    };
    let want = plain(&text);
    for other in [
        text.replace('\n', "\r\n"),
        text.replace('\n', "\r"),
        format!("\u{FEFF}{text}"),
        format!("\u{FEFF}{}", text.replace('\n', "\r\n")),
        text.replace('\t', "    "),
        text.trim_end().to_owned(),
        honk_grammar::format(&text).expect("it parses"),
    ] {
        assert_eq!(plain(&other), want);
    }
}
