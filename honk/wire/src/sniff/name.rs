//! Which texts are names.

use std::net::IpAddr;

/// Longest name.
const MAX_NAME: usize = 253;
/// Longest part between dots.
const MAX_LABEL: usize = 63;

/// A host name in lower case without trailing dot: letters, digits, `-` and `_` in labels of
/// 1 to 63 bytes, 253 in all, and not an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Reads a name as a client wrote it.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        if text.is_empty() || text.len() > MAX_NAME {
            return None;
        }
        let label = |label: &[u8]| {
            let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            (1..=MAX_LABEL).contains(&label.len()) && label.iter().all(allowed)
        };
        if !text.split(|&b| b == b'.').all(label) {
            return None;
        }
        let name = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
        // The last label decides what a resolver takes for an address, `0x7f.1` included.
        let last = name.rsplit('.').next().unwrap_or(&name);
        let number = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
        (!number && name.parse::<IpAddr>().is_err()).then_some(Self(name))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}
