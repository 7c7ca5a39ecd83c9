//! Several files through a loader that is a map.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use honk_grammar::{LoadError, Loaded, Loader, Parsed, ast::Item, diag::Severity, parse};

/// Files by absolute path; a value `-> path` is a symbolic link, `!mode` an open file.
#[derive(Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        Self(
            files
                .iter()
                .map(|(p, t)| ((*p).to_owned(), t.as_bytes().to_vec()))
                .collect(),
        )
    }

    fn parse(mut self) -> Parsed {
        parse("/etc/honk/main.dae", &mut self)
    }
}

impl Loader for Files {
    fn canonical(&mut self, path: &str) -> Result<String, LoadError> {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        let path = format!("/{}", parts.join("/"));
        let mut parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        if parents.any(|parent| self.0.contains_key(parent)) {
            return Err(LoadError::Io("Not a directory".to_owned()));
        }
        match self.0.get(&path) {
            Some(text) => match text.strip_prefix(b"-> ") {
                Some(target) => Ok(String::from_utf8_lossy(target).into_owned()),
                None => Ok(path),
            },
            None => Err(LoadError::NotFound),
        }
    }

    fn is_dir(&mut self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.0.keys().any(|name| name.starts_with(&prefix))
    }

    fn list(&mut self, dir: &str) -> Vec<String> {
        let prefix = format!("{dir}/");
        let names: BTreeSet<String> = self
            .0
            .keys()
            .filter_map(|name| Some(name.strip_prefix(&prefix)?.split('/').next()?.to_owned()))
            .collect();
        names.into_iter().rev().collect()
    }

    fn read(&mut self, path: &str) -> Result<Loaded, LoadError> {
        let bytes = self.0.get(path).cloned().ok_or(LoadError::NotFound)?;
        if bytes.starts_with(b"!mode") {
            return Err(LoadError::Permission(0o644));
        }
        Ok(Loaded {
            bytes,
            warnings: Vec::new(),
        })
    }
}

fn found(parsed: &Parsed) -> Vec<(&'static str, String)> {
    parsed
        .diagnostics
        .iter()
        .map(|found| {
            let place = found.span.and_then(|span| {
                let place = parsed.sources.start(span)?;
                let name = &parsed.sources.file(span.file)?.name;
                let name = name.rsplit('/').next().unwrap_or_default();
                Some(format!("{name}:{}:{}", place.line, place.column))
            });
            (found.number, place.unwrap_or_default())
        })
        .collect()
}

