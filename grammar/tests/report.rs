//! How findings look, what they never show, and how errors beside each other are told apart.

use honk_grammar::{
    Parsed,
    diag::{Diagnostic, Severity, arrange, human, record, short},
    parse_text,
};

fn first(text: &str) -> (Parsed, Diagnostic) {
    let parsed = parse_text("/etc/honk/config.dae", text);
    let found = parsed
        .diagnostics
        .first()
        .cloned()
        .expect("there is an error");
    (parsed, found)
}

#[test]
fn the_human_form_points_at_the_place() {
    let (parsed, found) = first("global {\n\tlog_level: info;\n}");
    assert_eq!(
        human(&found, &parsed.sources),
        "error[parse]: expected `,`, `(`, a function call, a name, a value or `[`, found `;`\n\
        \x20 --> /etc/honk/config.dae:2:17\n\
        \x20  |\n\
        \x202 |  log_level: info;\n\
        \x20  |                 ^\n\
        \x20  = help: no separator is needed\n"
    );
    assert!(
        short(&found, &parsed.sources).starts_with("/etc/honk/config.dae:2:17: error[parse]: ")
    );
    let record = record(&found, &parsed.sources);
    assert_eq!(
        (record.line, record.column, record.end_column),
        (Some(2), Some(17), Some(18))
    );
    assert_eq!(record.section.as_deref(), Some("global"));
}

#[test]
fn the_gutter_grows_with_the_line_number() {
    let (parsed, found) = first(&format!("{}global {{ ; }}", "\n".repeat(99)));
    let text = human(&found, &parsed.sources);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "    --> /etc/honk/config.dae:100:10");
    assert_eq!(lines[3], " 100 | global { ; }");
    assert_eq!(lines[4], "     |          ^");
}

#[test]
fn a_long_line_is_cut_around_the_span() {
    let list = vec!["10.0.0.0/8"; 2000].join(",");
    let (parsed, found) = first(&format!("routing {{ dip({list} ; {list}) -> direct }}"));
    let text = human(&found, &parsed.sources);
    let lines: Vec<&str> = text.lines().collect();
    let excerpt = lines[3].strip_prefix(" 1 | ").expect("gutter");
    assert!(excerpt.chars().count() <= 120, "{excerpt}");
    assert!(
        excerpt.starts_with("...") && excerpt.ends_with("..."),
        "{excerpt}"
    );
    let caret = lines[4].find('^').expect("caret") - "   | ".len();
    assert_eq!(excerpt.as_bytes()[caret], b';');
}

#[test]
fn secrets_never_show() {
    const CANARY: &str = "c4n4ry";
    for text in [
        "node { a: 'ss://c4n4ry@h:1' } ;",
        "node { 'ss://c4n4ry@h:1' { }",
        "node {\n a: ss://c4n4ry@h:1 ; }\nglobal { ;\n}",
        "subscription { s: https://h/c4n4ry?c4n4ry#c4n4ry \"x }",
        "experimental { clash_api { secret: 'c4n4ry' ; } }",
        "experimental { clash_api { secret: c4n4ry) } }",
        "experimental { clash_api { secret: c4n4ry;c4n4ry } }",
        "global { a: f(x) ss://c4n4ry@h ) }",
        "node { a: 'ss://c4n4ry \u{7} c4n4ry' }",
        "node { a: \"ss://c4n4ry\n }",
        "subscription { 'q:https://c4n4ry' -> }",
        // What is passed over is shown all the same.
        "global { // password: ab}c4n4ry\n}",
        "global { // secret: #c4n4ry\n}",
        "global { // password: ab}c4n4ry\n ; }",
        "global { // secret: #c4n4ry\n ; }\nnode { 'x\n}",
    ] {
        let parsed = parse_text("x.dae", text);
        assert!(!parsed.diagnostics.is_empty(), "{text}");
        for found in &parsed.diagnostics {
            for shown in [human(found, &parsed.sources), short(found, &parsed.sources)] {
                assert!(!shown.contains(CANARY), "{text}\n{shown}");
            }
            assert!(
                !format!("{:?}", record(found, &parsed.sources)).contains(CANARY),
                "{text}"
            );
        }
    }
}

#[test]
fn later_findings_in_a_file_that_parses_are_masked_as_well() {
    let text = "node { a: 'ss://c4n4ry@h:1' b: c4n4ry@h }\nexperimental { clash_api { secret: 'c4n4ry' } }";
    let parsed = parse_text("x.dae", text);
    assert!(parsed.diagnostics.is_empty());
    for section in &parsed.sections {
        let found = Diagnostic::warning("W214", "ignored-key", section.span, "x");
        let shown = human(&found, &parsed.sources);
        assert!(
            shown.contains("***") && !shown.contains("c4n4ry"),
            "{shown}"
        );
    }
}

#[test]
fn ordinary_values_stay_readable() {
    let parsed = parse_text(
        "x.dae",
        "group { g { check_url: 'https://h/generate_204' } }",
    );
    let found = Diagnostic::warning("W907", "key-unused", parsed.sections[0].span, "x");
    assert!(human(&found, &parsed.sources).contains("https://h/***"));
}

#[test]
fn each_mistake_gets_one_error_and_the_rest_is_read() {
    let parsed = parse_text(
        "x.dae",
        "global { a: b; c; d }\nnode { x: 'y' }\nrouting { dport(80) }\n} group { g { : } }\ndns {}",
    );
    let numbers: Vec<&str> = parsed
        .diagnostics
        .iter()
        .map(|found| found.number)
        .collect();
    assert_eq!(numbers, ["E110", "E113", "E112", "E110"]);
    let names: Vec<&str> = parsed
        .sections
        .iter()
        .map(|s| s.name.text.as_str())
        .collect();
    assert_eq!(names, ["global", "node", "routing", "group", "dns"]);
    assert!(parsed.suspect("group") && !parsed.suspect("node"));
}

