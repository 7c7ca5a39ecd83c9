//! Configurations of gateways as people keep them: no finding is wrong, and neither the line ends
//! of another system, a byte order mark, tabs nor the canonical form change what they mean.

use std::{fs, path::Path};

use honk_grammar::{ast::Item, format, parse_text};

use super::{lowered, properties::model};

/// Name and text of each. The first line may say which findings there are.
#[allow(clippy::disallowed_methods, reason = "the cases are files")]
fn gateways() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/gateways");
    let entries = fs::read_dir(dir).expect("the files are part of the package");
    let mut all: Vec<(String, String)> = entries
        .map(|entry| {
            let path = entry.expect("the directory can be read").path();
            let name = path.file_name().expect("it has a name").to_string_lossy();
            let text = fs::read_to_string(&path).expect("it is text");
            (name.into_owned(), text)
        })
        .collect();
    all.sort();
    assert_eq!(all.len(), 20);
    all
}

/// Numbers of the findings that are not about lists this test has no files of.
fn findings(text: &str) -> Vec<&'static str> {
    let (_, found, _) = lowered(text);
    let told = found.iter().filter(|f| {
        !matches!(
            f.slug,
            "not-built" | "geo-missing" | "geo-empty" | "section-missing"
        )
    });
    told.map(|f| f.number).collect()
}

#[test]
fn no_finding_is_wrong() {
    let mut wrong = Vec::new();
    for (name, text) in gateways() {
        let first = text.lines().next().unwrap_or_default();
        let want = first.split_once("expects: ").map_or("", |(_, want)| want);
        let mut want: Vec<&str> = want.split_whitespace().collect();
        let mut found = findings(&text);
        want.sort_unstable();
        found.sort_unstable();
        let (config, told, _) = lowered(&text);
        if found != want || config.is_none() {
            let told = told.iter().map(|f| format!("{} {}", f.number, f.message));
            wrong.push((name, told.collect::<Vec<_>>()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_form_of_a_file_changes_nothing() {
    for (name, text) in gateways() {
        let plain = model(&text);
        assert!(plain.is_some(), "{name}");
        for (form, other) in [
            ("CRLF", text.replace('\n', "\r\n")),
            ("CR", text.replace('\n', "\r")),
            ("BOM", format!("\u{FEFF}{text}")),
            ("tabs", text.replace("  ", "\t")),
            ("blanks at line ends", text.replace('\n', " \t\n")),
            ("empty lines", format!("\n\n{text}\n\n\n")),
            ("no last line end", text.trim_end().to_owned()),
        ] {
            assert_eq!(model(&other), plain, "{name} with {form}");
            assert_eq!(findings(&other), findings(&text), "{name} with {form}");
        }
    }
}

#[test]
fn the_canonical_form_of_a_gateway_means_the_same_and_settles() {
    let comments = |text: &str| text.matches('#').count();
    for (name, text) in gateways() {
        let once = format(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(model(&once), model(&text), "{name}\n{once}");
        assert_eq!(findings(&once), findings(&text), "{name}\n{once}");
        assert_eq!(comments(&once), comments(&text), "{name}\n{once}");
        assert_eq!(format(&once).as_deref().ok(), Some(once.as_str()), "{name}");
        let windows = format(&format!("\u{FEFF}{}", text.replace('\n', "\r\n")));
        assert_eq!(windows.as_deref().ok(), Some(once.as_str()), "{name}");
    }
}

#[test]
fn one_mistake_in_a_gateway_is_one_finding() {
    for (name, text) in gateways() {
        let parsed = parse_text("g.dae", &text);
        let keys = parsed.sections.iter().flat_map(|section| &section.items);
        let key = keys.filter_map(|item| match item {
            Item::Decl(decl) if decl.key.text != "fallback" => Some(decl.key.span),
            _ => None,
        });
        let Some(span) = key.into_iter().next() else {
            continue;
        };
        let mut wrong = text.clone();
        wrong.insert_str(span.start as usize, "xqzw_");
        let new = findings(&wrong).len() as isize - findings(&text).len() as isize;
        assert!(findings(&wrong).contains(&"E204"), "{name}");
        assert_eq!(new, 1, "{name}: {:?}", findings(&wrong));
    }
}
