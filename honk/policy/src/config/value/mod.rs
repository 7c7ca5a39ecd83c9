//! Value types of the language (numbers, durations, bandwidths, words, addresses) as functions
//! from text to a typed value.
//!
//! Decides what a text means and which code a wrong one gets; knows no section, key or place.
//! Called by the declaration reader and by the argument readers of rules and filters.

mod net;
mod number;
mod pattern;

pub(crate) use net::host_port;
pub use net::{address, host_or_address, interface, preset, url, url_or_preset};
pub use number::{Unit, bandwidth, duration, integer, span_of_integers, unsigned};
pub(crate) use pattern::{BUDGET, Letters, pattern, remedy};

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

/// User text for a message: one line, at most 40 characters, without credentials. (They are
/// looked for in the whole text: a link cut short may not look like one.)
pub(crate) fn shortened(text: &str) -> String {
    let text = honk_grammar::redact(text);
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
