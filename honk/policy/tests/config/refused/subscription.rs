//! Mistakes in `subscription`.

use super::Case;

pub(super) const CASES: &[Case] = &[
    (
        "X57",
        "subscription { 'file:///etc/passwd' }",
        &["E807 1:16"],
        "",
    ),
    (
        "X57b",
        "subscription { 'https-file://sub.example/x' }",
        &["E808 1:16"],
        "",
    ),
    (
        "X57c",
        "subscription { s: 'ftp://sub.example' }",
        &["E806 1:19"],
        "",
    ),
    (
        "subscription tags",
        "subscription { a: 'https://s.example' a: 'https://t.example' }",
        &["W805 1:39"],
        "",
    ),
    (
        "subscription via",
        "subscription { a: 'https://s.example' -> b }",
        &["E203 1:39"],
        "",
    ),
    (
        "subscription note",
        "subscription { a: 'https://s.example' [typ: clash] }",
        &["E207 1:40"],
        "`type`",
    ),
    (
        "subscription type",
        "subscription { a: 'https://s.example' [type: yaml] }",
        &["E405 1:40"],
        "",
    ),
    (
        "subscription interval",
        "subscription { a: 'https://s.example' [update_interval: 5s] }",
        &["E403 1:40"],
        "",
    ),
    (
        "subscription path",
        "subscription { 'file://a/../../b' }",
        &["E807 1:16"],
        "",
    ),
    (
        "subscription host",
        "subscription { 'https://' 'x.example/y' }",
        &["E806 1:16", "E806 1:27"],
        "",
    ),
];
