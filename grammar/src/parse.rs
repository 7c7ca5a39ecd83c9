//! One file: text to tree, with every syntax error that can be told from the others.
//!
//! The whole text is tried first. When that fails, or when the pre-scan reported characters, the
//! brace-matched top-level sections are parsed one by one, so that a mistake in one of them does
//! not silence the others; of a broken one `recover` reads
//! what can be read. Includes are followed by `load`; meaning is added by `honk-policy`.

use std::borrow::Cow;

use pest::{Parser as _, iterators::Pairs};

use crate::{
    ast::{FileId, Item, Section, Span, Value},
    diag::Diagnostic,
    limits::{ARGUMENTS, DIAGNOSTICS, FILE_BYTES},
    mask::{self, Ranges},
    prescan::{self, Chunk, Scan},
    recover::Recovery,
    syntax::{self, Text},
    tree::Builder,
};

pub(crate) use generated::{Dae, Rule};

#[allow(missing_docs, unreachable_pub, reason = "written by the pest derive")]
mod generated {
    #[derive(pest_derive::Parser)]
    #[grammar = "dae.pest"]
    pub(crate) struct Dae;
}

/// What one file contains.
#[derive(Debug, Default)]
pub(crate) struct FileTree {
    pub(crate) sections: Vec<Section>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Names of sections that could not be read.
    pub(crate) broken: Vec<String>,
    /// Sections that are not named in `broken` may lack something or be missing.
    pub(crate) partial: bool,
    /// Nothing of the file could be read.
    pub(crate) unreadable: bool,
    /// There are more mistakes than are told.
    pub(crate) cut: bool,
    /// What may be a secret, by the look of the text, when the tree does not tell.
    pub(crate) guessed: Option<Ranges>,
}

/// Parses the text of one file (without byte order mark).
pub(crate) fn file(file: FileId, text: &str) -> FileTree {
    let mut tree = FileTree::default();
    if text.len() > FILE_BYTES {
        let span = Span {
            file,
            start: 0,
            end: 0,
        };
        let message = format!("the file is larger than {FILE_BYTES} bytes");
        tree.diagnostics.push(
            Diagnostic::error("E106", "parse", span, message)
                .help("split it over several files and `include` them"),
        );
        tree.unreadable = true;
        tree.guessed = Some(mask::guess(text));
        return tree;
    }
    let scan = prescan::scan(file, text);
    if scan.fatal {
        tree.diagnostics = scan.diagnostics;
        tree.unreadable = true;
        tree.guessed = Some(mask::guess(text));
        return tree;
    }
    let readable = without(text, &scan.slashes);
    let tainted = !scan.quotes.is_empty() || scan.chunks.iter().any(|chunk| chunk.tainted);
    let whole = if tainted {
        None
    } else {
        Some(piece(file, &readable, 0))
    };
    match whole {
        Some(Ok(sections)) => {
            tree.sections = sections;
            tree.diagnostics = scan.diagnostics;
        }
        failed => {
            // What was written is judged, not what is read: a comment may hold a secret, too.
            let hidden = mask::guess(text);
            match failed.and_then(Result::err) {
                Some(error) => recover(file, &readable, &hidden, scan, error, &mut tree),
                None => pieces(file, &readable, &hidden, scan, None, &mut tree),
            }
            tree.guessed = Some(hidden);
        }
    }
    check_arguments(&mut tree, ARGUMENTS);
    if tree.guessed.is_none() && !tree.diagnostics.is_empty() {
        tree.guessed = Some(mask::guess(text));
    }
    tree
}

/// The text with blanks in place of some of its bytes, so that all others keep their place.
fn without<'t>(text: &'t str, gone: &[(usize, usize)]) -> Cow<'t, str> {
    if gone.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    for (start, end) in gone {
        kept.push_str(text.get(kept.len()..*start).unwrap_or_default());
        kept.extend(std::iter::repeat_n(' ', end - start));
    }
    kept.push_str(text.get(kept.len()..).unwrap_or_default());
    Cow::Owned(kept)
}

pub(crate) type Error = Box<pest::error::Error<Rule>>;

/// The one way to the generated parser. A failure costs a walk over the whole text that was
/// given, success one over what was read: tests measure growth by that.
pub(crate) fn read(wanted: Rule, text: &str) -> Result<Pairs<'_, Rule>, Error> {
    let result = Dae::parse(wanted, text).map_err(Box::new);
    #[cfg(test)]
    growth::count(
        result
            .as_ref()
            .map_or(text.len(), |read| read.as_str().len()),
    );
    result
}

fn piece(file: FileId, text: &str, base: usize) -> Result<Vec<Section>, Error> {
    let mut pairs = read(Rule::file, text)?;
    let builder = Builder {
        file,
        base: base as u32,
    };
    Ok(pairs
        .next()
        .map(|pair| builder.file(pair))
        .unwrap_or_default())
}

