//! Value types of the language (numbers, durations, bandwidths, words, addresses) as functions
//! from text to a typed value.
//!
//! Decides what a text means and which code a wrong one gets; knows no section, key or place.
//! Called by the declaration reader and by the argument readers of rules and filters.

use std::net::{IpAddr, SocketAddr};

use regex::{Regex, RegexBuilder};

/// Why a text is not a value of the wanted type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct BadValue {
    /// Shorthand, `E402`.
    pub number: &'static str,
    /// `type` or `range`.
    pub slug: &'static str,
    /// One sentence without the key.
    pub text: String,
    /// Legal words, for a suggestion.
    pub words: &'static [&'static str],
}

impl BadValue {
    /// The text is not of the type at all.
    pub(crate) fn shape(number: &'static str, text: impl Into<String>) -> Self {
        Self {
            number,
            slug: "type",
            text: text.into(),
            words: &[],
        }
    }

    /// The text is of the type but out of bounds.
    pub(crate) fn range(number: &'static str, text: impl Into<String>) -> Self {
        Self {
            number,
            slug: "range",
            text: text.into(),
            words: &[],
        }
    }
}

/// Result of reading one value.
pub type Read<T> = Result<T, BadValue>;

/// `true t 1 y yes on` / `false f 0 n no off`, in any case.
pub fn boolean(text: &str) -> Read<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "y" | "yes" | "on" => Ok(true),
        "false" | "f" | "0" | "n" | "no" | "off" => Ok(false),
        _ => Err(BadValue::shape(
            "E401",
            "expected a boolean: `true` or `false`",
        )),
    }
}

/// An unsigned integer: decimal, `0x`, `0o` or `0b`; no sign, no `_`, no leading zero.
pub fn unsigned(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'o' | b'O', ..] => (&text[2..], 8),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => return None,
        _ => (text, 10),
    };
    let legal = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    legal
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten()
}

/// An integer within bounds.
pub fn integer(text: &str, min: u64, max: u64) -> Read<u64> {
    let Some(n) = unsigned(text) else {
        let more = match text.as_bytes() {
            [b'0', b'0'..=b'9', ..] => "; a leading zero is ambiguous",
            _ => "",
        };
        return Err(BadValue::shape(
            "E402",
            format!("expected an integer between {min} and {max}{more}"),
        ));
    };
    if (min..=max).contains(&n) {
        Ok(n)
    } else {
        Err(BadValue::range(
            "E402",
            format!("{n} is not between {min} and {max}"),
        ))
    }
}

/// `a-b` with a <= b, or one integer.
pub fn span_of_integers(text: &str, min: u64, max: u64) -> Read<(u64, u64)> {
    let (a, b) = match text.split_once('-') {
        Some((a, b)) => (integer(a.trim(), min, max)?, integer(b.trim(), min, max)?),
        None => {
            let n = integer(text, min, max)?;
            (n, n)
        }
    };
    if a > b {
        return Err(BadValue::range(
            "E402",
            format!("the start {a} is above the end {b}"),
        ));
    }
    Ok((a, b))
}

/// What a bare number of a duration counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
}

impl Unit {
    const fn nanos(self) -> i128 {
        match self {
            Self::Millis => 1_000_000,
            Self::Seconds => 1_000_000_000,
        }
    }
}

/// A duration in Go notation or as a bare number of `unit`, in milliseconds; remainders below
/// the unit round up. The bounds are milliseconds, too.
pub fn duration(text: &str, unit: Unit, min: i64, max: i64) -> Read<i64> {
    let nanos = if let Some(n) = unsigned(text) {
        i128::from(n) * unit.nanos()
    } else {
        go_duration(text).ok_or_else(|| {
            BadValue::shape(
                "E403",
                "expected a duration such as `30s`, `1m30s` or `250ms`",
            )
        })?
    };
    let units = nanos.div_euclid(unit.nanos()) + i128::from(nanos.rem_euclid(unit.nanos()) != 0);
    let millis = units * (unit.nanos() / 1_000_000);
    if millis < i128::from(min) || millis > i128::from(max) {
        let text = match (min, max) {
            (0, i64::MAX) => "a duration cannot be negative here".to_owned(),
            _ => format!(
                "the duration is not between {} and {}",
                shown(min),
                shown(max)
            ),
        };
        return Err(BadValue::range("E403", text));
    }
    i64::try_from(millis).map_err(|_| BadValue::range("E403", "the duration is too long"))
}

