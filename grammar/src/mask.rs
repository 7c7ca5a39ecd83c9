//! What must never be shown: links and the values of secret keys.
//!
//! Two sources. Where the file parsed, the tree knows every link and key. Where it did not, the
//! text of the line decides, and anything that could be a link is treated as one.

use crate::ast::{Annotation, Item, LinkItem, Lit, Section, Value};

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

/// Whether values of this key are masked in excerpts.
#[must_use]
pub fn is_secret_key(key: &str) -> bool {
    SECRET_KEYS.contains(&key)
}

/// Byte ranges to mask, in order.
pub(crate) fn secrets(sections: &[Section]) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    for section in sections {
        collect(section, &mut out);
    }
    out.sort_unstable();
    out
}

fn collect(section: &Section, out: &mut Vec<(u32, u32)>) {
    for item in &section.items {
        match item {
            Item::Link(link) => link_secrets(link, out),
            Item::Decl(decl) => {
                if is_secret_key(&decl.key.text) && decl.value != Value::Empty {
                    out.push((decl.value_span.start, decl.value_span.end));
                }
                annotation_secrets(decl.annotation.as_ref(), out);
            }
            Item::Sub(sub) => collect(sub, out),
            // A stray text may be a link in a section that takes none.
            Item::Stray(lit) => scheme_secret(lit, out),
            Item::Rule(_) | Item::Path(_) => {}
        }
    }
}

fn link_secrets(item: &LinkItem, out: &mut Vec<(u32, u32)>) {
    if item.link.text.contains("://") {
        scheme_secret(&item.link, out);
    } else if item.link.text.contains(['@', '?', '/']) {
        out.push((item.link.span.start, item.link.span.end));
    }
    annotation_secrets(item.annotation.as_ref(), out);
}

/// Everything behind `scheme://` up to the end of the value.
fn scheme_secret(lit: &Lit, out: &mut Vec<(u32, u32)>) {
    // Nothing in front of `://` can be an escape, so the offset in the text is the one in the file.
    if let Some(at) = lit.text.find("://") {
        let start = lit.span.start + u32::from(lit.quoted) + at as u32 + 3;
        out.push((start.min(lit.span.end), lit.span.end));
    }
}

fn annotation_secrets(annotation: Option<&Annotation>, out: &mut Vec<(u32, u32)>) {
    for note in annotation.iter().flat_map(|annotation| &annotation.notes) {
        if note
            .key
            .as_ref()
            .is_some_and(|key| is_secret_key(&key.text))
        {
            let start = note
                .key
                .as_ref()
                .map_or(note.span.start, |key| key.span.end + 1);
            out.push((start.min(note.span.end), note.span.end));
        }
    }
}

/// Ranges to mask in one line whose structure is unknown.
pub(crate) fn guess(line: &str) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    for (at, _) in line.match_indices("://") {
        out.push((at + 3, value_end(line, at + 3)));
    }
    for (at, _) in line.match_indices(':') {
        let key = line[..at].trim_end_matches([' ', '\t', '\'', '"']);
        let key = key
            .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next();
        if key.is_some_and(is_secret_key) {
            let rest = &line[at + 1..];
            let start = at + 1 + (rest.len() - rest.trim_start_matches([' ', '\t']).len());
            out.push((start, secret_end(line, start)));
        }
    }
    out.sort_unstable();
    out
}

/// End of a value that began somewhere before `from`: the quote that was open there, or the end
/// of the word.
fn value_end(line: &str, from: usize) -> usize {
    let open = line[..from].rfind(['\'', '"']);
    let quote = open.and_then(|at| line[at..].chars().next());
    // An even number of such quotes in front means that none is open.
    let quote = quote.filter(|q| line[..from].matches(*q).count() % 2 == 1);
    let rest = &line[from..];
    let end = match quote {
        Some(quote) => rest.find(quote),
        None => rest.find(|c: char| c.is_whitespace()),
    };
    end.map_or(line.len(), |at| from + at)
}

/// End of the value that begins at `start`. An unquoted one is hidden to the end of the line,
/// because what broke the syntax may be part of it.
fn secret_end(line: &str, start: usize) -> usize {
    let rest = &line[start..];
    match rest.chars().next() {
        Some(quote @ ('\'' | '"')) => rest[1..]
            .find(quote)
            .map_or(line.len(), |at| start + at + 2),
        _ => line.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(line: &str) -> String {
        let mut out = line.to_owned();
        for (start, end) in guess(line).into_iter().rev() {
            out.replace_range(start..end.min(out.len()), "***");
        }
        out
    }

    #[test]
    fn a_guess_hides_links_and_secret_values() {
        assert_eq!(masked("a: 'ss://x y@h' z"), "a: 'ss://***' z");
        assert_eq!(masked("a: ss://x@h b"), "a: ss://*** b");
        assert_eq!(masked("secret: 'a;b' x: 1"), "secret: *** x: 1");
        assert_eq!(masked("secret: a;b"), "secret: ***");
        assert_eq!(masked("log_level: info;"), "log_level: info;");
    }
}