fn keys(parsed: &Parsed) -> Vec<String> {
    parsed
        .sections
        .iter()
        .flat_map(|section| &section.items)
        .filter_map(|item| match item {
            Item::Decl(decl) => Some(decl.key.text.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_file_comes_before_what_it_includes_and_patterns_sort_by_byte() {
    let parsed = Files::new(&[
        (
            "/etc/honk/main.dae",
            "include { d/*.dae x.dae } global { main: 1 }",
        ),
        ("/etc/honk/d/b.dae", "global { b: 1 }"),
        (
            "/etc/honk/d/a.dae",
            "include { d/.hidden.dae } global { a: 1 }",
        ),
        ("/etc/honk/d/B.dae", "global { B: 1 }"),
        ("/etc/honk/d/.hidden.dae", "global { hidden: 1 }"),
        ("/etc/honk/d/skip.txt", "}}}"),
        ("/etc/honk/d/dir.dae/inner.dae", "}}}"),
        ("/etc/honk/x.dae", "global { x: 1 }"),
    ])
    .parse();
    assert_eq!(found(&parsed), []);
    assert_eq!(keys(&parsed), ["main", "B", "a", "hidden", "b", "x"]);
    assert!(
        parsed
            .sections
            .iter()
            .all(|section| section.name.text == "global")
    );
}

#[test]
fn relative_paths_start_at_the_entry_file_everywhere() {
    let parsed = Files::new(&[
        ("/etc/honk/main.dae", "include { sub/a.dae }"),
        ("/etc/honk/sub/a.dae", "include { b.dae }"),
        ("/etc/honk/b.dae", "global { b: 1 }"),
        ("/etc/honk/sub/b.dae", "global { wrong: 1 }"),
    ])
    .parse();
    assert_eq!(keys(&parsed), ["b"]);
}

#[test]
fn a_file_outside_the_directory_is_refused_symbolic_links_resolved() {
    let parsed = Files::new(&[
        (
            "/etc/honk/main.dae",
            "include { ../x.dae link.dae /etc/honkey/y.dae }",
        ),
        ("/etc/honk/link.dae", "-> /tmp/evil.dae"),
        ("/etc/x.dae", ""),
        ("/tmp/evil.dae", ""),
        ("/etc/honkey/y.dae", ""),
    ])
    .parse();
    let places = ["main.dae:1:11", "main.dae:1:20", "main.dae:1:29"];
    assert_eq!(
        found(&parsed),
        places.map(|place| ("E302", place.to_owned()))
    );
}

#[test]
fn a_cycle_names_its_chain() {
    let parsed = Files::new(&[
        ("/etc/honk/main.dae", "include { a.dae }"),
        ("/etc/honk/a.dae", "include { main.dae }"),
    ])
    .parse();
    assert_eq!(found(&parsed), [("E303", "a.dae:1:11".to_owned())]);
    let message = &parsed.diagnostics[0].message;
    assert!(
        message.ends_with("includes itself: main.dae -> a.dae -> main.dae"),
        "{message}"
    );
}

#[test]
fn the_same_file_twice_is_an_error_that_shows_the_first_place() {
    let parsed = Files::new(&[
        ("/etc/honk/main.dae", "include { a.dae *.dae }"),
        ("/etc/honk/a.dae", "global { a: 1 }"),
    ])
    .parse();
    assert_eq!(
        found(&parsed),
        [
            ("E303", "main.dae:1:17".into()),
            ("E303", "main.dae:1:17".into())
        ]
    );
    // The pattern names the entry file, too, and that is another mistake.
    let text = |at: usize| parsed.diagnostics[at].message.as_str();
    assert_eq!(text(0), "`a.dae` is included twice: main.dae -> a.dae");
    assert!(text(1).contains("includes itself"), "{}", text(1));
    assert_eq!(parsed.diagnostics[0].related.len(), 1);
    assert_eq!(keys(&parsed), ["a"]);
}

#[test]
fn open_permissions_and_malformed_patterns_are_reported_where_they_stand() {
    let parsed = Files::new(&[
        (
            "/etc/honk/main.dae",
            "include { open.dae a.dae, b.dae: x[.dae 'c.dae,' }",
        ),
        ("/etc/honk/open.dae", "!mode"),
    ])
    .parse();
    assert_eq!(
        found(&parsed),
        [
            ("E304", "main.dae:1:11".to_owned()),
            ("E301", "main.dae:1:20".to_owned()),
            ("E301", "main.dae:1:27".to_owned()),
            ("E301", "main.dae:1:34".to_owned()),
            ("W308", "main.dae:1:41".to_owned()),
        ]
    );
    let message = &parsed.diagnostics[0].message;
    assert_eq!(
        message,
        "permissions 0644 for '/etc/honk/open.dae' are too open; use 0640 or 0600"
    );
    assert!(parsed.suspect("node"));
}

#[test]
fn nothing_matched_is_a_note_for_patterns_and_a_warning_for_names() {
    let parsed = Files::new(&[("/etc/honk/main.dae", "include { d/*.dae gone.dae }")]).parse();
    let severities: Vec<Severity> = parsed.diagnostics.iter().map(|d| d.severity).collect();
    assert_eq!(severities, [Severity::Note, Severity::Warning]);
}

#[test]
fn files_beside_the_directories_of_a_pattern_are_no_match() {
    let parsed = Files::new(&[
        ("/etc/honk/main.dae", "include { */rules.dae }"),
        ("/etc/honk/other.dae", "}}}"),
        ("/etc/honk/a/rules.dae", "global { a: 1 }"),
        ("/etc/honk/b/rules.dae", "global { b: 1 }"),
    ])
    .parse();
    assert_eq!(found(&parsed), []);
    assert_eq!(keys(&parsed), ["a", "b"]);
}

#[test]
fn a_name_that_gives_no_file_says_why() {
    let parsed = Files::new(&[
        (
            "/etc/honk/main.dae",
            "include { d gone.dae a.conf gone d.dae }",
        ),
        ("/etc/honk/d/x.dae", ""),
        ("/etc/honk/d.dae/x.dae", ""),
        ("/etc/honk/a.conf", ""),
    ])
    .parse();
    let messages: Vec<&str> = parsed
        .diagnostics
        .iter()
        .map(|d| d.message.as_str())
        .collect();
    assert_eq!(
        messages,
        [
            "`/etc/honk/d` is a directory",
            "there is no file `/etc/honk/gone.dae` to include",
            "`/etc/honk/a.conf` is not included: its name does not end in `.dae`",
            "there is no file `/etc/honk/gone` to include",
            "`/etc/honk/d.dae` is a directory",
        ]
    );
}

#[test]
fn depth_and_number_of_includes_are_bounded() {
    let mut files = Files::new(&[("/etc/honk/main.dae", "include { 1.dae }")]);
    for i in 1..20 {
        let text = format!("include {{ {}.dae }} global {{ k{i}: 1 }}", i + 1);
        files
            .0
            .insert(format!("/etc/honk/{i}.dae"), text.into_bytes());
    }
    let parsed = files.parse();
    assert_eq!(found(&parsed), [("E106", "16.dae:1:11".to_owned())]);
    assert_eq!(keys(&parsed).len(), 16);

    let mut files = Files::new(&[("/etc/honk/main.dae", "include { d/*.dae }")]);
    for i in 0..257 {
        files.0.insert(format!("/etc/honk/d/{i}.dae"), Vec::new());
    }
    assert_eq!(
        found(&files.parse()),
        [("E106", "main.dae:1:11".to_owned())]
    );
}

#[test]
fn all_files_together_are_bounded() {
    let mut files = Files::new(&[("/etc/honk/main.dae", "include { *.dae }")]);
    files.0.clear();
    files
        .0
        .insert("/etc/honk/main.dae".into(), b"include { d/*.dae }".to_vec());
    for i in 0..5 {
        files
            .0
            .insert(format!("/etc/honk/d/{i}.dae"), vec![b'\n'; 7 << 20]);
    }
    assert_eq!(
        found(&files.parse()),
        [("E106", "main.dae:1:11".to_owned())]
    );
}

#[test]
fn an_entry_that_is_missing_or_has_another_suffix_says_so() {
    let parsed = parse("/etc/honk/main.toml", &mut Files::default());
    assert_eq!(found(&parsed), [("E305", String::new())]);
    let parsed = parse("/etc/honk/main.dae", &mut Files::default());
    assert_eq!(found(&parsed), [("E306", String::new())]);
}

#[test]
fn bytes_that_are_not_utf8_are_an_error_with_their_offset() {
    let mut files = Files::default();
    files.0.insert(
        "/etc/honk/main.dae".into(),
        b"\xEF\xBB\xBFglobal {\n a: \xFF }".to_vec(),
    );
    let parsed = files.parse();
    assert_eq!(found(&parsed), [("E101", "main.dae:2:5".to_owned())]);
    assert!(
        parsed.diagnostics[0].message.contains("byte 16"),
        "{:?}",
        parsed.diagnostics
    );
}

#[test]
fn only_paths_may_stand_in_include() {
    let parsed = Files::new(&[("/etc/honk/main.dae", "include { a { } b: c }")]).parse();
    let numbers: Vec<&str> = found(&parsed).into_iter().map(|row| row.0).collect();
    assert_eq!(numbers, ["E203", "E203"]);
}

#[test]
fn an_error_in_an_included_file_names_the_include() {
    let parsed = Files::new(&[
        ("/etc/honk/main.dae", "include { a.dae }"),
        ("/etc/honk/a.dae", "global {\n  log_level: info;\n}"),
    ])
    .parse();
    let text = honk_grammar::diag::human(&parsed.diagnostics[0], &parsed.sources);
    assert!(text.contains(" --> /etc/honk/a.dae:2:18\n"), "{text}");
    assert!(
        text.ends_with("   = note: included from /etc/honk/main.dae:1:11\n"),
        "{text}"
    );
}
