//! From the parser's pairs to the syntax tree: resolves quotes, keeps places, drops punctuation.
//! Called by `parse` for text the grammar accepted, so every shape it meets is a legal one.

use pest::iterators::Pair;

use crate::{
    ast::{
        Annotation, Arg, Call, Decl, FileId, Item, LinkItem, Lit, Note, Out, Rule as RuleItem,
        Section, Span, Value, Via,
    },
    parse::Rule,
};

/// Builds the tree of one piece of text that begins at byte `base` of its file.
pub(crate) struct Builder {
    pub(crate) file: FileId,
    pub(crate) base: u32,
}

impl Builder {
    /// All top-level sections below a `file` pair.
    pub(crate) fn file(&self, file: Pair<'_, Rule>) -> Vec<Section> {
        file.into_inner()
            .filter(|pair| pair.as_rule() != Rule::EOI)
            .map(|pair| self.section(pair))
            .collect()
    }

    /// The items below a pair that holds nothing else but its closing brace.
    pub(crate) fn items(&self, body: Pair<'_, Rule>) -> Vec<Item> {
        body.into_inner()
            .filter(|pair| pair.as_rule() != Rule::rbrace)
            .map(|pair| self.item(pair))
            .collect()
    }

    fn at(&self, start: usize, end: usize) -> Span {
        Span {
            file: self.file,
            start: self.base + start as u32,
            end: self.base + end as u32,
        }
    }

    fn span(&self, pair: &Pair<'_, Rule>) -> Span {
        let span = pair.as_span();
        self.at(span.start(), span.end())
    }

