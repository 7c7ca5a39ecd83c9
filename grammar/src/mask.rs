//! What must never be shown: links and the values of secret keys.
//!
//! Two sources. Where the file parsed, the tree knows every link and key. Where it did not, the
//! text of the line decides, and anything that could be a link is treated as one.

use crate::{
    ast::{Annotation, Item, Lit, Section, Value},
    redact::{self, is_secret_key},
};

/// The text of a file with links and secret values as `***`, for people who compare texts.
#[must_use]
pub fn masked(text: &str) -> String {
    let parsed = crate::load::parse_text("", text);
    let plain = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let mut shown = String::with_capacity(plain.len());
    let mut from = 0;
    // Comments and ordinary values by their look: a link that is commented out is still one.
    let looks = lines(plain);
    for (start, end) in secrets(plain, &parsed.sections, Some(looks)) {
        let (start, end) = (start as usize, end as usize);
        shown.push_str(plain.get(from..start).unwrap_or_default());
        shown.push_str("***");
        from = end;
    }
    shown.push_str(plain.get(from..).unwrap_or_default());
    shown
}

/// What looks like a secret, line by line.
fn lines(text: &str) -> Ranges {
    let mut out = Ranges::new();
    let mut at = 0;
    for line in text.split_inclusive(['\n', '\r']) {
        let found = redact::line(line.trim_end_matches(['\n', '\r']));
        out.extend(found.into_iter().map(|(from, to)| (from + at, to + at)));
        at += line.len() as u32;
    }
    out
}

/// Byte ranges, in order, none touching the next.
pub(crate) type Ranges = Vec<(u32, u32)>;

/// Byte ranges of one file to mask: what the tree knows, and what was guessed.
pub(crate) fn secrets(text: &str, sections: &[Section], guessed: Option<Ranges>) -> Ranges {
    let mut collect = Collect {
        text,
        out: guessed.unwrap_or_default(),
    };
    for section in sections {
        collect.section(section);
    }
    merged(collect.out)
}

pub(crate) fn merged(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joined = next.0 <= last.1;
        if joined {
            last.1 = last.1.max(next.1);
        }
        joined
    });
    ranges.retain(|range| range.0 < range.1);
    ranges
}

struct Collect<'a> {
    text: &'a str,
    out: Ranges,
}

impl Collect<'_> {
    fn section(&mut self, section: &Section) {
        let nodes = matches!(section.name.text.as_str(), "node" | "subscription");
        for item in &section.items {
            match item {
                Item::Link(link) => {
                    // Without a scheme it is no address, but it may be what belongs behind one.
                    let bare = nodes || link.link.text.contains(['@', '?', '/']);
                    if !self.link(&link.link) && bare {
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

/// Ranges to mask in a text whose structure is unknown, judged line by line.
pub(crate) fn guess(text: &str) -> Ranges {
    let mut out = Vec::new();
    let mut at = 0;
    for line in text.split(['\n', '\r']) {
        guess_line(line, at, &mut out);
        at += line.len() + 1;
    }
    merged(out)
}

/// One walk from left to right: a hostile line may have thousands of values.
fn guess_line(line: &str, base: usize, out: &mut Ranges) {
    let mut ahead = Ahead::new(line);
    let mut open = Quotes::default();
    let mut put = |from: usize, to: usize| {
        out.push(((base + from) as u32, (base + to) as u32));
    };
    let bytes = line.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        open.see(*byte);
        if *byte != b':' {
            continue;
        }
        if bytes[at..].starts_with(b"://") {
            let from = at + 3;
            let end = match open.quote {
                Some(quote) => ahead.next(quote, from),
                None => ahead.blank(from),
            };
            put(from, end);
        }
        let key = line[..at].trim_end_matches([' ', '\t', '\'', '"']);
        let key = key
            .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next();
        if key.is_some_and(is_secret_key) {
            let rest = &line[at + 1..];
            let from = at + 1 + (rest.len() - rest.trim_start_matches([' ', '\t']).len());
            // An unquoted value is hidden to the end of the line, because what broke the syntax
            // may be part of it.
            let end = match bytes.get(from) {
                Some(quote @ (b'\'' | b'"')) => (ahead.next(*quote, from + 1) + 1).min(line.len()),
                _ => line.len(),
            };
            put(from, end);
        }
    }
}

/// The quote that is open: the one seen last, if it was seen an odd number of times.
#[derive(Default)]
struct Quotes {
    odd: [bool; 2],
    quote: Option<u8>,
}

impl Quotes {
    fn see(&mut self, byte: u8) {
        let at = match byte {
            b'\'' => 0,
            b'"' => 1,
            _ => return,
        };
        self.odd[at] ^= true;
        self.quote = self.odd[at].then_some(byte);
    }
}

/// Where the next quotes and blanks are. Asked from left to right, it reads the line once.
struct Ahead<'a> {
    line: &'a str,
    single: usize,
    double: usize,
    blank: usize,
}

impl<'a> Ahead<'a> {
    fn new(line: &'a str) -> Self {
        Self {
            line,
            single: 0,
            double: 0,
            blank: 0,
        }
    }

    /// The first such quote from an offset on; without one the end of the line.
    fn next(&mut self, quote: u8, from: usize) -> usize {
        let found = match quote {
            b'"' => &mut self.double,
            _ => &mut self.single,
        };
        let bytes = self.line.as_bytes();
        if *found < from || bytes.get(*found).is_some_and(|byte| *byte != quote) {
            let at = bytes[from..].iter().position(|byte| *byte == quote);
            *found = at.map_or(bytes.len(), |at| from + at);
        }
        *found
    }

    /// The first white space from an offset on; without one the end of the line.
    fn blank(&mut self, from: usize) -> usize {
        if self.blank < from {
            let at = self.line[from..].find(char::is_whitespace);
            self.blank = at.map_or(self.line.len(), |at| from + at);
        }
        self.blank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(line: &str) -> String {
        let mut out = line.to_owned();
        for (start, end) in guess(line).into_iter().rev() {
            out.replace_range(start as usize..end as usize, "***");
        }
        out
    }

    #[test]
    fn a_whole_text_loses_what_gives_access() {
        let text = "global {\n check_url: 'https://u:canary@h.example/canary?t=canary' # ss://canary@h:1\n\
                     log_level: info\n secret: canary }\n# a: 'trojan://canary@h'\n\
                    node { a: 'ss://canary@h' }\r\nx: uuid: canary # token: canary";
        let shown = super::masked(text);
        assert!(!shown.contains("canary"), "{shown}");
        for kept in [
            "https://***@h.example/***",
            "log_level: info",
            "# a: 'trojan://***'",
        ] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        // Lines stay lines: texts are compared by them.
        let count = |text: &str| text.split(['\n', '\r']).count();
        assert_eq!(count(&shown), count(text));
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
