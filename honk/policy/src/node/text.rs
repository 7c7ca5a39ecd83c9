//! Small encodings that links and subscription entries share.
//!
//! Base64 itself is a crate's work; here is how lenient honk is about it.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Decodes base64: both alphabets, even mixed, padding optional, white space ignored.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let mut text: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    while text.last() == Some(&b'=') {
        text.pop();
    }
    for byte in &mut text {
        match byte {
            b'-' => *byte = b'+',
            b'_' => *byte = b'/',
            _ => {}
        }
    }
    LENIENT.decode(text).ok()
}

/// As [`base64`], for content that is text.
pub(crate) fn base64_text(text: &str) -> Option<String> {
    String::from_utf8(base64(text)?).ok()
}

/// Standard alphabet, padded.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// URL alphabet, not padded.
pub(crate) fn to_base64url(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Lower-case hexadecimal.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Pairs of hexadecimal digits.
pub(crate) fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(
        digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect(),
    )
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

/// Encodes everything but unreserved characters (RFC 3986 section 2.3).
pub(crate) fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A name as shown: control characters as blanks, trimmed, at most 128 bytes. `None` when
/// nothing remains.
pub(crate) fn display_name(text: &str) -> Option<String> {
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

/// A boolean as links spell it; `None` for anything else.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" | "" => Some(false),
        _ => None,
    }
}

/// A duration in milliseconds; `unit` is what a bare number counts, in milliseconds.
pub(crate) fn duration_ms(text: &str, unit: u32) -> Option<u32> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let factor = match suffix.trim() {
        "" => unit,
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u32>().ok()?.checked_mul(factor)
}

/// A bandwidth in bytes per second; a bare number counts Mbit/s. 0 is `None`.
pub(crate) fn bandwidth(text: &str) -> Result<Option<u64>, &'static str> {
    const WRONG: &str = "the bandwidth is not a number of Mbit/s";
    let text = text.trim().to_ascii_lowercase();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let bits = match unit.trim() {
        "" | "m" | "mb" | "mbps" | "mbit" | "mbit/s" => 1e6,
        "b" | "bps" => 1.0,
        "k" | "kb" | "kbps" | "kbit" | "kbit/s" => 1e3,
        "g" | "gb" | "gbps" | "gbit" | "gbit/s" => 1e9,
        "t" | "tb" | "tbps" => 1e12,
        _ => return Err(WRONG),
    };
    if number.is_empty() && unit.trim().is_empty() {
        return Ok(None);
    }
    let number: f64 = number.parse().map_err(|_| WRONG)?;
    let bytes = number * bits / 8.0;
    match bytes {
        b if b < 1.0 => Ok(None),
        b if b < 1e15 => Ok(Some(b as u64)),
        _ => Err(WRONG),
    }
}
