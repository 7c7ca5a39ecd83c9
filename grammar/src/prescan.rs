//! One linear pass over the raw text before the parser sees it.
//!
//! It reports what a grammar explains badly (control characters, look-alike punctuation, open
//! quotes and comments), enforces the size limits, and cuts the text into brace-matched top-level
//! chunks so that one broken section does not hide the others. It knows just enough of the
//! language to tell quotes and comments from words; it never decides what a word means.

mod comment;

use crate::{
    ast::{FileId, Span},
    diag::Diagnostic,
    limits::{DIAGNOSTICS, LINE_BYTES, NESTING, QUOTED_BYTES},
    token::{self, Odd, is_bare},
};

/// What the pass found out about one file.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The text must not be parsed.
    pub(crate) fatal: bool,
    pub(crate) chunks: Vec<Chunk>,
    /// Quotes that are not closed; braces behind them on their lines do not count.
    pub(crate) quotes: Vec<usize>,
    /// Offsets of all braces that belong together, the inner ones first.
    pub(crate) braces: Vec<(usize, usize)>,
    /// What was meant for comments, from `//` to the line end: told once, and then passed over.
    pub(crate) slashes: Vec<(usize, usize)>,
}

/// A top-level stretch of text: one section with the blanks before it, or what is left over.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// First word of the chunk, quotes included.
    pub(crate) name: (usize, usize),
    /// The word in front of its opening brace, quotes included.
    pub(crate) head: (usize, usize),
    /// Offset of its opening brace.
    pub(crate) open: Option<usize>,
    /// Sections still open at the end of the file, innermost last.
    pub(crate) unclosed: Vec<Open>,
    /// Holds a character that was reported; parsing it would only repeat that.
    pub(crate) tainted: bool,
}

/// An open section.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The word in front of the brace.
    pub(crate) name: (usize, usize),
    pub(crate) brace: usize,
    body: Body,
}

/// How the body of a section is cut into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Plain,
    /// Links run to the next blank, quote or brace.
    Links,
    Paths,
    /// `dns`, whose subsections may hold links.
    Dns,
}

struct Scanner<'a> {
    text: &'a str,
    file: FileId,
    at: usize,
    line_start: usize,
    /// A token may start here, so `#` and `/*` begin comments.
    fresh: bool,
    /// The word being read or read last.
    word: Option<(usize, usize)>,
    /// Inside `[...]` of a link body, where ordinary punctuation counts again.
    bracket: bool,
    /// A colon was seen in the current word.
    colon: bool,
    stack: Vec<Open>,
    chunk_start: usize,
    chunk_name: Option<(usize, usize)>,
    /// The first opening brace, and the word in front of it.
    chunk_open: Option<(usize, (usize, usize))>,
    tainted: bool,
    out: Scan,
}

/// Scans one file.
pub(crate) fn scan(file: FileId, text: &str) -> Scan {
    let mut scanner = Scanner {
        text,
        file,
        at: 0,
        line_start: 0,
        fresh: true,
        word: None,
        bracket: false,
        colon: false,
        stack: Vec::new(),
        chunk_start: 0,
        chunk_name: None,
        chunk_open: None,
        tainted: false,
        out: Scan::default(),
    };
    if scanner.run().is_none() {
        scanner.out.fatal = true;
    }
    scanner.finish();
    scanner.out
}

