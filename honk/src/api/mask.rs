//! Tokens of the listeners must not come back in texts that an operator wrote elsewhere, such
//! as the URL of an icon.

/// Shorter tokens are left alone: they would be found in ordinary words.
const SHORTEST: usize = 8;

/// The tokens, in every spelling that is looked for.
#[derive(Clone, Default)]
pub(crate) struct Mask(Vec<String>);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Mask {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let secrets = secrets.into_iter().filter(|s| s.len() >= SHORTEST);
        let mut spellings: Vec<String> = secrets
            .flat_map(|s| [s.to_owned(), percent(s, true), percent(s, false)])
            .collect();
        spellings.sort_unstable();
        spellings.dedup();
        // A token that contains another one goes first.
        spellings.sort_by_key(|s| std::cmp::Reverse(s.len()));
        Self(spellings)
    }

    /// The text with `***` for every token.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.0.iter().filter(|s| !s.is_empty()) {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "***");
            }
        }
        text
    }
}

/// Everything but letters, digits and `-._~` as `%XX`.
fn percent(text: &str, upper: bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => safe.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => safe.push(char::from(byte)),
            byte if upper => safe.push_str(&format!("%{byte:02X}")),
            byte => safe.push_str(&format!("%{byte:02x}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_in_every_spelling_and_short_ones_stay() {
        let mask = Mask::new(["se/cret:token", "short", "se/cret:token-longer"]);
        for (text, shown) in [
            ("https://x/?t=se/cret:token&y", "https://x/?t=***&y"),
            ("https://x/?t=se%2Fcret%3Atoken", "https://x/?t=***"),
            ("https://x/?t=se%2fcret%3atoken", "https://x/?t=***"),
            ("se/cret:token-longer", "***"),
            ("a short secret", "a short secret"),
        ] {
            assert_eq!(mask.text(text), shown);
        }
        assert_eq!(format!("{mask:?}"), "***");
        assert_eq!(Mask::default().text("x"), "x");
    }
}
