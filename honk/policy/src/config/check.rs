//! What a check asks: the target of an HTTP request, or the DNS server of a query.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::value;

/// Target of a check over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckUrl {
    /// As written, for people.
    pub text: Arc<str>,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Value of the `Host` header.
    pub authority: String,
    /// Path with query, at least `/`.
    pub path: String,
    /// Addresses to use instead of the name.
    pub addresses: Vec<IpAddr>,
}

/// Why a text is no target of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an absolute http or https URL, or `preset(name)`")]
pub struct BadCheckUrl;

impl CheckUrl {
    /// Reads a URL or `preset(name)`.
    pub fn parse(text: &str) -> Result<Self, BadCheckUrl> {
        let text = value::preset(text).unwrap_or(text);
        value::url(text, &["http", "https"]).map_err(|_| BadCheckUrl)?;
        let (scheme, rest) = text.split_once("://").ok_or(BadCheckUrl)?;
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = value::host_port(authority).ok_or(BadCheckUrl)?;
        let tls = scheme == "https";
        let default = if tls { 443 } else { 80 };
        let host = host.to_ascii_lowercase();
        let port = port.unwrap_or(default);
        let shown = match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => host.clone(),
        };
        let authority = if port == default {
            shown
        } else {
            format!("{shown}:{port}")
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            text: text.into(),
            tls,
            host,
            port,
            authority,
            path: format!("{slash}{path}"),
            addresses: Vec::new(),
        })
    }

    /// Reads a list of a URL and the addresses of its host.
    pub fn parse_list(list: &[String]) -> Result<Self, BadCheckUrl> {
        let (first, rest) = list.split_first().ok_or(BadCheckUrl)?;
        let mut url = Self::parse(first)?;
        url.addresses = rest.iter().filter_map(|a| a.parse().ok()).collect();
        Ok(url)
    }
}

/// DNS server that a check asks through a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckDns {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Addresses to use instead of looking the name up.
    pub addresses: Vec<IpAddr>,
}

impl CheckDns {
    /// Reads a list of a server and its addresses.
    pub fn parse_list(list: &[String]) -> Option<Self> {
        let (first, rest) = list.split_first()?;
        let (host, port) = match first.parse::<IpAddr>() {
            Ok(_) => (first.as_str(), None),
            Err(_) => value::host_port(first)?,
        };
        Some(Self {
            host: host.to_owned(),
            port: port.unwrap_or(53),
            addresses: rest.iter().filter_map(|a| a.parse().ok()).collect(),
        })
    }

    /// Where to send the query, if no name has to be looked up.
    pub fn known(&self) -> Vec<SocketAddr> {
        let own = self.host.parse::<IpAddr>().ok();
        let all = self.addresses.iter().copied().chain(own);
        all.map(|ip| SocketAddr::new(ip, self.port)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (bool, String, u16, String, String) {
        let url = CheckUrl::parse(text).unwrap();
        (url.tls, url.host, url.port, url.authority, url.path)
    }

    #[test]
    fn urls_come_apart() {
        for (text, tls, host, port, authority, path) in [
            ("http://A.test", false, "a.test", 80, "a.test", "/"),
            (
                "https://a.test/x?y#z",
                true,
                "a.test",
                443,
                "a.test",
                "/x?y",
            ),
            (
                "http://a.test:8080?q",
                false,
                "a.test",
                8080,
                "a.test:8080",
                "/?q",
            ),
            (
                "https://[2001:db8::1]/",
                true,
                "2001:db8::1",
                443,
                "[2001:db8::1]",
                "/",
            ),
            (
                "http://192.0.2.1:81/",
                false,
                "192.0.2.1",
                81,
                "192.0.2.1:81",
                "/",
            ),
            ("preset(yandex)", true, "ya.ru", 443, "ya.ru", "/"),
        ] {
            let want = (tls, host.into(), port, authority.into(), path.into());
            assert_eq!(parts(text), want, "{text}");
        }
        for text in [
            "",
            "ftp://a/",
            "a.test",
            "http://",
            "preset(none)",
            "http://u@h/",
        ] {
            assert_eq!(CheckUrl::parse(text), Err(BadCheckUrl), "{text}");
        }
    }

    #[test]
    fn addresses_follow_in_the_list() {
        let list = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
        let url = CheckUrl::parse_list(&list("http://a.test/,1.1.1.1,2001:db8::1")).unwrap();
        assert_eq!(url.addresses.len(), 2);
        let dns = CheckDns::parse_list(&list("dns.google:53,8.8.8.8")).unwrap();
        assert_eq!(dns.known(), ["8.8.8.8:53".parse().unwrap()]);
        let dns = CheckDns::parse_list(&list("192.0.2.1:5353")).unwrap();
        assert_eq!(dns.known(), ["192.0.2.1:5353".parse().unwrap()]);
        let dns = CheckDns::parse_list(&list("2001:db8::1")).unwrap();
        assert_eq!(dns.known(), ["[2001:db8::1]:53".parse().unwrap()]);
        assert_eq!(CheckDns::parse_list(&list("a.test")).unwrap().known(), []);
    }
}
