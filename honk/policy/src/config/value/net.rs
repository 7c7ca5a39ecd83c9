//! URLs, addresses and interface names.

use std::net::{IpAddr, SocketAddr};

use super::{BadValue, Read, word};

/// An absolute URL with one of `schemes` and a host; no user information or white space.
pub fn url(text: &str, schemes: &[&str]) -> Read<()> {
    let bad = |why: &str| BadValue::shape("E406", format!("expected an absolute URL: {why}"));
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| bad("`://` is missing"))?;
    if !schemes.contains(&scheme) {
        return Err(bad(&format!("the scheme must be {}", schemes.join(" or "))));
    }
    if text.len() > 2048 || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(bad("it is too long or contains white space"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(bad("user information is not allowed"));
    }
    let (host, port) = host_port(authority).ok_or_else(|| bad("the host or port is wrong"))?;
    if host.is_empty() || port == Some(0) {
        return Err(bad("the host or port is wrong"));
    }
    Ok(())
}

/// Names for `preset(name)`, with what they ask for.
const PRESETS: [(&str, &str); 5] = [
    ("google", "https://www.gstatic.com/generate_204"),
    ("cloudflare", "https://cp.cloudflare.com/generate_204"),
    ("apple", "https://captive.apple.com/hotspot-detect.html"),
    ("firefox", "https://detectportal.firefox.com/canonical.html"),
    ("yandex", "https://ya.ru/"),
];

/// The names alone.
const PRESET_NAMES: [&str; PRESETS.len()] = {
    let mut names = [""; PRESETS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = PRESETS[at].0;
        at += 1;
    }
    names
};

/// URL of a `preset(name)`.
pub fn preset(text: &str) -> Option<&'static str> {
    let name = text.strip_prefix("preset(")?.strip_suffix(')')?.trim();
    PRESETS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, url)| *url)
}

/// Checks an http(s) URL or `preset(name)`.
pub fn url_or_preset(text: &str) -> Read<()> {
    if preset(text).is_some() {
        return Ok(());
    }
    if let Some(name) = text.strip_prefix("preset(") {
        let name = name.trim_end_matches(')').trim();
        return word(name, &PRESET_NAMES).map(drop).map_err(|bad| BadValue {
            number: "E406",
            text: format!("there is no such preset: {}", bad.text),
            ..bad
        });
    }
    url(text, &["http", "https"])
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`; the brackets are removed.
pub(crate) fn host_port(text: &str) -> Option<(&str, Option<u16>)> {
    let port = |p: &str| {
        (!p.is_empty() && p.len() <= 5 && p.bytes().all(|b| b.is_ascii_digit()))
            .then(|| p.parse::<u16>().ok())
            .flatten()
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match tail.strip_prefix(':') {
            Some(p) => Some((host, Some(port(p)?))),
            None => tail.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        None => Some((text, None)),
        Some((host, p)) if !p.contains(':') => Some((host, Some(port(p)?))),
        Some(_) => text
            .parse::<std::net::Ipv6Addr>()
            .ok()
            .map(|_| (text, None)),
    }
}

/// `ip`, `ip:port`, `[v6]:port`, with `port` as the default.
pub fn address(text: &str, port: u16) -> Read<SocketAddr> {
    let bad = || {
        BadValue::shape(
            "E407",
            "expected an address: `ip`, `ip:port` or `[v6]:port`",
        )
    };
    let (host, given) = host_port(text).ok_or_else(bad)?;
    let ip: IpAddr = host.parse().map_err(|_| bad())?;
    match given {
        Some(0) => Err(BadValue::range("E407", "port 0 cannot be reached")),
        given => Ok(SocketAddr::new(ip, given.unwrap_or(port))),
    }
}

/// `host[:port]` or an address.
pub fn host_or_address(text: &str) -> Read<()> {
    let bad = || BadValue::shape("E407", "expected a host or address with an optional port");
    let (host, port) = host_port(text).ok_or_else(bad)?;
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || port == Some(0) || !host.chars().all(legal) {
        return Err(bad());
    }
    Ok(())
}

/// An interface name, `*` and `?` being wildcards.
pub fn interface(text: &str, auto: bool) -> Read<()> {
    let bad = |why: &str| {
        Err(BadValue::shape(
            "E410",
            format!("bad interface name: {why}"),
        ))
    };
    match text {
        "auto" if auto => Ok(()),
        "auto" => bad("`auto` is legal only in `wan_interface`"),
        "." | ".." => bad("it is a directory"),
        _ if text.is_empty() || text.len() > 15 => bad("1 to 15 bytes are allowed"),
        _ if text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) => {
            bad("it contains `/` or white space")
        }
        _ => Ok(()),
    }
}
