//! Values of `dns`: the listener, the client subnet, upstream URIs and record types.
//!
//! Texts to checked values; knows no key and no place.

use std::net::IpAddr;

use super::super::{
    matcher::prefix,
    value::{BadValue, Read, host_port, unsigned},
};

/// `ip:port`, `[v6]:port`, or a scheme with host and port.
pub(in crate::config) fn bind(text: &str) -> Read<String> {
    let bad = |why: &str| BadValue::shape("E707", format!("bad listener address: {why}"));
    if text.is_empty() {
        return Ok(String::new());
    }
    if text.contains(['@', '?', '#', '%']) {
        return Err(bad("only host and port are allowed"));
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    if scheme.is_some_and(|s| !matches!(s, "udp" | "tcp" | "tcp+udp" | "udp+tcp")) {
        return Err(bad("the scheme must be udp, tcp or tcp+udp"));
    }
    if rest.contains('/') {
        return Err(bad("a path is not allowed"));
    }
    let (host, port) = host_port(rest).ok_or_else(|| bad("host or port is wrong"))?;
    let Some(port) = port else {
        return Err(bad("the port is missing"));
    };
    if scheme.is_none() && host.parse::<IpAddr>().is_err() {
        return Err(bad("without a scheme the host must be an address"));
    }
    // One spelling each: a reload compares what is meant.
    let scheme = match scheme {
        Some("tcp") => "tcp",
        Some("tcp+udp" | "udp+tcp") => "tcp+udp",
        _ => "udp",
    };
    let host = match host.parse() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        Ok(IpAddr::V4(ip)) => ip.to_string(),
        Err(_) => host.trim_end_matches('.').to_ascii_lowercase(),
    };
    Ok(format!("{scheme}://{host}:{port}"))
}

/// IPv4, IPv4/len, IPv6/len, `auto` or `auto(IPv4)`.
pub(in crate::config) fn client_subnet(text: &str) -> Read<()> {
    let inner = match text.strip_prefix("auto(") {
        Some(rest) => rest.strip_suffix(')').unwrap_or_default(),
        None => text,
    };
    let is_auto = inner.len() != text.len();
    let ip: Result<IpAddr, _> = inner.split('/').next().unwrap_or_default().parse();
    let legal = match ip {
        _ if !is_auto && matches!(text, "" | "auto") => true,
        Ok(IpAddr::V4(_)) if is_auto => !inner.contains('/'),
        Ok(IpAddr::V4(_)) => prefix(inner).is_ok(),
        Ok(IpAddr::V6(_)) => !is_auto && inner.contains('/') && prefix(inner).is_ok(),
        Err(_) => false,
    };
    let expected = "expected an IPv4 address, a prefix, `auto` or `auto(IPv4)`";
    legal
        .then_some(())
        .ok_or_else(|| BadValue::shape("E708", expected))
}

/// How an upstream is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP, TCP when truncated.
    Udp,
    /// TCP.
    Tcp,
    /// UDP first, TCP when truncated and on failure.
    TcpUdp,
    /// DNS over TLS.
    Tls,
    /// DNS over HTTPS.
    Https,
    /// DNS over HTTP/3.
    H3,
    /// DNS over QUIC.
    Quic,
}

/// Parameters every upstream may have.
const PARAMETERS: &[&str] = &[
    "tls_server_name",
    "ip",
    "backup",
    "tcp_via_proxy",
    "case",
    "cookie",
    "pad",
    "ecs",
    "udp_fresh",
    "timeout",
    "pool",
];

/// Checks an upstream URI; the result is its transport.
pub(super) fn upstream(uri: &str) -> Result<Transport, &'static str> {
    if uri.contains("//") && !uri.contains("://") {
        return Err("`://` is missing behind the scheme");
    }
    let (scheme, rest) = uri.split_once("://").unwrap_or(("udp", uri));
    let transport = match scheme {
        "udp" => Transport::Udp,
        "tcp" => Transport::Tcp,
        "tcp+udp" | "udp+tcp" => Transport::TcpUdp,
        "tls" => Transport::Tls,
        "https" => Transport::Https,
        "h3" | "http3" => Transport::H3,
        "quic" => Transport::Quic,
        _ => {
            return Err("unknown scheme; there are udp, tcp, tcp+udp, tls, https, h3 and quic");
        }
    };
    let http = matches!(transport, Transport::Https | Transport::H3);
    if rest.contains('#') {
        return Err("a fragment is not allowed");
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    if authority.contains('@') {
        return Err("user information is not allowed");
    }
    if !http && path.len() > 1 {
        return Err("a path is legal for https and h3 only");
    }
    let (host, port) = host_port(authority).ok_or("host or port is wrong")?;
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(legal) {
        return Err("the host is missing or no name");
    }
    if port == Some(0) {
        return Err("port 0 cannot be reached");
    }
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, "1"));
        parameter(key, value, http)?;
    }
    Ok(transport)
}

fn parameter(key: &str, value: &str, http: bool) -> Result<(), &'static str> {
    let within = |min, max| unsigned(value).is_some_and(|n| (min..=max).contains(&n));
    match key {
        "tcp_via_proxy" | "case" | "cookie" | "pad" | "ecs" | "udp_fresh" if !within(0, 1) => {
            Err("a switch parameter takes 0 or 1")
        }
        "timeout" if !within(500, 20_000) => Err("`timeout` is 500 to 20000 milliseconds"),
        "pool" if !within(1, 16) => Err("`pool` is 1 to 16"),
        "ip" if value.split(',').any(|ip| ip.parse::<IpAddr>().is_err()) => {
            Err("`ip` takes addresses")
        }
        known if PARAMETERS.contains(&known) || http => Ok(()),
        _ => Err("unknown parameter"),
    }
}

