//! Edits that leave every other byte of a file alone.
//!
//! The only way the program writes a configuration file: one key of one section body is replaced,
//! inserted or removed at the places the parser reported. Comments, order, spelling and line ends
//! stay. Which keys may be edited is the caller's business; the result is parsed again here, so
//! that an edit can never produce text that reads differently than asked.

use crate::{
    ast::{Decl, Item, Section, Value},
    limits::QUOTED_BYTES,
    load::parse_text,
    token::{is_bare, is_bare_value},
};

/// Indentation when the body has no item to copy it from.
const INDENT: &str = "        ";

/// The body to edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// Top-level section, `group`.
    pub section: &'a str,
    /// Subsection, the group's name; `None` edits the section itself.
    pub name: Option<&'a str>,
}

/// What to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Set it to a text, written in quotes.
    Text(&'a str),
    /// Set it to a number, word or duration, written without quotes.
    Word(&'a str),
    /// Remove all its declarations.
    Remove,
}

/// Why a file was not edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file does not parse, so nothing is known about its places.
    #[error("the file has syntax errors; repair it before editing")]
    Broken,
    /// No such section.
    #[error("the file has no section `{0}`; it may be declared in another file")]
    NoSection(String),
    /// The text has no quoted form.
    #[error("the value cannot be written: {0}")]
    Unwritable(&'static str),
    /// The edited text does not say what was asked for.
    #[error("`{0}` cannot be edited in place; edit the file by hand")]
    Unsafe(String),
}

/// Applies changes in order and returns the new text.
///
/// # Errors
/// [`EditError`]; the text is unchanged then.
pub fn apply(
    text: &str,
    body: Body<'_>,
    changes: &[(&str, Change<'_>)],
) -> Result<String, EditError> {
    let mut text = text.to_owned();
    for (key, change) in changes {
        text = one(&text, body, key, *change)?;
    }
    Ok(text)
}

fn one(text: &str, body: Body<'_>, key: &str, change: Change<'_>) -> Result<String, EditError> {
    let (bom, plain) = match text.strip_prefix('\u{FEFF}') {
        Some(rest) => ("\u{FEFF}", rest),
        None => ("", text),
    };
    let before = sections(plain)?;
    let section = find(&before, body)?;
    let edited = match change {
        Change::Remove => remove(plain, section, key),
        Change::Text(value) => set(plain, section, key, &quote(value)?),
        Change::Word(value) if is_bare_value(value) => set(plain, section, key, value),
        Change::Word(value) => set(plain, section, key, &quote(value)?),
    };
    let failed = || EditError::Unsafe(key.to_owned());
    let after = sections(&edited).map_err(|_| failed())?;
    let wanted = match change {
        Change::Text(value) | Change::Word(value) => Some(value),
        Change::Remove => None,
    };
    let section = find(&after, body).map_err(|_| failed())?;
    if effective(section, key) != wanted {
        return Err(failed());
    }
    Ok(format!("{bom}{edited}"))
}

fn sections(text: &str) -> Result<Vec<Section>, EditError> {
    let parsed = parse_text("", text);
    if parsed.diagnostics.is_empty() {
        Ok(parsed.sections)
    } else {
        Err(EditError::Broken)
    }
}

fn find<'a>(sections: &'a [Section], body: Body<'_>) -> Result<&'a Section, EditError> {
    let mut tops = sections
        .iter()
        .filter(|section| section.name.text == body.section);
    let found = match body.name {
        // The last one: its settings win over those of an earlier section of the same name.
        None => tops.next_back(),
        Some(name) => tops.flat_map(|top| &top.items).find_map(|item| match item {
            Item::Sub(sub) if sub.name.text == name => Some(sub),
            _ => None,
        }),
    };
    found.ok_or_else(|| EditError::NoSection(body.name.unwrap_or(body.section).to_owned()))
}

fn declarations<'a>(section: &'a Section, key: &str) -> Vec<&'a Decl> {
    section
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Decl(decl) if decl.key.text == key => Some(decl),
            _ => None,
        })
        .collect()
}

/// The value a key has now, if it is a single literal.
fn effective<'a>(section: &'a Section, key: &str) -> Option<&'a str> {
    match &declarations(section, key).last()?.value {
        Value::Literals(list) if list.len() == 1 => Some(&list[0].text),
        _ => Some("\0"),
    }
}