/// Milliseconds for people.
fn shown(millis: i64) -> String {
    if millis % 1000 == 0 {
        format!("{}s", millis / 1000)
    } else {
        format!("{millis}ms")
    }
}

/// Nanoseconds of a Go duration.
fn go_duration(text: &str) -> Option<i128> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (digits, tail) = rest.split_at(number);
        let len = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(len);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(scaled(digits, scale)?)?;
        rest = tail;
    }
    (total < i128::from(i64::MAX)).then_some(if negative { -total } else { total })
}

/// A decimal number times `scale`, fractions of the result rounded up.
fn scaled(digits: &str, scale: i128) -> Option<i128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 19 || fraction.contains('.') {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(15)];
    let number = |s: &str| {
        if s.is_empty() {
            Some(0)
        } else {
            s.parse::<i128>().ok()
        }
    };
    let places = 10i128.pow(u32::try_from(fraction.len()).ok()?);
    let part = number(fraction)?.checked_mul(scale)?;
    let part = part / places + i128::from(part % places != 0);
    number(whole)?.checked_mul(scale)?.checked_add(part)
}

/// Bytes per second: a bare integer, or a number with a unit of bits per second.
pub fn bandwidth(text: &str) -> Read<u64> {
    let bad = || BadValue::shape("E404", "expected a bandwidth such as `20mbps`, or bytes/s");
    if text.is_empty() {
        return Ok(0);
    }
    if let Some(n) = unsigned(text) {
        return Ok(n);
    }
    let lower = text.to_ascii_lowercase();
    let at = lower
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(bad)?;
    let (digits, unit) = lower.split_at(at);
    let scale: i128 = match unit.trim_start_matches(' ') {
        "b" | "bps" => 1,
        "k" | "kb" | "kbps" => 1_000,
        "m" | "mb" | "mbps" => 1_000_000,
        "g" | "gb" | "gbps" => 1_000_000_000,
        "t" | "tb" | "tbps" => 1_000_000_000_000,
        _ => return Err(bad()),
    };
    let bits = scaled(digits, scale).ok_or_else(bad)?;
    u64::try_from(bits / 8).map_err(|_| BadValue::range("E404", "the bandwidth is too large"))
}

/// One of `words`, exactly.
pub fn word(text: &str, words: &'static [&'static str]) -> Read<&'static str> {
    words
        .iter()
        .find(|w| **w == text)
        .copied()
        .ok_or_else(|| BadValue {
            number: "E405",
            slug: "type",
            text: format!("`{}` is not one of {}", shortened(text), listed(words)),
            words,
        })
}

