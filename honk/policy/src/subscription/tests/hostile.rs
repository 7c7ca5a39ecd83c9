//! Bodies that are meant to hurt: they end quickly, in an error or in a few nodes.

use proptest::prelude::*;

use super::super::{BodyError, Format, MAX_BODY, parse};

const FORMATS: [Option<Format>; 6] = [
    None,
    Some(Format::List),
    Some(Format::Sip008),
    Some(Format::Clash),
    Some(Format::SingBox),
    Some(Format::Xray),
];

#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{\"a\":", "{\"outbounds\":[", "{\"servers\":["] {
        let body = open.repeat(200_000);
        assert!(parse(body.as_bytes(), None).is_err());
    }
    for line in ["- ", "[", "{a: ", "? "] {
        let body = format!("proxies: {}", line.repeat(100_000));
        assert!(
            parse(body.as_bytes(), Some(Format::Clash)).is_err(),
            "{line}"
        );
    }
    let indented: String = (0..3000)
        .map(|n| format!("{}a:\n", " ".repeat(n)))
        .collect();
    let body = format!("proxies:\n{indented}");
    assert!(parse(body.as_bytes(), Some(Format::Clash)).is_err());
}

#[test]
fn aliases_do_not_unfold() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..40 {
        let inner = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb += &format!("a{n}: &a{n} [{inner}]\n");
    }
    let body =
        format!("{bomb}proxies: [*a39, {{type: socks5, server: h.example, port: 1, x: *a39}}]");
    let error = parse(body.as_bytes(), None).err();
    assert!(
        matches!(error, Some(BodyError::NoNodes { .. })),
        "{error:?}"
    );
    // A chain of aliases is as deep as if it were written out.
    let mut chain = String::from("x:\n - &b0 [x]\n");
    for n in 1..20_000 {
        chain += &format!(" - &b{n} [*b{}]\n", n - 1);
    }
    let body = format!("{chain}proxies: []");
    let error = parse(body.as_bytes(), Some(Format::Clash)).err();
    assert_eq!(error, Some(BodyError::Excessive("YAML")));
    let mut merges = String::from("m0: &m0 {a: 1, b: 2}\n");
    for n in 1..40 {
        let p = n - 1;
        merges += &format!("m{n}: &m{n} {{<<: [*m{p}, *m{p}], c{n}: 1}}\n");
    }
    let body = format!("{merges}proxies: []");
    let error = parse(body.as_bytes(), Some(Format::Clash)).err();
    assert_eq!(error, Some(BodyError::Excessive("YAML")));
}

#[test]
fn too_many_values_are_refused() {
    let json = format!("[{}0]", "0,".repeat(MAX_BODY / 2 - 2));
    assert_eq!(
        parse(json.as_bytes(), None).err(),
        Some(BodyError::Excessive("JSON"))
    );
    let yaml = format!("proxies:\n{}", "- a\n".repeat(600_000));
    assert_eq!(
        parse(yaml.as_bytes(), None).err(),
        Some(BodyError::Excessive("YAML"))
    );
    let lines = "a\n".repeat(MAX_BODY / 2);
    let error = parse(lines.as_bytes(), Some(Format::List)).err();
    assert!(
        matches!(error, Some(BodyError::NoNodes { entries: 8192, .. })),
        "{error:?}"
    );
}

#[test]
fn large_entries_are_skipped() {
    let name = "n".repeat(20_000);
    let body = format!(
        "proxies:\n- {{name: {name}, type: socks5, server: h.example, port: 1}}\n\
         - {{name: ok, type: socks5, server: h.example, port: 1}}\n"
    );
    let body = parse(body.as_bytes(), None).unwrap();
    assert_eq!((body.members.len(), body.counts.malformed), (1, 1));
}

/// Everything secret of a body stays out of what is shown.
#[test]
fn nothing_secret_is_shown() {
    let uuid = "b831381d-6324-4d53-ad4f-8cda48b30811";
    for body in [
        "trojan://canary@h.example?path=canary&type=ws&host=canary.example\ntrojan://canary\n\
         canary://canary@canary\nss://canary:canary@canary.example:1\nssr://canary"
            .to_owned(),
        format!(
            "proxies:\n- {{name: a, type: vless, server: canary.example, port: 1, uuid: {uuid}}}\n\
             - {{name: b, type: trojan, server: canary.example, port: 1, password: canary, \
             ws-opts: {{path: /canary, headers: {{canary: canary}}}}, network: ws}}\n\
             - {{name: c, type: canary canary, server: canary, password: canary}}\n\
             - {{name: d, type: ss, cipher: 'canary canary', server: canary, port: 1, password: x}}\n"
        ),
        format!(
            r#"{{"outbounds": [{{"type": "vless", "tag": "a", "server": "canary.example",
                "server_port": 1, "uuid": "{uuid}", "tls": {{"enabled": true, "server_name":
                "canary.example", "reality": {{"enabled": true, "public_key": "canary"}}}}}},
                {{"type": "socks", "tag": "b", "server": "canary.example", "server_port": 1,
                "username": "canary", "password": "canary", "tls": {{}}}}, {{"type": "tuic", "tag": "c", "uuid":
                "{uuid}", "password": "canary", "server": "canary", "server_port": 1,
                "tls": {{"enabled": true}}}}]}}"#
        ),
    ] {
        let body = parse(body.as_bytes(), None).unwrap();
        let shown = format!("{:?} {:?}", body.findings("t"), body.counts);
        assert!(
            !shown.contains("canary") && !shown.contains("b831381d"),
            "{shown}"
        );
        for member in &body.members {
            if !member.node.protocol.built() {
                let shown = format!("{member:?}");
                assert!(!shown.contains("canary"), "{shown}");
                assert!(!shown.contains("b831381d"), "{shown}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in FORMATS {
            let _ = parse(&bytes, format);
        }
    }

    /// Samples with a few bytes changed, removed or repeated.
    #[test]
    fn damaged_samples(
        which in 0..4usize,
        damage in proptest::collection::vec((any::<usize>(), any::<u8>(), 0..3u8), 1..6),
    ) {
        let samples = [
            include_str!("clash.yaml"),
            include_str!("singbox.json"),
            include_str!("xray.json"),
            include_str!("sip008.json"),
        ];
        let mut bytes = samples[which].as_bytes().to_vec();
        for (at, byte, how) in damage {
            let at = at % bytes.len();
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..bytes.len().min(at + usize::from(byte)))),
                _ => {
                    let end = bytes.len().min(at + usize::from(byte));
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
        for format in FORMATS {
            if let Ok(body) = parse(&bytes, format) {
                let _ = body.findings("t");
            }
        }
    }
}
