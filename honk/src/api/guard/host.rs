//! Names that a request may come in under, and origins that scripts may call from.
//!
//! A page of a stranger whose name suddenly resolves to the gateway has the stranger's name in
//! `Host`; a page that calls across has its own in `Origin`. Neither is served.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

/// Names beside addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// The name of the machine, and what the configuration adds.
    pub(crate) fn new(machine: &str, more: &[String]) -> Self {
        let names = more.iter().map(String::as_str).chain([machine]);
        let names = names.map(|n| n.trim().trim_end_matches('.').to_ascii_lowercase());
        Self(names.filter(|n| !n.is_empty()).collect())
    }

    fn serves(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if let Some(inner) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            return inner.parse::<Ipv6Addr>().is_ok();
        }
        host.parse::<Ipv4Addr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.0.contains(&host)
    }
}

/// Web origins beside that of the listener itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    pub(crate) named: Vec<String>,
    /// `*`
    pub(crate) any: bool,
}

impl Origins {
    /// `*` counts only when there is a token: without one any page could do anything.
    pub(crate) fn new(list: &[String], secured: bool) -> Self {
        let named = list.iter().filter(|o| *o != "*");
        Self {
            named: named.map(|o| normal(o)).collect(),
            any: secured && list.iter().any(|o| o == "*"),
        }
    }

    /// Nobody beside the listener's own pages.
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty() && !self.any
    }

    /// Whether scripts of `origin` may call.
    pub(crate) fn allow(&self, origin: &str) -> bool {
        self.any || self.named.contains(&normal(origin))
    }
}

/// Scheme and host of an origin are the same in any case.
fn normal(origin: &str) -> String {
    origin.trim().trim_end_matches('/').to_ascii_lowercase()
}

/// Why a request is not looked at any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    Host,
    Origin,
}

/// Checks `Host`, then `Origin`.
pub(super) fn check(
    hosts: &Hosts,
    origins: &Origins,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Foreign> {
    let authority = authority(uri, headers).ok_or(Foreign::Host)?;
    if !hosts.serves(host_of(authority)) {
        return Err(Foreign::Host);
    }
    let mut sent = headers.get_all(header::ORIGIN).iter();
    let (first, more) = (sent.next(), sent.next());
    let Some(origin) = first else {
        return Ok(());
    };
    let origin = origin.to_str().map_err(|_| Foreign::Origin)?;
    let own = normal(origin) == format!("http://{}", authority.to_ascii_lowercase());
    if more.is_none() && (own || origins.allow(origin)) {
        return Ok(());
    }
    Err(Foreign::Origin)
}

/// What the client believes to talk to; `None` when it says nothing, or two things.
fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let mut sent = headers.get_all(header::HOST).iter();
    let host = sent.next().map(|h| h.to_str());
    if sent.next().is_some() {
        return None;
    }
    match (uri.authority().map(|a| a.as_str()), host) {
        (Some(line), Some(Ok(host))) => (line == host).then_some(host),
        (None, Some(Ok(host))) => Some(host),
        (Some(line), None) => Some(line),
        (_, Some(Err(_))) | (None, None) => None,
    }
}

/// Without the port.
fn host_of(authority: &str) -> &str {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']').map(|at| at + 2),
        None => authority.find(':'),
    };
    let (host, port) = authority.split_at(end.unwrap_or(authority.len()));
    let port = port.strip_prefix(':').unwrap_or(port);
    match port.bytes().all(|b| b.is_ascii_digit()) {
        true => host,
        // `user@host`, `[v6]x` and the like are no authority of ours.
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str, origin: Option<&str>) -> Result<(), Foreign> {
        let hosts = Hosts::new("Gate", &["Router.lan.".to_owned()]);
        let origins = Origins::new(&["https://board.example/".to_owned()], true);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        check(&hosts, &origins, &Uri::from_static("/x"), &headers)
    }

    #[test]
    fn addresses_localhost_the_machine_and_listed_names_are_served() {
        for host in [
            "192.0.2.1:9090",
            "192.0.2.1",
            "[fd00::1]:9090",
            "[::1]",
            "localhost:9090",
            "LOCALHOST.",
            "a.localhost",
            "gate:9090",
            "router.lan",
            "router.lan.:9090",
        ] {
            assert_eq!(verdict(host, None), Ok(()), "{host}");
        }
    }

    #[test]
    fn every_other_name_is_foreign() {
        for host in [
            "evil.example",
            "evil.example:9090",
            "router.lan.evil.example",
            "notlocalhost",
            "192.0.2.1.evil.example",
            "user@192.0.2.1",
            "192.0.2.1:x",
            "[fd00::1",
            "[evil]",
            "[::1]x",
            "fd00::1",
            "",
        ] {
            assert_eq!(verdict(host, None), Err(Foreign::Host), "{host}");
        }
    }

    #[test]
    fn no_host_and_two_hosts_are_foreign() {
        let (hosts, origins) = (Hosts::default(), Origins::default());
        let mut headers = HeaderMap::new();
        let verdict = |uri: &str, headers: &HeaderMap| {
            check(&hosts, &origins, &uri.parse().unwrap(), headers)
        };
        assert_eq!(verdict("/", &headers), Err(Foreign::Host));
        assert_eq!(verdict("http://127.0.0.1/", &headers), Ok(()));
        assert_eq!(
            verdict("http://evil.example/", &headers),
            Err(Foreign::Host)
        );
        headers.append(header::HOST, "127.0.0.1".parse().unwrap());
        assert_eq!(
            verdict("http://evil.example/", &headers),
            Err(Foreign::Host)
        );
        headers.append(header::HOST, "127.0.0.1".parse().unwrap());
        assert_eq!(verdict("/", &headers), Err(Foreign::Host));
    }

    #[test]
    fn scripts_call_from_here_or_from_listed_origins() {
        let here = "192.0.2.1:9090";
        assert_eq!(verdict(here, Some("http://192.0.2.1:9090")), Ok(()));
        assert_eq!(verdict(here, Some("https://board.example")), Ok(()));
        assert_eq!(verdict(here, Some("HTTPS://Board.Example")), Ok(()));
        for origin in [
            "http://192.0.2.1:9091",
            "http://192.0.2.1",
            "https://192.0.2.1:9090",
            "http://board.example",
            "https://board.example.evil.example",
            "null",
            "",
        ] {
            assert_eq!(
                verdict(here, Some(origin)),
                Err(Foreign::Origin),
                "{origin}"
            );
        }
    }

    #[test]
    fn any_origin_needs_a_token() {
        let any = ["*".to_owned()];
        assert!(Origins::new(&any, true).allow("https://x.example"));
        assert!(!Origins::new(&any, false).allow("https://x.example"));
        assert!(Origins::new(&any, false).is_empty());
    }
}
