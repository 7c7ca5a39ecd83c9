use super::{craft::*, *};

fn name(text: &str) -> Option<HostName> {
    HostName::parse(text.as_bytes())
}

fn tls(text: &str) -> Step {
    let name = name(text);
    Step::Done(Kind::Tls, Hello { name, ech: false })
}

fn http(text: &str) -> Step {
    let name = name(text);
    Step::Done(Kind::Http, Hello { name, ech: false })
}

#[test]
fn names_are_cleaned_and_bounded() {
    let long = format!("{}.example", "x".repeat(63));
    for (text, want) in [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("a_b-c.example", "a_b-c.example"),
        ("localhost", "localhost"),
        ("1.2.3.4.example", "1.2.3.4.example"),
        (&long, &long),
    ] {
        assert_eq!(name(text).unwrap().as_str(), want);
    }
    let many = ["x".repeat(62).as_str(); 5].join(".");
    for text in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.b..",
        "192.0.2.1",
        "2001:db8::1",
        "[::1]",
        "127.1",
        "0x7f.0x1",
        "2130706433",
        "a b",
        "a/b",
        "münchen.example",
        "a\0b",
        "*.example",
        &"x".repeat(64),
        &many,
    ] {
        assert_eq!(name(text), None, "{text:?}");
    }
}

#[test]
fn a_client_hello_names_its_server() {
    for pad in [0, 1500] {
        let hello = records(&client_hello(Some("WWW.Example.com"), false, pad), 1 << 14);
        assert_eq!(stream(&hello), tls("www.example.com"));
        // What comes behind does not matter.
        assert_eq!(
            stream(&[&hello[..], &[23, 3, 3]].concat()),
            tls("www.example.com")
        );
    }
    let nameless = records(&client_hello(None, false, 0), 1 << 14);
    assert_eq!(stream(&nameless), Step::Done(Kind::Tls, Hello::NOTHING));
    let address = records(&client_hello(Some("192.0.2.1"), false, 0), 1 << 14);
    assert_eq!(stream(&address), Step::Done(Kind::Tls, Hello::NOTHING));
}

#[test]
fn encrypted_client_hello_is_told_beside_the_outer_name() {
    let hello = records(&client_hello(Some("outer.example"), true, 0), 1 << 14);
    let name = name("outer.example");
    assert_eq!(
        stream(&hello),
        Step::Done(Kind::Tls, Hello { name, ech: true })
    );
}

#[test]
fn every_split_of_a_hello_asks_for_the_rest() {
    let message = client_hello(Some("example.com"), true, 0);
    let name = name("example.com");
    let want = Step::Done(Kind::Tls, Hello { name, ech: true });
    for size in [1, 2, 3, 4, 5, 7, 64, message.len() - 1, message.len()] {
        let bytes = records(&message, size);
        for cut in 0..bytes.len() {
            let kind = (cut >= 2).then_some(Kind::Tls);
            assert_eq!(
                stream(&bytes[..cut]),
                Step::More(kind),
                "{size}: cut at {cut}"
            );
        }
        assert_eq!(stream(&bytes), want, "{size}");
    }
}

#[test]
fn what_only_begins_like_tls_is_foreign_or_nameless() {
    for bytes in [
        &[22, 3, 1, 0, 0][..],
        &[22, 3, 1, 0x40, 1],
        &[22, 2],
        &[21, 3],
        &[0],
        b"SSH-2.0-x",
    ] {
        assert_eq!(stream(bytes), Step::Foreign, "{bytes:?}");
    }
    let message = client_hello(Some("example.com"), false, 0);
    // An alert between two records.
    let mut bytes = records(&message[..9], 9);
    bytes.extend_from_slice(&[21, 3, 1, 0, 2, 1, 0]);
    assert_eq!(stream(&bytes), Step::Done(Kind::Tls, Hello::NOTHING));
    // Another handshake message; one that will not fit.
    for start in [&[2, 0, 0, 9][..], &[1, 0, 0x40, 0]] {
        let bytes = records(start, 9);
        assert_eq!(
            stream(&bytes),
            Step::Done(Kind::Tls, Hello::NOTHING),
            "{start:?}"
        );
    }
}

