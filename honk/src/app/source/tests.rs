//! All faults of a file in one run: those of the text, of its meaning, and of the finished groups.

use super::*;
use crate::{app::diag::short, cli::tests::invocation};

/// The findings of a text, one a line, without those about features that are not built.
fn told(text: &str) -> Vec<String> {
    let outcome = load_text(
        &invocation().spec_or_here(),
        "t.dae",
        text.as_bytes(),
        Purpose::Check,
    );
    let documents = outcome.findings.documents();
    let told = documents.iter().filter(|d| d.code != config::NOT_BUILT);
    told.map(|d| {
        let group = d.section.as_deref() == Some("group");
        assert!(!group || d.help.is_some(), "{d:?}");
        short(d)
    })
    .collect()
}

/// Code and place of each.
fn places(text: &str) -> Vec<String> {
    let head = "global { lan_interface: lan0 }\nrouting { fallback: direct }\n";
    let place = |line: &String| {
        let rest = line.strip_prefix("t.dae:").unwrap_or(line);
        let (place, rest) = rest.split_once(": ").unwrap();
        let code = rest.split(['[', ']']).nth(1).unwrap();
        format!("{code} {place}")
    };
    told(&format!("{head}{text}")).iter().map(place).collect()
}

#[test]
fn findings_of_groups_have_a_place_and_a_remedy() {
    let nodes =
        "node { a: 'socks5://192.0.2.1:1080' b: 'socks5://192.0.2.2:1080' [enabled: no] }\n";
    for (groups, want) in [
        (
            "group {\n x { filter: name(a) filter: group(y) }\n y { filter: name(a)\n  filter: group('z|x') }\n z { filter: name(a) } }",
            &["group-cycle 7:17"][..],
        ),
        (
            "group {\n x { filter: name(a) final: y }\n y { filter: name(q) final: x } }",
            &["final-cycle 5:29", "group-empty 6:2", "final-cycle 6:29"],
        ),
        (
            "group {\n x { filter: name(a)\n default: direct } }",
            &["default-unknown 6:11"],
        ),
        ("group { x { filter: name(q) } }", &["group-empty 4:9"]),
        (
            "group { x { filter: name(a) filter: name(keyword: q)\n filter: !name(a) filter: name(direct) } }",
            &["filter-empty 4:37", "filter-empty 5:10"],
        ),
        // A group of that name is declared; the node is in the file, too.
        (
            "group { x { filter: name(q) } x { filter: name(a) } direct { } }",
            &[
                "group-empty 4:9",
                "group-name-duplicate 4:31",
                "group-name-reserved 4:53",
            ],
        ),
        (
            "group { x { filter: name(q) } y { filter: name(c) } }\nnode { c: 'socks5://192.0.2.1:1080' }",
            &["group-empty 4:9", "node-id-collision 5:8"],
        ),
        (
            "group { x { filter: name(q) } }\nrouting { dport(1) -> nobody }",
            &["group-empty 4:9", "rule-target-unknown 5:23"],
        ),
        (
            "group { x { filter: name(regex: '^(?!a)') } }",
            &["group-empty 4:9", "filter-ignored 4:26"],
        ),
        (
            "subscription { s: 'file://nowhere.sub' }",
            &["subscription-file 4:19"],
        ),
        (
            "group { a0 { filter: name(a) }\n\
             a1 { filter: group(a0) } a2 { filter: group(a1) } a3 { filter: group(a2) }\n\
             a4 { filter: group(a3) } a5 { filter: group(a4) } a6 { filter: group(a5) }\n\
             a7 { filter: group(a6) }\na8 { filter: group(a7) } }",
            &["group-depth 8:1"],
        ),
    ] {
        assert_eq!(places(&format!("{nodes}{groups}")), want, "{groups}");
    }
}

#[test]
fn findings_of_groups_come_with_all_others_in_order() {
    let text = "group {\n x { filter: group(y) } y { filter: group(x) }\n z { filter: name(q) polcy: select }\n }\n\
                subscription { s: 'file://nowhere.sub' }\n\
                experimental { what { } }\nglobal { nothing: 1 }\nrouting { dport(1 2) -> x }";
    assert_eq!(
        places(text),
        [
            "group-empty 4:25",
            "group-cycle 4:43",
            "group-empty 5:2",
            "unknown-key 5:22",
            "subscription-file 7:19",
            "unknown-section 8:16",
            "unknown-key 9:10",
            "parse 10:19",
        ]
    );
}

#[test]
fn nothing_is_concluded_from_what_could_not_be_read() {
    // Without the broken parts neither group can be judged.
    for text in [
        "node { a: 'x' -> b -> c }\ngroup { x { filter: name(a) } }",
        "node { a: 'sss://x' }\ngroup { x { filter: name(a) } }",
        "group { x { filter: name(a }\n y { filter: group(x) } }",
    ] {
        let found = places(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
}

#[test]
fn what_is_beyond_the_limits_is_told_once() {
    let groups: String = (0..300)
        .map(|n| format!("g{n} {{ filter: name(a) }}\n"))
        .collect();
    let nodes = "node { a: 'socks5://192.0.2.1:1080' }\n";
    let found = places(&format!(
        "{nodes}group {{\n{groups}}}\nrouting {{ dport(1) -> g299 }}"
    ));
    assert_eq!(found, ["too-many-groups 255:1"]);
    let rules = "dport(1) -> block\n".repeat(1100);
    assert_eq!(
        places(&format!("routing {{\n{rules}}}")),
        ["rule-too-many 1027:1"]
    );
}

#[test]
fn a_rule_with_a_disabled_node_says_that_it_is_disabled() {
    let text = "node { b: 'socks5://192.0.2.2:1080' [enabled: no] }\nrouting { dport(1) -> b }";
    assert_eq!(places(text), ["node-disabled 4:23", "group-empty 4:23"]);
    let run = load_text(
        &invocation().spec_or_here(),
        "t.dae",
        text.as_bytes(),
        Purpose::Run,
    );
    assert!(run.candidate.is_some(), "{:?}", run.findings);
}
