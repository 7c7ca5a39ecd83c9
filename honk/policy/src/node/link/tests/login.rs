//! Names, identities and refusals of SOCKS5 and HTTP links.

use crate::node::{
    Protocol,
    link::{LinkError, parse},
};

fn server_of(link: &str) -> (String, String, u16, Option<(String, String)>) {
    let link = parse(link).unwrap_or_else(|e| panic!("{link}: {e}"));
    match link.protocol {
        Protocol::Socks5(s) | Protocol::Http(s) => (
            link.name,
            s.host.to_string(),
            s.port,
            s.auth
                .map(|(u, p)| (u.reveal().to_owned(), p.reveal().to_owned())),
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn served_links() {
    let auth = |u: &str, p: &str| Some((u.to_owned(), p.to_owned()));
    for (link, name, host, port, want) in [
        (
            "socks5://192.0.2.1:1080#home",
            "home",
            "192.0.2.1",
            1080,
            None,
        ),
        (
            "socks5://u:it's@192.0.2.1:1",
            "socks5-192.0.2.1",
            "192.0.2.1",
            1,
            auth("u", "it's"),
        ),
        (
            "SOCKS5://user@H.example",
            "socks5-h.example",
            "h.example",
            1080,
            auth("user", ""),
        ),
        (
            "socks5://a%3ab:p%40w@[2001:db8::1]:99#x%20y",
            "x y",
            "2001:db8::1",
            99,
            auth("a:b", "p@w"),
        ),
        (
            "socks5://u:p@w/@h.example:1",
            "socks5-h.example",
            "h.example",
            1,
            auth("u", "p@w/"),
        ),
        (
            "socks://dXNlcjpwYXNz@192.0.2.7:1080",
            "socks-192.0.2.7",
            "192.0.2.7",
            1080,
            auth("user", "pass"),
        ),
        (
            "socks://dXNlcjpwYXNzQDE5Mi4wLjIuNzoxMDgw",
            "socks-192.0.2.7",
            "192.0.2.7",
            1080,
            auth("user", "pass"),
        ),
        ("http://192.0.2.3", "http-192.0.2.3", "192.0.2.3", 80, None),
        (
            "http://u:p@192.0.2.3:8080/#n#m",
            "n#m",
            "192.0.2.3",
            8080,
            auth("u", "p"),
        ),
        (
            "socks5://2001:db8::5",
            "socks5-2001:db8::5",
            "2001:db8::5",
            1080,
            None,
        ),
    ] {
        let want = (name.to_owned(), host.to_owned(), port, want);
        assert_eq!(server_of(link), want, "{link}");
    }
}

#[test]
fn refused_links() {
    for link in [
        "socks5://",
        "socks5://:1080",
        "socks5://h:0",
        "socks5://h:65536",
        "socks5://h:x",
        "socks5://[::1",
        "socks5://[::1%eth0]:1",
        "socks5://h h:1",
        "ss://method@h.example",
        "socks5://u\u{7}@h:1",
    ] {
        assert!(
            matches!(parse(link), Err(LinkError::Malformed { .. })),
            "{link}"
        );
    }
    let user = "u".repeat(256);
    assert!(parse(&format!("socks5://{user}@h")).is_err());
    assert!(parse(&format!("socks5://{}@h", &user[1..])).is_ok());
    assert!(matches!(parse("sss://abc"), Err(LinkError::Unknown { .. })));
    assert!(matches!(
        parse("ssr://abc"),
        Err(LinkError::Unsupported { .. })
    ));
    assert_eq!(parse("no link"), Err(LinkError::NoScheme));
}

#[test]
fn identity_ignores_the_name_only() {
    let id = |link| parse(link).map(|l| l.id);
    assert_eq!(
        id("socks5://u:p@h.example:1080#a"),
        id("socks://u:p@H.example#b")
    );
    assert_ne!(id("socks5://u:p@h.example"), id("socks5://u:q@h.example"));
    assert_ne!(id("socks5://h.example"), id("http://h.example:1080"));
    assert_ne!(id("socks5://h.example"), id("socks5://h.example?tls=1"));
    assert_eq!(
        id("trojan://s@h.example:443#a"),
        id("trojan://s@h.example?fp=x")
    );
    // Fixed so that an upgrade does not change the identity of anyone's nodes.
    let fixed = id("socks5://u:p@192.0.2.1:1080").map(|id| id.0.to_string());
    assert_eq!(fixed.as_deref(), Ok("baaeca35-388a-5a8e-a657-da1982b0e375"));
}

#[test]
fn known_protocols_wait_for_their_dialer() {
    for link in [
        "ss://YWVzLTI1Ni1nY206cA@192.0.2.2:8388",
        "trojan://s@host.example:443",
        "https://u:p@h.example",
        "socks4://h.example",
        "socks5://h.example?tls=1",
        "socks5://h.example?udp=0",
        "socks5://h.example -> socks5://g.example",
        "hy2://h.example",
    ] {
        assert_eq!(parse(link).map(|l| l.protocol.built()), Ok(false), "{link}");
    }
    for link in ["socks5://h.example?udp=", "http://h.example?network=tcp"] {
        assert_eq!(parse(link).map(|l| l.protocol.built()), Ok(true), "{link}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    for link in [
        "socks5://user-canary:pass-canary@192.0.2.1:1080?x=query-canary#n",
        "trojan://canary@h.example:443?x=canary",
        "socks5://canary:canary@h:99999",
        "ss://canary",
        "vmess://canary!",
    ] {
        let shown = format!("{:?}", parse(link));
        assert!(!shown.contains("canary"), "{shown}");
    }
}
