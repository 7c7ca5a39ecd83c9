//! The corner cases of links, by their number in the design documents; 86 to 90 are about
//! subscriptions and stand there.

use super::describe::describe;
use crate::node::{
    Node,
    link::{self, LinkError, parse},
    text::{to_base64, to_base64url},
};

const U: &str = "b831381d-6324-4d53-ad4f-8cda48b30811";
const SS: &str = "ss://YWVzLTI1Ni1nY206cGFzc3dvcmQ";
const PBK: &str = "ubLKoDOT4sSoWuztLwduKc9szHmp4lvmKbMk4-1O518";
const PIN: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// What a link becomes.
enum Want<'a> {
    /// A node with these properties, among others.
    Node(&'a [&'a str]),
    /// Malformed.
    Reject,
    /// Right, but not spoken; the message contains this.
    Not(&'a str),
}
use Want::{Node as Is, Not, Reject};

#[track_caller]
fn case(number: u32, link: &str, want: Want<'_>) {
    let link = link.replace("UUID", U);
    match (parse(&link), want) {
        (Ok(got), Is(properties)) => {
            let node = Node::from(got);
            let seen = describe(&node);
            for property in properties {
                assert!(
                    seen.iter().any(|line| line == property),
                    "case {number}: {property} is not in {seen:?}"
                );
            }
            let again = link::format(&node).unwrap();
            let got = parse(&again).unwrap_or_else(|e| panic!("case {number}: {again}: {e}"));
            assert_eq!(describe(&got.into()), seen, "case {number}: {again}");
        }
        (Err(error), Reject) => {
            assert!(!error.is_unsupported(), "case {number}: {error}");
        }
        (Err(error), Not(what)) => {
            assert!(error.is_unsupported(), "case {number}: {error}");
            let text = error.to_string();
            assert!(text.contains(what), "case {number}: {text}");
        }
        (got, _) => panic!("case {number}: {got:?}"),
    }
}

#[test]
fn shadowsocks() {
    case(
        1,
        &format!("{SS}@hk1.example.com:8388#frag"),
        Is(&[
            "kind=ss",
            "cipher=aes-256-gcm",
            "password=password",
            "at=hk1.example.com:8388",
            "name=frag",
            "tcp=true",
            "udp=true",
            "plugin=-",
        ]),
    );
    case(
        2,
        &format!("{SS}=@[2001:db8::1]:8388/?#IPv6%20node"),
        Is(&["password=password", "at=2001:db8::1:8388", "name=IPv6 node"]),
    );
    case(
        3,
        "ss://aes-128-gcm:p%40ss%3Aw@h.example:1",
        Is(&["cipher=aes-128-gcm", "password=p@ss:w", "name=ss-h.example"]),
    );
    case(
        4,
        "ss://YWVzLTEyOC1nY206cGFAc3NAMTkyLjAuMi40OjgzODg=#L",
        Is(&[
            "cipher=aes-128-gcm",
            "password=pa@ss",
            "at=192.0.2.4:8388",
            "name=L",
        ]),
    );
    case(
        5,
        "ss://YWVzLTEyOC1nY206Pj4-Pz8_@h.example:1",
        Is(&["password=>>>???"]),
    );
    case(
        5,
        "ss://YWVzLTEyOC1nY206Pj4+Pz8/@h.example:1",
        Is(&["password=>>>???"]),
    );
    case(6, &format!("{SS}@h.example"), Reject);
    case(
        7,
        "ss://2022-blake3-aes-128-gcm:AAECAwQFBgcICQoLDA0ODw%3D%3D%3AEBESExQVFhcYGRobHB0eHw%3D%3D\
         @h.example:1",
        Is(&[
            "cipher=2022-blake3-aes-128-gcm",
            "password=AAECAwQFBgcICQoLDA0ODw==:EBESExQVFhcYGRobHB0eHw==",
        ]),
    );
    case(
        8,
        "ss://2022-blake3-aes-256-gcm:+//7//v/+//7//v/+//7//v/+//7//v/+//7//v/+/8=@h.example:1",
        Is(&["password=+//7//v/+//7//v/+//7//v/+//7//v/+//7//v/+/8="]),
    );
    case(
        9,
        "ss://2022-blake3-aes-256-gcm:AAECAwQFBgcICQoLDA0ODw%3D%3D@h.example:1",
        Reject,
    );
    case(
        10,
        "ss://AES-256-GCM:pw@h.example:1",
        Is(&["cipher=aes-256-gcm", "password=pw"]),
    );
    case(11, "ss://cmM0LW1kNTp4@h.example:1", Not("`rc4-md5`"));
    let with = |rest: &str| format!("{SS}@h.example:1{rest}");
    case(
        12,
        &with("?plugin=obfs-local%3Bobfs%3Dhttp%3Bobfs-host%3Dwww.example.com"),
        Is(&["plugin=obfs http www.example.com /", "udp=true"]),
    );
    case(
        13,
        &with("/?plugin=v2ray-plugin;tls;host=a.example;path=/p;mux=0"),
        Is(&["plugin=wss a.example /p mux=false", "plugin.sni=a.example"]),
    );
    case(
        14,
        &with("?plugin=obfs-local"),
        Is(&["plugin=obfs http cloudflare.com /"]),
    );
    case(15, &with("?plugin=kcptun;x=y"), Not("`kcptun`"));
}