    fn section(&self, pair: Pair<'_, Rule>) -> Section {
        let span = self.span(&pair);
        let mut name = self.keyword(&pair);
        let mut items = Vec::new();
        let (mut open_brace, mut close_brace) = (span.start, span.end);
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name => name = self.lit(inner),
                Rule::lbrace => open_brace = self.span(&inner).start,
                Rule::rbrace => close_brace = self.span(&inner).start,
                _ => items.push(self.item(inner)),
            }
        }
        Section {
            name,
            items,
            open_brace,
            close_brace,
            span,
        }
    }

    /// The fixed name of a section whose grammar rule spells it.
    fn keyword(&self, pair: &Pair<'_, Rule>) -> Lit {
        let word = match pair.as_rule() {
            Rule::include_section => "include",
            Rule::node_section => "node",
            Rule::subscription_section => "subscription",
            Rule::dns_section => "dns",
            Rule::upstream_section => "upstream",
            Rule::ttl_section => "fixed_domain_ttl",
            _ => "",
        };
        let start = pair.as_span().start();
        Lit {
            text: word.to_owned(),
            quoted: false,
            span: self.at(start, start + word.len()),
        }
    }

    fn item(&self, pair: Pair<'_, Rule>) -> Item {
        match pair.as_rule() {
            Rule::rule => Item::Rule(self.rule(pair)),
            Rule::declaration => Item::Decl(self.declaration(pair)),
            Rule::link_item => Item::Link(self.link_item(pair)),
            Rule::include_item => Item::Path(self.lit(pair)),
            Rule::stray => Item::Stray(self.lit(pair)),
            _ => Item::Sub(self.section(pair)),
        }
    }

    fn declaration(&self, pair: Pair<'_, Rule>) -> Decl {
        let span = self.span(&pair);
        let mut key = self.nothing(span.start);
        let mut value = Value::Empty;
        let mut value_span = span;
        let mut annotation = None;
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name => key = self.lit(inner),
                Rule::colon => {
                    let end = self.span(&inner).end;
                    value_span = Span {
                        start: end,
                        end,
                        ..span
                    };
                }
                Rule::value => {
                    value_span = self.span(&inner);
                    value = self.value(inner);
                }
                Rule::annotation => annotation = Some(self.annotation(inner)),
                _ => {}
            }
        }
        Decl {
            key,
            value,
            value_span,
            annotation,
            span,
        }
    }

    fn value(&self, pair: Pair<'_, Rule>) -> Value {
        let mut literals = Vec::new();
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::functions => return Value::Calls(self.calls(inner)),
                Rule::literal => literals.push(self.lit(inner)),
                _ => {}
            }
        }
        Value::Literals(literals)
    }

    fn annotation(&self, pair: Pair<'_, Rule>) -> Annotation {
        let span = self.span(&pair);
        let notes = pair
            .into_inner()
            .filter(|inner| inner.as_rule() == Rule::note)
            .map(|inner| self.note(inner))
            .collect();
        Annotation { notes, span }
    }

    fn note(&self, pair: Pair<'_, Rule>) -> Note {
        let span = self.span(&pair);
        let mut key = None;
        let mut value = Value::Empty;
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::arg_key => key = Some(self.lit(inner)),
                Rule::functions => value = Value::Calls(self.calls(inner)),
                Rule::literal => value = Value::Literals(vec![self.lit(inner)]),
                _ => {}
            }
        }
        Note { key, value, span }
    }

    fn rule(&self, pair: Pair<'_, Rule>) -> RuleItem {
        let span = self.span(&pair);
        let mut conds = Vec::new();
        let mut out = None;
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::functions => conds = self.calls(inner),
                Rule::outbound => out = Some(self.outbound(inner)),
                _ => {}
            }
        }
        let out = out.unwrap_or_else(|| Out {
            name: self.nothing(span.end),
            args: Vec::new(),
            parens: false,
            trailing_comma: None,
            span: Span {
                start: span.end,
                ..span
            },
        });
        RuleItem { conds, out, span }
    }

    fn outbound(&self, pair: Pair<'_, Rule>) -> Out {
        let span = self.span(&pair);
        let mut out = Out {
            name: self.nothing(span.start),
            args: Vec::new(),
            parens: false,
            trailing_comma: None,
            span,
        };
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name => out.name = self.lit(inner),
                Rule::lparen => out.parens = true,
                Rule::args => (out.args, out.trailing_comma) = self.args(inner),
                _ => {}
            }
        }
        out
    }

    fn calls(&self, pair: Pair<'_, Rule>) -> Vec<Call> {
        pair.into_inner()
            .filter(|inner| inner.as_rule() == Rule::function)
            .map(|inner| self.call(inner))
            .collect()
    }

    fn call(&self, pair: Pair<'_, Rule>) -> Call {
        let span = self.span(&pair);
        let mut call = Call {
            not: false,
            name: self.nothing(span.start),
            args: Vec::new(),
            trailing_comma: None,
            span,
        };
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::not => call.not = true,
                Rule::func_name => call.name = self.lit(inner),
                Rule::args => (call.args, call.trailing_comma) = self.args(inner),
                _ => {}
            }
        }
        call
    }

    fn args(&self, pair: Pair<'_, Rule>) -> (Vec<Arg>, Option<Span>) {
        let mut args = Vec::new();
        let mut trailing = None;
        for inner in pair.into_inner() {
            if inner.as_rule() == Rule::arg {
                trailing = None;
                args.push(self.arg(inner));
            } else {
                trailing = Some(self.span(&inner));
            }
        }
        (args, trailing)
    }

    fn arg(&self, pair: Pair<'_, Rule>) -> Arg {
        let span = self.span(&pair);
        let raw = pair.as_str().to_owned();
        let mut key: Option<Lit> = None;
        let mut value = self.nothing(span.start);
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::arg_key => key = Some(self.lit(inner)),
                Rule::literal => value = self.lit(inner),
                _ => {}
            }
        }
        let spaced = key
            .as_ref()
            .is_some_and(|key| value.quoted || key.span.end + 1 != value.span.start);
        Arg {
            key,
            value,
            spaced,
            raw,
            span,
        }
    }

    fn link_item(&self, pair: Pair<'_, Rule>) -> LinkItem {
        let span = self.span(&pair);
        let mut item = LinkItem {
            tag: None,
            link: self.nothing(span.start),
            via: None,
            annotation: None,
            span,
        };
        let mut quoted = None;
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::tag => item.tag = Some(self.lit(inner)),
                Rule::link => {
                    quoted = inner
                        .clone()
                        .into_inner()
                        .find(|p| p.as_rule() == Rule::quoted);
                    item.link = self.lit(inner);
                }
                Rule::via => item.via = Some(self.via(inner)),
                Rule::annotation => item.annotation = Some(self.annotation(inner)),
                _ => {}
            }
        }
        if item.tag.is_none()
            && let Some((tag, link)) = quoted.and_then(|pair| self.split_tag(pair))
        {
            item.tag = Some(tag);
            item.link = link;
        }
        item
    }

    /// `'tag: link'` quoted as a whole.
    fn split_tag(&self, quoted: Pair<'_, Rule>) -> Option<(Lit, Lit)> {
        let quote = quoted.as_str().chars().next()?;
        let inner = quoted.into_inner().next()?;
        let text = inner.as_str();
        let colon = text.find(':')?;
        if text[colon + 1..].starts_with("//") {
            return None;
        }
        let start = inner.as_span().start();
        let part = |from: usize, to: usize| {
            let piece = &text[from..to];
            let trimmed = piece.trim_matches([' ', '\t']);
            let from = from + (piece.len() - piece.trim_start_matches([' ', '\t']).len());
            Lit {
                text: unescape(trimmed, quote),
                quoted: true,
                span: self.at(start + from, start + from + trimmed.len()),
            }
        };
        Some((part(0, colon), part(colon + 1, text.len())))
    }

    fn via(&self, pair: Pair<'_, Rule>) -> Via {
        let span = self.span(&pair);
        let mut name = self.nothing(span.end);
        let mut legacy = true;
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::arrow => legacy = false,
                Rule::name => name = self.lit(inner),
                _ => {}
            }
        }
        Via { name, legacy, span }
    }

    /// A name, literal, link or path, whichever way it was written.
    fn lit(&self, pair: Pair<'_, Rule>) -> Lit {
        let span = self.span(&pair);
        let text = pair.as_str();
        match pair.as_rule() {
            Rule::quoted => {
                let quote = text.chars().next().unwrap_or('\'');
                let inner = text.get(1..text.len() - 1).unwrap_or_default();
                Lit {
                    text: unescape(inner, quote),
                    quoted: true,
                    span,
                }
            }
            Rule::name
            | Rule::literal
            | Rule::link
            | Rule::tag
            | Rule::include_item
            | Rule::stray => match pair.into_inner().next() {
                Some(inner) => self.lit(inner),
                None => self.nothing(span.start),
            },
            _ => Lit {
                text: text.to_owned(),
                quoted: false,
                span,
            },
        }
    }

    fn nothing(&self, at: u32) -> Lit {
        let span = Span {
            file: self.file,
            start: at,
            end: at,
        };
        Lit {
            text: String::new(),
            quoted: false,
            span,
        }
    }
}

fn unescape(text: &str, quote: char) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    text.replace(&format!("\\{quote}"), &quote.to_string())
}