/// The text did not parse as a whole: finds the sections that are to blame.
fn recover(
    file: FileId,
    text: &str,
    hidden: &Ranges,
    scan: Scan,
    error: Error,
    tree: &mut FileTree,
) {
    if scan.chunks.len() == 1 {
        return pieces(file, text, hidden, scan, Some(error), tree);
    }
    pieces(file, text, hidden, scan, None, tree);
    if tree.diagnostics.is_empty() {
        // The pre-scan cut the text differently than the grammar reads it.
        let all = Chunk::whole(text);
        tree.sections.clear();
        tree.unreadable = true;
        let text = Text { file, text, hidden };
        let found = syntax::explain(text, &all, None, 0, &error);
        tree.diagnostics.push(found);
    }
}

/// Reads the chunks one by one; `known` is the error of the only one.
fn pieces(
    file: FileId,
    text: &str,
    hidden: &Ranges,
    scan: Scan,
    mut known: Option<Error>,
    tree: &mut FileTree,
) {
    tree.diagnostics = scan.diagnostics;
    let told = tree.diagnostics.len();
    let mut recovery = Recovery::new(file, text, hidden, scan.braces, scan.quotes, told);
    for chunk in scan.chunks {
        let part = text.get(chunk.start..chunk.end).unwrap_or_default();
        if chunk.tainted {
            tree.broken.push(name_of(text, &chunk));
            continue;
        }
        let (base, error) = match known.take() {
            Some(error) => (0, error),
            None => match piece(file, part, chunk.start) {
                Ok(sections) => {
                    tree.sections.extend(sections);
                    continue;
                }
                Err(error) => (chunk.start, error),
            },
        };
        tree.broken.push(name_of(text, &chunk));
        // A brace behind an open quote was not seen: this section may hold the others.
        tree.partial |= recovery.has_quotes() && !chunk.unclosed.is_empty();
        tree.sections.extend(recovery.chunk(&chunk, base, error));
        // One more than is shown, so that "more" is not a lie; the rest would be noise.
        if tree.diagnostics.len() + recovery.found.len() > DIAGNOSTICS {
            tree.unreadable = true;
            tree.cut = true;
            break;
        }
    }
    tree.diagnostics.append(&mut recovery.found);
}

fn name_of(text: &str, chunk: &Chunk) -> String {
    let word = match chunk.open {
        Some(_) => chunk.head,
        None => chunk.name,
    };
    let name = text.get(word.0..word.1).unwrap_or_default();
    name.trim_matches(['\'', '"']).to_owned()
}

/// The argument limit, which only a parsed call can tell.
fn check_arguments(tree: &mut FileTree, most: usize) {
    let mut over = Vec::new();
    for section in &tree.sections {
        calls(section, most, &mut over);
    }
    for span in over {
        let message = format!("a call has more than {most} arguments");
        let span = Span {
            end: span.start + 1,
            ..span
        };
        tree.diagnostics.push(
            Diagnostic::error("E106", "parse", span, message)
                .help("use several rules or a geodata code"),
        );
        tree.unreadable = true;
    }
    if tree.unreadable {
        tree.sections.clear();
    }
}

fn calls(section: &Section, most: usize, over: &mut Vec<Span>) {
    let mut check = |args: usize, span: Span| {
        if args > most {
            over.push(span);
        }
    };
    for item in &section.items {
        match item {
            Item::Rule(rule) => {
                for call in &rule.conds {
                    check(call.args.len(), call.span);
                }
                check(rule.out.args.len(), rule.out.span);
            }
            Item::Decl(decl) => {
                if let Value::Calls(list) = &decl.value {
                    for call in list {
                        check(call.args.len(), call.span);
                    }
                }
            }
            Item::Sub(sub) => {
                let mut inner = Vec::new();
                calls(sub, most, &mut inner);
                inner.iter().for_each(|span| check(usize::MAX, *span));
            }
            Item::Link(_) | Item::Path(_) | Item::Stray(_) => {}
        }
    }
}

#[cfg(test)]
mod growth;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_too_many_arguments_are_refused_wherever_they_stand() {
        for (text, start) in [
            ("routing { f(1, 2, 3) -> x g(1, 2, 3, 4) -> x }", 26),
            ("routing { f(1) -> x(1, 2, 3, 4) }", 18),
            ("group { g { filter: name(a, b, c, d) } }", 20),
        ] {
            let mut tree = file(FileId(0), text);
            check_arguments(&mut tree, 4);
            assert!(
                tree.diagnostics.is_empty() && !tree.sections.is_empty(),
                "{text}"
            );
            check_arguments(&mut tree, 3);
            let [found] = tree.diagnostics.as_slice() else {
                panic!("{text}: {:?}", tree.diagnostics);
            };
            let place = found.span.map(|span| span.start);
            assert_eq!((found.number, place), ("E106", Some(start)), "{text}");
            assert!(tree.unreadable && tree.sections.is_empty(), "{text}");
        }
    }
}
