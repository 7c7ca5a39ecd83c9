//! Mistakes in `experimental`.

use super::Case;

pub(super) const CASES: &[Case] = &[
    ("X60", "experimental { secret: 'x' }", &["E203 1:16"], ""),
    (
        "X60b",
        "experimental { clash_api { secrt: 'x' } }",
        &["E204 1:28"],
        "`secret`",
    ),
    (
        "open listener",
        "experimental { clash_api { external_controller: '0.0.0.0:9090' secret: 'short' } }",
        &["N714 1:49"],
        "add `secret:",
    ),
    (
        "open listener, short token of readers",
        "experimental { clash_api { external_controller: '0.0.0.0:9090' read_secret: 'short' } }",
        &["N714 1:49"],
        "add `secret:",
    ),
    (
        "relative file of a token",
        "experimental { clash_api { secret_file: 'token' } }",
        &["E408 1:41"],
        "",
    ),
    (
        "no origin",
        "experimental { clash_api { allow_origins: 'https://a.example', 'b.example' } }",
        &["E406 1:43"],
        "write scheme",
    ),
    (
        "path of an origin",
        "experimental { clash_api { allow_origins: 'https://a.example/x' } }",
        &["E406 1:43"],
        "write scheme",
    ),
    (
        "any origin",
        "experimental { clash_api { allow_origins: '*' secret: 's3cret' } }",
        &[" 1:43"],
        "name the origins",
    ),
    (
        "listener address",
        "experimental { clash_api { external_controller: nonsense } }",
        &["N715 1:49"],
        "",
    ),
    (
        "mode",
        "experimental { clash_api { default_mode: rule } }",
        &["E405 1:42"],
        "`Rule`",
    ),
    (
        "nfqueue",
        "experimental { udp_nfqueue { } }",
        &["W213 1:16"],
        "",
    ),
];
