//! Splitting share links of the common form `scheme://[userinfo@]host[:port][/][?query][#name]`.
//!
//! Decides nothing about protocols. Errors name the part and the reason, never the text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Host;

/// A link in parts; percent signs are still encoded in `userinfo`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub(crate) userinfo: Option<&'a str>,
    pub(crate) host: Host,
    pub(crate) port: Option<u16>,
    /// Decoded; later duplicates replaced earlier ones.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) name: Option<String>,
}

impl Url<'_> {
    pub(crate) fn parameter(&self, key: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }
}

/// Longest link.
const MAX_LINK: usize = 64 << 10;

/// Scheme in lower case and the text behind `://`.
pub(crate) fn scheme(link: &str) -> Option<(String, &str)> {
    let (scheme, rest) = link.split_once("://")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
    (!scheme.is_empty() && scheme.chars().all(legal)).then(|| (scheme.to_ascii_lowercase(), rest))
}

/// Removes what copying leaves around a link; refuses what cannot be one.
pub(crate) fn clean(link: &str) -> Result<&str, &'static str> {
    let around = |c: char| c.is_ascii_whitespace() || matches!(c, '\u{FEFF}' | '\u{200B}');
    let link = link.trim_matches(around);
    if link.len() > MAX_LINK {
        return Err("the link is longer than 64 KiB");
    }
    if link.chars().any(char::is_control) {
        return Err("the link contains control characters");
    }
    Ok(link)
}

/// Splits what follows `://`.
pub(crate) fn split(rest: &str) -> Result<Url<'_>, &'static str> {
    let (rest, name) = match rest.split_once('#') {
        Some((rest, fragment)) => (rest, display_name(fragment)),
        None => (rest, None),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (userinfo, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = host_port(authority)?;
    Ok(Url {
        userinfo,
        host,
        port,
        query: pairs(query),
        name,
    })
}

fn host_port(text: &str) -> Result<(Host, Option<u16>), &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest
            .split_once(']')
            .ok_or("`]` is missing after the address")?;
        let ip: Ipv6Addr = host
            .parse()
            .map_err(|_| "the address in brackets is not IPv6")?;
        let port = match tail.strip_prefix(':') {
            Some(port) => port,
            None if tail.is_empty() => "",
            None => return Err("unexpected text after `]`"),
        };
        (Host::Ip(IpAddr::V6(ip)), port)
    } else if let Some((host, port)) = text.split_once(':') {
        match port.contains(':') {
            true => {
                let ip: Ipv6Addr = text.parse().map_err(|_| "the host is not an address")?;
                (Host::Ip(IpAddr::V6(ip)), "")
            }
            false => (parse_host(host)?, port),
        }
    } else {
        (parse_host(text)?, "")
    };
    let port = match port {
        "" => None,
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            let port = digits.parse::<u16>().ok().filter(|port| *port != 0);
            Some(port.ok_or("the port is not between 1 and 65535")?)
        }
        _ => return Err("the port is not a number"),
    };
    Ok((host, port))
}

/// A host: an address, or a name in ASCII form.
pub(crate) fn parse_host(text: &str) -> Result<Host, &'static str> {
    let decoded = String::from_utf8(percent_decode(text)).map_err(|_| "the host is not text")?;
    if let Ok(ip) = decoded.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(IpAddr::V4(ip)));
    }
    let name = crate::name::to_ascii(&decoded).ok_or("the host is not a name or address")?;
    if name.is_empty() {
        return Err("the host is missing");
    }
    Ok(Host::Name(name))
}

/// The fragment as a name: decoded, control characters as blanks, at most 128 bytes.
fn display_name(fragment: &str) -> Option<String> {
    let decoded = percent_decode(fragment);
    let text = String::from_utf8_lossy(&decoded);
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let mut text = text.trim();
    while text.len() > 128 {
        let last = text.char_indices().next_back().map_or(0, |(at, _)| at);
        text = &text[..last];
    }
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for part in query
        .replace("&amp;", "&")
        .split('&')
        .filter(|part| !part.is_empty())
    {
        let (key, value) = part.split_once('=').unwrap_or((part, "1"));
        let decode = |text: &str| {
            String::from_utf8_lossy(&percent_decode(&text.replace('+', " "))).into_owned()
        };
        let (key, value) = (decode(key), decode(value));
        match pairs.iter_mut().find(|(k, _)| *k == key) {
            Some(pair) => pair.1 = value,
            None => pairs.push((key, value)),
        }
    }
    pairs
}

/// Decodes `%xx` once; invalid sequences stay as they are.
pub(crate) fn percent_decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// Decodes base64 in either alphabet, padding optional.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0u32);
    for byte in text.bytes().filter(|b| !b.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (count < 6).then_some(out)
}