#[test]
fn a_hello_that_contradicts_itself_names_nothing() {
    let message = client_hello(Some("example.com"), false, 0);
    let mut doubled = message.clone();
    let server_name = [&[0, 0, 0, 16, 0, 14, 0, 0, 11][..], b"example.com"].concat();
    doubled.extend_from_slice(&server_name);
    let len = doubled.len() as u16;
    doubled[2..4].copy_from_slice(&(len - 4).to_be_bytes());
    let at = 4 + 2 + 32 + 33 + 6 + 2;
    doubled[at..at + 2].copy_from_slice(&(len - at as u16 - 2).to_be_bytes());
    let nothing = Step::Done(Kind::Tls, Hello::NOTHING);
    assert_eq!(stream(&records(&doubled, 1 << 14)), nothing);
    // Every length field once too long.
    for at in [4 + 2 + 32, 4 + 2 + 32 + 33, at, at + 4] {
        let mut bad = message.clone();
        bad[at] = 0xff;
        assert_eq!(stream(&records(&bad, 1 << 14)), nothing, "{at}");
    }
}

#[test]
fn the_limit_of_a_stream_ends_the_search() {
    let mut long = b"GET / HTTP/1.1\r\nCookie: ".to_vec();
    long.resize(MAX_STREAM - 1, b'x');
    assert_eq!(stream(&long), Step::More(Some(Kind::Http)));
    long.push(b'x');
    assert_eq!(stream(&long), Step::Done(Kind::Http, Hello::NOTHING));
    let hello = records(&client_hello(Some("example.com"), false, MAX_STREAM), 1);
    let seen = stream(&hello[..MAX_STREAM]);
    assert_eq!(seen, Step::Done(Kind::Tls, Hello::NOTHING));
}

#[test]
fn a_request_names_its_host() {
    for (request, want) in [
        ("GET / HTTP/1.1\r\nHost: Example.com\r\n", "example.com"),
        ("POST /x HTTP/1.0\nhOsT:example.com:8080\n", "example.com"),
        (
            "HEAD * HTTP/1.1\r\nA: b\r\nhost: \t a.example \r\n",
            "a.example",
        ),
        (
            "CONNECT x:1 HTTP/1.1\r\nHost: b.example:443\r\n",
            "b.example",
        ),
    ] {
        assert_eq!(stream(request.as_bytes()), http(want), "{request:?}");
        for cut in 0..request.len() {
            let seen = stream(&request.as_bytes()[..cut]);
            assert!(
                matches!(seen, Step::More(_)),
                "{request:?} cut at {cut}: {seen:?}"
            );
        }
    }
    for method in ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: x\r\n");
        assert_eq!(stream(request.as_bytes()), http("x"));
    }
}

#[test]
fn requests_without_a_name() {
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 192.0.2.1:80\r\n",
        "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n",
        "GET / HTTP/1.1\r\nHost: a:b\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let seen = stream(request.as_bytes());
        assert_eq!(seen, Step::Done(Kind::Http, Hello::NOTHING), "{request:?}");
    }
    for bytes in [
        "GET /\r\n",
        "GETX / HTTP/1.1\r\n",
        "PRIX",
        "get / HTTP/1.1",
        "POST \u{1}",
        "\r\n",
    ] {
        assert_eq!(stream(bytes.as_bytes()), Step::Foreign, "{bytes:?}");
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_streams_never_panic(bytes: Vec<u8>, head in 0_usize..4) {
        let heads: [&[u8]; 4] = [b"", b"\x16\x03\x01\x00", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x00\x80\x01\x00\x00"];
        let bytes = [heads[head], &bytes].concat();
        // Once decided, more bytes of the same message change nothing.
        let first = (0..=bytes.len()).find_map(|n| match stream(&bytes[..n]) {
            Step::More(_) => None,
            step => Some(step),
        });
        if let Some(first) = first {
            assert_eq!(stream(&bytes), first);
        }
    }

    #[test]
    fn a_damaged_hello_never_panics(at in 0_usize..200, byte: u8, size in 1_usize..300) {
        let mut bytes = records(&client_hello(Some("example.com"), true, 0), size);
        let at = at % bytes.len();
        bytes[at] = byte;
        for cut in 0..=bytes.len() {
            let _ = stream(&bytes[..cut]);
        }
    }

    #[test]
    fn what_is_a_name_stays_one(text in "[a-zA-Z0-9._-]{0,80}") {
        if let Some(name) = HostName::parse(text.as_bytes()) {
            assert_eq!(HostName::parse(name.as_str().as_bytes()), Some(name.clone()));
            assert!(text.eq_ignore_ascii_case(name.as_str()) || text.ends_with('.'));
        }
    }
}
