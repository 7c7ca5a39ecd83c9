//! Tidiness that the compiler does not check: who imports whom, file sizes, module docs,
//! stray markers, bans of the pure packages. A scan of source text, deliberately simple.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::source::{self, Source};

const MAX_LINES: usize = 600;
/// Tests are read one by one, so their files may be longer.
const MAX_TEST_LINES: usize = 800;

/// Rooms of the daemon and the rooms they may import; `flow` is the contract between them.
const DAEMON_ROOMS: [(&str, &[&str]); 16] = [
    ("api", &["app", "metrics", "log", "flow"]),
    ("bypass", &["socket"]),
    ("datapath", &["netns", "netlink", "flow", "socket"]),
    ("dns", &["socket", "flow"]),
    ("flow", &[]),
    ("inbound", &["socket", "relay", "dns", "outbound", "flow"]),
    ("log", &[]),
    ("metrics", &[]),
    ("netlink", &["netns"]),
    ("netns", &[]),
    ("outbound", &["socket", "flow"]),
    ("probe", &["outbound"]),
    ("relay", &["socket", "outbound", "flow"]),
    ("socket", &[]),
    ("state", &[]),
    ("subscription", &["outbound"]),
];

/// Rooms of honk-policy.
const POLICY_ROOMS: [(&str, &[&str]); 15] = [
    ("id", &[]),
    ("time", &[]),
    ("node", &["id"]),
    ("config", &["id", "node", "routing"]),
    ("filter", &["id", "node", "config"]),
    ("member", &["id", "node", "config"]),
    ("health", &["id", "time"]),
    ("score", &["id", "time"]),
    (
        "group",
        &[
            "id", "time", "node", "config", "filter", "member", "health", "score",
        ],
    ),
    ("routing", &["id", "config"]),
    ("dns", &["id", "time", "routing"]),
    ("detour", &["id", "node", "config"]),
    ("subscription", &["id", "node", "config"]),
    ("watchdog", &["id", "time"]),
    ("reload", &["id", "node", "config", "member", "routing"]),
];

/// Our packages and those of ours they may depend on.
const PACKAGES: [(&str, &[&str]); 8] = [
    ("honk-common", &[]),
    ("honk-ebpf", &["honk-common"]),
    ("grammar", &[]),
    ("honk/wire", &[]),
    ("honk/policy", &["honk-common", "honk-grammar"]),
    (
        "honk",
        &["honk-common", "honk-grammar", "honk-policy", "honk-wire"],
    ),
    ("tests", &["honk-common", "honk-policy", "honk-wire"]),
    ("xtask", &[]),
];

/// What the pure packages must not mention outside tests.
const IMPURE: [&str; 9] = [
    "tokio",
    "std::fs",
    "std::thread",
    "TcpStream",
    "UdpSocket",
    "TcpListener",
    "Instant::now",
    "SystemTime::now",
    "std::process",
];

/// Runs every check: its name and its problems.
pub(crate) fn run(root: &Path) -> Result<Vec<(&'static str, Vec<String>)>> {
    let sources = source::all(root)?;
    Ok(vec![
        ("tidy: packages", packages(root)),
        (
            "tidy: rooms of the daemon",
            rooms(&sources, "honk/src/", &DAEMON_ROOMS),
        ),
        (
            "tidy: rooms of policy",
            rooms(&sources, "honk/policy/src/", &POLICY_ROOMS),
        ),
        ("tidy: pure packages", pure(&sources)),
        ("tidy: file sizes", sizes(&sources)),
        ("tidy: module docs", docs(&sources)),
        ("tidy: stray markers", markers(&sources)),
    ])
}

fn packages(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for (package, allowed) in PACKAGES {
        let Ok(text) = std::fs::read_to_string(root.join(package).join("Cargo.toml")) else {
            continue;
        };
        for name in our_dependencies(&text) {
            if !allowed.contains(&name.as_str()) {
                problems.push(format!("{package}/Cargo.toml: must not depend on {name}"));
            }
        }
    }
    problems
}

/// Names of dependencies that start with `honk`, in any dependency table.
fn our_dependencies(manifest: &str) -> BTreeSet<String> {
    let mut in_table = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_table = line.ends_with("dependencies]");
        } else if in_table && line.starts_with("honk") {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            found.insert(line[..end].to_owned());
        }
    }
    found
}

fn rooms(sources: &[Source], base: &str, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut problems = Vec::new();
    // As in other files, tests may use whatever they need.
    for source in sources.iter().filter(|source| !is_test(source)) {
        let Some(inner) = source.path.strip_prefix(base) else {
            continue;
        };
        let room = inner.split(['/', '.']).next().unwrap_or_default();
        let Some((_, allowed)) = table.iter().find(|(name, _)| *name == room) else {
            continue;
        };
        for (number, used) in crate_paths(source.shipped()) {
            let is_room = table.iter().any(|(name, _)| *name == used) || used == "app";
            if is_room && used != room && !allowed.contains(&used) {
                problems.push(format!(
                    "{}:{number}: {room} must not import {used}",
                    source.path
                ));
            }
        }
    }
    problems
}

