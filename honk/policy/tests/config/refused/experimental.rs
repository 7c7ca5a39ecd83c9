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
