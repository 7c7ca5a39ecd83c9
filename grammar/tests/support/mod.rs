//! A readable dump of what was parsed: diagnostics first, then the tree.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod doc;
pub(crate) mod meaning;

use std::fmt::Write as _;

use honk_grammar::{
    Parsed,
    ast::{Annotation, Arg, Call, Item, Lit, Section, Value},
};

pub(crate) fn report(parsed: &Parsed) -> String {
    let mut out = String::new();
    for found in &parsed.diagnostics {
        let place = found.span.and_then(|span| parsed.sources.start(span));
        let place = place.map_or_else(|| "-".to_owned(), |p| format!("{}:{}", p.line, p.column));
        let _ = writeln!(out, "{} {place} {}", found.number, found.message);
        if let Some(help) = &found.help {
            let _ = writeln!(out, "  help: {help}");
        }
    }
    out + &tree(&parsed.sections)
}

/// The tree without places.
pub(crate) fn tree(sections: &[Section]) -> String {
    let mut out = String::new();
    for part in sections {
        section(part, 0, &mut out);
    }
    out
}

fn section(part: &Section, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth);
    let _ = writeln!(out, "{pad}section {}", lit(&part.name));
    for item in &part.items {
        let _ = match item {
            Item::Sub(sub) => {
                section(sub, depth + 1, out);
                Ok(())
            }
            Item::Decl(decl) => writeln!(
                out,
                "{pad}  set {} = {}{}",
                lit(&decl.key),
                value(&decl.value),
                annotation(decl.annotation.as_ref())
            ),
            Item::Rule(rule) => {
                let params = if rule.out.parens {
                    args(&rule.out.args)
                } else {
                    String::new()
                };
                writeln!(
                    out,
                    "{pad}  rule {} -> {}{params}",
                    calls(&rule.conds),
                    lit(&rule.out.name)
                )
            }
            Item::Link(item) => {
                let tag = item.tag.as_ref().map_or_else(|| "-".to_owned(), lit);
                let via = item.via.as_ref().map_or_else(String::new, |via| {
                    format!(
                        " {} {}",
                        if via.legacy { "outbound" } else { "via" },
                        lit(&via.name)
                    )
                });
                writeln!(
                    out,
                    "{pad}  link {tag} {}{via}{}",
                    lit(&item.link),
                    annotation(item.annotation.as_ref())
                )
            }
            Item::Path(path) => writeln!(out, "{pad}  path {}", lit(path)),
            Item::Stray(word) => writeln!(out, "{pad}  stray {}", lit(word)),
        };
    }
}

fn lit(lit: &Lit) -> String {
    if lit.quoted {
        format!("{:?}", lit.text)
    } else {
        format!("<{}>", lit.text)
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::Empty => "nothing".to_owned(),
        Value::Literals(list) => list.iter().map(lit).collect::<Vec<_>>().join(" "),
        Value::Calls(list) => calls(list),
    }
}

fn calls(list: &[Call]) -> String {
    list.iter()
        .map(|call| {
            let not = if call.not { "!" } else { "" };
            let comma = if call.trailing_comma.is_some() {
                "+comma"
            } else {
                ""
            };
            format!("{not}{}{}{comma}", call.name.text, args(&call.args))
        })
        .collect::<Vec<_>>()
        .join(" && ")
}

fn args(list: &[Arg]) -> String {
    let each: Vec<String> = list
        .iter()
        .map(|arg| match &arg.key {
            Some(key) => {
                let colon = if arg.spaced { " :" } else { ":" };
                format!("{}{colon}{}", lit(key), lit(&arg.value))
            }
            None => lit(&arg.value),
        })
        .collect();
    format!("({})", each.join(", "))
}

fn annotation(annotation: Option<&Annotation>) -> String {
    let Some(annotation) = annotation else {
        return String::new();
    };
    let notes: Vec<String> = annotation
        .notes
        .iter()
        .map(|note| {
            let key = note
                .key
                .as_ref()
                .map_or_else(String::new, |key| format!("{}=", lit(key)));
            key + &value(&note.value)
        })
        .collect();
    format!(" [{}]", notes.join("; "))
}