/// First segments after `crate::` with their lines, also those of lists over several lines.
fn crate_paths<'s>(lines: impl Iterator<Item = (usize, &'s str)>) -> Vec<(usize, &'s str)> {
    let mut found = Vec::new();
    // Braces that are open since `crate::{`, and whether a new item of that list begins.
    let (mut depth, mut begins) = (0, false);
    for (number, line) in lines {
        let mut rest = line;
        loop {
            if depth == 0 {
                let Some((_, path)) = rest.split_once("crate::") else {
                    break;
                };
                let list = path.strip_prefix('{');
                if list.is_some() {
                    (depth, begins) = (1, true);
                } else {
                    found.extend(first_word(path).map(|word| (number, word)));
                }
                rest = list.unwrap_or(path);
                continue;
            }
            if begins && let Some(word) = first_word(rest.trim_start()) {
                found.push((number, word));
                begins = false;
            }
            let Some((at, sign)) = rest.char_indices().find(|(_, c)| "{},".contains(*c)) else {
                break;
            };
            match sign {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => begins = depth == 1,
            }
            rest = &rest[at + 1..];
        }
    }
    found
}

fn first_word(text: &str) -> Option<&str> {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

fn pure(sources: &[Source]) -> Vec<String> {
    let pure = [
        "honk/policy/src/",
        "honk/wire/src/",
        "grammar/src/",
        "honk-common/src/",
    ];
    let mut problems = Vec::new();
    for source in sources
        .iter()
        .filter(|s| pure.iter().any(|base| s.path.starts_with(base)))
    {
        if source.path.contains("/tests") {
            continue;
        }
        for (number, line) in source.shipped() {
            for ban in IMPURE.iter().filter(|ban| line.contains(**ban)) {
                problems.push(format!(
                    "{}:{number}: pure package mentions {ban}",
                    source.path
                ));
            }
        }
    }
    problems
}

fn sizes(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter_map(|source| {
            let lines = source.text.lines().count();
            let most = if is_test(source) {
                MAX_TEST_LINES
            } else {
                MAX_LINES
            };
            (lines > most).then(|| {
                format!(
                    "{}: {lines} lines, find the seam ({most} at most)",
                    source.path
                )
            })
        })
        .collect()
}

/// Files that hold nothing but tests.
fn is_test(source: &Source) -> bool {
    source.path.ends_with("/tests.rs") || source.path.contains("/tests/")
}

fn docs(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| !is_test(source) && !source.text.trim_start().starts_with("//!"))
        .map(|source| format!("{}: opens without a module comment (//!)", source.path))
        .collect()
}

fn markers(sources: &[Source]) -> Vec<String> {
    // Spelled apart so that this file does not find itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    let mut problems = Vec::new();
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                problems.push(format!("{}:{}: stray {word}", source.path, number + 1));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn forbidden_import_is_named_with_its_line() {
        let bad = source(
            "honk/src/relay/copy.rs",
            "//! x\nuse crate::{flow, api::Thing};\n",
        );
        let found = rooms(&[bad], "honk/src/", &DAEMON_ROOMS);
        assert_eq!(
            found,
            ["honk/src/relay/copy.rs:2: relay must not import api"]
        );
    }

    #[test]
    fn imports_are_seen_in_lists_over_several_lines() {
        let text = "//! x\nuse crate::{\n    flow::{self, dns,\n        metrics},\n    \
                    app::{\n        engine,\n    },\n    log::{self, Line}, socket,\n};\n\
                    fn f(dns: u8) { crate::state::read() }\nstruct S { outbound: u8, relay: u8 }\n";
        let found = rooms(
            &[source("honk/src/netlink/a.rs", text)],
            "honk/src/",
            &DAEMON_ROOMS,
        );
        let places = [
            (3, "flow"),
            (5, "app"),
            (8, "log"),
            (8, "socket"),
            (10, "state"),
        ];
        let wanted = places.map(|(line, room)| {
            format!("honk/src/netlink/a.rs:{line}: netlink must not import {room}")
        });
        assert_eq!(found, wanted);
    }

    #[test]
    fn comments_and_tests_are_not_imports() {
        let fine = source(
            "honk/src/relay/a.rs",
            "// crate::api\n#[cfg(test)]\nuse crate::api;\n",
        );
        assert_eq!(
            rooms(&[fine], "honk/src/", &DAEMON_ROOMS),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_follows_a_line_for_tests_is_seen() {
        let text = "//! x\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse crate::dns;\n\
                    use crate::api;\n#[cfg(test)]\nmod more {\n    use crate::app;\n}\n";
        let found = rooms(
            &[source("honk/src/relay/a.rs", text)],
            "honk/src/",
            &DAEMON_ROOMS,
        );
        assert_eq!(found, ["honk/src/relay/a.rs:6: relay must not import api"]);
    }

    #[test]
    fn tests_in_their_own_files_import_what_they_need() {
        let fine = source("honk/src/relay/tests.rs", "use crate::api;\n");
        assert!(rooms(&[fine], "honk/src/", &DAEMON_ROOMS).is_empty());
    }

    #[test]
    fn pure_packages_open_no_files() {
        let bad = source("honk/wire/src/a.rs", "fn f() { std::fs::read(\"x\"); }\n");
        assert_eq!(pure(&[bad]).len(), 1);
    }

    #[test]
    fn dependencies_of_ours_are_read_from_any_table() {
        let text = "[dependencies]\nhonk-wire.workspace = true\nlibc = \"1\"\n[lints]\nhonk = 1\n\
                    [dev-dependencies]\nhonk-policy = { path = \"x\" }\n";
        let names: Vec<String> = our_dependencies(text).into_iter().collect();
        assert_eq!(names, ["honk-policy", "honk-wire"]);
    }

    #[test]
    fn missing_module_comment_is_found() {
        assert_eq!(docs(&[source("a.rs", "fn f() {}\n")]).len(), 1);
        assert!(docs(&[source("a.rs", "//! says\nfn f() {}\n")]).is_empty());
    }
}
