//! Reading declarations by the key table: types, ranges, repetition, and what is not served.
//!
//! Called for every section made of declarations; what a value means is decided by the caller.

use std::collections::{BTreeMap, HashSet};

use honk_grammar::{
    ast::{Annotation, Decl, Item, Lit, Note, Section, Span, Value},
    diag::Diagnostic,
};

use super::{
    keys::{Built, Key, Kind, find},
    report::{Report, with_help},
    typed::{Source, Typed, default_of, typed},
    value::shortened,
};

/// A declared value with its places.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) typed: Typed,
    pub(super) key: Span,
    pub(super) value: Span,
}

/// The declared values of one section.
#[derive(Debug, Default)]
pub(super) struct Fields {
    entries: BTreeMap<&'static str, Entry>,
    /// What the lists have already, by key.
    elements: HashSet<(&'static str, String)>,
}

impl Fields {
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (*name, entry))
    }

    pub(super) fn bool(&self, key: &str) -> Option<bool> {
        match self.get(key)?.typed {
            Typed::Bool(b) => Some(b),
            _ => None,
        }
    }

    pub(super) fn int(&self, key: &str) -> Option<u64> {
        match self.get(key)?.typed {
            Typed::Int(n) => Some(n),
            _ => None,
        }
    }

    pub(super) fn millis(&self, key: &str) -> Option<i64> {
        match self.get(key)?.typed {
            Typed::Millis(n) => Some(n),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.typed {
            Typed::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self, key: &str) -> Option<&[String]> {
        match &self.get(key)?.typed {
            Typed::List(list) => Some(list),
            _ => None,
        }
    }
}

/// What a section of declarations held besides them.
pub(super) struct Rest<'a> {
    pub(super) fields: Fields,
    /// Nested sections.
    pub(super) subs: Vec<&'a Section>,
    /// Declarations of kind `Own`, in order, with their row.
    pub(super) own: Vec<(&'static Key, &'a Decl)>,
}

/// Reads the items of a section of declarations. `stray` may take a literal that follows a
/// declaration; others are E203.
pub(super) fn read<'a>(
    report: &mut Report<'_>,
    section: &str,
    table: &'static [Key],
    items: &'a [Item],
) -> Rest<'a> {
    let mut rest = Rest {
        fields: Fields::default(),
        subs: Vec::new(),
        own: Vec::new(),
    };
    let mut at = 0;
    while let Some(item) = items.get(at) {
        at += match item {
            Item::Decl(decl) => {
                declaration(report, section, table, decl, &mut rest);
                1
            }
            Item::Sub(sub) => {
                rest.subs.push(sub);
                1
            }
            _ => report.misplaced(section, items, at),
        };
    }
    rest
}

/// Reads a section that holds nothing but declarations.
pub(super) fn only(
    report: &mut Report<'_>,
    section: &str,
    table: &'static [Key],
    items: &[Item],
) -> Fields {
    let rest = read(report, section, table, items);
    for sub in rest.subs {
        report.unknown_section(section, &sub.name, &[]);
    }
    rest.fields
}

/// E204 with a suggestion.
pub(super) fn unknown_key(
    report: &mut Report<'_>,
    section: &str,
    table: &'static [Key],
    key: &Lit,
) {
    let message = format!(
        "unknown key `{}` in section `{section}`",
        shortened(&key.text)
    );
    let finding = Diagnostic::error("E204", "unknown-key", key.span, message);
    let help = report.did_you_mean(&key.text, table.iter().map(|row| row.name));
    let finding = with_help(finding, help);
    report.push(finding.about(section, &key.text));
}

fn declaration<'a>(
    report: &mut Report<'_>,
    section: &str,
    table: &'static [Key],
    decl: &'a Decl,
    rest: &mut Rest<'a>,
) {
    let Some(row) = find(table, &decl.key.text) else {
        return unknown_key(report, section, table, &decl.key);
    };
    if let Kind::Removed(instead) = row.kind {
        let message = format!("`{}` does not exist any more", row.name);
        let finding = Diagnostic::error("E709", "removed-key", decl.key.span, message);
        return report.push(finding.help(instead).about(section, row.name));
    }
    if row.kind == Kind::Own {
        if row.built == Built::No {
            unserved(report, section, row, decl.key.span);
        }
        rest.own.push((row, decl));
        return;
    }
    if let Some(note) = &decl.annotation {
        report.stray_annotation(section, note.span, decl.value == Value::Empty);
        return;
    }
    let source = Source {
        key: decl.key.span,
        value: &decl.value,
        span: decl.value_span,
    };
    let Some(typed) = typed(report, section, row, &source) else {
        return;
    };
    let entry = Entry {
        typed,
        key: decl.key.span,
        value: decl.value_span,
    };
    insert(report, section, row, entry, &mut rest.fields);
}

