//! The table of traps (`tests/TRAPS.md`) against the sources: it must not promise a test that is
//! gone, and every trap has a row.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many traps there are.
const TRAPS: usize = 72;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests lie in the repository")
}

/// Names of all tests of a file.
fn tests_of(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(name) = line.split("fn ").nth(1).filter(|_| marked) {
            let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            names.insert(name.split(end).next().unwrap_or_default().to_owned());
            marked = false;
        }
    }
    names
}

fn sources(dir: &Path, all: &mut BTreeMap<String, BTreeSet<String>>) {
    for entry in std::fs::read_dir(dir).expect("a folder of sources") {
        let path: PathBuf = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let name = path.strip_prefix(root()).expect("inside").display();
            all.insert(name.to_string(), tests_of(&text));
        }
    }
}

/// One row: the tests by file, and whether a reason is given.
struct Row {
    tests: BTreeSet<(String, String)>,
    reason: bool,
}

fn row(line: &str) -> Option<(usize, Row)> {
    let mut cells = line.trim_matches('|').split('|').map(str::trim);
    let number = cells.next()?.strip_prefix('T')?.parse().ok()?;
    let (tests, reason) = (cells.next()?, cells.next()?);
    let mut found = BTreeSet::new();
    for part in tests.split(';').filter(|p| !p.trim().is_empty()) {
        let mut quoted = part.split('`').skip(1).step_by(2);
        let file = quoted.next()?.to_owned();
        found.extend(quoted.map(|test| (file.clone(), test.to_owned())));
    }
    let reason = !reason.is_empty();
    Some((
        number,
        Row {
            tests: found,
            reason,
        },
    ))
}

#[test]
fn every_trap_has_its_test_or_a_reason() {
    let text = std::fs::read_to_string(root().join("tests/TRAPS.md")).expect("tests/TRAPS.md");
    let rows: Vec<(usize, Row)> = text.lines().filter_map(row).collect();
    let numbers: Vec<usize> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(
        numbers,
        (1..=TRAPS).collect::<Vec<_>>(),
        "rows of the table"
    );
    let mut all = BTreeMap::new();
    for dir in ["tests/tests", "honk/src", "honk/policy/src"] {
        sources(&root().join(dir), &mut all);
    }
    for (number, row) in &rows {
        assert!(
            !row.tests.is_empty() || row.reason,
            "T{number:02}: neither test nor reason"
        );
        for (file, test) in &row.tests {
            let known = all.get(file).is_some_and(|tests| tests.contains(test));
            assert!(known, "T{number:02}: no test {test} in {file}");
        }
    }
}
