//! Where a request goes: a URL taken apart, and the one that a redirect leads to.
//!
//! Nothing but scheme and host may be shown: path, query and user are the credential.

use std::{fmt, net::IpAddr};

use honk_policy::node::{Host, ascii_name};

/// An absolute http or https URL, ready to be asked for.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) https: bool,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// Path and query as they go into the request, percent-encoded.
    pub(crate) path: String,
    /// `user:password` of the URL.
    pub(crate) login: Option<String>,
}

/// Why a text is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTarget {
    #[error("the URL is not http or https")]
    Scheme,
    #[error("the host of the URL is wrong")]
    Host,
    #[error("the port of the URL is wrong")]
    Port,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Target {
    /// Reads a URL; `-file` schemes are what they are without it.
    pub(crate) fn parse(url: &str) -> Result<Self, BadTarget> {
        let (scheme, rest) = url.split_once("://").ok_or(BadTarget::Scheme)?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "http" | "http-file" => false,
            "https" | "https-file" => true,
            _ => return Err(BadTarget::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(decoded(login)), place),
            None => (None, authority),
        };
        let (host, port) = place_of(place)?;
        Ok(Self {
            https,
            host,
            port: port.unwrap_or(if https { 443 } else { 80 }),
            path: encoded(path),
            login,
        })
    }

    /// Where a `Location` leads. The login goes no further than this server.
    pub(crate) fn follow(&self, location: &str) -> Result<Self, BadTarget> {
        let location = location.trim();
        let scheme = location.split(['/', '?', '#']).next().unwrap_or_default();
        if location.contains("://") && scheme.ends_with(':') {
            let mut next = Self::parse(location)?;
            let same = (next.https, &next.host, next.port) == (self.https, &self.host, self.port);
            if next.login.is_none() && same {
                next.login.clone_from(&self.login);
            }
            return Ok(next);
        }
        if let Some(rest) = location.strip_prefix("//") {
            let scheme = if self.https { "https" } else { "http" };
            return self.follow(&format!("{scheme}://{rest}"));
        }
        if scheme.contains(':') {
            return Err(BadTarget::Scheme);
        }
        let base = self.path.split('?').next().unwrap_or("/");
        let path = match location.chars().next() {
            Some('/') => location.to_owned(),
            Some('?') => format!("{base}{location}"),
            Some('#') | None => self.path.clone(),
            Some(_) => {
                let dir = base.rfind('/').map_or("/", |at| &base[..=at]);
                format!("{dir}{location}")
            }
        };
        Ok(Self {
            path: without_dots(&encoded(&path)),
            ..self.clone()
        })
    }

    /// The value of `Host`.
    pub(crate) fn authority(&self) -> String {
        let host = match &self.host {
            Host::Ip(IpAddr::V6(ip)) => format!("[{ip}]"),
            host => host.to_string(),
        };
        let usual = if self.https { 443 } else { 80 };
        if self.port == usual {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Scheme and host, which is all that may be shown.
    pub(crate) fn shown(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn place_of(place: &str) -> Result<(Host, Option<u16>), BadTarget> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (inner, after) = rest.split_once(']').ok_or(BadTarget::Host)?;
            let ip = inner.parse().map_err(|_| BadTarget::Host)?;
            let port = match after {
                "" => "",
                after => after.strip_prefix(':').ok_or(BadTarget::Port)?,
            };
            (Host::Ip(IpAddr::V6(ip)), port)
        }
        None => {
            let (host, port) = place.split_once(':').unwrap_or((place, ""));
            (host_of(host)?, port)
        }
    };
    let port = match port {
        "" => None,
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            let number: u16 = digits.parse().map_err(|_| BadTarget::Port)?;
            Some(number)
                .filter(|n| *n > 0)
                .map(Some)
                .ok_or(BadTarget::Port)?
        }
        _ => return Err(BadTarget::Port),
    };
    Ok((host, port))
}

fn host_of(text: &str) -> Result<Host, BadTarget> {
    if let Ok(ip) = text.parse() {
        return Ok(Host::Ip(ip));
    }
    let name = ascii_name(text).filter(|name| !name.is_empty());
    let name = name.ok_or(BadTarget::Host)?;
    // `0x7f.1` and `127.1` are addresses to some resolvers and names to others.
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    if numeric {
        return Err(BadTarget::Host);
    }
    Ok(Host::Name(name))
}

/// A path for the request line: no fragment, nothing that is not visible ASCII.
fn encoded(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'!'..=b'~'
                if !matches!(
                    byte,
                    b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
                ) =>
            {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Resolves `.` and `..` of a path.
fn without_dots(path: &str) -> String {
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = path.split('/').skip(1).peekable();
    while let Some(part) = rest.next() {
        let last = rest.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    parts.pop();
                }
                if last {
                    parts.push("");
                }
            }
            part => parts.push(part),
        }
    }
    let mut out = format!("/{}", parts.join("/"));
    if let Some(query) = query {
        out.push('?');
        out.push_str(query);
    }
    out
}

/// Percent-decoding of a login.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).filter(|_| byte == b'%');
        let value = hex
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match value {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        Target::parse(url).unwrap()
    }

    #[test]
    fn urls_are_taken_apart() {
        let t = target("https://u%40x:p@Sub.Example:8443/a b?t=ä&x=1#name");
        assert_eq!(t.shown(), "https://sub.example:8443");
        assert_eq!(t.path, "/a%20b?t=%C3%A4&x=1");
        assert_eq!(t.login.as_deref(), Some("u@x:p"));
        let t = target("http-file://[2001:db8::1]:80?x");
        assert_eq!(
            (t.authority(), &*t.path),
            ("[2001:db8::1]".to_owned(), "/?x")
        );
        assert_eq!(
            target("https://bücher.example").authority(),
            "xn--bcher-kva.example"
        );
        assert_eq!(
            target("http://192.0.2.1:8080/").authority(),
            "192.0.2.1:8080"
        );
        for bad in [
            "ftp://h/",
            "h/x",
            "https:///x",
            "https://h:0/",
            "https://h:99999/",
            "https://h:x/",
            "http://[::1/",
            "http://0x7f.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://a b/",
        ] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_secret_is_printed() {
        let t = target("https://user:pw@h.example/token?key=canary");
        assert_eq!(format!("{t:?}"), "https://h.example");
    }

    #[test]
    fn redirects_of_every_form() {
        let t = target("https://u:p@h.example/a/b?x=1");
        let path = |to: &str| t.follow(to).unwrap().path;
        assert_eq!(path("/c?d"), "/c?d");
        assert_eq!(path("c"), "/a/c");
        assert_eq!(path("../c/./d"), "/c/d");
        assert_eq!(path("../../../c/.."), "/");
        assert_eq!(path("?y"), "/a/b?y");
        assert_eq!(path("c?u=http://x/"), "/a/c?u=http://x/");
        assert_eq!(
            t.follow("//o.example/z").unwrap().shown(),
            "https://o.example"
        );
        assert_eq!(
            t.follow("http://h.example/").unwrap().shown(),
            "http://h.example"
        );
        assert_eq!(t.follow("file:///etc/passwd"), Err(BadTarget::Scheme));
        assert_eq!(t.follow("javascript:x"), Err(BadTarget::Scheme));
        assert!(t.follow("/same").unwrap().login.is_some());
        assert!(t.follow("https://h.example/x").unwrap().login.is_some());
        assert!(t.follow("https://o.example/x").unwrap().login.is_none());
        assert!(t.follow("http://h.example/x").unwrap().login.is_none());
    }
}
