//! Reading on behind a syntax error: what of a broken section can be read, and what else is wrong.
//!
//! A body is read item by item from the last place that is known to begin one. Of a broken item
//! nothing is kept, nor of what stands in front of it on its line, because that may be part of it;
//! the section counts as incomplete, so nobody complains about what it lacks.

use pest::error::InputLocation;

use crate::{
    ast::{FileId, Item, Lit, Section, Span, Value},
    diag::Diagnostic,
    limits::DIAGNOSTICS,
    mask::Ranges,
    parse::{Error, Rule, read},
    prescan::Chunk,
    resume::Reader,
    syntax::{self, Rules, Start, Text},
    token::is_bare,
    tree::Builder,
};

/// How the items of a body are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Items,
    Links,
    Paths,
    Dns,
}

impl Body {
    /// Of a section, by its name and what it stands in.
    fn of(name: &Lit, within: Option<Self>) -> Self {
        match (within, name.text.as_str()) {
            _ if name.quoted => Self::Items,
            (None, "node" | "subscription") => Self::Links,
            (None, "include") => Self::Paths,
            (None, "dns") => Self::Dns,
            (Some(Self::Dns), "upstream" | "fixed_domain_ttl") => Self::Links,
            _ => Self::Items,
        }
    }

    /// The rule for all items that can be read.
    const fn some(self) -> Rule {
        match self {
            Self::Items => Rule::items,
            Self::Links => Rule::links,
            Self::Paths => Rule::paths,
            Self::Dns => Rule::dns_items,
        }
    }

    /// The rule for all items up to the closing brace.
    const fn rest(self) -> Rule {
        match self {
            Self::Items => Rule::rest_of_items,
            Self::Links => Rule::rest_of_links,
            Self::Paths => Rule::rest_of_paths,
            Self::Dns => Rule::rest_of_dns,
        }
    }
}

/// Reads what can be read of the broken chunks of one file.
pub(crate) struct Recovery<'a> {
    file: FileId,
    text: &'a str,
    hidden: &'a Ranges,
    /// Braces of the file that belong together, by the opening one.
    braces: Vec<(usize, usize)>,
    /// Quotes that are not closed, which is told already.
    quotes: Vec<usize>,
    /// How many findings the file has without `found`, those about quotes among them.
    told: usize,
    pub(crate) found: Vec<Diagnostic>,
}

impl<'a> Recovery<'a> {
    pub(crate) fn new(
        file: FileId,
        text: &'a str,
        hidden: &'a Ranges,
        mut braces: Vec<(usize, usize)>,
        quotes: Vec<usize>,
        told: usize,
    ) -> Self {
        braces.sort_unstable();
        Self {
            file,
            text,
            hidden,
            braces,
            quotes,
            told,
            found: Vec::new(),
        }
    }

    pub(crate) const fn has_quotes(&self) -> bool {
        !self.quotes.is_empty()
    }

    /// Reports the error that a chunk was refused with and those behind it; `base` is the offset
    /// of the text that the error is about. Returns what is left of the section.
    pub(crate) fn chunk(&mut self, chunk: &Chunk, base: usize, error: Error) -> Option<Section> {
        let at = place(base, &error);
        let whole = chunk.unclosed.is_empty();
        let close = chunk.open.and_then(|open| self.close_of(open));
        let (Some(open), Some(close), true) = (chunk.open, close, whole) else {
            self.report(chunk, base, &error, None);
            return None;
        };
        if at > open
            && let Some(name) = self.head(chunk.head)
        {
            return Some(self.section(chunk, name, None, (open, close), Some((base, error))));
        }
        self.report(chunk, base, &error, None);
        // What stands outside may have a sound section behind it.
        let name = self.head(chunk.head).filter(|_| at < chunk.head.0)?;
        let text = self.text.get(chunk.head.0..=close)?;
        let Err(error) = read(Rule::file, text) else {
            return Some(self.section(chunk, name, None, (open, close), None));
        };
        let inside = place(chunk.head.0, &error) > open;
        inside.then(|| {
            let first = Some((chunk.head.0, error));
            self.section(chunk, name, None, (open, close), first)
        })
    }

