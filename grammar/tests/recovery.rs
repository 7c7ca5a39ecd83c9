//! One syntax error hides nothing but the item it is in: the others of the section are told too,
//! none is told twice, and what can be read is read.

mod support;

use honk_grammar::parse_text;

/// Text, its errors as number and place, and words of the tree that is left.
const CASES: &[(&str, &[&str], &str)] = &[
    // Three mistakes among four sound items.
    (
        "routing {\n dport(80) => direct\n dip(10.0.0.0/8) -> direct\n domain(a b) -> block\n \
         l4proto(udp) -> block\n dport(,1) -> x\n fallback: direct\n}",
        &["E113 2:12", "E110 4:11", "E110 6:8"],
        "rule dip(<10.0.0.0/8>) -> <direct>\n  rule l4proto(<udp>) -> <block>\n  set <fallback> = <direct>\n",
    ),
    // The arguments go on below the mistake.
    (
        "routing {\n domain(a.example,\n  b c,\n  d.example) -> direct\n dport(1) -> block\n}",
        &["E110 3:5"],
        "section <routing>\n  rule dport(<1>) -> <block>\n",
    ),
    // An open parenthesis does not swallow the rules below.
    (
        "routing {\n dport(80 -> direct\n dport(1) -> block\n dport(2 -> x\n fallback: direct\n}",
        &["E110 2:11", "E110 4:10"],
        "rule dport(<1>) -> <block>\n  set <fallback> = <direct>\n",
    ),
    // A rule without target: the rule below is a rule.
    (
        "routing {\n domain(a.example)\n dport(1) -> block\n domain(b.example) # todo\n\n fallback: direct\n}",
        &["E113 3:2", "E113 6:2"],
        "section <routing>\n  rule dport(<1>) -> <block>\n  set <fallback> = <direct>\n",
    ),
    // An arrow without target points at itself, not at the line below.
    (
        "routing {\n domain(a.example) -> # todo\n dport(1) -> block\n dip(::1) ->\n fallback: direct\n}",
        &["E113 2:20", "E113 4:11"],
        "section <routing>\n  rule dport(<1>) -> <block>\n  set <fallback> = <direct>\n",
    ),
    (
        "routing {\n domain(a.example) ->\n 'my proxy' }",
        &[],
        "rule domain(<a.example>) -> \"my proxy\"\n",
    ),
    (
        "routing {\n domain(a.example) ->\n}",
        &["E113 2:20"],
        "section <routing>\n",
    ),
    // Nested bodies are read on in their own place.
    (
        "group {\n a {\n  filter: name(x\n  policy: select\n }\n b { policy: fixed }\n c {\n  filter: name(y) &&\n  default: z\n }\n}",
        &["E110 4:3", "E110 9:10"],
        "section <group>\n  section <a>\n  section <b>\n    set <policy> = <fixed>\n  section <c>\n",
    ),
    // Links, each on its line.
    (
        "node {\n a: 'ss://x' -> b -> c\n d: ss://y\n e: 'f' 'g' )\n h: {\n i: ss://z\n }\n j: ss://k\n}",
        &["E110 2:19", "E110 5:5"],
        "link <d> <ss://y>",
    ),
    (
        "dns {\n upstream {\n  a: 'udp://1' -> x -> y\n  b: 'udp://2'\n }\n bind: ( 1\n routing {\n  request {\n   qname(a -> b\n   fallback: a\n  }\n }\n}",
        &["E110 3:21", "E110 6:8", "E110 9:12"],
        "section <upstream>\n    link <b>",
    ),
    // A separator that is none.
    (
        "global { log_level: info; mptcp: true; x: (1) }",
        &["E110 1:25", "E110 1:43"],
        "set <log_level> = <info>\n  set <mptcp> = <true>\n",
    ),
    // A quote that is not closed costs its section, and those behind it only if it hides a brace.
    (
        "node {\n a: 'ss://x\n}\ngroup {\n g { a: (\n }\n}\nrouting {\n dport(\"1) -> a\n}",
        &["E104 2:5", "E104 9:8", "E110 5:9"],
        "section <group>\n  section <g>\n",
    ),
    (
        "routing {\n dport(1) -> a\n domain('x) -> b\n dport(2) -> c\n dport(3 4) -> d\n dport(\"5) -> e # '\n fallback: f }",
        &["E104 3:9", "E104 6:8", "E110 5:10"],
        "rule dport(<1>) -> <a>\n  rule dport(<2>) -> <c>\n  set <fallback> = <f>\n",
    ),
    ("node { a: 'ss://x }\nglobal { a: ( }", &["E104 1:11"], ""),
    // A section of an odd name has mistakes as well.
    ("*a {\n f( }", &["E110 2:5"], ""),
    ("\\outing { f(g(x)) -> y }", &["E110 1:14"], ""),
    ("dns { routing { ://b { f(c) -> d } } }", &["E110 1:22"], ""),
    // What stands outside of a section does not hide it.
    (
        "log_level: info\nglobal {\n a: b\n c: (\n}",
        &["E114 1:10", "E110 4:5"],
        "section <global>\n  set <a> = <b>\n",
    ),
    ("global: {\n a: b\n}", &["E114 1:7"], ""),
    // An open section ends the reading: what follows may be anything.
    ("global {\n a: (\n b: (\n", &["E110 2:5"], ""),
    // Comments and quotes hide brackets.
    (
        "routing {\n dport(1 2) -> a # (\n dport(3) -> b /* ( */\n dport('(' 4) -> c\n dport(5) -> d\n}",
        &["E110 2:10", "E110 4:12"],
        "section <routing>\n  rule dport(<3>) -> <b>\n  rule dport(<5>) -> <d>\n",
    ),
];

#[test]
fn every_mistake_of_a_section_is_told_once() {
    for (text, want, tree) in CASES {
        let parsed = parse_text("x.dae", text);
        let found: Vec<String> = parsed
            .diagnostics
            .iter()
            .map(|d| {
                let place = d.span.and_then(|span| parsed.sources.start(span)).unwrap();
                format!("{} {}:{}", d.number, place.line, place.column)
            })
            .collect();
        let report = support::report(&parsed);
        assert_eq!(found, *want, "{text}\n{report}");
        assert!(
            support::tree(&parsed.sections).contains(tree),
            "{text}\n{report}"
        );
    }
}

#[test]
fn a_section_that_was_read_in_part_is_suspect() {
    let parsed = parse_text("x.dae", "junk\ngroup {\n a { }\n b: (\n}\nnode { }");
    assert!(parsed.suspect("group") && !parsed.suspect("node"));
}

#[test]
fn an_open_quote_that_hides_a_brace_makes_all_sections_suspect() {
    let suspect = |text: &str| parse_text("x.dae", text).suspect("group");
    assert!(suspect("node { a: 'ss://x }\ngroup { }"));
    assert!(!suspect("node { a: 'ss://x\n}\ngroup { }"));
}

#[test]
fn mistakes_without_end_are_told_up_to_the_limit() {
    let text = format!("routing {{\n{}}}", "dport(1 2) -> x\n".repeat(5000));
    let parsed = parse_text("x.dae", &text);
    let found = parsed.diagnostics.len();
    assert!((100..=110).contains(&found), "{found}");
    assert!(parsed.cut && parsed.incomplete);
    let few = parse_text(
        "x.dae",
        &format!("routing {{\n{}}}", "dport(1 2) -> x\n".repeat(9)),
    );
    assert_eq!((few.diagnostics.len(), few.cut), (9, false));
}
