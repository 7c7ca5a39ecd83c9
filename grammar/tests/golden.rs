//! Every snippet under `cases/` with what the parser makes of it: `v*.dae` are valid, `x*.dae`
//! are not (or only in meaning, which is decided elsewhere), `e*.dae` are edges of the syntax and
//! `w01.dae` is a whole configuration. `HONK_BLESS=1` rewrites the
//! expectations; the table below keeps codes and places of the syntax errors fixed in any case.

mod support;

use std::{fs, path::PathBuf};

use honk_grammar::parse_text;

/// Code, line and column of the syntax errors.
const SYNTAX: [(&str, &str, u32, u32); 20] = [
    ("x01", "E111", 3, 1),
    ("x02", "E104", 2, 6),
    ("x03", "E110", 3, 16),
    ("x04", "E110", 1, 20),
    ("x05", "E110", 1, 25),
    ("x06", "E113", 3, 3),
    ("x07", "E103", 2, 12),
    ("x08", "E110", 1, 22),
    ("x09", "E112", 2, 3),
    ("x10", "E114", 1, 10),
    ("x11", "E113", 1, 21),
    ("x12", "E110", 1, 24),
    ("x13", "E113", 1, 21),
    ("x14", "E110", 1, 20),
    ("x15", "E105", 1, 1),
    ("x16", "E110", 1, 38),
    ("x17", "E110", 1, 23),
    ("x18", "E110", 1, 25),
    ("x19", "E103", 1, 18),
    ("x20", "E110", 1, 47),
];

fn cases() -> Vec<(String, PathBuf)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut found: Vec<(String, PathBuf)> = fs::read_dir(dir)
        .expect("the cases are part of the package")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "dae"))
        .map(|path| {
            (
                path.file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                path,
            )
        })
        .collect();
    found.sort();
    found
}

#[test]
fn every_case_reads_as_written_down() {
    let bless = std::env::var_os("HONK_BLESS").is_some();
    let mut differ = Vec::new();
    for (name, path) in cases() {
        let text = fs::read_to_string(&path).expect("case is text");
        let actual = support::report(&parse_text("case.dae", &text));
        let golden = path.with_extension("expected");
        if bless {
            fs::write(&golden, &actual).expect("expectation can be written");
        } else if fs::read_to_string(&golden).unwrap_or_default() != actual {
            differ.push(format!("{name}:\n{actual}"));
        }
    }
    assert!(
        differ.is_empty(),
        "{} cases differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
}

#[test]
fn syntax_errors_have_their_code_and_place() {
    let cases = cases();
    for (name, number, line, column) in SYNTAX {
        let path = &cases
            .iter()
            .find(|case| case.0 == name)
            .expect("case exists")
            .1;
        let text = fs::read_to_string(path).expect("case is text");
        let parsed = parse_text("case.dae", &text);
        let found = parsed.diagnostics.first().expect("there is an error");
        // A pair of curly quotes is two characters to replace.
        let more = usize::from(name == "x19");
        assert_eq!(
            parsed.diagnostics.len(),
            1 + more,
            "{name}: {:?}",
            parsed.diagnostics
        );
        let place = parsed
            .sources
            .start(found.span.expect("has a place"))
            .expect("known file");
        assert_eq!(
            (found.number, place.line, place.column),
            (number, line, column),
            "{name}"
        );
        assert!(found.help.is_some(), "{name} has help");
    }
}

#[test]
fn everything_else_parses() {
    for (name, path) in cases() {
        if SYNTAX.iter().any(|row| row.0 == name) {
            continue;
        }
        let text = fs::read_to_string(path).expect("case is text");
        let parsed = parse_text("case.dae", &text);
        assert!(
            parsed.diagnostics.is_empty(),
            "{name}: {:?}",
            parsed.diagnostics
        );
    }
}

#[test]
fn a_rule_with_twenty_thousand_addresses_is_one_rule() {
    let list: Vec<String> = (0..20_000)
        .map(|i| format!("10.{}.{}.0/24", i / 256, i % 256))
        .collect();
    let text = format!("routing {{ dip({}) -> direct }}", list.join(", "));
    let parsed = parse_text("case.dae", &text);
    assert!(parsed.diagnostics.is_empty());
    let report = support::report(&parsed);
    assert_eq!(report.matches("/24").count(), 20_000);
    assert_eq!(parsed.sections[0].items.len(), 1);
}
