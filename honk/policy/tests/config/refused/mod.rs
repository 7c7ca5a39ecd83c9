//! Texts that parse but are refused or warned about: code, line and column of every finding.

mod dns;
mod experimental;
mod global;
mod group;
mod later;
mod node;
mod routing;
mod subscription;

use super::lowered;

/// Name, text, findings in source order, and a piece of help that must appear.
type Case = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
);

const TABLES: &[&[Case]] = &[
    dns::CASES,
    experimental::CASES,
    global::CASES,
    group::CASES,
    later::CASES,
    node::CASES,
    routing::CASES,
    subscription::CASES,
];

#[test]
fn findings_stand_where_the_mistake_is() {
    let mut wrong = Vec::new();
    for (id, text, want, help) in TABLES.iter().copied().flatten() {
        let (config, findings, got) = lowered(text);
        let helped = help.is_empty()
            || findings
                .iter()
                .any(|f| f.help.as_deref().is_some_and(|h| h.contains(help)));
        let helps: Vec<_> = findings.iter().filter_map(|f| f.help.as_deref()).collect();
        let refused = want.iter().any(|w| w.starts_with('E'));
        if got != *want || !helped || config.is_none() != refused {
            wrong.push(format!(
                "{id}: {text}\n  want {want:?}\n  got  {got:?}\n  help {helps:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn too_many_groups() {
    let groups: String = (0..251).map(|n| format!("g{n} {{ }}\n")).collect();
    let (config, findings, got) = lowered(&format!("group {{\n{groups}}}"));
    assert!(config.is_none());
    assert_eq!(got, ["E901 252:1"], "{findings:?}");
}

#[test]
fn implicit_groups_count_too() {
    let groups: String = (0..250).map(|n| format!("g{n} {{ }}\n")).collect();
    let text = format!(
        "node {{ a: socks5://192.0.2.1:1 }}\ngroup {{\n{groups}}}\nrouting {{ fallback: a }}"
    );
    assert_eq!(lowered(&text).2, ["E901 254:21"]);
}

#[test]
fn too_many_rules() {
    let rules = |n: usize| {
        let rules: String = (0..n).map(|n| format!("dport({n}) -> block\n")).collect();
        lowered(&format!("routing {{\n{rules}}}"))
    };
    assert_eq!(rules(1023).2, Vec::<String>::new());
    let (_, findings, got) = rules(1030);
    assert_eq!(got, ["E608 1025:1"]);
    assert!(
        findings.iter().any(|f| f.message.contains("1031")),
        "{findings:?}"
    );
}

#[test]
fn references_to_a_broken_section_are_not_reported() {
    let (config, _, got) = lowered("group { g { policy: [ } }\nrouting { fallback: g }");
    assert!(config.is_none());
    assert!(got.iter().all(|f| !f.starts_with("E501")), "{got:?}");
}
