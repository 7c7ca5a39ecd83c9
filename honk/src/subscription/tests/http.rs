//! Fetches from servers that behave, and from those that do not. All on loopback.

use std::{
    io::Write as _,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use honk_policy::address::is_private;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{
    outbound::{Dialer, Settings, tls},
    subscription::net::{Io, Limits},
};

/// What a server does with a request.
struct Reply {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    Close,
    /// Never says more.
    Hang,
    /// A byte now and then, for ever.
    Drip,
    /// As much as is taken, for ever.
    Flood,
}

fn reply(status: &str, headers: &str, body: &[u8]) -> Reply {
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    raw(bytes)
}

fn raw(bytes: impl Into<Vec<u8>>) -> Reply {
    Reply {
        bytes: bytes.into(),
        then: Then::Close,
    }
}

impl Reply {
    fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}

type Script = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

/// A server with the heads of the requests it saw; it ends with the test's runtime.
struct Server {
    at: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn new(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::with(None, script).await
    }

    async fn with(
        tls: Option<TlsAcceptor>,
        script: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (script, seen): (Script, _) = (Arc::new(script), Arc::clone(&heads));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, seen, tls) = (Arc::clone(&script), Arc::clone(&seen), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, &script, &seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                answer(stream, &script, &seen).await;
                            }
                        }
                    }
                });
            }
        });
        Self { at, heads }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn answer(mut stream: impl Io, script: &Script, seen: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let reply = script(&head);
    seen.lock().unwrap().push(head);
    // The client may have gone: that is what some tests are about.
    let _ = stream.write_all(&reply.bytes).await;
    let _ = stream.flush().await;
    match reply.then {
        Then::Close => {
            let _ = stream.shutdown().await;
        }
        Then::Hang => std::future::pending().await,
        Then::Drip => {
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Then::Flood => {
            let block = vec![b'x'; 64 << 10];
            while stream.write_all(&block).await.is_ok() {}
        }
    }
}

fn net() -> Net {
    let dialer = Dialer::new(Settings {
        own_mark: 0,
        bootstrap: Vec::new(),
        max_concurrent_dials: 4,
        connect_timeout: Duration::from_secs(3),
    });
    let tls = Arc::new(tls::with_roots(RootCertStore::empty()));
    let mut net = Net::new(dialer, tls, Arc::new(|_| false));
    // Loopback is where the servers are.
    net.private = |_| false;
    net
}

fn ask(url: &str) -> Ask {
    Ask {
        target: Target::parse(url).unwrap(),
        user_agent: "honk/test".to_owned(),
        allow_private: false,
        validators: Validators::default(),
    }
}

async fn get(net: &Net, url: &str) -> Result<Answer, FetchError> {
    fetch(net, &ask(url), &Progress::default()).await
}

async fn body(net: &Net, url: &str) -> Result<Vec<u8>, FetchError> {
    match get(net, url).await? {
        Answer::Body { bytes, .. } => Ok(bytes),
        Answer::Unchanged { .. } => panic!("nobody asked whether something changed"),
    }
}

/// The error of a fetch; its text holds no secret.
async fn error(net: &Net, url: &str) -> FetchError {
    let error = get(net, url).await.expect_err("the fetch had to fail");
    let text = format!("{error} {error:?}");
    assert!(!text.contains("canary"), "{text}");
    error
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[tokio::test]
async fn a_body_comes_with_what_the_headers_tell() {
    let headers = "ETag: \"v1\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
                   Subscription-Userinfo: upload=1; total=9\r\nSet-Cookie: a=b\r\n";
    let server = Server::new(move |_| reply("200 OK", headers, b"nodes")).await;
    let answer = get(&net(), &server.url("/p?token=canary")).await.unwrap();
    let Answer::Body {
        bytes,
        validators,
        headers,
    } = answer
    else {
        panic!("a body was expected");
    };
    assert_eq!(bytes, b"nodes");
    assert_eq!(validators.etag.as_deref(), Some("\"v1\""));
    assert!(validators.modified.is_some());
    let told = ("subscription-userinfo", "upload=1; total=9".to_owned());
    assert_eq!(headers, [told]);
    let head = server.heads().remove(0).to_ascii_lowercase();
    assert!(
        head.starts_with("get /p?token=canary http/1.1\r\n"),
        "{head}"
    );
    for line in [
        &format!("host: {}", server.at),
        "user-agent: honk/test",
        "accept: */*",
        "accept-encoding: gzip",
    ] {
        assert!(
            head.contains(&format!("{line}\r\n")),
            "{line} is not in {head}"
        );
    }
    assert!(!head.contains("cookie") && !head.contains("if-"));
}

#[tokio::test]
async fn an_unchanged_body_is_not_sent_again() {
    let server = Server::new(|head| match head.contains("if-none-match: \"v1\"\r\n") {
        true => raw("HTTP/1.1 304 Not Modified\r\nprofile-title: t\r\n\r\n"),
        false => reply("200 OK", "", b"new"),
    })
    .await;
    let mut ask = ask(&server.url("/"));
    ask.validators.etag = Some("\"v1\"".to_owned());
    ask.validators.modified = Some("Mon, 01 Jan 2024 00:00:00 GMT".to_owned());
    let answer = fetch(&net(), &ask, &Progress::default()).await.unwrap();
    assert!(matches!(answer, Answer::Unchanged { headers } if headers.len() == 1));
    assert!(server.heads()[0].contains("if-modified-since: Mon"));
    // A 304 that nobody asked for is an error.
    let server = Server::new(|_| raw("HTTP/1.1 304 Not Modified\r\n\r\n")).await;
    let got = error(&net(), &server.url("/")).await;
    assert!(matches!(got, FetchError::Status { status: 304, .. }));
}

#[tokio::test]
async fn packed_bodies_are_unpacked_and_bombs_are_not() {
    let text = b"ss://x\n".repeat(1000);
    let packed = gzip(&text);
    let bomb = gzip(&vec![0; 200 << 20]);
    assert!(bomb.len() < 1 << 20);
    let server = Server::new(move |head| {
        let body = if head.contains("/bomb") {
            &bomb
        } else {
            &packed
        };
        reply("200 OK", "Content-Encoding: gzip\r\n", body)
    })
    .await;
    let net = net();
    assert_eq!(body(&net, &server.url("/")).await.unwrap(), text);
    let got = error(&net, &server.url("/bomb")).await;
    assert!(matches!(got, FetchError::TooLong), "{got}");
    let server = Server::new(|_| reply("200 OK", "Content-Encoding: br\r\n", b"x")).await;
    let got = error(&net, &server.url("/")).await;
    assert!(matches!(got, FetchError::Encoding), "{got}");
}

#[tokio::test]
async fn cut_bodies_are_no_bodies() {
    let packed = gzip(&b"ss://x\n".repeat(1000));
    let server = Server::new(move |head| match head {
        h if h.contains("/length") => raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort"),
        h if h.contains("/chunk") => {
            raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n")
        }
        _ => reply(
            "200 OK",
            "Content-Encoding: gzip\r\n",
            &packed[..packed.len() / 2],
        ),
    })
    .await;
    let net = net();
    for path in ["/length", "/chunk"] {
        let got = error(&net, &server.url(path)).await;
        assert!(matches!(got, FetchError::Http { .. }), "{path}: {got}");
    }
    let got = error(&net, &server.url("/gzip")).await;
    assert!(matches!(got, FetchError::Damaged), "{got}");
}

#[tokio::test]
async fn an_endless_body_stops_at_the_limit() {
    let server = Server::new(|_| raw("HTTP/1.1 200 OK\r\n\r\n").then(Then::Flood)).await;
    let got = error(&net(), &server.url("/canary")).await;
    assert!(matches!(got, FetchError::TooLong), "{got}");
}

#[tokio::test]
async fn silence_and_dripping_end_in_time() {
    let server = Server::new(|head| match head.contains("/drip") {
        true => raw("HTTP/1.1 200 OK\r\n\r\n").then(Then::Drip),
        false => raw("HTTP/1.1 200").then(Then::Hang),
    })
    .await;
    let mut net = net();
    net.limits.first_byte = Duration::from_millis(300);
    let got = error(&net, &server.url("/hang?canary")).await;
    assert!(matches!(got, FetchError::Silent { .. }), "{got}");
    net.limits = Limits {
        total: Duration::from_secs(1),
        first_byte: Duration::from_secs(60),
    };
    let got = error(&net, &server.url("/drip?canary")).await;
    assert!(matches!(got, FetchError::Slow(1)), "{got}");
}

#[tokio::test]
async fn three_redirects_are_followed_and_no_more() {
    let server = Server::new(|head| {
        let at = head.find("/n").map_or("", |at| &head[at + 2..at + 3]);
        match at.parse::<u32>() {
            Ok(0) => reply("200 OK", "", b"done"),
            Ok(n) => reply("302 Found", &format!("Location: n{}\r\n", n - 1), b"moved"),
            Err(_) => reply("307 Temporary Redirect", "Location: /loop\r\n", b""),
        }
    })
    .await;
    let net = net();
    assert_eq!(body(&net, &server.url("/n3")).await.unwrap(), b"done");
    assert_eq!(server.heads().len(), 4);
    for path in ["/n4", "/loop"] {
        let got = error(&net, &server.url(path)).await;
        assert!(matches!(got, FetchError::Redirects(3)), "{path}: {got}");
    }
}

#[tokio::test]
async fn redirects_lead_nowhere_private_and_never_out_of_the_web() {
    let net = net();
    for (location, code) in [
        ("file:///etc/passwd", "redirect"),
        ("gopher://x/", "redirect"),
        ("http://127.1/", "redirect"),
        ("http://127.0.0.2:1/canary", "private_address"),
        ("http://[::ffff:127.0.0.2]/canary", "private_address"),
        ("//127.0.0.2/canary", "private_address"),
    ] {
        let server =
            Server::new(move |_| reply("301 Moved", &format!("Location: {location}\r\n"), b""))
                .await;
        let mut net = net.clone();
        net.private = |ip| is_private(ip) && ip != IpAddr::from([127, 0, 0, 1]);
        let got = error(&net, &server.url("/")).await;
        assert_eq!(got.code(), code, "{location}: {got}");
    }
    let server = Server::new(|_| reply("302 Found", "", b"")).await;
    let got = error(&net, &server.url("/")).await;
    assert!(matches!(got, FetchError::Redirect { .. }), "{got}");
}

#[tokio::test]
async fn a_login_stays_with_its_server() {
    let other = Server::new(|_| reply("200 OK", "", b"x")).await;
    let to = other.url("/there");
    let server = Server::new(move |head| match head.contains("/first") {
        true => reply("302 Found", "Location: /second\r\n", b""),
        false => reply("302 Found", &format!("Location: {to}\r\n"), b""),
    })
    .await;
    let url = format!("http://ann:canary@{}/first", server.at);
    body(&net(), &url).await.unwrap();
    let login = "authorization: Basic YW5uOmNhbmFyeQ==\r\n";
    assert!(server.heads().iter().all(|h| h.contains(login)));
    assert!(!other.heads()[0].contains("authorization"));
}

#[tokio::test]
async fn private_addresses_are_refused_unless_allowed() {
    let server = Server::new(|_| reply("200 OK", "", b"x")).await;
    let mut net = net();
    net.private = is_private;
    let port = server.at.port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{port}/canary");
        let got = error(&net, &url).await;
        assert!(matches!(got, FetchError::Private { .. }), "{host}: {got}");
        assert!(got.to_string().contains("allow_private"));
    }
    assert!(server.heads().is_empty());
    let mut allowed = ask(&server.url("/"));
    allowed.allow_private = true;
    assert!(fetch(&net, &allowed, &Progress::default()).await.is_ok());
    // Addresses of the gateway itself are no better, even public ones.
    let asked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked);
    net.private = |_| false;
    net.own = Arc::new(move |_| {
        seen.store(true, Ordering::SeqCst);
        true
    });
    let got = error(&net, &server.url("/")).await;
    assert!(matches!(got, FetchError::Private { .. }), "{got}");
    assert!(asked.load(Ordering::SeqCst));
}

