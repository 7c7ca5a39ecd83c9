//! Values of rule conditions: ports, prefixes, MAC addresses, names and geodata codes.
//!
//! Texts to matchers, shared by traffic rules and DNS rules; knows no function and no place.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use honk_grammar::{ast::Span, diag::Diagnostic};

use super::{
    GeoFile,
    value::{self, shortened},
};
use crate::{
    name::to_ascii,
    routing::rule::{DomainTest, Prefix},
};

pub(super) fn one_of(text: &str, words: &[&'static str]) -> Result<&'static str, String> {
    words
        .iter()
        .find(|word| **word == text)
        .copied()
        .ok_or_else(|| {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("`{}` is not one of {}", shortened(text), words.join(", "))
        })
}

/// Why an argument is wrong.
pub(super) struct Wrong {
    pub(super) why: String,
    pub(super) near: Option<Near>,
}

/// A word that may be misspelt, and what it may have been.
pub(super) struct Near {
    pub(super) word: String,
    pub(super) among: fn() -> Vec<&'static str>,
}

impl<T: Into<String>> From<T> for Wrong {
    fn from(why: T) -> Self {
        Self {
            why: why.into(),
            near: None,
        }
    }
}

/// `n` or `a-b`.
pub(super) fn ports(text: &str) -> Result<(u16, u16), String> {
    let (a, b) = value::span_of_integers(text, 0, 65535).map_err(|bad| bad.text)?;
    let port = |n| u16::try_from(n).map_err(|_| "a port is between 0 and 65535".to_owned());
    Ok((port(a)?, port(b)?))
}

/// An address or CIDR; host bits are masked.
pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    let bad = || "expected an address or a prefix such as `10.0.0.0/8`".to_owned();
    let (ip, len) = match text.split_once('/') {
        Some((ip, len)) => (ip, Some(len)),
        None => (text, None),
    };
    let ip: IpAddr = ip.parse().map_err(|_| bad())?;
    let (mut addr, base) = match ip {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped().octets(), 96u8),
        IpAddr::V6(ip) => (ip.octets(), 0),
    };
    let most = 128 - base;
    let len = match len {
        None => most,
        Some(digits) => {
            let range = || format!("the prefix length is not between 0 and {most}");
            let n = value::unsigned(digits).ok_or_else(bad)?;
            u8::try_from(n)
                .ok()
                .filter(|n| *n <= most)
                .ok_or_else(range)?
        }
    } + base;
    for (at, byte) in addr.iter_mut().enumerate() {
        let kept = usize::from(len).saturating_sub(at * 8).min(8);
        *byte &= !(0xFFu16 >> kept) as u8;
    }
    Ok(Prefix { addr, len })
}

/// A warning about a prefix with host bits: what is meant may be one address.
pub(super) fn network(text: &str, prefix: &Prefix, span: Span) -> Option<Diagnostic> {
    let (ip, len) = text.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    let base = Ipv6Addr::from(prefix.addr);
    let base = match ip {
        IpAddr::V4(_) => IpAddr::V4(base.to_ipv4_mapped()?),
        IpAddr::V6(_) => IpAddr::V6(base),
    };
    if base == ip {
        return None;
    }
    let message =
        format!("`{text}` is not the first address of its network: it means `{base}/{len}`");
    let help = format!("write `{base}/{len}`, or `{ip}` for the one address");
    Some(Diagnostic::warning("", "prefix-host-bits", span, message).help(help))
}

/// `aa:bb:cc:dd:ee:ff`, `-` separated, `aabb.ccdd.eeff` or 12 hex digits.
pub(super) fn mac(text: &str) -> Result<[u8; 6], String> {
    let bad = || "expected a MAC address such as `aa:bb:cc:dd:ee:ff`".to_owned();
    let parts: Vec<&str> = match text {
        _ if text.contains(':') => text.split(':').collect(),
        _ if text.contains('-') => text.split('-').collect(),
        _ if text.contains('.') => text.split('.').collect(),
        _ => vec![text],
    };
    let width = match parts.len() {
        6 => 2,
        3 if text.contains('.') => 4,
        1 => 12,
        _ => return Err(bad()),
    };
    let hex = |part: &&str| part.len() == width && part.bytes().all(|b| b.is_ascii_hexdigit());
    if !parts.iter().all(hex) || (width == 2 && text.contains('.')) {
        return Err(bad());
    }
    let n = u64::from_str_radix(&parts.concat(), 16).map_err(|_| bad())?;
    let [_, _, mac @ ..] = n.to_be_bytes();
    Ok(mac)
}