/// Number of a record type by mnemonic (in any case), `TYPE<n>` or number.
pub(super) fn record_type(text: &str) -> Option<u16> {
    if let Some(n) = unsigned(text) {
        return u16::try_from(n).ok();
    }
    let upper = text.to_ascii_uppercase();
    if let Some(digits) = upper.strip_prefix("TYPE") {
        return digits.parse().ok();
    }
    RECORD_TYPES
        .iter()
        .find(|(name, _)| *name == upper)
        .map(|(_, number)| *number)
}

/// IANA mnemonics of resource record types.
#[rustfmt::skip] // a table reads better in rows
pub(super) const RECORD_TYPES: &[(&str, u16)] = &[
    ("A", 1), ("NS", 2), ("MD", 3), ("MF", 4), ("CNAME", 5), ("SOA", 6), ("MB", 7), ("MG", 8),
    ("MR", 9), ("NULL", 10), ("WKS", 11), ("PTR", 12), ("HINFO", 13), ("MINFO", 14), ("MX", 15),
    ("TXT", 16), ("RP", 17), ("AFSDB", 18), ("X25", 19), ("ISDN", 20), ("RT", 21), ("NSAP", 22),
    ("NSAP-PTR", 23), ("SIG", 24), ("KEY", 25), ("PX", 26), ("GPOS", 27), ("AAAA", 28),
    ("LOC", 29), ("NXT", 30), ("EID", 31), ("NIMLOC", 32), ("SRV", 33), ("ATMA", 34),
    ("NAPTR", 35), ("KX", 36), ("CERT", 37), ("A6", 38), ("DNAME", 39), ("SINK", 40), ("OPT", 41),
    ("APL", 42), ("DS", 43), ("SSHFP", 44), ("IPSECKEY", 45), ("RRSIG", 46), ("NSEC", 47),
    ("DNSKEY", 48), ("DHCID", 49), ("NSEC3", 50), ("NSEC3PARAM", 51), ("TLSA", 52),
    ("SMIMEA", 53), ("HIP", 55), ("NINFO", 56), ("RKEY", 57), ("TALINK", 58), ("CDS", 59),
    ("CDNSKEY", 60), ("OPENPGPKEY", 61), ("CSYNC", 62), ("ZONEMD", 63), ("SVCB", 64),
    ("HTTPS", 65), ("DSYNC", 66), ("SPF", 99), ("NID", 104), ("L32", 105), ("L64", 106),
    ("LP", 107), ("EUI48", 108), ("EUI64", 109), ("TKEY", 249), ("TSIG", 250), ("IXFR", 251),
    ("AXFR", 252), ("MAILB", 253), ("MAILA", 254), ("ANY", 255), ("*", 255), ("URI", 256),
    ("CAA", 257), ("AVC", 258), ("DOA", 259), ("AMTRELAY", 260), ("RESINFO", 261), ("TA", 32768),
    ("DLV", 32769),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners() {
        for text in [
            "",
            "192.0.2.1:53",
            "[::1]:0",
            "udp://dns.example:53",
            "tcp+udp://:1053",
        ] {
            assert!(bind(text).is_ok(), "{text}");
        }
        for text in [
            "localhost:53",
            "192.0.2.1",
            "udp://h",
            "tls://h:853",
            "udp://u@h:53",
            "udp://h:53/",
            "192.0.2.1:53?x",
            "[fe80::1%eth0]:53",
            "udp://h:70000",
            ":53",
        ] {
            assert!(bind(text).is_err(), "{text}");
        }
    }

    #[test]
    fn subnets() {
        for text in [
            "",
            "auto",
            "auto(9.9.9.9)",
            "192.0.2.0/24",
            "192.0.2.1",
            "2001:db8::/48",
        ] {
            assert!(client_subnet(text).is_ok(), "{text}");
        }
        for text in [
            "auto(dns.example)",
            "auto()",
            "2001:db8::",
            "x",
            "auto(2001:db8::1)",
        ] {
            assert!(client_subnet(text).is_err(), "{text}");
        }
    }

    #[test]
    fn upstreams() {
        for (uri, transport) in [
            ("192.0.2.55", Transport::Udp),
            ("2001:db8::1", Transport::Udp),
            (
                "https://dns.example/dns-query?x=1&timeout=500",
                Transport::Https,
            ),
            ("quic://[2001:db8::1]:853", Transport::Quic),
            ("udp+tcp://192.0.2.1:53/?case=1", Transport::TcpUdp),
        ] {
            assert_eq!(upstream(uri), Ok(transport), "{uri}");
        }
        for uri in [
            "",
            "ftp://x",
            "udp://u@x",
            "udp://x#y",
            "udp://x:0",
            "udp://x:99999",
            "tls://x/path",
            "udp://x?foo=1",
            "udp://x?pool=17",
            "udp://x?ip=y",
            "udp://a b",
        ] {
            assert!(upstream(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn types() {
        for (text, n) in [
            ("a", 1),
            ("AAAA", 28),
            ("*", 255),
            ("TYPE65", 65),
            ("0x1c", 28),
        ] {
            assert_eq!(record_type(text), Some(n), "{text}");
        }
        for text in ["aaaaa", "65536", "TYPE70000", ""] {
            assert_eq!(record_type(text), None, "{text}");
        }
    }
}
