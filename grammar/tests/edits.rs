//! Edits in place: what changes, and that nothing else does.

use honk_grammar::edit::{Body, Change, EditError, apply};

const G: Body<'static> = Body {
    section: "group",
    name: Some("g"),
};

fn set(text: &str, key: &str, value: &str) -> String {
    apply(text, G, &[(key, Change::Text(value))]).expect("can be edited")
}

fn remove(text: &str, key: &str) -> String {
    apply(text, G, &[(key, Change::Remove)]).expect("can be edited")
}

#[test]
fn a_value_is_replaced_and_its_neighbours_stay() {
    for (text, expected) in [
        (
            "group { g { default: a } }",
            "group { g { default: 'b c' } }",
        ),
        (
            "group { g {\n  default: \"x\"   # why\n} }",
            "group { g {\n  default: 'b c'   # why\n} }",
        ),
        (
            "group { g { default: a default: x } }",
            "group { g { default: a default: 'b c' } }",
        ),
        (
            "group { g { default:\n policy: x } }",
            "group { g { default: 'b c'\n policy: x } }",
        ),
        (
            "group { g { default: # c\n } }",
            "group { g { default: 'b c' # c\n } }",
        ),
        (
            "\u{FEFF}group { g {default:a}}",
            "\u{FEFF}group { g {default:'b c'}}",
        ),
        (
            "group { h {} } group { 'g' { 'default': fixed(0) } }",
            "group { h {} } group { 'g' { 'default': 'b c' } }",
        ),
    ] {
        assert_eq!(set(text, "default", "b c"), expected);
    }
}

#[test]
fn a_new_key_takes_the_indentation_and_line_end_of_its_body() {
    for (text, expected) in [
        (
            "group {\n  g {\n    policy: x\n  }\n}",
            "group {\n  g {\n    policy: x\n    final: 'd'\n  }\n}",
        ),
        (
            "group {\r\n\tg {\r\n\t\tpolicy: x\r\n\t}\r\n}",
            "group {\r\n\tg {\r\n\t\tpolicy: x\r\n\t\tfinal: 'd'\r\n\t}\r\n}",
        ),
        ("group { g {\n} }", "group { g {\n        final: 'd'\n} }"),
        (
            "group { g { policy: x } }",
            "group { g { policy: x final: 'd' } }",
        ),
        ("group { g {} }", "group { g { final: 'd' } }"),
        (
            "group { g {policy:x} }",
            "group { g {policy:x final: 'd' } }",
        ),
        (
            "group {\n  g { policy: x\n      icon: y }\n}",
            "group {\n  g { policy: x\n      icon: y \n      final: 'd'\n  }\n}",
        ),
        (
            "group { g { icon: } }",
            "group { g { icon: \n        final: 'd'\n} }",
        ),
        (
            "group {\n g {\n  policy: x # c }\n }\n}",
            "group {\n g {\n  policy: x # c }\n  final: 'd'\n }\n}",
        ),
    ] {
        assert_eq!(set(text, "final", "d"), expected);
    }
}

#[test]
fn a_removed_key_takes_its_line_along_if_nothing_else_is_on_it() {
    for (text, expected) in [
        (
            "group {\n g {\n  policy: x\n  final: d\n }\n}",
            "group {\n g {\n  policy: x\n }\n}",
        ),
        (
            "group {\r\n g {\r\n  final: d\r\n }\r\n}",
            "group {\r\n g {\r\n }\r\n}",
        ),
        (
            "group { g { final: d policy: x } }",
            "group { g {  policy: x } }",
        ),
        (
            "group {\n g {\n  final: d # why\n }\n}",
            "group {\n g {\n   # why\n }\n}",
        ),
        ("group { g {\n final: a\n final: b\n} }", "group { g {\n} }"),
        ("group { g { policy: x } }", "group { g { policy: x } }"),
    ] {
        assert_eq!(remove(text, "final"), expected);
    }
}

#[test]
fn the_quote_is_the_one_the_text_does_not_contain() {
    let text = "group { g { default: a } }";
    assert_eq!(
        set(text, "default", "it's"),
        "group { g { default: \"it's\" } }"
    );
    assert_eq!(
        set(text, "default", "say \"x\""),
        "group { g { default: 'say \"x\"' } }"
    );
    for bad in ["'\"", "a\nb", "a\\", "a\0"] {
        let result = apply(text, G, &[("default", Change::Text(bad))]);
        assert!(
            matches!(result, Err(EditError::Unwritable(_))),
            "{bad:?}: {result:?}"
        );
    }
}

#[test]
fn words_are_written_bare_unless_they_cannot_be() {
    let text = "group { g { tolerance: 5'x'y: z } }";
    assert!(apply(text, G, &[("tolerance", Change::Word("50ms"))]).is_ok());
    let edited = apply("group { g { a: 'b'c: d } }", G, &[("a", Change::Word("x"))]);
    assert_eq!(edited.as_deref(), Ok("group { g { a: 'x'c: d } }"));
    let edited = apply("group { g { a: b } }", G, &[("a", Change::Word("x y"))]);
    assert_eq!(edited.as_deref(), Ok("group { g { a: 'x y' } }"));
}

#[test]
fn several_changes_apply_in_order_or_not_at_all() {
    let text = "group { g { policy: a } }";
    let edited = apply(
        text,
        G,
        &[("policy", Change::Text("b")), ("final", Change::Word("c"))],
    );
    assert_eq!(
        edited.as_deref(),
        Ok("group { g { policy: 'b' final: c } }")
    );
    let refused = apply(
        text,
        G,
        &[
            ("policy", Change::Text("b")),
            ("final", Change::Text("'\"")),
        ],
    );
    assert!(refused.is_err());
}

#[test]
fn a_file_without_the_group_or_with_errors_is_left_alone() {
    let missing = apply("group { h {} }", G, &[("final", Change::Text("x"))]);
    assert_eq!(missing, Err(EditError::NoSection("g".to_owned())));
    let broken = apply("group { g { ; } }", G, &[("final", Change::Text("x"))]);
    assert_eq!(broken, Err(EditError::Broken));
}

#[test]
fn a_top_level_section_can_be_edited_too() {
    let body = Body {
        section: "global",
        name: None,
    };
    let edited = apply(
        "global { a: b }\nglobal { c: d }",
        body,
        &[("a", Change::Word("x"))],
    );
    assert_eq!(
        edited.as_deref(),
        Ok("global { a: b }\nglobal { c: d a: x }")
    );
}
