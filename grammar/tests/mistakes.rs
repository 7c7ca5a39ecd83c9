//! Mistakes of people who know another language: where they are told, and in which words.

use honk_grammar::{Parsed, parse_text};

/// Place, message and help of all findings, one per line.
fn told(text: &str) -> String {
    let parsed = parse_text("x.dae", text);
    let line = |found: &honk_grammar::diag::Diagnostic| {
        let place = found.span.and_then(|span| parsed.sources.start(span));
        let place = place.expect("syntax errors have a place");
        let help = found.help.clone().unwrap_or_default();
        let (line, column) = (place.line, place.column);
        format!(
            "{} {line}:{column} {} | {help}\n",
            found.number, found.message
        )
    };
    parsed.diagnostics.iter().map(line).collect()
}

fn names(parsed: &Parsed) -> Vec<&str> {
    let sections = parsed.sections.iter();
    sections.map(|s| s.name.text.as_str()).collect()
}

#[test]
fn conditions_that_are_joined_with_or_are_told_where_they_are_joined() {
    let rules = |body: &str| told(&format!("routing {{\n {body}\n fallback: a\n}}"));
    for joint in ["||", "|", "or"] {
        let found = rules(&format!("dport(80) {joint} dport(443) -> b"));
        assert!(found.starts_with("E113 2:12 "), "{found}");
        assert!(found.ends_with("| repeat the rule with the other condition\n"));
        assert_eq!(found.lines().count(), 1, "{found}");

        let filter = format!("group {{ g {{\n filter: name(a) {joint} name(b)\n policy: c\n}} }}");
        let found = told(&filter);
        let want = format!("E110 2:18 conditions cannot be joined with `{joint}` | alternatives");
        assert!(found.starts_with(&want), "{found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
    for (body, column) in [
        ("domain(a.b || c.d) -> e", 13),
        ("domain(a.b, || c.d) -> e", 17),
    ] {
        let found = rules(body);
        assert!(found.starts_with(&format!("E110 2:{column} ")), "{found}");
        assert!(found.ends_with("| alternatives are separated by commas\n"));
    }
}

#[test]
fn conditions_are_not_grouped_with_parentheses() {
    for (rule, column) in [
        ("!(dport(80)) -> a", 3),
        ("(dport(1) && dport(2)) -> a", 2),
        ("dport(1) && (dport(2)) -> a", 14),
    ] {
        let found = told(&format!("routing {{\n {rule}\n}}"));
        assert!(found.starts_with(&format!("E110 2:{column} ")), "{found}");
        assert!(found.contains("`!` negates one call"), "{found}");
    }
}

#[test]
fn a_setting_that_is_written_like_a_call_is_told_as_one() {
    for (text, want) in [
        (
            "global {\n log_level(info)\n mptcp: true\n}",
            "E110 2:2 `log_level(...)` stands alone; settings are written `key: value` | write `log_level: info`\n",
        ),
        (
            "global {\n tcp_check_url('http://x.example/')\n}",
            "E110 2:2 `tcp_check_url(...)` stands alone; settings are written `key: value` | write `tcp_check_url: value`\n",
        ),
        (
            "group {\n g {\n  name(a) && name(b)\n  policy: c\n }\n}",
            "E110 3:3 `name(...)` stands alone; settings are written `key: value` | write `filter: name(...)`\n",
        ),
    ] {
        assert_eq!(told(text), want, "{text}");
    }
    // Where rules are at home it is a rule that lacks its outbound.
    let found = told("dns { routing { request {\n qname(a)\n fallback: b\n} } }");
    assert!(found.starts_with("E113 3:2 "), "{found}");
}

#[test]
fn a_quote_that_is_not_closed_is_one_mistake() {
    let text = "global {\n log_level: 'info\n mptcp: true\n}\nnode { a: 'b' }";
    assert!(told(text).starts_with("E104 2:13 ") && told(text).lines().count() == 1);
    let parsed = parse_text("x.dae", text);
    let global = &parsed.sections[0];
    assert_eq!(names(&parsed), ["global", "node"]);
    // The key has a value, only not one that can be read.
    assert_eq!(global.items.len(), 1, "{global:?}");
}

#[test]
fn slashes_are_told_once_and_passed_over() {
    let text = "// head: don't {\nglobal { // it's\n log_level: info // why \u{65E5}\n //mptcp: true\n}\n\
                node { // all\n a: 'http://h:1' //b: 'c'\n}\n\
                routing {\n domain(a.b, // one\n c.d) -> e\n dport(1) -> // two\n f\n}\n//";
    let found = told(text);
    assert!(
        found.starts_with("E203 1:1 `//` is no comment (8 more) | comments begin with `#`"),
        "{found}"
    );
    assert_eq!(found.lines().count(), 1, "{found}");
    let parsed = parse_text("x.dae", text);
    assert_eq!(names(&parsed), ["global", "node", "routing"]);
    let items: Vec<usize> = parsed.sections.iter().map(|s| s.items.len()).collect();
    assert_eq!(items, [1, 1, 2]);
    assert!(!parsed.incomplete && parsed.broken.is_empty());
}

#[test]
fn words_that_begin_with_slashes_stay_words() {
    for text in [
        "include { //a.dae b//c.dae }",
        "global { log_file: //srv/log a: b//c }",
        "node { a: http://h//x 'b'://c }",
        "group { // { } }",
        "global { //: a }",
        "routing { domain(//a) -> b && c }",
        "routing { a() -> p ://\n}",
    ] {
        assert!(!told(text).contains("comment"), "{text}");
    }
}