    /// Reads one body; `first` is the error that is known already and where its text begins.
    fn section(
        &mut self,
        chunk: &Chunk,
        name: Lit,
        within: Option<Body>,
        (open, close): (usize, usize),
        mut first: Option<(usize, Error)>,
    ) -> Section {
        let body = Body::of(&name, within);
        let mut items = Vec::new();
        let mut semicolon = false;
        let mut from = open + 1;
        // Each mistake costs a walk over the rest of the body: their number is limited, whether
        // they are told here or, as open quotes, were told before.
        while from <= close && self.told + self.found.len() <= DIAGNOSTICS {
            let Some(rest) = self.text.get(from..=close) else {
                break;
            };
            if semicolon {
                // Whoever ends one setting with a semicolon ends all of them so.
                let (good, stop) = self.good(body, from, close);
                if self.text[stop..].starts_with(';') {
                    items.extend(good);
                    from = stop + 1;
                    continue;
                }
            }
            let error = match read(body.rest(), rest) {
                Ok(pairs) => {
                    items.extend(pairs.flat_map(|pair| self.builder(from).items(pair)));
                    break;
                }
                Err(error) => error,
            };
            let (mut good, stop) = self.good(body, from, close);
            if self.is_brace(stop)
                && let Some(inner) = self.close_of(stop)
                && let Some(name) = good.pop_if(|last| may_name(last))
                && let Item::Stray(name) = name
            {
                items.extend(good);
                let inside = |base, error: &Error| (stop..inner).contains(&place(base, error));
                let known = first.take_if(|(base, error)| inside(*base, error));
                let sub = self.section(chunk, name, Some(body), (stop, inner), known);
                items.push(Item::Sub(sub));
                from = inner + 1;
                continue;
            }
            let whole = self.before_strays(&good, stop);
            let begin = good
                .get(whole)
                .map_or(stop, |item| item.span().start as usize);
            let at = place(from, &error);
            let (base, error) = first.take().unwrap_or((from, error));
            semicolon |= self.text[at..].starts_with(';');
            let rules = Rules::of(&name);
            let number = self.report(chunk, base, &error, Some(Start { at: begin, rules }));
            good.truncate(whole);
            let reader = Reader {
                text: self.text,
                braces: &self.braces,
                close,
            };
            let swallowed = good.last().and_then(|last| reader.swallowed(last, at));
            let quote = self.text[begin..].starts_with(['\'', '"']);
            if !self.may_begin(begin) {
                // The item in front goes on here, and with it the mistake.
                good.pop_if(|last| reader.same_line(last, begin));
            } else if quote {
                // A quote that is not closed is the value of the key in front of it.
                good.pop_if(|last| is_empty(last) && reader.same_line(last, begin));
            }
            items.extend(good);
            from = match (swallowed, number) {
                (Some(next), _) => next,
                (None, "E113") if reader.begins_line(at) && reader.looks_like_item(at) => at,
                (None, _) if matches!(body, Body::Links | Body::Paths) => reader.next_line(at),
                (None, _) => reader.resume(begin, at),
            };
        }
        Section {
            span: self.span(name.span.start as usize, close + 1),
            name,
            items,
            open_brace: open as u32,
            close_brace: close as u32,
        }
    }

    /// The items that can be read from a place on, and where that ends.
    fn good(&self, body: Body, from: usize, close: usize) -> (Vec<Item>, usize) {
        let text = self.text.get(from..close).unwrap_or_default();
        let pair = read(body.some(), text).ok().and_then(|mut p| p.next());
        pair.map_or((Vec::new(), from), |pair| {
            let end = from + pair.as_span().end();
            (self.builder(from).items(pair), end)
        })
    }

    /// How many items are in front of the words that end at a place on its line: of a broken item
    /// the parser reads the first words as strays.
    fn before_strays(&self, items: &[Item], stop: usize) -> usize {
        let mut next = stop;
        for (at, item) in items.iter().enumerate().rev() {
            let gap = self.text.get(item.span().end as usize..next);
            if !matches!(item, Item::Stray(_)) || gap.is_none_or(|g| g.contains(['\n', '\r'])) {
                return at + 1;
            }
            next = item.span().start as usize;
        }
        0
    }

    /// Whether what stands there may be the beginning of an item, or separates two.
    fn may_begin(&self, at: usize) -> bool {
        let rest = self.text.get(at..).unwrap_or_default();
        let word = rest.starts_with(|c: char| is_bare(c) || matches!(c, '\'' | '"' | ';'));
        word && !rest.starts_with("->") && !rest.starts_with("=>")
    }

    fn is_brace(&self, at: usize) -> bool {
        self.text.as_bytes().get(at) == Some(&b'{')
    }

    /// The closing brace of an opening one.
    fn close_of(&self, open: usize) -> Option<usize> {
        let at = self.braces.binary_search_by_key(&open, |pair| pair.0);
        at.ok().map(|at| self.braces[at].1)
    }

    /// The name of a section, if the word in front of a brace can be one.
    fn head(&self, word: (usize, usize)) -> Option<Lit> {
        let written = self.text.get(word.0..word.1)?;
        let quoted = written.starts_with(['\'', '"']);
        let text = written.trim_matches(['\'', '"']);
        let named = text.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        named.then(|| Lit {
            text: text.to_owned(),
            quoted,
            span: self.span(word.0, word.1),
        })
    }

    fn report(
        &mut self,
        chunk: &Chunk,
        base: usize,
        error: &Error,
        item: Option<Start>,
    ) -> &'static str {
        let at = place(base, error);
        let before = self.quotes.partition_point(|quote| *quote <= at);
        let quote = before.checked_sub(1).map(|before| self.quotes[before]);
        let line = quote.and_then(|quote| self.text.get(quote..at));
        if line.is_some_and(|line| !line.contains(['\n', '\r'])) {
            return "";
        }
        let text = Text {
            file: self.file,
            text: self.text,
            hidden: self.hidden,
        };
        let found = syntax::explain(text, chunk, item, base, error);
        let number = found.number;
        self.found.push(found);
        number
    }

    const fn builder(&self, base: usize) -> Builder {
        Builder {
            file: self.file,
            base: base as u32,
        }
    }

    const fn span(&self, start: usize, end: usize) -> Span {
        Span {
            file: self.file,
            start: start as u32,
            end: end as u32,
        }
    }
}

/// Whether a word may be the name of a section: what has a colon is a value.
fn may_name(item: &Item) -> bool {
    matches!(item, Item::Stray(word) if word.quoted || !word.text.contains(':'))
}

/// `key:` without a value.
fn is_empty(item: &Item) -> bool {
    matches!(item, Item::Decl(decl) if decl.value == Value::Empty)
}

/// Where an error is, in a text that begins at `base`.
pub(crate) fn place(base: usize, error: &pest::error::Error<Rule>) -> usize {
    base + match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    }
}