#[tokio::test]
async fn answers_that_are_none() {
    let server = Server::new(|head| match head {
        h if h.contains("/404") => reply("404 Not Found", "", b"<html>"),
        h if h.contains("/500") => reply("500 Oops", "", b""),
        h if h.contains("/garbage") => raw(vec![0xff; 100]),
        h if h.contains("/close") => raw(""),
        h if h.contains("/head") => {
            let filler = "x-filler: ".to_owned() + &"x".repeat(1000) + "\r\n";
            raw(format!("HTTP/1.1 200 OK\r\n{}", filler.repeat(200))).then(Then::Hang)
        }
        _ => raw("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
    })
    .await;
    let net = net();
    for (path, code) in [
        ("/404", "status"),
        ("/500", "status"),
        ("/garbage", "http"),
        ("/close", "http"),
        ("/head", "http"),
        ("/upgrade", "status"),
    ] {
        let got = error(&net, &server.url(&format!("{path}?canary"))).await;
        assert_eq!(got.code(), code, "{path}: {got}");
    }
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let got = error(&net, &format!("http://{gone}/canary")).await;
    assert!(matches!(got, FetchError::Connect { .. }), "{got}");
    let got = error(&net, "http://nobody.example/canary").await;
    assert!(matches!(got, FetchError::Resolve { .. }), "{got}");
    let mut bad = ask(&server.url("/"));
    bad.user_agent = "a\r\nX-Injected: b".to_owned();
    let got = fetch(&net, &bad, &Progress::default()).await.unwrap_err();
    assert!(matches!(got, FetchError::UserAgent), "{got}");
}

fn acceptor() -> TlsAcceptor {
    let chain = CertificateDer::from_pem_slice(include_bytes!("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("server.key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn https_is_verified_and_never_becomes_http() {
    let plain = Server::new(|_| reply("200 OK", "", b"plain")).await;
    let to = plain.url("/");
    let script = move |head: &str| match head.contains("/down") {
        true => reply("302 Found", &format!("Location: {to}\r\n"), b""),
        false => reply("200 OK", "", b"sealed"),
    };
    let server = Server::with(Some(acceptor()), script).await;
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(include_bytes!("root.pem")).unwrap();
    roots.add(root).unwrap();
    let mut trusting = net();
    trusting.tls = Arc::new(tls::with_roots(roots));
    let port = server.at.port();
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{port}/");
        assert_eq!(body(&trusting, &url).await.unwrap(), b"sealed", "{host}");
    }
    let got = error(&trusting, &format!("https://127.0.0.1:{port}/down?canary")).await;
    assert!(matches!(got, FetchError::Redirect { .. }), "{got}");
    assert!(plain.heads().is_empty());
    // The certificate is for other names.
    let wrong = format!("https://a.localhost:{port}/canary");
    let got = error(&trusting, &wrong).await;
    assert!(matches!(got, FetchError::Tls { .. }), "{got}");
    // Signed by nobody we know.
    let got = error(&net(), &format!("https://localhost:{port}/canary")).await;
    assert!(matches!(got, FetchError::Tls { .. }), "{got}");
    // A server that speaks no TLS at all.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let got = error(&trusting, &format!("https://{at}/canary")).await;
    assert!(matches!(got, FetchError::Tls { .. }), "{got}");
}

#[tokio::test]
async fn progress_is_told_while_it_runs() {
    let progress = Progress::default();
    assert_eq!(progress.now(), ("resolve", 0));
    let server = Server::new(|_| reply("200 OK", "", b"12345")).await;
    fetch(&net(), &ask(&server.url("/")), &progress)
        .await
        .unwrap();
    assert_eq!(progress.now(), ("receive", 5));
    progress.reading();
    assert_eq!(progress.now().0, "read");
}