#[test]
fn trojan() {
    case(
        16,
        "trojan://pa:ss@h.example:443",
        Is(&["kind=trojan", "password=pa:ss", "udp=true"]),
    );
    case(
        17,
        "trojan://p%23x@h.example?sni=s.example",
        Is(&["password=p#x", "at=h.example:443", "sni=s.example"]),
    );
    case(
        18,
        "trojan://pw@h.example:443?peer=a.example&sni=b.example",
        Is(&["sni=a.example"]),
    );
    case(
        19,
        "trojan://pw@h.example:443?allowInsecure=0&insecure=1",
        Is(&["insecure=true"]),
    );
    case(
        20,
        "trojan://pw@h.example:443?type=ws&host=c.example&path=%2Fx%3Fed%3D2048",
        Is(&[
            "transport=ws",
            "path=/x",
            "host=c.example",
            "early=2048 Sec-WebSocket-Protocol",
            "sni=h.example",
        ]),
    );
    case(
        21,
        "trojan://pw@h.example:443?type=grpc&path=/svc",
        Is(&["service=svc", "multi=false"]),
    );
    case(22, "trojan://pw@h.example:443?security=none", Reject);
    case(
        23,
        "trojan://a@b@h.example:443",
        Is(&["password=a@b", "at=h.example:443"]),
    );
    case(
        24,
        "trojan-go://pw@h.example:443?encryption=ss%3Baes-128-gcm%3Bk#t",
        Is(&["inner=aes-128-gcm k", "name=t"]),
    );
}