impl Scanner<'_> {
    /// `None` when the file must not be parsed.
    fn run(&mut self) -> Option<()> {
        while let Some(byte) = self.byte(self.at) {
            match byte {
                b' ' | b'\t' => self.blank(1),
                b'\r' | b'\n' => self.newline()?,
                b'#' if self.fresh => self.line_comment()?,
                b'/' if self.fresh && self.byte(self.at + 1) == Some(b'*') => {
                    self.block_comment()?;
                }
                b'/' if self.fresh && self.is_slash_comment() => self.slash_comment()?,
                b'\'' | b'"' => self.quoted(byte)?,
                b'{' => self.open()?,
                b'}' => self.close(),
                _ => self.word_char(),
            }
        }
        self.check_line(self.at)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn char(&self) -> Option<char> {
        self.text
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span {
            file: self.file,
            start: start as u32,
            end: end as u32,
        }
    }

    fn blank(&mut self, len: usize) {
        self.fresh = true;
        self.at += len;
    }

    fn newline(&mut self) -> Option<()> {
        self.check_line(self.at)?;
        let crlf = self.text.as_bytes().get(self.at..self.at + 2) == Some(b"\r\n".as_slice());
        self.blank(if crlf { 2 } else { 1 });
        self.line_start = self.at;
        self.bracket = false;
        Some(())
    }

    fn check_line(&mut self, end: usize) -> Option<()> {
        if end - self.line_start <= LINE_BYTES {
            return Some(());
        }
        let mut at = self.line_start + LINE_BYTES;
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        self.fatal(
            "E106",
            at,
            at,
            format!("a line is longer than {LINE_BYTES} bytes"),
            "break the line; lists and arguments may continue after a comma",
        )
    }

    fn quoted(&mut self, quote: u8) -> Option<()> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.byte(self.at) {
                None | Some(b'\r' | b'\n') => {
                    self.unclosed_quote(start, quote);
                    return Some(());
                }
                Some(b'\\') if self.byte(self.at + 1) == Some(quote) => self.at += 2,
                Some(byte) if byte == quote => break,
                Some(_) => self.inert_char(),
            }
        }
        self.at += 1;
        if self.at - start - 2 > QUOTED_BYTES {
            return self.fatal(
                "E106",
                start,
                start + 1,
                format!("quoted text is longer than {QUOTED_BYTES} bytes"),
                "split the list over several quoted items",
            );
        }
        self.see_word(start, self.at);
        self.fresh = true;
        Some(())
    }

    /// Reports a quote and reads on as if it were closed: only what it belongs to is lost.
    fn unclosed_quote(&mut self, start: usize, quote: u8) {
        self.out.quotes.push(start);
        self.see_word(start, self.at);
        self.fresh = true;
        if self.out.diagnostics.len() <= DIAGNOSTICS {
            let help = format!(
                "add the closing `{}`; text in quotes cannot continue on the next line",
                char::from(quote)
            );
            let span = self.span(start, start + 1);
            let message = "quoted text is not closed on its line";
            let found = Diagnostic::error("E104", "parse", span, message);
            self.out.diagnostics.push(found.help(help));
        }
    }

    fn open(&mut self) -> Option<()> {
        let name = self.word.take().unwrap_or((self.at, self.at));
        if self.stack.len() >= NESTING {
            return self.fatal(
                "E106",
                self.at,
                self.at + 1,
                format!("sections are nested deeper than {NESTING}"),
                "a closing `}` may be missing above",
            );
        }
        let body = self.body_of(name);
        self.stack.push(Open {
            name,
            brace: self.at,
            body,
        });
        self.chunk_open.get_or_insert((self.at, name));
        self.at += 1;
        self.fresh = true;
        self.bracket = false;
        Some(())
    }

    fn close(&mut self) {
        self.at += 1;
        self.fresh = true;
        self.word = None;
        self.bracket = false;
        if let Some(open) = self.stack.pop() {
            self.out.braces.push((open.brace, self.at - 1));
        }
        if self.stack.is_empty() {
            self.cut();
        }
    }

    fn body_of(&self, name: (usize, usize)) -> Body {
        let word = self.text.get(name.0..name.1).unwrap_or_default();
        match (
            self.stack.last().map(|open| open.body),
            self.stack.len(),
            word,
        ) {
            (None, 0, "node" | "subscription") => Body::Links,
            (None, 0, "include") => Body::Paths,
            (None, 0, "dns") => Body::Dns,
            (Some(Body::Dns), 1, "upstream" | "fixed_domain_ttl") => Body::Links,
            _ => Body::Plain,
        }
    }

    /// A character of a comment or quoted text: only controls matter.
    fn inert_char(&mut self) {
        let Some(c) = self.char() else { return };
        if let Some(odd) = token::control(c) {
            self.taint(c, odd);
        }
        self.at += c.len_utf8();
    }

    fn word_char(&mut self) {
        let Some(c) = self.char() else { return };
        let start = self.at;
        if let Some(odd) = token::control(c).or_else(|| token::lookalike(c)) {
            self.taint(c, odd);
            return self.blank(c.len_utf8());
        }
        self.at += c.len_utf8();
        let starts = self.fresh;
        if starts {
            self.colon = false;
        }
        if self.text.as_bytes().get(start..start + 2) == Some(b"->".as_slice()) {
            self.at = start + 2;
            self.fresh = true;
            return;
        }
        self.fresh = match self.stack.last().map_or(Body::Plain, |open| open.body) {
            Body::Plain | Body::Dns => !is_bare(c),
            Body::Paths => false,
            Body::Links => self.link_char(c, starts),
        };
        if !self.fresh {
            if starts || self.word.is_none_or(|word| word.1 != start) {
                self.see_word(start, self.at);
            } else if let Some(word) = &mut self.word {
                word.1 = self.at;
                if self.stack.is_empty() && self.chunk_name.is_some_and(|n| n.1 == start) {
                    self.chunk_name = Some(*word);
                }
            }
        }
    }

    /// Whether a token may start after this character of a link body.
    fn link_char(&mut self, c: char, starts: bool) -> bool {
        if c == '[' && starts {
            self.bracket = true;
        }
        if self.bracket {
            self.bracket = c != ']';
            return !is_bare(c);
        }
        let tag_colon = c == ':'
            && !self.colon
            && self.text.as_bytes().get(self.at..self.at + 2) != Some(b"//".as_slice());
        self.colon |= c == ':';
        tag_colon
    }

    fn see_word(&mut self, start: usize, end: usize) {
        self.word = Some((start, end));
        if self.stack.is_empty() && self.chunk_name.is_none() {
            self.chunk_name = self.word;
        }
    }

    /// Reports a character and marks its section.
    fn taint(&mut self, c: char, odd: Odd) {
        self.tainted = true;
        if self.out.diagnostics.len() <= DIAGNOSTICS {
            let span = self.span(self.at, self.at + c.len_utf8());
            let diagnostic = Diagnostic::error(odd.number, "parse", span, odd.message);
            self.out.diagnostics.push(diagnostic.help(odd.help));
        }
    }

    fn fatal(
        &mut self,
        number: &'static str,
        start: usize,
        end: usize,
        message: impl Into<String>,
        help: &str,
    ) -> Option<()> {
        let span = self.span(start, end);
        self.out
            .diagnostics
            .push(Diagnostic::error(number, "parse", span, message).help(help));
        None
    }

    /// Ends the current chunk here.
    fn cut(&mut self) {
        let open = self.chunk_open.take();
        self.out.chunks.push(Chunk {
            start: self.chunk_start,
            end: self.at,
            name: self
                .chunk_name
                .take()
                .unwrap_or((self.chunk_start, self.chunk_start)),
            head: open.map_or((self.chunk_start, self.chunk_start), |open| open.1),
            open: open.map(|open| open.0),
            unclosed: std::mem::take(&mut self.stack),
            tainted: std::mem::take(&mut self.tainted),
        });
        self.chunk_start = self.at;
    }

    fn finish(&mut self) {
        let rest = self.chunk_name.is_some() || !self.stack.is_empty() || self.tainted;
        let punctuation = !self
            .text
            .get(self.chunk_start..)
            .unwrap_or_default()
            .trim()
            .is_empty();
        if rest || punctuation {
            self.at = self.text.len();
            self.cut();
        }
        self.tell_slashes();
    }
}

impl Chunk {
    /// The text as one piece, for errors that belong to no section.
    pub(crate) fn whole(text: &str) -> Self {
        Self {
            start: 0,
            end: text.len(),
            name: (0, 0),
            head: (0, 0),
            open: Some(0),
            unclosed: Vec::new(),
            tainted: false,
        }
    }
}
