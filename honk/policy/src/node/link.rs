//! Share links of single nodes: which scheme a link has, and what it means.
//!
//! Serves `socks5` and plain `http`; other known schemes are recognised so that the refusal can
//! say what they are. No error contains any part of the link but its scheme.

use uuid::Uuid;

use super::{
    Host, Protocol, Server,
    url::{self, Url, base64, percent_decode},
};
use crate::id::{NodeId, Secret};

/// What a link describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Scheme in lower case.
    pub scheme: String,
    /// Name from the fragment, else `scheme-host`.
    pub name: String,
    /// Derived identity.
    pub id: NodeId,
    /// How the node is reached; `None` when this build does not serve the protocol.
    pub protocol: Option<Protocol>,
}

/// Why a link is no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Not a link at all.
    #[error("the link has no `scheme://`")]
    NoScheme,
    /// A scheme nobody knows.
    #[error("unknown link scheme `{scheme}`")]
    Unknown {
        /// As written, lower case.
        scheme: String,
    },
    /// A scheme honk will not serve.
    #[error("`{scheme}` nodes are not supported")]
    Unsupported {
        /// Lower case.
        scheme: String,
    },
    /// A served or planned scheme with a wrong link.
    #[error("malformed `{scheme}` link: {why}")]
    Malformed {
        /// Lower case.
        scheme: String,
        /// The part and the reason.
        why: &'static str,
    },
}

/// Every scheme of the language.
pub const SCHEMES: &[&str] = &[
    "ss",
    "shadowsocks",
    "trojan",
    "trojan-go",
    "vmess",
    "vless",
    "hysteria2",
    "hy2",
    "hysteria",
    "tuic",
    "juicity",
    "anytls",
    "socks5",
    "socks",
    "socks5h",
    "socks4",
    "socks4a",
    "http",
    "https",
    "naive+https",
    "shadowtls",
    "ssr",
    "shadowsocksr",
    "wireguard",
    "wg",
    "ssh",
    "snell",
    "mieru",
    "meek",
    "tor",
];

/// Schemes that are recognised and skipped.
const UNSUPPORTED: &[&str] = &[
    "ssr",
    "shadowsocksr",
    "wireguard",
    "wg",
    "ssh",
    "snell",
    "mieru",
    "meek",
    "tor",
];

/// Namespace of node identities.
const NAMESPACE: Uuid = Uuid::from_u128(0x0e5828b2_337a_4719_ac9b_2e22ca5bc9d2);

/// Reads one share link.
pub fn parse(link: &str) -> Result<Link, LinkError> {
    let malformed = |scheme: &str| {
        let scheme = scheme.to_owned();
        move |why| LinkError::Malformed { scheme, why }
    };
    let link = url::clean(link).map_err(malformed("share"))?;
    let (scheme, rest) = url::scheme(link).ok_or(LinkError::NoScheme)?;
    if UNSUPPORTED.contains(&scheme.as_str()) {
        return Err(LinkError::Unsupported { scheme });
    }
    let result = match scheme.as_str() {
        "socks5" | "socks" | "socks5h" => socks5(&scheme, rest),
        "http" => http(&scheme, rest),
        "vmess" => vmess(rest),
        known if SCHEMES.contains(&known) => unserved(known, rest),
        _ => return Err(LinkError::Unknown { scheme }),
    };
    result.map_err(malformed(&scheme))
}

fn socks5(scheme: &str, rest: &str) -> Result<Link, &'static str> {
    let whole = unwrapped(rest);
    let url = url::split(whole.as_deref().unwrap_or(rest))?;
    let auth = match url.userinfo {
        None => None,
        Some(info) => {
            let inner = (!info.contains(':'))
                .then(|| base64(info).and_then(|b| String::from_utf8(b).ok()))
                .flatten()
                .filter(|text| text.contains(':'));
            match inner {
                Some(text) => {
                    let (user, password) = text.split_once(':').unwrap_or((&text, ""));
                    Some((user.to_owned(), password.to_owned()))
                }
                None => Some(user_and_password(info)?),
            }
        }
    };
    if auth
        .as_ref()
        .is_some_and(|(user, password)| user.len() > 255 || password.len() > 255)
    {
        return Err("user name and password have at most 255 bytes each");
    }
    let off = |text: &str| matches!(text, "0" | "f" | "F" | "false" | "FALSE" | "False" | "");
    let tls = url.parameter("tls").is_some_and(|v| !off(v));
    let no_udp = url
        .parameter("udp")
        .is_some_and(|v| !v.is_empty() && off(v));
    let shape = if tls { "tls=on" } else { "" };
    Ok(server(
        scheme,
        "socks5",
        &url,
        1080,
        auth,
        shape,
        !tls && !no_udp,
        Protocol::Socks5,
    ))
}

fn http(scheme: &str, rest: &str) -> Result<Link, &'static str> {
    let url = url::split(rest)?;
    let auth = url.userinfo.map(user_and_password).transpose()?;
    if auth.as_ref().is_some_and(|(user, _)| user.contains(':')) {
        return Err("the user name contains a colon");
    }
    Ok(server(
        scheme,
        "http",
        &url,
        80,
        auth,
        "",
        true,
        Protocol::Http,
    ))
}