fn object(fields: &str) -> String {
    let json = format!(r#"{{"v":"2","ps":"n1","add":"h.example","id":"{U}",{fields}}}"#);
    format!("vmess://{}", to_base64(json.as_bytes()))
}

#[test]
fn vmess() {
    let ws = r#""host":"c.example","path":"/p","tls":"tls""#;
    let want = &[
        "kind=vmess",
        "name=n1",
        "at=h.example:443",
        "transport=ws",
        "host=c.example",
        "path=/p",
        "tls=true",
        "sni=c.example",
        "udp=false",
        "cipher=auto",
        "user=b831381d-6324-4d53-ad4f-8cda48b30811",
    ];
    let full = object(&format!(r#""port":443,"aid":0,"net":"ws",{ws}"#));
    case(25, &full, Is(want));
    case(
        26,
        &object(&format!(r#""port":"443","aid":"","net":"ws",{ws}"#)),
        Is(want),
    );
    case(
        27,
        &object(&format!(r#""port":443,"aid":"64","net":"ws",{ws}"#)),
        Not("alterId"),
    );
    case(
        28,
        &object(r#""port":443,"aid":0,"tls":"none""#),
        Is(&["transport=tcp", "tls=false"]),
    );
    case(
        29,
        &object(r#""port":443,"net":"ws","host":"/p","path":"","tls":"tls""#),
        Is(&["path=/p", "host=", "sni=h.example"]),
    );
    case(30, &object(r#""port":"443,""#), Reject);
    case(30, &object(r#""port":70000"#), Reject);
    let json = crate::node::text::base64(&full[8..]).unwrap();
    let lines: Vec<String> = to_base64url(&json)
        .as_bytes()
        .chunks(76)
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect();
    case(31, &format!("vmess://{}", lines.join("\r\n")), Is(want));
    case(
        32,
        "vmess://YXV0bzpiODMxMzgxZC02MzI0LTRkNTMtYWQ0Zi04Y2RhNDhiMzA4MTFAaC5leGFtcGxlOjQ0Mw==\
         ?remarks=s%201&obfs=websocket&obfsParam=c.example&path=/p&tls=1",
        Is(&[
            "name=s 1",
            "transport=ws",
            "host=c.example",
            "path=/p",
            "tls=true",
            "cipher=auto",
            "at=h.example:443",
        ]),
    );
    case(
        33,
        "vmess://UUID@h.example:443?encryption=auto&type=grpc&serviceName=s&security=tls#n",
        Is(&["service=s", "name=n", "tls=true", "sni=h.example"]),
    );
    case(
        34,
        &object(r#""port":443,"net":"tcp","type":"http""#),
        Not("header `http`"),
    );
}

#[test]
fn vless() {
    case(
        35,
        "vless://UUID@h.example:8080",
        Is(&[
            "kind=vless",
            "tls=false",
            "transport=tcp",
            "mode=-",
            "udp=true",
            "at=h.example:8080",
        ]),
    );
    case(
        36,
        "vless://UUID@h.example?security=tls&sni=",
        Is(&["at=h.example:443", "tls=true", "sni="]),
    );
    let reality = |rest: &str| format!("vless://UUID@h.example:443?security=reality&{rest}");
    case(
        37,
        &reality(&format!("pbk={PBK}&sid=&sni=m.example&fp=chrome")),
        Is(&[
            "sid=0000000000000000",
            "spx=/",
            "sni=m.example",
            "fp=chrome",
        ]),
    );
    case(
        38,
        &reality(&format!("pbk={PBK}&sid=abc&sni=m.example")),
        Reject,
    );
    let standard = format!("{}=", PBK.replace('-', "+"));
    let slashes = "+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/8=";
    case(
        39,
        &reality(&format!("pbk={standard}&sni=m.example")),
        Is(&["pbk=b9b2caa03393e2c4a85aeced2f076e29cf6ccc79a9e25be629b324e3ed4ee75f"]),
    );
    case(
        39,
        &reality(&format!("pbk={slashes}&sni=m.example")),
        Is(&["tls=true"]),
    );
    case(40, &reality("sni=m.example"), Reject);
    let tls = |rest: &str| format!("vless://UUID@h.example:443?security=tls&{rest}");
    case(
        41,
        &tls("packetEncoding=xudp"),
        Is(&["mode=xudp", "udp=true"]),
    );
    case(42, &tls("packetEncoding=xudp&vless_mode=uot-v2"), Reject);
    case(43, &tls("mux=1"), Reject);
    case(44, &tls("flow=xtls-rprx-direct"), Reject);
    case(45, &tls("flow=xtls-rprx-vision&type=ws&path=/w"), Reject);
    case(
        46,
        &tls("flow=xtls-rprx-vision"),
        Is(&["flow=Vision", "udp=true"]),
    );
    case(
        47,
        "vless://UUID@h.example:443?vless_mode=legacy",
        Is(&["mode=legacy", "tcp=true", "udp=false"]),
    );
    case(48, "vless://user:pass@h.example:443", Reject);
    case(
        49,
        "vless://UUID@h.example:443?type=xhttp&path=/x",
        Not("transport `xhttp`"),
    );
    case(
        50,
        "vless://UUID@h.example:443?security=tls#HK->US",
        Is(&["name=HK->US"]),
    );
}

#[test]
fn chains() {
    case(
        51,
        &format!("socks5://192.0.2.9:1080 -> {SS}@h.example:1#B"),
        Is(&[
            "kind=socks5",
            "at=192.0.2.9:1080",
            "name=socks5-192.0.2.9->B",
            "via0.kind=ss",
            "via0.at=h.example:1",
            "via0.name=B",
            "udp=true",
            "built=false",
        ]),
    );
    case(
        52,
        &format!("{SS}@a.example:1#A -> ssr://xxxx"),
        Not("hop 2: `ssr`"),
    );
    case(
        53,
        "socks5://h.example:443 -> wss://h.example:443/p?sni=s.example",
        Is(&[
            "kind=socks5",
            "via0.kind=layer",
            "via0.transport=ws",
            "via0.path=/p",
            "via0.sni=s.example",
            "udp=false",
            "tcp=true",
            "name=socks5-h.example",
        ]),
    );
}

#[test]
fn requests_cannot_be_injected() {
    for link in [
        "trojan://p@h.example?type=ws&path=/%0d%0aX:%20y",
        "trojan://p@h.example?type=ws&host=a%0d%0aX",
        "trojan://p@h.example?type=grpc&authority=a%0a",
        "trojan://p@h.example?type=h2&host=a,b%0ac",
        "ss://YWVzLTI1Ni1nY206cA@h.example:1?plugin=obfs-local;obfs-host=a%0d%0a",
        "ss://YWVzLTI1Ni1nY206cA@h.example:1?plugin=v2ray-plugin;path=/%0d%0a",
        "socks5://h.example -> simpleobfs://h.example?uri=/%0d",
    ] {
        let error = parse(link).unwrap_err().to_string();
        assert!(error.ends_with("contains control characters"), "{error}");
    }
    let headers = "%7B%22a%22:%22b%5Cr%5Cnx%22,%22c%20d%22:%22e%22,%22Host%22:%22h%22%7D";
    let link = format!("trojan://p@h.example?type=ws&headers={headers}");
    let node = Node::from(parse(&link).unwrap());
    assert!(
        !describe(&node)
            .iter()
            .any(|line| line.starts_with("header."))
    );
}

#[test]
fn hosts_have_no_empty_labels() {
    for host in ["a..b", ".a", "a..", "192.0.2.1..", ".", &"a".repeat(64)] {
        assert!(parse(&format!("trojan://p@{host}:1")).is_err(), "{host}");
    }
    case(0, "trojan://p@H.example.:1", Is(&["at=h.example:1"]));
    case(
        0,
        "trojan://p@192.0.2.1.:1",
        Is(&["at=192.0.2.1:1", "sni="]),
    );
}

#[test]
fn chains_are_whole_or_nothing() {
    let hops = |n: usize| vec!["socks5://192.0.2.1:1#h"; n].join(" -> ");
    assert_eq!(parse(&hops(12)).unwrap().name, ["h"; 12].join("->"));
    assert!(matches!(parse(&hops(13)), Err(LinkError::Chain(_))));
    for (chain, why) in [
        (
            "socks5://h.example -> foo://x",
            "hop 2: unknown link scheme `foo`",
        ),
        (
            "socks5://h.example#a->foo://x",
            "hop 2: unknown link scheme `foo`",
        ),
        (
            "wss://h.example -> socks5://h.example",
            "hop 1: malformed `wss` link: a layer needs a protocol in front",
        ),
        (
            "hy2://h.example -> http://p.example",
            "hop 1: malformed `hy2` link: a hop runs over UDP, which the hops before it do not \
             carry",
        ),
        (
            "socks5://h.example -> hy2://h.example -> http://p.example",
            "hop 2: malformed `hy2` link: a hop runs over UDP, which the hops before it do not \
             carry",
        ),
        (
            "trojan://p@h.example?security=none -> ws://h.example",
            "hop 1: malformed `trojan` link: Trojan needs TLS",
        ),
    ] {
        assert_eq!(parse(chain).unwrap_err().to_string(), why, "{chain}");
    }
    let covered = parse("trojan://p@h.example?security=none -> wss://h.example").unwrap();
    assert!(covered.protocol.tcp() && !covered.protocol.built());
    assert!(parse("hy2://h.example -> socks5://p.example").is_ok());
}

#[test]
fn quic() {
    let hy = "hysteria2://user:pass@h.example:443,5000-5002/?sni=s.example";
    case(
        55,
        hy,
        Is(&[
            "kind=hysteria2",
            "auth=user:pass",
            "at=h.example:443",
            "ports=443,5000-5002",
            "sni=s.example",
        ]),
    );
    case(
        56,
        "hy2://h.example",
        Is(&["auth=", "at=h.example:443", "udp=true"]),
    );
    case(57, "hy2://pw@h.example:443?obfs=salamander", Reject);
    let pairs: Vec<String> = PIN
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
        .collect();
    let pin = |pairs: &[String]| format!("hy2://pw@h.example:443?pinSHA256={}", pairs.join(":"));
    case(58, &pin(&pairs), Is(&[&format!("leaf={PIN}")]));
    case(58, &pin(&pairs[1..]), Reject);
    case(
        59,
        "hy2://pw@h.example:8443?mport=20000-20010&mhop=0",
        Is(&["at=h.example:8443", "ports=20000-20010", "hop=1"]),
    );
    case(
        60,
        "hysteria://h.example:443?auth=x&protocol=udp&upmbps=10",
        Not("version 1"),
    );
    case(
        61,
        "hy2://pw@h.example:443?upmbps=50%20Mbps&downmbps=200",
        Is(&["up=Some(6250000)", "down=Some(25000000)"]),
    );
    case(
        62,
        "tuic://UUID%3Apa%3Ass@h.example:443",
        Is(&["kind=tuic", "password=pa:ss"]),
    );
    case(
        63,
        "tuic://UUID:p@h.example:443?disable_sni=1&congestion_control=foo",
        Is(&["sni=", "insecure=true", "congestion=cubic"]),
    );
    let notes = parse(&format!("tuic://{U}:p@h.example?congestion_control=foo"));
    assert_eq!(notes.map(|link| link.notes.len()), Ok(1), "case 63");
    case(64, "tuic://TOKEN@h.example:443", Not("version 4"));
    let chain = to_base64url(&[7; 32]);
    let juicity =
        |pin: &str| format!("juicity://UUID:p@h.example:443?pinned_certchain_sha256={pin}");
    case(
        65,
        &juicity(&chain),
        Is(&[&format!("chain={}", "07".repeat(32)), "congestion=bbr"]),
    );
    case(65, &juicity(&chain[..42]), Reject);
    case(
        66,
        "anytls://a:b@h.example/?sni=127.0.0.1",
        Is(&[
            "kind=anytls",
            "password=a:b",
            "at=h.example:443",
            "sni=",
            "udp=true",
        ]),
    );
    case(
        67,
        "anytls://pw@h.example:443?udp=0",
        Is(&["tcp=true", "udp=false"]),
    );
}

#[test]
fn logins() {
    let want = &[
        "kind=socks5",
        "user=user",
        "password=pass",
        "at=192.0.2.7:1080",
        "built=true",
    ];
    case(68, "socks://dXNlcjpwYXNz@192.0.2.7:1080", Is(want));
    case(68, "socks://dXNlcjpwYXNzQDE5Mi4wLjIuNzoxMDgw", Is(want));
    case(
        69,
        "socks5://user@h.example",
        Is(&["user=user", "password=", "at=h.example:1080"]),
    );
    case(
        70,
        "socks4://h.example:1080",
        Is(&["kind=socks4", "udp=false", "names=false"]),
    );
    case(
        71,
        "https://u:@h.example/",
        Is(&[
            "kind=http",
            "tls=true",
            "at=h.example:443",
            "user=u",
            "password=",
            "sni=h.example",
        ]),
    );
}

#[test]
fn every_link() {
    case(
        72,
        "VLESS://UUID@H.Example:443",
        Is(&["kind=vless", "at=h.example:443"]),
    );
    assert!(
        matches!(parse("foo://x@h.example:1"), Err(LinkError::Unknown { .. })),
        "case 73"
    );
    for port in ["0", "65536", "44x", "+1", "0x1"] {
        case(74, &format!("trojan://pw@h.example:{port}"), Reject);
    }
    case(75, "trojan://pw@h.example:", Is(&["at=h.example:443"]));
    case(
        76,
        "trojan://pw@例子.测试:443",
        Is(&[
            "at=xn--fsqu00a.xn--0zwm56d:443",
            "sni=xn--fsqu00a.xn--0zwm56d",
        ]),
    );
    case(
        77,
        "trojan://pw@2001:db8::1",
        Is(&["at=2001:db8::1:443", "sni="]),
    );
    assert_eq!(
        parse("trojan://pw@2001:db8::1").unwrap().notes.len(),
        1,
        "case 77"
    );
    case(78, "trojan://pw@[fe80::1%25eth0]:443", Reject);
    case(
        79,
        "\u{200b} trojan://pw@h.example:443#x\r",
        Is(&["name=x"]),
    );
    case(
        80,
        "trojan://pw@h.example:443?sni=a&amp;alpn=h2",
        Is(&["sni=a", "alpn=h2"]),
    );
    let twice = "trojan://pw@h.example:443?sni=a.example&sni=b.example";
    case(81, twice, Is(&["sni=b.example"]));
    assert_eq!(parse(twice).unwrap().notes.len(), 1, "case 81");
    case(82, "trojan://pw@h.example:443?sni=%zz", Reject);
    case(
        83,
        "trojan://pw@h.example:443#%E8%8A%82%E7%82%B9+1#2",
        Is(&["name=节点+1#2"]),
    );
    let id = |link: &str| parse(link).unwrap().id;
    let plain = id("trojan://pw@h.example:443#a");
    assert_eq!(
        id("trojan://pw@h.example:443?allowInsecure=1#b"),
        plain,
        "case 84"
    );
    assert_ne!(
        id("trojan://pw@h.example:443?sni=s.example#a"),
        plain,
        "case 85"
    );
}
