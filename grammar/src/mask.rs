//! What must never be shown: links and the values of secret keys.
//!
//! Two sources. Where the file parsed, the tree knows every link and key. Where it did not, the
//! text of the line decides, and anything that could be a link is treated as one.

use crate::ast::{Annotation, Item, Lit, Section, Value};

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

/// Byte ranges of one file to mask, in order.
pub(crate) fn secrets(text: &str, sections: &[Section]) -> Vec<(u32, u32)> {
    let mut collect = Collect {
        text,
        out: Vec::new(),
    };
    for section in sections {
        collect.section(section);
    }
    collect.out.sort_unstable();
    collect.out
}

struct Collect<'a> {
    text: &'a str,
    out: Vec<(u32, u32)>,
}

impl Collect<'_> {
    fn section(&mut self, section: &Section) {
        for item in &section.items {
            match item {
                Item::Link(link) => {
                    if !self.link(&link.link) && link.link.text.contains(['@', '?', '/']) {
                        self.out.push((link.link.span.start, link.link.span.end));
                    }
                    self.annotation(link.annotation.as_ref());
                }
                Item::Decl(decl) => {
                    if is_secret_key(&decl.key.text) && decl.value != Value::Empty {
                        self.out.push((decl.value_span.start, decl.value_span.end));
                    }
                    self.annotation(decl.annotation.as_ref());
                }
                Item::Sub(sub) => self.section(sub),
                // May be a link in a section that takes none.
                Item::Stray(lit) => {
                    self.link(lit);
                }
                Item::Rule(_) | Item::Path(_) => {}
            }
        }
    }

    /// Everything behind `scheme://` up to the end of the value; false when there is no scheme.
    fn link(&mut self, lit: &Lit) -> bool {
        let (start, end) = (lit.span.start as usize, lit.span.end as usize);
        let written = self.text.get(start..end).unwrap_or_default();
        let Some(at) = written.find("://") else {
            return false;
        };
        let quote = usize::from(written.starts_with(['\'', '"']));
        self.out
            .push((lit.span.start + at as u32 + 3, (end - quote) as u32));
        true
    }

    fn annotation(&mut self, annotation: Option<&Annotation>) {
        for note in annotation.iter().flat_map(|annotation| &annotation.notes) {
            if let Some(key) = note.key.as_ref().filter(|key| is_secret_key(&key.text)) {
                self.out
                    .push(((key.span.end + 1).min(note.span.end), note.span.end));
            }
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