#[allow(clippy::too_many_arguments)] // one place that builds both protocols
fn server(
    scheme: &str,
    protocol: &str,
    url: &Url<'_>,
    default_port: u16,
    auth: Option<(String, String)>,
    shape: &str,
    served: bool,
    build: fn(Server) -> Protocol,
) -> Link {
    let port = url.port.unwrap_or(default_port);
    let credentials = match &auth {
        Some((user, password)) => format!("{user}\0{password}"),
        None => String::new(),
    };
    let id = identity(protocol, &url.host, port, credentials.as_bytes(), shape);
    let auth = auth.map(|(user, password)| (Secret::new(user), Secret::new(password)));
    let server = Server {
        host: url.host.clone(),
        port,
        auth,
    };
    Link {
        scheme: scheme.to_owned(),
        name: url
            .name
            .clone()
            .unwrap_or_else(|| format!("{scheme}-{}", url.host)),
        id,
        protocol: served.then(|| build(server)),
    }
}

/// A known protocol that this build does not dial: only name and identity are read.
fn unserved(scheme: &str, rest: &str) -> Result<Link, &'static str> {
    let whole = if matches!(scheme, "ss" | "shadowsocks") {
        unwrapped(rest)
    } else {
        None
    };
    let url = url::split(whole.as_deref().unwrap_or(rest))?;
    let port = match (scheme, url.port) {
        (_, Some(port)) => port,
        ("ss" | "shadowsocks", None) => return Err("the port is missing"),
        ("socks4" | "socks4a", None) => 1080,
        (_, None) => 443,
    };
    let mut shape: Vec<String> = url
        .query
        .iter()
        .filter(|(key, _)| !NOT_IDENTITY.contains(&key.to_ascii_lowercase().as_str()))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    shape.sort();
    let protocol = match scheme {
        "shadowsocks" => "ss",
        "trojan-go" => "trojan",
        "hy2" | "hysteria" => "hysteria2",
        other => other,
    };
    let credentials = percent_decode(url.userinfo.unwrap_or_default());
    let id = identity(protocol, &url.host, port, &credentials, &shape.join("&"));
    Ok(Link {
        scheme: scheme.to_owned(),
        name: url
            .name
            .clone()
            .unwrap_or_else(|| format!("{scheme}-{}", url.host)),
        id,
        protocol: None,
    })
}

/// Query keys that do not change which server is dialed, or as whom.
const NOT_IDENTITY: &[&str] = &[
    "allowinsecure",
    "allow_insecure",
    "insecure",
    "skipverify",
    "skip-cert-verify",
    "skip_cert_verify",
    "fp",
    "alpn",
    "up",
    "down",
    "mtu",
    "mhop",
    "ech",
];

/// VMess links are base64 of a JSON object; only a stable identity is derived here.
fn vmess(rest: &str) -> Result<Link, &'static str> {
    if rest.contains('@') {
        return unserved("vmess", rest);
    }
    let (body, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let body = body.split('?').next().unwrap_or_default();
    let decoded = base64(body)
        .filter(|b| !b.is_empty())
        .ok_or("it is not base64")?;
    let name = String::from_utf8_lossy(&percent_decode(fragment))
        .trim()
        .to_owned();
    let name = if name.is_empty() {
        "vmess".to_owned()
    } else {
        name
    };
    let id = identity("vmess", &Host::Name(String::new()), 0, &decoded, "");
    Ok(Link {
        scheme: "vmess".to_owned(),
        name,
        id,
        protocol: None,
    })
}

/// `base64(userinfo@host:port)`, written without `@`.
fn unwrapped(rest: &str) -> Option<String> {
    let end = rest.find(['#', '?', '/']).unwrap_or(rest.len());
    let (body, tail) = rest.split_at(end);
    if body.contains(['@', ':', '[']) {
        return None;
    }
    let text = String::from_utf8(base64(body)?).ok()?;
    let plain = !text.contains(['#', '?']) && !text.chars().any(char::is_control);
    (plain && text.contains('@')).then(|| format!("{text}{tail}"))
}

fn user_and_password(info: &str) -> Result<(String, String), &'static str> {
    let (user, password) = info.split_once(':').unwrap_or((info, ""));
    let decode = |text: &str| {
        String::from_utf8(percent_decode(text)).map_err(|_| "the credentials are not UTF-8")
    };
    Ok((decode(user)?, decode(password)?))
}

/// Identity over everything that makes two nodes the same peer for dialing.
fn identity(protocol: &str, host: &Host, port: u16, credentials: &[u8], shape: &str) -> NodeId {
    let credentials = sha256_hex(credentials);
    let text = format!("{protocol}|{host}|{port}|{credentials}|{shape}");
    NodeId(Uuid::new_v5(&NAMESPACE, text.as_bytes()))
}

fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Identity of a built-in node.
pub fn built_in(name: &str) -> NodeId {
    NodeId(Uuid::new_v5(&NAMESPACE, format!("{name}||0||").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_of(link: &str) -> (String, String, u16, Option<(String, String)>) {
        let link = parse(link).unwrap_or_else(|e| panic!("{link}: {e}"));
        match link.protocol {
            Some(Protocol::Socks5(s) | Protocol::Http(s)) => (
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
    fn known_schemes_wait_for_their_protocol() {
        for link in [
            "ss://YWVzLTI1Ni1nY206cA@192.0.2.2:8388",
            "trojan://s@host.example:443",
            "vmess://eyJhZGQiOiJoIn0=",
            "https://u:p@h.example",
            "socks4://h.example",
            "socks5://h.example?tls=1",
            "hy2://h.example",
        ] {
            assert_eq!(parse(link).map(|l| l.protocol), Ok(None), "{link}");
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
}
