//! Mistakes in sections that are checked and not served yet.

use super::Case;

pub(super) const CASES: &[Case] = &[
    (
        "chain twice",
        "chain { a { hops: x, y } a { } }",
        &["E208 1:26"],
        "",
    ),
    ("chain reserved", "chain { direct { } }", &["E502 1:9"], ""),
    (
        "chain key",
        "chain { a { hop: x } }",
        &["E204 1:13"],
        "`hops`",
    ),
    (
        "bypass word",
        "bypass { b { protocols: tcp } }",
        &["E405 1:25"],
        "",
    ),
    (
        "bypass section",
        "bypass { b { escalte { } } }",
        &["E201 1:14"],
        "`escalate`",
    ),
    (
        "watch targets",
        "watch { w { targets: domain(geosit: x) } }",
        &["E602 1:29"],
        "`geosite`",
    ),
    (
        "watch key",
        "watch { enabledd: true }",
        &["E204 1:9"],
        "`enabled`",
    ),
    ("speedtest", "speedtest { streams: 3 }", &["E405 1:22"], ""),
];