fn quote(value: &str) -> Result<String, EditError> {
    let quote = match (value.contains('\''), value.contains('"')) {
        (false, _) => '\'',
        (true, false) => '"',
        (true, true) => return Err(EditError::Unwritable("it contains both kinds of quotes")),
    };
    if value.ends_with('\\') {
        return Err(EditError::Unwritable("it ends in a backslash"));
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(EditError::Unwritable(
            "it contains a line end or control character",
        ));
    }
    if value.len() > QUOTED_BYTES {
        return Err(EditError::Unwritable("it is too long"));
    }
    Ok(format!("{quote}{value}{quote}"))
}

fn set(text: &str, section: &Section, key: &str, value: &str) -> String {
    match declarations(section, key).last() {
        Some(decl) => replace(text, decl, value),
        None => insert(text, section, key, value),
    }
}

fn replace(text: &str, decl: &Decl, value: &str) -> String {
    let (start, end) = (decl.value_span.start as usize, decl.value_span.end as usize);
    let space = if decl.value == Value::Empty { " " } else { "" };
    // A word must not grow together with what follows; quotes end by themselves.
    let joins = text[end..]
        .chars()
        .next()
        .is_some_and(|c| is_bare(c) || c == ':');
    let value = match (joins, value.starts_with(['\'', '"'])) {
        (true, false) => format!("'{value}'"),
        _ => value.to_owned(),
    };
    format!("{}{space}{value}{}", &text[..start], &text[end..])
}

fn insert(text: &str, section: &Section, key: &str, value: &str) -> String {
    let brace = section.close_brace as usize;
    let body = &text[section.open_brace as usize + 1..brace];
    let line = line_start(text, brace);
    let lead = &text[line..brace];
    let ends_empty = matches!(
        section.items.last(),
        Some(Item::Decl(Decl {
            value: Value::Empty,
            annotation: None,
            ..
        }))
    );
    let multi = body.contains(['\n', '\r']);
    if multi && lead.trim().is_empty() {
        let indent = indentation(text, section);
        let end = newline(text);
        return format!(
            "{}{indent}{key}: {value}{end}{}",
            &text[..line],
            &text[line..]
        );
    }
    if multi || ends_empty {
        let indent = indentation(text, section);
        let end = newline(text);
        let outer = blank_prefix(&text[line_start(text, section.span.start as usize)..]);
        let (before, after) = (&text[..brace], &text[brace..]);
        return format!("{before}{end}{indent}{key}: {value}{end}{outer}{after}");
    }
    let space = if body.ends_with([' ', '\t']) { "" } else { " " };
    format!("{}{space}{key}: {value} {}", &text[..brace], &text[brace..])
}

fn remove(text: &str, section: &Section, key: &str) -> String {
    let mut text = text.to_owned();
    for decl in declarations(section, key).into_iter().rev() {
        let (mut start, mut end) = (decl.span.start as usize, decl.span.end as usize);
        let line = line_start(&text, start);
        let rest = text[end..]
            .find(['\n', '\r'])
            .map_or(text.len(), |at| end + at);
        if text[line..start].trim().is_empty() && text[end..rest].trim().is_empty() {
            start = line;
            end = rest + newline_len(&text[rest..]);
        }
        text.replace_range(start..end, "");
    }
    text
}

/// Indentation of the first item that begins its line.
fn indentation<'a>(text: &'a str, section: &Section) -> &'a str {
    section
        .items
        .iter()
        .map(|item| item.span().start as usize)
        .map(|start| &text[line_start(text, start)..start])
        .find(|lead| lead.trim().is_empty())
        .unwrap_or(INDENT)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind(['\n', '\r']).map_or(0, |end| end + 1)
}

fn blank_prefix(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn newline_len(text: &str) -> usize {
    if text.starts_with("\r\n") {
        2
    } else {
        usize::from(!text.is_empty())
    }
}

/// The line ending this file uses.
fn newline(text: &str) -> &'static str {
    match text.find(['\n', '\r']).map(|at| &text[at..]) {
        Some(rest) if rest.starts_with("\r\n") => "\r\n",
        Some(rest) if rest.starts_with('\r') => "\r",
        _ => "\n",
    }
}