/// Words for a message.
fn listed(words: &[&str]) -> String {
    words
        .iter()
        .map(|w| format!("`{w}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// User text for a message: one line, at most 40 characters.
pub(crate) fn shortened(text: &str) -> String {
    let mut out: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    if text.chars().count() > 40 {
        out.push('…');
    }
    out
}

/// A mark: u32 without the bits the datapath uses itself.
pub fn mark(text: &str) -> Read<u32> {
    let n = unsigned(text)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| BadValue::shape("E411", "expected a mark: an integer below 0x100000000"))?;
    if n & RESERVED_MARK != 0 {
        return Err(BadValue::range(
            "E411",
            format!("mark {n:#x} uses bits reserved for the datapath (0xc8000000)"),
        ));
    }
    Ok(n)
}

/// Mark bits that belong to the datapath.
pub const RESERVED_MARK: u32 = 0xC800_0000;

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

/// URL of a `preset(name)`.
pub fn preset(text: &str) -> Option<&'static str> {
    let name = text.strip_prefix("preset(")?.strip_suffix(')')?;
    Some(match name.trim() {
        "google" => "https://www.gstatic.com/generate_204",
        "cloudflare" => "https://cp.cloudflare.com/generate_204",
        "apple" => "https://captive.apple.com/hotspot-detect.html",
        "firefox" => "https://detectportal.firefox.com/canonical.html",
        "yandex" => "https://ya.ru/",
        _ => return None,
    })
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

/// A regular expression within the size limit.
pub fn pattern(text: &str) -> Read<Regex> {
    RegexBuilder::new(text)
        .size_limit(10 << 20)
        .build()
        .map_err(|error| {
            let why = error.to_string();
            let why = why
                .lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            BadValue::shape("E409", format!("bad regular expression: {why}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        for (text, n) in [("0", 0), ("80", 80), ("0x4", 4), ("0b11", 3), ("0o17", 15)] {
            assert_eq!(unsigned(text), Some(n), "{text}");
        }
        for text in [
            "",
            "08",
            "+1",
            "-1",
            "1_0",
            "0x",
            "0xg",
            "1.0",
            " 1",
            "99999999999999999999",
        ] {
            assert_eq!(unsigned(text), None, "{text}");
        }
        assert_eq!(integer("65536", 0, 65535).map_err(|e| e.slug), Err("range"));
        assert_eq!(integer("x", 0, 65535).map_err(|e| e.slug), Err("type"));
    }

    #[test]
    fn durations() {
        let s = |t| duration(t, Unit::Seconds, 0, i64::MAX);
        for (text, ms) in [
            ("5", 5_000),
            ("1m30s", 90_000),
            ("1.5s", 2_000),
            ("250ms", 1_000),
            (".5h", 1_800_000),
            ("0", 0),
            ("2h45m", 9_900_000),
        ] {
            assert_eq!(s(text), Ok(ms), "{text}");
        }
        for text in [
            "30x",
            "",
            "s",
            "1.2.3s",
            "1",
            "5.5",
            "-5",
            "--5s",
            "9999999999h",
            ".",
        ] {
            let ok = text == "1";
            assert_eq!(s(text).is_ok(), ok, "{text}");
        }
        let ms = |t| duration(t, Unit::Millis, i64::MIN, i64::MAX);
        assert_eq!(ms("50"), Ok(50));
        assert_eq!(ms("-500ms"), Ok(-500));
        assert_eq!(ms("1us"), Ok(1));
        assert_eq!(
            duration("-5", Unit::Millis, 0, i64::MAX).map_err(|e| e.number),
            Err("E403")
        );
    }

    #[test]
    fn bandwidths() {
        for (text, n) in [
            ("", 0),
            ("1000", 1000),
            ("8kbps", 1000),
            ("1 Gb", 125_000_000),
            ("1.5m", 187_500),
        ] {
            assert_eq!(bandwidth(text), Ok(n), "{text}");
        }
        assert!(bandwidth("5 parsecs").is_err());
        assert!(bandwidth("mbps").is_err());
    }

    #[test]
    fn addresses() {
        let a = |t: &str| address(t, 53).map(|a| a.to_string());
        assert_eq!(a("192.0.2.1").as_deref(), Ok("192.0.2.1:53"));
        assert_eq!(a("192.0.2.1:5").as_deref(), Ok("192.0.2.1:5"));
        assert_eq!(a("2001:db8::1").as_deref(), Ok("[2001:db8::1]:53"));
        assert_eq!(a("[2001:db8::1]:5").as_deref(), Ok("[2001:db8::1]:5"));
        for bad in [
            "dns.example",
            "192.0.2.1:0",
            "192.0.2.1:x",
            "[2001:db8::1",
            "",
            "[::1]x",
        ] {
            assert!(a(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn interfaces_and_marks() {
        assert!(interface("br-lan", false).is_ok() && interface("eth*", false).is_ok());
        for bad in ["", "..", "a/b", "a b", "sixteen-bytes-xx", "auto"] {
            assert!(interface(bad, false).is_err(), "{bad}");
        }
        assert!(interface("auto", true).is_ok());
        assert_eq!(mark("0x800"), Ok(0x800));
        assert_eq!(mark("0x80000000").map_err(|e| e.slug), Err("range"));
        assert_eq!(mark("-1").map_err(|e| e.slug), Err("type"));
    }
}
