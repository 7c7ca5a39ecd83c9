//! Links with their tags, and annotations.

use super::{Printer, Spelling};
use crate::{
    ast::{Annotation, LinkItem, Note, Value},
    spelling,
};

impl Printer<'_> {
    pub(super) fn annotation(&self, annotation: &Annotation, how: Spelling) -> Vec<String> {
        let Some(last) = annotation.notes.len().checked_sub(1) else {
            return vec!["[]".to_owned()];
        };
        let trailing = self.slice(annotation.notes[last].span.end, annotation.span.end);
        let trailing = if trailing.contains(',') { ",]" } else { "]" };
        let one = |(i, note): (usize, &Note)| {
            let before = if i == 0 { "[" } else { "" };
            let after = if i == last { trailing } else { "," };
            format!("{before}{}{after}", self.note(note, how))
        };
        annotation.notes.iter().enumerate().map(one).collect()
    }

    fn note(&self, note: &Note, how: Spelling) -> String {
        let value = match &note.value {
            Value::Empty => String::new(),
            Value::Literals(list) => list.iter().map(|lit| self.lit(lit, how)).collect(),
            Value::Calls(calls) => self.calls(calls, Spelling::Written).join(" "),
        };
        match &note.key {
            Some(key) => format!("{}: {value}", self.written(key)),
            None => value,
        }
    }

    pub(super) fn link(&self, item: &LinkItem, how: Spelling) -> Vec<String> {
        let mut pieces = match how {
            Spelling::Written => None,
            Spelling::Canonical => canonical_link(item),
        }
        .unwrap_or_else(|| self.written_link(item));
        if let Some(via) = &item.via {
            let arrow = if via.legacy { "outbound:" } else { "->" };
            pieces.push(format!("{arrow} {}", self.lit(&via.name, how)));
        }
        let annotation = item.annotation.iter();
        pieces.extend(annotation.flat_map(|annotation| self.annotation(annotation, how)));
        pieces
    }

    /// Tag and link as they stand there.
    fn written_link(&self, item: &LinkItem) -> Vec<String> {
        let link = self.written(&item.link).to_owned();
        let Some(tag) = &item.tag else {
            return vec![link];
        };
        if tag.span.start == item.span.start {
            return vec![format!("{}:", self.written(tag)), link];
        }
        // `'tag: link'`: the tag lies inside the quotes.
        let rest = item.via.as_ref().map(|via| via.span.start);
        let rest = rest.or_else(|| item.annotation.as_ref().map(|note| note.span.start));
        let whole = self.slice(item.span.start, rest.unwrap_or(item.span.end));
        vec![whole.trim().to_owned()]
    }
}

/// Tag and link, if quotes fit.
fn canonical_link(item: &LinkItem) -> Option<Vec<String>> {
    let link = &item.link.text;
    match &item.tag {
        None => Some(vec![spelling::untagged(link)?]),
        Some(tag) => {
            let tag = spelling::word(&tag.text)?;
            Some(vec![format!("{tag}:"), spelling::word(link)?])
        }
    }
}
