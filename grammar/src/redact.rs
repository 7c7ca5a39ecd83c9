//! What a text may give away, judged by its look: for messages, which quote what people wrote, and
//! for excerpts, where a secret may stand in the wrong place or behind a misspelt key.
//!
//! `mask` knows links and keys by the tree; this is the net below it. It may hide too much, never
//! a whole line: a finding without its words helps nobody.

use std::borrow::Cow;

use crate::{mask::Ranges, suggest::suggest};

/// Keys whose whole value is secret, wherever they stand.
const SECRET_KEYS: [&str; 13] = [
    "secret",
    "read_secret",
    "token",
    "password",
    "passwd",
    "uuid",
    "psk",
    "private_key",
    "auth",
    "obfs_password",
    "ech_key",
    "pbk",
    "sid",
];

/// Parts of words that mean a secret in any spelling.
const SECRET_PARTS: [&str; 7] = [
    "secret",
    "passw",
    "token",
    "private",
    "passphrase",
    "credential",
    "apikey",
];

/// Schemes of addresses whose host is public. Links have others, and so have the misspelt ones.
const PUBLIC: [&str; 13] = [
    "http",
    "https",
    "http-file",
    "https-file",
    "file",
    "udp",
    "tcp",
    "tcp+udp",
    "udp+tcp",
    "tls",
    "quic",
    "h3",
    "http3",
];

/// Letters and digits without pattern: keys and tokens are as long at least.
const RANDOM: usize = 32;
/// Places in them where a digit, a capital or a small letter follows another kind, at least.
const CHANGES: usize = 8;

/// Whether values of this key are masked in excerpts.
#[must_use]
pub fn is_secret_key(key: &str) -> bool {
    if SECRET_KEYS.contains(&key) {
        return true;
    }
    if !(4..=64).contains(&key.len()) {
        return false;
    }
    let plain: String = key
        .chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .map(|c| c.to_ascii_lowercase())
        .collect();
    // Of short words every third is near to one that is meant.
    let long = SECRET_KEYS.into_iter().filter(|known| known.len() >= 5);
    SECRET_PARTS.iter().any(|part| plain.contains(part))
        || SECRET_KEYS.contains(&plain.as_str())
        || plain.len() >= 5 && !suggest(&plain, long).is_empty()
}

/// The text with `***` for what it may give away.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    let ranges = values(text);
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (start, end) in ranges {
        let (start, end) = (start as usize, end as usize);
        if start < at {
            continue;
        }
        out.push_str(&text[at..start]);
        out.push_str("***");
        at = end;
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

/// Ranges of a line of a configuration that may be secret; they may overlap.
pub(crate) fn line(text: &str) -> Ranges {
    let mut out = values(text);
    keyed(text, &mut out);
    out
}

/// What is secret by itself: credentials of addresses, identifiers, keys. In order.
fn values(text: &str) -> Ranges {
    let mut out = Ranges::new();
    for (at, _) in text.match_indices("://") {
        address(text, at, &mut out);
    }
    for (at, _) in text.match_indices('-') {
        if let Some(start) = at.checked_sub(8)
            && is_uuid(text.as_bytes().get(start..start + 36))
        {
            out.push((start as u32, start as u32 + 36));
        }
    }
    random(text, &mut out);
    out.sort_unstable();
    out
}

/// An address, by its `://`.
fn address(text: &str, at: usize, out: &mut Ranges) {
    let before = &text[..at];
    let scheme = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let name = before[scheme.len()..].to_ascii_lowercase();
    let start = at + 3;
    let rest = &text[start..];
    let end = match scheme.chars().next_back().filter(|c| "'\"`".contains(*c)) {
        Some(quote) => rest.find(quote),
        None => rest.find(|c: char| c.is_whitespace() || "'\"`".contains(c)),
    };
    let end = start + end.unwrap_or(rest.len());
    let mut put = |from: usize, to: usize| {
        if from < to {
            out.push((from as u32, to as u32));
        }
    };
    let rest = &text[start..end];
    // An example in a message.
    if rest == "..." {
        return;
    }
    if !PUBLIC.contains(&name.as_str()) {
        return put(start, end);
    }
    let host = rest.rfind('@').unwrap_or(0);
    put(start, start + host);
    // Providers put their tokens into paths. Where a file is gives nothing away.
    let ends: &[char] = if name == "file" {
        &['?', '#']
    } else {
        &['/', '?', '#']
    };
    if let Some(path) = rest[host..].find(ends) {
        put(start + host + path + 1, end);
    }
}

fn is_uuid(bytes: Option<&[u8]>) -> bool {
    bytes.is_some_and(|bytes| {
        bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    })
}

/// Long runs of letters and digits that are no words.
fn random(text: &str, out: &mut Ranges) {
    let inside = |b: &u8| b.is_ascii_alphanumeric() || b"+/_=-".contains(b);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let len = bytes[at..].iter().take_while(|b| inside(b)).count();
        if len >= RANDOM && is_random(&bytes[at..at + len]) {
            out.push((at as u32, (at + len) as u32));
        }
        at += len + 1;
    }
}

