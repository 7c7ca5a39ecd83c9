//! Which characters words are made of, for the passes that read text without the parser.
//! The same sets as `bare_char` and `lookalike` in `dae.pest`; a test compares the two.

/// Whether a character may stand inside a bare word.
pub(crate) fn is_bare(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || "_/\\^*.+-=@$!#%~?|".contains(c);
    }
    !c.is_whitespace() && !is_lookalike(c)
}

/// A text without the blanks and comments at its end.
pub(crate) fn trim_gap(text: &str) -> &str {
    let mut kept = text.trim_end();
    loop {
        let end = match kept.strip_suffix("*/").and_then(|t| t.rfind("/*")) {
            Some(at) => Some(at),
            None => comment_of_last_line(kept),
        };
        let Some(end) = end else { return kept };
        kept = kept[..end].trim_end();
    }
}

/// Where a line comment begins on the last line of a text.
fn comment_of_last_line(text: &str) -> Option<usize> {
    let line = text.rfind(['\n', '\r']).map_or(0, |at| at + 1);
    let mut quote = None;
    let mut fresh = true;
    for (at, c) in text[line..].char_indices() {
        match (quote, c) {
            (None, '#') if fresh => return Some(line + at),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
        fresh = quote.is_none() && !is_bare(c);
    }
    None
}

/// Whether a character only looks like ASCII punctuation.
const fn is_lookalike(c: char) -> bool {
    matches!(c,
        '\u{FEFF}'
        | '\u{2018}'..='\u{201F}'
        | '\u{FF01}'..='\u{FF0F}'
        | '\u{FF1A}'..='\u{FF20}'
        | '\u{FF3B}'..='\u{FF40}'
        | '\u{FF5B}'..='\u{FF65}')
}

/// The ASCII character somebody meant.
fn meant(c: char) -> Option<char> {
    match c {
        '\u{2018}'..='\u{201B}' => Some('\''),
        '\u{201C}'..='\u{201F}' => Some('"'),
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(c) - 0xFEE0),
        '\u{FF5F}' => Some('('),
        '\u{FF60}' => Some(')'),
        '\u{FF61}' | '\u{FF65}' => Some('.'),
        '\u{FF62}' | '\u{FF63}' => Some('"'),
        '\u{FF64}' => Some(','),
        _ => None,
    }
}

/// A character that may not stand where it stands, and what to say about it.
pub(crate) struct Odd {
    pub(crate) number: &'static str,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// Control characters are refused everywhere, tab and line ends excepted.
pub(crate) fn control(c: char) -> Option<Odd> {
    if !c.is_control() || matches!(c, '\t' | '\r' | '\n') {
        return None;
    }
    let name = if c == '\0' { " (NUL)" } else { "" };
    Some(Odd {
        number: "E102",
        message: format!(
            "control character U+{:04X}{name} is not allowed",
            u32::from(c)
        ),
        help: "remove it; only tab and line ends may appear".to_owned(),
    })
}

/// Blanks and punctuation that are not ASCII are refused outside quotes and comments.
pub(crate) fn lookalike(c: char) -> Option<Odd> {
    if c.is_ascii() || !(c.is_whitespace() || is_lookalike(c)) {
        return None;
    }
    let code = u32::from(c);
    let (message, help) = match meant(c) {
        Some(ascii) => (
            format!("`{c}` (U+{code:04X}) only looks like `{ascii}`"),
            format!("use ASCII `{ascii}`, or quote the whole text"),
        ),
        None if c == '\u{FEFF}' => (
            format!("invisible character U+{code:04X} inside the text"),
            "remove it".to_owned(),
        ),
        None => (
            format!("U+{code:04X} is not a plain space"),
            "use an ASCII space, or quote the whole text".to_owned(),
        ),
    };
    Some(Odd {
        number: "E103",
        message,
        help,
    })
}

/// Whether a whole text can be written without quotes as a value.
pub(crate) fn is_bare_value(text: &str) -> bool {
    let mut rest = text;
    if text.is_empty() || text.starts_with(['#', '!']) || text.starts_with("/*") {
        return false;
    }
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let opened = [":/*", "::/*"].iter().any(|open| rest.starts_with(open));
        if opened || rest.starts_with("->") {
            return false;
        } else if rest.starts_with("::") {
            rest = &rest[2..];
        } else if is_bare(c) || (c == ':' && bare_follows(after)) {
            rest = after;
        } else {
            return false;
        }
    }
    true
}

fn bare_follows(rest: &str) -> bool {
    !rest.starts_with("->") && rest.chars().next().is_some_and(is_bare)
}

#[cfg(test)]
mod tests {
    use pest::Parser as _;

    use super::*;
    use crate::parse::{Dae, Rule};

    fn accepted(wanted: Rule, text: &str) -> bool {
        Dae::parse(wanted, text).is_ok_and(|pairs| pairs.as_str() == text)
    }

    #[test]
    fn the_character_sets_are_those_of_the_grammar() {
        let interesting = (0..0x3200).chain(0xE000..0xE010).chain(0xFE00..0x1_0010);
        for c in interesting.filter_map(char::from_u32) {
            assert_eq!(
                accepted(Rule::bare, &format!("x{c}")),
                is_bare(c),
                "U+{:04X}",
                c as u32
            );
        }
    }

    #[test]
    fn bare_values_are_those_of_the_grammar() {
        for text in [
            "a",
            "a:b",
            "a:",
            ":a",
            "::1",
            "1::",
            "a::b",
            ":",
            "::",
            ":::",
            "#a",
            "a#b",
            "!a",
            "a!",
            "/*",
            "a/*",
            "a:/*",
            "a::/*",
            ":/*",
            "a:/",
            "a:b/*",
            "/a",
            "a->b",
            "a-",
            "a:->",
            "a b",
            "a,b",
            "",
            "\u{65E5}:1",
            "a:\u{FF1A}",
        ] {
            assert_eq!(
                accepted(Rule::bare_value, text),
                is_bare_value(text),
                "{text:?}"
            );
        }
    }
}