/// One value of `domain`; a pattern is one that was checked.
pub(super) fn domain(key: Option<&str>, text: &str) -> Result<DomainTest, String> {
    let name = |text: &str| {
        to_ascii(text)
            .filter(|name| !name.is_empty())
            .ok_or_else(|| {
                format!(
                    "`{}` is no domain name: only letters, digits, `-`, `.`, `_`",
                    shortened(text)
                )
            })
    };
    Ok(match key {
        None | Some("suffix" | "domain") => match text.strip_prefix('.') {
            Some(parent) => DomainTest::SubdomainsOf(name(parent)?),
            None => DomainTest::Suffix(name(text)?),
        },
        Some("full") => DomainTest::Full(name(text)?),
        Some("keyword" | "contains") if text.is_empty() => {
            return Err("an empty keyword would match every name".to_owned());
        }
        Some("keyword" | "contains") => DomainTest::Keyword(text.to_lowercase()),
        Some("regex") => DomainTest::Regex(text.to_owned()),
        Some("geosite") => site(geo_code("geosite.dat", text)?),
        Some(_) => site(geo_file(text)?),
    })
}

fn site(geo: GeoFile) -> DomainTest {
    DomainTest::Geosite {
        file: geo.file,
        code: geo.code,
        attr: geo.attr,
        list: Arc::default(),
    }
}

/// `code[@attr]`, in any case.
pub(super) fn geo_code(file: &str, text: &str) -> Result<GeoFile, String> {
    let lower = text.to_lowercase();
    let (code, attr) = match lower.split_once('@') {
        Some((code, attr)) => (code, Some(attr.to_owned())),
        None => (lower.as_str(), None),
    };
    if code.is_empty() || attr.as_deref() == Some("") {
        return Err("expected a geodata code such as `cn` or `google@ads`".to_owned());
    }
    Ok(GeoFile {
        file: file.to_owned(),
        code: code.to_owned(),
        attr,
    })
}

/// `file[.dat]:code`.
pub(super) fn geo_file(text: &str) -> Result<GeoFile, String> {
    let (file, code) = text
        .rsplit_once(':')
        .filter(|(file, _)| !file.is_empty())
        .ok_or_else(|| "expected `'file.dat:code'`".to_owned())?;
    let file = if file.ends_with(".dat") {
        file.to_owned()
    } else {
        format!("{file}.dat")
    };
    geo_code(&file, code)
}

/// `geoip: private`.
pub(super) const PRIVATE: &[&str] = &[
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let p = |text| prefix(text).map(|p| (p.addr[12..].to_vec(), p.len));
        assert_eq!(p("10.1.2.3/8"), Ok((vec![10, 0, 0, 0], 104)));
        assert_eq!(p("10.1.2.3"), Ok((vec![10, 1, 2, 3], 128)));
        assert_eq!(p("10.1.2.255/25"), Ok((vec![10, 1, 2, 128], 121)));
        assert_eq!(p("0.0.0.0/0"), Ok((vec![0; 4], 96)));
        assert_eq!(
            prefix("2001:db8::1/32").map(|p| (p.addr[..5].to_vec(), p.len)),
            Ok((vec![0x20, 1, 0xd, 0xb8, 0], 32))
        );
        for bad in [
            "10.0.0.0/33",
            "10.0.0",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/08",
            "fe80::1%1",
            "",
        ] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn macs() {
        let want = Ok([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
        for text in [
            "aa:bb:cc:dd:ee:ff",
            "AA-BB-CC-DD-EE-FF",
            "aabb.ccdd.eeff",
            "aabbccddeeff",
        ] {
            assert_eq!(mac(text), want, "{text}");
        }
        for bad in [
            "",
            "aa:bb",
            "aa:bb:cc:dd:ee:fg",
            "aabbcc",
            "a:b:c:d:e:f",
            "aa.bb.cc.dd.ee.ff",
        ] {
            assert!(mac(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn domains() {
        assert_eq!(domain(None, "A.b."), Ok(DomainTest::Suffix("a.b".into())));
        assert_eq!(
            domain(Some("suffix"), ".a.b"),
            Ok(DomainTest::SubdomainsOf("a.b".into()))
        );
        assert_eq!(
            domain(Some("contains"), "ADS"),
            Ok(DomainTest::Keyword("ads".into()))
        );
        let geo = |file: &str, code: &str, attr: Option<&str>| {
            Ok(DomainTest::Geosite {
                file: file.into(),
                code: code.into(),
                attr: attr.map(str::to_owned),
                list: Arc::default(),
            })
        };
        assert_eq!(
            domain(Some("geosite"), "geolocation-!CN"),
            geo("geosite.dat", "geolocation-!cn", None)
        );
        assert_eq!(
            domain(Some("geosite"), "Google@Ads"),
            geo("geosite.dat", "google", Some("ads"))
        );
        assert_eq!(domain(Some("ext"), "my:x"), geo("my.dat", "x", None));
        for (key, bad) in [
            (None, ""),
            (None, "a b"),
            (Some("full"), "*.a"),
            (Some("keyword"), ""),
            (Some("geosite"), ""),
            (Some("ext"), "nofile"),
        ] {
            assert!(domain(key, bad).is_err(), "{key:?} {bad}");
        }
    }

    #[test]
    fn private_prefixes_are_all_legal() {
        assert!(PRIVATE.iter().all(|text| prefix(text).is_ok()));
    }
}
