//! Splitting share links of the common form `scheme://[userinfo@]host[:port][/path][?query][#name]`.
//!
//! Decides nothing about protocols. Errors name the part and the reason, never the text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    Host,
    fields::{Fields, Note},
    port,
    text::{display_name, percent_decode},
};

/// A link in parts; percent signs are still encoded in `userinfo` and `path`.
pub(crate) struct Url<'a> {
    pub(crate) userinfo: Option<&'a str>,
    pub(crate) host: Host,
    /// As written; empty is missing.
    port: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Fields,
    pub(crate) name: Option<String>,
}

/// Longest link.
pub(crate) const MAX_LINK: usize = 64 << 10;

/// Scheme in lower case and the text behind `://`. Looks no further than the scheme goes.
pub(crate) fn scheme(link: &str) -> Option<(String, &str)> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
    let (scheme, rest) = link.split_at(link.find(|c| !legal(c))?);
    let rest = rest.strip_prefix("://")?;
    (!scheme.is_empty()).then(|| (scheme.to_ascii_lowercase(), rest))
}

/// Removes what copying leaves around a link; refuses what cannot be one.
pub(crate) fn clean(link: &str) -> Result<&str, &'static str> {
    let around = |c: char| c.is_ascii_whitespace() || matches!(c, '\u{FEFF}' | '\u{200B}');
    let link = link.trim_matches(around);
    if link.len() > MAX_LINK {
        return Err("the link is longer than 64 KiB");
    }
    // The base64 of a VMess link may be wrapped.
    let wrapped = scheme(link).is_some_and(|(scheme, _)| scheme == "vmess");
    let stray = |c: char| c.is_control() && !(wrapped && c.is_ascii_whitespace());
    if link.chars().any(stray) {
        return Err("the link contains control characters");
    }
    Ok(link)
}

/// The text without its fragment, and the fragment as a name.
pub(crate) fn fragment(rest: &str) -> (&str, Option<String>) {
    match rest.split_once('#') {
        Some((rest, fragment)) => {
            let decoded = percent_decode(fragment);
            (rest, display_name(&String::from_utf8_lossy(&decoded)))
        }
        None => (rest, None),
    }
}

/// Splits what follows `://`.
pub(crate) fn split(rest: &str) -> Result<Url<'_>, &'static str> {
    let (rest, name) = fragment(rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (userinfo, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    let (host, port, note) = host_port(authority)?;
    let mut query = Fields::query(query);
    if let Some(note) = note {
        query.note(note);
    }
    Ok(Url {
        userinfo,
        host,
        port,
        path,
        query,
        name,
    })
}

impl Url<'_> {
    /// The port, if there is one.
    pub(crate) fn port(&self) -> Result<Option<u16>, &'static str> {
        match self.port {
            "" => Ok(None),
            text => port(text)
                .map(Some)
                .ok_or("the port is not a number between 1 and 65535"),
        }
    }

    /// The text behind the host, which some protocols extend to a list of ports.
    pub(crate) fn port_text(&self) -> &str {
        self.port
    }

    /// The whole userinfo, decoded.
    pub(crate) fn user(&self) -> Result<String, &'static str> {
        decode(self.userinfo.unwrap_or_default())
    }

    /// User and password, split at the first colon; without one the password is `None`.
    pub(crate) fn user_and_password(
        &self,
    ) -> Result<Option<(String, Option<String>)>, &'static str> {
        let Some(info) = self.userinfo else {
            return Ok(None);
        };
        let (user, password) = match info.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (info, None),
        };
        Ok(Some((decode(user)?, password.map(decode).transpose()?)))
    }
}

fn decode(text: &str) -> Result<String, &'static str> {
    String::from_utf8(percent_decode(text)).map_err(|_| "the credentials are not UTF-8")
}

/// Host and port text of an authority.
pub(crate) fn host_port(text: &str) -> Result<(Host, &str, Option<Note>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
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
        return Ok((Host::Ip(IpAddr::V6(ip)), port, None));
    }
    match text.split_once(':') {
        Some((_, more)) if more.contains(':') => {
            let ip: Ipv6Addr = text.parse().map_err(|_| "the host is not an address")?;
            let note = "an IPv6 address without brackets: no port is read";
            Ok((Host::Ip(IpAddr::V6(ip)), "", Some(note)))
        }
        Some((host, port)) => Ok((parse_host(host)?, port, None)),
        None => Ok((parse_host(text)?, "", None)),
    }
}

/// A host of a structured entry: brackets around IPv6 are optional.
pub(crate) fn bare_host(text: &str) -> Result<Host, &'static str> {
    let text = text.trim();
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    match bare.parse::<Ipv6Addr>() {
        Ok(ip) => Ok(Host::Ip(IpAddr::V6(ip))),
        Err(_) => parse_host(bare),
    }
}

/// A host: an address, or a name in ASCII form.
fn parse_host(text: &str) -> Result<Host, &'static str> {
    let decoded = String::from_utf8(percent_decode(text)).map_err(|_| "the host is not text")?;
    if let Ok(ip) = decoded.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(IpAddr::V4(ip)));
    }
    let name = crate::name::to_ascii(&decoded).ok_or("the host is not a name or address")?;
    if name.is_empty() {
        return Err("the host is missing");
    }
    if name
        .split('.')
        .any(|label| label.is_empty() || label.len() > 63)
    {
        return Err("the host is not a name or address");
    }
    // `192.0.2.1.` is an address to everyone who strips the dot.
    match name.parse::<Ipv4Addr>() {
        Ok(ip) => Ok(Host::Ip(IpAddr::V4(ip))),
        Err(_) => Ok(Host::Name(name)),
    }
}
