//! One realistic body of every structured format.

use super::{Format, findings, names, node, read};
use crate::subscription::{BodyError, UserInfo, parse};

#[test]
fn clash() {
    let body = read(include_str!("clash.yaml"));
    assert_eq!(body.format, Format::Clash);
    // Case 86.
    node(
        &body,
        "plain ss",
        &[
            "kind=ss",
            "at=ss.example:443",
            "password=0123456",
            "udp=false",
            "tcp=true",
        ],
    );
    node(
        &body,
        "ss with v2ray",
        &[
            "password=AAECAwQFBgcICQoLDA0ODw==",
            "uot=V2",
            "plugin=wss a.example /p mux=false",
            "plugin.sni=a.example",
            "plugin.insecure=true",
            "udp=true",
        ],
    );
    node(
        &body,
        "ss obfs",
        &["plugin=obfs tls b.example /", "password=pa:ss"],
    );
    node(
        &body,
        "ss shadow",
        &[
            "plugin=shadow-tls shadow",
            "plugin.sni=cloud.example",
            "udp=false",
        ],
    );
    node(
        &body,
        "tro ws",
        &[
            "sni=sni.example",
            "path=/ws",
            "host=host.example",
            "header.x-token=t",
            "early=2048 Sec-WebSocket-Protocol",
            "insecure=true",
            "fp=chrome",
            "udp=true",
        ],
    );
    node(
        &body,
        "tro reality",
        &["service=svc", "sid=0123000000000000", "sni=tro.example"],
    );
    node(
        &body,
        "vm ws",
        &[
            "kind=vmess",
            "sni=vm.example",
            "host=cdn.example",
            "early=2048 Sec-WebSocket-Protocol",
            "udp=false",
        ],
    );
    node(
        &body,
        "vm upgrade",
        &[
            "transport=httpupgrade",
            "fast=true",
            "cipher=zero",
            "tls=false",
        ],
    );
    node(
        &body,
        "vl vision",
        &[
            "flow=Vision",
            "sni=m.example",
            "fp=firefox",
            "sid=0000000000000000",
            "udp=true",
        ],
    );
    node(&body, "vl mux", &["mode=h2mux-padded"]);
    node(
        &body,
        "hy2",
        &[
            "at=hy.example:443",
            "ports=443,20000-20010",
            "hop=15",
            "up=Some(3750000)",
            "down=Some(25000000)",
            "obfs=salamander obfuscate",
            "leaf=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ],
    );
    node(
        &body,
        "tuic",
        &[
            "congestion=bbr",
            "relay=Quic",
            "heartbeat=Some(8000)",
            "sni=",
            "insecure=false",
        ],
    );
    node(
        &body,
        "any",
        &["kind=anytls", "sni=s.example", "idle=Some(60)"],
    );
    node(
        &body,
        "socks",
        &["built=true", "at=2001:db8::7:1080", "user=u"],
    );
    node(&body, "sockstls", &["built=false", "sni=s.example"]);
    node(
        &body,
        "web",
        &["kind=http", "tls=true", "at=web.example:8443"],
    );
    let relayed = node(
        &body,
        "relayed",
        &["via0.name=plain ss", "via0.kind=ss", "udp=true"],
    );
    assert!(!relayed.is_link && node(&body, "plain ss", &[]).is_link);
    for gone in [
        "by group", "twice", "no port", "old", "wire", "tuic4", "vm old", "vl smux",
    ] {
        assert!(!names(&body).contains(&gone), "{gone}");
    }
    assert_eq!(body.counts.duplicate, 1);
    assert_eq!(
        findings(&body),
        [
            "node-link subscription `tag`: 7 of 26 entries skipped: 1 `ss` with ShadowTLS version \
             `2` not supported, 1 `tuic` with version 4 not supported, 1 `vless` with multiplexing \
             `smux` not supported, 1 `vmess` with alterId not supported, 1 malformed `ss`: the \
             port is missing or not between 1 and 65535, 1 type `ssr` not supported, 1 type \
             `wireguard` not supported",
            "detour-unresolved subscription `tag`: detour target `auto` is no server; not used, so \
             that nothing goes direct: by group",
        ]
    );
}

#[test]
fn reasons_without_end_are_counted_and_a_message_lists_the_first() {
    let mut text = "proxies:\n- {name: a, type: http, server: a, port: 1}\n".to_owned();
    for n in 10..50 {
        text.push_str(&format!("- {{type: t{n}}}\n"));
    }
    let body = read(&text);
    let skipped = body.skipped();
    assert_eq!(skipped.len(), 33);
    assert_eq!(skipped[0], (8, "for other reasons"));
    let [message] = findings(&body).try_into().unwrap();
    assert!(
        message.contains("40 of 41 entries skipped: 1 type `t10` not supported"),
        "{message}"
    );
    assert!(
        message.ends_with("1 type `t17` not supported, 32 for other reasons"),
        "{message}"
    );
}

#[test]
fn sing_box() {
    let body = read(include_str!("singbox.json"));
    assert_eq!(body.format, Format::SingBox);
    node(&body, "ss", &["uot=V2", "cipher=aes-128-gcm"]);
    // Case 88.
    node(
        &body,
        "ss in tls",
        &[
            "at=st.example:443",
            "plugin=shadow-tls shadow",
            "plugin.sni=mask.example",
            "udp=false",
        ],
    );
    node(
        &body,
        "vl",
        &[
            "flow=Vision",
            "mode=xudp",
            "sid=a1b2000000000000",
            "sni=m.example",
            "fp=chrome",
        ],
    );
    node(
        &body,
        "vm",
        &["host=cdn.example", "early=2048", "sni=", "alpn=http/1.1"],
    );
    node(
        &body,
        "tro",
        &[
            "service=svc",
            "insecure=true",
            "ech=000102030405",
            "via0.name=ss",
            "udp=true",
        ],
    );
    node(
        &body,
        "hy",
        &[
            "at=hy.example:443",
            "ports=443,2080-3000",
            "hop=30",
            "up=Some(12500000)",
            "sni=hy.example",
        ],
    );
    let direct = node(
        &body,
        "tu",
        &["congestion=new_reno", "heartbeat=Some(10000)"],
    );
    assert!(direct.node.protocol.proxy().unwrap().via.is_empty());
    node(&body, "any", &["idle=Some(60)"]);
    node(&body, "s4", &["kind=socks4", "names=true", "user=u"]);
    node(&body, "web", &["built=true"]);
    // Case 87, and everything that goes through it.
    assert_eq!(body.counts.detour, 5);
    assert_eq!(
        findings(&body),
        [
            "node-link subscription `tag`: 3 of 19 entries skipped: 1 `vless` with transport \
             `quic` not supported, 1 malformed `trojan`: Trojan needs TLS, 1 type `wireguard` not \
             supported",
            "detour-unresolved subscription `tag`: detour target `missing` is missing; not used, \
             so that nothing goes direct: lost, lost too",
            "detour-unresolved subscription `tag`: detour target `ring a` leads back to itself; \
             not used, so that nothing goes direct: ring a",
            "detour-unresolved subscription `tag`: detour target `ring b` leads back to itself; \
             not used, so that nothing goes direct: ring b",
            "detour-unresolved subscription `tag`: detour target `web` cannot carry it; not used, \
             so that nothing goes direct: over tcp",
        ]
    );
}

#[test]
fn xray() {
    let body = read(include_str!("xray.json"));
    assert_eq!(body.format, Format::Xray);
    assert_eq!(names(&body), ["Exit 1", "Exit 2", "proxy2", "VM", "Mux"]);
    // Case 89.
    let first = node(
        &body,
        "Exit 1",
        &[
            "flow=Vision",
            "sid=a100000000000000",
            "spx=/s",
            "sni=m.example",
            "fp=chrome",
        ],
    );
    assert!(first.node.protocol.proxy().unwrap().via.is_empty());
    node(
        &body,
        "Exit 2",
        &[
            "path=/w",
            "early=2560 Sec-WebSocket-Protocol",
            "host=cdn.example",
            "insecure=true",
            "alpn=h2",
            "tfo=on",
            "via0.kind=ss",
            "via0.uot=V2",
        ],
    );
    assert!(node(&body, "proxy2", &[]).is_link);
    node(
        &body,
        "VM",
        &[
            "at=v.example:8443",
            "host=u.example",
            "cipher=aes-128-gcm",
            "tls=false",
        ],
    );
    node(&body, "Mux", &["mode=mux-cool", "service=g", "multi=true"]);
    // Case 90.
    assert_eq!(
        findings(&body)[1..],
        [
            "detour-unresolved subscription `tag`: detour target `proxy` is the entry itself; not \
          used, so that nothing goes direct: Self"
        ]
    );
}

#[test]
fn one_xray_configuration_names_its_nodes_by_tag() {
    let body = read(
        r#"{"outbounds": [
            {"protocol": "socks", "tag": "a", "settings": {"servers": [{"address": "h.example",
              "port": 1080, "users": [{"user": "u", "pass": "p"}]}]}},
            {"protocol": "freedom", "tag": "direct"}]}"#,
    );
    node(&body, "a", &["user=u", "built=true"]);
}

