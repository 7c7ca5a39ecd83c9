//! How a text is written: with quotes or without, with which quotes, with or without a blank
//! behind a colon. The canonical form has one spelling for each meaning.
//!
//! What stands there without quotes can be read by every program of the family, which know fewer
//! characters than this language does; patterns and addresses read better in quotes anyway.

use crate::ast::{Arg, Lit};

/// Argument keys of all functions: before the colon of an argument written without blanks,
/// only these separate a key.
const ARGUMENT_KEYS: &[&str] = &[
    "suffix",
    "domain",
    "full",
    "keyword",
    "contains",
    "regex",
    "geosite",
    "geoip",
    "ext",
    "tag",
    "tag_regex",
    "link_keyword",
    "link_regex",
    "name",
    "name_keyword",
    "name_regex",
    "subtag",
    "subtag_regex",
    "mark",
];

/// Names of sections whose body reads differently, but only without quotes.
const BARE_ONLY: &[&str] = &[
    "include",
    "node",
    "subscription",
    "dns",
    "upstream",
    "fixed_domain_ttl",
];

impl Arg {
    /// Key and value, as the function sees them: in `aa:bb:cc` there is no key.
    #[must_use]
    pub fn parts(&self) -> (Option<&Lit>, &str) {
        match &self.key {
            Some(key) if self.spaced || ARGUMENT_KEYS.contains(&key.text.as_str()) => {
                (Some(key), &self.value.text)
            }
            Some(_) => (None, &self.raw),
            None => (None, &self.value.text),
        }
    }
}

/// The spelling of a name or value; `None` when no quotes fit.
pub(crate) fn word(text: &str) -> Option<String> {
    if is_plain(text) {
        return Some(text.to_owned());
    }
    quoted(text)
}

/// The text in quotes; `None` when none fit.
pub(crate) fn quoted(text: &str) -> Option<String> {
    let fits = |quote| !text.contains(quote) && !text.ends_with('\\');
    let quote = ['\'', '"'].into_iter().find(|quote| fits(*quote))?;
    Some(format!("{quote}{text}{quote}"))
}

/// The spelling of a path of `include`; `None` when it needs the quotes that it has.
pub(crate) fn path(text: &str) -> Option<String> {
    let inside = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '{' | '}');
    let odd = text.is_empty()
        || text.contains(inside)
        || text.starts_with(['#', '!'])
        || text.starts_with("/*")
        || text.ends_with([',', ':']);
    (!odd).then(|| text.to_owned())
}

/// The spelling of a section name; `None` when it means something else in quotes.
pub(crate) fn section(name: &Lit) -> Option<String> {
    if name.quoted && BARE_ONLY.contains(&name.text.as_str()) {
        return None;
    }
    word(&name.text)
}

/// A link without tag. In quotes, a colon that is not part of a scheme would end a tag.
pub(crate) fn untagged(text: &str) -> Option<String> {
    let colon = text.find(':');
    if colon.is_some_and(|at| !text[at + 1..].starts_with("//")) {
        return None;
    }
    quoted(text)
}

/// Whether a text stands without quotes: words, numbers, names, networks, durations.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+@!".contains(c);
    !text.is_empty() && text.chars().all(plain) && !text.starts_with('!') && !text.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_stand_where_they_are_needed_and_nowhere_else() {
        for (text, spelling) in [
            ("info", "info"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("geolocation-!cn", "geolocation-!cn"),
            ("domain++", "domain++"),
            ("-500ms", "-500ms"),
            ("", "''"),
            ("!a", "'!a'"),
            ("//a", "'//a'"),
            ("a b", "'a b'"),
            ("2001:db8::/32", "'2001:db8::/32'"),
            (r"\.com$", r"'\.com$'"),
            ("eth*", "'eth*'"),
            ("it's", "\"it's\""),
            ("say \"x\"", "'say \"x\"'"),
            ("\u{65E5}", "'\u{65E5}'"),
        ] {
            assert_eq!(word(text).as_deref(), Some(spelling), "{text}");
        }
        assert_eq!(word("a'b\"c"), None);
        assert_eq!(word("a b\\"), None);
        assert_eq!(untagged("ss://a").as_deref(), Some("'ss://a'"));
        assert_eq!(untagged("a:b"), None);
        assert_eq!(path("a/*.dae").as_deref(), Some("a/*.dae"));
        for text in ["", "a b", "#a", "!a", "/*", "a,", "a:", "a'", "a}"] {
            assert_eq!(path(text), None, "{text}");
        }
    }
}
