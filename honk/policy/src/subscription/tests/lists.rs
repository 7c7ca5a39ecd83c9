//! Lists of links, and what every body is checked for.

use super::{findings, names, node, read};
use crate::{
    node::text::{to_base64, to_base64url},
    subscription::{BodyError, Format, MAX_ENTRIES, UserInfo, parse},
};

const LIST: &str = "\
# upload=10; download=20; total=100; expire=1893456000
STATUS=used 1 of 2
//profile-title: base64:SG9uaw==
#profile-update-interval: 12

trojan://p@a.example:443#A
; a remark
tag: vless://b831381d-6324-4d53-ad4f-8cda48b30811@b.example:443?security=tls#B
socks5://192.0.2.9:1080#C -> ss://YWVzLTI1Ni1nY206cGFzc3dvcmQ@h.example:1#D
https://provider.example/help
https://u:p@w.example:8443#W
ssr://YWJj
foo://x@h.example:1
trojan://p@a.example:0#E
trojan://p@A.example#F
trojan://p@g.example#direct
";

fn check(body: &str) {
    let body = read(body);
    assert_eq!(body.format, Format::List);
    assert_eq!(names(&body), ["A", "tag", "C->D", "W"]);
    // Case 54.
    node(&body, "tag", &["kind=vless", "at=b.example:443"]);
    node(&body, "C->D", &["via0.name=D", "kind=socks5"]);
    assert_eq!(body.counts.duplicate, 1);
    assert_eq!(body.info.title.as_deref(), Some("Honk"));
    assert_eq!(body.info.interval_hours, Some(12));
    assert_eq!(body.info.user.unwrap().expire, Some(1_893_456_000));
    assert_eq!(
        findings(&body),
        [
            "node-link subscription `tag`: 4 of 9 entries skipped: 1 `ssr` not supported, 1 \
          malformed `trojan`: the port is not a number between 1 and 65535, 1 of an unknown \
          scheme, 1 with a reserved name"
        ]
    );
}

#[test]
fn plain_and_encoded_lists() {
    check(LIST);
    check(&LIST.replace('\n', "\r\n"));
    check(&format!("\u{feff}\n{LIST}"));
    let once = to_base64(LIST.as_bytes());
    check(&once);
    check(&to_base64url(LIST.as_bytes()));
    let lines: Vec<&str> = (0..once.len())
        .step_by(76)
        .map(|at| &once[at..once.len().min(at + 76)])
        .collect();
    check(&lines.join("\n"));
    check(&to_base64(once.as_bytes()));
}

#[test]
fn bodies_without_nodes_say_why() {
    for (body, want) in [
        ("", BodyError::Empty),
        (" \n\u{feff}", BodyError::Empty),
        (
            "<!DOCTYPE html><a href='https://x.example'>",
            BodyError::WebPage,
        ),
        ("token expired", BodyError::Unknown),
        ("{\"message\": \"no such user\"}", BodyError::Unknown),
        ("{\"servers\": [", BodyError::Syntax("JSON")),
        ("proxies: [ {", BodyError::Syntax("YAML")),
        (
            "ssr://a\nssr://b\nfoo://c",
            BodyError::NoNodes {
                entries: 3,
                reasons: vec![
                    "2 `ssr` not supported".to_owned(),
                    "1 of an unknown scheme".to_owned(),
                ],
            },
        ),
        (
            "trojan://p@h.example#a\ntrojan://p@h.example#b",
            BodyError::OneNode { entries: 2 },
        ),
        (
            "proxies: []",
            BodyError::NoNodes {
                entries: 0,
                reasons: vec![],
            },
        ),
    ] {
        assert_eq!(parse(body.as_bytes(), None).err(), Some(want), "{body}");
    }
    assert_eq!(parse(b"\xff\xfe", None).err(), Some(BodyError::NotText));
    let long = vec![b' '; super::super::MAX_BODY + 1];
    assert_eq!(parse(&long, None).err(), Some(BodyError::TooLong));
    assert_eq!(names(&read("trojan://p@h.example#a")), ["a"]);
}

#[test]
fn a_body_of_another_format_is_named() {
    let bodies = [
        (Format::List, "socks5://192.0.2.1:1"),
        (
            Format::Clash,
            "proxies:\n - {name: a, type: socks5, server: 192.0.2.1, port: 1}",
        ),
        (
            Format::SingBox,
            r#"{"outbounds": [{"type": "socks", "server": "192.0.2.1", "server_port": 1}]}"#,
        ),
        (
            Format::Sip008,
            r#"{"servers": [{"server": "192.0.2.1", "server_port": 1, "method": "aes-128-gcm", "password": "p"}]}"#,
        ),
        (
            Format::Xray,
            r#"{"outbounds": [{"protocol": "socks", "settings": {"servers": [{"address": "192.0.2.1", "port": 1}]}}]}"#,
        ),
    ];
    for (is, body) in bodies {
        for (said, _) in bodies {
            let error = parse(body.as_bytes(), Some(said)).err();
            let want = (is != said).then_some(BodyError::OtherFormat { said, is });
            assert_eq!(error, want, "{body}");
        }
    }
    let error = BodyError::OtherFormat {
        said: Format::Clash,
        is: Format::List,
    };
    assert_eq!(error.to_string(), "the body is `simple`, not `clash`");
    let none = parse(b"proxies: []", Some(Format::Clash)).unwrap_err();
    assert_eq!(none.to_string(), "the body has no entries of this format");
}

#[test]
fn entries_beyond_the_limit_are_cut() {
    let line = |n: usize| format!("trojan://p@h{n}.example\n");
    let list: String = (0..MAX_ENTRIES + 3).map(line).collect();
    let body = read(&list);
    assert_eq!((body.members.len(), body.counts.cut), (MAX_ENTRIES, 3));
    assert_eq!(
        findings(&body),
        ["subscription-limit subscription `tag`: 3 entries beyond the first 8192 are left out"]
    );
    let proxy =
        |n: usize| format!("- {{name: n{n}, type: socks5, server: h{n}.example, port: 1}}\n");
    let yaml: String = (0..MAX_ENTRIES + 5).map(proxy).collect();
    let body = read(&format!("proxies:\n{yaml}"));
    assert_eq!((body.members.len(), body.counts.cut), (MAX_ENTRIES, 5));
}

#[test]
fn traffic_and_expiry() {
    let info = |text| UserInfo::parse(text);
    assert_eq!(
        info("total=3.5e2; upload=1;download = 2 ; expire=0"),
        Some(UserInfo {
            upload: Some(1),
            download: Some(2),
            total: Some(350),
            expire: None,
        })
    );
    assert_eq!(info("upload=-1; x=2"), None);
    assert_eq!(info(""), None);
    let mut info = crate::subscription::Info::default();
    info.header(
        "Content-Disposition",
        "attachment; filename*=UTF-8''My%20list",
    );
    assert_eq!(info.title.as_deref(), Some("My list"));
    info.header("Profile-Title", "Honk%21");
    info.header("Profile-Update-Interval", "800");
    assert_eq!(
        (info.title.as_deref(), info.interval_hours),
        (Some("Honk!"), None)
    );
}