#[test]
fn sip008() {
    let body = read(include_str!("sip008.json"));
    assert_eq!(
        (body.format, names(&body)),
        (Format::Sip008, vec!["one", "two"])
    );
    node(
        &body,
        "one",
        &[
            "plugin=obfs tls b.example /",
            "cipher=chacha20-ietf-poly1305",
        ],
    );
    node(&body, "two", &["at=192.0.2.1:443", "password=", "plugin=-"]);
    assert_eq!(
        body.info.user,
        Some(UserInfo {
            upload: None,
            download: Some(274_877_906_944),
            total: Some(1_099_511_627_776),
            expire: None,
        })
    );
    assert_eq!((body.counts.malformed, body.counts.unsupported), (1, 1));
    let bare =
        r#"[{"server": "a.example", "server_port": 1, "password": "p", "method": "aes-256-gcm"}]"#;
    assert_eq!(names(&read(bare)), ["ss-a.example"]);
}

#[test]
fn a_written_format_is_not_guessed() {
    let clash = include_str!("clash.yaml").as_bytes();
    assert!(parse(clash, Some(Format::Clash)).is_ok());
    assert_eq!(
        parse(clash, Some(Format::Xray)).err(),
        Some(BodyError::OtherFormat {
            said: Format::Xray,
            is: Format::Clash
        })
    );
    let json = include_str!("singbox.json").as_bytes();
    assert!(matches!(
        parse(json, Some(Format::Sip008)),
        Err(BodyError::OtherFormat { .. })
    ));
    let damaged = parse(b"{\"servers\": [", Some(Format::Sip008));
    assert_eq!(damaged.err(), Some(BodyError::Syntax("JSON")));
}

#[test]
fn a_way_has_at_most_twelve_hops() {
    let hop = |n: usize| {
        let next = n + 1;
        format!(
            "- {{name: n{n}, type: socks5, server: h{n}.example, port: 1, dialer-proxy: n{next}}}\n"
        )
    };
    let list: String = (1..13).map(hop).collect();
    let end = "- {name: n13, type: socks5, server: end.example, port: 1, dialer-proxy: DIRECT}\n";
    let body = read(&format!("proxies:\n{list}{end}"));
    assert_eq!(body.members.len(), 12);
    assert_eq!(names(&body)[0], "n2");
    assert_eq!(
        findings(&body),
        [
            "detour-unresolved subscription `tag`: detour target `n13` is more than 12 hops away; \
          not used, so that nothing goes direct: n1"
        ]
    );
}
