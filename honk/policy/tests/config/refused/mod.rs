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

#[test]
fn too_many_upstreams() {
    let upstreams = |n: usize| {
        (0..n)
            .map(|n| format!("u{n}: udp://192.0.2.1\n"))
            .collect::<String>()
    };
    let text = |n| format!("dns {{ upstream {{\n{}}} }}", upstreams(n));
    let refused = |n| {
        lowered(&text(n))
            .2
            .iter()
            .any(|found| found.starts_with("E705 "))
    };
    assert!(refused(251) && !refused(250));
}

#[test]
fn findings_beyond_what_anybody_reads_are_counted_only() {
    let keys: String = (0..5000).map(|n| format!("k{n}: 1\n")).collect();
    let (_, findings, _) = lowered(&format!("global {{\n{keys}}}"));
    let of = |slug: &str| {
        findings
            .iter()
            .filter(|f| f.slug == slug)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("unknown-key").len(), 4096);
    let more = of("more");
    assert_eq!(more[0].message, "904 more findings are not listed");
}

#[test]
fn patterns_of_a_configuration_share_a_budget() {
    let rule = |key: &str| format!("domain({key}: '(a{{999}}){{60}}') -> direct\n");
    let one = format!("routing {{ {} }}", rule("regex"));
    assert!(lowered(&one).0.is_some());
    let two = format!("routing {{\n{}{}}}", rule("regex"), rule("regex"));
    assert_eq!(lowered(&two).2, ["E409 3:8"]);
    let filters = "filter: name(regex: '(a{999}){60}')\n".repeat(2);
    let group = format!("group {{ g {{\n{filters}}} }}");
    assert_eq!(lowered(&group).2, ["W904 3:14"]);
}

#[test]
fn misspelt_words_are_compared_until_the_budget_is_spent() {
    let keys: String = (0..3000).map(|_| "log_levle: info\n").collect();
    let (_, findings, _) = lowered(&format!("global {{\n{keys}}}"));
    let helped = findings.iter().filter(|f| f.help.is_some()).count();
    assert!(helped > 100 && helped < 2000, "{helped}");
    assert!(findings[0].help.is_some());
}