fn is_random(run: &[u8]) -> bool {
    let class = |b: &u8| match b {
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        b'0'..=b'9' => 3,
        _ => 0,
    };
    let mut changes = 0;
    let mut seen = [false; 4];
    for pair in run.windows(2) {
        seen[class(&pair[0])] = true;
        // A word may begin with a capital and stand beside another one.
        let change = (class(&pair[0]), class(&pair[1]));
        changes += usize::from(!matches!(change, (0, _) | (_, 0) | (2, 1)) && change.0 != change.1);
    }
    let hex = run.iter().all(u8::is_ascii_hexdigit);
    changes >= CHANGES && seen[3] && (hex || (seen[1] && seen[2]))
}

/// Values behind words that name a secret, whatever stands between.
fn keyed(text: &str, out: &mut Ranges) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut at = 0;
    while let Some(start) = text[at..].find(is_word).map(|n| at + n) {
        let len = text[start..]
            .find(|c| !is_word(c))
            .unwrap_or(text.len() - start);
        at = start + len;
        if is_secret_key(&text[start..at])
            && let Some((from, to)) = value_behind(text, at)
        {
            out.push((from as u32, to as u32));
            at = to;
        }
    }
}

/// The value of the key that ends at a place.
fn value_behind(text: &str, key: usize) -> Option<(usize, usize)> {
    let rest = &text[key..];
    let value = rest.trim_start_matches(['\'', '"']);
    let value = value.trim_start_matches([' ', '\t']);
    let value = value.strip_prefix([':', '=']).unwrap_or(value);
    let value = value.trim_start_matches([' ', '\t', '>']);
    let start = key + (rest.len() - value.len());
    if start == key {
        return None;
    }
    let len = match value.chars().next()? {
        '{' | '}' | '(' | ')' | ',' | '#' => return None,
        quote @ ('\'' | '"') => value[1..].find(quote).map_or(value.len(), |n| n + 2),
        _ => words(value),
    };
    (len > 0).then_some((start, start + len))
}

/// Length of the words a text begins with, up to a brace or the next `key:`.
fn words(text: &str) -> usize {
    let mut end = 0;
    loop {
        let rest = text[end..].trim_start_matches([' ', '\t']);
        let start = text.len() - rest.len();
        let len = rest
            .find(|c: char| c.is_whitespace() || c == '}')
            .unwrap_or(rest.len());
        if len == 0 || (end > 0 && rest[..len].ends_with(':')) {
            return end;
        }
        end = start + len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_are_secret_and_other_keys_are_not() {
        for key in [
            "secret",
            "secrt",
            "Secret",
            "secrets",
            "sectet",
            "read-secret",
            "passwrd",
            "pasword",
            "PASSWORD",
            "tokens",
            "token2",
            "uuid",
            "UUID",
            "api_key",
            "private-key",
            "privatekey",
        ] {
            assert!(is_secret_key(key), "{key}");
        }
        for key in [
            "policy",
            "filter",
            "default",
            "auto",
            "author",
            "path",
            "sip",
            "tag",
            "psk1",
            "",
            "log_level",
            "tproxy_port",
            "record",
            "select",
            "user_agent",
            "passive_check",
        ] {
            assert!(!is_secret_key(key), "{key}");
        }
    }

    #[test]
    fn messages_keep_their_words_and_lose_credentials() {
        for (text, want) in [
            (
                "unknown outbound `ss://YWVz@h:1#x`",
                "unknown outbound `ss://***`",
            ),
            ("`https://u:p@h/x?t=1#f`", "`https://***@h/***`"),
            ("`https://h:1/s3cret` x", "`https://h:1/***` x"),
            ("`https://h?s3cret`", "`https://h?***`"),
            ("`https://h/`", "`https://h/`"),
            ("`file://a/b.txt?x`", "`file://a/b.txt?***`"),
            ("the link has no `scheme://`", "the link has no `scheme://`"),
            ("as in `a: 'ss://...'`", "as in `a: 'ss://...'`"),
            ("'trojan://a b@h' x", "'trojan://***' x"),
            (
                "node 2f1b6c1e-8f0a-4b7e-9a58-0123456789ab is",
                "node *** is",
            ),
            ("`bm9kZTE2LXBhc3N3b3JkLTEyMzQ1Njc4OTA`", "`***`"),
            ("`d41d8cd98f00b204e9800998ecf8427e`", "`***`"),
            (
                "group `Hong-Kong-01-Premium-Line-IEPL-2024`",
                "group `Hong-Kong-01-Premium-Line-IEPL-2024`",
            ),
            ("unknown key `tproxy_prot`", "unknown key `tproxy_prot`"),
        ] {
            assert_eq!(redact(text), want);
        }
    }

    #[test]
    fn lines_lose_what_stands_behind_secret_words() {
        let masked = |text: &str| {
            let mut out = text.to_owned();
            let mut ranges = line(text);
            ranges.sort_unstable();
            for (start, end) in ranges.into_iter().rev() {
                out.replace_range(start as usize..end as usize, "***");
            }
            out
        };
        for (text, want) in [
            ("secrt: 's3 cret' b: 1", "secrt: *** b: 1"),
            ("secret 's3cret'", "secret ***"),
            ("secret = hunter2 }", "secret = *** }"),
            ("passwd=hunter2 x b: 1", "passwd=*** b: 1"),
            ("'secret': hunter2", "'secret': ***"),
            ("secret => 'x'", "secret => ***"),
            ("secret { a: b }", "secret { a: b }"),
            ("filter: name(a)", "filter: name(a)"),
            ("secret:", "secret:"),
        ] {
            assert_eq!(masked(text), want);
        }
    }
}