/// Adds a value: lists add up, scalars are replaced by the later one.
fn insert(
    report: &mut Report<'_>,
    section: &str,
    row: &'static Key,
    entry: Entry,
    fields: &mut Fields,
) {
    served(report, section, row, &entry);
    match (fields.entries.get_mut(row.name), entry) {
        (
            Some(Entry {
                typed: Typed::List(old),
                ..
            }),
            Entry {
                typed: Typed::List(new),
                ..
            },
        ) => {
            for element in new {
                if fields.elements.insert((row.name, element.clone())) {
                    old.push(element);
                }
            }
        }
        (Some(old), new) => {
            repeated(report, section, row.name, old.key, new.key);
            *old = new;
        }
        (None, new) => {
            if let Typed::List(list) = &new.typed {
                let elements = list.iter().map(|element| (row.name, element.clone()));
                fields.elements.extend(elements);
            }
            fields.entries.insert(row.name, new);
        }
    }
}

/// W211 when both stand in one file; an included file overrides silently.
pub(super) fn repeated(report: &mut Report<'_>, section: &str, key: &str, old: Span, new: Span) {
    if old.file == new.file {
        let message = format!("`{key}` is set again in `{section}`: this later value wins");
        let finding = Diagnostic::warning("W211", "duplicate-key", new, message);
        report.push(finding.related(old, "first set here").about(section, key));
    }
}

/// What this build does with the value.
fn served(report: &mut Report<'_>, section: &str, row: &'static Key, entry: &Entry) {
    let default = || default_of(row) == Some(entry.typed.clone());
    match row.built {
        Built::Yes | Built::Section => {}
        Built::No if default() => {}
        Built::No => unserved(report, section, row, entry.key),
        Built::NoOp if default() => {}
        Built::NoOp => {
            let message = format!("`{}` has no effect in this build", row.name);
            let finding = Diagnostic::warning("W214", "ignored-key", entry.key, message);
            report.push(finding.about(section, row.name));
        }
        Built::Deprecated => {
            let message = format!("`{}` is obsolete and has no effect", row.name);
            let finding = Diagnostic::warning("W213", "deprecated", entry.key, message);
            report.push(finding.help("remove the line").about(section, row.name));
        }
    }
}

fn unserved(report: &mut Report<'_>, section: &str, row: &Key, span: Span) {
    let what = format!("`{section}.{}` is", row.name);
    report.unbuilt(section, row.name, span, &what);
}

/// Reads an annotation by a table. Of a repeated key the first counts.
pub(super) fn notes(
    report: &mut Report<'_>,
    section: &str,
    table: &'static [Key],
    annotation: Option<&Annotation>,
) -> Fields {
    let mut fields = Fields::default();
    for note in annotation.into_iter().flat_map(|a| &a.notes) {
        let row = note.key.as_ref().and_then(|key| find(table, &key.text));
        let (Some(key), Some(row), Value::Literals(_)) = (&note.key, row, &note.value) else {
            unknown_note(report, section, note, table);
            continue;
        };
        let source = Source {
            key: key.span,
            value: &note.value,
            span: note.span,
        };
        let Some(typed) = typed(report, section, row, &source) else {
            continue;
        };
        if fields.get(row.name).is_none() {
            let entry = Entry {
                typed,
                key: key.span,
                value: note.span,
            };
            insert(report, section, row, entry, &mut fields);
        }
    }
    fields
}

/// E207 for a note nobody reads.
fn unknown_note(report: &mut Report<'_>, section: &str, note: &Note, table: &'static [Key]) {
    let (place, name) = note
        .key
        .as_ref()
        .map_or((note.span, ""), |k| (k.span, k.text.as_str()));
    let message = match name {
        "" => "an annotation is written `[key: value]`".to_owned(),
        _ if find(table, name).is_some() => format!("`{name}` takes a value here, not a function"),
        _ => format!("unknown annotation key `{}`", shortened(name)),
    };
    let finding = Diagnostic::error("E207", "annotation", place, message);
    let help = report.did_you_mean(name, table.iter().map(|row| row.name));
    report.push(with_help(finding, help).about(section, name));
}