#[test]
fn a_section_with_odd_characters_is_skipped_and_the_others_are_read() {
    let parsed = parse_text(
        "x.dae",
        "global { a：b }\nnode { x: 'y：z' } # ok：ok\nrouting { ; }",
    );
    let numbers: Vec<&str> = parsed
        .diagnostics
        .iter()
        .map(|found| found.number)
        .collect();
    assert_eq!(numbers, ["E103", "E110"]);
    assert_eq!(parsed.sections.len(), 2);
}

#[test]
fn reports_are_sorted_and_capped_without_hiding_the_only_error() {
    let parsed = parse_text("x.dae", &"a { }\n".repeat(150));
    let mut all: Vec<Diagnostic> = parsed
        .sections
        .iter()
        .rev()
        .map(|section| Diagnostic::warning("W216", "unknown-section", section.span, "x"))
        .collect();
    all[0] = Diagnostic::error("E201", "unknown-section", parsed.sections[149].span, "x");
    let (shown, more) = arrange(all);
    assert_eq!((shown.len(), more), (100, 50));
    assert!(shown.windows(2).all(|pair| pair[0].span <= pair[1].span));
    assert_eq!(shown[99].severity, Severity::Error);
}

#[test]
fn common_mistakes_get_the_right_help() {
    for (text, number, help) in [
        ("routing { dport(80) = direct }", "E113", "write `->`"),
        ("routing { dport(80): direct }", "E113", "write `->`"),
        (
            "routing { dport(80) || dport(1) -> x }",
            "E113",
            "repeat the rule",
        ),
        ("routing { dport(80) & dport(1) -> x }", "E113", "`&&`"),
        ("routing { geoip:cn -> direct }", "E110", "`dip(geoip: cn)`"),
        (
            "routing { suffix: a.b -> direct }",
            "E110",
            "`domain(suffix: a.b)`",
        ),
        ("routing { dport: 80 -> direct }", "E110", "`dport(80)`"),
        (
            "global { a: b,\n # note\n c: d }",
            "E110",
            "trailing comma on line 1?",
        ),
        ("global { a: [b [c] }", "E110", "brackets"),
        ("global: { }", "E114", "inside a section"),
        ("; global { }", "E114", "no separator"),
        ("global { a: b } }", "E112", "closed too early"),
        ("routing { dport(80", "E111", "where the section ends"),
        (
            "group { g { filter: name(a b) } }",
            "E110",
            "missing `:` after `a`",
        ),
        (
            "group { g { filter: name(keyword: a b) } }",
            "E110",
            "missing `,`",
        ),
        ("node { a: 'x' { } }", "E110", ""),
        ("global { a: b } global", "E114", "inside a section"),
    ] {
        let (_, found) = first(text);
        let got = found.help.clone().unwrap_or_default();
        assert_eq!(found.number, number, "{text}: {found:?}");
        assert!(got.contains(help), "{text}: {got}");
    }
}

#[test]
fn limits_are_reported_where_they_are_exceeded() {
    let deep = "a{".repeat(17) + &"}".repeat(17);
    let quoted = format!("global {{ a: '{}' }}", "x".repeat((64 << 10) + 1));
    let long = format!("# {}\nglobal {{}}", "x".repeat(1 << 20));
    let big = " ".repeat((8 << 20) + 1);
    for (text, column, limit) in [
        (deep, 34, "16"),
        (quoted, 13, "65536"),
        (long, 1_048_577, "1048576"),
        (big, 1, "8388608"),
    ] {
        let (parsed, found) = first(&text);
        let place = parsed
            .sources
            .start(found.span.expect("place"))
            .expect("file");
        assert_eq!(
            (found.number, place.line, place.column),
            ("E106", 1, column)
        );
        assert!(found.message.contains(limit), "{}", found.message);
        assert!(parsed.incomplete && parsed.sections.is_empty());
    }
    let fits = "a{".repeat(16) + &"}".repeat(16);
    assert!(parse_text("x.dae", &fits).diagnostics.is_empty());
}

#[test]
fn control_characters_are_reported_even_inside_quotes_and_comments() {
    for text in [
        "global { a: 'x\u{1b}' }",
        "# \u{0}\nglobal {}",
        "/* \u{85} */",
        "a\u{7f} {}",
    ] {
        assert_eq!(first(text).1.number, "E102", "{text:?}");
    }
    let (parsed, found) = first("global { a: 'x\u{1b}[31m' }");
    assert!(!human(&found, &parsed.sources).contains('\u{1b}'));
}

#[test]
fn hostile_text_of_64_kib_is_refused_or_read_with_bounded_findings() {
    const SIZE: usize = 64 << 10;
    for unit in [
        "{", "}", "'", "\"", "'a'", "(", "a(", "a:", "!", "&&", "[", "a[", "/*", "*/", "#", ",",
        "->", "a{}", "a{b", "};", "f(x)", "f(x)&&", "a: b,", "\u{FF1A}", "\0", "\\", "::", "a -> ",
        "日",
    ] {
        for open in ["", "node { ", "routing { f("] {
            let text = open.to_owned() + &unit.repeat(SIZE / unit.len());
            let parsed = parse_text("x.dae", &text);
            assert!(
                parsed.diagnostics.len() <= 102,
                "{open}{unit}: {}",
                parsed.diagnostics.len()
            );
        }
    }
}
