//! Mistakes in `node`.

use super::Case;

pub(super) const CASES: &[Case] = &[
    ("X55", "node { 'sss://abc' }", &["E801 1:8"], "`ss`"),
    ("X55b", "node { 'ssr://abc' }", &["W810 1:8"], ""),
    ("X55c", "node { mux: true }", &["E803 1:8"], "vless_mode="),
    (
        "X55d",
        "node { block: 'socks5://192.0.2.1:1080' }",
        &["E502 1:8"],
        "",
    ),
    (
        "X56",
        "node { a: 'trojan://s@host.example:443' b: 'trojan://s@host.example:443' }",
        &["E804 1:41"],
        "",
    ),
    ("quoted link section", "'node' { }", &["E202 1:1"], ""),
    ("mux with equals", "node { mux = true }", &["E803 1:8"], ""),
    (
        "via on a node",
        "node { a: socks5://192.0.2.1:1 -> b }",
        &["E203 1:32"],
        "quote the whole",
    ),
    (
        "malformed link",
        "node { a: 'socks5://192.0.2.1:0' }",
        &["W802 1:11"],
        "",
    ),
    (
        "skipped node as target",
        "node { a: 'ssr://x' }⏎routing { fallback: a }",
        &["W810 1:11", "E501 2:21"],
        "",
    ),
    (
        "duplicate node name",
        "node { a: socks5://192.0.2.1:1 a: socks5://192.0.2.2:1 }",
        &["W805 1:32"],
        "",
    ),
    (
        "unknown node note",
        "node { a: socks5://192.0.2.1:1 [detuor: x] }",
        &["E207 1:33"],
        "`detour`",
    ),
    (
        "unknown default",
        "node { a: socks5://192.0.2.1:1 }⏎group { g { default: aa } }",
        &["W503 2:22"],
        "`a`",
    ),
    (
        "empty link",
        "node { a: } subscription { b: } dns { upstream { c: } }",
        &["E206 1:8", "E206 1:28", "E206 1:50"],
        "on the line of the name",
    ),
    (
        "chain without blanks",
        "node { 'socks5://192.0.2.1:1->ssr://192.0.2.2:1' }",
        &["W809 1:8"],
        "",
    ),
    (
        "arrow in a name",
        "node { 'socks5://192.0.2.1:1#a->b' }",
        &[],
        "",
    ),
];
