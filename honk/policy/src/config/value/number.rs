//! Integers, durations and bandwidths.

use super::{BadValue, Read};

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
    // Rounding up does not lift a value over the least one.
    if nanos < i128::from(min) * 1_000_000 || millis > i128::from(max) {
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
